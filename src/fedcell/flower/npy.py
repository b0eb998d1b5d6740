"""The .npy files in which Flower sends arrays, judged without unpacking them: nothing in them is trusted."""

import ast
import re
from functools import lru_cache
from typing import Any

import numpy as np

LARGEST_VALUE = 1e15
"""Of a model, up or down: squares of these, and their sums, are far from overflow in float32."""
_MAGIC = b"\x93NUMPY"
_MOST_HEADER_BYTES = 4096
_MOST_AXES = 32
_LONGEST_AXIS = 2**31


def header_of(data: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int] | None:
    """Return the type and the shape of a .npy file, and where its values start; None if it is not one of numbers."""
    if data[:6] != _MAGIC or len(data) < 12 or data[7] != 0 or data[6] not in (1, 2, 3):
        return None
    start = 10 if data[6] == 1 else 12
    length = int.from_bytes(data[8:start], "little")
    if length > min(_MOST_HEADER_BYTES, len(data) - start):
        return None
    found = _parsed_header(data[start : start + length])
    return None if found is None else (*found, start + length)


@lru_cache(maxsize=1024)
def _parsed_header(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return the type and the shape in the header, a Python dict as text; all replies of a round have the same few."""
    try:
        said = ast.literal_eval(header.decode("ascii").strip())
        descr, shape = said["descr"], said["shape"]
        if said.keys() != {"descr", "fortran_order", "shape"} or not isinstance(said["fortran_order"], bool):
            return None
        if not isinstance(shape, tuple) or len(shape) > _MOST_AXES:
            return None
        if not all(type(axis) is int and 0 <= axis < _LONGEST_AXIS for axis in shape):
            return None
        if not (isinstance(descr, str) and re.fullmatch(r"[<>|=]?[fiubc]\d{1,2}", descr)):
            return None
        return np.dtype(descr), shape
    except Exception:  # text that is no dict, nested too deeply, or a type that NumPy does not have
        return None


@lru_cache(maxsize=1024)
def dtype_of(name: str) -> np.dtype[Any] | None:
    """Return the type of this name; None if NumPy has none."""
    try:
        return np.dtype(name) if re.fullmatch(r"[<>|=]?[a-z]{1,10}\d{0,3}", name) else None
    except Exception:
        return None


def is_moderate(data: bytes, dtype: np.dtype[Any], start: int) -> bool:
    """Whether all floats after ``start`` are finite and not too large."""
    if dtype.kind not in "fc" or len(data) == start:
        return True
    real = np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    values = np.frombuffer(data, real, offset=start)
    with np.errstate(invalid="ignore"):  # of signalling NaN
        least, most = float(values.min()), float(values.max())  # of values with NaN, both are NaN
    return least >= -LARGEST_VALUE and most <= LARGEST_VALUE
