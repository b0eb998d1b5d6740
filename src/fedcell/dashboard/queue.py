"""The queue of races: one computes at a time, in worker processes, and its runs go into the store.

One thread consumes the runner's events, another looks for what other processes write into the store: a race that
`fedcell race --store` runs in a terminal is shown as it grows. What they and the web server share is guarded by one
lock, held for moments only.
"""

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal, cast

from fedcell.dashboard import limits
from fedcell.errors import InputError
from fedcell.runs.processes import Processes
from fedcell.runs.race import Heartbeat, KnownRace, RaceResult, is_ours, own_code, race_runs, race_to_store
from fedcell.runs.runner import Event, RoundsDone, RunDone, RunFailed, Runner
from fedcell.runs.store import Store
from fedcell.runs.stored import StoredRace
from fedcell.sim.record import ROUND_COLUMNS, RoundRecord
from fedcell.sim.spec import Spec

RaceState = Literal["queued", "running", "paused", "stopping", "stopped", "done", "failed", "interrupted", "damaged"]
INTERRUPTED = "the process that ran the race has ended; resume it"


@dataclass(eq=False)
class LiveRun:
    """One run of a race.

    Attributes:
        key: Spec.key().
        spec: the run.
        state: of the run.
        numbers: its rounds so far, as ROUND_COLUMNS; None while they are in the store only.
        records: its rounds with their plans, until the run is stored.
        reason: why it failed, or empty.
    """

    key: str
    spec: Spec
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    numbers: list[Sequence[Any]] | None = field(default_factory=list)
    records: list[RoundRecord] = field(default_factory=list)
    reason: str = ""

    def last(self, column: str) -> Any:
        """The column's value in its last round; None if it has none, or they are in the store only."""
        return self.numbers[-1][ROUND_COLUMNS.index(column)] if self.numbers else None


@dataclass(eq=False)
class LiveRace:
    """A race and how far it is.

    Attributes:
        id: of the race.
        spec: with a grid of policies and seeds; of a damaged race, with an empty one.
        target: the target accuracy.
        created_unix_s: when it was asked for.
        state: see RaceState.
        reason: why it failed, was interrupted or cannot be read, or empty.
        elsewhere: whether another process runs it.
        runs: by key, seed by seed.
        version: rises with every change of a state.
        name: what the user calls it, or empty.
        note: what the user wrote about it, or empty.
        told: the event that tells of it, and of which version and place in the queue it is.
        keys: of the runs, where they are known.
    """

    id: str
    spec: Spec
    target: float
    created_unix_s: float = field(default_factory=time.time)
    state: RaceState = "queued"
    reason: str = ""
    elsewhere: bool = False
    runs: dict[str, LiveRun] = field(default_factory=dict)
    version: int = 1
    name: str = ""
    note: str = ""
    told: tuple[object, str] = (None, "")
    keys: InitVar[Sequence[str] | None] = None

    def __post_init__(self, keys: Sequence[str] | None) -> None:
        self.renew([run.key() for run in race_runs(self.spec)] if keys is None else keys)

    def renew(self, keys: Sequence[str]) -> None:
        """Take the runs that have these keys: code or data of one's own may have changed."""
        specs = race_runs(self.spec)
        self.runs = {key: self.runs.get(key) or LiveRun(key, run) for key, run in zip(keys, specs, strict=True)}

    @property
    def policies(self) -> list[str]:
        """Its policies, in the order given."""
        return list(self.spec.grid["policy"])

    @property
    def seeds(self) -> list[int]:
        """Its seeds."""
        return list(self.spec.grid["seed"])

    @property
    def ended(self) -> bool:
        """Whether nobody runs it."""
        return self.state in StoredRace.ENDED

    def stored(self) -> StoredRace:
        """The race as the store keeps it."""
        return race_to_store(
            self.id,
            self.spec,
            self.target,
            self.state,
            self.created_unix_s,
            self.reason,
            keys=list(self.runs),
            name=self.name,
            note=self.note,
        )

    def follow(self, stored: StoredRace) -> None:
        """Take over what the store says of a race that this server does not run; an InputError if it is damaged."""
        known = KnownRace.of(stored)
        if known.keys is not None and known.keys != list(self.runs):
            self.renew(known.keys)
        self.reason, self.name, self.note = known.reason, known.name, known.note
        self.elsewhere = stored.is_under_way
        if self.elsewhere or stored.state in stored.ENDED:
            self.state = cast(RaceState, stored.state)
        else:
            self.state, self.reason = "interrupted", INTERRUPTED
        self.version += 1


