"""One round of a federation: what was planned, and how it went."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import Message

from fedcell.flower.collect import Replies
from fedcell.flower.compat import LOG
from fedcell.flower.radio import Device, Grant
from fedcell.flower.replies import ReplyRequirements, faults
from fedcell.flower.wrapped import UNTIMED, Trained, take_trained
from fedcell.protocol.outcome import deadlines, enough_s
from fedcell.protocol.question import answering
from fedcell.schedule.laws import Law
from fedcell.schedule.plan import Links, Plan, Question, Timing
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats, Indices

FLEET = 10.0
"""A device of unknown times is late after so many times what the others take."""


@dataclass(frozen=True, eq=False)
class Sight:
    """What the server sees before a round.

    Attributes:
        nodes: the ids of all M connected nodes.
        devices: the M devices that they are.
        look: what the radio knows about them.
        view: what the policy sees.
        known: (M,) booleans: the devices whose link and speed are known, so that they can be held to the plan.
    """

    nodes: list[int]
    devices: list[Device]
    look: Links
    view: RoundView
    known: Bools


@dataclass(frozen=True, eq=False)
class Answers:
    """What a question brought before the round was decided.

    Attributes:
        question: who was asked, and what.
        places: (n,) who answered, ascending: indices into the first view.
        view: what the policy sees then, of those that answered; the first view if nobody did.
        waited_s: when the wait for answers was over, in seconds from the start of the round.
        ready_s: (n,) when each that answered was done with what it had to do for it.
        began_s: the start of the round, by the monotonic clock.
    """

    question: Question
    places: Indices
    view: RoundView
    waited_s: float
    ready_s: Floats
    began_s: float

    @property
    def trained(self) -> bool:
        """Whether those that answered have trained, and need only send their models."""
        return self.question.about == "norm"

    @property
    def silent(self) -> Indices:
        """Who was asked and has not answered."""
        return np.setdiff1d(self.question.devices, self.places)


@dataclass(frozen=True, eq=False)
class PlannedRound:
    """A round that is about to start, or the question before it.

    Attributes:
        nodes: the ids of all M connected nodes.
        look: what the radio knew about them.
        view: what the policy saw at first, of all M.
        grant: who trains, with which share, and when each is expected to finish.
        known: (M,) booleans: the devices whose link and speed are known, so that they can be held to the plan.
        answers: what was asked before; None if nothing was.
    """

    nodes: list[int]
    look: Links
    view: RoundView
    grant: Grant
    known: Bools
    answers: Answers | None = None

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

    @property
    def link_known(self) -> Bools:
        """(n,) booleans: the scheduled devices whose link the radio knew."""
        known: Bools = np.isfinite(self.look.upload_s[self.plan.devices])
        return known

    def compute_s(self) -> Floats:
        """(n,) planned seconds of work of each scheduled device before it sends."""
        return self._seconds()[0]

    def upload_s(self) -> Floats:
        """(n,) planned seconds of upload of each scheduled device with its share."""
        return self._seconds()[1]

    def _seconds(self) -> tuple[Floats, Floats]:
        return self.plan.seconds(answering(self.view) if self.grant.answers else self.view)


@dataclass(frozen=True, eq=False)
class PlayedRound:
    """How a planned round went. Arrays are of the n scheduled devices, in the plan's order.

    Attributes:
        kept: the replies that are used.
        delivered: (n,) booleans: the devices whose replies are used.
        late: (n,) booleans: the devices that delivered after the deadline.
        failed: (n,) booleans: the devices that brought nothing, or nothing that can be used; late ones excepted.
        timing: when the devices started to upload and finished.
        taught: the same times for what is learnt: a device that had not brought its model when enough others had is
            at least that slow; NaN for one whose reply did not arrive, which is no time, or cannot be used. Where nodes
            take turns at one machine's processors, a device's own training time, and no link.
        measured: whether the times were measured by the radio, not by the server's clock.
        cut_s: when enough models were there and the round ended, in seconds from its start; infinity if it did not end
            so.
    """

    kept: list[Message]
    delivered: np.ndarray[tuple[int], np.dtype[np.bool_]]
    late: np.ndarray[tuple[int], np.dtype[np.bool_]]
    failed: np.ndarray[tuple[int], np.dtype[np.bool_]]
    timing: Timing
    taught: Timing
    measured: bool
    cut_s: float = math.inf


def play(
    planned: PlannedRound,
    replies: Replies,
    measured: Timing | None,
    allowed_s: Floats,
    demands: ReplyRequirements,
    needed: int | None = None,
    *,
    in_turn: bool = False,
) -> PlayedRound:
    """Judge the replies of a round.

    Args:
        planned: the round.
        replies: the replies that arrived.
        measured: the times that the radio measured, if any.
        allowed_s: (n,) a device is late after so many seconds from the start of the round, as all times here.
        demands: what the wrapped strategy needs of the replies.
        needed: how many models end the round; all by default. Devices that have not brought theirs by then are late.
        in_turn: whether the nodes took turns at one machine's processors, so that when a reply came says nothing.

    Returns:
        PlayedRound: which replies are used, and the times.
    """
    trained = {node: take_trained(reply) for node, (reply, _) in replies.items()}
    timing = measured or by_server_clock(planned, replies, trained)
    arrived = np.array([node in replies for node in planned.chosen], dtype=bool)
    late = arrived & (timing.finish_s > allowed_s)
    whole = {
        n: reply for (n, (reply, _)), out in zip(_in_order(planned, replies), late[arrived], strict=True) if not out
    }
    bad = faults(whole, demands)
    for node, fault in bad.items():
        LOG.warning("fedcell: the reply of device %s is not used: %s", _name(planned, node), fault)
    usable = np.array([node in whole and node not in bad for node in planned.chosen], dtype=bool)
    early = needed is not None and needed < len(planned.chosen)
    cut_s = enough_s(timing.finish_s[usable], needed or 0) if early else math.inf
    delivered = usable & ~(timing.finish_s > cut_s)
    kept = [whole[node] for node, used in zip(planned.chosen, delivered, strict=True) if used]
    # A reply that did not arrive is a failure, and no time: that of the wait is the server's, not the device's.
    absent, spoilt, cut = ~arrived, arrived & ~late & ~usable, math.isfinite(cut_s)
    missed = (usable & ~delivered) | (absent & cut)
    finish_s = np.where(missed, np.minimum(allowed_s, cut_s), timing.finish_s)
    began_s = np.where(missed, np.maximum(finish_s - planned.upload_s(), 0.0), timing.began_s)
    taught = Timing(np.where(spoilt, np.nan, began_s), np.where(spoilt, np.nan, finish_s), missed)
    if in_turn:
        own = own_times(planned, trained)
        taught = Timing(np.where(spoilt, np.nan, own.began_s), own.finish_s)
    failed = spoilt if cut else absent | spoilt
    return PlayedRound(kept, delivered, late | missed, failed, timing, taught, measured is not None, cut_s)


def _in_order(planned: PlannedRound, replies: Replies) -> list[tuple[int, tuple[Message, float]]]:
    return [(node, replies[node]) for node in planned.chosen if node in replies]


def _name(planned: PlannedRound, node: int) -> str:
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


def configs(planned: PlannedRound) -> list[dict[str, float | int]]:
    """Return what the message to each scheduled device says of its part in the plan."""
    plan, law, trained = planned.plan, planned.view.law, planned.answers is not None and planned.answers.trained
    decided = {"fedcell-epochs": None if trained else plan.epochs, "fedcell-bits": plan.bits}
    return [
        {
            "fedcell-share": float(share),
            "fedcell-finish-s": float(finish_s),
            "fedcell-round": planned.grant.round_index,
            **_units(law, float(share)),
            **{name: float(column[i]) for name, column in decided.items() if column is not None},
        }
        for i, (share, finish_s) in enumerate(zip(plan.shares, planned.grant.finish_s, strict=True))
    ]


def _units(law: Law, share: float) -> dict[str, int]:
    """What a node is told of whole units that it gets, such as resource blocks."""
    gets = law.resources(share, 0.0)
    return {f"fedcell-{name}": value for name, value in gets.items() if isinstance(value, int)}
