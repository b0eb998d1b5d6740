"""The loop: federated training of a real model against a simulated clock, one RoundRecord a round."""

import io
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedcell.errors import InputError
from fedcell.learn.engine import Job, Updates, Vector
from fedcell.learn.profile import noise_of
from fedcell.rng import keyed, stream
from fedcell.schedule.bandwidth import Floats
from fedcell.schedule.policy import Indices, Plan, Policy, RoundView
from fedcell.schedule.profiles import balanced_weights, profiles_of
from fedcell.schedule.registry import blaming
from fedcell.sim.knowledge import Knowledge, Look, Timing, known_compute_s
from fedcell.sim.profiles import output_change, reports
from fedcell.sim.spec import Spec
from fedcell.sim.task import Task, load_task
from fedcell.world import Conditions, World


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """What one round did.

    Attributes:
        round: its number, from 1.
        clock_s: the simulated time at which it ended.
        round_s: how long it took.
        plan: who was scheduled, with which share of the band.
        delivered: the devices whose models arrived.
        accuracy: of the global model on the test set after the round, a fraction.
        loss: its mean loss there, in nats; infinity where training has diverged, which ends the run.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=2", rounds=1, task=fc.TaskSpec(hidden=[4]))
        >>> record = next(fc.simulate(spec))
        >>> record.round, len(record.plan.devices), record.clock_s == record.round_s
        (1, 2, True)
    """

    round: int
    clock_s: float
    round_s: float
    plan: Plan
    delivered: Indices
    accuracy: float
    loss: float


@dataclass(frozen=True, eq=False)
class State:
    """Where a run stands between two rounds: all that its further rounds depend on, for every draw is keyed by round.

    Attributes:
        round: rounds done.
        clock_s: the simulated time.
        model: (P,) the global model.
        knowledge: what the server has learnt of the devices.
        reached: whether the target accuracy was reached.
    """

    round: int
    clock_s: float
    model: Vector
    knowledge: Knowledge
    reached: bool = False

    def to_bytes(self) -> bytes:
        """The state as an .npz file's content; nothing is pickled."""
        content = io.BytesIO()
        numbers = np.array([self.round, self.reached], dtype=np.int64)
        arrays = {"numbers": numbers, "clock_s": np.float64(self.clock_s), "model": self.model}
        np.savez(content, **arrays, **self.knowledge.to_arrays())  # type: ignore[arg-type]
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "State":
        """The inverse of to_bytes; a ValueError if it is damaged."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                number, reached = file["numbers"].tolist()
                model = file["model"].astype(np.float32, copy=False)
                return cls(number, float(file["clock_s"]), model, Knowledge.from_arrays(file), bool(reached))
        except (OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"not the state of a run: {error}") from None


@dataclass(frozen=True, eq=False)
class Simulation:
    """One run, loaded and ready: ``start()`` is its first state, ``step(state)`` one round from any state.

    A step is a pure function of the state, so a run can be stopped after any round and go on elsewhere.

    Attributes:
        spec: the run.
        task: data, engine, who holds which samples.
        world: what its rounds are drawn from.
        policy: who trains.
    """

    spec: Spec
    task: Task
    world: World
    policy: Policy

    @classmethod
    def load(cls, spec: Spec, threads: int | None = None) -> "Simulation":
        """Load what the run needs.

        Args:
            spec: one run, without a grid of several.
            threads: for training; all cores by default.
        """
        spec, *others = spec.runs()
        if others:
            raise InputError(
                f"the spec's grid has {1 + len(others)} runs; simulate one of spec.runs(), or use fedcell race"
            )
        task = load_task(spec.task, spec.devices.count, spec.seed, threads)
        return cls(spec, task, world_of(spec, task), spec.make_policy())

    @property
    def learns_profiles(self) -> bool:
        """Whether the server keeps profiles from the updates that arrive."""
        return self.spec.profiles == "updates" and self.spec.uses_profiles

    def start(self) -> State:
        """The state before the first round."""
        model = self.task.engine.initial(stream(self.spec.seed, "model"))
        M, clock_s = self.spec.devices.count, 0.0
        knowledge = Knowledge.none(M)
        if self.spec.uses_profiles and self.spec.profiles != "none":
            profiles, clock_s = reports(self.spec, self.task, self.world, model)
            knowledge = replace(knowledge, profiles=profiles)
        return State(0, clock_s, model, knowledge)

    def report(self, device: int) -> list[float] | None:
        """The profile that a device reports before the first round; None if it reports none."""
        profile = self.start().knowledge.profiles[device]
        return [float(entry) for entry in profile] if profile.size and np.isfinite(profile).all() else None

    def step(self, state: State) -> tuple[RoundRecord, State] | None:
        """Play one round: what it did and the state after it, or None if the run has ended."""
        spec, task, r = self.spec, self.task, state.round
        if state.reached or (spec.rounds is not None and r >= spec.rounds) or not np.isfinite(state.model).all():
            return None
        conditions = self.world.conditions(spec.seed, r, state.clock_s)
        look = Look(conditions.upload_s, known_compute_s(conditions, spec.knowledge))
        noise = noise_of(spec.epsilon, state.knowledge.profiles.shape[1])
        view = state.knowledge.view(
            look,
            r,
            clock_s=state.clock_s,
            explore=spec.explores,
            samples=task.samples,
            label_counts=task.label_counts,
            profile_noise=noise,
        )
        with blaming(spec.policy):
            plan = self.policy.decide(view, stream(spec.seed, "policy", r))
        timing = true_timing(plan, conditions)
        round_s = float(timing.finish_s.max()) if plan.devices.size else plan.round_s
        clock_s = state.clock_s + round_s
        if clock_s > spec.budget_s:
            return None
        if round_s == 0.0 and spec.rounds is None:
            raise InputError(
                f"{spec.policy} scheduled nobody and its round takes no time: it would never end; set rounds"
            )
        delivered = arrivals(plan.devices, spec, r)
        updates = train(task, state.model, delivered, spec.seed, r, spec)
        weights = mean_weights(spec, task, view, delivered)
        model = updates.mean(weights) if delivered.size else state.model
        result = task.engine.evaluate(model[np.newaxis])
        accuracy, loss = float(result.accuracy[0]), float(result.loss[0])
        loss = loss if math.isfinite(loss) else math.inf  # so that it is not taken for unknown
        reached = spec.target_accuracy is not None and accuracy >= spec.target_accuracy
        knowledge = state.knowledge.after(view, plan, look, timing, clock_s).averaged(delivered, weights)
        if self.learns_profiles and delivered.size:
            classes = task.label_counts.shape[1]
            knowledge = knowledge.learning(delivered, output_change(updates.tail(classes), state.model, classes))
        record = RoundRecord(r + 1, clock_s, round_s, plan, delivered, accuracy, loss)
        return record, State(r + 1, clock_s, model, knowledge, reached)


def simulate(spec: Spec, *, threads: int | None = None) -> Iterator[RoundRecord]:
    """Train as the spec says and yield a record after every round.

    The same spec gives the same records, bit for bit, on one machine, whatever the number of threads. Every draw is
    keyed by the seed and the round, so all policies of one seed meet the same devices, channels, data and batches.

    Args:
        spec: one run; an InputError if it has a grid of several.
        threads: for training; all cores by default. Changes the speed, never the result.

    Yields:
        RoundRecord: one for each round, in order, as soon as the round is played.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=3", rounds=2, task=fc.TaskSpec(hidden=[4]))
        >>> [(record.round, len(record.delivered)) for record in fc.simulate(spec)]
        [(1, 3), (2, 3)]
    """
    run = Simulation.load(spec, threads)
    state = run.start()
    while (played := run.step(state)) is not None:
        record, state = played
        yield record


def world_of(spec: Spec, task: Task) -> World:
    """The world of a run: its devices go through their samples once an epoch, and upload the engine's weights."""
    return spec.world([visited(len(part), spec.task.epochs) for part in task.parts], task.engine.parameters)


