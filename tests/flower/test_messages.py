"""Messages that are lost, devices that are dead, slow or unknown: how long a round waits, and what it learns."""

import math
from collections.abc import Iterator
from typing import cast

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

import fedcell as fc
from fedcell.flower import Report, Scheduled
from fedcell.flower.messages import collect
from fedcell.schedule.zoo.oort import relaxed
from flower.lab import Lab, laboratory

pytestmark = pytest.mark.flower
GRACE_S = 10.0
"""The default."""


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    with laboratory(monkeypatch) as found:
        yield found


def reports(count: int, compute_s: float | None = 0.1, upload_s: float | None = 0.01) -> list[Report]:
    return [Report(compute_s=compute_s, upload_s=upload_s) for _ in range(count)]


def rounds_of(scheduled: Scheduled, device: int) -> list[int]:
    return [done.round for done in scheduled.rounds if device in done.devices]


@pytest.mark.parametrize("lost", [1, 3, 30])
@pytest.mark.parametrize("policy", ["optimal:theta=0", "greedy", "diverse"])
def test_a_device_that_lost_one_message_stays(lab: Lab, policy: str, lost: int) -> None:
    """In version 0.2 it was never chosen again: its estimate had the server's grace in it."""
    run = lab.run(policy, reports(4), lambda i, time: math.inf if (i, time) == (3, lost) else 0.1, 60)
    assert rounds_of(run, 3) == list(range(1, 61))
    waited_s = [done.round_s for done in run.rounds if done.missing]
    assert waited_s == pytest.approx([GRACE_S + 0.2], rel=0.1)
    knowledge = run._planner.roster.knowledge
    assert knowledge.compute.mean_s[3] == pytest.approx(knowledge.compute.mean_s[0], rel=0.01)
    assert not knowledge.failures.any()


def test_a_dead_device_rests_longer_and_longer(lab: Lab) -> None:
    run = lab.run("optimal:theta=0", reports(4), lambda i, time: math.inf if i == 3 and time >= 5 else 0.1, 80)
    assert rounds_of(run, 3) == [1, 2, 3, 4, 5, 6, 8, 12, 20, 36, 68]
    assert all(set(done.delivered) >= {0, 1, 2} for done in run.rounds)


@pytest.mark.parametrize("policy", ["optimal:theta=0", "random:k=3"])
def test_a_device_that_is_much_slower_than_it_says_is_learnt_from_its_late_reply(lab: Lab, policy: str) -> None:
    """It answers 30 s later, when its round is over; nobody waits for that."""
    run = lab.run(policy, reports(6), lambda i, _: 30.0 if i == 5 else 0.1, 60)
    assert run._planner.roster.knowledge.compute.mean_s[5] == pytest.approx(30.0, rel=0.05)
    tried = rounds_of(run, 5)
    if policy == "random:k=3":  # which asks for it: it is waited for as long as it takes
        assert any(5 in done.delivered for done in run.rounds)
    else:
        assert len(tried) <= 4
    assert all(done.round_s <= GRACE_S + 1.0 for done in run.rounds if 5 in done.missing)


def test_three_percent_of_all_messages_lost(lab: Lab) -> None:
    """Every device takes part to the end, and no wait contains another: a miss costs its round the grace, once."""
    lost = {(i, time) for i in range(8) for time in range(1, 101) if (37 * i + 11 * time) % 33 == 0}
    run = lab.run("greedy", reports(8), lambda i, time: math.inf if (i, time) in lost else 0.1, 100)
    assert max(done.round_s for done in run.rounds) <= GRACE_S + 1.0
    assert {i for done in run.rounds[-10:] for i in done.delivered} == set(range(8))
    assert sum(len(done.delivered) for done in run.rounds) > 700


@pytest.mark.parametrize(
    ("known", "limit_s"),
    [
        ([True, True, True], GRACE_S + 0.2),
        ([True, False, True], GRACE_S + 0.2),  # 0.2: an infinite deadline, though the unknown one had come
        ([False, False, False], GRACE_S + 1.1),  # ten times the median of those that came
        ([True, True, False], GRACE_S + 1.1),  # the lost one is the unknown one
    ],
)
def test_a_round_ends_when_everybody_who_is_out_is_past_his_own_limit(
    lab: Lab, known: list[bool], limit_s: float
) -> None:
    given = [reports(1)[0] if told else Report() for told in known]
    run = lab.run("all", given, lambda i, time: math.inf if (i, time) == (2, 1) else 0.1, 2, radio="dedicated")
    assert run.rounds[0].missing == [2]
    assert run.rounds[0].round_s == pytest.approx(limit_s, rel=0.05)
    assert run.rounds[1].delivered == [0, 1, 2]


def test_an_unknown_device_that_is_slow_is_waited_for_and_learnt(lab: Lab) -> None:
    """Ten times slower than the others: well within the fleet's limit."""
    given = [*reports(3), Report()]
    run = lab.run("all", given, lambda i, _: 1.0 if i == 3 else 0.1, 2, radio="dedicated")
    assert [done.delivered for done in run.rounds] == [[0, 1, 2, 3]] * 2
    assert run._planner.roster.knowledge.compute.mean_s[3] == pytest.approx(1.0, rel=0.01)


class NetworkGrid:
    """Replies over a network: of each node there is none at the first looks, then one or an error."""

    def __init__(self, looks: dict[int, int], broken: int | None = None) -> None:
        self.looks, self.broken, self.nodes = looks, broken, dict[str, int]()

    def push_messages(self, messages: list[Message]) -> list[str]:
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"m{node}"
            self.nodes[f"m{node}"] = node
        return list(self.nodes)

    def pull_messages(self, message_ids: list[str]) -> list[Message]:
        (node,) = (self.nodes[one] for one in message_ids)
        if node == self.broken:
            raise ConnectionError("the SuperLink is gone")
        self.looks[node] -= 1
        if self.looks[node] >= 0:
            return []
        message = Message(RecordDict(), dst_node_id=node, message_type="train")
        message.metadata.__dict__["_message_id"] = f"m{node}"
        return [Message(RecordDict(), reply_to=message)]


def messages_to(*nodes: int) -> list[Message]:
    return [Message(RecordDict(), dst_node_id=node, message_type="train") for node in nodes]


def test_over_a_network_each_node_is_asked_again_until_its_reply_is_there() -> None:
    grid = NetworkGrid({1: 0, 2: 3})
    replies = collect(cast("Grid", grid), messages_to(1, 2), deadline_s=60.0, poll_s=0.01)
    assert set(replies) == {1, 2}
    assert [grid.looks[node] for node in (1, 2)] == [-1, -1]  # and no longer
    assert replies[1][1] < replies[2][1]


def test_an_error_of_the_network_ends_the_wait() -> None:
    with pytest.raises(ConnectionError, match="the SuperLink is gone"):
        collect(cast("Grid", NetworkGrid({1: 0, 2: 0}, broken=2)), messages_to(1, 2), deadline_s=60.0, poll_s=0.01)


def test_sixty_rounds_of_falling_losses_relax_oorts_pacer_twice(lab: Lab) -> None:
    run = lab.run("all", reports(3), lambda *_: 0.1, 60)
    losses = run._planner.roster.knowledge.round_losses
    assert losses.tolist() == pytest.approx([9.0 / time for time in range(1, 61)])
    assert relaxed(losses, fc.Oort().window) == 2
