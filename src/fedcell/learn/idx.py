"""The idx files of MNIST and Fashion-MNIST: arrays of bytes with a short header, plain or ``.gz``."""

import hashlib
import itertools
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        blocks = _blocks(path)
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


def _blocks(path: Path) -> Iterator[bytes]:
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
