"""The file of a store: how it is made, known, checked and opened.

A file that is no store of ours is refused and left as it is.

SQLite guards a file by POSIX locks, and closing *any* descriptor of a file drops all locks that the process has on it
(sqlite.org/howtocorrupt.html, section 2.2): another process then believes itself alone and deletes the live write-ahead
log. So all connections are opened and closed here, and a file is only looked at beside SQLite while this process has no
connection to it.
"""

import os
import re
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from fedcell.errors import InputError, printable
from fedcell.runs.records import FIRST_COLUMNS
from fedcell.sim.record import columns

APPLICATION_ID = 0x66436C31  # "fCl1", in the header of the file
STORE_VERSION = 4
MAX_CHECKED_BYTES = 2**30  # SQLite checks about 1 GB/s; a larger store is checked as it is read

# Numbers of a round stand in columns without a type, because a REAL column would turn -0.0 into 0.0. NaN becomes NULL.
SCHEMA = """
CREATE TABLE specs (key TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (
  key TEXT PRIMARY KEY REFERENCES specs ON DELETE CASCADE,
  status TEXT NOT NULL CHECK (status IN ('done', 'failed', 'unfinished')),
  reason TEXT NOT NULL,
  finished_unix_s REAL NOT NULL,
  duration_s REAL NOT NULL,
  source TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE rounds (
  key TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  round INTEGER NOT NULL, clock_s, round_s, planned_s, devices INTEGER NOT NULL, delivered INTEGER NOT NULL,
  accuracy, loss, joules,
  plan_devices BLOB NOT NULL, plan_shares BLOB NOT NULL, plan_delivered BLOB NOT NULL,
  plan_joules BLOB NOT NULL, plan_starts_s BLOB NOT NULL,
  PRIMARY KEY (key, round)
) WITHOUT ROWID;
CREATE TABLE states (
  key TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE, round INTEGER NOT NULL, state BLOB NOT NULL
);
CREATE TABLE measured (
  key TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
  round INTEGER NOT NULL,
  devices BLOB NOT NULL, predicted_s BLOB NOT NULL, began_s BLOB NOT NULL, measured_s BLOB NOT NULL,
  PRIMARY KEY (key, round)
) WITHOUT ROWID;
CREATE TABLE races (
  id TEXT PRIMARY KEY, document TEXT NOT NULL, state TEXT NOT NULL, created_unix_s REAL NOT NULL,
  seen_unix_s REAL NOT NULL, owner TEXT NOT NULL
) WITHOUT ROWID;
"""
# Made when the first model is stored: most files have none.
MODELS_TABLE = """
CREATE TABLE IF NOT EXISTS models (key TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE, model BLOB NOT NULL)
"""
# Likewise, by the first tournament. Its keys are 32 bytes each.
TOURNAMENTS_TABLE = """
CREATE TABLE IF NOT EXISTS tournaments (
  id TEXT PRIMARY KEY, document TEXT NOT NULL, asked_unix_s REAL NOT NULL, keys BLOB NOT NULL
) WITHOUT ROWID
"""
# Made when a file is opened for writing: what a list of runs tells of their rounds, without their plans.
ROUNDS_INDEX = """
CREATE INDEX IF NOT EXISTS rounds_told ON rounds (key, round, accuracy, loss, joules)
"""
MAX_ADDED = 100
_COLUMN = re.compile("[a-z][a-z0-9_]{0,60}")
_STEPS = 1_000_000
"""SQLite's own steps, some milliseconds, after which it lets Ctrl-C in."""


