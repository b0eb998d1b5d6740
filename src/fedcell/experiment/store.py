"""Runs in one SQLite file: specs, runs and rounds, each round's plan included.

A run is in the file whole or not at all: it is written in one transaction. Any number of processes may read while one
writes (SQLite's write-ahead log). A commit survives the end of the process by any means; after a power cut the last few
runs may be missing, never a part of one. A file that is no store of ours is refused and left as it is.
"""

import json
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal
from urllib.parse import quote

import numpy as np

from fedcell.errors import InputError
from fedcell.schedule.policy import Plan
from fedcell.simulation import RoundRecord
from fedcell.spec import Spec, parse_spec

APPLICATION_ID = 0x66436C31  # "fCl1", in the header of the file
STORE_VERSION = 1
MAX_CHECKED_BYTES = 2**30  # SQLite checks about 1 GB/s; a larger store is checked as it is read
BUSY_TIMEOUT_S = 10.0

# Numbers of a round stand in columns without a type, because a REAL column would turn -0.0 into 0.0. NaN becomes NULL.
SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {STORE_VERSION};
CREATE TABLE specs (key TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (
  key TEXT PRIMARY KEY REFERENCES specs ON DELETE CASCADE,
  status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
  reason TEXT NOT NULL,
  finished_unix_s REAL NOT NULL,
  duration_s REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE rounds (
  key TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  round INTEGER NOT NULL,
  clock_s, round_s, planned_s, accuracy, loss,
  devices BLOB NOT NULL, shares BLOB NOT NULL, delivered BLOB NOT NULL,
  PRIMARY KEY (key, round)
) WITHOUT ROWID;
"""
_RUNS = """
SELECT key, document, status, reason, finished_unix_s, duration_s,
  (SELECT count(*) FROM rounds WHERE rounds.key = runs.key),
  (SELECT max(accuracy) FROM rounds WHERE rounds.key = runs.key),
  (SELECT accuracy FROM rounds WHERE rounds.key = runs.key ORDER BY round DESC LIMIT 1)
FROM runs JOIN specs USING (key) WHERE key GLOB ? ORDER BY key
"""

Status = Literal["done", "failed"]
Row = tuple[int, float, float, float, float, float, bytes, bytes, bytes]
"""A round as the file holds it: the columns of ``rounds`` after the key."""


@dataclass(frozen=True)
class StoredRun:
    """What the store says of one run, its rounds left aside.

    Attributes:
        key: Spec.key().
        document: the spec as a plain document.
        status: ``done`` or ``failed``.
        reason: why it failed; empty if it is done.
        finished_unix_s: when it ended.
        duration_s: how long it took to compute.
        rounds: how many it has.
        best_accuracy: 0 if it has no round.
        last_accuracy: 0 if it has no round.
    """

    key: str
    document: dict[str, Any]
    status: Status
    reason: str
    finished_unix_s: float
    duration_s: float
    rounds: int
    best_accuracy: float
    last_accuracy: float

    @property
    def policy(self) -> str:
        """The line that names its policy."""
        return str(self.document["policy"])

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.document["seed"])

    @property
    def spec(self) -> Spec:
        """The run as a Spec; imports the module of a policy of one's own."""
        return parse_spec(self.document, f"run {self.key[:8]}")


class Store:
    """The runs of one file. Use it in a ``with`` statement.

    Args:
        path: the SQLite file.
        mode: ``write`` makes the file if there is none; ``read`` never changes it.
        busy_timeout_s: how long to wait for another process that is writing.
    """

    def __init__(
        self, path: str | Path, mode: Literal["read", "write"] = "write", *, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> None:
        self.path = Path(path)
        if mode not in ("read", "write"):
            raise InputError(f"mode is {mode!r}; give 'read' or 'write'")
        _check_place(self.path, mode)
        with _clear_errors(self.path):
            if not self.path.exists():
                _create(self.path)
            _check_file(self.path)
            self._db = _connect(self.path, mode, busy_timeout_s)

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing is pending."""
        self._db.close()

    def put(self, spec: Spec, records: Iterable[RoundRecord], duration_s: float = 0.0) -> None:
        """Store a finished run, in place of what the store had of it."""
        self.put_rows(spec, encode(records), duration_s)

    def put_rows(self, spec: Spec, rows: Sequence[Row], duration_s: float = 0.0, key: str | None = None) -> None:
        """Store a finished run that is already encoded, as workers send it.

        ``key`` is the spec's as it was when the run began: data of one's own may have changed since.
        """
        self._write(key or spec.key(), spec, "done", "", rows, duration_s)

    def fail(self, spec: Spec, reason: str, duration_s: float = 0.0, key: str | None = None) -> None:
        """Record that the run failed, and why; a finished run of the same key stays."""
        key = key or spec.key()
        if not self.has(key):
            self._write(key, spec, "failed", reason, [], duration_s)

    def has(self, run: Spec | str) -> bool:
        """Whether the run, a spec or its key, is finished."""
        with _clear_errors(self.path):
            query = "SELECT 1 FROM runs WHERE key = ? AND status = 'done'"
            return self._db.execute(query, (_key(run),)).fetchone() is not None

    def get(self, run: Spec | str) -> list[RoundRecord]:
        """The rounds of a finished run, a spec or its key, bit for bit as they were stored."""
        key = _key(run)
        with _clear_errors(self.path), self._transaction("BEGIN"):
            if not self.has(key):
                raise InputError(
                    f"{self.path} has no finished run {key[:8]}; run it first, or see fedcell results list"
                )
            columns = "round, clock_s, round_s, planned_s, accuracy, loss, devices, shares, delivered"
            rows = self._db.execute(f"SELECT {columns} FROM rounds WHERE key = ? ORDER BY round", (key,)).fetchall()
        try:
            return decode(rows)
        except (TypeError, ValueError):
            raise InputError(f"{self.path}: the rounds of run {key[:8]} are damaged; delete the run") from None

    def runs(self, *, key: str = "", policy: str | None = None, status: Status | None = None) -> list[StoredRun]:
        """All runs whose key begins so, of this policy and status where given, in the order of their keys."""
        if not set(key) <= set("0123456789abcdef"):
            raise InputError(
                f"{key!r} is no key of a run; give its first few hexadecimal digits (fedcell results list)"
            )
        with _clear_errors(self.path):
            found = self._db.execute(_RUNS, (f"{key}*",)).fetchall()
        runs = [_stored_run(self.path, row) for row in found]
        return [run for run in runs if policy in (None, run.policy) and status in (None, run.status)]

    def find(self, prefix: str) -> StoredRun:
        """The one run whose key begins so."""
        found = self.runs(key=prefix.lower())
        if len(found) == 1 and prefix:
            return found[0]
        if not found:
            raise InputError(f"{self.path} has no run {prefix!r}; see fedcell results list")
        some = ", ".join(run.key[: max(8, len(prefix) + 4)] for run in found[:3])
        raise InputError(f"{prefix!r} begins {len(found)} runs' keys ({some}...); give more digits")

    def delete(self, keys: Iterable[str]) -> int:
        """Delete these runs, all or none; return how many there were."""
        with _clear_errors(self.path), self._transaction("BEGIN IMMEDIATE"):
            return sum(self._db.execute("DELETE FROM specs WHERE key = ?", (key,)).rowcount for key in keys)

    def _write(self, key: str, spec: Spec, status: Status, reason: str, rows: Sequence[Row], duration_s: float) -> None:
        text = json.dumps(document(spec), allow_nan=False)
        with _clear_errors(self.path), self._transaction("BEGIN IMMEDIATE"):
            self._db.execute("DELETE FROM specs WHERE key = ?", (key,))
            self._db.execute("INSERT INTO specs VALUES (?, ?)", (key, text))
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", (key, status, reason, time.time(), duration_s))
            self._db.executemany(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", ((key, *row) for row in rows)
            )

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._db.execute(begin)
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:  # Ctrl-C too: whole or not at all
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def document(spec: Spec) -> dict[str, Any]:
    """One run as a document that JSON can hold and parse_spec reads back: no infinite budget, which rounds imply."""
    fields = spec.model_dump(exclude={"grid"})
    if fields["budget_s"] == math.inf:
        del fields["budget_s"]
    return fields


def encode(records: Iterable[RoundRecord]) -> list[Row]:
    """Rounds as the file holds them: indices as 4-byte, shares as 8-byte little-endian numbers."""
    return [
        (
            record.round,
            float(record.clock_s),
            float(record.round_s),
            float(record.plan.round_s),
            float(record.accuracy),
            float(record.loss),
            record.plan.devices.astype("<u4").tobytes(),
            record.plan.shares.astype("<f8").tobytes(),
            record.delivered.astype("<u4").tobytes(),
        )
        for record in records
    ]


def decode(rows: Iterable[Row]) -> list[RoundRecord]:
    """The rounds again."""
    return [
        RoundRecord(
            round=number,
            clock_s=_number(clock_s),
            round_s=_number(round_s),
            plan=Plan(_indices(devices), np.frombuffer(shares, "<f8").astype(np.float64), _number(planned_s)),
            delivered=_indices(delivered),
            accuracy=_number(accuracy),
            loss=_number(loss),
        )
        for number, clock_s, round_s, planned_s, accuracy, loss, devices, shares, delivered in rows
    ]


def _indices(blob: bytes) -> Any:
    return np.frombuffer(blob, "<u4").astype(np.int64)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _key(run: Spec | str) -> str:
    return run if isinstance(run, str) else run.key()


def _stored_run(path: Path, row: tuple[Any, ...]) -> StoredRun:
    key, text, status, reason, finished_unix_s, duration_s, rounds, best, last = row
    try:
        fields = dict(json.loads(text))
        run = StoredRun(key, fields, status, reason, finished_unix_s, duration_s, rounds, best or 0.0, last or 0.0)
        _ = run.policy, run.seed
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: the spec of run {key[:8]} is damaged; restore the file from a copy") from None
    return run


def _check_place(path: Path, mode: str) -> None:
    """Refuse what cannot be opened as asked, before SQLite leaves anything there."""
    try:
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path):
            raise InputError(f"{path} is a folder; give the file of a store, such as results.db")
        if not os.path.isdir(folder):
            raise InputError(f"cannot open {path}: {folder} is no folder; create it first")
        if mode == "write" and not _writable(folder):
            raise InputError(f"cannot write {path}: the folder {folder} is read-only; give another place")
        with open(path, "rb" if mode == "read" else "r+b"):
            return
    except FileNotFoundError:
        if mode == "read" or os.path.islink(path):
            raise InputError(f"there is no store {path}; fedcell sweep makes one") from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot open {str(path)[:200]}: {reason}; give another place") from None


def _writable(path: str | Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _create(path: Path) -> None:
    """Make an empty store elsewhere and then give it its name: nobody ever sees half a store there."""
    scratch = path.with_name(f".fedcell-{secrets.token_hex(8)}")
    try:
        with closing(sqlite3.connect(scratch, isolation_level=None)) as db:
            db.executescript(f"BEGIN; {SCHEMA} COMMIT; PRAGMA journal_mode = WAL;")
        try:
            os.link(scratch, path)
        except FileExistsError:
            pass  # another process was quicker, which is as good
        except OSError:  # a file system without links
            os.rename(scratch, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; give another place") from None
    finally:
        for leftover in (scratch, Path(f"{scratch}-wal"), Path(f"{scratch}-shm"), Path(f"{scratch}-journal")):
            leftover.unlink(missing_ok=True)


def _check_file(path: Path) -> None:
    """Refuse a file that is no sound store of this version. Read only: not even SQLite's side files appear."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise InputError(f"{path} is no fedcell store; give another file, it was left as it is")
    version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    if application != APPLICATION_ID or version < 1:
        raise InputError(f"{path} is an SQLite database but no fedcell store; give another file, it was left as it is")
    if version > STORE_VERSION:
        raise InputError(
            f"{path} is a store of version {version}, and this fedcell knows version {STORE_VERSION}; "
            "update fedcell, the file was left as it is"
        )
    before = path.stat()
    if _has_log(path) or not (fault := _fault(path, before.st_size)):
        return
    after = path.stat()
    # Looking without a lock, so what another process has just written may look like damage: then SQLite shall say.
    if not _has_log(path) and (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):
        raise InputError(f"{path} is a damaged fedcell store ({fault}); restore it from a copy, it was left as it is")


def _fault(path: Path, size_bytes: int) -> str:
    """What is wrong with the file's structure, if anything."""
    try:
        with closing(sqlite3.connect(_uri(path, "immutable=1"), uri=True)) as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            if not {"specs", "runs", "rounds"} <= tables:
                return "it lacks a table"
            if size_bytes > MAX_CHECKED_BYTES:
                return ""
            found = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
            return "" if found == "ok" else " ".join(found.split())
    except sqlite3.DatabaseError as error:
        return str(error)


def _has_log(path: Path) -> bool:
    """Whether a write-ahead log holds something: the file is in use, or its last writer was killed."""
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except OSError:
        return False


def _uri(path: Path, options: str) -> str:
    return f"file:{quote(os.path.abspath(path))}?{options}"


def _connect(path: Path, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    options = "mode=rw"
    if not (_writable(path) and _writable(path.absolute().parent)):
        # Reading needs SQLite's side files, which cannot be made here; without a log the file alone is all there is.
        options = "mode=ro" if _has_log(path) else "immutable=1"
    db = sqlite3.connect(_uri(path, options), uri=True, timeout=busy_timeout_s, isolation_level=None)
    try:
        db.execute("PRAGMA foreign_keys = ON")
        if mode == "read":  # not mode=ro, which would leave the side files behind
            db.execute("PRAGMA query_only = ON")
            db.execute("SELECT count(*) FROM sqlite_master")
        else:
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("BEGIN IMMEDIATE")  # a lock or a read-only place shows now, not after the first run
            db.execute("ROLLBACK")
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        advice = {
            sqlite3.SQLITE_BUSY: "is locked by another process; wait for it or end it, and try again",
            sqlite3.SQLITE_LOCKED: "is locked by another process; wait for it or end it, and try again",
            sqlite3.SQLITE_READONLY: "cannot be written: it or its folder is read-only; give another place",
            sqlite3.SQLITE_CANTOPEN: "cannot be opened, nor its -wal and -shm files; check the folder's permissions",
            sqlite3.SQLITE_FULL: "cannot be written: the disc is full; make room and start again",
            sqlite3.SQLITE_CORRUPT: "is a damaged fedcell store; restore it from a copy",
            sqlite3.SQLITE_NOTADB: "is no fedcell store; give another file",
        }.get(code, f"cannot be used ({error})")
        raise InputError(f"{path} {advice}") from error
