"""A round in a simulated cell: the world says what comes of a plan, and what it costs in joules; an engine trains."""

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcell.errors import InputError
from fedcell.learn.aggregator import LateModels
from fedcell.learn.compression import fed_back
from fedcell.learn.engine import Job, Updates
from fedcell.protocol import (
    MIN_SECONDS,
    Collect,
    Collected,
    Observed,
    Outcome,
    RoundInputs,
    RoundResult,
    Send,
    answer_links,
    deadlines,
    read_signals,
)
from fedcell.quantisation import WEIGHT_BITS
from fedcell.rng import keyed, stream
from fedcell.schedule.plan import Links, Plan, Timing
from fedcell.sim.requests import EngineCoroutine, Losses, Train
from fedcell.types import Bools, Floats, Indices, Vector
from fedcell.world import compute_j, round_j, transmit_j

if TYPE_CHECKING:
    from fedcell.sim.loop import Simulation
    from fedcell.sim.state import State
    from fedcell.world import Conditions, World


@dataclass(eq=False)
class Driver:
    """One round of a simulation.

    Attributes:
        run: the run.
        state: before the round.
        conditions: of the round; its devices are those that are there.
        inputs: what the server sees of them.
        mean: (P,) of the models that arrived; None if there is none.
        late: models under way when the round ended.
        delivered: (n,) numbers of the devices whose models arrived.
        residuals: what devices have not sent yet; see `State`.
        plan_j: (n,) what each scheduled device spent, in joules.
        answers_j: (M,) what answers cost each device; None if nobody was asked.
        reports_j: (M,) what reports of their data cost devices that have a rate for the first time; None if nobody
            reports later than at the start.
    """

    run: "Simulation"
    state: "State"
    conditions: "Conditions"
    inputs: RoundInputs
    mean: Vector | None = None
    late: LateModels = field(default_factory=LateModels.empty)
    delivered: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    plan_j: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        self.there = self.conditions.there
        self.answers_j: Floats | None = None
        self.residuals = self.state.residuals
        self._starts_s: Floats | None = None
        self._trained: tuple[Indices, Updates] | None = None  # by devices that trained for their answers

    def play(self, coroutine: Generator[Send | Collect, Any, RoundResult]) -> EngineCoroutine[RoundResult | None]:
        """Play the round; None if it would end after the budget."""
        request = next(coroutine)
        while True:
            answer: Any
            if isinstance(request, Send):
                answer = self._observed(request)
            elif request.send.question is not None:
                answer = yield from self._answers(request.send, request.outcome)
            elif (answer := (yield from self._collected(request.send, request.outcome))) is None:
                return None
            try:
                request = coroutine.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    @cached_property
    def _links(self) -> Links:
        return self.run.true_links(self.conditions)

    def _observed(self, send: Send) -> Observed:
        """What really becomes of a plan."""
        plan, run = send.plan, self.run
        if send.answers is None:  # else they have the model already
            down = run.downlink(self.conditions.some, self.conditions.snr[self.conditions.some])
            plan = plan.starting(None if down is None else down.starts_s(plan.devices))
        self._starts_s = plan.starts_s
        timing = plan.timing(self._links if send.question is None else answer_links(self._links))
        late_s, until_s, leaves_s = np.full(plan.devices.size, np.inf), self.conditions.until_s, None
        if until_s is not None:
            leaves_s = until_s[self.there][plan.devices] - self.state.clock_s
        if run.spec.slack is not None:
            upload_s, compute_s = self.state.knowledge.known(self.inputs.links, self.there)
            known = np.isfinite(upload_s) & np.isfinite(compute_s)
            late_s = deadlines(send.expected.finish_s, run.spec.slack, known[plan.devices])
        return Observed(timing, late_s, leaves_s, starts_s=plan.starts_s)

    def _answers(self, send: Send, outcome: Outcome) -> EngineCoroutine[Floats]:
        """What those answer that do."""
        assert send.question is not None
        run, devices, places = self.run, self.there[send.plan.devices], send.plan.devices[outcome.delivered]
        band = (
            send.plan.shares * self.state.late.band_left
        )  # what late devices of the last round still use is not theirs
        self.answers_j = np.zeros(self.state.spent_j.size)
        self.answers_j[devices] = sum(self._compute_and_send_j(send.plan, band, outcome))
        who = self.there[places]
        if who.size == 0:
            return np.empty(0)
        if send.question.about == "norm":
            whole = np.full(who.size, float(WEIGHT_BITS))  # their bits are decided with their answers
            updates: Updates = yield Train(run.jobs(self.state, who, bits=whole))
            self._trained = places, updates
            return updates.norms()
        some, draw, parts = send.question.samples, keyed(run.spec.seed, "poll", self.state.round), run.task.parts
        orders = [parts[i] if some is None else draw(int(i)).permutation(parts[i])[:some] for i in who]
        losses: Floats = yield Losses([Job(self.state.model, order[np.newaxis]) for order in orders])
        return losses

    def _compute_and_send_j(self, plan: Plan, parts: Floats, outcome: Outcome) -> tuple[Floats, Floats]:
        """(n,) and (n,): what devices spend on computing and on sending; who trained to answer has paid for that."""
        work, who = plan.work(self._links.epochs), self.there[plan.devices]
        return compute_and_send_j(
            who, parts, self.run.world, self.conditions, outcome.active, self._starts_s, 1.0 if work is None else work
        )

    def _collected(self, send: Send, outcome: Outcome) -> EngineCoroutine[Collected | None]:
        """What comes with the models; None if the round would end after the budget."""
        run, state, plan = self.run, self.state, send.plan
        clock_s = state.clock_s + outcome.round_s
        parts = self._links.law.take(plan.devices).power_fraction(self._links.upload_s[plan.devices], plan.shares)
        training_j, sending_j = self._compute_and_send_j(plan, parts, outcome)
        self.plan_j = sending_j * state.late.band_left + training_j
        budget_j = run.spec.budget_j
        if clock_s > run.spec.budget_s or (budget_j is not None and self.spent_j(plan).sum() > budget_j):
            return None
        if outcome.round_s == 0.0 and run.spec.rounds is None:
            raise InputError(
                f"{run.spec.policy} scheduled nobody and its round takes no time: it would never end; set rounds"
            )
        arrives = self._not_lost(plan)
        own = np.flatnonzero(outcome.delivered & arrives)
        pending = np.flatnonzero(outcome.pending & arrives)
        which = np.concatenate((own, pending))
        updates = yield from self._updates(plan, which)
        if run.compression.feedback:
            start, who, tensors = state.model, self.there[plan.devices[which]], run.task.engine.tensors
            sums = run.policy.uses_sums
            found = fed_back(run.compression, updates, start, who, state.residuals, tensors, sums=sums)
            updates, self.residuals = found
        if pending.size:
            shares = run.cell_law.held_share(plan.shares[pending])
            late = updates.take(slice(own.size, None)).models()
            self.late = LateModels(self.there[plan.devices[pending]], late, outcome.after_s[pending], shares)
            updates = updates.take(slice(own.size))
        places = plan.devices[own]
        self.delivered = self.there[places]
        weights = run.aggregator.model_weights(run.task.samples[self.delivered], lambda: self._balanced(places))
        arrived = state.late.arrived(outcome.round_s)
        self.mean, devices, each = run.aggregator.mean(updates, self.delivered, weights, arrived, run.task.samples)
        return Collected(
            clock_s,
            places,
            read_signals(run.policy, updates) if own.size else {},
            (devices, each),
            self._profiles(updates) if own.size and run.learns_profiles else None,
        )

    def spent_j(self, plan: Plan) -> Floats:
        """(M,) what each device has spent by the end of the round, in joules."""
        spent_j = self.state.spent_j.copy() if self.answers_j is None else self.state.spent_j + self.answers_j
        if self.reports_j is not None:
            spent_j += self.reports_j
        spent_j[self.there[plan.devices]] += self.plan_j
        return spent_j

    def joules(self) -> float:
        """What all devices spent in the round."""
        answers_j = 0.0 if self.answers_j is None else float(self.answers_j.sum())
        reports_j = 0.0 if self.reports_j is None else float(self.reports_j.sum())
        return float(self.plan_j.sum()) + answers_j + self.state.reports_j + reports_j

    @cached_property
    def reports_j(self) -> Floats | None:
        """(M,) what reports cost, beside the round that goes on.

        Whoever had a rate at the start has spent something by then; see `Simulation.start`.
        """
        run = self.run
        if not run.reports_later:
            return None
        from fedcell.sim.profiles import report_j

        new, cost_j = self.there[self.state.spent_j[self.there] == 0.0], np.zeros(self.state.spent_j.size)
        cost_j[new] = report_j(run.task, run.world, self.conditions, self.state.late.band_left)[new]
        return cost_j

    def _not_lost(self, plan: Plan) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(n,) booleans: the scheduled devices whose models are not lost on the way, as with the spec's probability."""
        devices = self.run.spec.devices
        if devices.failure == 0.0:
            return np.ones(plan.devices.size, np.bool_)
        drawn = stream(self.run.spec.seed, "failure", self.state.round).random(devices.count)
        return drawn[self.there[plan.devices]] >= devices.failure

    def _updates(self, plan: Plan, which: Indices) -> EngineCoroutine[Updates]:
        """The updates of some of the plan's devices; they may have trained already, to answer."""
        devices = self.there[plan.devices[which]]
        epochs = None if plan.epochs is None else plan.epochs[which]
        bits = None if plan.bits is None else plan.bits[which]
        if self._trained is None:
            updates: Updates = yield Train(self.run.jobs(self.state, devices, epochs, bits))
            return updates
        places, trained = self._trained
        trained = trained.take(np.searchsorted(places, plan.devices[which]))
        if bits is None and self.run.compression.bits == WEIGHT_BITS:
            return trained
        from fedcell.learn.compression import rounded_updates

        jobs, tensors = self.run.jobs(self.state, devices, bits=bits), self.run.task.engine.tensors
        return rounded_updates(jobs, trained.models(), trained.losses, trained.rms, tensors)

    def _balanced(self, places: Indices) -> Floats | None:
        """(n,) the weights that make the round most like all devices that are there, by their profiles."""
        profiles = self.state.knowledge.profiles
        if profiles.shape[1] == 0:
            return None
        from fedcell.schedule.profiles import balanced_weights, standardise

        return balanced_weights(standardise(profiles[self.there], self.inputs.view.profile_noise), places)

    def _profiles(self, updates: Updates) -> Floats:
        """(n, classes) what updates say of their devices' data."""
        from fedcell.sim.profiles import output_change

        classes = self.run.task.label_counts.shape[1]
        return output_change(updates.output_bias(classes), self.state.model, classes)


