"""What all routes share: the results files and their threads, the races, the events, and what is kept loaded."""

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from fedcell.dashboard import limits
from fedcell.dashboard.limits import READS_WAITING, BusyError
from fedcell.dashboard.queue import RaceQueue
from fedcell.dashboard.schemas import as_json
from fedcell.dashboard.security import Receive, Scope, Send
from fedcell.errors import InputError
from fedcell.runs.records import Rounds
from fedcell.runs.store import Measured, Store, spec_document
from fedcell.runs.stored import StoredRun
from fedcell.runtime import cores
from fedcell.sim.record import RoundRecord

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
        """Tell all streams, from any thread, that something has changed."""
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


T = TypeVar("T")


class BoundedExecutor:
    """Threads with a bounded queue: what does not fit is refused, not piled up."""

    def __init__(self, threads: int, waiting: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._room = threading.BoundedSemaphore(threads + waiting)
        self._begun: set[Future[Any]] = set()

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work in a thread and await it; BusyError if too much waits."""
        return await asyncio.wrap_future(self.submit(work))

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Begin the work."""
        if not self._room.acquire(blocking=False):
            raise BusyError
        future = self._pool.submit(work)
        self._begun.add(future)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: "Future[Any]") -> None:
        self._begun.discard(future)
        self._room.release()

    def close(self, patience_s: float) -> bool:
        """Drop what waits; whether what is running ended within the time."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not wait(list(self._begun), patience_s).not_done


Pair: TypeAlias = tuple[StoredRun, str]
"""A run, and the name of its results file."""


class StoreReader:
    """One results file, read in a thread: the page must not wait for the disk. ``store``: its only connection here."""

    def __init__(self, path: Path, mode: Literal["read", "write"]) -> None:
        self.name, self.writable = str(path), mode == "write"
        self.store = Store(path, mode)
        self._executor = BoundedExecutor(1, READS_WAITING, "fedcell-store")
        self._listed: tuple[object, list[Pair]] = (None, [])

    async def ask(self, work: Callable[[Store], T]) -> T:
        """Do something with the store."""
        return await self._executor.run(lambda: work(self.store))

    async def runs(self) -> list[Pair]:
        """All its runs, by their seeds and keys; if the file has changed, those that are new are read."""
        return await self.ask(self._runs)

    def _runs(self, store: Store) -> list[Pair]:
        mark = [_stat(store.path), _stat(Path(f"{store.path}-wal"))]
        if self._listed[0] != mark:
            runs = store.updated(run for run, _ in self._listed[1])
            self._listed = (mark, [(run, self.name) for run in sorted(runs, key=attrgetter("seed"))])
        return self._listed[1]

    def close(self, patience_s: float) -> bool:
        """Close the file; False if it was still being read when the time was over: then it stays open."""
        ended = self._executor.close(patience_s)
        if ended:
            self.store.close()
        return ended


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


RUNS_KEPT = 4


@dataclass(frozen=True)
class ServerSettings:
    """What the command line says.

    Attributes:
        store: the results file that races are written to.
        read: further ones, which are only read.
        paper: the folder of `fedcell reproduce`, or None.
        workers: processes of a race; None for one a core.
        hosts: values of Host that are ours; None for any, with a token.
        token: that every request must carry, or None.
        key: of the printed address, which lets a browser in while this server runs; the token is not shown.
        once: the same for the browser that is opened, whose address other users may see; it works once.
        allow_import: whether races of the results file may be computed whose policies or models are imported.
    """

    store: Path
    read: tuple[Path, ...] = ()
    paper: Path | None = None
    workers: int | None = None
    hosts: frozenset[str] | None = None
    token: str | None = None
    key: str | None = None
    once: str | None = None
    allow_import: bool = False


@dataclass(frozen=True, eq=False)
class FoundRun:
    """A run, its rounds, and what was measured in them."""

    key: str
    document: dict[str, Any]
    records: list[RoundRecord]
    measured: list[Measured]
    stored: StoredRun | None
    store: str | None

    @cached_property
    def rounds(self) -> Rounds:
        """Its rounds as columns, for statistics."""
        return Rounds.of_records(self.records)


class AppState:
    """Opened by the server when it starts, closed when it ends."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.hub = Hub()
        self.stores = [StoreReader(settings.store, "write"), *(StoreReader(path, "read") for path in settings.read)]
        workers = settings.workers or cores()
        store, allowed = self.stores[0].store, settings.allow_import
        self.races = RaceQueue(store, workers, self.hub.changed, allow_import=allowed)
        self.plans = BoundedExecutor(limits.PLANS_AT_ONCE, limits.PLANS_WAITING, "fedcell-plan")
        self.views = BoundedExecutor(1, limits.READS_WAITING, "fedcell-view")
        self.ended = False
        self._found: OrderedDict[tuple[str, float], FoundRun] = OrderedDict()

    def close(self) -> None:
        """End workers and threads, close the files: what is computed is stored, what is only shown is given up."""
        self.hub.close()
        ended = [self.races.close(limits.STOPPING_S)]
        ended += [executor.close(0.0) for executor in (self.plans, self.views)]
        if all(ended):  # otherwise somebody may still read them
            ended += [store.close(limits.STOPPING_S) for store in self.stores]
        self.ended = all(ended)

    def readable(self, name: str | None) -> list[StoreReader]:
        """The results files asked for: one by name, or all."""
        found = [store for store in self.stores if name in (None, "", store.name)]
        if not found:
            raise HTTPException(404, f"there is no results file {str(name)[:100]!r} here; see /api/info")
        return found

    async def run(self, key: str, store: str | None = None) -> FoundRun:
        """The run of this key: of the race that computes, or of a results file."""
        live = self.races.live(key)
        if live is not None and not store:
            with self.races.lock:
                records = list(live.records)
            return FoundRun(key, spec_document(live.spec), records, [], None, None)
        for thread in self.readable(store):
            runs = await thread.ask(partial(Store.runs, key=key))
            if len(runs) > 1:
                raise HTTPException(404, f"the keys of {len(runs)} runs begin with {key[:64]!r}; give more digits")
            if runs:
                return await self._whole(thread, runs[0])
        raise HTTPException(404, f"there is no run {key[:64]!r}; see /api/runs")

    async def _whole(self, thread: StoreReader, run: StoredRun) -> FoundRun:
        if run.status == "damaged":
            raise InputError(f"run {run.key[:8]} is {run.reason}")
        if run.rounds > limits.RACE_ALL_ROUNDS:
            raise InputError(
                f"run {run.key[:8]} has {run.rounds:,} rounds, and the page shows up to {limits.RACE_ALL_ROUNDS:,}; "
                "fedcell results export has them all"
            )
        mark = (f"{thread.name} {run.key}", run.finished_unix_s)
        if mark not in self._found:
            records = await thread.ask(partial(Store.get, run=run.key, unfinished=True)) if run.rounds else []
            measured = await thread.ask(partial(Store.measured, run=run.key)) if run.source != "simulation" else []
            self._found[mark] = FoundRun(run.key, run.document, records, measured, run, thread.name)
        found = self._found[mark]
        self._found.move_to_end(mark)
        while len(self._found) > RUNS_KEPT:
            self._found.popitem(last=False)
        return found
