"""What the kernel of mlp_cuda.cu reads, as it lies in memory: its sizes, the training set, and jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcell.learn.data import Dataset
from fedcell.learn.engine import Job, checked_jobs

UNITS, SAMPLES, THREADS, HELPERS, WARPS, SLICES, SLOTS = 64, 10, 256, 128, 8, 32, 4  # as in mlp_cuda.cu, and so is
JOB = np.dtype(
    {
        "names": ["begin", "samples", "length", "start", "row", "rate"],
        "formats": ["<i8", "<i4", "<i4", "<i4", "<i4", "<f4"],
        "itemsize": 32,
    }
)
SOURCE = Path(__file__).with_name("mlp_cuda.cu")


@dataclass(frozen=True)
class Shape:
    """The sizes that the kernels are compiled for.

    Attributes:
        inputs: of a sample.
        classes: at most 16.
        pixels: whether inputs are bytes; otherwise they are floats.
    """

    inputs: int
    classes: int
    pixels: bool

    @property
    def parameters(self) -> int:
        """P, the length of a model vector."""
        return self.inputs * UNITS + UNITS + self.classes * UNITS + self.classes

    @property
    def shared_bytes(self) -> int:
        """What a thread block needs of shared memory."""
        layers = (self.inputs + 1) * UNITS + self.classes * UNITS
        plan = 8 + SLOTS * (2 * 16 + 4)
        return 4 * (layers + (WARPS + 2) * SAMPLES * UNITS + SAMPLES * 16 + 4 * 16 + 2 * UNITS + plan)

    @property
    def slot_bytes(self) -> int:
        """What a thread block needs of the device's memory: tables of four batches' inputs, and lists."""
        words = (self.inputs + 1) * (SAMPLES // 2 if self.pixels else SAMPLES)
        return SLOTS * (16 * -(-words // 4) + 2 * SLICES * (-(-self.inputs // SLICES) + 2))

    def source(self) -> str:
        """The text of the kernels for this shape."""
        sizes = {"PIXEL": "unsigned short" if self.pixels else "float", "HALVES": int(self.pixels)}
        sizes |= {"INPUTS": self.inputs, "CLASSES": self.classes}
        return "".join(f"#define {name} {value}\n" for name, value in sizes.items()) + SOURCE.read_text()


def shape_of(dataset: Dataset) -> Shape:
    """Return the sizes for a data set."""
    return Shape(prod(dataset.train_x.shape[1:]), int(dataset.classes), dataset.train_x.dtype == np.uint8)


def training_arrays(
    data: Dataset, factor: float
) -> tuple[NDArray[Any], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Return the training set as the kernel reads it; a sample of zeros without a label, -1, comes last.

    Args:
        data: n samples.
        factor: what inputs are multiplied by.

    Returns:
        Inputs (n + 1, inputs), bfloat16 as its bits for pixels and else float32; masks (n + 1, words), a bit for each
        input that is not zero; labels (n + 1,); the sums of the inputs, times the factor (n + 1,).
    """
    x = np.concatenate([data.train_x.reshape(len(data.train_x), -1), np.zeros((1, shape_of(data).inputs), np.uint8)])
    bits = np.zeros((len(x), -(-x.shape[1] // 32) * 4), np.uint8)
    bits[:, : -(-x.shape[1] // 8)] = np.packbits(x != 0, axis=1, bitorder="little")
    sums = (factor * x.sum(axis=1, dtype=np.float64)).astype(np.float32)
    labels = np.append(data.train_y, -1).astype(np.int32)
    if x.dtype == np.uint8:
        x = (np.arange(256, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)[x]
    return x, bits.view(np.int32), labels, sums


def steps_of(jobs: Sequence[Job], batch: int) -> NDArray[np.int64]:
    """Return how many steps each job has (J,); of what is no order any number: that is found where jobs are packed.

    Args:
        jobs: J of them.
        batch: samples of a step.
    """
    shapes = np.array([job.order.shape if job.order.ndim == 2 else (0, 0) for job in jobs], np.int64).reshape(-1, 2)
    return cast(NDArray[np.int64], shapes[:, 0] * -(-shapes[:, 1] // batch))


def packed(
    jobs: Sequence[Job],
    starts: NDArray[np.int64],
    rows: NDArray[np.int64],
    batch: int,
    rate: float,
    samples: int,
    pin: bool = True,
) -> Tensor:
    """Return some jobs as the kernels read them, in one piece of memory: a table of JOB, then all orders as int64.

    Args:
        jobs: n of them.
        starts: (n,) rows of their initial models.
        rows: (n,) where their results belong.
        batch: samples of a step.
        rate: the learning rate.
        samples: of the training set.
        pin: whether a GPU is to read it while the processor goes on.

    Returns:
        (bytes,) uint8.
    """
    if not all(_sound(job) for job in jobs):
        checked_jobs(jobs, np.size(jobs[0].start), samples)  # says what is wrong
    shapes = np.array([job.order.shape for job in jobs], np.int64)
    sizes = shapes.prod(axis=1)
    held = torch.empty(len(jobs) * JOB.itemsize + 8 * int(sizes.sum()), dtype=torch.uint8, pin_memory=pin)
    table = held.numpy()[: len(jobs) * JOB.itemsize].view(JOB)
    table["begin"], table["samples"] = np.cumsum(sizes) - sizes, shapes[:, 1]
    table["length"], table["start"], table["row"] = shapes[:, 0] * -(-shapes[:, 1] // batch), starts, rows
    table["rate"] = [rate * job.rate for job in jobs]
    order = held.numpy()[table.nbytes :].view(np.int64)
    np.concatenate([job.order.ravel() for job in jobs], out=order, casting="same_kind")
    if order.view(np.uint64).max() >= samples:  # a negative number is a large one there
        checked_jobs(jobs, np.size(jobs[0].start), samples)
    return held


def _sound(job: Job) -> bool:
    order = job.order
    return order.ndim == 2 and order.size > 0 and order.dtype.kind in "iu" and 0.0 < job.rate < np.inf
