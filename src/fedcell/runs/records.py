"""A round as a row: one list of columns, wherever rounds are stored, sent, exported or shown.

ROUND_COLUMNS are the numbers of a round, with the scheduled and the delivered devices counted; PLAN_COLUMNS say which
devices they are. A Row has the first as numbers and the second as bytes, as the store keeps them and workers send them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcell.schedule.policy import Plan
from fedcell.sim.record import RoundRecord
from fedcell.types import Floats, Indices

ROUND_COLUMNS = ("round", "clock_s", "round_s", "planned_s", "devices", "delivered", "accuracy", "loss", "joules")
COUNT_COLUMNS = ("round", "devices", "delivered")
PLAN_COLUMNS = ("plan_devices", "plan_shares", "plan_delivered", "plan_joules", "plan_starts_s")

RoundNumbers = tuple[int, float, float, float, int, int, float, float, float]
"""The values of ROUND_COLUMNS."""
Row = tuple[int, float, float, float, int, int, float, float, float, bytes, bytes, bytes, bytes, bytes]
"""The values of ROUND_COLUMNS and PLAN_COLUMNS: indices as 4-byte, others as 8-byte little-endian numbers."""


def numbers_of(record: RoundRecord) -> RoundNumbers:
    """The round in numbers: the values of ROUND_COLUMNS."""
    return (
        record.round,
        float(record.clock_s),
        float(record.round_s),
        float(record.plan.round_s),
        int(record.plan.devices.size),
        int(record.delivered.size),
        float(record.accuracy),
        float(record.loss),
        float(record.joules),
    )


def encode(record: RoundRecord) -> Row:
    """The round as a row."""
    return (
        *numbers_of(record),
        to_blob(record.plan.devices, "<u4"),
        to_blob(record.plan.shares),
        to_blob(record.delivered, "<u4"),
        to_blob(record.plan_joules),
        to_blob(_starts_s(record.plan)),
    )


def decode(row: Row) -> RoundRecord:
    """The round again, bit for bit; a TypeError or ValueError if the row is damaged."""
    number, clock_s, round_s, planned_s, n, arrived, accuracy, loss, joules, *blobs = row
    devices, shares, delivered, spent, starts = blobs
    starts_s, there, plan_joules = floats_in(starts), indices_in(delivered), floats_in(spent)
    plan = Plan(indices_in(devices), floats_in(shares), _number(planned_s), starts_s if starts_s.any() else None)
    if (plan.devices.size, there.size, plan_joules.size, starts_s.size) != (n, arrived, n, n):
        raise ValueError(f"round {number} counts {n} and {arrived} devices, but lists others")
    clock_s, round_s, accuracy, loss, joules = map(_number, (clock_s, round_s, accuracy, loss, joules))
    return RoundRecord(number, clock_s, round_s, plan, there, accuracy, loss, joules, plan_joules)


def cells(record: RoundRecord, *, plan: bool) -> dict[str, Any]:
    """The round by column, for JSON and tables.

    Args:
        record: the round.
        plan: with PLAN_COLUMNS, as lists.
    """
    found: dict[str, Any] = dict(zip(ROUND_COLUMNS, numbers_of(record), strict=True))
    if plan:
        plan_of = record.plan
        arrays = (plan_of.devices, plan_of.shares, record.delivered, record.plan_joules, _starts_s(plan_of))
        found |= dict(zip(PLAN_COLUMNS, (array.tolist() for array in arrays), strict=True))
    return found


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
    """

    clock_s: Floats
    round_s: Floats
    devices: Floats
    accuracy: Floats
    diverged: bool = False
    spent_j: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.spent_j.size == 0:
            object.__setattr__(self, "spent_j", np.full(self.clock_s.size, np.nan))

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]]) -> "Rounds":
        """From rows or from numbers of rounds, in order."""
        taken = [ROUND_COLUMNS.index(name) for name in ("clock_s", "round_s", "devices", "accuracy", "loss", "joules")]
        values = np.array([[row[i] for i in taken] for row in rows], dtype=np.float64).reshape(-1, len(taken))
        clock_s, round_s, devices, accuracy, loss, joules = np.ascontiguousarray(values.T)
        return cls(clock_s, round_s, devices, accuracy, bool(np.isinf(loss[-1:]).any()), joules.cumsum())

    @classmethod
    def of_records(cls, records: Iterable[RoundRecord]) -> "Rounds":
        """From records, in order."""
        return cls.of(map(numbers_of, records))

    def __len__(self) -> int:
        return int(self.clock_s.size)

    def until(self, clock_s: float) -> "Rounds":
        """The rounds that ended by this time, as a smaller budget would have ended the run."""
        return self.first(int(np.searchsorted(self.clock_s, clock_s, side="right")))

    def first(self, n: int) -> "Rounds":
        """The first n rounds."""
        whole = n >= len(self)
        clock_s, round_s, devices, accuracy = self.clock_s[:n], self.round_s[:n], self.devices[:n], self.accuracy[:n]
        return Rounds(clock_s, round_s, devices, accuracy, self.diverged and whole, self.spent_j[:n])


def _starts_s(plan: Plan) -> Floats:
    """(n,) when each scheduled device starts; at once, if the downlink takes no time."""
    return np.zeros(plan.devices.size) if plan.starts_s is None else plan.starts_s


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
