"""A round, or the question before it, in terms of nodes: what each is told, when it is late, what its reply shows.

Asked for a loss, devices get the model and evaluate it; for the length of an update they get the training messages of
the wrapped strategy, train, and keep their models until one of them is wanted. Whoever fails, lies, or is late beyond
the slack has not answered. What is decided then begins when the wait for answers is over: the time of both stages is
the round's. How a node answers is in client.py; the simulator's question, with the same clock, in protocol/round.py.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict

from fedcell.flower.client import (
    ANSWER,
    EPOCHS,
    HOLD,
    KEY,
    LOSS_QUERY,
    ROUND,
    SAMPLES,
    SEND,
    WANTS_SUMS,
)
from fedcell.flower.radio import Device, Grant
from fedcell.flower.replies import Replies, read_metric
from fedcell.flower.wrapped import UNTIMED, NodeConfig, Trained, take_trained, with_node_config
from fedcell.protocol import Answers, Observed, RoundInputs, Send, answer_links, deadlines
from fedcell.schedule.laws import Law
from fedcell.schedule.plan import Links, Plan, Question, Timing
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats

FLEET = 10.0
"""A device of unknown times is late after so many times what the others take."""


@dataclass(frozen=True, eq=False)
class Connected:
    """What the server sees before a round, and of which nodes.

    Attributes:
        nodes: the ids of all M nodes.
        devices: the M devices that they are.
        inputs: what is known of them.
        known: (M,) booleans: the devices whose link and speed are known, so that they can be held to the plan.
    """

    nodes: list[int]
    devices: list[Device]
    inputs: RoundInputs
    known: Bools


@dataclass(frozen=True, eq=False)
class PlannedRound:
    """A round that is about to start, or the question before it, in terms of nodes.

    Attributes:
        nodes: the ids of all M connected nodes.
        links: what the radio knew about them.
        view: what the policy saw at first, of all M.
        grant: who trains, with which share, and when each is expected to finish.
        known: (M,) booleans, as in `Connected`.
        answers: what was asked before; None if nothing was.
    """

    nodes: list[int]
    links: Links
    view: RoundView
    grant: Grant
    known: Bools
    answers: Answers | None = None

    @classmethod
    def of(cls, send: Send, there: Connected) -> "PlannedRound":
        """Return what is to be carried out, for the nodes that are there."""
        view, answers = there.inputs.view, send.question is not None
        sizes = view.epochs, view.weights, view.tensors, view.bits, view.overhead_bits
        finish_s = send.expected.finish_s
        grant = Grant(view.round_index, there.devices, send.plan, finish_s, *sizes, answers=answers)
        return cls(there.nodes, there.inputs.links, view, grant, there.known, send.answers)

    @property
    def plan(self) -> Plan:
        """Who trains."""
        return self.grant.plan

    @property
    def chosen(self) -> list[int]:
        """The node ids of the scheduled devices, in the plan's order."""
        return [self.nodes[i] for i in self.plan.devices]

    @property
    def devices(self) -> list[Device]:
        """The scheduled devices, in the plan's order."""
        return [self.grant.devices[i] for i in self.plan.devices]

    def allowed_s(self, slack: float, grace_s: float) -> Floats:
        """(n,) seconds after which a scheduled device is late; infinite if too little is known to plan with."""
        return deadlines(self.grant.finish_s, slack, self.known[self.plan.devices], grace_s)

    def limits_s(self, came_s: Floats, slack: float, grace_s: float) -> Floats:
        """Return after how many seconds each scheduled device is late, as far as can be told by now.

        A device of which too little is known to plan with has the limit of the fleet: once half of the devices have
        come, FLEET times the median of when they did; before that FLEET times its plan, if the plan rests on devices
        that are known.

        Args:
            came_s: (n,) when the replies came, NaN for those that have not.
            slack: a device whose times are known is late after so many times its planned time,
            grace_s: and so many seconds, which all have in addition.

        Returns:
            (n,) seconds; infinity as long as nothing can be told.
        """
        known_s, there_s = self.allowed_s(slack, grace_s), came_s[np.isfinite(came_s)]
        if 2 * there_s.size >= max(came_s.size, 1):
            fleet_s = np.full(came_s.size, FLEET * float(np.median(there_s)) + grace_s)
        else:
            fleet_s = FLEET * self.grant.finish_s + grace_s if self.known.any() else np.full(came_s.size, np.inf)
        return np.where(np.isfinite(known_s), known_s, fleet_s)

    def only(self, nodes: Collection[int]) -> "PlannedRound":
        """Return the round without the devices that the wrapped strategy left out; the others keep their shares."""
        plan, asked = self.plan, np.array([node in nodes for node in self.chosen], dtype=bool)
        if asked.all():
            return self
        finish_s = self.grant.finish_s[asked]
        kept = replace(plan.take(asked), round_s=float(finish_s.max(initial=0.0)))
        return replace(self, grant=replace(self.grant, plan=kept, finish_s=finish_s))

    def among(self, others: "PlannedRound") -> Bools:
        """(n,) booleans: which of the devices of another plan are in this one."""
        return np.isin(others.plan.devices, self.plan.devices)

    @property
    def link_known(self) -> Bools:
        """(n,) booleans: the scheduled devices whose link the radio knew."""
        known: Bools = np.isfinite(self.links.upload_s[self.plan.devices])
        return known

    def compute_s(self) -> Floats:
        """(n,) planned seconds of work of each scheduled device before it sends."""
        return self._seconds()[0]

    def upload_s(self) -> Floats:
        """(n,) planned seconds of upload of each scheduled device with its share."""
        return self._seconds()[1]

    def _seconds(self) -> tuple[Floats, Floats]:
        return self.plan.seconds(answer_links(self.view) if self.grant.answers else self.view)


