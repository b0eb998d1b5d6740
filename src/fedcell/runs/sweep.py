"""All runs of a spec's grid on any concurrent.futures.Executor, into a store; what the store has is not run again.

The driver alone writes to the store, each run as it comes back, so whatever is killed at whatever moment, a second
sweep of the same spec finishes the rest. Workers train with one thread each: as many runs at once as there are cores.
"""

import json
import multiprocessing
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from concurrent.futures.process import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from threading import Event, Thread
from typing import Any

from fedcell.errors import InputError
from fedcell.learn.data import PUBLISHED
from fedcell.runs.store import Row, Store, document, encode
from fedcell.sim.loop import simulate
from fedcell.sim.spec import Spec, parse_spec

SLICE_S = 0.25  # tiny runs travel together for about so long; longer runs go one by one
MAX_CHUNK = 256
MAX_TRIES = 3
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)

Outcome = tuple[str, list[Row] | None, str, float]
"""What a worker says of a run: its key, its rounds or None, the reason if it failed, the seconds it took."""


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes:
        total: the grid's different runs.
        skipped: of these, were in the store at the start.
        done: finished by this sweep.
        failed: failed in this sweep.
        elapsed_s: since it began.
    """

    total: int
    skipped: int
    done: int
    failed: int
    elapsed_s: float

    @property
    def left(self) -> int:
        """Runs still to come."""
        return self.total - self.skipped - self.done - self.failed

    @property
    def left_s(self) -> float | None:
        """Seconds still to come, at the pace so far; None before the first run has ended."""
        ended = self.done + self.failed
        return self.elapsed_s * self.left / ended if ended else None


@dataclass(frozen=True)
class SweepResult:
    """What a sweep did.

    Attributes:
        done: runs that it finished and stored.
        skipped: runs that the store already had.
        failures: the reasons of the runs that failed, by their keys; the next sweep tries them again.
        complete: False if it was stopped before all runs had ended.
    """

    done: int
    skipped: int
    failures: dict[str, str]
    complete: bool


def run_sweep(
    spec: Spec | Sequence[Spec],
    store: Store,
    executor: Executor | None = None,
    workers: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    stop: Event | None = None,
) -> SweepResult:
    """Run what the store lacks of the spec's runs and store each run as it ends.

    A run that fails is recorded with its reason and does not stop the others. Where a worker process dies, its runs are
    tried again, three times at most, the last time with nothing beside them, so that a run is only blamed for what it
    did alone. Scripts that call this need the usual ``if __name__ == "__main__":``, for workers import them.

    Args:
        spec: whose grid is swept; or a list of single runs.
        store: open for writing.
        executor: does the work; by default processes of this machine. The caller shuts it down.
        workers: runs at once; by default as many as this process has cores.
        watch: called with the progress, at the start and whenever runs have ended.
        stop: set it to end the sweep early; Ctrl-C does the same. What is done is stored.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; give a whole number of at least 1")
    listed = spec.runs() if isinstance(spec, Spec) else spec
    runs = {run.key(): run for run in listed}  # equal runs once
    missing = {key: run for key, run in runs.items() if not store.has(key)}
    at_once = workers or len(os.sched_getaffinity(0))
    sweep = _Sweep(missing, store, at_once, len(runs) - len(missing), watch)
    if executor is not None:
        complete = sweep.run(executor, stop or Event())
    else:
        with _Processes(min(at_once, len(missing))) as processes:
            complete = sweep.run(processes, stop or Event())
    return SweepResult(sweep.done, sweep.skipped, sweep.failures, complete)


def run_chunk(runs: list[tuple[str, str]], slice_s: float) -> list[Outcome]:
    """In a worker: compute runs, given by key and JSON, until the slice of time is used up; at least one."""
    began, outcomes = time.perf_counter(), list[Outcome]()
    for key, text in runs:
        outcomes.append(_run(key, text))
        if time.perf_counter() - began > slice_s:
            break
    return outcomes


def _run(key: str, text: str) -> Outcome:
    began = time.perf_counter()
    try:
        spec = parse_spec(json.loads(text), "the run")
        if spec.key() != key:
            raise InputError("the worker's fedcell or its copy of task.data differs from the driver's; make them equal")
        began = time.perf_counter()
        rows = encode(simulate(spec, threads=1))
        return key, rows, "", time.perf_counter() - began
    except Exception as error:  # whatever a user's own policy or model raises
        return key, None, _reason(error), time.perf_counter() - began


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"[:500]


