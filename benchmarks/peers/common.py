"""What every peer script shares: the round's data in, its timings out. `benchmarks/training.py` writes the data."""

import json
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH = 10
LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Work:
    """The same work for everyone.

    Attributes:
        x: (clients, samples, 784), standardised inputs, float32.
        y: (clients, samples), labels.
        test_x: (tests, 784).
        test_y: (tests,).
        orders: (rounds, clients, samples), the order in which a client visits its samples.
        start: the weights at the start: w1 (64, 784), b1, w2 (10, 64), b2, as PyTorch holds them.
        warm: how many of the rounds are not to be timed.
    """

    x: NDArray[np.float32]
    y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    orders: NDArray[np.int64]
    start: list[NDArray[np.float32]]
    warm: int

    @property
    def clients(self) -> int:
        """How many clients take part in every round."""
        return len(self.x)

    @property
    def rounds(self) -> int:
        """How many rounds there are, with those of the warm-up."""
        return len(self.orders)


@lru_cache(maxsize=1)
def load(path: str) -> Work:
    """Read the work once a process."""
    with np.load(path) as file:
        shift, scale = np.float32(file["shift"]), np.float32(file["scale"])
        x, test_x = ((file[name] / np.float32(255) - shift) / scale for name in ("x", "test_x"))
        start = [file[name] for name in ("w1", "b1", "w2", "b2")]
        return Work(x, file["y"], test_x, file["test_y"], file["orders"], start, int(file["warm"]))


class Stopwatch:
    """Takes the time at the end of every round."""

    def __init__(self, work: Work) -> None:
        self._warm = work.warm
        self._ends: list[float] = []

    def lap(self) -> None:
        """A round has ended (or, at the first call, the first one begins)."""
        self._ends.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """How long each round took that is not of the warm-up."""
        return np.diff(self._ends).tolist()[self._warm :]


def report(version: str, watch: Stopwatch, accuracy: Any, note: str) -> None:
    """Print what training.py reads: one line of JSON."""
    seconds = watch.seconds()
    print(json.dumps({"version": version, "seconds": seconds, "accuracy": float(accuracy), "note": note}), flush=True)
