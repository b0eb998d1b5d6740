"""Worker processes, and what a worker does: a slice of some runs, from their states to later ones."""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from concurrent.futures.process import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from fedcell.errors import InputError
from fedcell.runs.rows import Row, encode
from fedcell.sim.loop import Simulation, State
from fedcell.sim.spec import parse_spec

START_TRIES = 3
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


@dataclass(frozen=True, eq=False)
class Slice:
    """A run for a worker to advance.

    Attributes:
        key: the run's.
        text: its spec as JSON.
        state: where it goes on; None at the start.
    """

    key: str
    text: str
    state: State | None


@dataclass(frozen=True, eq=False)
class Advance:
    """How far a worker got with a run.

    Attributes:
        key: the run's.
        rows: the rounds played.
        state: where it goes on; None if the run has ended.
        reason: why it failed; empty otherwise.
        duration_s: how long it took.
    """

    key: str
    rows: list[Row]
    state: State | None
    reason: str
    duration_s: float


def advance(slices: Sequence[Slice], slice_s: float, threads: int, whole: bool) -> list[Advance]:
    """In a worker: play rounds until the time is used up.

    Args:
        slices: runs, of which at least the first is advanced by a round.
        slice_s: seconds to spend.
        threads: for training.
        whole: whether runs are always played to their end.

    Returns:
        Of the runs that were begun, how far they got; the last may not have ended.
    """
    end_s, found = time.perf_counter() + slice_s, list[Advance]()
    for one in slices:
        found.append(_advance(one, float("inf") if whole else end_s, threads))
        if time.perf_counter() > end_s:
            break
    return found


def _advance(one: Slice, end_s: float, threads: int) -> Advance:
    began_s, rows = time.perf_counter(), list[Row]()
    try:
        run = _simulation(one.key, one.text, threads)
        state: State | None = run.start() if one.state is None else one.state
        while state is not None:
            played = run.step(state)
            if played is None:
                state = None
                break
            record, state = played
            rows.append(encode(record))
            if time.perf_counter() > end_s:
                break
        return Advance(one.key, rows, state, "", time.perf_counter() - began_s)
    except Exception as error:  # whatever a user's own policy or model raises
        return Advance(one.key, rows, None, reason_of(error), time.perf_counter() - began_s)


@lru_cache(maxsize=64)  # the runs of a race take turns
def _simulation(key: str, text: str, threads: int) -> Simulation:
    spec = parse_spec(json.loads(text), "the run")
    if spec.key() != key:
        raise InputError("the worker's fedcell or its copy of task.data differs from the driver's; make them equal")
    return Simulation.load(spec, threads)


def reason_of(error: BaseException) -> str:
    """Why a run failed, in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"[:500]


class Processes(Executor):
    """Worker processes that end with the driver, however it ends.

    They come from a fork server that has fedcell imported, and hold the read end of a pipe whose write end the driver
    alone has: when it closes, by ``shutdown`` or by the driver's death, they exit at once. When one dies, all are lost
    (BrokenExecutor), and the next ``submit`` starts new ones.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._context = multiprocessing.get_context("forkserver")
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As an Executor's."""
        if self._pool is None:
            self._start()
        assert self._pool is not None
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """End the processes, whatever they are doing; ``submit`` starts new ones."""
        if self._pool is not None:
            self._driver_end.close()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._worker_end.close()
            self._pool = None

    def _start(self) -> None:
        for _ in range(START_TRIES):
            self._worker_end, self._driver_end = self._context.Pipe(duplex=False)
            self._context.set_forkserver_preload(["fedcell.sim.loop", "fedcell.learn.mlp"])
            with _as_workers_should_be():
                forkserver.ensure_running()
            self._pool = ProcessPoolExecutor(
                self._workers, mp_context=self._context, initializer=_begin_worker, initargs=(self._worker_end,)
            )
            try:
                self._pool.submit(int).result()
                return
            except BrokenExecutor:
                self.shutdown()
        raise InputError(
            "worker processes end as soon as they start; a script must call fedcell under if __name__ == '__main__':"
        )


@contextmanager
def _as_workers_should_be() -> Iterator[None]:
    """What the fork server inherits now, all workers inherit from it: one thread each, and Ctrl-C is the driver's."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin_worker(worker_end: Connection) -> None:
    os.environ.update(ONE_THREAD)  # for what is imported later, if the caller had a fork server already
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_driver, args=(worker_end,), daemon=True).start()


def _end_with_driver(worker_end: Connection) -> None:
    try:
        worker_end.poll(None)
    finally:
        os._exit(1)
