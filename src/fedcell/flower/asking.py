"""The first stage of a round with a policy that asks before it decides: real messages, and what they bring.

For a loss, the devices that are asked get the model and evaluate it; for the length of an update they get the training
messages of the wrapped strategy, train, and keep their models until one of them is wanted. Whoever fails, lies, or is
late beyond the slack has not answered. What is decided then begins when the wait for answers is over: the time of both
stages is the round's. How a node answers is in client.py; the simulator's first stage, with the same clock, in
sim/asking.py.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict

from fedcell.flower.client import ANSWER, HOLD, LOSS_QUERY, ROUND, SAMPLES, SEND
from fedcell.flower.compat import LOG
from fedcell.flower.heard import told_number
from fedcell.flower.messenger import Came, Messenger
from fedcell.flower.radio import Grant
from fedcell.flower.record import listed
from fedcell.flower.round import Answers, PlannedRound, Sight, by_server_clock, own_times
from fedcell.flower.wrapped import take_trained, with_node_config
from fedcell.protocol.question import answering, question_plan
from fedcell.schedule.plan import Question
from fedcell.types import Floats

_NEEDS = {
    "loss": "its ClientApp needs fedcell.flower.answer_loss(app, ...)",
    "norm": "its ClientApp needs the mod fedcell.flower.upload_when_asked",
}
_COLUMN = {"loss": "losses", "norm": "norms"}
_WANTED = {"loss": "their losses", "norm": "the lengths of their updates"}


def ask(
    messenger: Messenger,
    sight: Sight,
    question: Question,
    made_for: Callable[[list[int]], list[Message]],
) -> Answers:
    """Ask, and wait for the answers.

    Args:
        messenger: how long to wait.
        sight: what is known of the devices.
        question: of the policy.
        made_for: from node ids to a message for each, of `loss_messages` or of training; a node for which there is none
            is not asked.
    """
    planned = _planned(sight, question)
    messages = asked_in(sight.view.round_index, made_for(planned.chosen), question)
    planned = planned.only({message.metadata.dst_node_id for message in messages})
    question = replace(question, devices=planned.plan.devices)
    came = messenger.send(planned, messages)
    trained = {node: take_trained(reply) for node, (reply, _) in came.replies.items()}
    timing = came.measured or by_server_clock(planned, came.replies, trained)
    ready_s = (own_times(planned, trained) if came.in_turn else timing).began_s
    waited_s = came.waited_s if came.measured is None else float(timing.finish_s.max())
    values, why = _answers(planned, came, timing.finish_s, question.about)
    there = np.isfinite(values)
    LOG.info(
        "fedcell: asked %d of %d devices for %s; %d answered within %.4g s",
        *(len(messages), len(sight.nodes), _WANTED[question.about], there.sum(), waited_s),
    )
    for fault, names in why.items():
        LOG.warning("fedcell: no answer of %s: %s", listed(names), fault)
    places, view = question.devices[there], sight.view
    if places.size:
        view = view.answered(places, waited_s, **{_COLUMN[question.about]: values[there]})
    return Answers(question, places, view, waited_s, ready_s[there], came.began_s)


def loss_messages(nodes: list[int], arrays: ArrayRecord, config: ConfigRecord, question: Question) -> list[Message]:
    """Return the messages that ask nodes for the loss of a model; `asked_in` adds the round."""
    some = {} if question.samples is None else {SAMPLES: question.samples}
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, **some})})
    return [Message(content, node, LOSS_QUERY) for node in nodes]


def send_messages(nodes: list[int]) -> list[Message]:
    """Return the messages that ask nodes for the models that they have kept."""
    content = RecordDict({"config": ConfigRecord({SEND: True})})
    return [Message(content, node, MessageType.TRAIN) for node in nodes]


def asked_in(round_index: int, messages: Iterable[Message], question: Question) -> list[Message]:
    """Return a question's messages with the round, and for the length of an update the wish to keep the model."""
    hold = {HOLD: True} if question.about == "norm" else {}
    return [with_node_config(message, {ROUND: round_index, **hold}) for message in messages]


def _planned(sight: Sight, question: Question) -> PlannedRound:
    """The question as a plan."""
    view, samples = sight.view, np.array([device.report.samples or math.nan for device in sight.devices])
    plan = question_plan(question, view, samples)
    finish_s = plan.timing(answering(view)).finish_s
    grant = Grant(view.round_index, sight.devices, plan, finish_s, view.epochs, view.model_bits, answers=True)
    return PlannedRound(sight.nodes, sight.look, view, grant, sight.known)


def _answers(planned: PlannedRound, came: Came, finish_s: Floats, about: str) -> tuple[Floats, dict[str, list[str]]]:
    """(n,) the answers, NaN where there is none, and the names of the devices without one by the reason."""
    values, why = np.full(len(planned.chosen), np.nan), dict[str, list[str]]()
    for i, (node, device) in enumerate(zip(planned.chosen, planned.devices, strict=True)):
        reply = came.replies[node][0] if node in came.replies else None
        if reply is None or finish_s[i] > came.allowed_s[i]:
            fault: str | None = "too late"
        else:
            values[i], fault = _read(reply, about)
        if fault is not None:
            why.setdefault(fault, []).append(device.name)
    return values, why


def _read(reply: Message, about: str) -> tuple[float, str | None]:
    """Return the number in an answer, NaN if there is none, and why not. Nothing in it is trusted."""
    if reply.has_error():
        return math.nan, f"its app failed: {' '.join(str(reply.error.reason).split())[:200]}; {_NEEDS[about]}"
    record = reply.content.get(ANSWER) if reply.has_content() else None
    value, fault = told_number(record, about) if isinstance(record, MetricRecord) else (math.nan, None)
    if math.isnan(value) and fault is None:
        return value, f"its reply is no answer; {_NEEDS[about]}"
    return value, fault