def _made_of(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """What a file has: the type, the name and the definition of each; but for what SQLite makes for itself."""
    found = db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {
        (kind, name, " ".join(str(sql).split()))
        for kind, name, sql in found
        if not (str(name).startswith("sqlite_autoindex_") and sql is None) and not str(name).startswith("sqlite_stat")
    }


def round_columns(db: sqlite3.Connection) -> tuple[tuple[str, str], ...]:
    """Name and type of the columns that a file has for rounds, beside those that every file has."""
    found = db.execute("SELECT name, type FROM pragma_table_info('rounds')").fetchall()
    return tuple((str(name), str(kind)) for name, kind in found if name not in ("key", *FIRST_COLUMNS))


def add_round_columns(db: sqlite3.Connection, names: Iterable[str]) -> None:
    """Add columns of rounds to a file; the rounds that it has are unknown there."""
    kinds = {one.name: "BLOB" if one.per_device else "" for one in columns()}
    for name in names:
        db.execute(f"ALTER TABLE rounds ADD COLUMN {name} {kinds[name]}")


@cache
def _ours(added: tuple[tuple[str, str], ...]) -> tuple[set[tuple[str, str, str]], set[tuple[str, str, str]]]:
    """What a store must have, and all that it may have; with these columns of rounds, which a later version may add."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        for name, kind in added:
            if _COLUMN.fullmatch(name) and kind in ("", "BLOB"):
                db.execute(f"ALTER TABLE rounds ADD COLUMN {name} {kind}")
        needed = _made_of(db)
        db.executescript(f"{MODELS_TABLE}; {TOURNAMENTS_TABLE}; {ROUNDS_INDEX};")
        return needed, _made_of(db)


def _schema_fault(db: sqlite3.Connection) -> str:
    """What is wrong with the file's tables: a trigger would change what is written, a view could be anything."""
    db.execute("BEGIN")  # one look at the file: another process may be adding columns
    try:
        found, (needed, allowed) = _made_of(db), _ours(round_columns(db)[:MAX_ADDED])
    finally:
        db.execute("ROLLBACK")
    names = {name for kind, name, _ in found if kind == "table"}
    if not {name for _, name, _ in needed} <= names:
        return "it lacks a table"
    for kind, name, _ in sorted(found - allowed):
        return f"it has the {kind} '{printable(name)[:60]}', which no fedcell makes"
    return ""


def check_place(path: Path, mode: str) -> None:
    """Refuse what cannot be opened as asked, before SQLite leaves anything there."""
    try:
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path):
            raise InputError(f"{path} is a directory; give a results file, such as results.db")
        if not os.path.isdir(folder):
            raise InputError(f"cannot open {path}: {folder} is not a directory; create it first")
        if mode == "write" and not _writable(folder):
            raise InputError(f"cannot write {path}: the directory {folder} is read-only; give another place")
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"{path} is not a regular file; give a results file, such as results.db")
        for side in (f"{path}{ending}" for ending in ("-journal", "-wal", "-shm")):  # SQLite would wait for a pipe
            if os.path.lexists(side) and not stat.S_ISREG(os.lstat(side).st_mode):
                raise InputError(f"{side} is not a regular file, and SQLite would use it with {path}; move it away")
        if not _allowed(path, os.R_OK if mode == "read" else os.R_OK | os.W_OK):
            raise InputError(f"cannot open {path}: Permission denied; give another place")
    except FileNotFoundError:
        if mode == "read" or os.path.islink(path):
            raise InputError(
                f"there is no results file {path}; fedcell race --store or fedcell sweep creates one"
            ) from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot open {str(path)[:200]}: {reason}; give another place") from None


def _writable(path: str | Path) -> bool:
    return _allowed(path, os.W_OK)


