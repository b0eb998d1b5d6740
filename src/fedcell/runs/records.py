"""Rounds as rows of a store, as columns for statistics, and many runs' in one file; columns are sim/record.py's."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.files import read_npz
from fedcell.schedule.plan import Plan
from fedcell.sim.record import ROUND_COLUMNS, Column, RoundRecord, columns
from fedcell.types import Floats, Indices

COLUMNS = columns()
LISTS = tuple(one for one in COLUMNS if one.per_device)
PLAN_COLUMNS = tuple(one.name for one in LISTS)
FIRST_COLUMNS = frozenset(
    (
        *("round", "clock_s", "round_s", "planned_s", "devices", "delivered", "accuracy", "loss", "joules"),
        *("plan_devices", "plan_shares", "plan_delivered", "plan_joules", "plan_starts_s"),
    )
)
"""Those that every results file has; others are added to a file with the first round that has something in them."""

ADDED = tuple(one for one in COLUMNS if one.name not in FIRST_COLUMNS)
"""Those others."""

RoundNumbers = tuple[int | float, ...]
"""The values of ROUND_COLUMNS."""
Row = tuple[int | float | bytes | None, ...]
"""The values of COLUMNS as a file has them: lists as bytes, of 4-byte indices or 8-byte little-endian numbers.

A list that a plan does not have, or that is all unknown, is None.
"""


def encode(record: RoundRecord) -> Row:
    """The round as a row."""
    lists = record.lists()
    return (*record.numbers(), *(_blob(one, lists[one.name]) for one in LISTS))


def decode(row: Row) -> RoundRecord:
    """The round again, bit for bit; a TypeError or ValueError if the row is damaged."""
    values: dict[str, Any] = {one.name: _decoded(one, value) for one, value in zip(COLUMNS, row, strict=True)}
    n, arrived, number = values.pop("devices"), values.pop("delivered"), values["round"]
    devices, there = values.pop("plan_devices"), values.pop("plan_delivered")
    lists = [found for one in LISTS if (found := values.get(one.name)) is not None]
    if (devices.size, there.size) != (n, arrived) or any(found.size != n for found in lists):
        raise ValueError(f"round {number} counts {n} and {arrived} devices, but lists others")
    planned = {one.path[1]: values.pop(one.name) for one in COLUMNS if one.path[0] == "plan" and one.name in values}
    if not planned["starts_s"].any():
        planned["starts_s"] = None
    known = {name: value for name, value in values.items() if value is not None}
    return RoundRecord(plan=Plan(devices, **planned), delivered=there, **known)


EFFORT = ("epochs", "bits", "sent_bytes")
"""The columns that say what devices did in a round: how long they trained, and what they sent."""

Measure = Literal["time", "best", "last"]
"""What runs are compared by: seconds to the target, best accuracy, last accuracy."""


def first_reached(x: Floats, accuracy: Floats, target: float) -> float:
    """Where accuracy against x first reaches the target; infinity if it never does."""
    reached = np.flatnonzero(accuracy >= target)
    return float(x[reached[0]]) if reached.size else math.inf


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds of one run as columns; statistics take these.

    Attributes:
        clock_s: (n,) when each round ended.
        round_s: (n,) how long it took.
        devices: (n,) how many were scheduled.
        accuracy: (n,) after the round.
        diverged: whether training had diverged after the last of them.
        spent_j: (n,) the joules that all devices had spent when it ended; NaN if that is not known.
        epochs: (n,) how often a scheduled device went through its samples, on average; NaN where that is not known.
        bits: (n,) the bits a weight that one uploaded, likewise.
        sent_bytes: (n,) the sizes of the delivered uploads together, likewise.
    """

    clock_s: Floats
    round_s: Floats
    devices: Floats
    accuracy: Floats
    diverged: bool = False
    spent_j: Floats = field(default_factory=lambda: np.empty(0))
    epochs: Floats = field(default_factory=lambda: np.empty(0))
    bits: Floats = field(default_factory=lambda: np.empty(0))
    sent_bytes: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        for name in ("spent_j", *EFFORT):
            if getattr(self, name).size == 0:
                object.__setattr__(self, name, np.full(self.clock_s.size, np.nan))

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]]) -> "Rounds":
        """From the ROUND_COLUMNS of rounds, in order."""
        names = ("clock_s", "round_s", "devices", "accuracy", "loss", "joules", *EFFORT)
        taken = [ROUND_COLUMNS.index(name) for name in names]
        values = np.array([[row[i] for i in taken] for row in rows], dtype=np.float64).reshape(-1, len(taken))
        clock_s, round_s, devices, accuracy, loss, joules, *effort = np.ascontiguousarray(values.T)
        return cls(clock_s, round_s, devices, accuracy, bool(np.isinf(loss[-1:]).any()), joules.cumsum(), *effort)

    @classmethod
    def of_records(cls, records: Iterable[RoundRecord]) -> "Rounds":
        """From records, in order."""
        return cls.of(record.numbers() for record in records)

    def __len__(self) -> int:
        return int(self.clock_s.size)

    def best_accuracy(self) -> float:
        """The highest accuracy of the run, NaN if it has no round."""
        return float(self.accuracy.max()) if len(self) else math.nan

    def last_accuracy(self) -> float:
        """The accuracy of the run's last model, NaN if it has no round."""
        return float(self.accuracy[-1]) if len(self) else math.nan

    def time_to(self, target: float) -> float:
        """Seconds until the run first reached the accuracy; infinity if it never did, or diverged."""
        # What a run that diverged had reached, it did not keep.
        return math.inf if self.diverged else first_reached(self.clock_s, self.accuracy, target)

    def energy_to(self, target: float) -> float:
        """Joules spent until then; infinity if it never got there, or diverged; NaN if unknown."""
        return math.inf if self.diverged else first_reached(self.spent_j, self.accuracy, target)

    def value(self, measure: Measure, target: float, budget_s: float) -> float:
        """Its seconds to the target (the budget if never), or its best or last accuracy (NaN without a round)."""
        if measure == "time":
            return min(self.time_to(target), budget_s)
        return self.best_accuracy() if measure == "best" else self.last_accuracy()

    def until(self, clock_s: float) -> "Rounds":
        """The rounds that ended by this time, as a smaller budget would have ended the run."""
        return self.first(int(np.searchsorted(self.clock_s, clock_s, side="right")))

    def first(self, n: int) -> "Rounds":
        """The first n rounds."""
        whole = n >= len(self)
        clock_s, round_s, devices, accuracy = self.clock_s[:n], self.round_s[:n], self.devices[:n], self.accuracy[:n]
        effort = (getattr(self, name)[:n] for name in EFFORT)
        return Rounds(clock_s, round_s, devices, accuracy, self.diverged and whole, self.spent_j[:n], *effort)


