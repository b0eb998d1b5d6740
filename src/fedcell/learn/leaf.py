"""LEAF's JSON files (FEMNIST and its like): samples have a writer, and every writer is a device of its own.

A directory has ``train`` and ``test``, each with JSON files of ``{"users": [...], "num_samples": [...], "user_data":
{user: {"x": [[...], ...], "y": [...]}}}``, as LEAF's ``preprocess.sh -t sample`` or ``-t user`` leaves them. FEMNIST's
inputs are pixels divided by 255, in rows of 784: they become bytes and images of 28 x 28 again.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcell.errors import InputError

MAX_FILE_BYTES = 1 << 30
MAX_SAMPLES_BYTES = 2 << 30
FEMNIST_CLASSES = 62


def leaf_paths(folder: Path) -> dict[str, list[Path]]:
    """Return the files of a LEAF directory, by part and in the order of their names; none if it is not one."""
    parts = {part: sorted((folder / part).glob("*.json")) for part in ("train", "test")}
    return parts if all(parts.values()) else {}


def read_leaf(folder: Path) -> dict[str, NDArray[Any]]:
    """Read a LEAF directory.

    Args:
        folder: with ``train`` and ``test``.

    Returns:
        The arrays ``train_x``, ``train_y``, ``test_x``, ``test_y``, and ``owners``: for each training sample the
        number of its writer, in the order of the files.
    """
    train, test = (_read_part(paths) for paths in leaf_paths(folder).values())
    pixels = all(x.dtype == np.uint8 for x in (*train[0], *test[0]))
    arrays: dict[str, NDArray[Any]] = {}
    for part, (inputs, labels) in (("train", train), ("test", test)):
        if len({x.shape[1:] for x in inputs}) > 1:
            raise InputError(f"{folder / part}: samples differ in length; give all samples one length")
        whole = np.concatenate([x if pixels or x.dtype != np.uint8 else (x / 255).astype(np.float32) for x in inputs])
        side = math.isqrt(whole.shape[1])
        square = pixels and side * side == whole.shape[1]
        arrays[f"{part}_x"] = whole.reshape(-1, side, side) if square else whole
        arrays[f"{part}_y"] = np.concatenate(labels)
    arrays["owners"] = np.repeat(np.arange(len(train[1])), [len(y) for y in train[1]])
    most = max(int(arrays["train_y"].max()), int(arrays["test_y"].max())) + 1
    # A small sample of FEMNIST lacks some letters, which are classes nevertheless.
    arrays["classes"] = np.array(max(most, FEMNIST_CLASSES if arrays["train_x"].shape[1:] == (28, 28) else 1))
    return arrays


def _read_part(paths: list[Path]) -> tuple[list[NDArray[Any]], list[NDArray[np.int64]]]:
    """Return inputs and labels of every user, in the order of the files."""
    inputs, labels, seen, size = list[NDArray[Any]](), list[NDArray[np.int64]](), set[str](), 0
    for path in paths:
        document = _document(path)
        for user in document["users"]:
            if not isinstance(user, str) or user in seen:
                raise InputError(f"{path}: the user {str(user)[:60]!r} is there twice or has no name; give each one")
            seen.add(user)
            x, y = _samples(document["user_data"].get(user), f"{path}: user {user[:60]!r}")
            if not len(y):
                continue  # nothing to train on: no device
            inputs.append(x)
            labels.append(y)
            size += x.nbytes
            if size > MAX_SAMPLES_BYTES:
                raise InputError(f"{path}: the samples so far take over {MAX_SAMPLES_BYTES} bytes; sample fewer users")
    if not inputs:
        raise InputError(f"{paths[0]} and the files beside it have no samples; make them with LEAF's preprocess.sh")
    return inputs, labels


def _document(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InputError(f"{path} is over {MAX_FILE_BYTES} bytes; LEAF puts 100 users into a file, do so")
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path} is not JSON ({error}); make it with LEAF's preprocess.sh") from None
    fields = {"users": list, "user_data": dict}
    if not isinstance(document, dict) or not all(isinstance(document.get(f), kind) for f, kind in fields.items()):
        raise InputError(f"{path} has no list 'users' and object 'user_data'; make it with LEAF's preprocess.sh")
    return document


def _samples(data: Any, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return a user's inputs (n, features), as bytes if they are pixels divided by 255, and labels (n,)."""
    try:
        x, y = np.asarray(data["x"], np.float64), np.asarray(data["y"])
    except (TypeError, KeyError, ValueError, OverflowError):
        raise InputError(f"{name}: x is no table of numbers, or y is missing; store plain numbers") from None
    if y.size == 0:
        return np.empty((0, 0)), np.empty(0, np.int64)
    if x.ndim != 2 or y.shape != (len(x),) or y.dtype.kind not in "iu" or y.min() < 0:
        raise InputError(
            f"{name}: x has the shape {x.shape} and y {y.shape}; give each sample a row and a label from 0"
        )
    with np.errstate(invalid="ignore"):
        bytes_ = np.rint(255 * x)
        pixels = np.abs(255 * x - bytes_).max(initial=0.0) < 1e-6 and bytes_.min() >= 0 and bytes_.max() <= 255
    return bytes_.astype(np.uint8) if pixels else x.astype(np.float32), y.astype(np.int64)
