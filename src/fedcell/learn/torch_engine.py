"""The general engine: any ``torch.nn.Module``, with clients stacked and trained together, on a CPU or a GPU.

The jobs of a call become stacks of models. Each step takes batch number t of every job of a stack at once: ``vmap`` of
``functional_call``, and one backward pass, are a few dozen operations whatever the number of jobs. `torch_stack` makes
them one: on a GPU a recorded graph, on a CPU a trace without the bookkeeping of autograd, one stack to a thread.

Jobs may differ in length: a batch is padded with samples of weight 0, and a job that has no batch t keeps its model. So
a job's batches, and its result up to rounding, do not depend on the other jobs. Models stay on the device: see Updates.

Runs in several threads share an engine. ``functional_call`` puts a model's weights into the module while it runs, so
every thread evaluates with a module of its own; programs are made, and a GPU's places used, by one thread at a time.
"""

import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from itertools import pairwise
from threading import Lock, local
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedcell.errors import InputError
from fedcell.learn.compression import rounded_updates
from fedcell.learn.data import Dataset
from fedcell.learn.engine import (
    BATCH_SIZE,
    LEARNING_RATE,
    Evaluation,
    Job,
    Updates,
    checked_dataset,
    checked_jobs,
    checked_models,
    checked_setting,
    linear_start,
)
from fedcell.learn.torch_modules import checked_module, for_training, wants_channel, wrapped
from fedcell.learn.torch_stack import DeviceUpdates, Loss, Recorded, StackedStep, Traced, exact, starts_of
from fedcell.quantisation import WEIGHT_BITS
from fedcell.runtime import cores, on_threads
from fedcell.types import Vector

ROWS = 2000  # test samples that go through the network together
STACK_CPU = 4  # clients that train together in one thread; fixed, so that no result depends on the number of threads
STACK_GPU = 64  # more make a step no better: docs/gpu.md

