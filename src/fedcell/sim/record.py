"""RoundRecord: what one round did, and the columns in which it is stored, exported and shown."""

import math
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedcell.schedule.plan import Plan
from fedcell.types import Floats, Indices

Kind = Literal["count", "number", "ids", "numbers"]


@dataclass(frozen=True)
class Column:
    """One column of rounds, wherever these are stored, exported or shown.

    Attributes:
        name: the column's.
        unit: such as ``s``; empty if it has none.
        text: what it says.
        kind: ``count``, a whole number; ``number``; or for each device of a list ``ids`` or ``numbers``.
        path: where it stands in the record, such as ``("plan", "shares")``; of an array, a count is its size.
    """

    name: str
    unit: str
    text: str
    kind: Kind
    path: tuple[str, ...]

    @property
    def per_device(self) -> bool:
        """Whether it has a value for each device."""
        return self.kind in ("ids", "numbers")

    def value(self, record: "RoundRecord") -> Any:
        """What the record has of it: an int, a float, an array, or None."""
        found: Any = record
        for name in self.path:
            found = getattr(found, name)
        if self.kind == "count":
            return int(np.size(found)) if isinstance(found, np.ndarray) else int(found)
        return float(found) if self.kind == "number" else found


def column(unit: str, text: str, *, per: Literal["round", "device"] = "round") -> Any:
    """Declare a field of RoundRecord that is a column: store, CSV, JSON, Parquet, API and page have it from here.

    Its default is NaN, for unknown, as in the rounds of files that were written before there was such a column.

    Args:
        unit: of its values, such as ``J``; empty if they have none.
        text: what they say.
        per: ``round`` for a number, ``device`` for a number for each scheduled device, in the plan's order; the name of
            such a field begins with ``plan_``.
    """
    about = {"unit": unit, "text": text, "per": per}
    return field(default=math.nan, metadata=about) if per == "round" else field(default_factory=_none, metadata=about)


def _none() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """What one round did.

    Attributes:
        round: its number, from 1.
        clock_s: the simulated time at which it ended.
        round_s: how long it took.
        plan: who was scheduled, with which share of the band.
        delivered: the devices whose models arrived.
        accuracy: of the global model on the test set after the round, a fraction; or when it was last evaluated.
        loss: its mean loss there, in nats, likewise; infinity where training has diverged, which ends the run.
        joules: what all devices spent in it, with that of their reports in the first round; NaN if it is not known.
        plan_joules: (n,) what each scheduled device spent on training and sending, in the plan's order; NaN if it is
            not known.
        epochs: how often a scheduled device went through its samples, on average over them; NaN if nobody was.
        bits: the bits a weight that one uploads, likewise: without scales and indices if they are rounded, with all
            that is sent by other compressions.
        sent_bytes: the sizes of the delivered uploads together.
        evaluated: the round after which the model was last evaluated, whose accuracy and loss these are; NaN in files
            of version 0.2, where it is always this one.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=2", rounds=1, task=fc.TaskSpec(hidden=[4]))
        >>> record = next(fc.simulate(spec))
        >>> record.round, len(record.plan.devices), record.clock_s == record.round_s
        (1, 2, True)
    """

    round: int
    clock_s: float
    round_s: float
    plan: Plan
    delivered: Indices
    accuracy: float
    loss: float
    joules: float = column("J", "energy of all devices")
    plan_joules: Floats = column("J", "energy of the device", per="device")
    epochs: float = column("", "local epochs, mean over the scheduled devices")
    bits: float = column("", "bits a weight of the uploads, mean over the scheduled devices")
    sent_bytes: float = column("bytes", "size of the delivered uploads together")
    evaluated: float = column("", "round after which the model had this accuracy and loss")

    def __post_init__(self) -> None:
        for one in _declared("device"):
            if getattr(self, one.name).size == 0:
                object.__setattr__(self, one.name, np.full(self.plan.devices.size, np.nan))

    def numbers(self) -> tuple[int | float, ...]:
        """The round in numbers: the values of ROUND_COLUMNS."""
        return tuple(one.value(self) for one in columns() if not one.per_device)

    def lists(self) -> dict[str, NDArray[Any] | None]:
        """By column, what it has for each device; None for what its plan does not say."""
        found = {one.name: one.value(self) for one in columns() if one.per_device}
        if found["plan_starts_s"] is None:  # known of all plans: at once, if the downlink takes no time
            found["plan_starts_s"] = np.zeros(self.plan.devices.size)
        return found

    def to_dict(self, *, plan: bool = True) -> dict[str, Any]:
        """The round by column, for JSON and tables.

        Args:
            plan: whether what it has for each device is in it, as lists.
        """
        found: dict[str, Any] = dict(zip(ROUND_COLUMNS, self.numbers(), strict=True))
        if plan:
            found |= {name: None if one is None else one.tolist() for name, one in self.lists().items()}
        return found


_NUMBERS = (
    Column("round", "", "number of the round, from 1", "count", ("round",)),
    Column("clock_s", "s", "simulated time at which it ended", "number", ("clock_s",)),
    Column("round_s", "s", "how long it took", "number", ("round_s",)),
    Column("planned_s", "s", "how long it was planned to take", "number", ("plan", "round_s")),
    Column("devices", "", "how many devices were scheduled", "count", ("plan", "devices")),
    Column("delivered", "", "how many of their models arrived", "count", ("delivered",)),
    Column("accuracy", "", "of the model on the test set after the round, a fraction", "number", ("accuracy",)),
    Column("loss", "nats", "mean loss of the model on the test set", "number", ("loss",)),
)
_LISTS = (
    Column("plan_devices", "", "the scheduled devices", "ids", ("plan", "devices")),
    Column("plan_shares", "", "fraction of the band that the device gets", "numbers", ("plan", "shares")),
    Column("plan_delivered", "", "the devices whose models arrived", "ids", ("delivered",)),
)


@cache
def columns() -> tuple[Column, ...]:
    """All columns of a RoundRecord: its numbers, then what it has for each device.

    Those declared with `column` are among them, and every field of a Plan that may be None: its columns begin with
    ``plan_``, and its metadata may say ``unit`` and ``text``.

    Example:
        >>> from fedcell.sim.record import columns
        >>> [column.name for column in columns() if column.unit == "J"]
        ['joules', 'plan_joules']
    """
    numbers = [_column(one, "number", (one.name,)) for one in _declared("round")]
    lists = [_column(one, "numbers", (one.name,)) for one in _declared("device")]
    optional = [one for one in fields(Plan) if one.default is None]
    planned = [_column(one, "numbers", ("plan", one.name)) for one in optional]
    return (*_NUMBERS, *numbers, *_LISTS, *lists, *planned)


@cache
def _declared(per: str) -> tuple["Field[Any]", ...]:
    return tuple(one for one in fields(RoundRecord) if one.metadata.get("per") == per)


def _column(one: "Field[Any]", kind: Kind, path: tuple[str, ...]) -> Column:
    unit = one.metadata.get("unit", "s" if one.name.endswith("_s") else "")
    return Column("_".join(path), unit, one.metadata.get("text", ""), kind, path)


ROUND_COLUMNS = tuple(one.name for one in columns() if not one.per_device)
"""The names of the numbers of a round, with the scheduled and the delivered devices counted."""
