"""Data sets: MNIST (included), Fashion-MNIST, CIFAR, FEMNIST, and your own arrays.

Every source ends in one :class:`Dataset`, checked in one place: shapes, labels, finite values. Files from outside are
read with size limits and without pickles, each format by a module of its own. Images are (channels, height, width) or,
without channels, (height, width).
"""

import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcell.errors import InputError, did_you_mean
from fedcell.files import unpacked_bytes, write_output
from fedcell.learn.formats import (
    FIELDS,
    FILE_ERRORS,
    MAX_ARRAY_BYTES,
    cifar_paths,
    idx_paths,
    leaf_paths,
    read_archive,
    read_cifar_folder,
    read_folder,
    read_leaf,
)
from fedcell.learn.published import PUBLISHED, existing_folder, published_folder

SCALINGS = ("standard", "unit")
LAYOUTS = ("CHW", "HWC")
HUGGING_FACE = "hf:"
MAX_CLASSES = 1 << 16


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set of N and a test set of K labelled samples.

    Attributes:
        name: ``mnist``, ``fashion-mnist``, or the name of your file without its extension.
        train_x: (N, *shape), uint8 or float32.
        train_y: (N,), int64, each 0..classes-1.
        test_x: (K, *shape), of the same type as ``train_x``.
        test_y: (K,), int64, each 0..classes-1.
        classes: the number of labels.
        shift: the network's input is ``(x/255 - shift)/scale`` for uint8, and ``(x - shift)/scale`` for float32.
        scale: see ``shift``.
        owners: (N,), int64, the owner of each training sample, 0..K-1; None if the data does not say. The partition
            ``natural`` gives every device the samples of one owner.

    Example:
        >>> from fedcell.learn.data import load_dataset
        >>> mnist = load_dataset("mnist")
        >>> mnist.train_x.shape, mnist.test_y.shape, mnist.classes
        ((60000, 28, 28), (10000,), 10)
    """

    name: str
    train_x: NDArray[Any]
    train_y: NDArray[np.int64]
    test_x: NDArray[Any]
    test_y: NDArray[np.int64]
    classes: int
    shift: float
    scale: float
    owners: NDArray[np.int64] | None = None


def load_dataset(
    name_or_path: str | os.PathLike[str],
    scaling: str = "standard",
    *,
    layout: str = "CHW",
    folder: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Load a data set by name, or your own from a file or a directory.

    Args:
        name_or_path: ``mnist``, ``fashion-mnist``, ``cifar-10`` or ``cifar-100``; or a path: an ``.npz`` file with the
            arrays ``train_x``, ``train_y``, ``test_x`` and ``test_y`` (if some label never occurs, the number
            ``classes``; if each sample has an owner, ``owners``); a directory with four idx files under MNIST's names,
            plain or ``.gz``; CIFAR's binary version, ``.tar.gz`` or unpacked; LEAF's directory with ``train`` and
            ``test`` (FEMNIST); or ``hf:PATH``, a Hugging Face data set on this disk.
        scaling: ``standard`` (the usual mean and standard deviation of the data set; else those of ``train_x``) or
            ``unit`` (uint8 becomes [0, 1], floats are not changed).
        layout: of images with channels in your own arrays: ``CHW``, channels first, or ``HWC``, channels last, which
            are turned into channels first.
        folder: the directory with the files of a named data set. Without it, ``mnist`` comes from the package, and
            the others from the first of these: the directory ``$FEDCELL_DATA`` or its subdirectory with the data set's
            name, if that variable is set; Debian's package ``dataset-fashion-mnist``; the cache; a download into
            the cache.

    Returns:
        Dataset: the checked arrays and their scaling.

    Example:
        >>> from fedcell.learn.data import load_dataset
        >>> load_dataset("mnist").shift, load_dataset("mnist", "unit").shift
        (0.1307, 0.0)
    """
    if scaling not in SCALINGS:
        raise InputError(f"scaling is {scaling!r}; give {' or '.join(SCALINGS)}")
    if layout not in LAYOUTS:
        raise InputError(f"layout is {layout!r}; give {' or '.join(LAYOUTS)}")
    name = os.fspath(name_or_path)
    published = PUBLISHED.get(name)
    if published is not None:
        if layout != "CHW":
            raise InputError(
                f"layout is {layout!r} with the data set {name!r}; leave it out: it is for your own arrays"
            )
        source = published_folder(name) if folder is None else existing_folder(folder)
        dataset = checked_arrays(name, source, published.read(source))
        if scaling == "standard" and published.shift is not None and published.scale is not None:
            return replace(dataset, shift=published.shift, scale=published.scale)
    elif folder is not None:
        raise InputError(f"folder is given with the data set {name!r}; leave it out: only published data sets take it")
    else:
        source = Path(name.removeprefix(HUGGING_FACE)).expanduser()
        arrays = _read_hugging_face(source) if name.startswith(HUGGING_FACE) else _read_own(source)
        if layout == "HWC":
            arrays |= {field: channels_first(arrays[field], field) for field in ("train_x", "test_x")}
        dataset = checked_arrays(source.resolve().stem, source, arrays)
    return scaled(dataset, scaling, source)


