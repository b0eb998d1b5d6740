"""Tables of devices: dataclasses whose fields are arrays with an entry for each device, declared once.

A column of vectors that only devices have which have reported is kept as `Rows`: in a cell of a million devices a table
of all would take gigabytes, and each round would copy it.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from fedcell.types import Floats, Indices


def column(
    fill: float,
    dtype: type = np.float64,
    *,
    stored: str | None = None,
    wide: bool = False,
    later: bool = False,
    sparse: bool = False,
) -> Any:
    """Declare a column of a `Table`.

    Args:
        fill: what stands there for a device of which nothing is known.
        dtype: ``np.float64`` or ``np.int64``.
        stored: the array's name in saved states, if it is not the field's.
        wide: whether an entry is a vector; its length is 0 until the first one is known.
        later: whether states of version 0.2 lack it; nothing is known then.
        sparse: whether it is kept as `Rows`: of vectors, NaN where nothing is known.
    """
    about = {"fill": fill, "dtype": dtype, "stored": stored, "wide": wide, "later": later, "sparse": sparse}
    return field(metadata=about)


def part(table: "type[Table]", stored: str) -> Any:
    """Declare a field of a `Table` that is a table of the same devices; ``stored`` begins its arrays' names."""
    return field(metadata={"table": table, "stored": stored})


MAX_WHOLE = 1 << 20
"""Up to so many numbers a column of vectors is given out, and saved, as an array."""


class Rows(NDArrayOperatorsMixin):
    """An (M, d) array most of whose rows may be NaN, of which only the others are kept.

    It never changes; `with_rows` returns another one. All of them share one buffer, to which rows are appended: only
    the places are copied. It can be used as an array, which makes an array of it.

    Example:
        >>> import numpy as np
        >>> from fedcell.protocol.columns import Rows
        >>> rows = Rows.empty(3, 2).with_rows(np.array([2]), np.ones((1, 2)))
        >>> rows.shape, rows[np.array([2, 0])].tolist()
        ((3, 2), [[1.0, 1.0], [nan, nan]])
    """

    def __init__(self, places: NDArray[np.int32], buffer: Floats, used: int, written: list[int]) -> None:
        self._places, self._buffer, self._used, self._written = places, buffer, used, written

    @classmethod
    def empty(cls, M: int, d: int = 0) -> "Rows":
        """Return M rows of d times NaN."""
        return cls(np.full(M, -1, np.int32), np.empty((0, d)), 0, [0])

    @classmethod
    def of(cls, array: Floats) -> "Rows":
        """Return the rows of an array (M, d)."""
        known = np.flatnonzero(~np.isnan(array).all(axis=1)) if array.shape[1] else np.empty(0, np.int64)
        return cls.empty(*array.shape).with_rows(known, array[known])

    def with_rows(self, devices: Indices, values: Floats) -> "Rows":
        """Return it with other rows (n, d) for n distinct devices; another d than before replaces all."""
        if values.shape[1] != self.shape[1]:
            return Rows.empty(len(self), values.shape[1]).with_rows(devices, values)
        n, places, buffer, used, written = devices.size, self._places.copy(), self._buffer, self._used, self._written
        if used + n > len(buffer) or written[0] != used:  # no room, or another one has written there
            kept = np.flatnonzero(places >= 0)
            buffer = np.empty((2 * (kept.size + n), self.shape[1]))
            buffer[: kept.size] = self._buffer[places[kept]]
            places[kept] = np.arange(kept.size)
            used, written = kept.size, [0]
        buffer[used : used + n] = values
        places[devices] = np.arange(used, used + n)
        written[0] = used + n
        return Rows(places, buffer, used + n, written)

    def known(self) -> Indices:
        """Return the numbers of the devices that have a row, ascending."""
        return np.flatnonzero(self._places >= 0)

    def grow(self, M: int) -> "Rows":
        """Return it with rows of NaN up to M."""
        more = np.full(M - len(self), -1, np.int32)
        return Rows(np.concatenate((self._places, more)), self._buffer, self._used, self._written)

    def take(self, devices: "Indices | slice") -> "Rows":
        """Return those of some devices."""
        return Rows(self._places[devices], self._buffer, self._used, [-1])  # a part is not written on

    @property
    def shape(self) -> tuple[int, int]:
        """M and d."""
        return self._places.size, self._buffer.shape[1]

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    def __len__(self) -> int:
        return self._places.size

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, tuple):
            return np.asarray(self)[which]
        places = self._places[which]
        found = self._buffer[places] if len(self._buffer) else np.full((*np.shape(places), self.shape[1]), np.nan)
        found[places < 0] = np.nan
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        found: Floats = self[:]
        return found if dtype is None else found.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(one) if isinstance(one, Rows) else one for one in inputs), **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copy and pickle look for
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


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
            if isinstance(old, Table | Rows):
                grown[one.name] = old.grow(M)
            else:
                more = [(0, M - len(old)), *[(0, 0)] * (old.ndim - 1)]
                grown[one.name] = np.pad(old, more, constant_values=one.metadata["fill"])
        return self.changed(**grown)

    def to_arrays(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        """Return the columns by the names under which they are saved, which begin with ``prefix``."""
        arrays: dict[str, NDArray[Any]] = {}
        for one in _columns(type(self)):
            value, name = getattr(self, one.name), _stored(one, prefix)
            if isinstance(value, Table):
                arrays |= value.to_arrays(name)
            elif isinstance(value, Rows) and value.shape[0] * value.shape[1] > MAX_WHOLE:
                known = value.known()
                arrays |= {f"{name}_devices": known, f"{name}_rows": value[known]}
            else:
                arrays[name] = np.asarray(value)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Self:
        """The inverse of to_arrays."""
        found: dict[str, Any] = {}
        for one in _columns(cls):
            table, name = one.metadata.get("table"), _stored(one, prefix)
            if table is not None:
                found[one.name] = table.from_arrays(arrays, name)
            elif f"{name}_rows" in arrays:
                rows, M = np.array(arrays[f"{name}_rows"], np.float64), len(next(iter(found.values())))
                found[one.name] = Rows.empty(M, rows.shape[1]).with_rows(arrays[f"{name}_devices"], rows)
            elif one.metadata["sparse"]:
                found[one.name] = Rows.of(np.array(arrays[name], np.float64))
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


def _columns(table: type[Table]) -> "tuple[Field[Any], ...]":
    """The fields that have an entry for each device."""
    kind: Any = table  # of which mypy does not believe that it can be hashed
    return _columns_of(kind)


@cache
def _columns_of(table: type[Any]) -> "tuple[Field[Any], ...]":
    return tuple(one for one in fields(table) if one.metadata)


def _stored(one: "Field[Any]", prefix: str) -> str:
    return f"{prefix}{one.metadata['stored'] or one.name}"


def _empty(one: "Field[Any]", M: int) -> Any:
    if (table := one.metadata.get("table")) is not None:
        return table.empty(M)
    if one.metadata["sparse"]:
        return Rows.empty(M)
    return np.full((M, 0) if one.metadata["wide"] else M, one.metadata["fill"], one.metadata["dtype"])