def true_timing(plan: Plan, conditions: Conditions) -> Timing:
    """When the scheduled devices really begin to upload and finish, whatever the server believed."""
    finish_s = plan.finish_s(conditions.upload_s, conditions.compute_s) if plan.devices.size else np.empty(0)
    return Timing(conditions.compute_s[plan.devices], finish_s)


def arrivals(devices: Indices, spec: Spec, r: int) -> Indices:
    """The scheduled devices whose models arrive; each is lost with the spec's probability."""
    if spec.devices.failure == 0.0:
        return devices
    return devices[stream(spec.seed, "failure", r).random(spec.devices.count)[devices] >= spec.devices.failure]


def train(task: Task, model: Vector, delivered: Indices, seed: int, r: int, spec: Spec) -> Updates:
    """What the local training of the n devices that deliver has come to."""
    orders, rate = keyed(seed, "batches", r), spec.task.rate(r)
    return task.engine.update(
        [
            Job(model, visits(task.parts[i], spec.task.epochs, orders(int(i))), rate, (seed, r, int(i)))
            for i in delivered
        ]
    )


def mean_weights(spec: Spec, task: Task, view: RoundView, delivered: Indices) -> Floats | None:
    """(n,) the weights of the delivered models in their mean, up to a common factor; None if they are equal."""
    if spec.task.averaging == "samples":
        return task.samples[delivered].astype(np.float64)
    if spec.task.averaging == "balanced" and view.profiles is not None and delivered.size:
        return balanced_weights(profiles_of(view), delivered)
    return None


def visits(part: Indices, epochs: float, rng: np.random.Generator) -> Indices:
    """(epochs, D) the order in which a device visits its samples, shuffled again each epoch; (1, part of D) below 1."""
    if epochs <= 1:  # 1 is the paper's case; stacking one row would copy it
        return rng.permutation(part)[np.newaxis, : visited(len(part), epochs)]
    return np.stack([rng.permutation(part) for _ in range(int(epochs))])


def visited(samples: int, epochs: float) -> int:
    """How many samples a device with so many goes through in a round; at least one."""
    return max(min(samples, 1), round(epochs * samples))
