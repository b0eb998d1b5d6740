"""One round, whoever plays it: see, ask, decide, judge what arrived, learn.

`play_round` does no work of its own beside deciding: it yields what is to be done and is sent what came of it. The
simulator answers with a world and an engine, Flower with messages and a radio. Within a round every array is of the
devices in the view, by their places there; their numbers in the run stand in ``view.ids``.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedcell.errors import InputError, short_repr, user_code
from fedcell.protocol.knowledge import Knowledge
from fedcell.protocol.outcome import Observed, Outcome, judge
from fedcell.quantisation import upload_bits
from fedcell.schedule.bandwidth import allocate
from fedcell.schedule.plan import Links, Plan, Question, Report, Times, Timing
from fedcell.schedule.policy import Policy, cap_k
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats, Indices

ANSWER_BITS = 32
"""The size of an answer: one number."""
FORWARD = 1.0 / 3.0
"""What evaluating a sample takes of training on it: the forward pass, of a forward and twice as long a backward one."""
ANSWER_COLUMN = {"loss": "losses", "norm": "norms"}
"""The column of the view with the answers to a question."""


@dataclass(frozen=True, eq=False)
class RoundInputs:
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
class Answers:
    """What a question brought before the round was decided.

    Attributes:
        question: who was asked, and what.
        places: (n,) places of the devices that answered, ascending.
        values: (n,) their answers.
        waited_s: when the wait for answers was over, in seconds from the start of the round.
        starts_s: (n,) when each that answered had the model; None if the downlink took no time.
        ready_s: (n,) when each was done with what it had to do for its answer.
        failed: places of the devices that gave no answer, or none that can be used.
    """

    question: Question
    places: Indices
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
        answers: what a question brought before; None if nothing was asked, or this is the question.
    """

    plan: Plan
    expected: Timing
    upload_s: Floats
    question: Question | None = None
    answers: Answers | None = None

    def take(self, which: Bools | None) -> "Send":
        """Return it for some of the devices, (n,) booleans or None for all; they keep what they were given."""
        if which is None or which.all():
            return self
        expected = Timing(self.expected.began_s[which], self.expected.finish_s[which])
        plan = replace(self.plan.take(which), round_s=float(expected.finish_s.max(initial=0.0)))
        question = None if self.question is None else replace(self.question, devices=plan.devices)
        return Send(plan, expected, self.upload_s[which], question, self.answers)


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
class RoundResult:
    """A round that is over.

    Attributes:
        send: the plan that was carried out; of devices that answered with their training, as it was decided.
        outcome: how it went.
        knowledge: what the server knows after it.
    """

    send: Send
    outcome: Outcome
    knowledge: Knowledge


def play_round(
    inputs: RoundInputs,
    policy: Policy,
    knowledge: Knowledge,
    rng: np.random.Generator,
    *,
    name: str,
    late_count: bool = False,
) -> Generator[Send | Collect, Any, RoundResult]:
    """Play a round.

    Args:
        inputs: what the server sees before it.
        policy: decides; it schedules no more devices than there are.
        knowledge: what earlier rounds showed.
        rng: of the policy.
        name: what the policy is called where it fails.
        late_count: whether models that come after the round are still wanted.

    Yields:
        What is to be done: `Send`, to be answered with `Observed`; then `Collect`, with the answers to a question or
        with `Collected`. A driver that wants no such round just stops.

    Returns:
        RoundResult: what was done, how it went, and what the server knows now.
    """
    view = inputs.view
    with user_code(name):
        question = policy.checked_question(view, rng)
    answers = None if question is None else (yield from _ask(inputs, question))
    if answers is not None and answers.places.size:
        view = view.with_answers(
            answers.places, answers.waited_s, **{ANSWER_COLUMN[answers.question.about]: answers.values}
        )
        policy = cap_k(policy, answers.places.size)
    if answers is not None and not answers.places.size:
        chosen = Plan.empty(answers.waited_s)
    else:
        with user_code(name):
            chosen = policy.decide(view, rng)
    send = _to_send(chosen, view, answers)
    if chosen.devices.size:
        observed: Observed = yield send
        send = send.take(observed.kept)
        needed = policy.needed(send.plan.devices.size)
        outcome = judge(observed, send.upload_s, needed=needed, late_count=late_count)
    else:
        outcome = Outcome.empty(send.plan.round_s)
    collected: Collected = yield Collect(send, outcome)
    if answers is not None and answers.trained:
        send = replace(send, plan=replace(send.plan, epochs=None))
    return RoundResult(send, outcome, _learn(knowledge, inputs, send, outcome, collected, policy, name))


def _ask(inputs: RoundInputs, question: Question) -> Generator[Send | Collect, Any, Answers]:
    """Ask devices, and wait for their answers. Whoever leaves or is late has not answered."""
    plan, links = question_plan(question, inputs.view, inputs.samples), answer_links(inputs.view)
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
    return Answers(send.question, devices, values, outcome.round_s, starts_s, timing.began_s[told], failed)


