"""The loop: federated training of a real model against a simulated clock, one RoundRecord a round."""

import io
import math
import zipfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from fedcell.errors import InputError
from fedcell.learn.engine import Evaluation, Job, Updates, Vector
from fedcell.learn.profile import noise_of
from fedcell.rng import keyed, stream
from fedcell.schedule.downlink import Downlink, Multicast, Unicast
from fedcell.schedule.laws import Density, Law, parse_law
from fedcell.schedule.needs import Floats, Indices
from fedcell.schedule.policy import Plan, Policy, RoundView
from fedcell.schedule.profiles import balanced_weights, profiles_of
from fedcell.schedule.registry import blaming
from fedcell.sim.knowledge import Knowledge, Look, Timing, known_compute_s
from fedcell.sim.profiles import output_change, reports
from fedcell.sim.spec import Spec
from fedcell.sim.spending import can_pay, expected_j, true_j
from fedcell.sim.task import Task, load_task, settled
from fedcell.sim.turnout import Turnout, allowed_s, limited, turnout
from fedcell.world import Conditions, World, download_s


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
        joules: what all devices spent in it, with that of their reports in the first round; NaN if it is not known.
        plan_joules: (n,) what each scheduled device spent on training and sending, in the plan's order; NaN if it is
            not known.

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
    joules: float = math.nan
    plan_joules: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.plan_joules.size == 0:
            object.__setattr__(self, "plan_joules", np.full(self.plan.devices.size, np.nan))


