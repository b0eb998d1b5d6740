"""Messages to nodes and their replies, each with its arrival time, and how long a round waits for them."""

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Error, Message
from flwr.serverapp import Grid

from fedcell.flower.compat import in_simulation, unreadable
from fedcell.flower.radio import Radio
from fedcell.flower.replies import Replies
from fedcell.flower.round import Arrivals, PlannedRound
from fedcell.types import Floats

POLL_S = 0.2
PULLS_S = 0.01
"""About what a pull costs the SuperLink: with many nodes, each is polled less often."""
LOOK_PART = 0.05
"""A reply that comes after its round is looked for again after this part of the time that it has taken so far."""
WATCHED = 2
"""Of so many messages to a node, the last ones, a reply is watched for after their rounds."""


def push(grid: Grid, messages: list[Message]) -> dict[str, Message]:
    """Send the messages; return, by message id, those that could be sent."""
    sent = set(grid.push_messages(messages))
    return {m.metadata.message_id: m for m in messages if m.metadata.message_id in sent}


def pull(grid: Grid, asked: Mapping[str, Message]) -> list[Message]:
    """Return the replies that are there, of those asked for; what is no message of Flower's is an error of its node."""
    try:
        return list(grid.pull_messages(list(asked)))
    except unreadable() as error:
        if len(asked) > 1:
            return [reply for message_id, message in asked.items() for reply in pull(grid, {message_id: message})]
        (message,) = asked.values()
        return [Message(Error(0, f"its reply cannot be read ({type(error).__name__})"), reply_to=message)]


@dataclass(eq=False)
class Later:
    """Messages whose round has ended without their replies, and those replies once they come.

    Nobody waits for them, but when a reply comes says exactly how slow its device is.

    Attributes:
        round: what the messages that are watched from now on belong to; it is returned with their replies.
    """

    round: Any = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _watched: dict[str, "_Owed"] = field(default_factory=dict)  # by message id
    _came: list[tuple[Any, Message, float]] = field(default_factory=list)

    def watch(self, messages: Mapping[str, Message], sent_s: float) -> None:
        """Watch for replies to these messages, by message id, which were sent at this time of the monotonic clock."""
        with self._lock:
            for message_id, message in messages.items():
                self._watched[message_id] = _Owed(message, sent_s, self.round)
                self.forget(self._of(message.metadata.dst_node_id)[:-WATCHED])

    def forget(self, message_ids: Iterable[str]) -> None:
        """Watch for these no longer."""
        with self._lock:
            for message_id in message_ids:
                if message_id in self._watched:
                    self._watched.pop(message_id).gone.set()

    def forget_round(self) -> None:
        """Watch for those of the present round no longer."""
        with self._lock:
            self.forget([message_id for message_id, owed in self._watched.items() if owed.round is self.round])
            self._came = [came for came in self._came if came[0] is not self.round]

    def close(self) -> None:
        """Watch for nothing any more."""
        self.forget(self.watched)

    def _of(self, node: int) -> list[str]:
        return [message_id for message_id, owed in self._watched.items() if owed.message.metadata.dst_node_id == node]

    @property
    def watched(self) -> dict[str, Message]:
        """By message id, the messages that have no reply yet."""
        with self._lock:
            return {message_id: owed.message for message_id, owed in self._watched.items()}

    def wait(self, message_id: str, least_s: float) -> bool:
        """Wait before the next look for a reply, longer the later it is; False if it is not wanted any more."""
        with self._lock:
            owed = self._watched.get(message_id)
        return owed is not None and not owed.gone.wait(max(least_s, LOOK_PART * (time.monotonic() - owed.sent_s)))

    def put(self, reply: Message) -> None:
        """Take a reply; whatever else its node still owes says nothing new."""
        now_s = time.monotonic()
        with self._lock:
            owed = self._watched.get(reply.metadata.reply_to_message_id)
            if owed is not None:
                self._came.append((owed.round, reply, now_s - owed.sent_s))
                self.forget(self._of(owed.message.metadata.dst_node_id))

    def taken(self) -> list[tuple[Any, Message, float]]:
        """The replies that have come since the last call: the round, the reply and how many seconds it took."""
        with self._lock:
            came, self._came = self._came, []
            return came


