"""The one runner: specs in, events out, on threads, processes or any executor, with or without a store.

Races, sweeps, fits, reproductions and the dashboard's queue all consume it. Work is handed out in slices: a worker
plays some rounds of a run and gives back its state, so a run can be paused, stopped, taken over from a dead worker or
resumed on another day at the round where it was. The driver alone writes to the store.
"""

import heapq
import json
import secrets
import threading
import time
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from typing import Literal

from fedcell.errors import InputError
from fedcell.learn.data import absolute
from fedcell.plugins import OwnCode
from fedcell.runs.processes import Processes
from fedcell.runs.records import Row, encode
from fedcell.runs.store import Store, spec_document
from fedcell.runs.workers import Advance, InProcess, Slice, advance, reason_of
from fedcell.runtime import Interrupts, cores
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec
from fedcell.sim.state import State
from fedcell.types import Vector

SLICE_S = 0.15
"""A worker reports after about so long, or after the round that takes longer; tiny runs travel together."""
SAVE_EVERY_S = 3.0
"""A run under way is stored no more often than this."""
TICK_S = 0.2
MAX_CHUNK = 256
MAX_LOCKSTEP = 64
"""Runs on a GPU that advance together."""
FULL_LOCKSTEP = 16
"""So many runs of eight clients fill a GPU: worker processes share one with no fewer each."""
GPU_SLICE_S = 2.0
"""A worker process on a GPU reports after about so long: its runs travel together, and another one would load them."""
MAX_TRIES = 3


def _rows(records: list[RoundRecord]) -> list[Row]:
    warnings.warn("an event's rows are its records since 0.3; use .records", DeprecationWarning, stacklevel=3)
    return [encode(record) for record in records]


@dataclass(frozen=True, eq=False)
class RoundsDone:
    """A run has played rounds, or goes on after rounds that the store had.

    Attributes:
        key: the run's.
        spec: the run.
        records: the rounds, in order.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=2", rounds=2, task=fc.TaskSpec(hidden=[4]))
        >>> events = list(fc.Runner([spec], on="threads"))
        >>> [record.round for event in events if isinstance(event, fc.RoundsDone) for record in event.records]
        [1, 2]
    """

    key: str
    spec: Spec
    records: list[RoundRecord]

    @property
    def rows(self) -> list[Row]:
        """Deprecated: the rounds as rows of a file; use ``records``."""
        return _rows(self.records)


@dataclass(frozen=True, eq=False)
class RunDone:
    """A run has ended, and is in the store if there is one.

    Attributes:
        key: the run's.
        spec: the run.
        records: all its rounds; None for a run that the store had from the start, which ``Store.get`` reads.
        duration_s: how long it took to compute.
        model: (P,) the final global model as one vector, if the runner was asked for models.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=2", rounds=2, task=fc.TaskSpec(hidden=[4]))
        >>> *_, last = fc.Runner([spec], on="threads", models=True)
        >>> isinstance(last, fc.RunDone), len(last.records), last.model.shape
        (True, 2, (3190,))
    """

    key: str
    spec: Spec
    records: list[RoundRecord] | None
    duration_s: float
    model: Vector | None = None

    @property
    def rows(self) -> list[Row] | None:
        """Deprecated: the rounds as rows of a file; use ``records``."""
        return None if self.records is None else _rows(self.records)


@dataclass(frozen=True, eq=False)
class RunFailed:
    """A run has failed; the others go on.

    Attributes:
        key: the run's.
        spec: the run.
        reason: why.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=25", rounds=2, task=fc.TaskSpec(hidden=[4]))
        >>> [event.reason for event in fc.Runner([spec], on="threads")]
        ['k is 25, but the cell has 20 devices; give a k of at most 20']
    """

    key: str
    spec: Spec
    reason: str


@dataclass(frozen=True, eq=False)
class WorkerLost:
    """Workers died; what they were computing is tried again.

    Attributes:
        keys: of the runs they had.

    Example:
        >>> import fedcell as fc
        >>> fc.WorkerLost(keys=["0f3a"]).keys  # only processes can be lost
        ['0f3a']
    """

    keys: list[str]


Event = RoundsDone | RunDone | RunFailed | WorkerLost


@dataclass(eq=False)
class _RunProgress:
    """How far a run is."""

    spec: Spec
    order: int
    rank: int
    text: str = ""
    records: list[RoundRecord] = field(default_factory=list)
    state: State | None = None
    duration_s: float = 0.0
    saved_rounds: int = 0
    saved_s: float = field(default_factory=time.monotonic)  # when it was last stored