def expected_j(world: "World", devices: Indices, upload_s: Floats, compute_s: Floats) -> Floats:
    """(n,) what these devices would spend in a round, in joules, if training and upload took so long."""
    if devices.size == len(world.devices):
        return round_j(world.cell, world.devices, compute_s, upload_s)
    t, c = np.zeros((2, len(world.devices)))
    t[devices], c[devices] = compute_s, upload_s
    return round_j(world.cell, world.devices, t, c)[devices]


def compute_and_send_j(
    devices: Indices,
    parts: Floats,
    world: "World",
    conditions: "Conditions",
    active: Timing,
    starts_s: Floats | None,
    work: Floats | float = 1.0,
) -> tuple[Floats, Floats]:
    """(n,) and (n,): what devices spend on computing and on sending, in joules.

    A device that is stopped has spent what it got done by then.

    Args:
        devices: (n,) their numbers.
        parts: (n,) the part of the band that each fills with its power.
        world: its cell and devices.
        conditions: of the round.
        active: when each began to send and was stopped.
        starts_s: (n,) when each had the model; None if at once.
        work: (n,) what each computes, as a part of a round's training.
    """
    work_s = work * conditions.compute_s[devices]
    computed_s = active.began_s if starts_s is None else np.maximum(active.began_s - starts_s, 0.0)
    done = np.where(computed_s < work_s, computed_s / np.maximum(work_s, MIN_SECONDS), 1.0)
    on_air_s = active.finish_s - active.began_s
    sending_j = transmit_j(world.devices.power_w_per_hz[devices], world.cell.bandwidth_hz, parts, on_air_s)
    return done * work * compute_j(world.devices, conditions.compute_s)[devices], sending_j


def has_energy_for(conditions: "Conditions", world: "World", spent_j: Floats) -> tuple[Bools, Bools]:
    """Which devices have enough left in their batteries for this round's training and upload.

    A device that has no rate in this round cannot upload; its battery may be good for a later one.

    Args:
        conditions: of the round, whatever the server believes.
        world: its devices have batteries.
        spent_j: (M,) the joules that each device has spent.

    Returns:
        (M,) booleans: who can pay in this round; and who has no rate in it, but enough left to train in another.
    """
    assert world.devices.battery_j is not None
    left_j = world.devices.battery_j - spent_j
    enough: Bools = left_j >= round_j(world.cell, world.devices, conditions.compute_s, conditions.upload_s)
    trains: Bools = left_j >= compute_j(world.devices, conditions.compute_s)
    return enough, trains & np.isinf(conditions.upload_s)
