"""The paper's MLP on a GPU: one client a thread block; mlp_cuda.cu has the kernels, docs/gpu.md how fast they are.

PyTorch holds the memory and compiles the kernels when they are first used (NVRTC, which comes with it), so nothing but
``pip install 'fedcell[torch]'`` is needed. A job's result is the same bit for bit whatever else is trained in the call.
"""

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
from fedcell.learn.data import Dataset
from fedcell.learn.engine import (
    BATCH_SIZE,
    HIDDEN,
    LEARNING_RATE,
    Evaluation,
    Job,
    Updates,
    Vector,
    checked_dataset,
    checked_jobs,
    checked_models,
    checked_setting,
    linear_start,
)
from fedcell.learn.torch_stack import exact
from fedcell.learn.torch_updates import DeviceUpdates, starts_of

UNITS, SAMPLES, ROW, THREADS, WARPS = 64, 10, 12, 256, 8  # as in mlp_cuda.cu
SOURCE = Path(__file__).with_name("mlp_cuda.cu")
MODELS = 32  # evaluated together


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
        layers = self.inputs * UNITS + self.classes * UNITS
        return 4 * (layers + (WARPS + 2) * SAMPLES * UNITS + SAMPLES * 16 + 32 + 2 * UNITS)

    def source(self) -> str:
        """The text of the kernels for this shape."""
        pixel = "unsigned char" if self.pixels else "float"
        head = f"#define PIXEL {pixel}\n#define INPUTS {self.inputs}\n#define CLASSES {self.classes}\n"
        return head + SOURCE.read_text()


