"""Runs in one SQLite file: specs, runs and rounds, each round's plan included, and the dashboard's races.

A run is in the file whole or not at all: it is written in one transaction. Any number of processes may read while one
writes (SQLite's write-ahead log). A commit survives the end of the process by any means; after a power cut the last few
runs may be missing, never a part of one. A store of an older version is read as it is, and brought up to date when it
is opened for writing; store_file.py has the file's side of it.
"""

import hashlib
import json
import math
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from fedcell.errors import InputError
from fedcell.runs.store_file import (
    APPLICATION_ID,
    STORE_VERSION,
    check_place,
    clear_errors,
    open_file,
    version_of,
)
from fedcell.schedule.bandwidth import Floats
from fedcell.schedule.policy import Indices, Plan
from fedcell.sim.loop import RoundRecord
from fedcell.sim.spec import Spec, parse_spec

__all__ = [
    "APPLICATION_ID",
    "BUSY_TIMEOUT_S",
    "STORE_VERSION",
    "Measured",
    "Store",
    "StoredRace",
    "StoredRun",
    "decode",
    "differing_fields",
    "document",
    "encode",
    "flat",
]

BUSY_TIMEOUT_S = 10.0

_RUNS = """
SELECT key, document, status, reason, finished_unix_s, duration_s, {source},
  (SELECT count(*) FROM rounds WHERE rounds.key = runs.key),
  (SELECT max(accuracy) FROM rounds WHERE rounds.key = runs.key),
  (SELECT accuracy FROM rounds WHERE rounds.key = runs.key ORDER BY round DESC LIMIT 1)
FROM runs JOIN specs USING (key) WHERE key GLOB ? ORDER BY key
"""

Status = Literal["done", "failed"]
Source = Literal["simulation", "flower", "testbed"]
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
        source: ``simulation``; ``flower`` or ``testbed`` where real devices trained.
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
    source: Source = "simulation"

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


