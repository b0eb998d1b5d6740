"""The general engine: any ``torch.nn.Module``, with all clients of a call stacked and trained together.

The jobs of a call become one tensor of models (J, P). Each step takes batch number t of every job at once: ``vmap`` of
``functional_call`` over J, and one backward pass, are a few kernel launches whatever J is, so many small models keep a
GPU busy. Indices and models go to the device once per call, the data set once per engine, and results come back at the
end: the host never waits for a step.

Jobs may differ in length: a batch is padded with samples of weight 0, and a job that has no batch t keeps its model. So
a job's batches, and its result up to rounding, do not depend on the other jobs.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from fedcell.errors import InputError
from fedcell.learn.data import Dataset
from fedcell.learn.engine import (
    BATCH_SIZE,
    HIDDEN,
    LEARNING_RATE,
    Evaluation,
    Job,
    Vector,
    checked_dataset,
    checked_jobs,
    checked_models,
    checked_setting,
    linear_start,
)

Loss = Callable[[Tensor, Tensor], Tensor]
ROWS = 2000  # test samples that go through the network together

_RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU)
_DRAWN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class TorchEngine:
    """Federated local training of any module that is a function of its parameters and one input.

    One step of a job is PyTorch's SGD on the mean loss L of the batch: with momentum m and weight decay d

        g = dL/dw + d w,    u = m u + g (u = g at first),    w = w - learning_rate u.

    The momentum of a job starts at zero: clients keep no state between rounds.

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
    ) -> None:
        checked_setting(learning_rate, batch_size)
        _check_factor("momentum", momentum, below=1.0)
        _check_factor("weight_decay", weight_decay, below=np.inf)
        data = checked_dataset(dataset)
        self._device = _device(device)
        self._loss = loss or _cross_entropy
        self._rate, self._batch = float(learning_rate), int(batch_size)
        self._momentum, self._decay = float(momentum), float(weight_decay)
        self._data = data
        self._train_x, self._train_y = self._tensor(data.train_x), self._tensor(data.train_y)
        self._test_x, self._test_y = self._tensor(data.test_x), self._tensor(data.test_y)
        self._module = _checked_module(deepcopy(module) if isinstance(module, nn.Module) else module()).to(self._device)
        self._channel = _wants_channel(self._module) and data.train_x.ndim == 3
        self._names = [name for name, _ in self._module.named_parameters()]
        self._shapes = [parameter.shape for parameter in self._module.parameters()]
        self._try_out()

    @property
    def parameters(self) -> int:
        """P, the length of a model vector; its parameters are in the order of ``named_parameters``."""
        return sum(shape.numel() for shape in self._shapes)

    def initial(self, rng: np.random.Generator) -> Vector:
        """Return an initial model (P,).

        Linear and convolution layers are drawn from ``rng`` exactly as in the mlp engine; any other layer by its own
        ``reset_parameters``, seeded from ``rng`` (a layer without that method keeps its values).
        """
        parts: list[Vector] = []
        for layer in self._module.modules():
            own = list(layer.parameters(recurse=False))
            if type(layer) in _DRAWN:
                parts.append(linear_start(rng, tuple(own[0].shape), sum(bias.numel() for bias in own[1:])))
            elif own:
                parts.append(_reset(layer, int(rng.integers(2**63))))
        return np.concatenate(parts)

    def train(self, jobs: Sequence[Job]) -> NDArray[np.float32]:
        """Return the trained models (J, P), one for each of the J jobs."""
        checked = checked_jobs(jobs, self.parameters, len(self._train_y))
        if not checked:
            return np.empty((0, self.parameters), np.float32)
        order = self._tensor(_batches(checked, self._batch))  # (steps, J, batch), -1 where there is no sample
        weights, ids = (order >= 0).float(), order.clamp(min=0)
        models = self._tensor(np.stack([job.start for job in checked]))
        velocity = torch.zeros_like(models)
        with _exact():
            for weight, picked in zip(weights, ids, strict=True):
                gradient = self._gradient(models, self._train_x[picked], self._train_y[picked], weight)
                velocity = self._momentum * velocity + (gradient + self._decay * models)
                models = torch.where(weight[:, :1] > 0, models - self._rate * velocity, models)
        return cast(NDArray[np.float32], models.cpu().numpy())

    def evaluate(self, models: NDArray[np.float32]) -> Evaluation:
        """Return accuracy and mean loss of the models (K, P) on the test set."""
        rows = self._tensor(checked_models(models, self.parameters))
        count = len(self._test_y)
        right = torch.zeros(len(rows), dtype=torch.float64, device=self._device)
        loss = torch.zeros_like(right)
        with torch.no_grad(), _exact():
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
        return cast(Tensor, functional_call(self._module, named, (x,)))

    def _gradient(self, models: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Return each job's gradient (J, P) of its mean loss over a batch: x (J, n, *shape), y and weight (J, n).

        A job's loss depends on no other job's model, so one backward pass of the sum gives them all. The loss is
        called on all J n samples at once, outside vmap, so it may use operations that vmap does not support.
        """
        leaf = models.detach().requires_grad_()
        logits = vmap(self._logits, randomness="error")(leaf, self._input(x))
        losses = self._loss(logits.flatten(0, 1), y.flatten()).view_as(weight)
        means = (losses * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        return torch.autograd.grad(means.sum(), leaf)[0]

    def _input(self, raw: Tensor) -> Tensor:
        x = raw.float() / 255.0 if raw.dtype == torch.uint8 else raw
        x = (x - self._data.shift) / self._data.scale
        return x.unsqueeze(-3) if self._channel else x

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=self._device)

    def _try_out(self) -> None:
        """Run one forward pass of two samples and one step of two clients, so that errors show at construction."""
        models = torch.zeros((2, self.parameters), device=self._device)
        x, y = self._input(self._train_x[:1]), self._train_y[:1]
        try:
            logits = self._logits(models[0], torch.cat([x, x]))
            losses = self._loss(logits, torch.cat([y, y]))
            if losses.shape == (2,):
                twice = torch.stack([self._train_x[:1], self._train_x[:1]])
                self._gradient(models, twice, torch.stack([y, y]), torch.ones((2, 1), device=self._device))
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


def mlp_module(dataset: Dataset, hidden: Sequence[int] = HIDDEN) -> nn.Module:
    """Return the network of ``MlpEngine``: flatten, then linear layers with ReLU between them.

    Args:
        dataset: its sample shape and number of classes set the sizes of the input and the output.
        hidden: units of each hidden layer.
    """
    sizes = [int(np.prod(dataset.train_x.shape[1:])), *hidden, dataset.classes]
    layers: list[nn.Module] = [nn.Flatten()]
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cnn_module(dataset: Dataset, channels: tuple[int, int] = (8, 16)) -> nn.Module:
    """Return a small convolutional network: twice 5x5 convolution, ReLU and 2x2 max pooling, then one linear layer.

    Args:
        dataset: samples of (height, width) or (channels, height, width), at least 16 x 16 pixels.
        channels: output channels of the two convolutions.
    """
    shape = dataset.train_x.shape[1:]
    *depth, height, width = shape if len(shape) >= 2 else (0, 0)
    if len(depth) > 1 or min(height, width) < 16:
        raise InputError(f"samples have shape {dataset.train_x.shape[1:]}; the CNN needs images of at least 16 x 16")
    first, second = channels
    rows, columns = ((size - 4) // 2 - 4 for size in (height, width))
    return nn.Sequential(
        nn.Conv2d(depth[0] if depth else 1, first, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * (rows // 2) * (columns // 2), dataset.classes),
    )


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, reduction="none")


def _exact() -> AbstractContextManager[None]:
    """Deterministic convolutions in full float32; by default cuDNN uses TF32 and its fastest algorithm."""
    return cast(
        AbstractContextManager[None],
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False),
    )


def _batches(jobs: Sequence[Job], size: int) -> NDArray[np.int64]:
    """Return the indices of all jobs as (steps, J, size); -1 where a batch is short or a job has ended."""
    steps = max(job.order.shape[0] * -(-job.order.shape[1] // size) for job in jobs)
    table = np.full((steps, len(jobs), size), -1, np.int64)
    for number, job in enumerate(jobs):
        epochs, samples = job.order.shape
        padded = np.full((epochs, -(-samples // size) * size), -1, np.int64)
        padded[:, :samples] = job.order
        batches = padded.reshape(-1, size)
        table[: len(batches), number] = batches
    return table


def _reset(layer: nn.Module, seed: int) -> Vector:
    """Return a layer's parameters as its ``reset_parameters`` draws them, without changing PyTorch's global state."""
    reset = getattr(layer, "reset_parameters", None)
    if reset is not None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            reset()
    own = [parameter.detach().cpu().numpy().ravel() for parameter in layer.parameters(recurse=False)]
    return np.concatenate(own).astype(np.float32)


def _checked_module(module: nn.Module) -> nn.Module:
    """Return the module, or raise if its state does not fit into a model vector or it cannot be trained stacked."""
    if not isinstance(module, nn.Module):
        raise InputError(f"module is a {type(module).__name__}; give an nn.Module or a function that returns one")
    for name, layer in module.named_modules():
        if isinstance(layer, _RANDOM) and getattr(layer, "p", 1.0) != 0:
            raise InputError(
                f"layer {name!r} ({type(layer).__name__}) draws random numbers in training, which would not be "
                "reproducible across clients; remove it"
            )
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise InputError(
            f"the module has the buffer {buffers[0]!r}, which is not part of the model vector and would not be "
            "averaged; use layers without running statistics, such as GroupNorm instead of BatchNorm"
        )
    parameters = dict(module.named_parameters())
    if len(parameters) != len(dict(module.named_parameters(remove_duplicate=False))):
        raise InputError("the module shares a parameter between layers; give each layer its own")
    wrong = [name for name, value in parameters.items() if value.dtype != torch.float32 or not value.requires_grad]
    if wrong or not parameters:
        what = f"parameter {wrong[0]!r} is frozen or not float32" if wrong else "the module has no parameters"
        raise InputError(f"{what}; give a module whose parameters are all float32 and trained")
    return module.train()


def _wants_channel(module: nn.Module) -> bool:
    first = next((layer for layer in module.modules() if list(layer.parameters(recurse=False))), None)
    return isinstance(first, nn.Conv2d)


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
