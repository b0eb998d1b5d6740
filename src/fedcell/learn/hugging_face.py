"""Data from Hugging Face's ``datasets``, from Flower's partitioners, and from arrays in memory.

The result is a `Dataset`; `save_dataset` writes it to a file that a spec can name. ``hf:PATH`` in a spec is read
from the disk directly: a ``DatasetDict`` written by ``save_to_disk``, Parquet files whose names begin with ``train``
and ``test``, or folders ``train/LABEL/*.png`` and ``test/LABEL/*.png``. Nothing is downloaded.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcell.errors import InputError, did_you_mean
from fedcell.learn.data import Dataset, channels_first, checked_arrays, scaled
from fedcell.learn.formats import MAX_ARRAY_BYTES

LABELS = ("label", "labels", "fine_label", "y", "target", "character")
"""Names of the column of labels, if none is of the type ClassLabel."""
PICTURES = ("*.png", "*.jpg", "*.jpeg", "*.bmp", "*.webp")


def dataset_from(
    train: Any,
    test: Any,
    *,
    inputs: str | None = None,
    label: str | None = None,
    owners: str | ArrayLike | None = None,
    layout: str = "CHW",
    scaling: str = "standard",
    name: str = "own",
) -> Dataset:
    """Make a data set from arrays, a ``datasets.Dataset``, or a partitioner of Flower Datasets.

    Args:
        train: the training samples: a pair of arrays (inputs, labels), a ``datasets.Dataset``, or a partitioner of
            Flower Datasets that has its data set, whose partitions become the owners.
        test: the test samples: a pair of arrays or a ``datasets.Dataset``.
        inputs: the column of images or numbers; by default the only one of such a type.
        label: the column of labels; by default the one of type ``ClassLabel``, or named ``label``.
        owners: the owner of each training sample: a column such as ``writer_id``, or (N,) values. The partition
            ``natural`` gives each device the samples of one owner.
        layout: of arrays of images with channels: ``CHW`` or ``HWC``. Columns of images have it in their type.
        scaling: ``standard`` or ``unit``, as in ``task.scaling``.
        name: of the data set.

    Returns:
        Dataset: checked; `save_dataset` writes it.

    Example:
        >>> import fedcell as fc
        >>> import numpy as np
        >>> x, y = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3), np.array([0, 1])
        >>> data = fc.dataset_from((x, y), (x, y), layout="HWC", owners=["anna", "bert"])
        >>> data.train_x.shape, data.owners.tolist()
        ((2, 3, 2, 2), [0, 1])
    """
    if layout not in ("CHW", "HWC"):
        raise InputError(f"layout is {layout!r}; give CHW or HWC")
    columns = (inputs, label)
    if hasattr(train, "load_partition"):
        if owners is not None:
            raise InputError("owners is given with a partitioner, whose partitions are the owners; leave it out")
        parts = [train.load_partition(number) for number in range(train.num_partitions)]
        read = [_samples(part, columns, layout) for part in parts if len(part)]
        if not read:
            raise InputError("the partitioner has no samples; give its data set some")
        x, y = (np.concatenate(pieces) for pieces in zip(*read, strict=True))
        whose = np.repeat(np.arange(len(read)), [len(labels) for _, labels in read])
        arrays = {"train_x": x, "train_y": y, "owners": whose, **_classes(parts[0], label)}
    else:
        x, y = _samples(train, columns, layout)
        arrays = {"train_x": x, "train_y": y, **_classes(train, label)}
        if owners is not None:
            given = _column(train, owners) if isinstance(owners, str) else owners
            arrays["owners"] = np.unique(np.asarray(given), return_inverse=True)[1]
    test_x, test_y = _samples(test, columns, layout)
    return scaled(checked_arrays(name, name, arrays | {"test_x": test_x, "test_y": test_y}), scaling, name)


def read_disk(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of ``hf:PATH``; see the module."""
    if not path.is_dir():
        raise InputError(f"the data set 'hf:{path}' does not exist; give a directory")
    with tempfile.TemporaryDirectory(prefix="fedcell-") as cache:
        splits = _splits(path, cache)
        parts = {part: splits[part] for part in ("train", "test") if part in splits}
        if len(parts) < 2:
            raise InputError(f"hf:{path} has the splits {', '.join(splits) or 'none'}; give it train and test")
        arrays = dict(_classes(parts["train"], None))
        for part, split in parts.items():
            arrays[f"{part}_x"], arrays[f"{part}_y"] = _samples(split, (None, None), "CHW")
    return arrays


