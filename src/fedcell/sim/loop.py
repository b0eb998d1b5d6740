"""The loop: federated training of a real model against a simulated clock, one RoundRecord a round."""

from __future__ import annotations  # what only types name is not imported

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from fedcell.errors import InputError
from fedcell.learn.aggregator import Aggregator, LateModels
from fedcell.learn.compression import Compression
from fedcell.learn.engine import Evaluation, Job
from fedcell.learn.profile import noise_of
from fedcell.protocol import Knowledge, RoundInputs, play_round, samples_visited
from fedcell.quantisation import WEIGHT_BITS, upload_bits
from fedcell.rng import keyed, stream
from fedcell.schedule.laws import Law, parse_law
from fedcell.schedule.plan import Links, Plan
from fedcell.schedule.policy import Policy, cap_k
from fedcell.sim.driver import Driver, expected_j, has_energy_for
from fedcell.sim.evaluation import Evaluations
from fedcell.sim.record import RoundRecord
from fedcell.sim.requests import EngineCoroutine, Evaluate, run_coroutine
from fedcell.sim.state import Score, State
from fedcell.types import Floats, Indices, Vector

if TYPE_CHECKING:
    from fedcell.schedule.downlink import Downlink
    from fedcell.sim.spec import Spec
    from fedcell.sim.task import Task
    from fedcell.world import Conditions, World


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
    def load(cls, spec: Spec, threads: int | None = None) -> Simulation:
        """Load what the run needs.

        Args:
            spec: one run, without a grid of several.
            threads: for training; all cores by default.
        """
        from fedcell.sim.task import load_task

        spec, *others = spec.runs()
        if others:
            raise InputError(
                f"the spec's grid has {1 + len(others)} runs; simulate one of spec.runs(), or use fedcell race"
            )
        task = load_task(spec.task, spec.devices.count, spec.seed, threads)
        return cls(spec, task, world_of(spec, task), spec.make_policy())

    @cached_property
    def learns_profiles(self) -> bool:
        """Whether the server keeps profiles from the updates that arrive."""
        return self.spec.profiles == "updates" and self.spec.uses_profiles

    @cached_property
    def reports_later(self) -> bool:
        """Whether devices that had no rate at the start report their data when they have one."""
        return self.spec.reports_may_be_lost

    def law(self, snr: Floats) -> Law:
        """The law of the uploads of (n,) devices with this SNR."""
        return self.cell_law.for_devices(snr, self.world.upload_bits)

    @cached_property
    def cell_law(self) -> Law:
        """How uploads share the cell, as the spec has it."""
        return parse_law(self.spec.cell.law)

    @cached_property
    def compression(self) -> Compression:
        """What becomes of the uploads whose bits no policy decides."""
        return self.spec.task.make_compression()

    @cached_property
    def weights(self) -> float:
        """The number of weights of a model, as its size on the air has it."""
        return self.world.cell.model_bits / WEIGHT_BITS

    @cached_property
    def _size(self) -> tuple[float, float | None, int, float]:
        """The epochs of a whole training, the weights and tensors of a model, and the bits a weight of an upload.

        With error feedback nobody may decide the bits of an upload: then nobody is told of how many weights it is.
        """
        weights = None if self.compression.feedback else self.weights
        return self.spec.task.epochs, weights, len(self.task.engine.tensors), self.compression.bits

    def true_links(self, conditions: Conditions) -> Links:
        """What really holds of the devices that are there, whatever is believed."""
        some = conditions.some
        law = self.law(conditions.snr[some])
        return Links(conditions.upload_s[some], conditions.compute_s[some], law, *self._size)

    def downlink(self, there: Indices | slice, snr: Floats) -> Downlink | None:
        """How the model comes down to (n,) devices with this SNR; None if it takes no time."""
        cell = self.world.cell
        if cell.downlink == "free":
            return None
        from fedcell.schedule.downlink import Multicast, Unicast
        from fedcell.world import download_s

        seconds = download_s(cell, self.world.devices.power_w_per_hz[there], snr)
        return Multicast(seconds) if cell.downlink == "multicast" else Unicast(seconds)

    @cached_property
    def aggregator(self) -> Aggregator:
        """What becomes of the models that arrive; the policy may decide the server's momentum."""
        return self.spec.task.make_aggregator().with_momentum(self.policy.server_momentum)

    def start(self) -> State:
        """The state before the first round."""
        model = self.task.engine.initial(stream(self.spec.seed, "model"))
        M, clock_s = self.spec.devices.count, 0.0
        knowledge, spent_j = Knowledge.empty(M), np.zeros(M)
        if self.spec.uses_profiles and self.spec.profiles != "none":
            from fedcell.sim.profiles import reports

            profiles, clock_s, spent_j = reports(self.spec, self.task, self.world, model)
            knowledge = replace(knowledge, profiles=profiles)
        return State(0, clock_s, model, knowledge, spent_j, aggregation=self.aggregator.initial(model.size))

    def report(self, device: int) -> list[float] | None:
        """The profile that a device reports before the first round; None if it reports none."""
        profile = self.start().knowledge.profiles[device]
        return [float(entry) for entry in profile] if profile.size and np.isfinite(profile).all() else None

    def evaluated_model(self, state: State) -> Vector:
        """The model (P,) that is evaluated and kept."""
        return self.aggregator.evaluated(state.model, state.aggregation)

    def step(self, state: State) -> Step | None:
        """Play one round: what it did and the state after it, or None if the run has ended."""
        return run_coroutine(self.task.engine, self.round_coroutine(state))

    def round_coroutine(self, state: State) -> EngineCoroutine[Step | None]:
        """One round that asks an engine for what it needs; see requests.py."""
        spec, r, conditions = self.spec, state.round, self.conditions(state)
        if conditions is None:
            return None
        if conditions.there.size == 0:
            return (yield from self._wait(state))
        inputs = self.round_inputs(state, conditions)
        policy = self.policy if conditions.available is None else cap_k(self.policy, len(inputs.view))
        rng, late_count = stream(spec.seed, "policy", r), self.aggregator.late > 0.0
        driver = Driver(self, state, conditions, inputs)
        done = yield from driver.play(
            play_round(inputs, policy, state.knowledge, rng, name=spec.policy, late_count=late_count)
        )
        if done is None:
            return None
        plan = replace(done.send.plan, devices=driver.there[done.send.plan.devices])
        model, aggregation = state.model, state.aggregation
        if driver.mean is not None:
            model, aggregation = self.aggregator.step(model, driver.mean, aggregation)
        aggregation, round_s = replace(aggregation, late=driver.late), done.outcome.round_s
        clock_s, spent_j = state.clock_s + round_s, driver.spent_j(done.send.plan)
        after = State(r + 1, clock_s, model, done.knowledge, spent_j, False, aggregation, driver.residuals, state.score)
        score = yield from self._scored(after, round_s, driver.mean is not None)
        reached = spec.target_accuracy is not None and score.accuracy >= spec.target_accuracy
        joules, plan_j = driver.joules(), driver.plan_j
        sent = self._decisions(plan, driver.delivered)
        accuracy, loss, evaluated, _ = score
        record = RoundRecord(
            r + 1, clock_s, round_s, plan, driver.delivered, accuracy, loss, joules, plan_j, *sent, float(evaluated)
        )
        return record, replace(after, reached=reached, score=score)

    @cached_property
    def _evaluations(self) -> Evaluations:
        return self.spec.task.make_evaluations()

    def _scored(self, after: State, round_s: float, changed: bool = True) -> EngineCoroutine[Score]:
        """How good the model is after a round, or was when it was last evaluated.

        Args:
            after: the state after the round, with the score before it.
            round_s: how long the round took.
            changed: whether the model may be another one than before the round.
        """
        spec, last = self.spec, after.score
        due = (
            last.round == 0
            or self._evaluations.due(after.round, after.clock_s - last.clock_s, after.clock_s, spec.budget_s)
            or after.round == spec.rounds
            or after.clock_s + round_s > spec.budget_s  # no round as long as this one fits any more
        )
        if not due:
            return last
        if not changed and last.round == after.round - 1 > 0:
            return last._replace(round=after.round, clock_s=after.clock_s)
        return Score(*_scores((yield Evaluate(self.evaluated_model(after)))), after.round, after.clock_s)

    def _decisions(self, plan: Plan, delivered: Indices) -> tuple[float, float, float]:
        """Mean epochs and bits a weight of a plan of the run's devices, and the bytes of what was delivered."""
        n, tensors = plan.devices.size, len(self.task.engine.tensors)
        if n == 0:
            return math.nan, math.nan, 0.0
        epochs = float(self.spec.task.epochs if plan.epochs is None else plan.epochs.sum() / n)
        if plan.bits is None:
            size = float(self.compression.upload_bits(self.weights, tensors))
            bits = float(self.compression.bits)
            if self.compression.feedback:
                bits = float(np.full(n, size / self.weights).sum() / n)
            return epochs, bits, math.ceil(size / 8.0) * float(delivered.size)
        sent = upload_bits(self.weights, tensors, plan.bits[np.searchsorted(plan.devices, delivered)])
        return epochs, float(plan.bits.sum() / n), float(np.ceil(sent / 8.0).sum())

    def conditions(self, state: State) -> Conditions | None:
        """What holds in the state's round; None if the run has ended."""
        spec, r = self.spec, state.round
        if state.reached or (spec.rounds is not None and r >= spec.rounds) or not np.isfinite(state.model).all():
            return None
        conditions = state.late.with_remaining_band(self.world.conditions(spec.seed, r, state.clock_s))
        if self.world.devices.battery_j is None:
            return conditions
        left, later = has_energy_for(conditions, self.world, state.spent_j)
        return conditions.among(left) if left.any() or later.any() else None

    def round_inputs(self, state: State, conditions: Conditions) -> RoundInputs:
        """What the server sees before the state's round, if anybody is there."""
        spec, task, some, r = self.spec, self.task, conditions.some, state.round
        compute_s = conditions.foreseen_compute_s(spec.knowledge)[some]
        law, samples = self.law(conditions.believed_snr[some]), task.samples[some]
        links = Links(conditions.believed_upload_s[some], compute_s, law, *self._size)
        view = state.knowledge.view(
            links,
            r,
            clock_s=state.clock_s,
            explore=spec.explores,
            there=None if conditions.available is None else conditions.there,
            joules=partial(expected_j, self.world),
            policy=self.policy,
            samples=samples,
            label_counts=task.label_counts[some],
            profile_noise=noise_of(spec.epsilon, state.knowledge.profiles.shape[1]),
            downlink=self.downlink(some, conditions.believed_snr[some]),
            left_s=spec.budget_s - state.clock_s,
            left_j=math.inf if spec.budget_j is None else spec.budget_j - float(state.spent_j.sum()),
        )
        return RoundInputs(view, links, samples.astype(np.float64))

    def jobs(
        self, state: State, devices: Indices, epochs: Floats | None = None, bits: Floats | None = None
    ) -> list[Job]:
        """The local training of n devices in the state's round; ``epochs`` and ``bits`` as in Plan."""
        rms = self.policy.uses_rms
        if bits is None and self.compression.bits < WEIGHT_BITS:
            bits = np.full(devices.size, float(self.compression.bits))
        return jobs(self.task, state.model, devices, self.spec, state.round, rms=rms, epochs=epochs, bits=bits)

    def _wait(self, state: State) -> EngineCoroutine[Step | None]:
        """A round in which nobody is there: the clock goes on until somebody is, and the model stays."""
        next_s = self.world.next_s(self.spec.seed, state.clock_s)
        if next_s > self.spec.budget_s or math.isinf(next_s):
            return None
        wait_s = next_s - state.clock_s
        plan = Plan.empty(wait_s)
        aggregation = replace(state.aggregation, late=LateModels.empty())
        after = replace(state, round=state.round + 1, clock_s=next_s, aggregation=aggregation)
        score = yield from self._scored(after, wait_s, changed=False)
        accuracy, loss, evaluated, _ = score
        record = RoundRecord(
            after.round, next_s, wait_s, plan, plan.devices, accuracy, loss, state.reports_j, sent_bytes=0.0,
            evaluated=float(evaluated),
        )  # fmt: skip
        return record, replace(after, score=score)


