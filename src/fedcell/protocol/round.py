"""One round, whoever plays it: see, ask, decide, judge what arrived, learn.

`play` does no work of its own beside deciding: it yields what is to be done and is sent what came of it. The simulator
answers with a world and an engine, Flower with messages and a radio. Within a round every array is of the devices in
the view, by their places there; their numbers in the run stand in ``view.ids``.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcell.errors import InputError, short_repr, user_code
from fedcell.protocol.knowledge import Knowledge
from fedcell.protocol.outcome import Observed, Outcome, judge
from fedcell.protocol.question import answering, question_plan
from fedcell.schedule.plan import Links, Plan, Question, Report, Timing
from fedcell.schedule.policy import Policy, limited
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats, Indices

ANSWER_COLUMN = {"loss": "losses", "norm": "norms"}
"""The column of the view with the answers to a question."""


@dataclass(frozen=True, eq=False)
class Sight:
    """What the server sees before a round.

    Attributes:
        view: what the policy sees, of M devices.
        links: what was known of them in advance, NaN where nothing was.
        samples: (M,) how many samples each has; NaN where that is not known.
    """

    view: RoundView
    links: Links
    samples: Floats


@dataclass(frozen=True, eq=False)
class Asked:
    """What a question brought before the round was decided.

    Attributes:
        question: who was asked, and what.
        answered: (n,) places of the devices that answered, ascending.
        values: (n,) their answers.
        waited_s: when the wait for answers was over, in seconds from the start of the round.
        starts_s: (n,) when each that answered had the model; None if the downlink took no time.
        ready_s: (n,) when each was done with what it had to do for its answer.
        failed: places of the devices that gave no answer, or none that can be used.
    """

    question: Question
    answered: Indices
    values: Floats
    waited_s: float
    starts_s: Floats | None
    ready_s: Floats
    failed: Indices

    @property
    def trained(self) -> bool:
        """Whether those that answered have trained, and need only send their models."""
        return self.question.about == "norm"


@dataclass(frozen=True, eq=False)
class Send:
    """To be carried out: a plan, or a question as one. What comes back is `Observed`.

    Attributes:
        plan: who does what. Devices that trained for their answers have no ``epochs`` left to train.
        expected: when each is planned to start to upload and to finish.
        question: what the devices are asked; None if they are to train.
        asked: what a question brought before; None if nothing was asked, or this is the question.
    """

    plan: Plan
    expected: Timing
    upload_s: Floats
    question: Question | None = None
    asked: Asked | None = None

    def take(self, which: Bools | None) -> "Send":
        """Return it for some of the devices, (n,) booleans or None for all; they keep what they were given."""
        if which is None or which.all():
            return self
        expected = Timing(self.expected.began_s[which], self.expected.finish_s[which])
        plan = replace(self.plan.take(which), round_s=float(expected.finish_s.max(initial=0.0)))
        question = None if self.question is None else replace(self.question, devices=plan.devices)
        return Send(plan, expected, self.upload_s[which], question, self.asked)


@dataclass(frozen=True, eq=False)
class Collect:
    """To be collected from those that delivered: answers to a question, (n,) with NaN for none; or `Collected`.

    Attributes:
        send: what was carried out.
        outcome: who delivered.
    """

    send: Send
    outcome: Outcome


@dataclass(frozen=True, eq=False)
class Collected:
    """What came with the models, once they are in the mean.

    Attributes:
        clock_s: the time at the end of the round, in seconds.
        delivered: (n,) places of the devices whose models came; a model that was lost on the way has not.
        signals: by column, what they reported; see `signals`.
        averaged: numbers of the devices whose models are in the mean, late ones included, and their weights, None if
            equal; None if no mean was taken.
        profiles: (n, d) what their updates say of their data; None if that is not looked at.
        rests: whether devices that fail again and again are left out for a while.
    """

    clock_s: float
    delivered: Indices
    signals: Mapping[str, Floats] = field(default_factory=dict)
    averaged: tuple[Indices, Floats | None] | None = None
    profiles: Floats | None = None
    rests: bool = False


@dataclass(frozen=True, eq=False)
class Played:
    """A round that is over.

    Attributes:
        send: the plan that was carried out; of devices that answered with their training, as it was decided.
        outcome: how it went.
        knowledge: what the server knows after it.
    """

    send: Send
    outcome: Outcome
    knowledge: Knowledge


def play(
    sight: Sight,
    policy: Policy,
    knowledge: Knowledge,
    rng: np.random.Generator,
    *,
    name: str,
    late_count: bool = False,
) -> Generator[Send | Collect, Any, Played]:
    """Play a round.

    Args:
        sight: what the server sees before it.
        policy: decides; it schedules no more devices than there are.
        knowledge: what earlier rounds showed.
        rng: of the policy.
        name: what the policy is called where it fails.
        late_count: whether models that come after the round are still wanted.

    Yields:
        What is to be done: `Send`, to be answered with `Observed`; then `Collect`, with the answers to a question or
        with `Collected`. A driver that wants no such round just stops.

    Returns:
        Played: what was done, how it went, and what the server knows now.
    """
    view = sight.view
    with user_code(name):
        question = policy.asked(view, rng)
    asked = None if question is None else (yield from _ask(sight, question))
    if asked is not None and asked.answered.size:
        view = view.answered(asked.answered, asked.waited_s, **{ANSWER_COLUMN[asked.question.about]: asked.values})
        policy = limited(policy, asked.answered.size)
    if asked is not None and not asked.answered.size:
        chosen = Plan.empty(asked.waited_s)
    else:
        with user_code(name):
            chosen = policy.decide(view, rng)
    send = _decided(chosen, view, asked)
    if chosen.devices.size:
        observed: Observed = yield send
        send = send.take(observed.kept)
        needed = policy.needed(send.plan.devices.size)
        outcome = judge(observed, send.upload_s, needed=needed, late_count=late_count)
    else:
        outcome = Outcome.empty(send.plan.round_s)
    collected: Collected = yield Collect(send, outcome)
    if asked is not None and asked.trained:
        send = replace(send, plan=replace(send.plan, epochs=None))
    return Played(send, outcome, _learn(knowledge, sight, send, outcome, collected, policy, name))


def _ask(sight: Sight, question: Question) -> Generator[Send | Collect, Any, Asked]:
    """Ask devices, and wait for their answers. Whoever leaves or is late has not answered."""
    plan, links = question_plan(question, sight.view, sight.samples), answering(sight.view)
    send = Send(plan, plan.timing(links), plan.seconds(links)[1], question)
    observed: Observed = yield send
    send = send.take(observed.kept)
    assert send.question is not None
    outcome = judge(observed, send.upload_s)
    values: Floats = yield Collect(send, outcome)
    told, timing = np.flatnonzero(outcome.delivered)[np.isfinite(values)], observed.own or observed.timing
    starts_s = None if observed.starts_s is None else observed.starts_s[told]
    devices, values = send.plan.devices[told], values[np.isfinite(values)]
    failed = send.plan.devices[outcome.failed]
    return Asked(send.question, devices, values, outcome.round_s, starts_s, timing.began_s[told], failed)


def _decided(chosen: Plan, view: RoundView, asked: Asked | None) -> Send:
    """Return the plan that was chosen with a view, which is of those that answered if devices were asked."""
    expected, (training_s, _) = chosen.timing(view), chosen.seconds(view)
    upload_s = expected.finish_s - training_s
    upload_s = upload_s if chosen.starts_s is None else upload_s - chosen.starts_s
    if asked is None:
        return Send(chosen, expected, upload_s)
    plan = replace(chosen, devices=asked.answered[chosen.devices], round_s=max(chosen.round_s, asked.waited_s))
    if asked.trained:
        if plan.epochs is not None:
            raise InputError(
                "the policy asks for the lengths of updates, for which devices train before it decides, so it cannot "
                "decide their local_epochs; return None there"
            )
        plan = replace(plan, epochs=np.zeros(plan.devices.size))
    return Send(plan, expected, upload_s, asked=asked)


def _learn(
    knowledge: Knowledge,
    sight: Sight,
    send: Send,
    outcome: Outcome,
    collected: Collected,
    policy: Policy,
    name: str,
) -> Knowledge:
    """Return what the server knows after a round: times, whose models are in the mean, and what devices reported."""
    view, plan, learnt, asked = sight.view, send.plan, outcome.learnt, send.asked
    ids, r = np.asarray(view.ids), view.round_index
    if asked is not None and asked.trained:  # each trained for its answer; its upload began when it was told to
        places = np.searchsorted(asked.answered, plan.devices)
        began_s = asked.ready_s[places]
        plan = replace(plan, starts_s=None if asked.starts_s is None else asked.starts_s[places])
        learnt = replace(learnt, began_s=began_s, finish_s=began_s + (learnt.finish_s - learnt.began_s))
    known = knowledge.after(view, plan, sight.links, learnt, collected.clock_s)
    if collected.averaged is not None:
        known = known.averaged(*collected.averaged)
    if asked is not None:
        known = known.told(ids[asked.answered], r, {ANSWER_COLUMN[asked.question.about]: asked.values})
    if collected.delivered.size:
        delivered, report = ids[collected.delivered], _report(view, send, collected, outcome.round_s)
        known = known.told(delivered, r, collected.signals).trained(r, collected.signals["losses"])
        if collected.profiles is not None:
            known = known.learning(delivered, collected.profiles)
        known = known.worked(delivered, report.epochs)
        with user_code(name):
            found = policy.learn(view, report)
        if found is not None:
            known = known.changed(learnt=_checked_learnt(found, policy))
    if collected.rests:
        known = known.failing(ids[plan.devices], outcome.failed, r)
        if asked is not None:
            known = known.failing(ids[asked.failed], np.ones(asked.failed.size, np.bool_), r)
    return known


def _report(view: RoundView, send: Send, collected: Collected, round_s: float) -> Report:
    """Return what a policy learns from: the devices whose models arrived, what each did, and what they reported."""
    plan, asked = send.plan, send.asked
    which = np.searchsorted(plan.devices, collected.delivered)
    n, whole = which.size, plan.epochs is None or (asked is not None and asked.trained)
    epochs = np.full(n, view.epochs) if whole else np.asarray(plan.epochs)[which]
    bits = np.full(n, float(view.bits)) if plan.bits is None else plan.bits[which]
    return Report(collected.delivered, epochs, bits, round_s, collected.signals)


def _checked_learnt(learnt: Floats, policy: Policy) -> Floats:
    """Return what a policy has learnt, or raise an InputError if it is no vector of finite numbers."""
    found = np.asarray(learnt, np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise InputError(f"{type(policy).__name__}.learn returned {short_repr(learnt)}; return a vector of numbers")
    return found
