"""Tables of devices: dataclasses whose fields are arrays with an entry for each device, declared once."""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


def column(
    fill: float, dtype: type = np.float64, *, stored: str | None = None, wide: bool = False, later: bool = False
) -> Any:
    """Declare a column of a `Table`.

    Args:
        fill: what stands there for a device of which nothing is known.
        dtype: ``np.float64`` or ``np.int64``.
        stored: the array's name in saved states, if it is not the field's.
        wide: whether an entry is a vector; its length is 0 until the first one is known.
        later: whether states of version 0.2 lack it; nothing is known then.
    """
    return field(metadata={"fill": fill, "dtype": dtype, "stored": stored, "wide": wide, "later": later})


def part(table: "type[Table]", stored: str) -> Any:
    """Declare a field of a `Table` that is a table of the same devices; ``stored`` begins its arrays' names."""
    return field(metadata={"table": table, "stored": stored})


@dataclass(frozen=True, eq=False)
class Table:
    """A frozen dataclass of columns: it begins empty, grows by devices of which nothing is known, and is saved."""

    @classmethod
    def empty(cls, M: int) -> Self:
        """Return the table of M devices of which nothing is known."""
        return cls(**{one.name: _empty(one, M) for one in _columns(cls)})

    def __len__(self) -> int:
        return len(getattr(self, _columns(type(self))[0].name))

    def grow(self, M: int) -> Self:
        """Return the table extended to M devices; nothing is known of the new ones."""
        grown: dict[str, Any] = {}
        for one in _columns(type(self)):
            old = getattr(self, one.name)
            if isinstance(old, Table):
                grown[one.name] = old.grow(M)
            else:
                more = [(0, M - len(old)), *[(0, 0)] * (old.ndim - 1)]
                grown[one.name] = np.pad(old, more, constant_values=one.metadata["fill"])
        return self.changed(**grown)

    def to_arrays(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        """Return the columns by the names under which they are saved, which begin with ``prefix``."""
        arrays: dict[str, NDArray[Any]] = {}
        for one in _columns(type(self)):
            value = getattr(self, one.name)
            arrays |= (
                value.to_arrays(_stored(one, prefix)) if isinstance(value, Table) else {_stored(one, prefix): value}
            )
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Self:
        """The inverse of to_arrays."""
        found: dict[str, Any] = {}
        for one in _columns(cls):
            table, name = one.metadata.get("table"), _stored(one, prefix)
            if table is not None:
                found[one.name] = table.from_arrays(arrays, name)
            elif name in arrays or not one.metadata["later"]:
                found[one.name] = np.array(arrays[name], one.metadata["dtype"])
            else:
                found[one.name] = _empty(one, len(next(iter(found.values()))))
        return cls(**found)

    def changed(self, **columns: Any) -> Self:
        """Return the table with other columns; dataclasses.replace would take ten times as long."""
        table = object.__new__(type(self))
        table.__dict__.update(self.__dict__, **columns)
        return table


@cache
def _columns(table: type[Table]) -> "list[Field[Any]]":
    """The fields that have an entry for each device."""
    return [one for one in fields(table) if one.metadata]


def _stored(one: "Field[Any]", prefix: str) -> str:
    return f"{prefix}{one.metadata['stored'] or one.name}"


def _empty(one: "Field[Any]", M: int) -> Any:
    if (table := one.metadata.get("table")) is not None:
        return table.empty(M)
    return np.full((M, 0) if one.metadata["wide"] else M, one.metadata["fill"], one.metadata["dtype"])
