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
# As in mlp_cuda.cu, and so are JOB and `Shape.shared_bytes`:
UNITS, SAMPLES, THREADS, SLOTS, WAYS, RUN = 64, 10, 640, 4, 3, 2
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
    def parts(self) -> int:
        """How many bfloat16 add up to an input: a pixel is one, a float32 three."""
        return 1 if self.pixels else 3

    @property
    def tiles(self) -> int:
        """How many tiles of 8 inputs a warp has."""
        return -(-self.inputs // (8 * WAYS))

    @property
    def kept(self) -> int:
        """How many of them have their weights in registers."""
        most = 15 if self.parts == 1 else 25
        return min(self.tiles, most - (most - self.tiles) % RUN)

    @property
    def plane(self) -> int:
        """The length of a sample's inputs in one part, padded."""
        return 16 * -(-8 * WAYS * self.tiles // 16)

    @property
    def sample_bytes(self) -> int:
        """What a sample takes in memory: its inputs, and 16 bytes about them."""
        return 2 * self.parts * self.plane + 16

    @property
    def shared_bytes(self) -> int:
        """What a thread block needs of shared memory."""
        group = 8 * 2 * 16 + 4 * (16 * (16 + 4 * SAMPLES) + 2 * 16)
        matrices = 512 * (16 + 16 * WAYS + 8 + 4 * WAYS * max(1, self.tiles - self.kept)) + 4 * 4 * SAMPLES * 16
        each = SAMPLES * (2 * 8 + 2 * 4) + SLOTS * (8 + 4) + 4 * 16
        return SLOTS * SAMPLES * self.sample_bytes + 4 * group + matrices + each + JOB.itemsize

    def source(self) -> str:
        """The text of the kernel for this shape."""
        sizes = {"PARTS": self.parts, "INPUTS": self.inputs, "CLASSES": self.classes}
        return "".join(f"#define {name} {value}\n" for name, value in sizes.items()) + SOURCE.read_text()


def shape_of(dataset: Dataset) -> Shape:
    """Return the sizes for a data set."""
    return Shape(prod(dataset.train_x.shape[1:]), int(dataset.classes), dataset.train_x.dtype == np.uint8)


def training_rows(data: Dataset, factor: float) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Return the training set as the kernel reads it; a sample of zeros without a label, -1, comes last.

    Args:
        data: n samples.
        factor: what inputs are multiplied by.

    Returns:
        Rows (n + 1, bytes): inputs as bfloat16, `Shape.parts` times `Shape.plane`; the label, int32; the sum of the
        inputs, times the factor, float32; a bit for each run of inputs beyond those kept that are not all zero, uint32;
        4 bytes more. Places (inputs,): the order of the inputs, those first that are zero in the fewest samples.
    """
    shape = shape_of(data)
    x = data.train_x.reshape(len(data.train_x), -1)
    places = np.argsort(-np.count_nonzero(x, axis=0), kind="stable").astype(np.uint16)
    rows = np.zeros((len(x) + 1, shape.sample_bytes), np.uint8)
    planes = rows[:-1, :-16].view(np.uint16).reshape(len(x), shape.parts, shape.plane)
    rest = x[:, places].astype(np.float32)
    for run, first in enumerate(range(8 * WAYS * shape.kept, shape.inputs, 8 * WAYS * RUN)):
        needed = (rest[:, first : first + 8 * WAYS * RUN] != 0).any(axis=1)
        rows[:-1, -8:-4].view(np.uint32)[:, 0] |= needed * np.uint32(1 << run)
    for part in range(shape.parts):
        upper = rest.view(np.uint32) & np.uint32(0xFFFF0000)
        planes[:, part, : shape.inputs] = upper >> 16
        rest = rest - upper.view(np.float32)
    rows[:, -16:-12].view(np.int32)[:, 0] = np.append(data.train_y, -1)
    rows[:-1, -12:-8].view(np.float32)[:, 0] = factor * x.sum(axis=1, dtype=np.float64)
    return rows, places


def tile_order(shape: Shape, places: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return where the kernel's lanes find their weights of the first layer in a model that has a zero after it.

    Args:
        shape: the sizes.
        places: (inputs,) the order of the inputs.

    Returns:
        (weights,): by tile, warp, lane, and four weights: two neighbouring inputs of a unit, and of one 8 further.
    """
    tile, warp, lane, i = np.ogrid[: shape.tiles, : 4 * WAYS, :32, :4]
    unit = warp % 4 * 16 + lane // 4 + i // 2 * 8
    p = (WAYS * tile + warp // 4) * 8 + lane % 4 * 2 + i % 2
    there = unit * shape.inputs + places.astype(np.int64)[np.minimum(p, shape.inputs - 1)]
    return np.where(p < shape.inputs, there, shape.parameters).ravel()


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
    if properties.major < 9 or shape.shared_bytes > room:
        needed = f"an H100 or later, with {shape.shared_bytes} bytes of shared memory a block"
        return f"it needs {needed}; {device} is of generation {properties.major} and has {room}"
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
            rows, places = training_rows(data, self._factor)
            self._rows, self._places = self._tensor(rows), self._tensor(places)
            self._back, self._tiles = self._tensor(np.argsort(places)), self._tensor(tile_order(self._shape, places))
            self._y = self._tensor(data.train_y)
            test = self._tensor(data.test_x.reshape(len(data.test_x), -1)).float()
            self._test_x, self._test_y = test * self._factor - self._center, self._tensor(data.test_y)
        except torch.OutOfMemoryError as error:
            raise InputError(f"the data does not fit into the memory of {self._device}: {error}; use 'cpu'") from None
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
            jobs = checked_jobs(jobs, self.parameters, len(self._y))
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
        tiles = functional.pad(starts, (0, 1)).index_select(1, self._tiles)
        sums = starts[:, : self._shape.inputs * UNITS].view(len(starts), UNITS, -1).sum(2, dtype=torch.float64)
        models = torch.empty((len(jobs), self.parameters), device=self._device)
        losses = torch.empty((len(jobs), 2), dtype=torch.float64, device=self._device)
        memory = starts, tiles, sums, models, losses
        now = torch.cuda.current_stream(self._device)
        # Jobs are checked and sent while those before them train: nothing in this loop waits for the GPU.
        for count, first in enumerate(range(0, len(jobs), self._at_once)):
            part = numbers[first : first + self._at_once]
            stream = self._streams[count % 2]
            stream.wait_stream(now)
            with torch.cuda.stream(stream):
                self._train_part([jobs[number] for number in part], which[part], part, memory)
        for stream in self._streams:
            now.wait_stream(stream)
        visited = np.array([job.order.size for job in jobs], np.float64)
        found, asked = losses.cpu().numpy(), np.array([job.rms for job in jobs], bool)
        rms = np.sqrt(np.where(asked, found[:, 1] / visited, np.nan))
        return DeviceUpdates(starts, which, models, found[:, 0] / visited, rms, self.tensors)

    def _train_part(
        self, jobs: list[Job], starts: NDArray[np.int64], rows: NDArray[np.int64], memory: tuple[Tensor, ...]
    ) -> None:
        """Queue the training of some jobs.

        Args:
            jobs: n of them.
            starts: (n,) rows of their initial models.
            rows: (n,) where their results belong.
            memory: on the device: initial models (S, P), their first layers as lanes hold them and its sums over inputs
                (S, UNITS); trained models (J, P), sums of losses and of squares (J, 2).
        """
        initial, tiles, sums, models, losses = memory
        held = packed(jobs, starts, rows, self._batch, self._rate, len(self._y))
        sent, head = held.to(self._device, non_blocking=True), len(jobs) * JOB.itemsize
        setting = [self._factor, 1.0 / self._factor, self._center, self._batch, len(self._y)]
        self._train(
            grid=(len(jobs), 1, 1),
            block=(THREADS, 1, 1),
            args=[initial, models, self._rows, self._places, tiles, sums, sent[head:], sent[:head], *setting, losses],
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
            for job in checked_jobs(jobs, self.parameters, len(self._y)):
                ids, model = self._tensor(job.order.ravel()), self._tensor(job.start[np.newaxis])
                scaled = self._inputs(ids) * self._factor - self._center
                sums = self._scores(model, scaled, self._y[ids].long())
                found.append(sums[:, 1].cpu().numpy() / job.order.size)
        return np.concatenate(found)

    def _inputs(self, ids: Tensor) -> Tensor:
        """(n, inputs) of some training samples, as they are in the data set."""
        planes = self._rows[ids, :-16].view(torch.bfloat16).view(len(ids), self._shape.parts, -1)
        return planes.float().sum(1)[:, self._back]

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
