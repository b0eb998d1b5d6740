"""The data and the marks of the app ``apps/digits``, which the soak and benchmarks/dedicated.py run."""

from pathlib import Path

import numpy as np

from fedcell.learn.data import load_dataset
from flower.runs import APPS

DIGITS = APPS / "digits"
LIES = ("nan", "huge", "shape", "bytes", "examples", "metric", "nothing")
SAMPLES, TESTED = 300, 2000


def write_digits(folder: Path, devices: int, labels: int = 2) -> None:
    """Give each device MNIST digits of a few labels, and the server a test set."""
    mnist, rng = load_dataset("mnist", "unit"), np.random.default_rng(0)
    by_label = [np.flatnonzero(mnist.train_y == label) for label in range(10)]
    for i in range(devices):
        mine = [(labels * i + j) % 10 for j in range(labels)]
        chosen = np.concatenate([rng.choice(by_label[label], SAMPLES // labels, replace=False) for label in mine])
        _save(folder / f"part-{i}.npz", mnist.train_x[chosen], mnist.train_y[chosen])
    _save(folder / "test.npz", mnist.test_x[:TESTED], mnist.test_y[:TESTED])


def _save(path: Path, x: np.ndarray, y: np.ndarray) -> None:
    np.savez(path, x=(x.reshape(len(x), -1) / 255.0).astype(np.float32), y=y)


def mark(folder: Path, kind: str, device: int, text: str | None) -> None:
    """Write a mark of a device, or remove it (None); a client never sees half of it."""
    path = folder / f"{kind}-{device}"
    if text is None:
        path.unlink(missing_ok=True)
    else:
        path.with_suffix(".tmp").write_text(text)
        path.with_suffix(".tmp").replace(path)
