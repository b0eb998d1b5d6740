"""NumPy's .npz files of anybody: a zip may say that it unpacks to a thousand times its size, so it is asked first."""

import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

ALWAYS_BYTES = 2**28
"""So much may be unpacked of any file."""


def unpacked_bytes(source: Path | IO[bytes]) -> int:
    """What the file says that it unpacks to, in bytes; zipfile reads no more than that, whatever is really there."""
    with zipfile.ZipFile(source) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def read_npz(source: Path | IO[bytes]) -> dict[str, NDArray[Any]]:
    """Read all arrays of a file that ``numpy.savez`` wrote: it does not compress, so they take no more than the file.

    Args:
        source: a path, or an open file.

    Returns:
        The arrays by name; whatever is wrong with the file is a ValueError, and what it cannot be read for an OSError.
    """
    if isinstance(source, Path):
        if not source.is_file():
            raise ValueError("it is not a regular file")  # a pipe would never end
        with source.open("rb") as file:
            return read_npz(file)
    here = source.seek(0, os.SEEK_END)
    try:
        size = unpacked_bytes(source)
        if size > max(here, ALWAYS_BYTES):
            raise ValueError(f"its {here:,} bytes would unpack to {size:,}")
        source.seek(0)
        with np.load(source, allow_pickle=False) as members:
            return {name: members[name] for name in members.files}
    except (OSError, ValueError):
        raise
    except Exception as error:  # encrypted, packed in an unknown way, cut short, of shapes that fit nowhere
        raise ValueError(f"{type(error).__name__}: {error}") from None