def scaled(dataset: Dataset, scaling: str, source: object) -> Dataset:
    """Return the data set scaled by the mean and deviation of its training inputs; unchanged for ``unit``."""
    if scaling == "unit":
        return dataset
    shift, scale = _measured(dataset.train_x, source)
    return replace(dataset, shift=shift, scale=scale)


def save_dataset(dataset: Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a data set as an ``.npz`` file, which ``task.data`` can name; the scaling is not part of it.

    Args:
        dataset: any, such as `dataset_from` returns.
        path: the file, ending in ``.npz``.

    Returns:
        Path: the file.

    Example:
        >>> import fedcell as fc
        >>> import numpy as np
        >>> x, y = np.zeros((4, 2), np.uint8), np.arange(4) % 2
        >>> data = fc.dataset_from((x, y), (x, y), owners=[0, 0, 1, 1], scaling="unit")
        >>> fc.TaskSpec(data=str(fc.save_dataset(data, "own.npz")), partition="natural").data
        'own.npz'
    """
    place = Path(path)
    if place.suffix != ".npz":
        raise InputError(f"the data set goes to {str(place)!r}; give a name that ends in .npz")
    arrays = {field: getattr(dataset, field) for field in FIELDS} | {"classes": np.array(dataset.classes)}
    if dataset.owners is not None:
        arrays["owners"] = dataset.owners
    try:
        write_output(place, lambda file: np.savez_compressed(file, **arrays))
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror}; give another place") from None
    return place


def content_files(name: str) -> list[tuple[str, Path]]:
    """Return the files that a user's data set consists of, in a fixed order, each with its role.

    Args:
        name: the value of ``task.data``, a path.

    Returns:
        Pairs of a role, such as ``train/``, and a file. Missing files are named too.
    """
    path = Path(name.removeprefix(HUGGING_FACE)).expanduser()
    if not path.is_dir():
        return [("", path)]
    if name.startswith(HUGGING_FACE):
        found = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        return [(f"{file.relative_to(path)}:", file) for file in found]
    if files := cifar_paths(path):
        return [("", file) for file in files]
    if parts := leaf_paths(path):
        return [(f"{part}/", file) for part, files in parts.items() for file in files]
    return [("", file) for file in idx_paths(path).values()]


def absolute(name: str) -> str:
    """Return a data set's name with an absolute path, for a process with another current directory."""
    if name in PUBLISHED:
        return name
    prefix = HUGGING_FACE if name.startswith(HUGGING_FACE) else ""
    return prefix + os.path.abspath(os.path.expanduser(name.removeprefix(HUGGING_FACE)))


def _read_own(path: Path) -> dict[str, NDArray[Any]]:
    if path.is_dir():
        if cifar_paths(path):
            return read_cifar_folder(path)
        return read_leaf(path) if leaf_paths(path) else read_folder(path, {})
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.name.endswith((".tar.gz", ".tgz")):
        return read_archive(path)
    hint = did_you_mean(str(path), PUBLISHED, f"give {', '.join(PUBLISHED)}, an .npz file or a directory")
    raise InputError(f"unknown data set {str(path)!r}; {hint}")


def _read_hugging_face(path: Path) -> dict[str, NDArray[Any]]:
    from fedcell.learn.hugging_face import read_disk

    return read_disk(path)


def channels_first(images: NDArray[Any], field: str) -> NDArray[Any]:
    """Return images (n, height, width, channels) as (n, channels, height, width); messages call them ``field``."""
    if images.ndim != 4:
        shape = images.shape
        raise InputError(f"layout is 'HWC', but {field} has the shape {shape}; give (samples, height, width, channels)")
    return np.moveaxis(images, 3, 1)


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(f"the data set {str(path)!r} does not exist; give an .npz file")
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is not an .npz file; write it with numpy.savez_compressed")
    arrays = {}
    field = "the archive"
    try:
        size = unpacked_bytes(path)
        with np.load(path, allow_pickle=False) as members:
            for field in (*FIELDS, "classes", "owners") if size <= MAX_ARRAY_BYTES else ():
                if field in members:
                    arrays[field] = np.asarray(members[field])
    except (*FILE_ERRORS, ValueError, RuntimeError) as error:
        raise InputError(
            f"{path}: {field} cannot be read ({error}); store plain arrays of numbers, never Python objects"
        ) from error
    if size > MAX_ARRAY_BYTES:
        raise InputError(f"{path} unpacks to {size} bytes, over {MAX_ARRAY_BYTES}; store less, or as uint8")
    for field in FIELDS:
        if field not in arrays:
            raise InputError(f"{path} has no array {field!r}; it needs {', '.join(FIELDS)}")
    return arrays


def checked_arrays(name: str, source: object, arrays: Mapping[str, NDArray[Any]]) -> Dataset:
    """Return the arrays as an unscaled data set, after all checks that do not depend on their source."""
    train_x = _checked_samples(arrays["train_x"], f"{source}: train_x")
    test_x = _checked_samples(arrays["test_x"], f"{source}: test_x")
    if (train_x.shape[1:], train_x.dtype) != (test_x.shape[1:], test_x.dtype):
        raise InputError(
            f"{source}: train_x has samples of shape {train_x.shape[1:]} and type {train_x.dtype}, test_x of "
            f"{test_x.shape[1:]} and {test_x.dtype}; give both the same shape and type"
        )
    classes = _class_count(arrays, source)
    train_y = _checked_labels(arrays["train_y"], classes, f"{source}: train_y")
    test_y = _checked_labels(arrays["test_y"], classes, f"{source}: test_y")
    for part, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if len(x) != len(y):
            counts = f"{part}_x has {len(x)} samples, {part}_y {len(y)} labels"
            raise InputError(f"{source}: {counts}; give one label for each sample")
    owners = _checked_owners(arrays["owners"], len(train_y), source) if "owners" in arrays else None
    return Dataset(name, train_x, train_y, test_x, test_y, classes, shift=0.0, scale=1.0, owners=owners)


def _checked_samples(x: NDArray[Any], field: str) -> NDArray[Any]:
    if x.ndim < 2 or x.size == 0:
        raise InputError(f"{field} has the shape {x.shape}; give (samples, features) or one image per sample")
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    if x.dtype.kind != "f":
        raise InputError(f"{field} has the type {x.dtype}; give uint8 (0 to 255) or floats")
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.ascontiguousarray(x, np.float32)
        # In double precision a sum of float32 values is finite exactly if all of them are.
        wrong = np.flatnonzero(~np.isfinite(x.reshape(len(x), -1).sum(axis=1, dtype=np.float64)))
    if wrong.size:
        raise InputError(f"{field}[{wrong[0]}] has a value that is NaN or exceeds float32; correct the sample")
    return x


def _class_count(arrays: Mapping[str, NDArray[Any]], source: object) -> int:
    """Return the number of labels: as given, or those of the training set, numbered without gaps."""
    given = arrays.get("classes")
    if given is not None:
        if given.ndim or given.dtype.kind not in "iu" or not 1 <= given <= MAX_CLASSES:
            raise InputError(f"{source}: classes is {given}; give one integer from 1 to {MAX_CLASSES}")
        return int(given)
    held = np.unique(arrays["train_y"])
    if held.dtype.kind not in "iu" or not held.size or held[0] < 0:
        return 1  # the check of the labels says what is wrong
    gaps = np.flatnonzero(held != np.arange(len(held)))
    if gaps.size:
        raise InputError(
            f"{source}: train_y has no label {gaps[0]} but goes up to {held[-1]}; number the labels from 0 "
            "without gaps, or store the number of labels as the array classes"
        )
    return len(held)


def _checked_labels(y: NDArray[Any], classes: int, field: str) -> NDArray[np.int64]:
    if y.dtype.kind not in "iu" or y.ndim != 1 or not y.size:
        raise InputError(f"{field} has the shape {y.shape} and type {y.dtype}; give one integer per sample")
    wrong = np.flatnonzero((y < 0) | (y >= classes))
    if wrong.size:
        raise InputError(f"{field}[{wrong[0]}] is {y[wrong[0]]}; give labels from 0 to {classes - 1}")
    return y.astype(np.int64)


def _checked_owners(owners: NDArray[Any], samples: int, source: object) -> NDArray[np.int64]:
    if owners.dtype.kind not in "iu" or owners.shape != (samples,):
        raise InputError(
            f"{source}: owners has the shape {owners.shape} and type {owners.dtype}; give one integer per sample"
        )
    held = np.unique(owners)
    if held[0] != 0 or held[-1] != len(held) - 1:
        raise InputError(
            f"{source}: owners goes from {held[0]} to {held[-1]} with gaps; number them from 0 without gaps"
        )
    return owners.astype(np.int64)


def _measured(train_x: NDArray[Any], source: object) -> tuple[float, float]:
    """Return mean and standard deviation of the unscaled training set, computed in blocks to save memory."""
    unit = 255.0 if train_x.dtype == np.uint8 else 1.0
    mean = np.float64(train_x.mean(dtype=np.float64))
    blocks = (train_x[start : start + 1024] for start in range(0, len(train_x), 1024))
    deviation = math.sqrt(sum(float(np.square(block - mean).sum()) for block in blocks) / train_x.size)
    if deviation <= 1e-12 * abs(mean):
        raise InputError(f"{source}: train_x is {mean:g} everywhere; give other samples, or scaling 'unit'")
    return float(mean) / unit, deviation / unit
