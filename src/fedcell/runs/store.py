"""Runs in one SQLite file: specs, runs and rounds, each round's plan included, and races.

A finished run is written in one transaction. A run under way is kept as far as it is, with the state from which it goes
on. Any number of processes may read while one writes (SQLite's write-ahead log). A commit survives the end of the
process by any means; after a power cut the last few may be missing, never a part of one.
"""

import hashlib
import json
import math
import secrets
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import attrgetter
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any, Literal

import numpy as np

from fedcell.errors import InputError, short_repr
from fedcell.plugins import UnknownCodeError
from fedcell.runs.records import (
    COLUMNS,
    FIRST_COLUMNS,
    DamagedRoundError,
    RoundNumbers,
    Rounds,
    RoundTable,
    decode,
    encode,
    floats_in,
    indices_in,
    round_table,
    to_blob,
)
from fedcell.runs.store_file import (
    MODELS_TABLE,
    TOURNAMENTS_TABLE,
    add_round_columns,
    check_place,
    clear_errors,
    open_file,
    round_columns,
)
from fedcell.runs.stored import (
    MAX_REASON,
    MAX_TEXT,
    Source,
    Status,
    StoredRace,
    StoredRun,
    StoredTournament,
    flat,
    is_key,
    stand_in,
    stored_race,
    stored_run,
    stored_tournament,
)
from fedcell.sim.record import ROUND_COLUMNS, RoundRecord
from fedcell.sim.spec import Spec
from fedcell.sim.state import State
from fedcell.types import Floats, Indices, Vector

BUSY_TIMEOUT_S = 10.0

# No text that is too long is read: one character more than there may be tells it.
_TOLD = f"""
SELECT key, substr(document, 1, {MAX_TEXT + 1}), status, substr(reason, 1, {MAX_REASON + 1}), finished_unix_s,
  duration_s, source,
  (SELECT count(*) FROM rounds WHERE rounds.key = runs.key),
  (SELECT max(accuracy) FROM rounds WHERE rounds.key = runs.key),
  (SELECT accuracy FROM rounds WHERE rounds.key = runs.key ORDER BY round DESC LIMIT 1),
  (SELECT loss FROM rounds WHERE rounds.key = runs.key ORDER BY round DESC LIMIT 1),
  (SELECT min(round) FROM rounds WHERE rounds.key = runs.key AND joules = 9e999)
FROM runs JOIN specs USING (key)
"""
_RUNS = f"{_TOLD} WHERE key GLOB ? OR key GLOB '*[^0-9a-f]*' OR length(key) <> 64 ORDER BY key"
_FEW = 1000
"""So many runs are read one by one; of more, all are read."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What real devices did in one round; seconds since the round began.

    Attributes:
        devices: (n,) the scheduled devices.
        predicted_s: (n,) when the plan said that each would have delivered.
        began_s: (n,) when its upload began.
        measured_s: (n,) when its upload ended, NaN if it never arrived.
    """

    devices: Indices
    predicted_s: Floats
    began_s: Floats
    measured_s: Floats

    def __post_init__(self) -> None:
        for name in ("predicted_s", "began_s", "measured_s"):
            if len(getattr(self, name)) != len(self.devices):
                raise InputError(f"{name} has {len(getattr(self, name))} entries for {len(self.devices)} devices")


@dataclass(frozen=True, eq=False)
class Unfinished:
    """A run that was stopped half-way, or is under way elsewhere.

    Attributes:
        records: its rounds so far.
        state: from which it goes on.
        duration_s: how long it took so far.
    """

    records: list[RoundRecord]
    state: State
    duration_s: float