def obstacle(dataset: Dataset, hidden: Sequence[int], batch_size: int, device: str) -> str:
    """Return why the kernels cannot train this here, in half a sentence; empty if they can.

    Args:
        dataset: the data.
        hidden: units of the hidden layers.
        batch_size: samples of a step.
        device: such as ``"cuda"``.
    """
    shape = _shape(dataset)
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
        dataset: kept on the GPU.
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
        if reason := obstacle(data, HIDDEN, batch_size, device):
            raise InputError(f"device is {device!r}, but {reason}; use 'cpu', or the torch engine")
        self._shape, self._device = _shape(data), torch.device(device)
        self._rate, self._batch = float(learning_rate), int(batch_size)
        self._center = float(data.shift) / float(data.scale)
        self._factor = 1.0 / ((255.0 if self._shape.pixels else 1.0) * data.scale)
        flat = data.train_x.reshape(len(data.train_x), -1)
        sums = self._factor * flat.sum(axis=1, dtype=np.float64)
        self._x, self._sums = self._tensor(flat), self._tensor(sums.astype(np.float32))
        self._y = self._tensor(data.train_y.astype(np.int32))
        test = self._tensor(data.test_x.reshape(len(data.test_x), -1)).float()
        self._test_x, self._test_y = test * self._factor - self._center, self._tensor(data.test_y)
        self._copies, *self._streams = [torch.cuda.Stream(self._device) for _ in range(3)]  # type: ignore[no-untyped-call]
        self._lay_out, self._train = _kernels(self._shape, str(self._device))
        self._at_once = int(torch.cuda.get_device_properties(self._device).multi_processor_count)

    @property
    def parameters(self) -> int:
        """P, the length of a model vector: 50,890 for 784-64-10."""
        return self._shape.parameters

    def initial(self, rng: np.random.Generator) -> Vector:
        """Return an initial model (P,), as the mlp engine draws it."""
        inputs, classes = self._shape.inputs, self._shape.classes
        return np.concatenate([linear_start(rng, (UNITS, inputs), UNITS), linear_start(rng, (classes, UNITS), classes)])

    def train(self, jobs: Sequence[Job]) -> NDArray[np.float32]:
        """Return the trained models (J, P), one for each of the J jobs."""
        return self.update(jobs).models()

    def update(self, jobs: Sequence[Job]) -> Updates:
        """Return what the J jobs have come to; their models stay on the GPU. Where memory runs out, fewer at a time."""
        while True:
            try:
                return self._update(jobs)
            except torch.OutOfMemoryError as error:
                torch.cuda.synchronize(self._device)  # before what its kernels still read is given away
                if self._at_once == 1:
                    raise InputError(f"one client does not fit into the memory of {self._device}: {error}") from None
            self._at_once //= 2
            torch.cuda.empty_cache()

    def _update(self, jobs: Sequence[Job]) -> Updates:
        steps = np.array([_steps(job, self._batch) for job in jobs], np.int64)
        numbers = np.argsort(-steps, kind="stable")
        starts, which = starts_of(jobs, self.parameters, self._device)
        models = starts[which[self._tensor(numbers)]]
        losses = torch.zeros((len(jobs), 2), dtype=torch.float64, device=self._device)
        now, kept = torch.cuda.current_stream(self._device), list[list[Tensor]]()
        # The jobs are checked and sent while those before them train.
        for count, first in enumerate(range(0, len(jobs), most := self._most(int(steps.max(initial=1))))):
            part = slice(first, first + most)
            checked = checked_jobs([jobs[number] for number in numbers[part]], self.parameters, len(self._y))
            with torch.cuda.stream(self._copies):
                kept.append(self._sent(checked))
            stream = self._streams[count % 2]
            stream.wait_stream(now)
            stream.wait_stream(self._copies)
            with torch.cuda.stream(stream):
                self._train_part(kept[-1], models[part], losses[part])
        for stream in self._streams:
            now.wait_stream(stream)
        back = self._tensor(np.argsort(numbers))
        visited = np.array([job.order.size for job in jobs], np.float64)
        sums, asked = losses[back].cpu().numpy(), np.array([job.rms for job in jobs], bool)
        rms = np.sqrt(np.where(asked, sums[:, 1] / visited, np.nan))
        return DeviceUpdates(starts, which, models[back], sums[:, 0] / visited, rms)

    def _most(self, steps: int) -> int:
        """How many jobs make a part: one for each multiprocessor, or as many as have rows in 1/16 of its memory."""
        card = torch.cuda.get_device_properties(self._device)
        fits = card.total_memory // 16 // (4 * ROW * self._shape.inputs * steps)
        return int(max(1, min(self._at_once, fits)))

    def _sent(self, jobs: list[Job]) -> list[Tensor]:
        """Some jobs on the GPU: samples of the steps, learning rates, lengths, sizes of the steps.

        PyTorch waits for all that its stream has to do before it copies from the host, so copies have one of their own.
        """
        order, lengths, sizes = tables(jobs, self._batch)
        rates = np.array([self._rate * job.rate for job in jobs], np.float32)
        return [self._tensor(array) for array in (order, rates, lengths, sizes)]

    def _train_part(self, sent: list[Tensor], models: Tensor, losses: Tensor) -> None:
        """Train the models (n, P) of some jobs in place, and write the sums of their losses and of the squares."""
        ids, rates, lengths, sizes = sent
        count, steps, _ = ids.shape
        rows = torch.empty((count * steps, self._shape.inputs, ROW), device=self._device)
        counts = torch.empty(count * steps, dtype=torch.int32, device=self._device)
        laid = [self._x, ids, self._factor, steps, rows, counts]
        self._lay_out(grid=(count * steps, 1, 1), block=(THREADS, 1, 1), args=laid)
        setting = [rates, lengths, sizes, self._center, steps]
        self._train(
            grid=(count, 1, 1),
            block=(THREADS, 1, 1),
            args=[models, rows, counts, ids, self._y, self._sums, *setting, losses],
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


def tables(jobs: Sequence[Job], batch: int) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Return the samples of each step (J, steps, 10), -1 for none; each job's steps (J,); and their sizes (J, steps).

    Args:
        jobs: checked jobs.
        batch: samples of a step, at most 10.
    """
    lengths = np.array([_steps(job, batch) for job in jobs], np.int32)
    shapes = {job.order.shape for job in jobs}
    if len(shapes) == 1 and batch == SAMPLES and next(iter(shapes))[1] % batch == 0:  # the usual case, without a loop
        order = np.stack([job.order for job in jobs], dtype=np.int32).reshape(len(jobs), -1, SAMPLES)
        return order, lengths, np.full(order.shape[:2], SAMPLES, np.float32)
    order = np.full((len(jobs), lengths.max(initial=0), SAMPLES), -1, np.int32)
    for number, job in enumerate(jobs):
        epochs, samples = job.order.shape
        whole = np.full((epochs, -(-samples // batch) * batch), -1, np.int32)
        whole[:, :samples] = job.order
        order[number, : lengths[number], :batch] = whole.reshape(-1, batch)
    return order, lengths, (order >= 0).sum(axis=2).astype(np.float32)


def _steps(job: Job, batch: int) -> int:
    epochs, samples = job.order.shape if job.order.ndim == 2 else (0, 0)  # what is wrong is said where jobs are checked
    return int(epochs * -(-samples // batch))


def _shape(dataset: Dataset) -> Shape:
    return Shape(prod(dataset.train_x.shape[1:]), int(dataset.classes), dataset.train_x.dtype == np.uint8)


@cache
def _kernels(shape: Shape, device: str) -> tuple[Any, Any]:
    compiled = cast(Any, torch.cuda)._compile_kernel
    with torch.cuda.device(device):
        lay_out, train = (compiled(shape.source(), name) for name in ("lay_out", "train"))
        train.set_shared_memory_config(shape.shared_bytes)
    return lay_out, train
