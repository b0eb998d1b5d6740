"""The queue of races: one computes at a time, in worker processes, and its finished runs go into the store.

A thread drives the workers. What it and the web server share is guarded by one lock, held for moments only. Since the
same spec gives the same rounds, a run that is begun anew (after a stop, or when its worker was killed) only adds the
rounds that are not yet known.
"""

import multiprocessing.connection
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from fedcell.dashboard import limits
from fedcell.dashboard.races.race import ENDED, Race, Run, State, light, light_record, restored
from fedcell.dashboard.races.workers import Worker
from fedcell.dashboard.stores import StoreThread
from fedcell.errors import InputError
from fedcell.runs.store import Row, Store, document
from fedcell.sim.spec import Spec

TRIES = 2
IDLE_S = 300.0  # then the workers, which hold the data, are let go
KEPT_LOADED = 3


class ConflictError(Exception):
    """The race is not in a state in which that can be done."""


class Races:
    """All races of a server.

    Args:
        store: where they and their runs are kept.
        workers: processes at once.
        changed: called, in any thread, whenever there is something new to show.
    """

    def __init__(self, store: StoreThread, workers: int, changed: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self._store, self._most, self._changed = store, workers, changed
        self._races: dict[str, Race] = {}
        self._queue: deque[Race] = deque()
        self._workers: list[Worker] = []
        self._loaded: deque[Race] = deque()
        self._closing = False
        self._wake_out, self._wake_in = multiprocessing.connection.Pipe(duplex=False)
        for stored in reversed(store.do(Store.races)):
            race = restored(stored)
            self._races[race.id] = race
            self._mark_stored(race)
        self._thread = threading.Thread(target=self._loop, name="fedcell-races", daemon=True)
        self._thread.start()

    # What the web server asks for. Everything here is quick, but for create, whose writing is awaited outside.

    def all(self) -> list[Race]:
        """The newest first."""
        with self.lock:
            return list(reversed(self._races.values()))

    def get(self, id: str) -> Race | None:
        """The race, if there is one."""
        with self.lock:
            return self._races.get(id)

    def position(self, race: Race) -> int | None:
        """Its place in the queue, from 1; None if it does not wait."""
        with self.lock:
            return self._queue.index(race) + 1 if race in self._queue else None

    def create(self, spec: Spec, target: float) -> Race:
        """Queue a race; the caller writes it down before it answers."""
        race = Race(secrets.token_hex(8), spec, target, time.time())
        with self.lock:
            self._check_room()
            if len(self._races) >= limits.RACES_KEPT:
                raise ConflictError(f"{limits.RACES_KEPT} races are kept; delete old ones first (their runs stay)")
            self._races[race.id] = race
            self._queue.append(race)
        self._wake()
        return race

    def pause(self, race: Race) -> None:
        """Stop computing between two rounds."""
        self._move(race, {"running": "paused"}, "paused")

    def go_on(self, race: Race) -> None:
        """Compute again."""
        self._move(race, {"paused": "running"}, "continued")

    def stop(self, race: Race) -> None:
        """End it after the present rounds; what is whole is stored."""
        with self.lock:
            self._move(race, {"queued": "stopped", "running": "stopping", "paused": "stopping"}, "stopped")
            if race in self._queue:
                self._queue.remove(race)

    def resume(self, race: Race) -> None:
        """Queue it again; finished runs come from the store."""
        with self.lock:
            self._check_room()
            self._move(race, dict.fromkeys(("stopped", "interrupted", "failed"), "queued"), "resumed")
            race.reason = ""
            for run in race.runs.values():
                run.tries = 0
            self._queue.append(race)
        self._wake()

    def forget(self, race: Race) -> None:
        """Drop it; its stored runs stay."""
        with self.lock:
            if race.state not in (*ENDED, "queued"):
                raise ConflictError(f"the race is {race.state}; stop it before it is deleted")
            if race in self._queue:
                self._queue.remove(race)
            self._races.pop(race.id, None)
            race.version += 1
            race.state = "stopped"
        self._changed()

    def live(self, key: str) -> Run | None:
        """A run that is not yet in the store."""
        with self.lock:
            found = (race.runs.get(key) for race in self._races.values())
            return next((run for run in found if run is not None and run.plans), None)

    def load(self, race: Race) -> None:
        """Read the rounds that are in the store only; may take a second, so not in the web server's thread."""
        with self.lock:
            missing = [run for run in race.runs.values() if run.rows is None]
            if race in self._loaded:
                self._loaded.remove(race)
            self._loaded.append(race)
            while len(self._loaded) > KEPT_LOADED:
                self._unload(self._loaded.popleft())
        for run in missing:
            try:
                rows = [light_record(record) for record in self._store.do(partial(Store.get, run=run.key))]
            except InputError:  # deleted since, by `fedcell results delete`
                rows = []
            with self.lock:
                run.rows, run.last = rows, rows[-1] if rows else None

    def _unload(self, race: Race) -> None:
        if race.state in ENDED:
            for run in race.runs.values():
                if run.state == "done":
                    run.rows = None

    def close(self) -> None:
        """End the workers and the thread."""
        self._closing = True
        self._wake()
        self._thread.join(10.0)

    # The races' own thread.

    def _loop(self) -> None:
        idle_since = time.monotonic()
        while not self._closing:
            with self.lock:
                race = self._queue.popleft() if self._queue else None
                if race is not None:
                    self._set(race, "running")
            if race is not None:
                self._compute(race)
                idle_since = time.monotonic()
            elif self._wake_out.poll(1.0):
                self._drain()
            elif self._workers and time.monotonic() - idle_since > IDLE_S:
                self._end_workers()
        self._end_workers()

    def _compute(self, race: Race) -> None:
        try:
            self._write(race)
            self._mark_stored(race)
            end: State = "done" if self._drive(race) else "stopped"
            reason = ""
        except InputError as error:
            end, reason = "failed", str(error)
        except Exception as error:  # a fault of ours must not end the thread that serves all races
            end, reason = "failed", f"{type(error).__name__}: {error}"
        if end == "failed":
            self._end_workers()
        if self._closing:
            return  # as if killed: the next server offers to resume it
        with self.lock:
            for run in race.runs.values():
                run.plans = []
                if run.state == "running":
                    run.state = "waiting"
            race.reason = reason
            self._set(race, end)
        try:
            self._write(race)
        except InputError as error:
            with self.lock:
                race.reason = str(error)
                self._set(race, "failed")

    def _write(self, race: Race) -> None:
        self._store.do(lambda store: store.put_race(race.stored()))

    def _mark_stored(self, race: Race) -> None:
        """Runs that the store has are done."""
        runs = [run for run in race.runs.values() if run.state != "done"]
        found = self._store.do(lambda store: [store.has(run.key) for run in runs])
        with self.lock:
            for run, there in zip(runs, found, strict=True):
                if there:
                    run.state, run.rows, run.plans = "done", None, []
        if race.state == "running":
            self.load(race)

    def _drive(self, race: Race) -> bool:
        """Until all runs are done; False if it was stopped before."""
        waiting = deque(run for run in race.runs.values() if run.state != "done")
        told: State = "running"
        while not self._closing:
            busy = [worker for worker in self._workers if worker.key is not None]
            if race.state != told:
                told = race.state
                for worker in busy:
                    {"paused": worker.pause, "running": worker.go, "stopping": worker.stop}.get(told, worker.go)()
            if not busy and (not waiting or told == "stopping"):
                return not waiting
            if told == "running":
                self._hand_out(race, waiting)
            self._listen(race, waiting)
        return False

    def _hand_out(self, race: Race, waiting: deque[Run]) -> None:
        for worker in [worker for worker in self._workers if worker.key is None and not worker.process.is_alive()]:
            self._workers.remove(worker)  # it was killed while it had nothing to do, which is no run's fault
            worker.close()
        for worker in [worker for worker in self._workers if worker.key is None]:
            if waiting:
                self._begin(race, worker, waiting.popleft())
        while waiting and len(self._workers) < self._most:
            self._workers.append(Worker())
            self._begin(race, self._workers[-1], waiting.popleft())

    def _begin(self, race: Race, worker: Worker, run: Run) -> None:
        with self.lock:
            run.state = "running"
            self._set(race, race.state)
        worker.run(run.key, document(run.spec))

    def _listen(self, race: Race, waiting: deque[Run]) -> None:
        """Take in what the workers say, for a moment."""
        busy = {worker.connection: worker for worker in self._workers if worker.key is not None}
        for ready in multiprocessing.connection.wait([*busy, self._wake_out], timeout=1.0):
            if ready is self._wake_out:
                self._drain()
                continue
            worker = busy[ready]  # type: ignore[index]
            assert worker.key is not None
            run = race.runs[worker.key]
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                self._lost(race, worker, run, waiting)
                continue
            self._take(race, worker, run, waiting, message)

    def _take(self, race: Race, worker: Worker, run: Run, waiting: deque[Run], message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind == "failed":
            raise InputError(f"{run.spec.policy}, seed {run.spec.seed}: {message[2]}")
        if kind in ("rounds", "done"):
            self._add(race, run, message[2])
        if kind == "rounds":
            self._changed()
            return
        worker.key = None
        if kind == "stopped":
            waiting.append(run)
            return
        rows = run.plans
        self._store.do(lambda store: store.put_rows(run.spec, rows, message[3], run.key))
        with self.lock:
            run.state, run.plans = "done", []
            self._set(race, race.state)

    def _add(self, race: Race, run: Run, rows: list[Row]) -> None:
        with self.lock:
            run.plans += rows[max(0, len(run.plans) - rows[0][0] + 1) :] if rows else []
            run.rows = run.rows if run.rows is not None else []
            run.rows += [light(row) for row in rows if row[0] > len(run.rows)]
            run.last = run.rows[-1] if run.rows else None
            rounds = sum(one.last[0] for one in race.runs.values() if one.last)
        size = sum(len(row[6]) + len(row[7]) + len(row[8]) for row in rows[-1:]) * len(run.plans)
        if len(run.plans) > limits.RACE_ROUNDS:
            raise InputError(f"a run passed {limits.RACE_ROUNDS:,} rounds; lower budget_s, or give rounds")
        if rounds > limits.RACE_ALL_ROUNDS:
            raise InputError(f"the race passed {limits.RACE_ALL_ROUNDS:,} rounds in all; take fewer seeds or policies")
        if size > limits.RUN_BYTES:
            raise InputError("the plans of a run passed 64 MiB; take fewer devices, or fewer rounds")

    def _lost(self, race: Race, worker: Worker, run: Run, waiting: deque[Run]) -> None:
        """A worker died: its run is tried once more, by a new worker.

        What killed it may have killed others that had nothing to do; it takes a moment until that shows, and the run
        must not be given to one of them.
        """
        for gone in [one for one in self._workers if one is worker or one.key is None]:
            self._workers.remove(gone)
            gone.close()
        run.tries += 1
        if run.tries >= TRIES:
            raise InputError(
                f"{run.spec.policy}, seed {run.spec.seed}: its worker process died {TRIES} times (out of memory?)"
            )
        with self.lock:
            run.state, run.plans = "waiting", []
            self._set(race, race.state)
        waiting.appendleft(run)

    def _end_workers(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers = []

    # Small parts.

    def _check_room(self) -> None:
        if len(self._queue) >= limits.QUEUE:
            raise ConflictError(f"{limits.QUEUE} races wait already; wait for one to end, or cancel one")

    def _move(self, race: Race, moves: dict[str, Any], word: str) -> None:
        with self.lock:
            if race.state not in moves:
                raise ConflictError(f"the race is {race.state}; it cannot be {word}")
            self._set(race, moves[race.state])
        self._wake()

    def _set(self, race: Race, state: State) -> None:
        with self.lock:
            race.state = state
            race.version += 1
        self._changed()

    def _wake(self) -> None:
        with self.lock:
            self._wake_in.send_bytes(b"!")

    def _drain(self) -> None:
        while self._wake_out.poll():
            self._wake_out.recv_bytes()
