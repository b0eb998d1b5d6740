"""Send messages and collect the replies, each with its arrival time."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fedcell.flower.flwr_api import pulls_never_block, unreadable

Replies = dict[int, tuple[Message, float]]
"""By node, its reply and when it arrived, in seconds since the messages were sent."""
POLL_S = 0.2
PULLS_S = 0.01
"""About what a pull costs the SuperLink: with many nodes, each is polled less often."""


def push(grid: Grid, messages: list[Message]) -> dict[str, Message]:
    """Send the messages; return, by message id, those that could be sent."""
    sent = set(grid.push_messages(messages))
    return {m.metadata.message_id: m for m in messages if m.metadata.message_id in sent}


def pull(grid: Grid, asked: Mapping[str, Message]) -> list[Message]:
    """Return the replies that are there; one that is no message of Flower's is an error message of its node.

    Args:
        grid: Flower's grid.
        asked: by message id, the messages that were sent.
    """
    try:
        return list(grid.pull_messages(list(asked)))
    except unreadable() as error:
        if len(asked) > 1:
            return [reply for message_id, message in asked.items() for reply in pull(grid, {message_id: message})]
        (message,) = asked.values()
        return [Message(Error(0, f"its reply cannot be read ({type(error).__name__})"), reply_to=message)]


def collect(
    grid: Grid,
    messages: list[Message],
    deadline_s: float,
    poll_s: float = POLL_S,
    enough: Callable[[Replies], bool] = lambda _: False,
) -> Replies:
    """Send the messages and collect replies until all have arrived or ``deadline_s`` seconds have passed.

    Flower's own send_and_receive polls every 3 s and does not say when a reply arrived.

    Args:
        grid: Flower's grid.
        messages: one per node.
        deadline_s: seconds to wait.
        poll_s: seconds between two polls.
        enough: called with the replies so far when another one has arrived; True if no more are needed.

    Returns:
        By node, its reply and when it arrived, in seconds since the messages were sent.
    """
    began_s = time.monotonic()
    asked = push(grid, messages)
    pulled = _together if pulls_never_block(grid) else _apart
    replies: Replies = {}
    for reply in pulled(grid, asked, began_s + deadline_s, poll_s):
        node = asked[reply.metadata.reply_to_message_id].metadata.dst_node_id
        replies[node] = reply, time.monotonic() - began_s
        if enough(replies):
            break
    return replies


def _together(grid: Grid, asked: Mapping[str, Message], until_s: float, poll_s: float) -> Iterator[Message]:
    """Replies of the simulation engine, whose pulls never block."""
    waiting, pause_s = dict(asked), 0.01
    while waiting:
        for reply in pull(grid, waiting):
            waiting.pop(reply.metadata.reply_to_message_id, None)
            yield reply
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return
        if waiting:
            time.sleep(min(pause_s, left_s))
        pause_s = min(poll_s, 1.5 * pause_s)


def _apart(grid: Grid, asked: Mapping[str, Message], until_s: float, poll_s: float) -> Iterator[Message]:
    """Replies over a network, each pulled by its own thread.

    The SuperLink offers a reply when its first bytes have arrived, and a pull then blocks until the last one: for
    seconds over a slow uplink, for minutes over one that was cut. This must not delay the others or the deadline, so a
    thread that blocks is abandoned at the deadline.
    """
    came: queue.SimpleQueue[Message | BaseException] = queue.SimpleQueue()
    over = threading.Event()

    def wait_for(message_id: str) -> None:
        try:
            while not over.is_set():
                replies = pull(grid, {message_id: asked[message_id]})
                if replies:
                    came.put(replies[0])
                    return
                over.wait(max(poll_s, PULLS_S * len(asked)))
        except BaseException as error:  # passed on to the main thread
            came.put(error)

    for message_id in asked:
        threading.Thread(target=wait_for, args=(message_id,), daemon=True, name="fedcell-pull").start()
    try:
        for _ in asked:
            found = came.get(timeout=max(0.0, min(until_s - time.monotonic(), threading.TIMEOUT_MAX)))
            if isinstance(found, BaseException):
                raise found
            yield found
    except queue.Empty:
        return
    finally:
        over.set()