class Store:
    """The runs of one file. Use it in a ``with`` statement; any thread may use it.

    Args:
        path: the SQLite file.
        mode: ``write`` creates the file if there is none; ``read`` never changes it.
        busy_timeout_s: how long to wait for another process that is writing.

    Example:
        >>> import tempfile, fedcell as fc
        >>> spec = fc.Spec(policy="random:k=2", rounds=1, task=fc.TaskSpec(hidden=[4]))
        >>> with tempfile.TemporaryDirectory() as directory, fc.Store(f"{directory}/results.db") as store:
        ...     store.put(spec, fc.simulate(spec))
        ...     [(run.policy, run.seed, run.rounds) for run in store.runs()]
        [('random:k=2', 0, 1)]
    """

    def __init__(
        self, path: str | Path, mode: Literal["read", "write"] = "write", *, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> None:
        self.path = Path(path)
        if mode not in ("read", "write"):
            raise InputError(f"mode is {mode!r}; give 'read' or 'write'")
        check_place(self.path, mode)
        with clear_errors(self.path):
            self._file = open_file(self.path, mode, busy_timeout_s)
        self._lock = threading.RLock()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing is pending."""
        with self._lock:
            self._file.close()

    # --- runs ------------------------------------------------------------------------------------------------------

    def put(
        self,
        spec: Spec,
        records: Iterable[RoundRecord],
        duration_s: float = 0.0,
        key: str | None = None,
        model: Vector | None = None,
    ) -> None:
        """Store a finished run, in place of what the store had of it.

        Args:
            spec: the run.
            records: all its rounds.
            duration_s: how long it took to compute.
            key: the spec's as it was when the run began, for a data file may have changed since; by default as it is.
            model: (P,) the final model, if it is to be kept.
        """
        self._write(key or spec.key(), spec, "done", "", list(records), duration_s, model=model)

    def put_unfinished(
        self, spec: Spec, records: Sequence[RoundRecord], state: State, duration_s: float, key: str
    ) -> None:
        """Store rounds of a run that is under way, and the state after the last of them.

        Args:
            spec: the run.
            records: the rounds since it was last stored.
            state: from which the run goes on.
            duration_s: how long the run has taken so far.
            key: the spec's.
        """
        with self._write_transaction() as db:
            if _is_done(db, key):  # by another process
                return
            db.execute("INSERT OR IGNORE INTO specs VALUES (?, ?)", (key, _text(spec)))
            db.execute("DELETE FROM runs WHERE key = ? AND status = 'failed'", (key,))
            run = (key, "unfinished", "", time.time(), duration_s, "simulation")
            # Not OR REPLACE, which would delete the run and its rounds first.
            db.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE "
                "SET finished_unix_s = excluded.finished_unix_s, duration_s = excluded.duration_s",
                run,
            )
            # Another process may be computing the same run: its rounds are the same.
            _put_rounds(db, key, records, "INSERT OR REPLACE")
            db.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", (key, state.round, state.to_bytes()))

    def unfinished_keys(self) -> set[str]:
        """The keys of all runs that were stopped half-way."""
        with self._use() as db:
            return {key for (key,) in db.execute("SELECT key FROM states")}

    def unfinished(self, run: Spec | str) -> Unfinished | None:
        """A run that was stopped half-way, a spec or its key; None if there is none, or it cannot go on."""
        key = _key(run)
        with self._read_transaction() as db:
            query = "SELECT round, state, duration_s FROM states JOIN runs USING (key) WHERE key = ?"
            found = db.execute(query, (key,)).fetchone()
            if found is None:
                return None
            number, blob, duration_s = found
            rows = _rows(db, key, number)
        try:
            state, records = State.from_bytes(blob), [decode(row) for row in rows]
        except (TypeError, ValueError):
            return None
        whole = [record.round for record in records] == list(range(1, number + 1)) and state.round == number
        return Unfinished(records, state, duration_s) if whole else None

    def put_measured(
        self,
        spec: Spec,
        records: Sequence[RoundRecord],
        measured: Sequence[Measured],
        *,
        source: Source,
        duration_s: float = 0.0,
    ) -> str:
        """Store a finished run of real devices, with what was measured in each round; return its key.

        No two such runs are alike, so each has a key of its own: it never answers for the simulation of the spec.
        """
        if source not in ("flower", "testbed"):
            raise InputError(f"source is {source!r}; give 'flower' or 'testbed'")
        if len(records) != len(measured):
            raise InputError(f"there are {len(records)} rounds but {len(measured)} measurements; give one for each")
        unique = f"{spec.key()} {source} {time.time_ns()} {secrets.token_hex(16)}"
        key = hashlib.sha256(unique.encode()).hexdigest()
        rows = [
            (record.round, to_blob(m.devices, "<u4"), *map(to_blob, (m.predicted_s, m.began_s, m.measured_s)))
            for record, m in zip(records, measured, strict=True)
        ]
        self._write(key, spec, "done", "", records, duration_s, source, rows)
        return key

    def measured(self, run: Spec | str) -> list[Measured]:
        """What was measured in each round of a run, a spec or its key; empty for a simulation."""
        with self._read_transaction() as db:
            query = "SELECT devices, predicted_s, began_s, measured_s FROM measured WHERE key = ? ORDER BY round"
            rows = db.execute(query, (_key(run),)).fetchall()
        try:
            return [Measured(indices_in(row[0]), *map(floats_in, row[1:])) for row in rows]
        except (TypeError, ValueError):
            raise InputError(f"{self.path}: the measurements of run {_key(run)[:8]} are damaged; delete it") from None

    def fail(self, spec: Spec, reason: str, duration_s: float = 0.0, key: str | None = None) -> None:
        """Record that the run failed, and why; a finished run of the same key stays."""
        key = key or spec.key()
        if not self.has(key):
            self._write(key, spec, "failed", reason, [], duration_s)

    def has(self, run: Spec | str) -> bool:
        """Whether the run, a spec or its key, is finished."""
        with self._use() as db:
            return _is_done(db, _key(run))

    def done(self, keys: Iterable[str], *, models: bool = False) -> set[str]:
        """Those of the keys whose runs are finished; with ``models``, those whose models are stored too."""
        with self._read_transaction() as db:
            kept = _has_table(db, "models") if models else False
            query = "SELECT 1 FROM models WHERE key = ?"
            found = {key for key, _ in _among(db, "done", keys)}
            return {key for key in found if not models or (kept and db.execute(query, (key,)).fetchone())}

    def failures(self, keys: Iterable[str]) -> dict[str, str]:
        """Those of the keys whose runs failed, each with the reason."""
        with self._read_transaction() as db:
            return dict(_among(db, "failed", keys))

    def model(self, run: Spec | str) -> Vector | None:
        """(P,) the final model of a run, a spec or its key; None if it was not asked for when the run was computed."""
        with self._read_transaction() as db:
            blob = _model(db, _key(run))
        return None if blob is None else np.frombuffer(blob, "<f4").astype(np.float32)

    def get(self, run: Spec | str, *, unfinished: bool = False) -> list[RoundRecord]:
        """The rounds of a run, a spec or its key, bit for bit as they were stored.

        Args:
            run: the spec, or its key.
            unfinished: whether a run that is not finished will do, as far as it is stored.
        """
        key = _key(run)
        with self._read_transaction() as db:
            if not unfinished:
                self._require_done(db, key)
            rows = _rows(db, key)
        try:
            return [decode(row) for row in rows]
        except Exception:  # whatever somebody has written there
            raise InputError(f"{self.path}: the rounds of run {key[:8]} are damaged; delete the run") from None

    def rounds(self, run: Spec | str) -> Rounds:
        """The rounds of a finished run, a spec or its key, as columns, without their plans."""
        key = _key(run)
        return self.rounds_of([key])[key]

    def rounds_of(self, keys: Iterable[str]) -> dict[str, Rounds]:
        """The rounds of finished runs by key, as `rounds` has them: of many runs it is faster."""
        keys = list(dict.fromkeys(keys))
        found: dict[str, Rounds] = {}
        with self._read_transaction() as db:
            done = {key for key, _ in _among(db, "done", keys)}
            for key in keys:
                if key not in done:
                    raise self._not_done(key)
            chosen = _selected(db, Rounds.COLUMNS)
            for some in _parts(keys):
                marks = ", ".join("?" * len(some))
                query = f"SELECT key, {chosen} FROM rounds WHERE key IN ({marks}) ORDER BY key, round"
                found |= self._in_columns(some, db.execute(query, some).fetchall())
        return found

    def _in_columns(self, keys: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Rounds]:
        """The rounds of these runs, in the order of their keys."""
        of, *columns = zip(*rows, strict=True) if rows else [(), *((),) * len(Rounds.COLUMNS)]
        odd = [column for column in columns if not set(map(type, column)) <= {int, float, NoneType}]
        if odd:
            key = next(row[0] for row in rows if not set(map(type, row[1:])) <= {int, float, NoneType})
            raise InputError(f"{self.path}: the rounds of run {key[:8]} are damaged; delete the run")
        values = [np.array(column, np.float64) for column in columns]
        counts = Counter(of)
        ends = dict(zip(counts, accumulate(counts.values()), strict=True))
        whole = {key: slice(ends.get(key, 0) - counts[key], ends.get(key, 0)) for key in keys}
        return {key: Rounds.of_columns([column[part] for column in values]) for key, part in whole.items()}

    def tables(self, keys: Iterable[str], rows: int) -> Iterator[tuple[list[str], RoundTable]]:
        """The rounds of runs with their plans as columns, as many runs at a time as have so many rounds together.

        Args:
            keys: of the runs, finished or not.
            rows: a table has at least so many, but for the last.

        Yields:
            For each round the key of its run, and all of them as columns.
        """
        left = deque(keys)
        while left:
            of: list[str] = []
            found: list[tuple[Any, ...]] = []
            with self._read_transaction() as db:
                while left and len(found) < rows:
                    new = _rows(db, key := left.popleft())
                    found += new
                    of += [key] * len(new)
            try:
                yield of, round_table(found)
            except DamagedRoundError as error:
                raise InputError(
                    f"{self.path}: the rounds of run {of[error.row][:8]} are damaged; delete the run"
                ) from None

    def numbers(self, run: Spec | str) -> list[RoundNumbers]:
        """The rounds that are stored of a run, finished or not, as ROUND_COLUMNS; empty if there are none."""
        with self._read_transaction() as db:
            query = f"SELECT {_selected(db, ROUND_COLUMNS)} FROM rounds WHERE key = ? ORDER BY round"
            rows = [tuple(row) for row in db.execute(query, (_key(run),))]
        if not {type(value) for row in rows for value in row} <= {int, float, type(None)}:
            raise InputError(f"{self.path}: the rounds of run {_key(run)[:8]} are damaged; delete the run")
        return rows

    def runs(self, *, key: str = "", policy: str | None = None, status: Status | None = None) -> list[StoredRun]:
        """All runs whose key begins with this, of this policy and status where given, in the order of their keys."""
        if not set(key) <= set("0123456789abcdef"):
            raise InputError(
                f"{key!r} is not the key of a run; give its first few hexadecimal digits (fedcell results list)"
            )
        with self._read_transaction() as db:
            found = db.execute(_RUNS, (f"{key}*",)).fetchall()
        runs = [run for run in map(stored_run, found) if run.key.startswith(key)]
        return [run for run in runs if policy in (None, run.policy) and status in (None, run.status)]

    def updated(self, known: Iterable[StoredRun]) -> list[StoredRun]:
        """All runs, of which these were read before: only those are read that have been stored again since, or are new.

        A run that is stored has another time at which it ended; so what was changed otherwise is not seen.
        """
        with self._read_transaction() as db:
            marks = dict(db.execute("SELECT key, finished_unix_s FROM runs").fetchall())
            kept = [run for run in known if marks.get(run.key) == run.finished_unix_s]
            for run in kept:
                del marks[run.key]
            few = marks if len(marks) <= _FEW else ()
            read = [row for key in few for row in db.execute(f"{_TOLD} WHERE key = ?", (key,))]
        if len(marks) > _FEW:
            return self.runs()
        return sorted([*kept, *map(stored_run, read)], key=attrgetter("key"))

    def find(self, prefix: str) -> StoredRun:
        """The one run whose key begins with this."""
        found = self.runs(key=prefix.lower())
        if len(found) == 1 and prefix:
            return found[0]
        if not found:
            raise InputError(f"{self.path} has no run {prefix!r}; see fedcell results list")
        some = ", ".join(run.key[: max(8, len(prefix) + 4)] for run in found[:3])
        raise InputError(f"{prefix!r} begins the keys of {len(found)} runs ({some}...); give more digits")

    def delete(self, keys: Iterable[str]) -> int:
        """Delete these runs, all or none; return how many there were."""
        with self._write_transaction() as db:
            named = {stand_in(key): key for (key,) in db.execute("SELECT key FROM specs") if not is_key(key)}
            return sum(db.execute("DELETE FROM specs WHERE key = ?", (named.get(k, k),)).rowcount for k in keys)

    # --- races -----------------------------------------------------------------------------------------------------

    def put_race(self, race: StoredRace) -> None:
        """Write a race down, in place of what was known of it."""
        text = json.dumps(race.document, allow_nan=False)
        values = (race.id, text, race.state, race.created_unix_s, race.seen_unix_s, race.owner)
        with self._write_transaction() as db:
            db.execute("INSERT OR REPLACE INTO races VALUES (?, ?, ?, ?, ?, ?)", values)

    def touch_races(self, ids: Sequence[str]) -> None:
        """Note that a process has these races under way now."""
        with self._write_transaction() as db:
            db.executemany("UPDATE races SET seen_unix_s = ? WHERE id = ?", [(time.time(), id) for id in ids])

    def races(self) -> list[StoredRace]:
        """All races, the newest first."""
        with self._read_transaction() as db:
            columns = f"id, substr(document, 1, {MAX_TEXT + 1}), state, created_unix_s, seen_unix_s, owner"
            found = db.execute(f"SELECT {columns} FROM races ORDER BY created_unix_s DESC, id").fetchall()
        return [stored_race(row) for row in found]

    def describe_race(self, id: str, name: str, note: str) -> None:
        """Give a race a name and a note; all else stays as whoever runs it has written it."""
        with self._write_transaction() as db:
            found = db.execute("SELECT document FROM races WHERE id = ?", (id,)).fetchone()
            if found is not None:
                text = json.dumps(json.loads(found[0]) | {"name": name, "note": note}, allow_nan=False)
                db.execute("UPDATE races SET document = ? WHERE id = ?", (text, id))

    def delete_race(self, id: str, runs: Iterable[str] = ()) -> None:
        """Forget a race, and delete these runs with it; its other runs stay."""
        with self._write_transaction() as db:
            db.execute("DELETE FROM races WHERE id = ?", (id,))
            db.executemany("DELETE FROM specs WHERE key = ?", [(key,) for key in runs])

    def put_tournament(self, one: StoredTournament) -> None:
        """Write a tournament down, in place of what was known of it."""
        text, keys = json.dumps(one.document, allow_nan=False), b"".join(map(bytes.fromhex, one.keys))
        with self._write_transaction() as db:
            db.execute(TOURNAMENTS_TABLE)
            db.execute("INSERT OR REPLACE INTO tournaments VALUES (?, ?, ?, ?)", (one.id, text, one.asked_unix_s, keys))

    def tournaments(self) -> list[StoredTournament]:
        """All tournaments, the newest first."""
        with self._read_transaction() as db:
            if not _has_table(db, "tournaments"):
                return []
            columns = f"id, substr(document, 1, {MAX_TEXT + 1}), asked_unix_s, keys"
            found = db.execute(f"SELECT {columns} FROM tournaments ORDER BY asked_unix_s DESC, id").fetchall()
        return [stored_tournament(row) for row in found]

    def version(self) -> int:
        """A number that changes when another connection has written to the file."""
        with self._use() as db:
            return int(db.execute("PRAGMA data_version").fetchone()[0])

    # --- below -----------------------------------------------------------------------------------------------------

    def _write(
        self,
        key: str,
        spec: Spec,
        status: Status,
        reason: str,
        records: Sequence[RoundRecord],
        duration_s: float,
        source: Source = "simulation",
        measured: Sequence[tuple[object, ...]] = (),
        model: Vector | None = None,
    ) -> None:
        with self._write_transaction() as db:
            # The same run has the same model: one that is there stays if another process had not asked for it.
            blob = _model(db, key) if model is None else model.astype("<f4").tobytes()
            db.execute("DELETE FROM specs WHERE key = ?", (key,))
            db.execute("INSERT INTO specs VALUES (?, ?)", (key, _text(spec)))
            run = (key, status, reason, time.time(), duration_s, source)
            db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", run)
            _put_rounds(db, key, records, "INSERT")
            db.executemany("INSERT INTO measured VALUES (?, ?, ?, ?, ?, ?)", ((key, *row) for row in measured))
            if blob is not None and status == "done":
                db.execute(MODELS_TABLE)
                db.execute("INSERT INTO models VALUES (?, ?)", (key, blob))

    def _require_done(self, db: sqlite3.Connection, key: str) -> None:
        if not _is_done(db, key):
            raise self._not_done(key)

    def _not_done(self, key: str) -> InputError:
        return InputError(f"{self.path} has no finished run {key[:8]}; run it first, or see fedcell results list")

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time; SQLite's errors as one sentence."""
        with self._lock, clear_errors(self.path):
            yield self._file.db

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._use() as db:
            try:
                db.execute(begin)
                yield db
                db.execute("COMMIT")
            except BaseException:  # Ctrl-C too: whole or not at all
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _read_transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._transaction("BEGIN")

    def _write_transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._transaction("BEGIN IMMEDIATE")


def spec_document(spec: Spec) -> dict[str, Any]:
    """One run as a document that JSON can hold and parse_stored reads back: no infinite budget, which rounds imply."""
    fields = spec.model_dump(exclude={"grid"})
    if fields["budget_s"] == math.inf:
        del fields["budget_s"]
    return fields


@contextmanager
def opened(store: "Store | str | Path | None") -> Iterator["Store | None"]:
    """A store for the functions that take one, or the path of its file, which is then open while they run.

    Args:
        store: a Store, which stays open, a path, or None.
    """
    if isinstance(store, str | Path):
        with Store(store) as ours:
            yield ours
    elif store is None or isinstance(store, Store):
        yield store
    else:
        raise InputError(f"store is {short_repr(store)}; give a Store, or the path of a results file")


def differing_fields(documents: Iterable[dict[str, Any]]) -> list[str]:
    """The fields, besides policy and seed, in which the runs that have them differ; nested ones with a dot."""
    seen: dict[str, Any] = {}
    differing: set[str] = set()
    for document in documents:
        for name, value in flat(document).items():
            if seen.setdefault(name, value) != value:
                differing.add(name)
    return [name for name in seen if name in differing and name not in ("policy", "seed")]


def differing_in(runs: Iterable[StoredRun]) -> list[str]:
    """The fields, besides policy and seed, in which these runs differ; those that are damaged have none."""
    return differing_fields({id(run.fields): run.fields for run in runs if run.status != "damaged"}.values())


def stored_document(spec: Spec) -> dict[str, Any]:
    """The document of a StoredRun: of the fields that the run's key leaves out, nothing is told."""
    unused = spec.unused
    fields = {name: value for name, value in spec_document(spec).items() if name not in unused}
    with suppress(UnknownCodeError):  # values that it reads may have changed since it got its key
        if code := spec.code_sha256():
            fields["code"] = code[:8]
    return fields


def _text(spec: Spec) -> str:
    return json.dumps(stored_document(spec), allow_nan=False)


def _is_done(db: sqlite3.Connection, key: str) -> bool:
    return db.execute("SELECT 1 FROM runs WHERE key = ? AND status = 'done'", (key,)).fetchone() is not None


def _among(db: sqlite3.Connection, status: Status, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those of the runs that have this status, with their reasons."""
    for some in _parts(keys):
        marks = ", ".join("?" * len(some))
        yield from db.execute(f"SELECT key, reason FROM runs WHERE key IN ({marks}) AND status = '{status}'", some)


def _parts(keys: Iterable[str]) -> Iterator[list[str]]:
    """As many at a time as a query may name in every version of SQLite."""
    left = iter(keys)
    while some := list(islice(left, 900)):
        yield some


def _has_table(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def _model(db: sqlite3.Connection, key: str) -> bytes | None:
    if not _has_table(db, "models"):
        return None
    found = db.execute("SELECT model FROM models WHERE key = ?", (key,)).fetchone()
    return None if found is None else bytes(found[0])


def _put_rounds(db: sqlite3.Connection, key: str, records: Iterable[RoundRecord], insert: str) -> None:
    """Write rounds, with the columns in which they have something; a file gets those that it lacks."""
    rows = [encode(record) for record in records]
    has = {*FIRST_COLUMNS, *(name for name, _ in round_columns(db))}
    names = [one.name for one in COLUMNS]
    new = [name for i, name in enumerate(names) if name not in has and any(map(_is_known, (row[i] for row in rows)))]
    add_round_columns(db, new)
    taken = [i for i, name in enumerate(names) if name in has or name in new]
    listed, marks = ", ".join(names[i] for i in taken), ", ".join("?" * (1 + len(taken)))
    db.executemany(
        f"{insert} INTO rounds (key, {listed}) VALUES ({marks})", ((key, *(row[i] for i in taken)) for row in rows)
    )


def _is_known(value: object) -> bool:
    return value is not None and value == value  # not NaN  # noqa: PLR0124


def _selected(db: sqlite3.Connection, names: Iterable[str]) -> str:
    """These columns of rounds, for SELECT; NULL for those that the file lacks."""
    has = {*FIRST_COLUMNS, *(name for name, _ in round_columns(db))}
    return ", ".join(name if name in has else f"NULL AS {name}" for name in names)


def _rows(db: sqlite3.Connection, key: str, most: int | None = None) -> list[tuple[Any, ...]]:
    chosen = _selected(db, (one.name for one in COLUMNS))
    query = f"SELECT {chosen} FROM rounds WHERE key = ? AND round <= ? ORDER BY round"
    return db.execute(query, (key, 2**62 if most is None else most)).fetchall()


def _key(run: Spec | str) -> str:
    return run if isinstance(run, str) else run.key()
