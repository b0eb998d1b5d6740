"""Connections: how many there may be, how long each may take, and who gives way.

uvicorn waits for ever for the rest of a header, and for a reader that does not read. So its protocol tells us here
when a connection is made, sends something or is lost, and once a moment all of them are looked at. Whoever has not been
let in yet is a stranger: there is little room for strangers, and the oldest gives way to the newest, so that however
many come without a token, the owner finds a place.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedcell.dashboard import limits

Peer = tuple[str, int]


@dataclass(eq=False)
class Connection:
    """One connection.

    Attributes:
        transport: to its client.
        asking_since_s: when it was made, or the next request began to come; None while that is not awaited.
        known: whether a request of it was let in.
        task: what answers its request, or None.
        droppable: whether the answer, if nobody waits for it any more, need not be worked out.
        unsent: bytes that its client had not taken at the last look.
        reading_s: when it last took some, or there were none.
    """

    transport: asyncio.Transport
    asking_since_s: float | None
    known: bool = False
    task: asyncio.Task[Any] | None = None
    droppable: bool = False
    unsent: int = 0
    reading_s: float = 0.0

    def is_stuck(self, now_s: float, patience: limits.Patience) -> bool:
        """Whether its client has kept us waiting too long: for a request, or with what it does not read."""
        unsent = self.transport.get_write_buffer_size()
        if 0 in (self.unsent, unsent) or unsent < self.unsent:
            self.reading_s = now_s
        self.unsent = unsent
        slow = self.asking_since_s is not None and now_s - self.asking_since_s > patience.headers_s
        return slow or now_s - self.reading_s > patience.stuck_s


class Connections:
    """All connections of a server.

    Args:
        patience: how long they may take.
        most: at once, of those that were let in.
        strangers: at once, of the others.
    """

    def __init__(
        self,
        patience: limits.Patience | None = None,
        most: int = limits.CONNECTIONS,
        strangers: int = limits.STRANGERS,
    ) -> None:
        self.patience = patience or limits.Patience()
        self.closing = False
        self._most, self._strangers = most, strangers
        self._open: dict[Peer, Connection] = {}  # the oldest first
        self._left: set[asyncio.Task[Any]] = set()  # what answers requests of clients that have gone
        self._loop: asyncio.AbstractEventLoop | None = None

    async def watch(self) -> None:
        """Look at all connections, again and again."""
        self._loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.patience.look_s)
            for one in list(self._open.values()):
                if one.is_stuck(self._loop.time(), self.patience):
                    one.transport.abort()

    # --- what the protocol tells -----------------------------------------------------------------------------------

    def made(self, transport: asyncio.Transport) -> None:
        """A client has connected: the oldest stranger may have to go."""
        strangers = [one for one in self._living() if not one.known]
        if len(strangers) >= self._strangers:
            strangers[0].transport.abort()
        now_s = asyncio.get_running_loop().time()
        self._open[_peer(transport)] = Connection(transport, now_s, reading_s=now_s)

    def received(self, transport: asyncio.Transport) -> None:
        """A client has sent something: if no request is being answered, the next one begins."""
        one = self._open.get(_peer(transport))
        if one is not None and one.task is None and one.asking_since_s is None:
            one.asking_since_s = asyncio.get_running_loop().time()

    def read(self, transport: asyncio.Transport) -> None:
        """A client has taken most of what was sent; more follows, so the next look may not see it."""
        one = self._open.get(_peer(transport))
        if one is not None:
            one.reading_s = asyncio.get_running_loop().time()

    def lost(self, transport: asyncio.Transport) -> None:
        """The connection has ended, perhaps before its request was answered."""
        one = self._open.get(_peer(transport))
        if one is None or one.transport is not transport:
            return
        del self._open[_peer(transport)]
        if one.task is not None and one.droppable:
            one.task.cancel()
        elif one.task is not None:
            self._left.add(one.task)
            one.task.add_done_callback(self._left.discard)

    # --- what the guard tells --------------------------------------------------------------------------------------

    def begin(self, client: Any, *, droppable: bool = False) -> Connection | None:
        """A request is being answered; its connection, if it is one of ours."""
        one = self._open.get(tuple(client)) if client else None
        if one is not None:
            one.asking_since_s, one.task, one.droppable = None, asyncio.current_task(), droppable
        return one

    def gave_up(self, one: Connection | None) -> bool:
        """Whether an answer was cancelled by us: the server stops, or the client has gone."""
        return self.closing or (one is not None and one.transport.is_closing())

    def let_in(self, one: Connection | None) -> bool:
        """Whether there is room for one that may ask; an idle connection gives way to it."""
        if one is None or one.known:
            return True
        known = [other for other in self._living() if other.known]
        if len(known) >= self._most:
            idle = next((other for other in known if other.task is None), None)
            if idle is None:
                return False
            idle.transport.abort()
        one.known = True
        return True

    def end(self, one: Connection | None) -> None:
        """The request is answered."""
        if one is not None and one.task is asyncio.current_task():
            one.task = None

    def _living(self) -> list[Connection]:
        return [one for one in self._open.values() if not one.transport.is_closing()]

    # --- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The server stops, says a signal: answers under way have a moment, then all is cut off."""
        self.closing = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, self.patience.closing_s, self._cut_off)

    def _cut_off(self) -> None:
        for one in list(self._open.values()):
            one.transport.abort()
            if one.task is not None:
                one.task.cancel()
        for task in self._left:
            task.cancel()


def _peer(transport: asyncio.BaseTransport) -> Peer:
    """As the scope of a request has it."""
    host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
    return str(host), int(port)


def protocol(connections: Connections) -> type[H11Protocol]:
    """Uvicorn's protocol, which tells of its connections."""

    class Protocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            connections.made(transport)

        def data_received(self, data: bytes) -> None:
            connections.received(self.transport)
            try:
                super().data_received(data)
            except h11.LocalProtocolError:  # nonsense after a request that was answered before its end
                self.transport.abort()

        def resume_writing(self) -> None:
            connections.read(self.transport)
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            connections.lost(self.transport)
            super().connection_lost(exc)

    return Protocol