@dataclass(frozen=True, eq=False)
class State:
    """Where a run stands between two rounds: all that its further rounds depend on, for every draw is keyed by round.

    Attributes:
        round: rounds done.
        clock_s: the simulated time.
        model: (P,) the global model.
        knowledge: what the server has learnt of the devices.
        spent_j: (M,) the joules that each device has spent.
        reached: whether the target accuracy was reached.
    """

    round: int
    clock_s: float
    model: Vector
    knowledge: Knowledge
    spent_j: Floats
    reached: bool = False

    @property
    def reports_j(self) -> float:
        """What the next round's record has to bear of the devices' reports, in joules: all of it if it is the first."""
        return float(self.spent_j.sum()) if self.round == 0 else 0.0

    def to_bytes(self) -> bytes:
        """The state as an .npz file's content; nothing is pickled."""
        content = io.BytesIO()
        numbers = np.array([self.round, self.reached], dtype=np.int64)
        arrays = {"numbers": numbers, "clock_s": np.float64(self.clock_s), "model": self.model, "spent_j": self.spent_j}
        np.savez(content, **arrays, **self.knowledge.to_arrays())  # type: ignore[arg-type]
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "State":
        """The inverse of to_bytes; a ValueError if it is damaged."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                number, reached = file["numbers"].tolist()
                model = file["model"].astype(np.float32, copy=False)
                knowledge, spent_j = Knowledge.from_arrays(file), file["spent_j"]
                return cls(number, float(file["clock_s"]), model, knowledge, spent_j, bool(reached))
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

    def law(self, snr: Floats) -> Law:
        """The law of the uploads of (n,) devices with this SNR."""
        return self._law_of_cell.bound(snr, self.world.cell.model_bits)

    @cached_property
    def _law_of_cell(self) -> Law:
        return parse_law(self.spec.cell.law)

    def downlink(self, there: Indices, snr: Floats) -> Downlink | None:
        """How the model comes down to (n,) devices with this SNR; None if it takes no time."""
        cell = self.world.cell
        if cell.downlink == "free":
            return None
        seconds = download_s(cell, self.world.devices.power_w_per_hz[there], snr)
        return Multicast(seconds) if cell.downlink == "multicast" else Unicast(seconds)

    def start(self) -> State:
        """The state before the first round."""
        model = self.task.engine.initial(stream(self.spec.seed, "model"))
        M, clock_s = self.spec.devices.count, 0.0
        knowledge, spent_j = Knowledge.none(M), np.zeros(M)
        if self.spec.uses_profiles and self.spec.profiles != "none":
            profiles, clock_s, spent_j = reports(self.spec, self.task, self.world, model)
            knowledge = replace(knowledge, profiles=profiles)
        return State(0, clock_s, model, knowledge, spent_j)

    def report(self, device: int) -> list[float] | None:
        """The profile that a device reports before the first round; None if it reports none."""
        profile = self.start().knowledge.profiles[device]
        return [float(entry) for entry in profile] if profile.size and np.isfinite(profile).all() else None

    def step(self, state: State) -> "Played | None":
        """Play one round: what it did and the state after it, or None if the run has ended."""
        playing, engine = self.playing(state), self.task.engine
        try:
            updates = engine.update(cast(list[Job], next(playing)))
            result = engine.evaluate(cast(Vector, playing.send(updates))[np.newaxis])
            playing.send(result)
        except StopIteration as end:
            return cast(Played | None, end.value)
        raise AssertionError("a round asks twice")

    def playing(self, state: State) -> "Generator[list[Job] | Vector, Any, Played | None]":
        """One round that asks for its training: it yields jobs and wants Updates, then a model and its Evaluation."""
        spec, task, r = self.spec, self.task, state.round
        if state.reached or (spec.rounds is not None and r >= spec.rounds) or not np.isfinite(state.model).all():
            return None
        conditions = self.world.conditions(spec.seed, r, state.clock_s)
        if self.world.devices.battery_j is not None:
            left = can_pay(conditions, self.world, state.spent_j)
            if not left.any():
                return None
            conditions = conditions.among(left)
        there = conditions.there
        if there.size == 0:
            return self._wait(state)
        compute_s = known_compute_s(conditions, spec.knowledge)[there]
        look = Look(conditions.believed_upload_s[there], compute_s, self.law(conditions.believed_snr[there]))
        noise = noise_of(spec.epsilon, state.knowledge.profiles.shape[1])
        view = state.knowledge.view(
            look,
            r,
            clock_s=state.clock_s,
            explore=spec.explores,
            there=there,
            samples=task.samples[there],
            label_counts=task.label_counts[there],
            profile_noise=noise,
            downlink=self.downlink(there, conditions.believed_snr[there]),
        )
        view = replace(view, joules=expected_j(view, self.world))
        policy = self.policy if conditions.available is None else limited(self.policy, there.size)
        with blaming(spec.policy):
            chosen = policy.decide(view, stream(spec.seed, "policy", r))
        plan = replace(chosen, devices=there[chosen.devices])
        went = self._play(chosen, view, look, conditions, state)
        clock_s = state.clock_s + went.round_s
        plan_j = true_j(plan, self.world, conditions, self.law(conditions.snr), went)
        spent_j = state.spent_j.copy()
        spent_j[plan.devices] += plan_j
        if clock_s > spec.budget_s or (spec.budget_j is not None and spent_j.sum() > spec.budget_j):
            return None
        if went.round_s == 0.0 and spec.rounds is None:
            raise InputError(
                f"{spec.policy} scheduled nobody and its round takes no time: it would never end; set rounds"
            )
        delivered = arrivals(plan.devices[went.delivered], spec, r)
        updates: Updates = yield jobs(task, state.model, delivered, spec, r)
        weights = mean_weights(spec, task, view, delivered)
        model = updates.mean(weights) if delivered.size else state.model
        accuracy, loss = _scores((yield model))
        reached = spec.target_accuracy is not None and accuracy >= spec.target_accuracy
        knowledge = state.knowledge.after(view, chosen, look, went.taught, clock_s).averaged(delivered, weights)
        if self.learns_profiles and delivered.size:
            classes = task.label_counts.shape[1]
            knowledge = knowledge.learning(delivered, output_change(updates.tail(classes), state.model, classes))
        joules = float(plan_j.sum()) + state.reports_j
        record = RoundRecord(r + 1, clock_s, went.round_s, plan, delivered, accuracy, loss, joules, plan_j)
        return record, State(r + 1, clock_s, model, knowledge, spent_j, reached)

    def _play(self, chosen: Plan, view: RoundView, look: Look, conditions: Conditions, state: State) -> Turnout:
        """What becomes of a plan for the devices of the view."""
        if chosen.devices.size == 0:
            nothing = Timing(np.empty(0), np.empty(0))
            return Turnout(np.empty(0, np.bool_), chosen.round_s, nothing, nothing)
        there, planned_s = conditions.there, chosen.finish_s(view.upload_s, view.compute_s, view.law)
        late_s = leaves_s = np.full(chosen.devices.size, np.inf)
        if conditions.until_s is not None:
            leaves_s = conditions.until_s[there][chosen.devices] - state.clock_s
        if self.spec.slack is not None:
            known = state.knowledge.known(look, there)
            told = np.isfinite(known.upload_s) & np.isfinite(known.compute_s)
            late_s = allowed_s(planned_s, self.spec.slack, told[chosen.devices])
        planned_upload_s = (
            planned_s - view.compute_s[chosen.devices] - (0.0 if chosen.starts_s is None else chosen.starts_s)
        )
        down = self.downlink(there, conditions.snr[there])
        held = replace(chosen, starts_s=None if down is None else down.starts_s(chosen.devices))
        timing = true_timing(held, conditions, self.law(conditions.snr[there]))
        return replace(turnout(timing, planned_upload_s, late_s, leaves_s), starts_s=held.starts_s)

    def _wait(self, state: State) -> "Played | None":
        """A round in which nobody is there: the clock goes on until somebody is, and the model stays."""
        next_s = self.world.next_s(self.spec.seed, state.clock_s)
        if next_s > self.spec.budget_s or math.isinf(next_s):
            return None
        wait_s, nobody = next_s - state.clock_s, np.empty(0, np.int64)
        plan = Plan(nobody, np.empty(0), wait_s)
        accuracy, loss = _scores(self.task.engine.evaluate(state.model[np.newaxis]))
        record = RoundRecord(state.round + 1, next_s, wait_s, plan, nobody, accuracy, loss, state.reports_j)
        return record, replace(state, round=state.round + 1, clock_s=next_s)


Played = tuple[RoundRecord, State]
"""What a round did, and the state after it."""


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
    run = Simulation.load(settled(spec), threads)
    state = run.start()
    while (played := run.step(state)) is not None:
        record, state = played
        yield record


def world_of(spec: Spec, task: Task) -> World:
    """The world of a run: its devices go through their samples once an epoch, and upload the engine's weights."""
    return spec.world([visited(len(part), spec.task.epochs) for part in task.parts], task.engine.parameters)