@dataclass(frozen=True, eq=False)
class Arrivals:
    """What came of the messages. Times are in seconds from the start of the round.

    Attributes:
        replies: by node, its reply and when it arrived.
        measured: the times that the radio measured, if it did.
        allowed_s: (n,) after which a device is late, in the plan's order.
        waited_s: when the wait was over; None if that is not for a clock to say, but for the simulator.
        began_s: the start of the round, by the monotonic clock.
        in_turn: whether the nodes took turns at one machine's processors, so that when a reply came says nothing.
    """

    replies: Replies
    measured: Timing | None
    allowed_s: Floats
    waited_s: float | None = None
    began_s: float = 0.0
    in_turn: bool = False


def observe(
    planned: PlannedRound,
    came: Arrivals,
    refused: Callable[[dict[int, Message]], Mapping[int, str]],
) -> tuple[Observed, dict[int, Message], Mapping[int, str]]:
    """Return what is observed of a round, or of a question, by its replies.

    Args:
        planned: the round.
        came: the replies that arrived, and when.
        refused: from the replies that came in time, by node, to why some of them cannot be used.

    Returns:
        What is observed; by node the replies that can be used; and why others cannot.
    """
    replies, chosen = came.replies, planned.chosen
    trained = {node: take_trained(reply) for node, (reply, _) in replies.items()}
    timing = came.measured or by_server_clock(planned, replies, trained)
    arrived = np.array([node in replies for node in chosen], dtype=bool)
    late = arrived & (timing.finish_s > came.allowed_s)
    in_time = {node: replies[node][0] for node, out in zip(chosen, late | ~arrived, strict=True) if not out}
    why = refused(in_time)
    usable = {node: reply for node, reply in in_time.items() if node not in why}
    unusable = np.array([node in why for node in chosen], dtype=bool)
    own = own_times(planned, trained) if came.in_turn else None
    if came.waited_s is None:  # the simulator says when all are done; a reply that lacks is a lost model
        return Observed(timing, came.allowed_s), usable, why
    ended_s = came.waited_s
    return Observed(timing, came.allowed_s, None, arrived, unusable, ended_s, own=own), usable, why


def name_of_node(planned: PlannedRound, node: int) -> str:
    """The name of the device that a node is."""
    return planned.grant.devices[planned.nodes.index(node)].name