def _blob(one: Column, found: NDArray[Any] | None) -> bytes | None:
    if one.kind == "ids":
        return to_blob(np.asarray(found), "<u4")
    unknown = found is None or (one.name not in FIRST_COLUMNS and np.isnan(found).all())
    return None if found is None or unknown else to_blob(found)


def _decoded(one: Column, value: Any) -> Any:
    if one.per_device:
        return None if value is None else indices_in(value) if one.kind == "ids" else floats_in(value)
    return value if one.kind == "count" else _number(value)


def to_blob(values: NDArray[Any], kind: str = "<f8") -> bytes:
    """The array as bytes, little-endian: 8-byte floats, or another kind."""
    return np.asarray(values).astype(kind).tobytes()


def indices_in(blob: bytes) -> Indices:
    """The inverse of to_blob for 4-byte indices."""
    return np.frombuffer(blob, "<u4").astype(np.int64)


def floats_in(blob: bytes) -> Floats:
    """The inverse of to_blob for floats."""
    return np.frombuffer(blob, "<f8").astype(np.float64)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


ROUNDS_COLUMNS = ("clock_s", "round_s", "devices", "accuracy", "spent_j")
"""The columns of a file of rounds."""
_FORMAT = 1
_KEY_BYTES = 32


def write_rounds(file: IO[bytes], runs: Mapping[str, Rounds]) -> None:
    """Write the rounds of many runs, without their plans, into an open file: to bring what machines computed together.

    It is an .npz file of plain arrays: the keys of the runs, how many rounds each has, and the columns of Rounds, one
    run after the other. A store has more of each round and is some ten times larger.

    Args:
        file: binary and seekable.
        runs: by their keys.
    """
    keys = np.frombuffer(b"".join(map(bytes.fromhex, runs)), np.uint8).reshape(-1, _KEY_BYTES)
    columns = {
        name: np.concatenate([np.empty(0), *(getattr(run, name) for run in runs.values())]) for name in ROUNDS_COLUMNS
    }
    np.savez_compressed(
        file,
        format=np.array(_FORMAT),
        keys=keys,
        lengths=np.array([len(run) for run in runs.values()], np.int64),
        diverged=np.array([run.diverged for run in runs.values()], np.bool_),
        **columns,  # type: ignore[arg-type]  # NumPy's stub takes a keyword for allow_pickle
    )


def read_rounds(path: Path) -> dict[str, Rounds]:
    """The rounds of the runs in a file, by key; an InputError if it is not such a file.

    Args:
        path: of a file that write_rounds wrote.
    """
    try:
        arrays = read_npz(path)
        if int(arrays["format"]) != _FORMAT:
            raise ValueError(f"it has format {int(arrays['format'])}, and this fedcell reads {_FORMAT}")
        keys, lengths, diverged = arrays["keys"], arrays["lengths"], arrays["diverged"]
        columns = [arrays[name].astype(np.float64) for name in ROUNDS_COLUMNS]
        ends = np.cumsum(lengths)
        sizes = {column.shape for column in columns}
        if keys.shape != (lengths.size, _KEY_BYTES) or keys.dtype != np.uint8 or diverged.shape != lengths.shape:
            raise ValueError("it does not say which runs it has")
        if (lengths < 0).any() or sizes != {(int(lengths.sum()),)}:
            raise ValueError("its columns are not as long as its runs")
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path} is not a file of rounds ({reason}); give one that fedcell results export --rounds wrote"
        ) from None
    found = {}
    for key, end, length, over in zip(keys, ends.tolist(), lengths.tolist(), diverged.tolist(), strict=True):
        clock_s, round_s, devices, accuracy, spent_j = (column[end - length : end] for column in columns)
        found[key.tobytes().hex()] = Rounds(clock_s, round_s, devices, accuracy, over, spent_j)
    return found