def _to_send(chosen: Plan, view: RoundView, answers: Answers | None) -> Send:
    """Return the plan that was chosen with a view, which is of those that answered if devices were asked."""
    training_s, sending_s = chosen.seconds(view)
    expected = chosen.timing_of(training_s, sending_s)
    upload_s = expected.finish_s - training_s
    upload_s = upload_s if chosen.starts_s is None else upload_s - chosen.starts_s
    if answers is None:
        return Send(chosen, expected, upload_s)
    plan = replace(chosen, devices=answers.places[chosen.devices], round_s=max(chosen.round_s, answers.waited_s))
    if answers.trained:
        if plan.epochs is not None:
            raise InputError(
                "the policy asks for the lengths of updates, for which devices train before it decides, so it cannot "
                "decide their local_epochs; return None there"
            )
        plan = replace(plan, epochs=np.zeros(plan.devices.size))
    return Send(plan, expected, upload_s, answers=answers)


def _learn(
    knowledge: Knowledge,
    inputs: RoundInputs,
    send: Send,
    outcome: Outcome,
    collected: Collected,
    policy: Policy,
    name: str,
) -> Knowledge:
    """Return what the server knows after a round: times, whose models are in the mean, and what devices reported."""
    view, plan, learnt, answers = inputs.view, send.plan, outcome.learnt, send.answers
    ids, r = np.asarray(view.ids), view.round_index
    if answers is not None and answers.trained:  # each trained for its answer; its upload began when it was told to
        places = np.searchsorted(answers.places, plan.devices)
        began_s = answers.ready_s[places]
        plan = replace(plan, starts_s=None if answers.starts_s is None else answers.starts_s[places])
        learnt = replace(learnt, began_s=began_s, finish_s=began_s + (learnt.finish_s - learnt.began_s))
    planned_s = send.expected.finish_s if answers is None else None
    known = knowledge.with_round(view, plan, inputs.links, learnt, collected.clock_s, planned_s)
    if collected.averaged is not None:
        known = known.with_participation(*collected.averaged)
    if answers is not None:
        known = known.with_reports(ids[answers.places], r, {ANSWER_COLUMN[answers.question.about]: answers.values})
    if collected.delivered.size:
        delivered, report = ids[collected.delivered], _report(view, send, collected, outcome.round_s)
        known = known.with_reports(delivered, r, collected.signals).with_losses(r, collected.signals["losses"])
        if collected.profiles is not None:
            known = known.with_profiles(delivered, collected.profiles)
        known = known.with_epochs(delivered, report.epochs)
        with user_code(name):
            found = policy.learn(view, report)
        if found is not None:
            known = known.changed(learnt=_checked_learnt(found, policy))
    if collected.rests:
        known = known.with_failures(ids[plan.devices], outcome.failed, r)
        if answers is not None:
            known = known.with_failures(ids[answers.failed], np.ones(answers.failed.size, np.bool_), r)
    return known


def _report(view: RoundView, send: Send, collected: Collected, round_s: float) -> Report:
    """Return what a policy learns from: the devices whose models arrived, what each did, and what they reported."""
    plan, answers = send.plan, send.answers
    which = np.searchsorted(plan.devices, collected.delivered)
    n, whole = which.size, plan.epochs is None or (answers is not None and answers.trained)
    epochs = np.full(n, view.epochs) if whole else np.asarray(plan.epochs)[which]
    bits = np.full(n, float(view.bits)) if plan.bits is None else plan.bits[which]
    return Report(collected.delivered, epochs, bits, round_s, collected.signals)


def _checked_learnt(learnt: Floats, policy: Policy) -> Floats:
    """Return what a policy has learnt, or raise an InputError if it is no vector of finite numbers."""
    found = np.asarray(learnt, np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise InputError(f"{type(policy).__name__}.learn returned {short_repr(learnt)}; return a vector of numbers")
    return found


def samples_visited(samples: int, epochs: float) -> int:
    """How many samples a device with so many goes through in a round; at least one."""
    return max(min(samples, 1), round(epochs * samples))


def answer_links(links: Times) -> Links:
    """Return the times for answers: so few bits share what carries them as in the paper's band, whatever the law.

    There may be more devices than resource blocks, and no answer needs one of its own.
    """
    if links.weights is None:
        raise InputError("how long answers take is not known; give the view weights, the size of a model")
    part = ANSWER_BITS / upload_bits(links.weights, links.tensors, links.bits)
    return Links(part * links.upload_s, links.compute_s, epochs=links.epochs)


def question_plan(question: Question, view: RoundView, samples: Floats) -> Plan:
    """Return what the devices do for an answer, which they send all at once with optimal shares.

    For a loss they evaluate the model, for the length of an update they train.

    Args:
        question: of the policy.
        view: what the server expects of the M devices.
        samples: (M,) how many samples each has; NaN where that is not known.
    """
    n = question.devices.size
    starts_s = None if view.downlink is None else view.downlink.starts_s(question.devices)
    epochs = None if question.about == "norm" else view.epochs * _work(question, samples, view.epochs)
    plan = Plan(question.devices, np.ones(n), 0.0, starts_s, epochs)
    training_s, sending_s = plan.seconds(answer_links(view))
    ready_s = training_s if starts_s is None else starts_s + training_s
    plan = replace(plan, shares=allocate(sending_s, ready_s).shares)
    return replace(plan, round_s=float(plan.timing(answer_links(view)).finish_s.max()))


def _work(question: Question, samples: Floats, epochs: float) -> Floats:
    """(n,) what evaluating the model takes of a device's training."""
    have = samples[question.devices]
    some = have if question.samples is None else np.minimum(have, question.samples)
    trained = np.array([1 if np.isnan(n) else samples_visited(int(n), epochs) for n in have])
    return np.where(np.isnan(have), FORWARD, FORWARD * some / np.maximum(trained, 1))
