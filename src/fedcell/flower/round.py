"""One round of a federation: what was planned for it, and how it went."""

from dataclasses import dataclass

import numpy as np
from flwr.app import Message

from fedcell.flower.collect import Replies
from fedcell.flower.inner import LOG, faults, take_train_s
from fedcell.flower.radio import Device, Grant
from fedcell.schedule.bandwidth import Floats
from fedcell.schedule.policy import Plan, RoundView
from fedcell.sim.knowledge import Look, Timing


@dataclass(frozen=True, eq=False)
class PlannedRound:
    """A round that is about to begin.

    Attributes:
        nodes: the ids of all M nodes that are there.
        look: what the radio said of them.
        view: what the policy saw.
        grant: who trains, with which share, and when each is to be done.
    """

    nodes: list[int]
    look: Look
    view: RoundView
    grant: Grant

    @property
    def plan(self) -> Plan:
        """Who trains."""
        return self.grant.plan

    @property
    def chosen(self) -> list[int]:
        """The node ids of those, in the plan's order."""
        return [self.nodes[i] for i in self.plan.devices]

    @property
    def devices(self) -> list[Device]:
        """Those, as devices."""
        return [self.grant.devices[i] for i in self.plan.devices]

    def upload_s(self) -> Floats:
        """(n,) how long each was to upload with its share."""
        upload: Floats = self.view.upload_s[self.plan.devices] / self.plan.shares
        return upload


@dataclass(frozen=True, eq=False)
class PlayedRound:
    """How a planned round went. Arrays are of the n scheduled devices, in the plan's order.

    Attributes:
        kept: the replies that count.
        delivered: (n,) booleans: whose.
        late: (n,) booleans: who delivered after the deadline.
        timing: when they began to upload and finished.
        taught: the same, with the deadline in place of what never came: at least so slow they are.
        measured: whether the radio measured the timing, and not the server's clock.
    """

    kept: list[Message]
    delivered: np.ndarray[tuple[int], np.dtype[np.bool_]]
    late: np.ndarray[tuple[int], np.dtype[np.bool_]]
    timing: Timing
    taught: Timing
    measured: bool


def play(planned: PlannedRound, replies: Replies, measured: Timing | None, slack: float, grace_s: float) -> PlayedRound:
    """Judge the replies of a round.

    Args:
        planned: the round.
        replies: those that came.
        measured: the radio's timing, if it has one.
        slack: a device is late after ``slack`` times its planned finish.
        grace_s: seconds more, where only the server's clock tells.
    """
    train_s = {node: take_train_s(reply) for node, (reply, _) in replies.items()}
    timing = measured or _by_server_clock(planned, replies, train_s)
    allowed_s = slack * planned.grant.finish_s + (0.0 if measured else grace_s)
    arrived = np.array([node in replies for node in planned.chosen], dtype=bool)
    late = arrived & (timing.finish_s > allowed_s)
    whole = {
        n: reply for (n, (reply, _)), out in zip(_in_order(planned, replies), late[arrived], strict=True) if not out
    }
    bad = faults(whole)
    for node, fault in bad.items():
        LOG.warning("fedcell: the reply of device %s is left out: %s", _name(planned, node), fault)
    kept = [reply for node, reply in whole.items() if node not in bad]
    delivered = np.array([node in whole and node not in bad for node in planned.chosen], dtype=bool)
    # Of a node whose app failed nothing is learnt; one that did not come is at least as slow as the deadline.
    slow = late | ~arrived
    finish_s = np.where(slow, np.fmax(timing.finish_s, allowed_s), timing.finish_s)
    began_s = np.where(slow, np.maximum(finish_s - planned.upload_s(), 0.0), timing.began_s)
    failed = arrived & ~late & ~delivered
    taught = Timing(np.where(failed, np.nan, began_s), np.where(failed, np.nan, finish_s))
    return PlayedRound(kept, delivered, late, timing, taught, measured is not None)


def _in_order(planned: PlannedRound, replies: Replies) -> list[tuple[int, tuple[Message, float]]]:
    return [(node, replies[node]) for node in planned.chosen if node in replies]


def _name(planned: PlannedRound, node: int) -> str:
    return planned.grant.devices[planned.nodes.index(node)].name


def _by_server_clock(planned: PlannedRound, replies: Replies, train_s: dict[int, float]) -> Timing:
    """When replies came, and from that when uploads began.

    Where the link is known, all that it does not explain was before the upload: training, and Flower's own delays,
    which no share of the band shortens. Where it is not, the node's own clock says how long it trained, and where that
    is silent too, the time is split as it was planned.
    """
    chosen = planned.chosen
    finish_s = np.array([replies[node][1] if node in replies else np.nan for node in chosen])
    trained_s = np.array([train_s.get(node, np.nan) for node in chosen])
    link_known = np.isfinite(planned.look.upload_s[planned.plan.devices])
    by_link_s = np.fmax(trained_s, np.maximum(finish_s - planned.upload_s(), 0.0))
    compute_s = planned.view.compute_s[planned.plan.devices]
    as_planned_s = finish_s * compute_s / planned.grant.finish_s
    by_node_s = np.where(np.isfinite(trained_s), trained_s, as_planned_s)
    return Timing(np.minimum(np.where(link_known, by_link_s, by_node_s), finish_s), finish_s)