Step = tuple[RoundRecord, State]
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
    from fedcell.sim.spec import require_spec
    from fedcell.sim.spec_warnings import warn
    from fedcell.sim.task import resolve_device

    require_spec(spec, "simulate")
    run = Simulation.load(resolve_device(spec), threads)
    warn([spec])
    state = run.start()
    while (played := run.step(state)) is not None:
        record, state = played
        yield record


def world_of(spec: Spec, task: Task) -> World:
    """The world of a run: its devices go through their samples once an epoch, and upload the engine's weights."""
    samples = [samples_visited(len(part), spec.task.epochs) for part in task.parts]
    return spec.world(samples, task.engine.parameters, len(task.engine.tensors))


def jobs(
    task: Task,
    model: Vector,
    devices: Indices,
    spec: Spec,
    r: int,
    rms: bool = False,
    epochs: Floats | None = None,
    bits: Floats | None = None,
) -> list[Job]:
    """The local training of n devices in round r; ``rms`` as in Job, ``epochs`` and ``bits`` as in Plan.

    Without ``bits`` the models come as they are trained.
    """
    orders, rate, n = keyed(spec.seed, "batches", r), spec.task.rate(r), devices.size
    each = [spec.task.epochs] * n if epochs is None else epochs.tolist()
    size = [WEIGHT_BITS] * n if bits is None else [int(one) for one in bits]
    return [
        Job(model, visits(task.parts[i], times, orders(int(i))), rate, (spec.seed, r, int(i)), rms, few)
        for i, times, few in zip(devices, each, size, strict=True)
    ]


def _scores(result: Evaluation) -> tuple[float, float]:
    """Accuracy and loss of the one model that was evaluated."""
    loss = float(result.loss[0])
    return float(result.accuracy[0]), loss if math.isfinite(loss) else math.inf  # or it is taken for unknown


def visits(part: Indices, epochs: float, rng: np.random.Generator) -> Indices:
    """(epochs, D) the order in which a device visits its samples, shuffled again each epoch; (1, part of D) below 1."""
    if epochs <= 1:  # 1 is the paper's case; stacking one row would copy it
        return rng.permutation(part)[np.newaxis, : samples_visited(len(part), epochs)]
    return np.stack([rng.permutation(part) for _ in range(int(epochs))])