def _allowed(path: str | Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def create(path: Path) -> None:
    """Make an empty store elsewhere and then give it its name: nobody ever sees half a store there."""
    scratch = path.with_name(f".fedcell-{secrets.token_hex(8)}")
    try:
        with closing(sqlite3.connect(scratch, isolation_level=None)) as db:
            marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {STORE_VERSION};"
            db.executescript(f"BEGIN; {marks} {SCHEMA} COMMIT; PRAGMA journal_mode = WAL;")
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


def _refuse_leftovers(path: Path) -> None:
    """Refuse the side files of a store that was deleted or moved away: SQLite would take them for the new file's.

    They may be all that is left of some runs, or in use, so they are not ours to delete.
    """
    left = [name for name in (f"{path}-wal", f"{path}-shm") if os.path.lexists(name)]
    if left and not path.exists():  # asked again: another process may have made the store meanwhile
        raise InputError(
            f"there is no {path}, but {' and '.join(left)} of a deleted or moved results file, whose runs would get "
            f"into a new one; put the file back, or end what still uses it and delete {left[0]} too"
        )


def check_file(path: Path) -> None:
    """Refuse a file that is no sound store of this version. Read only: not even SQLite's side files appear."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give a results file, such as results.db") from None
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise InputError(f"{path} is not a fedcell results file; give another file, it was left as it is")
    version, application = (int.from_bytes(header[at : at + 4], "big") for at in (60, 68))
    if application != APPLICATION_ID or version < 1:
        raise InputError(
            f"{path} is an SQLite database but not a fedcell results file; give another file, it was left as it is"
        )
    if version != STORE_VERSION:
        raise InputError(
            f"{path} is a results file of version {version}, and this fedcell reads version {STORE_VERSION}; "
            "use the fedcell that wrote it, or another file; it was left as it is"
        )
    before = path.stat()
    if _has_log(path) or not (fault := _fault(path, before.st_size)):
        return
    after = path.stat()
    # Looking without a lock, so what another process has just written may look like damage: then SQLite shall say.
    if not _has_log(path) and (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):
        raise InputError(f"{path} is a damaged results file ({fault}); restore it from a copy, it was left as it is")


def _fault(path: Path, size_bytes: int) -> str:
    """What is wrong with the file's structure, if anything."""
    try:
        with closing(sqlite3.connect(_uri(path, "immutable=1"), uri=True)) as db:
            if fault := _schema_fault(db):
                return fault
            if size_bytes > MAX_CHECKED_BYTES:
                return ""
            found = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
            return "" if found == "ok" else " ".join(found.split())
    except sqlite3.DatabaseError as error:
        return str(error)


def _has_log(path: Path) -> bool:
    """Whether a write-ahead log holds something: the file is in use, or its last writer was killed."""
    try:
        return os.path.getsize(f"{os.path.realpath(path)}-wal") > 0
    except OSError:
        return False


def _uri(path: Path, options: str) -> str:
    return f"file:{quote(os.path.abspath(path))}?{options}"


_owning = threading.RLock()  # nobody looks at a file while somebody else opens it
_connections: dict[tuple[int, int], int] = {}  # by (device, inode): how many this process has open


@dataclass(frozen=True, eq=False)
class OpenFile:
    """A connection to a store's file, and which file that is."""

    db: sqlite3.Connection
    identity: tuple[int, int]

    def close(self) -> None:
        """Close the connection."""
        with _owning:
            self.db.close()
            left = _connections.get(self.identity, 0) - 1
            if left > 0:
                _connections[self.identity] = left
            else:
                _connections.pop(self.identity, None)


def open_file(path: Path, mode: str, busy_timeout_s: float) -> OpenFile:
    """Check the file, unless this process has it open already, and connect to it."""
    with _owning:
        if not path.exists():
            _refuse_leftovers(path)
            create(path)
        found = path.stat()
        identity = (found.st_dev, found.st_ino)
        if identity not in _connections:
            check_file(path)
        db = _connect(path, mode, busy_timeout_s)
        _connections[identity] = _connections.get(identity, 0) + 1
    return OpenFile(db, identity)


def _connect(path: Path, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a checked file. A connection serves any thread, one at a time: the store sees to that."""
    options = "mode=rw"
    if not (_writable(path) and _writable(path.absolute().parent)):
        # Reading needs SQLite's side files, which cannot be made here; without a log the file alone is all there is.
        options = "mode=ro" if _has_log(path) else "immutable=1"
    db = sqlite3.connect(
        _uri(path, options), uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )
    try:
        for pragma in ("foreign_keys = ON", "trusted_schema = OFF", "cell_size_check = ON"):
            db.execute(f"PRAGMA {pragma}")
        db.text_factory = _text
        db.set_progress_handler(_let_interrupts_in, _STEPS)
        if fault := _schema_fault(db):  # asked again: what is in the log was not looked at before
            raise InputError(
                f"{path} is a damaged results file ({fault}); restore it from a copy, it was left as it is"
            )
        if mode == "read":  # not mode=ro, which would leave the side files behind
            db.execute("PRAGMA query_only = ON")
            db.execute("SELECT count(*) FROM sqlite_master")
        else:
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("BEGIN IMMEDIATE")  # a lock or a read-only place shows now, not after the first run
            db.execute(ROUNDS_INDEX)
            db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def _text(content: bytes) -> str:
    """Text that is not UTF-8 is one damaged value, not the end of reading all others."""
    return content.decode("utf-8", "surrogateescape")


def _let_interrupts_in() -> bool:
    """Called by SQLite in the midst of its work, in the thread that asked for it; True ends the work."""
    try:
        time.sleep(0)  # here Python runs the handlers of signals
    except KeyboardInterrupt:
        return True
    return False


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from None
        advice = {
            sqlite3.SQLITE_BUSY: "is locked by another process; wait for it or end it, and try again",
            sqlite3.SQLITE_LOCKED: "is locked by another process; wait for it or end it, and try again",
            sqlite3.SQLITE_READONLY: "cannot be written: it or its directory is read-only; give another place",
            sqlite3.SQLITE_CANTOPEN: "cannot be opened, nor its -wal and -shm files; check the directory's permissions",
            sqlite3.SQLITE_FULL: "cannot be written: the disk is full; free some space and start again",
            sqlite3.SQLITE_CORRUPT: "is a damaged results file; restore it from a copy",
            sqlite3.SQLITE_NOTADB: "is not a fedcell results file; give another file",
        }.get(code, f"cannot be used ({error})")
        raise InputError(f"{path} {advice}") from error
