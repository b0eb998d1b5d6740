"""A data set small enough for a sweep of many runs."""

from pathlib import Path

import numpy as np

from fedcell.learn.data import load_dataset


def write_small_npz(path: Path) -> None:
    """The first 400 training and 200 test digits of MNIST."""
    d = load_dataset("mnist")
    np.savez(path, train_x=d.train_x[:400], train_y=d.train_y[:400], test_x=d.test_x[:200], test_y=d.test_y[:200])