@dataclass(frozen=True)
class StoredRace:
    """A race of the dashboard: what is asked for, and how far it was when that was last written down."""

    id: str
    document: dict[str, Any]
    state: str
    created_unix_s: float


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
        check_place(self.path, mode)
        with clear_errors(self.path):
            self._file = open_file(self.path, mode, busy_timeout_s)
        self._db = self._file.db

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing is pending."""
        self._file.close()

    def put(self, spec: Spec, records: Iterable[RoundRecord], duration_s: float = 0.0) -> None:
        """Store a finished run, in place of what the store had of it."""
        self.put_rows(spec, encode(records), duration_s)

    def put_rows(self, spec: Spec, rows: Sequence[Row], duration_s: float = 0.0, key: str | None = None) -> None:
        """Store a finished run that is already encoded, as workers send it.

        ``key`` is the spec's as it was when the run began: data of one's own may have changed since.
        """
        self._write(key or spec.key(), spec, "done", "", rows, duration_s)

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
            (record.round, _blob(m.devices, "<u4"), *map(_blob, (m.predicted_s, m.began_s, m.measured_s)))
            for record, m in zip(records, measured, strict=True)
        ]
        self._write(key, spec, "done", "", encode(records), duration_s, source, rows)
        return key

    def measured(self, run: Spec | str) -> list[Measured]:
        """What was measured in each round of a run, a spec or its key; empty for a simulation."""
        with clear_errors(self.path), self._transaction("BEGIN"):
            if version_of(self._db) < 2:
                return []
            query = "SELECT devices, predicted_s, began_s, measured_s FROM measured WHERE key = ? ORDER BY round"
            rows = self._db.execute(query, (_key(run),)).fetchall()
        try:
            return [Measured(_indices(row[0]), *(np.frombuffer(blob, "<f8") for blob in row[1:])) for row in rows]
        except (TypeError, ValueError):
            raise InputError(f"{self.path}: the measurements of run {_key(run)[:8]} are damaged; delete it") from None

    def fail(self, spec: Spec, reason: str, duration_s: float = 0.0, key: str | None = None) -> None:
        """Record that the run failed, and why; a finished run of the same key stays."""
        key = key or spec.key()
        if not self.has(key):
            self._write(key, spec, "failed", reason, [], duration_s)

    def has(self, run: Spec | str) -> bool:
        """Whether the run, a spec or its key, is finished."""
        with clear_errors(self.path):
            query = "SELECT 1 FROM runs WHERE key = ? AND status = 'done'"
            return self._db.execute(query, (_key(run),)).fetchone() is not None

    def get(self, run: Spec | str) -> list[RoundRecord]:
        """The rounds of a finished run, a spec or its key, bit for bit as they were stored."""
        key = _key(run)
        with clear_errors(self.path), self._transaction("BEGIN"):
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
        with clear_errors(self.path), self._transaction("BEGIN"):
            query = _RUNS.format(source="source" if version_of(self._db) >= 2 else "'simulation'")
            found = self._db.execute(query, (f"{key}*",)).fetchall()
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
        with clear_errors(self.path), self._transaction("BEGIN IMMEDIATE"):
            return sum(self._db.execute("DELETE FROM specs WHERE key = ?", (key,)).rowcount for key in keys)

    def put_race(self, race: StoredRace) -> None:
        """Write a race down, in place of what was known of it."""
        values = (race.id, json.dumps(race.document, allow_nan=False), race.state, race.created_unix_s)
        with clear_errors(self.path):
            self._db.execute("INSERT OR REPLACE INTO races VALUES (?, ?, ?, ?)", values)

    def races(self) -> list[StoredRace]:
        """All races, the newest first."""
        with clear_errors(self.path), self._transaction("BEGIN"):
            if version_of(self._db) < 2:
                return []
            found = self._db.execute("SELECT * FROM races ORDER BY created_unix_s DESC, id").fetchall()
        try:
            return [StoredRace(id, dict(json.loads(text)), state, created) for id, text, state, created in found]
        except (TypeError, ValueError):
            raise InputError(f"{self.path}: a race in it is damaged; restore the file from a copy") from None

    def delete_race(self, id: str) -> None:
        """Forget a race; its runs stay."""
        with clear_errors(self.path):
            self._db.execute("DELETE FROM races WHERE id = ?", (id,))

    def _write(
        self,
        key: str,
        spec: Spec,
        status: Status,
        reason: str,
        rows: Sequence[Row],
        duration_s: float,
        source: Source = "simulation",
        measured: Sequence[tuple[object, ...]] = (),
    ) -> None:
        text = json.dumps(document(spec), allow_nan=False)
        with clear_errors(self.path), self._transaction("BEGIN IMMEDIATE"):
            self._db.execute("DELETE FROM specs WHERE key = ?", (key,))
            self._db.execute("INSERT INTO specs VALUES (?, ?)", (key, text))
            run = (key, status, reason, time.time(), duration_s, source)
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", run)
            self._db.executemany(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", ((key, *row) for row in rows)
            )
            self._db.executemany("INSERT INTO measured VALUES (?, ?, ?, ?, ?, ?)", ((key, *row) for row in measured))

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


def flat(document: dict[str, Any]) -> dict[str, Any]:
    """A spec's document with nested fields named by a dot; an unlimited budget, which is left out of it, is None."""
    found: dict[str, Any] = {"budget_s": None}
    for name, value in document.items():
        found |= {f"{name}.{inner}": v for inner, v in value.items()} if isinstance(value, dict) else {name: value}
    return found


def differing_fields(runs: Sequence[StoredRun]) -> list[str]:
    """The fields, besides policy and seed, in which the runs are not all alike; nested ones with a dot."""
    seen: dict[str, Any] = {}
    differing: dict[str, None] = {}
    for number, run in enumerate(runs):
        fields = flat(run.document)
        for name in fields.keys() | seen.keys():
            value = fields.get(name)
            if name not in seen and number == 0:
                seen[name] = value
            elif seen.setdefault(name) != value:
                differing[name] = None
    return [name for name in seen if name in differing and name not in ("policy", "seed")]


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


def _blob(values: Indices | Floats, kind: str = "<f8") -> bytes:
    return np.asarray(values).astype(kind).tobytes()


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _key(run: Spec | str) -> str:
    return run if isinstance(run, str) else run.key()


def _stored_run(path: Path, row: tuple[Any, ...]) -> StoredRun:
    key, text, status, reason, finished_unix_s, duration_s, source, rounds, best, last = row
    try:
        fields = dict(json.loads(text))
        run = StoredRun(
            key, fields, status, reason, finished_unix_s, duration_s, rounds, best or 0.0, last or 0.0, source
        )
        _ = run.policy, run.seed
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: the spec of run {key[:8]} is damaged; restore the file from a copy") from None
    return run
