"""Rounds of many runs in one small file, without their plans: to bring what other machines computed together.

It is an .npz file of plain arrays: the keys of the runs, how many rounds each has, and the columns of Rounds, one run
after the other. A store has more of each round and is some ten times larger.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from fedcell.errors import InputError
from fedcell.files import read_npz
from fedcell.runs.records import Rounds

FORMAT = 1
KEY_BYTES = 32
COLUMNS = ("clock_s", "round_s", "devices", "accuracy", "spent_j")


def write_rounds(file: IO[bytes], runs: Mapping[str, Rounds]) -> None:
    """Write the rounds of runs into an open file.

    Args:
        file: binary and seekable.
        runs: by their keys.
    """
    keys = np.frombuffer(b"".join(map(bytes.fromhex, runs)), np.uint8).reshape(-1, KEY_BYTES)
    columns = {name: np.concatenate([np.empty(0), *(getattr(run, name) for run in runs.values())]) for name in COLUMNS}
    np.savez_compressed(
        file,
        format=np.array(FORMAT),
        keys=keys,
        lengths=np.array([len(run) for run in runs.values()], np.int64),
        diverged=np.array([run.diverged for run in runs.values()], np.bool_),
        **columns,  # type: ignore[arg-type]  # NumPy's stub takes a keyword for allow_pickle
    )


def read_rounds(path: Path) -> dict[str, Rounds]:
    """The rounds of the runs in a file, by key; an InputError if it is not such a file.

    Args:
        path: of a file that write_rounds wrote.
    """
    try:
        arrays = read_npz(path)
        if int(arrays["format"]) != FORMAT:
            raise ValueError(f"it has format {int(arrays['format'])}, and this fedcell reads {FORMAT}")
        keys, lengths, diverged = arrays["keys"], arrays["lengths"], arrays["diverged"]
        columns = [arrays[name].astype(np.float64) for name in COLUMNS]
        ends = np.cumsum(lengths)
        sizes = {column.shape for column in columns}
        if keys.shape != (lengths.size, KEY_BYTES) or keys.dtype != np.uint8 or diverged.shape != lengths.shape:
            raise ValueError("it does not say which runs it has")
        if (lengths < 0).any() or sizes != {(int(lengths.sum()),)}:
            raise ValueError("its columns are not as long as its runs")
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path} is no file of rounds ({reason}); give one that fedcell results export --rounds wrote"
        ) from None
    found = {}
    for key, end, length, over in zip(keys, ends.tolist(), lengths.tolist(), diverged.tolist(), strict=True):
        clock_s, round_s, devices, accuracy, spent_j = (column[end - length : end] for column in columns)
        found[key.tobytes().hex()] = Rounds(clock_s, round_s, devices, accuracy, over, spent_j)
    return found