def by_server_clock(planned: PlannedRound, replies: Replies, trained: Mapping[int, Trained]) -> Timing:
    """Derive from the arrival of the replies when the uploads started.

    If the link is known, all the time that it does not explain was before the upload: training, and Flower's own
    delays, which no share of the band shortens. If it is not known, the node's own clock says how long it trained; if
    that is missing too, the time is split as it was planned.
    """
    chosen, starts_s = planned.chosen, planned.plan.starts()
    finish_s = np.array([replies[node][1] if node in replies else np.nan for node in chosen])
    trained_s = starts_s + np.array([trained[node].seconds if node in trained else np.nan for node in chosen])
    by_link_s = np.fmax(trained_s, np.maximum(finish_s - planned.upload_s(), starts_s))
    planned_s = planned.grant.finish_s - starts_s
    as_planned_s = starts_s + (finish_s - starts_s) * planned.compute_s() / planned_s
    by_node_s = np.where(np.isfinite(trained_s), trained_s, as_planned_s)
    return Timing(np.minimum(np.where(planned.link_known, by_link_s, by_node_s), finish_s), finish_s)


def own_times(planned: PlannedRound, trained: Mapping[int, Trained]) -> Timing:
    """Return the devices' own training times, for nodes of the simulation engine.

    They take turns, so their replies come one after another, and they have no link unless they report one. The first
    training of one of the engine's processes loads what all later ones find loaded, and is not counted; nor is that of
    an app without the mod ``timed``.
    """
    own = [trained.get(node, UNTIMED) for node in planned.chosen]
    began_s = planned.plan.starts() + np.array([np.nan if one.first else one.seconds for one in own])
    return Timing(began_s, began_s + np.where(planned.link_known, planned.upload_s(), 0.0))


def configs(planned: PlannedRound, seed: int, *, wants_sums: bool = False) -> list[NodeConfig]:
    """Return what the message to each scheduled device says of its part in the plan.

    Args:
        planned: the round.
        seed: of the run; with the round and the device it makes the random numbers of a rounded upload.
        wants_sums: whether the policy goes by how long updates were before they were rounded.
    """
    plan, law, trained = planned.plan, planned.view.law, planned.answers is not None and planned.answers.trained
    decided = {f"fedcell-{name.replace('_', '-')}": getattr(plan, name) for name in _decisions(type(plan))}
    if trained:
        del decided[EPOCHS]
    ids, number = np.asarray(planned.view.ids)[plan.devices], planned.grant.round_index
    rounding: list[NodeConfig] = [{KEY: f"{seed} {number} {device}"} for device in ids]
    if wants_sums:
        rounding = [{**one, WANTS_SUMS: True} for one in rounding]
    return [
        {
            "fedcell-share": float(share),
            "fedcell-finish-s": float(finish_s),
            ROUND: number,
            **_units(law, float(share)),
            **{name: float(column[i]) for name, column in decided.items() if column is not None},
            **({} if plan.bits is None else rounding[i]),
        }
        for i, (share, finish_s) in enumerate(zip(plan.shares, planned.grant.finish_s, strict=True))
    ]


def _decisions(kind: type[Plan]) -> list[str]:
    """The names of what a plan may decide for each device beside its share: a node is told of each by its name."""
    return [one.name for one in fields(kind) if "per" in one.metadata and one.name not in _ALWAYS_TOLD]


_ALWAYS_TOLD = {"devices", "shares", "starts_s"}
"""What the plan has for each device in any case: the message's node, its share, and when it gets the message."""


def _units(law: Law, share: float) -> dict[str, int]:
    """What a node is told of whole units that it gets, such as resource blocks."""
    gets = law.resources(share, 0.0)
    return {f"fedcell-{name}": value for name, value in gets.items() if isinstance(value, int)}


_NEEDS = {
    "loss": "its ClientApp needs fedcell.flower.answer_loss(app, ...)",
    "norm": "its ClientApp needs the mod fedcell.flower.upload_when_asked",
}


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


def read_answers(planned: PlannedRound, came: Arrivals, about: str) -> tuple[Observed, Floats, dict[str, list[str]]]:
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


def _read(reply: Message, about: str) -> tuple[float, str | None]:
    """Return the number in an answer, NaN if there is none, and why not. Nothing in it is trusted."""
    if reply.has_error():
        return math.nan, f"its app failed: {' '.join(str(reply.error.reason).split())[:200]}; {_NEEDS[about]}"
    record = reply.content.get(ANSWER) if reply.has_content() else None
    value, fault = read_metric(record, about) if isinstance(record, MetricRecord) else (math.nan, None)
    if math.isnan(value) and fault is None:
        return value, f"its reply is no answer; {_NEEDS[about]}"
    return value, fault
