"""Clients trained together by PyTorch, their weights stacked: one step, two ways to repeat it, and their updates.

`StackedStep` is the step itself: gradients of all clients at once, then their updates in place. `Traced` (CPU) calls
the plain operations that PyTorch's tracer found in it: a third of the time for a small MLP. `Recorded` (GPU) is a CUDA
graph over fixed places in memory, so a whole epoch is queued without waiting for it. `DeviceUpdates` are trained models
that stay on a GPU: means, lengths and sketches are computed there, and only these are copied.
"""

import gc
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from fedcell.learn.engine import HostUpdates, Job, sketch_plan
from fedcell.learn.torch_modules import Keys, wrapped
from fedcell.types import Vector

Loss = Callable[[Tensor, Tensor], Tensor]
Data = tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]
"""Training inputs, labels, and what scales inputs for the network."""

PINNED = 2**28  # bytes; PyTorch keeps memory that was pinned
_GOLDEN = wrapped(0x9E3779B97F4A7C15)


class StackedStep:
    """One step of stochastic gradient descent for J clients.

    Args:
        module: prepared by `for_training`.
        keys: where its dropout layers read their key.
        loss: of n samples, (n,).
        momentum: at least 0.
        decay: weight decay, at least 0.
    """

    def __init__(self, module: nn.Module, keys: Keys, loss: Loss, momentum: float, decay: float) -> None:
        self.momentum, self._decay = momentum, decay
        self._module, self._keys, self._loss = module, keys, loss
        self._lock = Lock()  # the module has one client's weights at a time: see _logits
        self._names = [name for name, _ in module.named_parameters()]

    def gradients(
        self, models: Sequence[Tensor], x: Tensor, y: Tensor, weight: Tensor, scale: Tensor, keys: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Return the gradients of each client's mean loss, times its scale, and the sums of its losses and squares.

        A client's loss depends on no other's model, so one backward pass of the sum gives them all. The loss is called
        on all J n samples at once, outside vmap, so it may use operations that vmap does not support.

        Args:
            models: for each parameter (J, *shape).
            x: (J, n, *shape), scaled inputs.
            y: (J, n), labels.
            weight: (J, n), 1 for a sample and 0 for padding.
            scale: (J,) factors of the gradients.
            keys: (J,) int64, for dropout.
        """
        leaves = [part.detach().requires_grad_() for part in models]
        logits = vmap(self._logits, randomness="error")(leaves, x, keys)
        losses = self._loss(logits.flatten(0, 1), y.flatten()).view_as(weight)
        sums = (losses * weight).sum(1)
        means = scale * sums / weight.sum(1).clamp(min=1.0)
        squares = (losses.detach().square() * weight).sum(1)
        return list(torch.autograd.grad(means.sum(), leaves)), torch.stack([sums.detach(), squares], dim=1)

    def __call__(self, state: "StackState", x: Tensor, y: Tensor, weight: Tensor, rates: Tensor, keys: Tensor) -> None:
        """Take the step in place; a client whose batch is empty keeps its model."""
        models, velocity, total = state
        there = (weight[:, 0] > 0).float()
        plain = not (self.momentum or self._decay)  # then gradients come as they are to be subtracted
        found, sums = self.gradients(models, x, y, weight, rates * there if plain else torch.ones_like(rates), keys)
        for number, (model, gradient) in enumerate(zip(models, found, strict=True)):
            if plain:
                model.sub_(gradient)
                continue
            step = gradient + self._decay * model if self._decay else gradient
            if self.momentum:
                step = velocity[number].mul_(self.momentum).add_(step)
            model.addcmul_(step, (rates * there).view(-1, *(1 for _ in model.shape[1:])), value=-1.0)
        total.add_(sums)

    def _logits(self, parts: Sequence[Tensor], x: Tensor, key: Tensor) -> Tensor:
        with self._lock:
            self._keys.now = key
            try:
                return cast(Tensor, functional_call(self._module, dict(zip(self._names, parts, strict=True)), (x,)))
            finally:
                self._keys.now = None


StackState = tuple[list[Tensor], list[Tensor], Tensor]
"""Models and velocities, for each parameter (J, *shape), and the sums (J, 2) of losses and of their squares."""


def _state(step: StackedStep, clients: int, shapes: Sequence[torch.Size], device: torch.device) -> StackState:
    models = [torch.zeros((clients, *shape), device=device) for shape in shapes]
    velocity = [torch.zeros_like(model) for model in models] if step.momentum else []
    return models, velocity, torch.zeros((clients, 2), dtype=torch.float64, device=device)


class Traced:
    """A step for stacks of ``clients`` on a CPU; several threads may run it at once.

    Args:
        step: the step.
        clients: J.
        batch: samples of a client in a step.
        shapes: of the parameters.
        data: the training set on the device.
    """

    def __init__(self, step: StackedStep, clients: int, batch: int, shapes: Sequence[torch.Size], data: Data) -> None:
        self._step, self._shapes, self._data, self._clients = step, shapes, data, clients
        x, y, scaled = data
        ids = torch.zeros((clients, batch), dtype=torch.int64)
        numbers = (torch.ones((clients, batch)), torch.ones(clients), torch.zeros(clients, dtype=torch.int64))
        try:
            self._call: Callable[..., None] = make_fx(step)(
                _state(step, clients, shapes, x.device), scaled(x[ids]), y[ids], *numbers
            )
        except torch.OutOfMemoryError:
            raise
        except Exception:  # a module or a loss that looks at values, as one_hot does, cannot be traced
            self._call = step

    def run(self, start: Sequence[Tensor], order: Tensor, rates: Tensor, keys: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the models after all steps, and the sums (J, 2) of the losses met and of their squares.

        Args:
            start: for each parameter (J, *shape).
            order: (steps, J, batch) indices of samples, -1 for none.
            rates: (J,) learning rates.
            keys: (J,) int64, for dropout.
        """
        x, y, scaled = self._data
        state = _state(self._step, self._clients, self._shapes, x.device)
        for model, first in zip(state[0], start, strict=True):
            model.copy_(first)
        for number, ids in enumerate(order):
            weight, picked = (ids >= 0).float(), ids.clamp(min=0)
            self._call(state, scaled(x[picked]), y[picked], weight, rates, keys + wrapped(number * _GOLDEN))
        return state[0], state[2]


class Recorded:
    """A step for stacks of at most ``clients`` on a GPU, as a CUDA graph over fixed places in its memory.

    Args:
        step: the step.
        clients: J; smaller stacks are padded.
        batch: samples of a client in a step.
        shapes: of the parameters.
        data: the training set on the device.
    """

    def __init__(self, step: StackedStep, clients: int, batch: int, shapes: Sequence[torch.Size], data: Data) -> None:
        self._step, self._data = step, data
        device = data[0].device
        self._state = _state(step, clients, shapes, device)
        self._ids = torch.zeros((clients, batch), dtype=torch.int64, device=device)
        self._rates = torch.zeros(clients, device=device)
        self._keys = torch.zeros(clients, dtype=torch.int64, device=device)
        with _deterministic():
            self._play = _recorded(self._once) if device.type == "cuda" else self._once

    def _once(self) -> None:
        x, y, scaled = self._data
        weight, picked = (self._ids >= 0).float(), self._ids.clamp(min=0)
        self._step(self._state, scaled(x[picked]), y[picked], weight, self._rates, self._keys)
        self._keys.add_(_GOLDEN)

    def run(self, start: Sequence[Tensor], order: Tensor, rates: Tensor, keys: Tensor) -> tuple[list[Tensor], Tensor]:
        """See `Traced.run`; the result is padded, and overwritten by the next run."""
        models, velocity, total = self._state
        count = len(rates)
        for model, first in zip(models, start, strict=True):
            model[:count] = first
            model[count:] = 0.0
        for tensor in (*velocity, total, self._rates, self._keys):
            tensor.zero_()
        self._rates[:count], self._keys[:count] = rates, keys
        self._ids.fill_(-1)
        for ids in order:
            self._ids[:count] = ids
            self._play()
        return models, total


def _recorded(function: Callable[[], None]) -> Callable[[], None]:
    """Return the function as a CUDA graph, recorded after three runs, which do what is done once (libraries, plans).

    A function that looks at values, as one_hot does, cannot be recorded and is called as it is.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with gc_paused(), torch.cuda.graph(graph):
            function()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        torch.cuda.synchronize()
        return function
    return graph.replay


@contextmanager
def gc_paused() -> Iterator[None]:
    """Collect garbage now and not inside the block: deleting a CUDA graph while another is recorded spoils that one."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def exact(tf32: bool) -> Iterator[None]:
    """Compute products and convolutions deterministically inside the block, in full float32 or with TF32."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = tf32
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        matmul.allow_tf32 = before


@contextmanager
def _deterministic() -> Iterator[None]:
    """Use deterministic forms of operations inside the block; those that PyTorch only suspects are left as they are."""
    before, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    setting: Any = torch.utils.deterministic
    filled = setting.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    setting.fill_uninitialized_memory = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        setting.fill_uninitialized_memory = filled


@dataclass(frozen=True, eq=False)
class DeviceUpdates:
    """Updates on a GPU.

    Attributes:
        starts: (S, P) the different initial models.
        which: (J,) the row of each job's among them.
        trained: (J, P).
        losses: (J,) mean training losses.
        rms: (J,) root mean squares of the samples' losses.
        tensors: the number of weights of each array that a model consists of; () if it is one.
    """

    starts: Tensor
    which: NDArray[np.int64]
    trained: Tensor
    losses: NDArray[np.float64]
    rms: NDArray[np.float64]
    tensors: tuple[int, ...] = ()

    def take(self, which: slice | NDArray[np.int64]) -> "DeviceUpdates":
        """Return the updates of some of the jobs."""
        some = which if isinstance(which, slice) else torch.tensor(which, device=self.trained.device)
        arrays = self.which[which], self.trained[some], self.losses[which], self.rms[which]
        return DeviceUpdates(self.starts, *arrays, self.tensors)

    def mean(self, weights: NDArray[np.float64] | None = None) -> Vector:
        """Return the mean model (P,), one copy from the device."""
        shares = np.ones(len(self.trained)) if weights is None else np.asarray(weights, np.float64)
        row = torch.tensor(shares / shares.sum(), dtype=torch.float32, device=self.trained.device)
        with exact(tf32=False):
            return _on_host(row @ self.trained)

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean lengths (J,) of the updates."""
        pairs = zip(self.trained, self.which, strict=True)
        lengths = [torch.linalg.vector_norm(model - self.starts[row]) for model, row in pairs]
        return torch.stack(lengths).double().cpu().numpy() if lengths else np.empty(0)

    def output_bias(self, count: int) -> NDArray[np.float32]:
        """Return the last ``count`` weights of each model (J, count)."""
        return cast(NDArray[np.float32], self.trained[:, -count:].cpu().numpy())

    def sketch(self, count: int) -> NDArray[np.float64]:
        """Return a short vector (J, count) for each update."""
        order, signs = sketch_plan(self.trained.shape[1], count)
        device, more = self.trained.device, len(order) - self.trained.shape[1]
        update = functional.pad(self.trained - self.starts[torch.tensor(self.which, device=device)], (0, more))
        mixed = update[:, torch.tensor(order, device=device)].double() * torch.tensor(signs, device=device)
        return cast(NDArray[np.float64], mixed.view(len(update), count, -1).sum(dim=2).cpu().numpy())

    def sums(self) -> NDArray[np.float64]:
        """Return the peaks, absolutes and squares (J, 3) of the updates, which are as trained."""
        starts = self.starts.cpu().numpy()
        return HostUpdates(
            [starts[row] for row in self.which], self.models(), self.losses, self.rms, self.tensors
        ).sums()

    def models(self) -> NDArray[np.float32]:
        """Return all models (J, P), copied to this process's memory."""
        return _on_host(self.trained)


def _on_host(tensor: Tensor) -> NDArray[Any]:
    """Copy to this process's memory: pinned, if that is little, for the driver copies slowly to other memory."""
    held = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda and tensor.nbytes <= PINNED)
    found: NDArray[Any] = held.copy_(tensor).numpy()
    return found


def starts_of(
    jobs: Sequence[Job], starts: Mapping[int, Vector], parameters: int, device: torch.device
) -> tuple[Tensor, NDArray[np.int64]]:
    """Return the different initial models (S, P) on the device, and which of them a job has (J,).

    Args:
        jobs: J of them.
        starts: their initial models, by ``id(job.start)``.
        parameters: P.
        device: where to.
    """
    rows = {number: row for row, number in enumerate(starts)}
    which = np.zeros(len(jobs), np.int64)
    if len(starts) > 1:
        which[:] = [rows[id(job.start)] for job in jobs]
    held = torch.empty((len(starts), parameters), pin_memory=device.type == "cuda")
    for row, start in zip(held.numpy(), starts.values(), strict=True):
        row[:] = start
    return held.to(device, non_blocking=True), which
