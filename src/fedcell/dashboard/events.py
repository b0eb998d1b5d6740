"""Server-sent events. A stream keeps no queue: it remembers how far its reader is, and sends what has come since.

So a slow reader costs nothing but its place, and gets larger pieces less often.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response

from fedcell.dashboard import limits
from fedcell.dashboard.limits import BusyError
from fedcell.dashboard.schemas import as_json
from fedcell.dashboard.security import Receive, Scope, Send

BEAT_S = 15.0
EVERY_S = 0.2


class Hub:
    """Wakes the streams when something has changed."""

    def __init__(self) -> None:
        self.open = 0
        self.closing = False
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Bind it to the running loop."""
        self._loop = asyncio.get_running_loop()

    def changed(self) -> None:
        """From any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """End all streams."""
        self.closing = True
        self.changed()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def events(self, look: Callable[[], tuple[list[str], bool]]) -> AsyncIterator[str]:
        """What ``look`` finds new, again and again, until it says that this was the last."""
        while not self.closing:
            news = self._news  # taken before looking: what comes meanwhile is not missed
            found, ended = look()
            for text in found:
                yield text
            if ended:
                return
            await asyncio.sleep(EVERY_S)
            try:
                await asyncio.wait_for(news.wait(), BEAT_S)
            except TimeoutError:
                yield ": still here\n\n"


def event(name: str, document: Any) -> str:
    """One event."""
    return f"event: {name}\ndata: {document if isinstance(document, str) else as_json(document)}\n\n"


class EventStream(Response):
    """A response that goes on until its events end, or its reader leaves."""

    def __init__(self, hub: Hub, events: AsyncIterator[str]) -> None:
        if hub.open >= limits.STREAMS:
            raise BusyError
        super().__init__(media_type="text/event-stream")
        self._hub, self._events = hub, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the events."""
        self._hub.open += 1
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            sending = asyncio.create_task(self._send(send))
            leaving = asyncio.create_task(left(receive))
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._hub.open -= 1

    async def _send(self, send: Send) -> None:
        async for text in self._events:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def left(receive: Receive) -> None:
    """Wait until the client has gone; its request was read to the end."""
    while (await receive())["type"] != "http.disconnect":
        pass