class _Sweep:
    """The driver's books: what waits, what flies, what has ended."""

    def __init__(
        self,
        runs: dict[str, Spec],
        store: Store,
        workers: int,
        skipped: int,
        watch: Callable[[Progress], None] | None,
    ) -> None:
        self.runs, self.store, self.workers, self.skipped, self.watch = runs, store, workers, skipped, watch
        self.done = 0
        self.failures: dict[str, str] = {}
        self.waiting = deque(runs)
        self.flying: dict[Future[list[Outcome]], list[str]] = {}
        self.tries: Counter[str] = Counter()
        self.chunk = 1
        self.began = time.monotonic()

    def run(self, executor: "Executor | _Processes", stop: Event) -> bool:
        """Until all have ended; False if stopped before."""
        self.report()
        try:
            while (self.waiting or self.flying) and not stop.is_set():
                broken = not self.submit(executor)
                finished, _ = wait(self.flying, timeout=0.2, return_when=FIRST_COMPLETED)
                broken |= self.collect(finished)
                if broken:
                    self.mend(executor)
        except KeyboardInterrupt:
            return False
        finally:
            for future in self.flying:
                future.cancel()
        return not (self.waiting or self.flying)

    def submit(self, executor: "Executor | _Processes") -> bool:
        """Keep a bounded number of chunks in flight; False if the executor is broken."""
        while self.waiting and len(self.flying) < 2 * self.workers:
            last_try = self.tries[self.waiting[0]] == MAX_TRIES - 1
            if self.flying and (last_try or any(self.tries[keys[0]] == MAX_TRIES - 1 for keys in self.flying.values())):
                return True  # a last try flies alone
            keys = self.next_chunk()
            try:
                future = executor.submit(run_chunk, [(key, _text(self.runs[key])) for key in keys], SLICE_S)
            except BrokenExecutor:
                self.waiting.extendleft(reversed(keys))
                return False
            self.flying[future] = keys
        return True

    def next_chunk(self) -> list[str]:
        """The next runs, as many as shall travel together; one that lost a worker travels by itself."""
        fair = -(-len(self.waiting) // (2 * self.workers))
        keys = [self.waiting.popleft()]
        while not self.tries[keys[0]] and len(keys) < min(self.chunk, fair) and not self.tries[self.waiting[0]]:
            keys.append(self.waiting.popleft())
        return keys

    def collect(self, finished: Iterable[Future[list[Outcome]]]) -> bool:
        """Store what came back; True if the executor turned out to be broken."""
        broken = False
        for future in finished:
            keys = self.flying.pop(future)
            try:
                self.keep(keys, future.result())
            except BrokenExecutor:
                broken = True
                self.try_again(keys)
            except CancelledError:
                raise InputError("the cluster dropped the runs; what is done is stored, start again") from None
            except InputError:  # the store's
                raise
            except Exception as error:
                if type(error).__name__ == "KilledWorker":  # Dask's, named so as not to import it
                    self.try_again(keys)
                else:
                    self.keep(keys, [(key, None, _reason(error), 0.0) for key in keys])
            self.report()
        return broken

    def keep(self, keys: list[str], outcomes: list[Outcome]) -> None:
        """Store the outcomes; the chunk's runs for which there was no time go back to the head of the queue."""
        for key, rows, reason, duration_s in outcomes:
            if rows is not None:
                self.store.put_rows(self.runs[key], rows, duration_s, key)
                self.done += 1
            else:
                self.fail(key, reason, duration_s)
        self.waiting.extendleft(reversed(keys[len(outcomes) :]))
        mean_s = sum(outcome[3] for outcome in outcomes) / len(outcomes)
        self.chunk = max(1, min(MAX_CHUNK, int(SLICE_S / max(mean_s, 1e-6))))

    def try_again(self, keys: list[str]) -> None:
        """The worker died that had these runs, or one beside it."""
        for key in reversed(keys):
            self.tries[key] += 1
            if self.tries[key] < MAX_TRIES:
                self.waiting.appendleft(key)
            else:
                self.fail(key, f"worker died, {MAX_TRIES} times (out of memory?)", 0.0)

    def fail(self, key: str, reason: str, duration_s: float) -> None:
        """Record it."""
        self.store.fail(self.runs[key], reason, duration_s, key)
        self.failures[key] = reason

    def mend(self, executor: "Executor | _Processes") -> None:
        """Begin again with new processes after taking in what the old ones still delivered."""
        if not isinstance(executor, _Processes):
            raise InputError("the executor is broken; what is done is stored, start again with a new one")
        self.collect(wait(self.flying).done)
        executor.restart()

    def report(self) -> None:
        """Tell the watcher."""
        if self.watch:
            elapsed_s = time.monotonic() - self.began
            total = len(self.runs) + self.skipped
            self.watch(Progress(total, self.skipped, self.done, len(self.failures), elapsed_s))


def _text(spec: Spec) -> str:
    """The run for a worker, whose current folder may be another."""
    fields = document(spec)
    if spec.task.data not in PUBLISHED:
        fields["task"]["data"] = os.path.abspath(os.path.expanduser(spec.task.data))
    return json.dumps(fields)


class _Processes:
    """Worker processes that end with the driver, however it ends.

    They come from a fork server that has fedcell imported, and hold the read end of a pipe whose write end the driver
    alone has: when it closes, by ``close`` or by the driver's death, they exit at once.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._context = multiprocessing.get_context("forkserver")
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "_Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """As an Executor's."""
        if self._pool is None:
            self._start()
        assert self._pool is not None
        return self._pool.submit(function, *arguments)

    def restart(self) -> None:
        """End what is left of the processes; the next submit starts new ones."""
        self.close()

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        if self._pool is not None:
            self._driver_end.close()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._worker_end.close()
            self._pool = None

    def _start(self) -> None:
        for _ in range(MAX_TRIES):
            self._worker_end, self._driver_end = self._context.Pipe(duplex=False)
            self._context.set_forkserver_preload(["fedcell.sim.loop", "fedcell.learn.mlp"])
            with _as_workers_shall_be():
                forkserver.ensure_running()
            self._pool = ProcessPoolExecutor(
                self._workers, mp_context=self._context, initializer=_begin_worker, initargs=(self._worker_end,)
            )
            try:
                self._pool.submit(int).result()
                return
            except BrokenExecutor:
                self.close()
        raise InputError(
            "worker processes end as soon as they start; a script must call run_sweep under if __name__ == '__main__':"
        )


@contextmanager
def _as_workers_shall_be() -> Iterator[None]:
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
    os.environ.update(ONE_THREAD)  # for what is imported later, if the caller had a fork server of its own
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_driver, args=(worker_end,), daemon=True).start()


def _end_with_driver(worker_end: Connection) -> None:
    try:
        worker_end.poll(None)
    finally:
        os._exit(1)
