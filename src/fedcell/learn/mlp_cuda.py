"""The paper's MLP on a GPU: one client a thread block; mlp_cuda.cu has the kernel, docs/gpu.md how fast it is.

PyTorch holds the memory and compiles the kernel when it is first used (NVRTC, which comes with it), so nothing but
``pip install 'fedcell[torch]'`` is needed. A job's result is the same bit for bit whatever else is trained in the call.
"""

import sys
from collections.abc import Sequence
from functools import cache
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
from fedcell.learn.mlp_cuda_input import (
    HELPERS,
    JOB,
    SAMPLES,
    THREADS,
    UNITS,
    Shape,
    packed,
    shape_of,
    steps_of,
    training_arrays,
)
from fedcell.learn.torch_stack import exact
from fedcell.learn.torch_updates import DeviceUpdates, starts_of
from fedcell.types import Vector

MODELS = 32  # evaluated together


def obstacle(dataset: Dataset, hidden: Sequence[int], batch_size: int, device: str) -> str:
    """Return why the kernels cannot train this here, in half a sentence; empty if they can.

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

    def initial(self, rng: np.random.Generator) -> Vector:
        """Return an initial model (P,), as the mlp engine draws it."""
        inputs, classes = self._shape.inputs, self._shape.classes
        return np.concatenate([linear_start(rng, (UNITS, inputs), UNITS), linear_start(rng, (classes, UNITS), classes)])

    def train(self, jobs: Sequence[Job]) -> NDArray[np.float32]:
        """Return the trained models (J, P), one for each of the J jobs."""
        return self.update(jobs).models()

    def update(self, jobs: Sequence[Job]) -> Updates:
        """Return what the J jobs have come to; their models stay on the GPU.

        Where memory runs out, fewer train at a time, now and later, and their models go to this process's memory.
        """
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
        return HostUpdates([job.start for job in jobs], *map(np.concatenate, zip(*parts, strict=True)))

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
        return DeviceUpdates(starts, which, models, sums[:, 0] / visited, rms)

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