@dataclass(frozen=True, eq=False)
class _Owed:
    message: Message
    sent_s: float
    round: Any
    gone: threading.Event = field(default_factory=threading.Event)


def collect(
    grid: Grid,
    messages: list[Message],
    deadline_s: float | Callable[[Replies], float],
    poll_s: float = POLL_S,
    enough: Callable[[Replies], bool] = lambda _: False,
    later: Later | None = None,
) -> Replies:
    """Send the messages and collect replies until all have arrived or ``deadline_s`` seconds have passed.

    Flower's own send_and_receive polls every 3 s and does not say when a reply arrived.

    Args:
        grid: Flower's grid.
        messages: one per node.
        deadline_s: seconds to wait, or how many given the replies so far.
        poll_s: seconds between two polls.
        enough: called with the replies so far when another one has arrived; True if no more are needed.
        later: watches for the replies that have not arrived; without it they are given up.

    Returns:
        By node, its reply and when it arrived, in seconds since the messages were sent.
    """
    began_s = time.monotonic()
    asked = push(grid, messages)
    pulled = _together if in_simulation(grid) else _apart
    replies: Replies = {}

    def until_s() -> float:
        return began_s + (deadline_s(replies) if callable(deadline_s) else deadline_s)

    watching = later or Later()
    for reply in pulled(grid, asked, until_s, poll_s, watching):
        node = asked[reply.metadata.reply_to_message_id].metadata.dst_node_id
        replies[node] = reply, time.monotonic() - began_s
        if enough(replies):
            break
    if later is None:
        watching.forget(asked)
    return replies


def _together(
    grid: Grid, asked: Mapping[str, Message], until_s: Callable[[], float], poll_s: float, later: Later
) -> Iterator[Message]:
    """Replies of the simulation engine, whose pulls never block."""
    sent_s, waiting, pause_s = time.monotonic(), dict(asked), 0.01
    try:
        while waiting:
            for reply in pull(grid, waiting | later.watched):
                if waiting.pop(reply.metadata.reply_to_message_id, None) is None:
                    later.put(reply)
                else:
                    yield reply
            left_s = until_s() - time.monotonic()
            if left_s <= 0:
                return
            if waiting:
                time.sleep(min(pause_s, left_s))
            pause_s = min(poll_s, 1.5 * pause_s)
    finally:
        later.watch(waiting, sent_s)


def _apart(
    grid: Grid, asked: Mapping[str, Message], until_s: Callable[[], float], poll_s: float, later: Later
) -> Iterator[Message]:
    """Replies over a network, each pulled by its own thread.

    The SuperLink offers a reply when its first bytes have arrived, and a pull then blocks until the last one: for
    seconds over a slow uplink, for minutes over one that was cut. This must not delay the others or the deadline, so a
    thread that blocks is left alone at the deadline, and its reply comes later.
    """
    came: queue.SimpleQueue[Message | BaseException] = queue.SimpleQueue()
    over = threading.Event()
    sent_s, waiting, least_s = time.monotonic(), dict(asked), max(poll_s, PULLS_S * len(asked))

    def wait_for(message_id: str) -> None:
        try:
            while True:
                if replies := pull(grid, {message_id: asked[message_id]}):
                    came.put(replies[0])
                    if over.is_set():
                        later.put(replies[0])
                    return
                if over.wait(least_s) and not later.wait(message_id, least_s):
                    return
        except BaseException as error:  # passed on to the main thread
            came.put(error)

    for message_id in asked:
        threading.Thread(target=wait_for, args=(message_id,), daemon=True, name="fedcell-pull").start()
    try:
        for _ in asked:
            found = came.get(timeout=max(0.0, min(until_s() - time.monotonic(), threading.TIMEOUT_MAX)))
            if isinstance(found, BaseException):
                raise found
            waiting.pop(found.metadata.reply_to_message_id)
            yield found
    except queue.Empty:
        return
    finally:
        later.watch(waiting, sent_s)
        over.set()
        while not came.empty():  # what came in this moment
            if not isinstance(found := came.get(), BaseException):
                later.put(found)