class Runner:
    """Computes runs and yields what happens: iterate over it, once.

    Equal runs are computed once. What the store has is not computed again: a finished run gives ``RunDone`` with no
    rows, an unfinished one goes on where it was. A run that fails is recorded with its reason and does not stop the
    others. Where a worker process dies, its runs are tried again from their last slice. A run that has not got on in
    three tries has failed; the last try is made with nothing beside it, so that a run is only blamed for what it did
    alone.

    Args:
        specs: single runs.
        store: open for writing, or None.
        on: ``threads`` or ``processes`` of this machine, or an executor, which the caller shuts down. An executor other
            than Processes gets whole runs, so it reports run by run.
        workers: runs at once; by default as many as this process has cores.
        together: whether the runs of a seed advance together by their simulated clocks, seed after seed.
        models: whether RunDone has the final models, which the store then keeps too; a finished run that is stored
            without its model is computed again.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=2", rounds=2, task=fc.TaskSpec(hidden=[4]))
        >>> for event in fc.Runner([spec], on="threads"):
        ...     if isinstance(event, fc.RunDone):
        ...         print(event.spec.policy, len(event.records), "rounds")
        random:k=2 2 rounds
    """

    def __init__(
        self,
        specs: Iterable[Spec],
        *,
        store: Store | None = None,
        on: Literal["threads", "processes"] | Executor = "processes",
        workers: int | None = None,
        together: bool = False,
        models: bool = False,
    ) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}; give a whole number of at least 1")
        if not isinstance(on, Executor) and on not in ("threads", "processes"):
            raise InputError(f"on is {on!r}; give 'threads', 'processes' or an executor")
        self._store, self._on, self._together, self._models = store, on, together, models
        self._in_process = on == "threads" or isinstance(on, ThreadPoolExecutor)
        self._shared: dict[str, InProcess] = {}
        self._runs: dict[str, Spec] = {}  # equal runs once
        codes: dict[tuple[str, str, str], OwnCode] = {}
        for run in specs:
            code = self._code(run, codes)
            key = run.key(code)
            self._runs[key] = run
            if self._in_process and key not in self._shared:
                self._shared[key] = InProcess(run.make_policy(), code)
        self._workers = workers or cores()
        self._under_way: dict[str, _RunProgress] = {}
        self._waiting: list[tuple[int, float, int, str]] = []  # a heap: rank, clock, order
        self._in_flight: dict[Future[list[Advance]], list[str]] = {}
        self._tries: Counter[str] = Counter()
        self._chunk = 1
        self._going, self._stopping = threading.Event(), threading.Event()
        self._going.set()
        self._interrupts = Interrupts()
        self.total = len(self._runs)
        self.known = 0
        self.done = 0
        self.failures: dict[str, str] = {}

    def _code(self, run: Spec, codes: dict[tuple[str, str, str], OwnCode]) -> str:
        """What a run's key has of its code, which is looked at once for all runs that have it."""
        code = codes.get(which := _names(run))
        if code is None:
            code = codes[which] = run.own_code()
        if code.typed and not self._in_process:
            raise InputError(
                f"{code.typed} was typed in, into a notebook or an interpreter, where no worker process can import it, "
                "or assigned anew; save it in a file, such as mine.py, and name it as mine:..., or run it on threads"
            )
        if code.unknown:  # without a store any key will do that no other run has
            return run.code_sha256() if self._store is not None else secrets.token_hex(32)
        return code.sha256

    @property
    def keys(self) -> list[str]:
        """Of the runs, in their order."""
        return list(self._runs)

    @property
    def complete(self) -> bool:
        """Whether all runs are finished: none failed, and none is left."""
        return self.ended and not self.failures

    @property
    def ended(self) -> bool:
        """Whether all runs have ended, finished or failed."""
        return self.known + self.done + len(self.failures) == self.total

    def pause(self) -> None:
        """Stop computing after the present slices; from any thread."""
        self._going.clear()

    def go_on(self) -> None:
        """Compute again."""
        self._going.set()

    def stop(self) -> None:
        """End after the present slices; what was computed is stored, and a later runner goes on there."""
        self._stopping.set()
        self._going.set()

    def __iter__(self) -> Generator[Event]:
        """Compute, and yield what happens."""
        events = self._events()
        try:
            while True:
                with self._interrupts.held():
                    event = next(events, None)
                if event is None:
                    return
                yield event
        finally:
            with self._interrupts.held():
                events.close()
            self._interrupts.check()

    def _events(self) -> Generator[Event]:
        yield from self._look_up()
        if not self._under_way:
            return
        executor = self._executor()
        foreign = executor is self._on and not isinstance(executor, Processes)
        try:
            while self._under_way and not self._stopping.is_set():
                if self._going.is_set():
                    self._submit(executor, whole=foreign)
                    yield from self._collect(foreign)
                elif self._in_flight:
                    yield from self._collect(foreign)
                else:
                    self._interrupts.check()
                    self._save()
                    self._going.wait(TICK_S)
            for future in [future for future in self._in_flight if future.cancel()]:  # not begun yet
                del self._in_flight[future]
            while self._in_flight and not foreign:  # stopped: the present slices still count
                yield from self._collect(foreign)
        finally:
            for future in self._in_flight:
                future.cancel()
            if executor is not self._on:
                executor.shutdown(cancel_futures=True)
            self._save()

    # --- what the store has ----------------------------------------------------------------------------------------

    def _look_up(self) -> Iterator[Event]:
        """Runs that are finished, and those that go on."""
        done = self._store.done(self._runs, models=self._models) if self._store is not None else set()
        begun = self._store.unfinished_keys() if self._store is not None else set()
        seeds = {seed: place for place, seed in enumerate(dict.fromkeys(run.seed for run in self._runs.values()))}
        for order, (key, run) in enumerate(self._runs.items()):
            if key in done:
                self.known += 1
                yield RunDone(key, run, None, 0.0, self._stored_model(key))
                continue
            so_far = self._under_way[key] = _RunProgress(run, order, seeds[run.seed] if self._together else order)
            found = self._store.unfinished(key) if self._store is not None and key in begun else None
            if found is not None:
                so_far.records, so_far.state, so_far.duration_s = found.records, found.state, found.duration_s
                so_far.saved_rounds = len(found.records)
                yield RoundsDone(key, run, list(found.records))
            self._wait(key)

    def _stored_model(self, key: str) -> Vector | None:
        return self._store.model(key) if self._store is not None and self._models else None

    def _executor(self) -> Executor:
        """Who does the work."""
        if isinstance(self._on, Executor):
            return self._on
        at_once = min(self._workers, len(self._under_way))
        return ThreadPoolExecutor(at_once) if self._on == "threads" else Processes(at_once)

    # --- out -------------------------------------------------------------------------------------------------------

    def _wait(self, key: str) -> None:
        """Into the queue: runs that lost a worker first, then by rank and clock."""
        so_far = self._under_way[key]
        rank = -1 if self._tries[key] else so_far.rank
        clock_s = so_far.state.clock_s if so_far.state is not None else 0.0
        heapq.heappush(self._waiting, (rank, clock_s, so_far.order, key))

    def _submit(self, executor: Executor, *, whole: bool) -> None:
        """Keep a bounded number of slices in flight."""
        threads = max(1, self._workers // self.total) if self._on == "threads" else 1
        most = self._workers if self._on == "threads" else 2 * self._workers
        while self._waiting and len(self._in_flight) < most:
            last_try = self._tries[self._waiting[0][-1]] == MAX_TRIES - 1
            alone = any(self._tries[keys[0]] == MAX_TRIES - 1 for keys in self._in_flight.values())
            if self._in_flight and (last_try or alone):
                return  # the last try runs alone
            keys = self._next_chunk()
            on_gpu = self._on_gpu(keys[0])
            slices = [self._slice(key, on_gpu) for key in keys]
            try:
                slice_s = GPU_SLICE_S if on_gpu and self._on != "threads" else SLICE_S
                future = executor.submit(advance, slices, slice_s, threads, whole)
            except BrokenExecutor as error:
                future = Future()
                future.set_exception(error)
            self._in_flight[future] = keys

    def _slice(self, key: str, on_gpu: bool) -> Slice:
        return Slice(key, self._text(key), self._under_way[key].state, self._models, on_gpu, self._shared.get(key))

    def _next_chunk(self) -> list[str]:
        """The next runs, as many as should travel together; one that lost a worker travels by itself."""
        most = 1 if self._together else min(self._chunk, -(-len(self._waiting) // (2 * self._workers)))
        keys = [heapq.heappop(self._waiting)[-1]]
        gpu = self._on_gpu(keys[0])
        if gpu:  # one call trains the clients of all of them
            share = -(-self.total // self._workers) if self._on != "threads" else self.total
            most = min(MAX_LOCKSTEP, max(FULL_LOCKSTEP, share), 1 + len(self._waiting))
        while not self._tries[keys[0]] and len(keys) < most and not self._tries[self._waiting[0][-1]]:
            if self._on_gpu(self._waiting[0][-1]) != gpu:
                break
            keys.append(heapq.heappop(self._waiting)[-1])
        return keys

    def _on_gpu(self, key: str) -> bool:
        return self._under_way[key].spec.task.device != "cpu"

    def _text(self, key: str) -> str:
        """The run for a worker, whose current directory may be another."""
        so_far = self._under_way[key]
        if not so_far.text:
            fields = spec_document(so_far.spec)
            fields["task"]["data"] = absolute(so_far.spec.task.data)
            so_far.text = json.dumps(fields)
        return so_far.text

    # --- and back --------------------------------------------------------------------------------------------------

    def _collect(self, foreign: bool) -> list[Event]:
        """Take in what has come back; try again what was lost with its worker."""
        self._interrupts.check()
        events, lost, broken = list[Event](), list[str](), False
        waited = wait(self._in_flight, timeout=TICK_S, return_when=FIRST_COMPLETED)
        for future in waited.done:
            broken |= self._take(future, events, lost)
        if broken and foreign:
            raise InputError("the executor is broken; what is done is stored, start again with a new one")
        if lost and not self._stopping.is_set():  # else nobody tries again, and nobody is blamed
            events.append(WorkerLost(lost))
            events += self._try_again(lost)
        return events

    def _take(self, future: Future[list[Advance]], events: list[Event], lost: list[str]) -> bool:
        """Take in one answer; True if the executor turned out to be broken."""
        keys = self._in_flight.pop(future)
        try:
            found = future.result()
        except BrokenExecutor:
            lost += keys
            return True
        except InputError:
            raise  # no worker can be started
        except CancelledError:
            raise InputError("the cluster dropped the runs; what is done is stored, start again") from None
        except Exception as error:
            if type(error).__name__ == "KilledWorker":  # Dask's, named so as not to import it
                lost += keys
                return False
            found = [Advance(key, [], None, reason_of(error), 0.0) for key in keys]
        for one in found:
            events += self._keep(one)
        for key in keys[len(found) :]:  # there was no time for them
            self._wait(key)
        mean_s = sum(one.duration_s for one in found) / len(found)
        self._chunk = max(1, min(MAX_CHUNK, int(SLICE_S / max(mean_s, 1e-6))))
        return False

    def _keep(self, one: Advance) -> list[Event]:
        """Note how far a run is, and store it when it has ended or has not been stored for a while."""
        so_far = self._under_way[one.key]
        if one.reason:
            return [self._fail(one.key, one.reason, so_far.duration_s + one.duration_s)]
        self._tries.pop(one.key, None)  # it got on: what killed its worker was something else
        so_far.records += one.records
        so_far.duration_s += one.duration_s
        so_far.state = one.state
        events: list[Event] = [RoundsDone(one.key, so_far.spec, one.records)] if one.records else []
        if one.state is None:
            if self._store is not None:
                self._store.put(so_far.spec, so_far.records, so_far.duration_s, one.key, one.model)
            self.done += 1
            del self._under_way[one.key]
            return [*events, RunDone(one.key, so_far.spec, so_far.records, so_far.duration_s, one.model)]
        if time.monotonic() - so_far.saved_s > SAVE_EVERY_S:
            self._save_run(one.key, so_far)
        self._wait(one.key)
        return events

    def _try_again(self, keys: Sequence[str]) -> list[Event]:
        """The worker died that had these runs, or one beside it."""
        events: list[Event] = []
        for key in keys:
            self._tries[key] += 1
            if self._tries[key] < MAX_TRIES:
                self._wait(key)
            else:
                duration_s = self._under_way[key].duration_s
                events.append(self._fail(key, f"worker died, {MAX_TRIES} times (out of memory?)", duration_s))
        return events

    def _fail(self, key: str, reason: str, duration_s: float) -> RunFailed:
        so_far = self._under_way.pop(key)
        if self._store is not None:
            self._store.fail(so_far.spec, reason, duration_s, key)
        self.failures[key] = reason
        return RunFailed(key, so_far.spec, reason)

    def _save(self) -> None:
        """Store all runs under way, as far as they are."""
        for key, so_far in self._under_way.items():
            self._save_run(key, so_far)

    def _save_run(self, key: str, so_far: _RunProgress) -> None:
        new = so_far.records[so_far.saved_rounds :]
        if self._store is not None and so_far.state is not None and new:
            self._store.put_unfinished(so_far.spec, new, so_far.state, so_far.duration_s, key)
        so_far.saved_rounds, so_far.saved_s = len(so_far.records), time.monotonic()


def any_typed(runs: Iterable[Spec]) -> bool:
    """Whether a policy or model of some runs was typed in, so that only this process can run them."""
    return any(run.own_code().typed for run in {_names(run): run for run in runs}.values())


def _names(run: Spec) -> tuple[str, str, str]:
    """What names the code of a run."""
    return run.policy, run.task.engine, run.task.model
