"""The file formats of published data sets: idx (MNIST and Fashion-MNIST), CIFAR's binary version, and LEAF's JSON.

An idx file is an array of bytes with a short header, plain or ``.gz``.

CIFAR-10 and CIFAR-100 are read from the archive or from the directory that it unpacks to. A record is one label byte
(CIFAR-100: two, the coarse label and the fine one, which counts) and 3,072 bytes, the image by channels, (3, 32, 32).
An archive is read from front to back and never unpacked.

LEAF's samples (FEMNIST and its like) have a writer, and every writer is a device of its own. A directory has ``train``
and ``test``, each with JSON files of ``{"users": [...], "num_samples": [...], "user_data": {user: {"x": [[...], ...],
"y": [...]}}}``, as LEAF's ``preprocess.sh -t sample`` or ``-t user`` leaves them. FEMNIST's inputs are pixels divided
by 255, in rows of 784: they become bytes and images of 28 x 28 again.
"""

import gzip
import hashlib
import io
import itertools
import json
import math
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from fedcell.errors import InputError
from fedcell.runtime import on_threads

IDX_FILES = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
FIELDS = tuple(IDX_FILES)
IDX_MAGIC = (b"\0\0\x08\x01", b"\0\0\x08\x03")  # bytes in one dimension (labels) and in three (images)
BLOCK_BYTES = 1 << 20
MAX_ARRAY_BYTES = 2 << 30
FILE_ERRORS = (OSError, EOFError, MemoryError, zlib.error, zipfile.BadZipFile)