@dataclass(frozen=True, eq=False)
class Messenger:
    """How long replies are waited for.

    Attributes:
        grid: Flower's.
        radio: applies the shares, and may measure.
        slack: a device is late after so many times its planned time,
        grace_s: and so many seconds.
        timeout_s: the longest wait.
        poll_s: seconds between two looks for replies.
        left_s: seconds from the start of the round to the end of the budget.
        later: watches for replies after their round.
    """

    grid: Grid
    radio: Radio
    slack: float
    grace_s: float
    timeout_s: float
    poll_s: float
    left_s: float
    later: Later | None = None

    def send(
        self,
        planned: PlannedRound,
        messages: list[Message],
        *,
        began_s: float | None = None,
        enough: Callable[[Replies], bool] = lambda _: False,
    ) -> Arrivals:
        """Send a plan's messages and wait for all replies or ``enough``; ``began_s``: the start, if a question came."""
        radio = self.radio
        radio.grant(planned.grant)
        sent_s = time.monotonic()
        began_s = sent_s if began_s is None else began_s
        # Nodes that take turns cannot be late, and of what a radio simulates the wall clock knows nothing.
        in_turn = in_simulation(self.grid)
        deadlines = radio.real_time and not in_turn
        past_s, allowed_s = sent_s - began_s, np.full(len(planned.chosen), math.inf)

        def limits_s(replies: Replies) -> Floats:
            came_s = np.array([past_s + replies[n][1] if n in replies else np.nan for n in planned.chosen])
            return planned.limits_s(came_s, self.slack, self.grace_s)

        def until_s(replies: Replies) -> float:
            """The wait is over when everybody who is still out is past his own limit; see PlannedRound.limits_s."""
            out = np.array([node not in replies for node in planned.chosen], dtype=bool)
            limit_s = limits_s(replies)[out] if deadlines else allowed_s[out]
            # Of those without a limit nothing is demanded, but that they come before the budget is spent.
            latest_s = float(np.where(np.isfinite(limit_s), limit_s, self.left_s).max(initial=0.0))
            return min(self.timeout_s, max(latest_s - past_s, 0.0))

        def enough_in_time(replies: Replies) -> bool:
            until = dict(zip(planned.chosen, limits_s(replies) if deadlines else allowed_s, strict=True))
            return enough({node: found for node, found in replies.items() if past_s + found[1] <= until[node]})

        if self.later is not None:
            self.later.round = planned
        if radio.real_time:
            found = collect(self.grid, messages, until_s, self.poll_s, enough_in_time, self.later)
        else:
            found = collect(self.grid, messages, self.timeout_s, self.poll_s)
        replies = {node: (reply, past_s + came_s) for node, (reply, came_s) in found.items()}
        allowed_s = limits_s(found) if deadlines else allowed_s
        waited_s = time.monotonic() - began_s
        # An answer is too small to be told from other traffic: only the simulator measures it.
        measures = bool(messages) and (not planned.grant.answers or not radio.real_time)
        measured = radio.measure(planned.grant) if measures else None
        if measured is not None:  # which needs no grace
            held = radio.real_time or getattr(radio, "deadlines", False)
            allowed_s = planned.allowed_s(self.slack if held else math.inf, 0.0)
        simulated = measured is not None and not radio.real_time
        ended_s = None if simulated else waited_s
        return Arrivals(replies, measured, allowed_s, ended_s, began_s, in_turn and measured is None)
