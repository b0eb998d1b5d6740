"""A race on CIFAR-10 with a small ResNet that has GroupNorm (pip install 'fedcell[torch]'); made for a GPU.

With the published archive (in $FEDCELL_DATA, in the cache, or given by path) and a GPU this is the real thing: 20
devices, 2,500 images of two labels each. Without the archive the images are made up and few, so that it runs anywhere
in seconds; what is then learnt means nothing.

Run: python examples/cifar_resnet.py [path/to/cifar-10-binary.tar.gz] [rounds]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import fedcell as fc


class Block(nn.Module):
    """Two convolutions with a way around them; GroupNorm, for a mean over clients has no use for batch statistics."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False),
            nn.GroupNorm(4, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.GroupNorm(4, channels),
        )
        same = stride == 1 and channels_in == channels
        self.around = nn.Identity() if same else nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return what follows (n, channels_in, height, width)."""
        return torch.relu(self.body(x) + self.around(x))


class Mean(nn.Module):
    """The mean of each channel; a stack of clients takes it in one operation, other than PyTorch's adaptive pooling."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, channels) of (n, channels, height, width)."""
        return x.mean((2, 3))


def resnet(data: fc.Dataset) -> nn.Module:
    """A ResNet of three stages for images (channels, height, width): ``task.model`` names this function."""
    channels = data.train_x.shape[1]
    stem = [nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.GroupNorm(4, 16), nn.ReLU()]
    stages = [Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)]
    return nn.Sequential(*stem, *stages, Mean(), nn.Linear(64, data.classes))


def made_up(folder: str) -> str:
    """A small data set of CIFAR's shape in a file: 10 colours with a lot of noise."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 200)
    colours = rng.integers(60, 196, (10, 3, 1, 1))
    images = np.clip(colours[labels] + rng.normal(0, 40, (200, 3, 32, 32)), 0, 255).astype(np.uint8)
    data = fc.dataset_from((images[:160], labels[:160]), (images[160:], labels[160:]))
    return str(fc.save_dataset(data, Path(folder) / "made-up.npz"))


def race(data: str, rounds: int, small: bool) -> fc.RaceResult:
    """Two policies, on a GPU if there is one."""
    task = fc.TaskSpec(
        data=data,
        partition="labels:2",
        engine="torch",
        model="cifar_resnet:resnet",
        device="cuda" if torch.cuda.is_available() else "cpu",
        batch_size=20,
        learning_rate=0.05,
        momentum=0.9,
    )
    devices = fc.Devices(count=4 if small else 20)
    policies = ["proportional_fair:k=2", "random:k=2"] if small else ["diverse", "random:k=8"]
    return fc.run_race(fc.Spec(rounds=rounds, devices=devices, task=task, grid={"policy": policies, "seed": [0]}))


def main() -> None:
    """Race, and print what came of it."""
    given = sys.argv[1] if len(sys.argv) > 1 else "cifar-10"
    try:
        data = fc.load_dataset(given) if given != "made-up" else None
    except fc.InputError as error:
        print(f"made-up images instead of CIFAR-10: {error}")
        data = None
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100 if data is not None else 2
    with tempfile.TemporaryDirectory() as folder:
        result = race(made_up(folder) if data is None else given, rounds, small=data is None)
    for policy, [run] in result.runs.items():
        last = run[-1]
        print(f"{policy:24} {last.round:4} rounds  {last.clock_s:8.1f} s  {100 * last.accuracy:5.1f} %")


if __name__ == "__main__":
    main()
