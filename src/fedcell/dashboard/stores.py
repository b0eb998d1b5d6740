"""Results files behind threads of their own, for the page must not wait."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal, TypeVar

from fedcell.dashboard.limits import READS_WAITING
from fedcell.runs.store import Store
from fedcell.runs.stored import StoredRun

T = TypeVar("T")


class BusyError(Exception):
    """Too much is waiting already; the client shall come again."""


class Crew:
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


class Shelf:
    """One results file, read in a thread: the page must not wait for the disk.

    Attributes:
        name: the file as it was named on the command line.
        writable: whether races are written to it.
        store: the file; the only connection of this process to it.
    """

    def __init__(self, path: Path, mode: Literal["read", "write"]) -> None:
        self.name, self.writable = str(path), mode == "write"
        self.store = Store(path, mode)
        self._crew = Crew(1, READS_WAITING, "fedcell-store")
        self._listed: tuple[object, list[StoredRun]] = (None, [])

    async def ask(self, work: Callable[[Store], T]) -> T:
        """Do something with the store."""
        return await self._crew.run(lambda: work(self.store))

    async def runs(self) -> list[StoredRun]:
        """All its runs; read again only if the file has changed."""
        return await self.ask(self._runs)

    def _runs(self, store: Store) -> list[StoredRun]:
        mark = [_stat(store.path), _stat(Path(f"{store.path}-wal"))]
        if self._listed[0] != mark:
            self._listed = (mark, store.runs())
        return self._listed[1]

    def close(self, patience_s: float) -> bool:
        """Close the file; False if it was still being read when the time was over: then it stays open."""
        ended = self._crew.close(patience_s)
        if ended:
            self.store.close()
        return ended


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