def _splits(path: Path, cache: str) -> dict[str, Any]:
    try:
        import datasets
    except ImportError:
        raise InputError(
            "task.data is 'hf:...', which needs Hugging Face's datasets; pip install 'fedcell[datasets]'"
        ) from None
    try:
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            found = datasets.load_from_disk(os.fspath(path))
            return dict(found) if isinstance(found, datasets.DatasetDict) else {"train": found}
        tables = {part: sorted(map(os.fspath, path.rglob(f"{part}*.parquet"))) for part in ("train", "test")}
        if any(tables.values()):
            named = {part: files for part, files in tables.items() if files}
            return dict(datasets.load_dataset("parquet", data_files=named, cache_dir=cache, keep_in_memory=True))
        if any(next((path / "train").rglob(kind), None) for kind in PICTURES):
            return dict(datasets.load_dataset("imagefolder", data_dir=os.fspath(path), cache_dir=cache))
    except Exception as error:  # whatever is wrong with the files
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"hf:{path} cannot be read ({reason}); write it with save_to_disk") from None
    raise InputError(f"hf:{path} has no data set; give one of save_to_disk, Parquet files or folders of images")


def _samples(source: Any, columns: tuple[str | None, str | None], layout: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return inputs and labels of a pair of arrays, or of a data set's columns."""
    if isinstance(source, tuple) and len(source) == 2:
        x, y = (np.asarray(part) for part in source)
    elif hasattr(source, "features"):
        inputs = columns[0] or _input_column(source)
        y = _column(source, columns[1] or _label_column(source))
        if type(source.features[inputs]).__name__ == "Image":
            return _images(_column(source, inputs, whole=False), inputs, len(source)), y
        x = _column(source, inputs)
        x = x.astype(np.uint8) if x.dtype.kind in "iu" and x.min(initial=0) >= 0 and x.max(initial=0) <= 255 else x
    else:
        kind = type(source).__name__
        raise InputError(f"the samples are a {kind}; give a pair of arrays, a datasets.Dataset or Flower's partitioner")
    return (channels_first(x, "inputs") if layout == "HWC" else x), y


def _input_column(source: Any) -> str:
    kinds = {name: type(feature).__name__ for name, feature in source.features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    tables = [
        name for name, kind in kinds.items() if kind in ("List", "LargeList", "Sequence") or kind.startswith("Array")
    ]
    found = images or tables
    if len(found) != 1:
        raise InputError(f"the columns {', '.join(kinds)} have {len(found)} of images or numbers; name one as inputs")
    return str(found[0])


def _label_column(source: Any) -> str:
    classes = [name for name, feature in source.features.items() if type(feature).__name__ == "ClassLabel"]
    found = classes if len(classes) == 1 else [name for name in LABELS if name in source.features]
    if not found:
        raise InputError(f"none of the columns {', '.join(source.features)} is one of labels; name it as label")
    return str(found[0])


def _classes(source: Any, label: str | None) -> dict[str, NDArray[Any]]:
    """Return the number of classes, if the data set has it."""
    features = getattr(source, "features", None)
    count = getattr(features[label or _label_column(source)], "num_classes", None) if features else None
    return {} if count is None else {"classes": np.array(count)}


def _column(source: Any, name: str, whole: bool = True) -> Any:
    if not hasattr(source, "features"):
        raise InputError(f"the column {name!r} is asked for, but the samples are arrays; give values")
    if name not in source.features:
        raise InputError(f"there is no column {name!r}; {did_you_mean(name, source.features)}")
    return np.asarray(source.with_format("numpy")[name][:]) if whole else source.with_format(None)[name]


def _images(pictures: Sequence[Any], name: str, count: int) -> NDArray[np.uint8]:
    """PIL's images as (n, height, width) or, with colours, (n, 3, height, width)."""
    mode = "L" if count and pictures[0].mode in ("1", "L", "I", "I;16", "F") else "RGB"
    width, height = pictures[0].size if count else (0, 0)
    channels = 1 if mode == "L" else 3
    if count * channels * width * height > MAX_ARRAY_BYTES:
        raise InputError(
            f"{name}: {count} images of {width} x {height} take over {MAX_ARRAY_BYTES} bytes; make them smaller"
        )
    found = np.empty((count, height, width, channels), np.uint8)
    for number, picture in enumerate(pictures):
        if picture.size != (width, height):
            raise InputError(
                f"{name}[{number}] is {picture.size[0]} x {picture.size[1]}, not {width} x {height}; resize it"
            )
        found[number] = np.asarray(picture.convert(mode)).reshape(height, width, channels)
    return found[..., 0] if mode == "L" else np.ascontiguousarray(np.moveaxis(found, 3, 1))