_DRAWN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class TorchEngine:
    """Federated local training of any module that is a function of its parameters and one input.

    One step of a job is PyTorch's SGD on the mean loss L of the batch: with momentum m and weight decay d

        g = dL/dw + d w,    u = m u + g (u = g at first),    w = w - learning_rate u.

    The momentum of a job starts at zero: clients keep no state between rounds. Dropout draws from the job's own key.

    Args:
        dataset: the module gets scaled float32 inputs (batch, *shape); samples of shape (height, width) get a
            channel dimension of 1 if the module's first layer with weights is a 2-D convolution.
        module: an ``nn.Module``, or a function that returns one. Its own parameters are only a template.
        loss: loss(logits (n, classes), labels (n,)) -> losses (n,), one per sample; None is cross-entropy.
        learning_rate: step size of SGD.
        batch_size: samples per step.
        momentum: m above, at least 0 and less than 1.
        weight_decay: d above, at least 0.
        device: where to compute, such as ``"cpu"`` or ``"cuda"``.
        tf32: whether a GPU may round the inputs of products to 10 bits of mantissa, which is faster.
        threads: stacks that train in parallel on a CPU; None is one per core.
        stack: the largest number of clients in a stack; None for the fastest. Halved for good where memory runs out.
    """

    def __init__(
        self,
        dataset: Dataset,
        module: nn.Module | Callable[[], nn.Module],
        loss: Loss | None = None,
        learning_rate: float = LEARNING_RATE,
        batch_size: int = BATCH_SIZE,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        device: str | torch.device = "cpu",
        tf32: bool = False,
        threads: int | None = None,
        stack: int | None = None,
    ) -> None:
        checked_setting(learning_rate, batch_size)
        _check_factor("momentum", momentum, below=1.0)
        _check_factor("weight_decay", weight_decay, below=np.inf)
        self._data = checked_dataset(dataset)
        self._device = _device(device)
        self._gpu = self._device.type == "cuda"
        self._loss = loss or _cross_entropy
        self._rate, self._batch, self._tf32 = float(learning_rate), int(batch_size), tf32
        self._threads = threads or cores()
        self._stack = stack or (STACK_GPU if self._gpu else STACK_CPU)
        try:
            self._train_x, self._train_y = self._tensor(self._data.train_x), self._tensor(self._data.train_y)
            self._test_x, self._test_y = self._tensor(self._data.test_x), self._tensor(self._data.test_y)
        except torch.OutOfMemoryError as error:
            raise InputError(f"the data does not fit into the memory of {self._device}: {error}; use 'cpu'") from None
        given = deepcopy(module) if isinstance(module, nn.Module) else module()
        self._module = checked_module(given).to(self._device).eval()
        self._channel = wants_channel(self._module) and self._data.train_x.ndim == 3
        self._names = [name for name, _ in self._module.named_parameters()]
        self._shapes = [parameter.shape for parameter in self._module.parameters()]
        training, self._keys = for_training(self._module, patches=self._gpu)
        self._lock, self._own = Lock(), local()
        self._step = StackedStep(training, self._keys, self._loss, float(momentum), float(weight_decay))
        self._try_out()
        self._programs: dict[int, Traced | Recorded] = {}

    @property
    def parameters(self) -> int:
        """P, the length of a model vector; its parameters are in the order of ``named_parameters``."""
        return sum(self.tensors)

    @property
    def tensors(self) -> tuple[int, ...]:
        """The number of weights of each parameter, in the order of ``named_parameters``."""
        return tuple(shape.numel() for shape in self._shapes)

    def initial(self, rng: np.random.Generator) -> Vector:
        """Return an initial model (P,).

        Linear and convolution layers are drawn from ``rng`` exactly as in the mlp engine; any other layer by its own
        ``reset_parameters``, seeded from ``rng`` (a layer without that method keeps its values).
        """
        parts: list[Vector] = []
        with self._lock:  # PyTorch's generator is seeded for a moment
            for layer in self._module.modules():
                own = list(layer.parameters(recurse=False))
                if type(layer) in _DRAWN:
                    parts.append(linear_start(rng, tuple(own[0].shape), sum(bias.numel() for bias in own[1:])))
                elif own:
                    parts.append(_reset(layer, int(rng.integers(2**63))))
        return np.concatenate(parts)

    def train(self, jobs: Sequence[Job]) -> NDArray[np.float32]:
        """Return the trained models (J, P), one for each of the J jobs."""
        return self.update(jobs).models()

    def update(self, jobs: Sequence[Job]) -> Updates:
        """Train the J jobs and return their updates, which stay on the GPU if there is one and none is rounded."""
        checked = checked_jobs(jobs, self.parameters, len(self._train_y))
        numbers = np.argsort([-self._steps(job) for job in checked], kind="stable")  # those of like length together
        starts, which = starts_of(checked, {id(job.start): job.start for job in checked}, self.parameters, self._device)
        models = self._room_for(len(checked))
        sums = torch.empty((len(checked), 2), dtype=torch.float64, device=self._device)
        if checked:
            with exact(self._tf32), self._lock if self._gpu else nullcontext():
                self._train_stacks([checked[number] for number in numbers], starts, models, sums)
        if (numbers[1:] < numbers[:-1]).any():
            back = self._tensor(np.argsort(numbers))
            models, sums = models[back.to(models.device)], sums[back]
        means = sums.cpu().numpy() / np.array([[job.order.size] for job in checked], np.float64).reshape(-1, 1)
        losses, rms = means[:, 0], np.sqrt(np.where([job.rms for job in checked], means[:, 1], np.nan))
        if models.device.type != "cpu" and all(job.bits == WEIGHT_BITS for job in checked):
            return DeviceUpdates(starts, which, models, losses, rms, self.tensors)
        return rounded_updates(checked, models.cpu().numpy(), losses, rms, self.tensors)

    def losses(self, jobs: Sequence[Job]) -> NDArray[np.float64]:
        """Return the mean loss (J,) of each job's start on the training samples of its order."""
        found = []
        with torch.no_grad(), exact(self._tf32):
            for job in checked_jobs(jobs, self.parameters, len(self._train_y)):
                model, total = self._tensor(job.start), 0.0
                for ids in torch.split(self._tensor(job.order.ravel()), ROWS):
                    logits = self._logits(model, self._input(self._train_x[ids]))
                    total += float(self._loss(logits, self._train_y[ids]).double().sum())
                found.append(total / job.order.size)
        return np.array(found, np.float64)

    def _room_for(self, count: int) -> Tensor:
        """Return memory for the trained models, (count, P): of the device, or of this process where they do not fit."""
        try:
            return torch.empty((count, self.parameters), device=self._device)
        except torch.OutOfMemoryError:
            return torch.empty((count, self.parameters))

    def _train_stacks(self, jobs: list[Job], starts: Tensor, models: Tensor, losses: Tensor) -> None:
        """Train the jobs in stacks; where memory runs out, in smaller ones."""
        while True:
            try:
                return self._try_stacks(jobs, starts, models, losses)
            except torch.OutOfMemoryError as error:
                if self._stack == 1:
                    raise InputError(f"one client does not fit into the memory of {self._device}: {error}") from None
            self._stack //= 2
            self._programs.clear()
            gc.collect()  # or what was too large would stay while the smaller is made
            if self._gpu:
                torch.cuda.empty_cache()

    def _try_stacks(self, jobs: list[Job], starts: Tensor, models: Tensor, losses: Tensor) -> None:
        edges = np.linspace(0, len(jobs), -(-len(jobs) // self._stack) + 1).astype(int).tolist()
        parts = [slice(first, last) for first, last in pairwise(edges)]
        with nullcontext() if self._gpu else self._lock:
            programs = [self._program(part.stop - part.start) for part in parts]
        pairs = zip(programs, parts, strict=True)
        self._spread([(program, jobs[part], starts, models[part], losses[part]) for program, part in pairs])

    def _spread(self, work: list[tuple[Any, ...]]) -> None:
        """Train the stacks: one after the other on a GPU, each in a thread with no threads of its own on a CPU."""
        if self._gpu or min(len(work), self._threads) == 1:
            for stack in work:
                self._train_stack(*stack)
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            on_threads(lambda stack: self._train_stack(*stack), work, self._threads, lambda: torch.set_num_threads(1))
        finally:
            torch.set_num_threads(threads)

    def _train_stack(self, program: Any, jobs: list[Job], starts: Tensor, models: Tensor, losses: Tensor) -> None:
        """Train the jobs of a stack; write their models and the sums of their losses."""
        sizes = [shape.numel() for shape in self._shapes]
        if len(starts) > 1:
            starts, which = starts_of(jobs, {id(job.start): job.start for job in jobs}, self.parameters, self._device)
            starts = starts[self._tensor(which)]
        parts = torch.split(starts.expand(len(jobs), -1), sizes, dim=1)
        stacked = [part.view(-1, *shape) for part, shape in zip(parts, self._shapes, strict=True)]
        rates = torch.tensor([self._rate * job.lr_scale for job in jobs], device=self._device)
        keys = torch.tensor([self._key(job) for job in jobs], device=self._device)
        trained, loss = program.run(stacked, self._tensor(batches(jobs, self._batch)), rates, keys)
        for part, place in zip(trained, torch.split(models, sizes, dim=1), strict=True):
            place.copy_(part[: len(jobs)].flatten(1))
        losses.copy_(loss[: len(jobs)])

    def _program(self, clients: int) -> Traced | Recorded:
        """Return the program for stacks of so many clients: made once, then kept."""
        size = padded(clients, self._stack) if self._gpu else clients
        if size not in self._programs:
            data = (self._train_x, self._train_y, self._input)
            kind = Recorded if self._gpu else Traced
            self._programs[size] = kind(self._step, size, self._batch, self._shapes, data)
        return self._programs[size]

    def _steps(self, job: Job) -> int:
        epochs, samples = job.order.shape
        return int(epochs * -(-samples // self._batch))

    def _key(self, job: Job) -> int:
        """Return the seed of the job's draws, 64 bits as a signed integer."""
        if not self._keys.layers:
            return 0
        drawn: Any = np.random.SeedSequence(list(job.key)).generate_state(1, np.uint64)[0]
        return wrapped(int(drawn))

    def evaluate(self, models: NDArray[np.float32]) -> Evaluation:
        """Return accuracy and mean loss of the models (K, P) on the test set."""
        rows = self._tensor(checked_models(models, self.parameters))
        count = len(self._test_y)
        right = torch.zeros(len(rows), dtype=torch.float64, device=self._device)
        loss = torch.zeros_like(right)
        with torch.no_grad(), exact(self._tf32):
            for first in range(0, count, ROWS):
                x = self._input(self._test_x[first : first + ROWS])
                y = self._test_y[first : first + ROWS]
                for number, model in enumerate(rows):
                    logits = self._logits(model, x)
                    right[number] += (logits.argmax(1) == y).sum()
                    loss[number] += self._loss(logits, y).double().sum()
        return Evaluation(accuracy=(right / count).cpu().numpy(), loss=(loss / count).cpu().numpy())

    def _logits(self, model: Tensor, x: Tensor) -> Tensor:
        parts = torch.split(model, [shape.numel() for shape in self._shapes])
        named = {name: part.view(shape) for name, part, shape in zip(self._names, parts, self._shapes, strict=True)}
        if not hasattr(self._own, "module"):
            self._own.module = deepcopy(self._module)
        return cast(Tensor, functional_call(self._own.module, named, (x,)))

    def _input(self, raw: Tensor) -> Tensor:
        x = raw.float() / 255.0 if raw.dtype == torch.uint8 else raw
        x = (x - self._data.shift) / self._data.scale
        return x.unsqueeze(-3) if self._channel else x

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self._device)

    def _try_out(self) -> None:
        """Run one forward pass of two samples and one step of two clients, so that errors show at construction."""
        x, y = self._input(self._train_x[:1]), self._train_y[:1]
        try:
            zeros = torch.zeros(self.parameters, device=self._device)
            logits = self._logits(zeros, torch.cat([x, x]))
            losses = self._loss(logits, torch.cat([y, y]))
            if losses.shape == (2,):
                models = [torch.zeros((2, *shape), device=self._device) for shape in self._shapes]
                keys = torch.zeros(2, dtype=torch.int64, device=self._device)
                weight = torch.ones((2, 1), device=self._device)
                self._step.gradients(
                    models, torch.stack([x, x]), torch.stack([y, y]), weight, torch.ones(2, device=self._device), keys
                )
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a user's module may raise
            reason = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
            raise InputError(
                f"the module cannot be trained on samples of shape {tuple(x.shape[1:])}: {reason}; change the module"
            ) from error
        if logits.shape != (2, self._data.classes):
            raise InputError(
                f"the module's output for 2 samples has shape {tuple(logits.shape)}; give (2, {self._data.classes})"
            )
        if losses.shape != (2,):
            raise InputError(f"the loss of 2 samples has shape {tuple(losses.shape)}; give one loss per sample")


def padded(clients: int, most: int) -> int:
    """Return the size of the stack on a GPU that holds so many clients: few sizes, each of which is recorded once.

    Args:
        clients: at least 1.
        most: the largest size that fits, at least ``clients``.

    Example:
        >>> from fedcell.learn.torch_engine import padded
        >>> [padded(n, 64) for n in (1, 8, 9, 50, 64)], padded(3, 4)
        ([8, 8, 12, 52, 64], 4)
    """
    return min(most, max(8, -(-clients // 4) * 4))


def batches(jobs: Sequence[Job], size: int) -> NDArray[np.int64]:
    """Return the indices of all jobs as (steps, J, size); -1 where a batch is short or a job has ended."""
    steps = max(job.order.shape[0] * -(-job.order.shape[1] // size) for job in jobs)
    table = np.full((steps, len(jobs), size), -1, np.int64)
    for number, job in enumerate(jobs):
        epochs, samples = job.order.shape
        whole = np.full((epochs, -(-samples // size) * size), -1, np.int64)
        whole[:, :samples] = job.order
        rows = whole.reshape(-1, size)
        table[: len(rows), number] = rows
    return table


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="none")


def _reset(layer: nn.Module, seed: int) -> Vector:
    """Return a layer's parameters as its ``reset_parameters`` draws them, without changing PyTorch's global state."""
    reset = getattr(layer, "reset_parameters", None)
    if reset is not None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            reset()
    own = [parameter.detach().cpu().numpy().ravel() for parameter in layer.parameters(recurse=False)]
    return np.concatenate(own).astype(np.float32)


def _device(name: str | torch.device) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device is {str(name)!r}, which PyTorch cannot use here; try 'cpu'") from error
    return device


def _check_factor(name: str, value: float, below: float) -> None:
    if not (np.isfinite(value) and 0 <= value < below):
        limit = "a number of at least 0" if below == np.inf else f"a number from 0 to less than {below:g}"
        raise InputError(f"{name} is {value}; give {limit}")
