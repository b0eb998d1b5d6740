"""CIFAR-10 and CIFAR-100 in their binary version, from the archive or from the directory that it unpacks to.

A record is one label byte (CIFAR-100: two, the coarse label and the fine one, which counts) and 3,072 bytes, the image
by channels, (3, 32, 32). An archive is read from front to back and never unpacked.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from fedcell.errors import InputError

IMAGE = (3, 32, 32)
TRAIN_10 = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
RECORDS = {(*TRAIN_10, "test_batch.bin"): (1, 10), ("train.bin", "test.bin"): (2, 100)}
"""The files of each data set, the last of which has the test samples; its label bytes, and its classes."""
MAX_BYTES = 256 << 20
"""Of an archive once unpacked; the published ones have 184 MB."""


def cifar_paths(folder: Path) -> list[Path]:
    """Return the files of a CIFAR directory, in their order; none if it is not one."""
    for names in RECORDS:
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
    wanted, found = {name for names in RECORDS for name in names}, dict[str, bytes]()
    try:
        with gzip.open(path) as unzipped, tarfile.open(fileobj=_Bounded(unzipped, path), mode="r|") as archive:
            for member in archive:
                name = member.name.rsplit("/", 1)[-1]
                if member.isfile() and name in wanted and (file := archive.extractfile(member)) is not None:
                    found[name] = file.read()
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); download it again") from error
    return _arrays(found, path)


def read_cifar_folder(folder: Path) -> dict[str, NDArray[Any]]:
    """Read the directory that such an archive unpacks to; see `read_archive`."""
    found = {}
    for path in cifar_paths(folder):
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is over {MAX_BYTES} bytes and not CIFAR's; give another directory")
        if path.is_file():
            found[path.name] = path.read_bytes()
    return _arrays(found, folder)


class _Bounded(io.RawIOBase):
    """A gzip file of which at most MAX_BYTES can be read, whatever its headers promise."""

    def __init__(self, file: gzip.GzipFile, path: Path) -> None:
        self._file, self._path, self._left = file, path, MAX_BYTES

    @override
    def read(self, count: int = -1) -> bytes:
        block = self._file.read(count)
        self._left -= len(block)
        if self._left < 0:
            raise InputError(f"{self._path} unpacks to over {MAX_BYTES} bytes and is not CIFAR's; download it again")
        return block


def _arrays(files: Mapping[str, bytes], source: Path) -> dict[str, NDArray[Any]]:
    names = max(RECORDS, key=lambda names: len(files.keys() & names) / len(names))
    missing = [name for name in names if name not in files]
    if missing:
        raise InputError(f"{source} has no file {missing[0]}; give CIFAR's binary version, .tar.gz or unpacked")
    labels, classes = RECORDS[names]
    *train, test = [_records(files[name], labels, f"{source}: {name}") for name in names]
    train_x, train_y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return {"train_x": train_x, "train_y": train_y, "test_x": test[0], "test_y": test[1], "classes": np.array(classes)}


def _records(content: bytes, labels: int, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (n, 3, 32, 32) and labels (n,) of a file."""
    size = labels + int(np.prod(IMAGE))
    if not content or len(content) % size:
        raise InputError(f"{name} has {len(content)} bytes, which are no records of {size}; download it again")
    rows = np.frombuffer(content, np.uint8).reshape(-1, size)
    return rows[:, labels:].reshape(-1, *IMAGE).copy(), rows[:, labels - 1].copy()
