"""A data set small enough for a sweep of many runs."""

from pathlib import Path

import numpy as np

from fedcell.learn.data import load_dataset


def write_small_npz(path: Path, train: int = 400) -> None:
    """The first training digits of MNIST, and the first 200 test digits."""
    d = load_dataset("mnist")
    np.savez(path, train_x=d.train_x[:train], train_y=d.train_y[:train], test_x=d.test_x[:200], test_y=d.test_y[:200])
