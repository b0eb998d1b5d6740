"""The loop: federated training of a real model against a simulated clock, one RoundRecord a round."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedcell.errors import InputError, user_code
from fedcell.learn.aggregator import Aggregator, LateModels
from fedcell.learn.engine import Evaluation, Job, Updates
from fedcell.learn.profile import noise_of
from fedcell.protocol.knowledge import Knowledge
from fedcell.protocol.outcome import Turnout, allowed_s, turnout
from fedcell.protocol.signals import read_signals
from fedcell.rng import keyed, stream
from fedcell.schedule.downlink import Downlink, Multicast, Unicast
from fedcell.schedule.laws import Dedicated, Law, parse_law
from fedcell.schedule.plan import Links, Plan
from fedcell.schedule.policy import Policy, limited
from fedcell.schedule.profiles import balanced_weights, profiles_of
from fedcell.schedule.view import RoundView
from fedcell.sim.asking import Scene, asking, visited
from fedcell.sim.doubts import warn
from fedcell.sim.profiles import output_change, report_j, reports
from fedcell.sim.record import RoundRecord
from fedcell.sim.requests import Evaluate, Playing, Train, played
from fedcell.sim.spec import Spec, require_spec
from fedcell.sim.spending import can_pay, expected_j, true_j
from fedcell.sim.state import State
from fedcell.sim.task import Task, load_task, settled
from fedcell.types import Floats, Indices, Vector
from fedcell.world import Conditions, World, download_s
from fedcell.world.channel import may_lack_rate


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

    @property
    def _size(self) -> tuple[float, float]:
        """The epochs and the bits of a whole training and a whole model."""
        return self.spec.task.epochs, self.world.cell.model_bits

    def true_links(self, conditions: Conditions) -> Links:
        """What really holds of the devices that are there, whatever is believed."""
        there = conditions.there
        law = self.law(conditions.snr[there])
        return Links(conditions.upload_s[there], conditions.compute_s[there], law, *self._size)

    def downlink(self, there: Indices, snr: Floats) -> Downlink | None:
        """How the model comes down to (n,) devices with this SNR; None if it takes no time."""
        cell = self.world.cell
        if cell.downlink == "free":
            return None
        seconds = download_s(cell, self.world.devices.power_w_per_hz[there], snr)
        return Multicast(seconds) if cell.downlink == "multicast" else Unicast(seconds)

    @cached_property
    def aggregator(self) -> Aggregator:
        """What becomes of the models that arrive."""
        return self.spec.task.make_aggregator()

    def start(self) -> State:
        """The state before the first round."""
        model = self.task.engine.initial(stream(self.spec.seed, "model"))
        M, clock_s = self.spec.devices.count, 0.0
        knowledge, spent_j = Knowledge.empty(M), np.zeros(M)
        if self.spec.uses_profiles and self.spec.profiles != "none":
            profiles, clock_s, spent_j = reports(self.spec, self.task, self.world, model)
            knowledge = replace(knowledge, profiles=profiles)
        return State(0, clock_s, model, knowledge, spent_j, aggregation=self.aggregator.initial(model.size))

    def report(self, device: int) -> list[float] | None:
        """The profile that a device reports before the first round; None if it reports none."""
        profile = self.start().knowledge.profiles[device]
        return [float(entry) for entry in profile] if profile.size and np.isfinite(profile).all() else None

    def shown(self, state: State) -> Vector:
        """The model (P,) that is evaluated and kept."""
        return self.aggregator.evaluated(state.model, state.aggregation)

    def step(self, state: State) -> "Played | None":
        """Play one round: what it did and the state after it, or None if the run has ended."""
        return played(self.task.engine, self.playing(state))

    def playing(self, state: State) -> "Playing[Played | None]":
        """One round that asks an engine for what it needs; see requests.py."""
        spec, r, conditions = self.spec, state.round, self.conditions(state)
        if conditions is None:
            return None
        if conditions.there.size == 0:
            return (yield from self._wait(state))
        first = self.scene(state, conditions)
        scene, chosen = yield from self._decided(state, first)
        plan = replace(chosen, devices=scene.conditions.there[chosen.devices])
        went = self._play(chosen, scene, state)
        clock_s = state.clock_s + went.round_s
        plan_j = self._plan_j(plan, scene, went, state)
        reports_j = self._first_reports_j(state, conditions)
        spent_j = state.spent_j + scene.asked_j + reports_j
        spent_j[plan.devices] += plan_j
        if clock_s > spec.budget_s or (spec.budget_j is not None and spent_j.sum() > spec.budget_j):
            return None
        if went.round_s == 0.0 and spec.rounds is None:
            raise InputError(
                f"{spec.policy} scheduled nobody and its round takes no time: it would never end; set rounds"
            )
        delivered = arrivals(plan.devices[went.delivered], spec, r)
        coming = arrivals(plan.devices[went.coming], spec, r)
        updates = yield from self._trained(state, scene, plan, np.concatenate((delivered, coming)))
        own, late = updates.part(slice(delivered.size)), self._under_way(updates, delivered.size, coming, plan, went)
        mean, devices, weights = self._mean(state, first.view, delivered, own, went.round_s)
        knowledge = self._learnt(state, first, scene, chosen, went).averaged(devices, weights)
        knowledge = self._reported(knowledge, state, scene, delivered, own)
        model, aggregation = state.model, state.aggregation
        if mean is not None:
            model, aggregation = self.aggregator.step(model, mean, aggregation)
        after = State(r + 1, clock_s, model, knowledge, spent_j, False, replace(aggregation, late=late))
        accuracy, loss = _scores((yield Evaluate(self.shown(after))))
        reached = spec.target_accuracy is not None and accuracy >= spec.target_accuracy
        joules = float(plan_j.sum()) + float(scene.asked_j.sum()) + state.reports_j + float(reports_j.sum())
        record = RoundRecord(r + 1, clock_s, went.round_s, plan, delivered, accuracy, loss, joules, plan_j)
        return record, replace(after, reached=reached)

    def conditions(self, state: State) -> Conditions | None:
        """What holds in the state's round; None if the run has ended."""
        spec, r = self.spec, state.round
        if state.reached or (spec.rounds is not None and r >= spec.rounds) or not np.isfinite(state.model).all():
            return None
        conditions = state.late.with_remaining_band(self.world.conditions(spec.seed, r, state.clock_s))
        if self.world.devices.battery_j is None:
            return conditions
        left, later = can_pay(conditions, self.world, state.spent_j)
        return conditions.among(left) if left.any() or later.any() else None

    def scene(self, state: State, conditions: Conditions) -> Scene:
        """What the server sees before the state's round, if anybody is there."""
        spec, task, there, r = self.spec, self.task, conditions.there, state.round
        compute_s = conditions.foreseen_compute_s(spec.knowledge)[there]
        law = self.law(conditions.believed_snr[there])
        look = Links(conditions.believed_upload_s[there], compute_s, law, *self._size)
        view = state.knowledge.view(
            look,
            r,
            clock_s=state.clock_s,
            explore=spec.explores,
            there=there,
            samples=task.samples[there],
            label_counts=task.label_counts[there],
            profile_noise=noise_of(spec.epsilon, state.knowledge.profiles.shape[1]),
            downlink=self.downlink(there, conditions.believed_snr[there]),
            left_s=spec.budget_s - state.clock_s,
            left_j=math.inf if spec.budget_j is None else spec.budget_j - float(state.spent_j.sum()),
        )
        view = replace(view, joules=expected_j(view, self.world))
        return Scene(view, look, conditions, 0.0, np.arange(there.size), np.zeros(spec.devices.count))

    def _decided(self, state: State, first: Scene) -> "Playing[tuple[Scene, Plan]]":
        """The policy's plan, and the scene on which it was decided: after the answers, if it asked."""
        rng = stream(self.spec.seed, "policy", state.round)
        policy = self.policy if first.conditions.available is None else limited(self.policy, len(first.view))
        with user_code(self.spec.policy):
            question = policy.asked(first.view, rng)
        if question is None:
            with user_code(self.spec.policy):
                return first, policy.decide(first.view, rng)
        scene = yield from asking(self, state, first, question)
        if scene.places.size == 0:
            return scene, Plan.empty(scene.waited_s)
        with user_code(self.spec.policy):
            chosen = limited(policy, scene.places.size).decide(scene.view, rng)
        return scene, replace(chosen, round_s=max(chosen.round_s, scene.waited_s))

    def starts_s(self, scene: Scene, devices: Indices) -> Floats | None:
        """(n,) when these devices of a scene really have the model, or can go on; None if at once."""
        if scene.waited_s > 0.0:
            return np.full(devices.size, scene.waited_s)
        there = scene.conditions.there
        down = self.downlink(there, scene.conditions.snr[there])
        return None if down is None else down.starts_s(devices)

    def limits_s(self, state: State, scene: Scene, devices: Indices, planned_s: Floats) -> tuple[Floats, Floats]:
        """(n,) and (n,): after how many seconds devices of a scene are late, and after how many they leave."""
        there = scene.conditions.there
        late_s = leaves_s = np.full(devices.size, np.inf)
        if scene.conditions.until_s is not None:
            leaves_s = scene.conditions.until_s[there][devices] - state.clock_s
        if self.spec.slack is not None:
            known = state.knowledge.known(scene.look, there)
            told = np.isfinite(known.upload_s) & np.isfinite(known.compute_s)
            late_s = allowed_s(planned_s, self.spec.slack, told[devices])
        return late_s, leaves_s

    def _play(self, chosen: Plan, scene: Scene, state: State) -> Turnout:
        """What becomes of a plan for the devices of the scene."""
        if chosen.devices.size == 0:
            return Turnout.of_nobody(chosen.round_s)
        view, conditions = scene.view, scene.conditions
        planned_s = chosen.timing(view).finish_s
        waits_s = 0.0 if chosen.starts_s is None else chosen.starts_s
        planned_upload_s = planned_s - chosen.seconds(view)[0] - waits_s
        held = replace(chosen, starts_s=self.starts_s(scene, chosen.devices))
        went = turnout(
            held.timing(self.true_links(conditions)),
            planned_upload_s,
            *self.limits_s(state, scene, chosen.devices, planned_s),
            needed=self.policy.needed(chosen.devices.size),
            late_count=self.aggregator.late > 0.0,
        )
        return replace(went, starts_s=held.starts_s)

    def _plan_j(self, plan: Plan, scene: Scene, went: Turnout, state: State) -> Floats:
        """(n,) what the scheduled devices spend; training for an answer was paid for with it."""
        law = self.law(scene.conditions.snr)
        work = plan.work(self.spec.task.epochs)
        training_j, sending_j = true_j(plan, self.world, scene.conditions, law, went, 1.0 if work is None else work)
        plan_j: Floats = sending_j * state.late.band_left + (0.0 if scene.trained is not None else training_j)
        return plan_j

    def _first_reports_j(self, state: State, conditions: Conditions) -> Floats:
        """(M,) what the reports cost of those that have a rate for the first time, beside the round that goes on.

        Whoever had a rate at the start has spent something by then; see `start`.
        """
        cost_j: Floats = np.zeros(state.spent_j.size)
        if self.spec.reports_gradients and may_lack_rate(self.world.cell):
            new = conditions.there[state.spent_j[conditions.there] == 0.0]
            cost_j[new] = report_j(self.task, self.world, conditions, state.late.band_left)[new]
        return cost_j

    def jobs(self, state: State, devices: Indices, epochs: Floats | None = None) -> list[Job]:
        """The local training of n devices in the state's round, of so many epochs; as many as the task says if None."""
        return jobs(self.task, state.model, devices, self.spec, state.round, rms=self.policy.uses_rms, epochs=epochs)

    def _trained(self, state: State, scene: Scene, plan: Plan, devices: Indices) -> "Playing[Updates]":
        """The updates of n devices; they may have trained already, to answer."""
        if scene.trained is None:
            epochs = None if plan.epochs is None else plan.epochs[np.searchsorted(plan.devices, devices)]
            updates: Updates = yield Train(self.jobs(state, devices, epochs))
            return updates
        return scene.trained.part(np.searchsorted(scene.conditions.there, devices))

    def _under_way(self, updates: Updates, first: int, devices: Indices, plan: Plan, went: Turnout) -> LateModels:
        """The models of these devices, the updates from ``first`` on, that arrive after the round."""
        if devices.size == 0:
            return LateModels.empty()
        places = np.searchsorted(plan.devices, devices)
        shares = np.zeros(devices.size) if isinstance(self._law_of_cell, Dedicated) else plan.shares[places]
        return LateModels(devices, updates.part(slice(first, None)).models(), went.after_s[places], shares)

    def _mean(
        self, state: State, view: RoundView, delivered: Indices, own: Updates, round_s: float
    ) -> tuple[Vector | None, Indices, Floats | None]:
        """The mean of the models that arrived, late ones included, and whose they are with which weights."""
        weights = mean_weights(self.aggregator, self.task, view, delivered)
        return self.aggregator.mean(own, delivered, weights, state.late.arrived(round_s), self.task.samples)

    def _learnt(self, state: State, first: Scene, scene: Scene, chosen: Plan, went: Turnout) -> Knowledge:
        """What the round's times taught about the devices that were there at its start."""
        clock_s, taught = state.clock_s + went.round_s, went.taught
        plan = replace(chosen, devices=scene.places[chosen.devices])
        if scene.trained is not None:  # the server saw how long each trained; the upload began when it was told to
            down = first.view.downlink
            starts_s = None if down is None else down.starts_s(plan.devices)
            began_s = first.conditions.compute_s[first.conditions.there][plan.devices]
            began_s = began_s if starts_s is None else starts_s + began_s
            plan = replace(plan, starts_s=starts_s, epochs=None)
            taught = replace(taught, began_s=began_s, finish_s=began_s + (taught.finish_s - taught.began_s))
        return state.knowledge.after(first.view, plan, first.look, taught, clock_s)

    def _reported(
        self, knowledge: Knowledge, state: State, scene: Scene, delivered: Indices, own: Updates
    ) -> Knowledge:
        """What the devices told about their training and their data."""
        r, policy = state.round, self.policy
        if scene.waited_s > 0.0 and scene.places.size:
            answers = {name: getattr(scene.view, name) for name in ("losses", "norms")}
            knowledge = knowledge.hearing(scene.conditions.there, r, **answers)
        if delivered.size == 0:
            return knowledge
        knowledge = knowledge.hearing(delivered, r, **read_signals(policy, own)).trained(r, own.losses)
        if self.learns_profiles:
            classes = self.task.label_counts.shape[1]
            knowledge = knowledge.learning(delivered, output_change(own.tail(classes), state.model, classes))
        return knowledge

    def _wait(self, state: State) -> "Playing[Played | None]":
        """A round in which nobody is there: the clock goes on until somebody is, and the model stays."""
        next_s = self.world.next_s(self.spec.seed, state.clock_s)
        if next_s > self.spec.budget_s or math.isinf(next_s):
            return None
        wait_s = next_s - state.clock_s
        plan = Plan.empty(wait_s)
        accuracy, loss = _scores((yield Evaluate(self.shown(state))))
        record = RoundRecord(state.round + 1, next_s, wait_s, plan, plan.devices, accuracy, loss, state.reports_j)
        return record, replace(
            state,
            round=state.round + 1,
            clock_s=next_s,
            aggregation=replace(state.aggregation, late=LateModels.empty()),
        )


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
    require_spec(spec, "simulate")
    run = Simulation.load(settled(spec), threads)
    warn([spec])
    state = run.start()
    while (played := run.step(state)) is not None:
        record, state = played
        yield record


