"""Messages without a grid of nodes: replies after their round, those that cannot be read, and how often one looks."""

import types
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Message, RecordDict

from fedcell.flower import messages


def test_how_often_the_superlink_is_asked() -> None:
    assert (messages.POLL_S, messages.PULLS_S, messages.LOOK_PART, messages.WATCHED) == (0.2, 0.01, 0.05, 2)


def sent_to(*nodes: int) -> dict[str, Message]:
    """Messages to these nodes, by their ids m0, m1, ..."""
    found = {}
    for number, node in enumerate(nodes):
        found[f"m{number}"] = Message(RecordDict(), node, "train")
        found[f"m{number}"].metadata.__dict__["_message_id"] = f"m{number}"
    return found


def reply_to(message_id: str, message: Message) -> Message:
    reply = Message(RecordDict(), reply_to=message)
    reply.metadata.__dict__["_reply_to_message_id"] = message_id
    return reply


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that fedcell's messages see."""
    seen = [100.0]
    monkeypatch.setattr(messages, "time", types.SimpleNamespace(monotonic=lambda: seen[0], sleep=lambda _: None))
    return seen


def test_a_reply_after_its_round_says_how_slow_its_device_was(now: list[float]) -> None:
    later, sent = messages.Later(round="first"), sent_to(1, 2)
    later.watch(sent, 90.0)
    assert set(later.watched) == {"m0", "m1"}
    later.put(reply_to("m0", sent["m0"]))
    later.put(reply_to("m9", sent["m0"]))  # of nobody that is watched
    assert set(later.watched) == {"m1"}
    ((of, reply, took_s),) = later.taken()
    assert (of, reply.metadata.reply_to_message_id, took_s) == ("first", "m0", 10.0)
    assert later.taken() == []
    later.close()
    assert later.watched == {}


def test_of_many_messages_to_a_node_the_last_two_are_watched_and_one_reply_ends_all(now: list[float]) -> None:
    later, sent = messages.Later(), sent_to(1, 1, 1, 2)
    later.watch(sent, 90.0)
    assert set(later.watched) == {"m1", "m2", "m3"}
    later.put(reply_to("m1", sent["m1"]))
    assert set(later.watched) == {"m3"}


def test_a_round_that_is_played_again_is_forgotten(now: list[float]) -> None:
    later, sent = messages.Later(round="first"), sent_to(1, 2, 3)
    later.watch({"m0": sent["m0"]}, 90.0)
    later.round = "second"
    later.watch({"m1": sent["m1"], "m2": sent["m2"]}, 95.0)
    later.put(reply_to("m1", sent["m1"]))
    later.forget_round()
    assert set(later.watched) == {"m0"}
    assert later.taken() == []


def test_looks_for_a_late_reply_become_rarer_and_end_when_nobody_wants_it(now: list[float]) -> None:
    later, sent = messages.Later(), sent_to(1)
    assert not later.wait("m0", 0.0)
    waited: list[float] = []
    later.watch(sent, 90.0)
    owed = later._watched["m0"]

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    object.__setattr__(owed, "gone", types.SimpleNamespace(wait=wait))
    assert later.wait("m0", 0.2)
    assert later.wait("m0", 0.9)
    assert waited == [pytest.approx(0.5), 0.9]  # a twentieth of 10 s, but not less than the least
    object.__setattr__(owed, "gone", types.SimpleNamespace(wait=lambda _: True))
    assert not later.wait("m0", 0.2)


class Broken:
    """A grid of which the replies of some messages cannot be read."""

    def __init__(self, *broken: str) -> None:
        self.broken, self.sent = broken, sent_to(1, 2, 3)

    def pull_messages(self, ids: list[str]) -> list[Message]:
        if any(one in self.broken for one in ids):
            raise ValueError("no message")
        return [reply_to(one, self.sent[one]) for one in ids]

    def push_messages(self, given: list[Message]) -> list[str]:
        return [one.metadata.message_id for one in given if one.metadata.message_id not in self.broken]


def test_a_reply_that_cannot_be_read_is_an_error_of_its_node_alone() -> None:
    grid: Any = Broken("m1")
    whole: Any = Broken()
    assert [one.metadata.reply_to_message_id for one in messages.pull(whole, whole.sent)] == ["m0", "m1", "m2"]
    found = messages.pull(grid, grid.sent)
    assert [reply.has_error() for reply in found] == [False, True, False]
    assert found[1].error.reason == "its reply cannot be read (ValueError)"
    assert set(messages.push(grid, list(grid.sent.values()))) == {"m0", "m2"}  # what could be sent
