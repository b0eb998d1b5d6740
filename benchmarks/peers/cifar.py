"""pfl's published CIFAR-10 work, for everyone alike: 50 images a client, batches of 10, one epoch; dropout left out.

The images are made here, 3 x 32 x 32 bytes with ten classes that a network can learn: times do not depend on what they
show, and no download is needed.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedcell.learn.data import Dataset

SAMPLES, BATCH, RATE = 50, 10, 0.1


def network() -> nn.Sequential:
    """Convolutions of 32 and 64 channels, 3 x 3; pooling; 128 dense units; 1,626,442 weights."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12544, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def images(train: int = 50_000, test: int = 10_000) -> Dataset:
    """Ten blurred patterns, each image one of them under noise."""
    rng = np.random.default_rng(0)
    coarse = rng.normal(size=(10, 3, 8, 8)).repeat(4, axis=2).repeat(4, axis=3)

    def draw(count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        labels = rng.integers(0, 10, count)
        noise = rng.normal(size=(count, 3, 32, 32)).astype(np.float32)
        pixels = 128 + 12 * coarse[labels].astype(np.float32) + 50 * noise
        return np.clip(pixels, 0, 255).astype(np.uint8), labels

    (x, y), (test_x, test_y) = draw(train), draw(test)
    return Dataset("images", x, y, test_x, test_y, 10, 0.5, 0.25)


def orders(clients: int, rounds: int, samples: int = 50_000) -> NDArray[np.int64]:
    """(rounds, clients, 50) the images of each client in the order it visits them."""
    rng = np.random.default_rng(1)
    return np.stack([rng.permutation(samples)[: clients * SAMPLES].reshape(clients, SAMPLES) for _ in range(rounds)])


def flops(clients: int) -> float:
    """Multiply-adds of a round, twice: forward, and twice that backward but for the first layer's inputs."""
    first, second, dense = 900 * 32 * 27, 784 * 64 * 288, 12544 * 128 + 1280
    return 2.0 * clients * SAMPLES * (3 * (second + dense) + 2 * first)


def moved_bytes(clients: int, weights: int) -> float:
    """Weights read forward and backward, gradients written, and weights read and written in the update, a step."""
    return 4.0 * clients * weights * 5 * (SAMPLES // BATCH)


def make_weights() -> list[NDArray[Any]]:
    """Initial weights, the same for everyone."""
    rng = np.random.default_rng(2)
    found = []
    for layer in network():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = 1 / np.sqrt(np.prod(layer.weight.shape[1:]))
            found += [rng.uniform(-bound, bound, tuple(p.shape)).astype(np.float32) for p in layer.parameters()]
    return found