def world_of(spec: Spec, task: Task) -> World:
    """The world of a run: its devices go through their samples once an epoch, and upload the engine's weights."""
    return spec.world([visited(len(part), spec.task.epochs) for part in task.parts], task.engine.parameters)


def arrivals(devices: Indices, spec: Spec, r: int) -> Indices:
    """The scheduled devices whose models arrive; each is lost with the spec's probability."""
    if spec.devices.failure == 0.0:
        return devices
    return devices[stream(spec.seed, "failure", r).random(spec.devices.count)[devices] >= spec.devices.failure]


def jobs(
    task: Task,
    model: Vector,
    devices: Indices,
    spec: Spec,
    r: int,
    rms: bool = False,
    epochs: Floats | None = None,
) -> list[Job]:
    """The local training of n devices in round r; ``rms`` as in Job, ``epochs`` as in Plan."""
    orders, rate = keyed(spec.seed, "batches", r), spec.task.rate(r)
    each = [spec.task.epochs] * devices.size if epochs is None else epochs.tolist()
    return [
        Job(model, visits(task.parts[i], times, orders(int(i))), rate, (spec.seed, r, int(i)), rms)
        for i, times in zip(devices, each, strict=True)
    ]


def _scores(result: Evaluation) -> tuple[float, float]:
    """Accuracy and loss of the one model that was evaluated."""
    loss = float(result.loss[0])
    return float(result.accuracy[0]), loss if math.isfinite(loss) else math.inf  # or it is taken for unknown


def mean_weights(aggregator: Aggregator, task: Task, view: RoundView, delivered: Indices) -> Floats | None:
    """(n,) the weights of the delivered models in their mean, up to a common factor; None if they are equal."""

    def balanced() -> Floats | None:
        if view.profiles is None:
            return None
        return balanced_weights(
            profiles_of(view), delivered if view.ids is None else np.searchsorted(view.ids, delivered)
        )

    return aggregator.model_weights(task.samples[delivered], balanced)


def visits(part: Indices, epochs: float, rng: np.random.Generator) -> Indices:
    """(epochs, D) the order in which a device visits its samples, shuffled again each epoch; (1, part of D) below 1."""
    if epochs <= 1:  # 1 is the paper's case; stacking one row would copy it
        return rng.permutation(part)[np.newaxis, : visited(len(part), epochs)]
    return np.stack([rng.permutation(part) for _ in range(int(epochs))])
