"""A model's arrays in a file, with some texts about it: safetensors or .npz; no code is in either.

A .safetensors file is the length of its header (8 bytes, little-endian), the header (JSON: type, shape and place of
each array, and texts under ``__metadata__``), and then the arrays' bytes, one after the other, without gaps
(https://github.com/huggingface/safetensors). An .npz file is a zip of NumPy arrays; the texts are one of them.
"""

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedcell.errors import InputError, printable
from fedcell.learn.npz import read_npz

Arrays = dict[str, NDArray[np.float32]]

ENDINGS = (".safetensors", ".npz")
MAX_HEADER_BYTES = 100_000_000  # as in the safetensors library
_TEXTS = "__metadata__"


def write_arrays(
    file: IO[bytes], ending: str, arrays: Mapping[str, NDArray[np.float32]], about: Mapping[str, str]
) -> None:
    """Write arrays and texts.

    Args:
        file: where to.
        ending: ``.safetensors`` or ``.npz``.
        arrays: by name, in the order in which they are to stand there.
        about: texts by name.
    """
    if ending == ".npz":
        np.savez(file, **arrays, **{_TEXTS: np.array(json.dumps(dict(about)))})  # type: ignore[arg-type]
        return
    header: dict[str, Any] = {_TEXTS: dict(about)}
    at = 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + 4 * array.size]}
        at += 4 * array.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the arrays begin at a multiple of 8 bytes
    file.write(struct.pack("<Q", len(text)) + text)
    for array in arrays.values():
        file.write(array.astype("<f4").tobytes())


def read_arrays(path: str | Path) -> tuple[Arrays, dict[str, str]]:
    """Read a file that `write_arrays` wrote, or another of the same kind with float32 arrays.

    Args:
        path: its ending tells its kind.

    Returns:
        The arrays by name, and the texts about them.
    """
    place = Path(path)
    if place.suffix not in ENDINGS:
        raise InputError(f"{path} is not the name of a model file; give one that ends with {' or '.join(ENDINGS)}")
    if place.exists() and not place.is_file():  # a pipe would never end
        raise InputError(f"cannot read {path}: it is not a regular file; give a model file")
    try:
        with place.open("rb") as file:
            return _read_npz(file) if place.suffix == ".npz" else _read_safetensors(file)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; give a model file") from None
    except Exception as error:  # whatever somebody has written there
        reason = printable(" ".join(str(error).split())[:200])
        raise InputError(f"{path} is not a whole model file ({reason}); save the model again") from None


def _read_npz(file: IO[bytes]) -> tuple[Arrays, dict[str, str]]:
    content = read_npz(file)
    about = json.loads(str(content.pop(_TEXTS, "{}")))
    return {name: np.asarray(array, np.float32) for name, array in content.items()}, dict(about)


def _read_safetensors(file: IO[bytes]) -> tuple[Arrays, dict[str, str]]:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"its header would have {length} bytes")
    text = file.read(length)
    if len(text) < length:
        raise ValueError("it ends within its header")
    header = dict(json.loads(text))
    about = header.pop(_TEXTS, {})
    content, at, arrays = file.read(), 0, Arrays()
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if entry["dtype"] != "F32" or begin != at or end - begin != 4 * prod(entry["shape"]):
            raise ValueError(f"{name[:60]!r} is no float32 array of its shape, or not where it should be")
        arrays[name] = np.frombuffer(content[begin:end], "<f4").reshape(entry["shape"]).astype(np.float32)
        at = end
    if at != len(content):
        raise ValueError(f"{len(content)} bytes of arrays instead of {at}")
    return arrays, dict(about)
