"""A data set small enough for a sweep of many runs."""

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcell.learn.data import load_dataset

MOST = 6000


def write_small_npz(path: Path, train: int = 400) -> None:
    """The first training digits of MNIST, at most 6,000, and the first 200 test digits."""
    assert train <= MOST
    train_x, train_y, test_x, test_y = _digits()
    np.savez(path, train_x=train_x[:train], train_y=train_y[:train], test_x=test_x[:200], test_y=test_y[:200])


@cache
def _digits() -> list[NDArray[np.generic]]:
    """Read once for all tests of a worker: 0.3 s."""
    d = load_dataset("mnist")
    return [array[:MOST].copy() for array in (d.train_x, d.train_y, d.test_x, d.test_y)]
