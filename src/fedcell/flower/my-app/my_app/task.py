"""my-app: the model, the data and the training. Replace them with yours."""

from functools import cache
from itertools import chain, islice, repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from fedcell.learn.data import Dataset, load_dataset
from fedcell.learn.partition import partition

Loader = DataLoader[tuple[Tensor, ...]]
torch.set_num_threads(1)  # enough for so small a model, and the nodes of a simulation share the cores


class Net(nn.Module):
    """YOUR MODEL: here a small MLP for digits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Return a score for each label."""
        return self.layers(x)


def load_data(partition_id: int, num_partitions: int, batch_size: int) -> tuple[Loader, Loader]:
    """YOUR DATA: this node's training and validation samples.

    Here a node has four of MNIST's ten digits, which come with fedcell. A real node would read its own files instead.
    """
    parts = partition(mnist().train_y, num_partitions, "labels:4", np.random.default_rng(0))
    samples = to_dataset(mnist().train_x[parts[partition_id]], mnist().train_y[parts[partition_id]])
    training, validation = random_split(samples, [0.8, 0.2], torch.Generator().manual_seed(0))
    return DataLoader(training, batch_size, shuffle=True), DataLoader(validation, batch_size)


def load_test_data(batch_size: int) -> Loader:
    """YOUR TEST DATA: what the server evaluates the model on after each round."""
    return DataLoader(to_dataset(mnist().test_x, mnist().test_y), batch_size)


@cache
def mnist() -> Dataset:
    """Load MNIST, once in a process."""
    return load_dataset("mnist")


def to_dataset(x: NDArray[np.uint8], y: NDArray[np.int64]) -> TensorDataset:
    """Return images, scaled as usual, and their labels."""
    images = (torch.from_numpy(x).float() / 255 - mnist().shift) / mnist().scale
    return TensorDataset(images, torch.from_numpy(y))


def train(net: nn.Module, loader: Loader, epochs: float, learning_rate: float, device: torch.device) -> float:
    """Train the model in place, for whole epochs or a part of one; return the mean loss."""
    net.to(device).train()
    optimizer = torch.optim.SGD(net.parameters(), learning_rate, momentum=0.9)
    steps, total = max(1, round(epochs * len(loader))), 0.0
    for x, y in islice(chain.from_iterable(repeat(loader)), steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / steps


def test(net: nn.Module, loader: Loader, device: torch.device) -> tuple[float, float]:
    """Return the mean loss and the accuracy."""
    net.to(device).eval()
    total, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            scores, labels = net(x.to(device)), y.to(device)
            total += nn.functional.cross_entropy(scores, labels, reduction="sum").item()
            correct += int((scores.argmax(1) == labels).sum())
            count += len(labels)
    return total / count, correct / count