def from_store(stored: StoredRace, store: Store) -> LiveRace:
    """A race that another process left or runs; a damaged one says why, and hides no other."""
    try:
        known = KnownRace.of(stored)
        keys = known.keys or known.keys_in(store, stored)
        race = LiveRace(stored.id, known.spec, known.target, stored.created_unix_s, keys=keys)
        race.follow(stored)
        return race
    except InputError as error:
        reason = str(error)
    except Exception as error:  # whatever somebody has written there
        reason = f"damaged in the file ({type(error).__name__})"
    nothing = Spec().model_copy(update={"grid": {"policy": [], "seed": []}})
    return LiveRace(stored.id, nothing, 1.0, stored.created_unix_s, "damaged", reason, keys=[])


IDLE_S = 300.0  # then the workers, which hold the data, are let go
LOOK_EVERY_S = 1.0
KEPT_LOADED = 3
STORE_S = 10.0  # the longest that writing to the store may take when the server stops


RERUN = tuple(state for state in StoredRace.ENDED if state != "damaged")


class ConflictError(Exception):
    """The race is not in a state in which that can be done."""


class RaceQueue:
    """All races of a server.

    Args:
        store: where they and their runs are kept.
        workers: processes at once.
        changed: called, in any thread, whenever there is something new to show.
        allow_import: whether races of the file with policies and models of one's own may be computed, which imports
            them.
    """

    def __init__(self, store: Store, workers: int, changed: Callable[[], None], *, allow_import: bool = False) -> None:
        self.lock = threading.RLock()
        self._store, self._changed, self._allow_import = store, changed, allow_import
        self._workers, self._processes = workers, Processes(workers)
        self._races: dict[str, LiveRace] = {}
        self._queue: deque[LiveRace] = deque()
        self._loaded: deque[LiveRace] = deque()
        self._computing: tuple[LiveRace, Runner] | None = None
        self._closing, self._news = threading.Event(), threading.Event()
        self._seen_version = -1
        self._look()
        self._heart = Heartbeat(store, self._under_way)
        self._threads = [
            threading.Thread(target=loop, name=f"fedcell-{loop.__name__.strip('_')}", daemon=True)
            for loop in (self._compute_all, self._look_again)
        ]
        for thread in self._threads:
            thread.start()

    # --- what the web server asks for; everything here is quick ----------------------------------------------------

    def all(self) -> list[LiveRace]:
        """The newest first."""
        with self.lock:
            return sorted(self._races.values(), key=lambda race: -race.created_unix_s)

    def get(self, id: str) -> LiveRace | None:
        """The race, if there is one."""
        with self.lock:
            return self._races.get(id)

    def position(self, race: LiveRace) -> int | None:
        """Its place in the queue, from 1; None if it does not wait."""
        with self.lock:
            return self._queue.index(race) + 1 if race in self._queue else None

    def create(self, spec: Spec, target: float) -> LiveRace:
        """Queue a race; the caller writes it down before it answers."""
        race = LiveRace(secrets.token_hex(8), spec, target)
        with self.lock:
            self._check_room()
            if len(self._races) >= limits.RACES_KEPT:
                raise ConflictError(f"{limits.RACES_KEPT} races are kept; delete old ones first (their runs stay)")
            self._races[race.id] = race
            self._queue.append(race)
        self._news.set()
        return race

    def pause(self, race: LiveRace) -> None:
        """Stop computing between two rounds."""
        self._move(race, {"running": "paused"}, "paused", Runner.pause)

    def go_on(self, race: LiveRace) -> None:
        """Compute again."""
        self._move(race, {"paused": "running"}, "continued", Runner.go_on)

    def stop(self, race: LiveRace) -> None:
        """End it after the present rounds; what it has is stored, and it can be resumed."""
        moves = {"queued": "stopped", "running": "stopping", "paused": "stopping"}
        with self.lock:
            self._move(race, moves, "stopped", Runner.stop)
            if race in self._queue:
                self._queue.remove(race)

    def resume(self, race: LiveRace) -> None:
        """Queue it again; every run goes on where it was."""
        with self.lock:
            self._check_room()
            self._check_code(race)
            self._move(race, dict.fromkeys(("stopped", "interrupted", "failed"), "queued"), "resumed")
            race.reason = ""
            self._queue.append(race)
        self._news.set()

    def rerun(self, race: LiveRace) -> None:
        """Queue it again without the runs that it alone has: these are computed from their first round."""
        with self.lock:
            self._check_room()
            self._check_code(race)
            self._move(race, dict.fromkeys(RERUN, "queued"), "rerun")
            keys = self._own_runs(race)
            self._store.delete(keys)
            for key in keys:
                race.runs[key] = LiveRun(key, race.runs[key].spec)
            race.reason = ""
            self._queue.append(race)
        self._news.set()

    def describe(self, race: LiveRace, name: str, note: str) -> None:
        """Give it a name and a note, in the store first; whoever runs it."""
        self._store.describe_race(race.id, name, note)
        with self.lock:
            race.name, race.note = name, note
            self._set(race, race.state)

    def own_runs(self, race: LiveRace) -> list[str]:
        """The keys of the runs that go with it if it is deleted with its runs, or that it computes anew in a rerun."""
        with self.lock:
            return self._own_runs(race)

    def forget(self, race: LiveRace, *, runs: bool = False) -> None:
        """Drop it, in the store first; its stored runs stay unless ``runs``: then those go that it alone has."""
        with self.lock:
            if not (race.ended or race.state == "queued") or race.elsewhere:
                raise ConflictError(f"the race is {_state(race)}; stop it before it is deleted")
            self._store.delete_race(race.id, self._own_runs(race) if runs else [])
            if race in self._queue:
                self._queue.remove(race)
            self._races.pop(race.id, None)
            race.version += 1
            race.state = "stopped"
        self._changed()

    def live(self, key: str) -> LiveRun | None:
        """A run that is not yet in the store."""
        with self.lock:
            found = (race.runs.get(key) for race in self._races.values())
            return next((run for run in found if run is not None and run.records), None)

    def missing(self, race: LiveRace) -> list[LiveRun]:
        """Its runs whose rounds are in the store only; from now on the race is one of those that stay loaded."""
        with self.lock:
            if race in self._loaded:
                self._loaded.remove(race)
            self._loaded.append(race)
            while len(self._loaded) > KEPT_LOADED:
                self._unload(self._loaded.popleft())
            return [run for run in race.runs.values() if run.numbers is None]

    def load(self, race: LiveRace) -> None:
        """Read the rounds that are in the store only; may take a second, so not in the web server's thread."""
        for run in self.missing(race):
            numbers = self._store.numbers(run.key)  # none if the run was deleted since
            with self.lock:
                run.numbers = list(numbers)

    def _unload(self, race: LiveRace) -> None:
        if race.ended:
            for run in race.runs.values():
                if run.state == "done":
                    run.numbers = None

    def close(self, patience_s: float) -> bool:
        """End the workers and the threads; a race under way can be resumed by the next server.

        Args:
            patience_s: for the rounds that are being trained; then their workers are killed. All earlier ones are
                stored in any case.

        Returns:
            Whether all threads have ended.
        """
        self._closing.set()
        self._news.set()
        with self.lock:
            if self._computing is not None:
                self._computing[1].stop()
        compute, look = self._threads
        compute.join(patience_s)
        if compute.is_alive():
            self._processes.shutdown()
            compute.join(STORE_S)
        self._heart.close()
        look.join(STORE_S)
        return not (compute.is_alive() or look.is_alive())

    # --- the thread that computes ----------------------------------------------------------------------------------

    def _compute_all(self) -> None:
        idle_since = time.monotonic()
        while not self._closing.is_set():
            self._news.clear()
            with self.lock:
                race = self._queue.popleft() if self._queue else None
            if race is not None:
                self._compute(race)
                idle_since = time.monotonic()
            elif not self._news.wait(1.0) and time.monotonic() - idle_since > IDLE_S:
                self._processes.shutdown()
        self._processes.shutdown()

    def _compute(self, race: LiveRace) -> None:
        end: RaceState = "failed"
        reason = ""
        try:
            if not is_ours(race.spec):  # what its keys count may have changed since it was stored
                keys = [run.spec.key() for run in race.runs.values()]
                with self.lock:
                    race.renew(keys)
            runs = [run.spec for run in race.runs.values()]
            runner = Runner(runs, store=self._store, on=self._processes, workers=self._workers, together=True)
            with self.lock:
                self._computing = (race, runner)
                for run in race.runs.values():
                    if run.state == "failed":  # it is tried again
                        run.state, run.reason = "waiting", ""
                self._set(race, "running")
            self._store.put_race(race.stored())
            for event in runner:
                self._take(race, event)
            end, reason = self._outcome(race, runner)
        except InputError as error:
            reason = str(error)
        except Exception as error:  # a fault of ours must not end the thread that serves all races
            reason = f"{type(error).__name__}: {error}"
        with self.lock:
            self._computing = None
        if not self._closing.is_set():  # else as if killed: the next server offers to resume it
            self._end(race, end, reason)

    def _outcome(self, race: LiveRace, runner: Runner) -> tuple[RaceState, str]:
        """How the race ended: runs that failed are told of, and the others count."""
        failures = {(run.spec.policy, run.spec.seed): run.reason for run in race.runs.values() if run.reason}
        if len(failures) == len(race.runs):
            (policy, seed), reason = next(iter(failures.items()))
            return "failed", f"{policy}, seed {seed}: {reason}"
        return "done" if runner.ended else "stopped", RaceResult.failures_text(failures, race.spec) if failures else ""

    def _end(self, race: LiveRace, end: RaceState, reason: str) -> None:
        with self.lock:
            for run in race.runs.values():
                run.records = []
                if run.state == "running":
                    run.state = "waiting"
            race.reason = reason
            self._set(race, end)
        try:
            self._store.put_race(race.stored())
        except InputError as error:
            with self.lock:
                race.reason = str(error)
                self._set(race, "failed")

    def _take(self, race: LiveRace, event: Event) -> None:
        if isinstance(event, RunFailed):
            with self.lock:
                run = race.runs[event.key]
                run.state, run.reason, run.records = "failed", event.reason, []
                self._set(race, race.state)
        if isinstance(event, RoundsDone):
            self._add(race, race.runs[event.key], event)
        if isinstance(event, RunDone):
            numbers = self._store.numbers(event.key) if event.records is None else None
            with self.lock:
                run = race.runs[event.key]
                run.state, run.records = "done", []
                run.numbers = run.numbers if numbers is None else list(numbers)
                self._set(race, race.state)

    def _add(self, race: LiveRace, run: LiveRun, event: RoundsDone) -> None:
        """Rounds that this server knows already, from before a stop, come again when the race goes on."""
        with self.lock:
            run.records += [record for record in event.records if record.round > len(run.records)]
            run.numbers = run.numbers if run.numbers is not None else []
            run.numbers += [record.numbers() for record in event.records if record.round > len(run.numbers)]
            if run.state == "waiting":
                run.state = "running"
                self._set(race, race.state)
            rounds = sum(len(one.numbers or []) for one in race.runs.values())
        self._changed()
        size = sum(one.nbytes for one in event.records[-1].lists().values() if one is not None) * len(run.records)
        if len(run.records) > limits.RACE_ROUNDS:
            raise InputError(f"a run passed {limits.RACE_ROUNDS:,} rounds; lower budget_s, or set rounds")
        if rounds > limits.RACE_ALL_ROUNDS:
            raise InputError(f"the race passed {limits.RACE_ALL_ROUNDS:,} rounds in all; take fewer seeds or policies")
        if size > limits.RUN_BYTES:
            raise InputError("the plans of a run passed 64 MiB; take fewer devices, or fewer rounds")

    # --- the thread that looks at what others write ----------------------------------------------------------------

    def _look_again(self) -> None:
        while not self._closing.wait(LOOK_EVERY_S):
            try:
                self._look()
            except InputError:
                continue  # a locked store, say: the next look will do
            except Exception:  # one fault of ours must not hide all later races
                logging.getLogger("fedcell").exception("the results file could not be looked at; it is tried again")

    def _look(self) -> None:
        """Take over what the store says of races that this server does not run."""
        version = self._store.version()
        with self.lock:
            followed = [race for race in self._races.values() if race.elsewhere]
        if version == self._seen_version and not followed:
            return
        self._seen_version = version
        stored = {race.id: race for race in self._store.races()}
        with self.lock:
            known = {id for id, race in self._races.items() if race.state != "damaged"}
            new = [race for id, race in stored.items() if id not in known]
            ended = [race for race in self._races.values() if race.ended and race.id in stored]
            followed += [race for race in ended if stored[race.id].is_under_way]  # resumed by another process
            for race in followed:
                if race.id not in stored:
                    self._races.pop(race.id, None)
        for one in new:
            race = from_store(one, self._store)
            self._mark_stored(race)
            with self.lock:
                there = self._races.get(race.id)
                if there is None or there.state == "damaged":
                    race.version += 0 if there is None else there.version
                    self._races[race.id] = race
        for race in followed:
            if race.id in stored:
                self._follow(race, stored[race.id])
        if new or followed:
            self._changed()

    def _follow(self, race: LiveRace, stored: StoredRace) -> None:
        try:
            with self.lock:
                race.follow(stored)
        except InputError as error:  # somebody has damaged it since
            with self.lock:
                race.state, race.reason, race.elsewhere = "damaged", str(error), False
                race.version += 1
            return
        self._mark_stored(race)

    def _mark_stored(self, race: LiveRace) -> None:
        """How far the store has the race's runs: those that are finished, and rounds of those under way."""
        runs = [run for run in race.runs.values() if run.state != "done"]
        done = self._store.done([run.key for run in runs])
        failures = self._store.failures([run.key for run in runs])
        rounds = {}
        for run in runs:
            if run.key not in done or race.elsewhere:
                try:
                    rounds[run.key] = self._store.numbers(run.key)
                except InputError as error:  # this run alone is damaged
                    failures[run.key] = str(error)
        with self.lock:
            for run in runs:
                numbers = rounds.get(run.key)
                if run.key in done:
                    run.state, run.records = "done", []
                elif run.key in failures:
                    run.state, run.reason = "failed", failures[run.key]
                elif numbers and race.elsewhere:
                    run.state, run.reason = "running", ""
                run.numbers = None if numbers is None else list(numbers)
            race.version += 1

    # --- small parts -----------------------------------------------------------------------------------------------

    def _under_way(self) -> list[str]:
        with self.lock:
            return [race.id for race in self._races.values() if not race.ended and not race.elsewhere]

    def _own_runs(self, race: LiveRace) -> list[str]:
        """The runs that nothing else in the file names: no other race and no tournament."""
        others = {key for other in self._races.values() if other is not race for key in other.runs}
        others |= {key for one in self._store.tournaments() for key in one.keys}
        return [key for key in race.runs if key not in others]

    def _check_code(self, race: LiveRace) -> None:
        if not self._allow_import and (named := own_code(race.spec)):
            raise ConflictError(
                f"the race has {named[:100]!r}, user-defined code: to compute it here, end the server and start "
                "fedcell serve --allow-import, which imports it"
            )

    def _check_room(self) -> None:
        if len(self._queue) >= limits.QUEUE:
            raise ConflictError(f"{limits.QUEUE} races wait already; wait for one to end, or cancel one")

    def _move(
        self, race: LiveRace, moves: dict[str, Any], word: str, tell: Callable[[Runner], None] | None = None
    ) -> None:
        with self.lock:
            if race.state not in moves or race.elsewhere:
                raise ConflictError(f"the race is {_state(race)}; it cannot be {word}" + " here" * race.elsewhere)
            self._set(race, moves[race.state])
            if tell is not None and self._computing is not None and self._computing[0] is race:
                tell(self._computing[1])

    def _set(self, race: LiveRace, state: RaceState) -> None:
        with self.lock:
            race.state = state
            race.version += 1
        self._changed()


def _state(race: LiveRace) -> str:
    return f"{race.state} in another process" if race.elsewhere else race.state