def read_idx(path: Path, sha256: str | None = None, origin: str | None = None) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes, plain or ``.gz``, into an array of the shape its header declares.

    Reading stops when the declared size is exceeded, so that a small malicious file cannot fill the memory.

    Args:
        path: the file.
        sha256: the expected SHA-256 of its uncompressed content, in hex; None accepts any.
        origin: the name of the file in error messages; by default its path.

    Returns:
        The content, of the shape that the header declares.
    """
    name = origin or str(path)
    try:
        blocks = _idx_blocks(path)
        first = next(blocks, b"")
        magic = first[:4]
        if magic not in IDX_MAGIC:
            raise InputError(f"{name} starts with {magic.hex()!r} and is not an idx file; download it again")
        if len(first) < 4 + 4 * magic[3]:
            raise InputError(f"{name} ends within its header; download it again")
        header, rest = first[: 4 + 4 * magic[3]], first[4 + 4 * magic[3] :]
        shape = tuple(int(length) for length in np.frombuffer(header, ">u4", offset=4))
        size = math.prod(shape)
        if size > MAX_ARRAY_BYTES:
            raise InputError(f"{name} declares {size} bytes, over {MAX_ARRAY_BYTES}; use a smaller file")
        array = np.empty(size, np.uint8)
        digest, filled = hashlib.sha256(header), 0
        for block in itertools.chain([rest], blocks):
            if filled + len(block) > size:
                raise InputError(f"{name} declares {size} bytes but has more; download it again")
            array[filled : filled + len(block)] = np.frombuffer(block, np.uint8)
            digest.update(block)
            filled += len(block)
    except FILE_ERRORS as error:
        raise InputError(f"{name} cannot be read ({error}); download it again") from error
    if filled < size:
        raise InputError(f"{name} declares {size} bytes but has only {filled}; download it again")
    if sha256 is not None and digest.hexdigest() != sha256:
        raise InputError(f"{name} has the SHA-256 {digest.hexdigest()}, not {sha256}; download it again")
    return array.reshape(shape)


def _idx_blocks(path: Path) -> Iterator[bytes]:
    """The file's uncompressed content in blocks of at most 1 MiB (gzip.open takes a third longer)."""
    with open(path, "rb") as file:
        if path.suffix != ".gz":
            yield from iter(lambda: file.read(BLOCK_BYTES), b"")
            return
        unzip = zlib.decompressobj(wbits=31)
        while not unzip.eof:
            compressed = unzip.unconsumed_tail or file.read(BLOCK_BYTES // 8)
            block = unzip.decompress(compressed, BLOCK_BYTES)
            if not compressed and not block:
                raise EOFError("it ends too early")
            yield block


def read_folder(folder: Path, sha256: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """Read the four idx files of a data set.

    Args:
        folder: the directory.
        sha256: the expected sums, by field; files of other fields may be anything.

    Returns:
        The arrays ``train_x``, ``train_y``, ``test_x`` and ``test_y``.
    """
    paths = idx_paths(folder)
    for field, path in paths.items():
        if not path.exists():
            raise InputError(f"{folder} has no file {IDX_FILES[field]}.gz ({field}); put the four idx files there")
    arrays = on_threads(lambda field: read_idx(paths[field], sha256.get(field)), FIELDS, len(FIELDS))
    return dict(zip(FIELDS, arrays, strict=True))


def idx_paths(folder: Path) -> dict[str, Path]:
    """Return the paths of the four files, by field: with ``.gz`` where that exists."""
    zipped = {field: folder / f"{file}.gz" for field, file in IDX_FILES.items()}
    return {field: path if path.exists() else path.with_suffix("") for field, path in zipped.items()}


CIFAR_IMAGE = (3, 32, 32)
CIFAR_10_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
CIFAR_RECORDS = {(*CIFAR_10_TRAIN, "test_batch.bin"): (1, 10), ("train.bin", "test.bin"): (2, 100)}
"""The files of each data set, the last of which has the test samples; its label bytes, and its classes."""
MAX_CIFAR_BYTES = 256 << 20
"""Of an archive once unpacked; the published ones have 184 MB."""


def cifar_paths(folder: Path) -> list[Path]:
    """Return the files of a CIFAR directory, in their order; none if it is not one."""
    for names in CIFAR_RECORDS:
        if (folder / names[0]).is_file() and (folder / names[-1]).is_file():
            return [folder / name for name in names]
    return []


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """Read ``cifar-10-binary.tar.gz`` or ``cifar-100-binary.tar.gz``, or an archive with files of the same names.

    Args:
        path: the archive.

    Returns:
        The arrays ``train_x`` (N, 3, 32, 32), ``train_y``, ``test_x`` and ``test_y``, and the number ``classes``.
    """
    wanted, found = {name for names in CIFAR_RECORDS for name in names}, dict[str, bytes]()
    try:
        with gzip.open(path) as unzipped, tarfile.open(fileobj=_Bounded(unzipped, path), mode="r|") as archive:
            for member in archive:
                name = member.name.rsplit("/", 1)[-1]
                if member.isfile() and name in wanted and (file := archive.extractfile(member)) is not None:
                    found[name] = file.read()
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); download it again") from error
    return _cifar_arrays(found, path)


def read_cifar_folder(folder: Path) -> dict[str, NDArray[Any]]:
    """Read the directory that such an archive unpacks to; see `read_archive`."""
    found = {}
    for path in cifar_paths(folder):
        if path.is_file() and path.stat().st_size > MAX_CIFAR_BYTES:
            raise InputError(f"{path} is over {MAX_CIFAR_BYTES} bytes and not CIFAR's; give another directory")
        if path.is_file():
            found[path.name] = path.read_bytes()
    return _cifar_arrays(found, folder)


class _Bounded(io.RawIOBase):
    """A gzip file of which at most MAX_CIFAR_BYTES can be read, whatever its headers promise."""

    def __init__(self, file: gzip.GzipFile, path: Path) -> None:
        self._file, self._path, self._left = file, path, MAX_CIFAR_BYTES

    @override
    def read(self, count: int = -1) -> bytes:
        block = self._file.read(count)
        self._left -= len(block)
        if self._left < 0:
            raise InputError(f"{self._path} unpacks to over {MAX_CIFAR_BYTES} bytes, not CIFAR's; download it again")
        return block


def _cifar_arrays(files: Mapping[str, bytes], source: Path) -> dict[str, NDArray[Any]]:
    names = max(CIFAR_RECORDS, key=lambda names: len(files.keys() & names) / len(names))
    missing = [name for name in names if name not in files]
    if missing:
        raise InputError(f"{source} has no file {missing[0]}; give CIFAR's binary version, .tar.gz or unpacked")
    labels, classes = CIFAR_RECORDS[names]
    *train, test = [_cifar_records(files[name], labels, f"{source}: {name}") for name in names]
    train_x, train_y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return {"train_x": train_x, "train_y": train_y, "test_x": test[0], "test_y": test[1], "classes": np.array(classes)}


def _cifar_records(content: bytes, labels: int, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (n, 3, 32, 32) and labels (n,) of a file."""
    size = labels + int(np.prod(CIFAR_IMAGE))
    if not content or len(content) % size:
        raise InputError(f"{name} has {len(content)} bytes, which are no records of {size}; download it again")
    rows = np.frombuffer(content, np.uint8).reshape(-1, size)
    return rows[:, labels:].reshape(-1, *CIFAR_IMAGE).copy(), rows[:, labels - 1].copy()


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
    train, test = (_leaf_part(paths) for paths in leaf_paths(folder).values())
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


def _leaf_part(paths: list[Path]) -> tuple[list[NDArray[Any]], list[NDArray[np.int64]]]:
    """Return inputs and labels of every user, in the order of the files."""
    inputs, labels, seen, size = list[NDArray[Any]](), list[NDArray[np.int64]](), set[str](), 0
    for path in paths:
        document = _leaf_document(path)
        for user in document["users"]:
            if not isinstance(user, str) or user in seen:
                raise InputError(f"{path}: the user {str(user)[:60]!r} is there twice or has no name; give each one")
            seen.add(user)
            x, y = _leaf_samples(document["user_data"].get(user), f"{path}: user {user[:60]!r}")
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


def _leaf_document(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InputError(f"{path} is over {MAX_FILE_BYTES} bytes; LEAF puts 100 users into a file; split it likewise")
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path} is not JSON ({error}); make it with LEAF's preprocess.sh") from None
    fields = {"users": list, "user_data": dict}
    if not isinstance(document, dict) or not all(isinstance(document.get(f), kind) for f, kind in fields.items()):
        raise InputError(f"{path} has no list 'users' and object 'user_data'; make it with LEAF's preprocess.sh")
    return document


def _leaf_samples(data: Any, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
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
