"""A question to clients before the round is decided: the messages, and what is made of the replies.

For a loss, the devices that are asked get the model and evaluate it; for the length of an update they get the training
messages of the wrapped strategy, train, and keep their models until one of them is wanted. Whoever fails, lies, or is
late beyond the slack has not answered. What is decided then begins when the wait for answers is over: the time of both
stages is the round's. How a node answers is in client.py; the simulator's first stage, with the same clock, in
protocol/question.py.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict

from fedcell.flower.client import ANSWER, HOLD, LOSS_QUERY, ROUND, SAMPLES, SEND
from fedcell.flower.compat import LOG
from fedcell.flower.heard import told_number
from fedcell.flower.record import listed
from fedcell.flower.round import Came, Connected, PlannedRound, name_of_node, observe
from fedcell.flower.wrapped import with_node_config
from fedcell.protocol.outcome import Observed
from fedcell.schedule.plan import Question
from fedcell.types import Floats

_NEEDS = {
    "loss": "its ClientApp needs fedcell.flower.answer_loss(app, ...)",
    "norm": "its ClientApp needs the mod fedcell.flower.upload_when_asked",
}
_WANTED = {"loss": "their losses", "norm": "the lengths of their updates"}


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


def read_answers(planned: PlannedRound, came: Came, about: str) -> tuple[Observed, Floats, dict[str, list[str]]]:
    """Return what is observed of a question, (n,) the answers, NaN for none, and who gave none by the reason."""
    values, missing = dict[int, float](), dict[str, list[str]]()

    def refused(replies: dict[int, Message]) -> dict[int, str]:
        bad = dict[int, str]()
        for node, reply in replies.items():
            values[node], fault = _read(reply, about)
            if fault is not None or math.isnan(values[node]):
                bad[node] = fault or f"its reply is no answer; {_NEEDS[about]}"
        return bad

    observed, _, why = observe(planned, came, refused)
    for node in planned.chosen:
        fault = why.get(node, "too late" if node not in values else None)
        if fault is not None:
            missing.setdefault(fault, []).append(name_of_node(planned, node))
    if came.waited_s is None:  # in simulated time nobody comes too late to be read, but who gives no answer has failed
        unusable = np.array([node in why or node not in came.replies for node in planned.chosen], dtype=bool)
        observed = replace(observed, unusable=unusable)
    return observed, np.array([values.get(node, math.nan) for node in planned.chosen]), missing


def log_answers(
    question: Question, there: Connected, answered: int, waited_s: float, why: dict[str, list[str]]
) -> None:
    """Log how many have answered within how long, and why others have not."""
    LOG.info(
        "fedcell: asked %d of %d devices for %s; %d answered within %.4g s",
        *(question.devices.size, len(there.nodes), _WANTED[question.about], answered, waited_s),
    )
    for fault, names in why.items():
        LOG.warning("fedcell: no answer of %s: %s", listed(names), fault)


def _read(reply: Message, about: str) -> tuple[float, str | None]:
    """Return the number in an answer, NaN if there is none, and why not. Nothing in it is trusted."""
    if reply.has_error():
        return math.nan, f"its app failed: {' '.join(str(reply.error.reason).split())[:200]}; {_NEEDS[about]}"
    record = reply.content.get(ANSWER) if reply.has_content() else None
    value, fault = told_number(record, about) if isinstance(record, MetricRecord) else (math.nan, None)
    if math.isnan(value) and fault is None:
        return value, f"its reply is no answer; {_NEEDS[about]}"
    return value, fault