def true_timing(plan: Plan, conditions: Conditions, law: Law = Density()) -> Timing:  # noqa: B008 - frozen
    """When the devices of a plan, of those that are there, really begin to upload and finish, whatever was believed."""
    upload_s, compute_s = conditions.upload_s[conditions.there], conditions.compute_s[conditions.there]
    ready_s = compute_s[plan.devices] if plan.starts_s is None else plan.starts_s + compute_s[plan.devices]
    return Timing(ready_s, plan.finish_s(upload_s, compute_s, law))


def arrivals(devices: Indices, spec: Spec, r: int) -> Indices:
    """The scheduled devices whose models arrive; each is lost with the spec's probability."""
    if spec.devices.failure == 0.0:
        return devices
    return devices[stream(spec.seed, "failure", r).random(spec.devices.count)[devices] >= spec.devices.failure]


def jobs(task: Task, model: Vector, delivered: Indices, spec: Spec, r: int) -> list[Job]:
    """The local training of the n devices that deliver, in round r."""
    orders, rate = keyed(spec.seed, "batches", r), spec.task.rate(r)
    return [
        Job(model, visits(task.parts[i], spec.task.epochs, orders(int(i))), rate, (spec.seed, r, int(i)))
        for i in delivered
    ]


def _scores(result: Evaluation) -> tuple[float, float]:
    """Accuracy and loss of the one model that was evaluated."""
    loss = float(result.loss[0])
    return float(result.accuracy[0]), loss if math.isfinite(loss) else math.inf  # or it is taken for unknown


def mean_weights(spec: Spec, task: Task, view: RoundView, delivered: Indices) -> Floats | None:
    """(n,) the weights of the delivered models in their mean, up to a common factor; None if they are equal."""
    if spec.task.averaging == "samples":
        return task.samples[delivered].astype(np.float64)
    if spec.task.averaging == "balanced" and view.profiles is not None and delivered.size:
        places = delivered if view.ids is None else np.searchsorted(view.ids, delivered)
        return balanced_weights(profiles_of(view), places)
    return None


def visits(part: Indices, epochs: float, rng: np.random.Generator) -> Indices:
    """(epochs, D) the order in which a device visits its samples, shuffled again each epoch; (1, part of D) below 1."""
    if epochs <= 1:  # 1 is the paper's case; stacking one row would copy it
        return rng.permutation(part)[np.newaxis, : visited(len(part), epochs)]
    return np.stack([rng.permutation(part) for _ in range(int(epochs))])


def visited(samples: int, epochs: float) -> int:
    """How many samples a device with so many goes through in a round; at least one."""
    return max(min(samples, 1), round(epochs * samples))
