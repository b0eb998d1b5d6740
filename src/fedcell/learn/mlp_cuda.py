"""The paper's MLP on a GPU, a thread block per client. The kernel is in mlp_cuda.cu, its speed in docs/gpu.md.

PyTorch holds the memory and compiles the kernel when it is first used (NVRTC, which comes with it), so nothing but
``pip install 'fedcell[torch]'`` is needed. A job's result is the same bit for bit whatever else is trained in the call.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcell.errors import InputError
from fedcell.learn.compression import rounded_updates
from fedcell.learn.data import Dataset
from fedcell.learn.engine import (
    BATCH_SIZE,
    HIDDEN,
    LEARNING_RATE,
    Evaluation,
    HostUpdates,
    Job,
    Updates,
    checked_dataset,
    checked_jobs,
    checked_models,
    checked_setting,
    checked_starts,
    linear_start,
)
from fedcell.learn.torch_stack import DeviceUpdates, exact, starts_of
from fedcell.quantisation import WEIGHT_BITS
from fedcell.types import Vector

MODELS = 32  # evaluated together
# As in mlp_cuda.cu, and so is JOB:
UNITS, SAMPLES, THREADS, HELPERS, WARPS, SLICES, SLOTS = 64, 10, 256, 128, 8, 32, 4
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
    """The sizes that the kernels are compiled for; at most 16 classes, and inputs are ``pixels`` (bytes) or floats."""

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
    """Return how many steps each job has (J,); any number for a job whose order is malformed, which `packed` refuses.

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
        pin: whether to allocate pinned memory, which a GPU copies while the processor goes on.

    Returns:
        (bytes,) uint8.
    """
    if not all(_is_valid(job) for job in jobs):
        checked_jobs(jobs, np.size(jobs[0].start), samples)  # says what is wrong
    shapes = np.array([job.order.shape for job in jobs], np.int64)
    sizes = shapes.prod(axis=1)
    held = torch.empty(len(jobs) * JOB.itemsize + 8 * int(sizes.sum()), dtype=torch.uint8, pin_memory=pin)
    table = held.numpy()[: len(jobs) * JOB.itemsize].view(JOB)
    table["begin"], table["samples"] = np.cumsum(sizes) - sizes, shapes[:, 1]
    table["length"], table["start"], table["row"] = shapes[:, 0] * -(-shapes[:, 1] // batch), starts, rows
    table["rate"] = [rate * job.lr_scale for job in jobs]
    order = held.numpy()[table.nbytes :].view(np.int64)
    np.concatenate([job.order.ravel() for job in jobs], out=order, casting="same_kind")
    if order.view(np.uint64).max() >= samples:  # a negative number is a large one there
        checked_jobs(jobs, np.size(jobs[0].start), samples)
    return held


def _is_valid(job: Job) -> bool:
    order = job.order
    return order.ndim == 2 and order.size > 0 and order.dtype.kind in "iu" and 0.0 < job.lr_scale < np.inf


def unsupported_reason(dataset: Dataset, hidden: Sequence[int], batch_size: int, device: str) -> str:
    """Return why the kernel cannot train this here, as part of a sentence; empty if it can.

    Args:
        dataset: the data.
        hidden: units of the hidden layers.
        batch_size: samples of a step.
        device: such as ``"cuda"``.
    """
    shape = shape_of(dataset)
    if not hasattr(torch.cuda, "_compile_kernel"):
        return f"PyTorch {torch.__version__} cannot compile kernels (2.9 can)"
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    if tuple(hidden) != HIDDEN or batch_size > SAMPLES or shape.classes > 16:
        return f"it is made for one hidden layer of {UNITS} units, batches of at most {SAMPLES} and at most 16 classes"
    properties: Any = torch.cuda.get_device_properties(device)
    room = properties.shared_memory_per_block_optin
    if shape.shared_bytes > room:
        return f"a model needs {shape.shared_bytes} bytes of a block's shared memory, and {device} has {room}"
    return ""


class MlpCudaEngine:
    """`MlpEngine` for a GPU: one hidden layer of 64 units, batches of at most 10.

    Args:
        dataset: copied to the GPU.
        learning_rate: step size of SGD.
        batch_size: samples per step, at most 10.
        device: such as ``"cuda"`` or ``"cuda:1"``.
    """

    def __init__(
        self,
        dataset: Dataset,
        learning_rate: float = LEARNING_RATE,
        batch_size: int = BATCH_SIZE,
        device: str = "cuda",
    ) -> None:
        checked_setting(learning_rate, batch_size)
        data = checked_dataset(dataset)
        if reason := unsupported_reason(data, HIDDEN, batch_size, device):
            raise InputError(f"device is {device!r}, but {reason}; use 'cpu', or the torch engine")
        self._shape, self._device = shape_of(data), torch.device(device)
        self._rate, self._batch = float(learning_rate), int(batch_size)
        self._center = float(data.shift) / float(data.scale)
        self._factor = 1.0 / ((255.0 if self._shape.pixels else 1.0) * data.scale)
        try:
            x, self._masks, self._y, self._sums = map(self._tensor, training_arrays(data, self._factor))
            test = self._tensor(data.test_x.reshape(len(data.test_x), -1)).float()
            self._test_x, self._test_y = test * self._factor - self._center, self._tensor(data.test_y)
        except torch.OutOfMemoryError as error:
            raise InputError(f"the data does not fit into the memory of {self._device}: {error}; use 'cpu'") from None
        self._x = x.view(torch.bfloat16) if self._shape.pixels else x
        self._streams = [torch.cuda.Stream(self._device) for _ in range(2)]  # type: ignore[no-untyped-call]
        self._train = _kernel(self._shape, str(self._device))
        self._at_once = int(torch.cuda.get_device_properties(self._device).multi_processor_count)
        self._most = sys.maxsize  # clients whose models the GPU holds

    @property
    def parameters(self) -> int:
        """P, the length of a model vector: 50,890 for 784-64-10."""
        return self._shape.parameters

    @property
    def tensors(self) -> tuple[int, ...]:
        """The number of weights of each array, as the mlp engine has it."""
        inputs, classes = self._shape.inputs, self._shape.classes
        return inputs * UNITS, UNITS, UNITS * classes, classes

    def initial(self, rng: np.random.Generator) -> Vector:
        """Return an initial model (P,), as the mlp engine draws it."""
        inputs, classes = self._shape.inputs, self._shape.classes
        return np.concatenate([linear_start(rng, (UNITS, inputs), UNITS), linear_start(rng, (classes, UNITS), classes)])

    def train(self, jobs: Sequence[Job]) -> NDArray[np.float32]:
        """Return the trained models (J, P), one for each of the J jobs."""
        return self.update(jobs).models()

    def update(self, jobs: Sequence[Job]) -> Updates:
        """Train the J jobs and return their updates, which stay on the GPU if none is rounded.

        Where memory runs out, fewer train at a time, now and later, and their models go to this process's memory.
        """
        if any(job.bits != WEIGHT_BITS for job in jobs):
            jobs = checked_jobs(jobs, self.parameters, len(self._y) - 1)
            found = self._trained(jobs)
            return rounded_updates(jobs, found.models(), found.losses, found.rms, self.tensors)
        return self._trained(jobs)

    def _trained(self, jobs: Sequence[Job]) -> Updates:
        while True:
            most = min(self._most, len(jobs))
            try:
                return self._update(jobs) if most == len(jobs) else self._by_parts(jobs)
            except torch.OutOfMemoryError as error:
                torch.cuda.synchronize(self._device)  # before what its kernels still read is given away
                if most == 1:
                    raise InputError(f"one client does not fit into the memory of {self._device}: {error}") from None
            self._most = most // 2
            torch.cuda.empty_cache()

    def _by_parts(self, jobs: Sequence[Job]) -> Updates:
        parts = []
        for first in range(0, len(jobs), self._most):
            found = self._update(jobs[first : first + self._most])
            parts.append((found.models(), found.losses, found.rms))
            del found  # the next part needs its memory
        models, losses, rms = map(np.concatenate, zip(*parts, strict=True))
        return HostUpdates([job.start for job in jobs], models, losses, rms, self.tensors)

    def _update(self, jobs: Sequence[Job]) -> Updates:
        starts, which = starts_of(jobs, checked_starts(jobs, self.parameters), self.parameters, self._device)
        alike = len({job.order.shape for job in jobs}) < 2
        numbers = np.arange(len(jobs)) if alike else np.argsort(-steps_of(jobs, self._batch), kind="stable")
        models = torch.empty((len(jobs), self.parameters), device=self._device)
        losses = torch.empty((len(jobs), 2), dtype=torch.float64, device=self._device)
        now = torch.cuda.current_stream(self._device)
        # Jobs are checked and sent while those before them train: nothing in this loop waits for the GPU.
        for count, first in enumerate(range(0, len(jobs), self._at_once)):
            part = numbers[first : first + self._at_once]
            stream = self._streams[count % 2]
            stream.wait_stream(now)
            with torch.cuda.stream(stream):
                self._train_part([jobs[number] for number in part], which[part], part, (starts, models, losses))
        for stream in self._streams:
            now.wait_stream(stream)
        visited = np.array([job.order.size for job in jobs], np.float64)
        sums, asked = losses.cpu().numpy(), np.array([job.rms for job in jobs], bool)
        rms = np.sqrt(np.where(asked, sums[:, 1] / visited, np.nan))
        return DeviceUpdates(starts, which, models, sums[:, 0] / visited, rms, self.tensors)

    def _train_part(
        self, jobs: list[Job], starts: NDArray[np.int64], rows: NDArray[np.int64], memory: tuple[Tensor, ...]
    ) -> None:
        """Queue the training of some jobs.

        Args:
            jobs: n of them.
            starts: (n,) rows of their initial models.
            rows: (n,) where their results belong.
            memory: on the device: initial models (S, P), trained ones (J, P), sums of losses and of squares (J, 2).
        """
        initial, models, losses = memory
        held = packed(jobs, starts, rows, self._batch, self._rate, len(self._y) - 1)
        sent, head = held.to(self._device, non_blocking=True), len(jobs) * JOB.itemsize
        slots = torch.empty(len(jobs) * self._shape.slot_bytes, dtype=torch.uint8, device=self._device)
        data = [self._x, self._masks, self._y, self._sums, sent[head:], sent[:head]]
        setting = [self._factor, 1.0 / self._factor, self._center, self._batch, len(self._y) - 1]
        self._train(
            grid=(len(jobs), 1, 1),
            block=(THREADS + HELPERS, 1, 1),
            args=[initial, models, slots, *data, *setting, losses],
            shared_mem=self._shape.shared_bytes,
        )

    def evaluate(self, models: NDArray[np.float32]) -> Evaluation:
        """Return accuracy and mean cross-entropy of the models (K, P) on the test set."""
        rows = self._tensor(checked_models(models, self.parameters))
        with exact(tf32=False):
            test = self._test_x, self._test_y
            found = [self._scores(rows[first : first + MODELS], *test) for first in range(0, len(rows), MODELS)]
        sums = torch.cat(found).cpu().numpy() if found else np.empty((0, 2))
        return Evaluation(accuracy=sums[:, 0] / len(self._test_y), loss=sums[:, 1] / len(self._test_y))

    def losses(self, jobs: Sequence[Job]) -> NDArray[np.float64]:
        """Return the mean loss (J,) of each job's start on the training samples of its order."""
        found = [np.empty(0)]
        with exact(tf32=False):
            for job in checked_jobs(jobs, self.parameters, len(self._y) - 1):
                ids, model = self._tensor(job.order.ravel()), self._tensor(job.start[np.newaxis])
                scaled = self._x[ids].float() * self._factor - self._center
                sums = self._scores(model, scaled, self._y[ids].long())
                found.append(sums[:, 1].cpu().numpy() / job.order.size)
        return np.concatenate(found)

    def _scores(self, models: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(K, 2) how many samples each model labels rightly, and the sum of their losses."""
        inputs, classes, K = self._shape.inputs, self._shape.classes, len(models)
        w1, b1, w2, b2 = torch.split(models, [inputs * UNITS, UNITS, classes * UNITS, classes], dim=1)
        hidden = torch.baddbmm(b1.unsqueeze(1), x.expand(K, -1, -1), w1.view(K, UNITS, inputs).transpose(1, 2)).relu_()
        logits = torch.baddbmm(b2.unsqueeze(1), hidden, w2.view(K, classes, UNITS).transpose(1, 2))
        right = (logits.argmax(2) == y).sum(1).double()
        labels = y.expand(K, -1)
        losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return torch.stack([right, losses.view(K, -1).double().sum(1)], dim=1)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self._device)


@cache
def _kernel(shape: Shape, device: str) -> Any:
    card = torch.cuda.get_device_properties(device)
    with torch.cuda.device(device):  # "a": for this architecture alone, which setmaxnreg needs
        train = cast(Any, torch.cuda)._compile_kernel(shape.source(), "train", f"{card.major}{card.minor}a")
        train.set_shared_memory_config(shape.shared_bytes)
    return train
