"""A task ready to be trained: the data, its partition, and the engine. Data and engines are shared between runs."""

import logging
import os
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcell.errors import InputError, short_repr, user_code
from fedcell.learn.data import Dataset, load_dataset
from fedcell.learn.engine import Engine, Evaluation, is_count
from fedcell.learn.partition import label_counts, partition
from fedcell.plugins import code_of, load_own
from fedcell.rng import stream
from fedcell.runtime import WORKER_NUMBER, memory_bytes
from fedcell.sim.spec import Spec, TaskSpec

_LOADING = Lock()  # runs in several threads share what is loaded


@dataclass(frozen=True, eq=False)
class Task:
    """What a run trains.

    Attributes:
        engine: trains and evaluates models.
        parts: M arrays of sample indices, one for each device.
        samples: (M,) number of samples on each device.
        label_counts: (M, classes) number of samples of each label on each device.
    """

    engine: Engine
    parts: list[NDArray[np.int64]]
    samples: NDArray[np.int64]
    label_counts: NDArray[np.int64]


def load_task(spec: TaskSpec, devices: int, seed: int, threads: int | None = None) -> Task:
    """Load the data, split it among the devices, and build the engine.

    Args:
        spec: the data, the partition, the model and its training.
        devices: M, the number of devices.
        seed: random seed of the partition.
        threads: training threads; by default one per core.

    Returns:
        Task: the engine, and who has which samples.
    """
    with _LOADING:
        content = spec.data_sha256()  # a file that changes while a long process runs is loaded again
        data = _dataset(spec, content)
        _check_size(spec, data, devices)
        # No batch is larger than all samples, which a larger batch_size would make room for.
        batch_size = min(spec.batch_size, len(data.train_y))
        plain = {"partition": "iid", "sizes": "equal", "epochs": 1, "schedule": "constant"}
        plain |= {"aggregator": "mean", "compression": "none"}
        same = spec.model_copy(update={**plain, "batch_size": batch_size})
        engine = _engine(data, content, same, threads)
    parts = partition(data.train_y, devices, spec.partition, stream(seed, "partition"), spec.sizes, data.owners)
    return Task(engine, parts, np.array([len(part) for part in parts]), label_counts(data.train_y, parts, data.classes))


def layers(spec: TaskSpec) -> dict[str, tuple[int, ...]]:
    """The arrays that a model vector consists of, in its order: their names and shapes as in PyTorch's state_dict.

    Args:
        spec: the data and the model.

    Example:
        >>> from fedcell.sim.spec import Spec, TaskSpec
        >>> from fedcell.sim.task import layers
        >>> layers(TaskSpec(hidden=[4]))
        {'1.weight': (4, 784), '1.bias': (4,), '3.weight': (10, 4), '3.bias': (10,)}
    """
    with _LOADING:
        data = _dataset(spec, spec.data_sha256())
        if spec.model != "mlp":
            return {name: tuple(array.shape) for name, array in _module(data, spec).named_parameters()}
    found: dict[str, tuple[int, ...]] = {}
    # In torch_modules.mlp_module layer 0 flattens, and every other layer is a ReLU.
    for number, (n_in, n_out) in enumerate(pairwise(_mlp_sizes(spec, data))):
        found |= {f"{2 * number + 1}.weight": (n_out, n_in), f"{2 * number + 1}.bias": (n_out,)}
    return found


def evaluate_models(spec: TaskSpec, models: NDArray[np.float32], label: int | None = None) -> Evaluation:
    """Accuracy and loss of models (K, P) on the test samples, or on those of one label; NaN if there are none.

    Args:
        spec: the data and the model.
        models: (K, P) model vectors.
        label: of the test samples; all by default.
    """
    with _LOADING:
        data = _dataset(spec, spec.data_sha256())
        ours = np.ones(len(data.test_y), bool) if label is None else data.test_y == label
        if not ours.any():
            return Evaluation(np.full(len(models), np.nan), np.full(len(models), np.nan))
        # Nothing is trained, so one training sample is enough.
        part = replace(data, train_x=data.train_x[:1], train_y=data.train_y[:1])
        part = replace(part, test_x=data.test_x[ours], test_y=data.test_y[ours])
        engine = _build(part, spec.model_copy(update={"batch_size": 1}), None)
    return engine.evaluate(models)


def class_accuracy(spec: TaskSpec, models: NDArray[np.float32]) -> NDArray[np.float64]:
    """(K, classes) of models (K, P), the fraction of each class's test samples classified right; NaN without any."""
    with _LOADING:
        classes = _dataset(spec, spec.data_sha256()).classes
    return np.stack([evaluate_models(spec, models, label).accuracy for label in range(classes)], axis=1)


def _mlp_sizes(spec: TaskSpec, data: Dataset) -> list[int]:
    return [prod(data.train_x.shape[1:]), *spec.hidden, data.classes]


def _check_size(spec: TaskSpec, data: Dataset, devices: int) -> None:
    """Refuse an MLP that does not fit into memory: in a round, each device that trains has a model."""
    if spec.model != "mlp":
        return
    if not all(is_count(units) for units in spec.hidden):
        raise InputError(f"task.hidden is {spec.hidden}; give the number of units of each hidden layer, 1 or more")
    weights = sum((n_in + 1) * n_out for n_in, n_out in pairwise(_mlp_sizes(spec, data)))
    needed, there = 4 * weights * (devices + 2), memory_bytes()
    if needed > there:
        raise InputError(
            f"task.hidden is {short_repr(spec.hidden)}, a model of {weights:.3g} weights: with {devices} devices that "
            f"takes {needed / 2**30:.3g} GiB, and this machine has {there / 2**30:.3g} GiB; give fewer units"
        )


def _dataset(spec: TaskSpec, content: str) -> Dataset:
    return _loaded(spec.data, spec.scaling, spec.layout, content)


@lru_cache(maxsize=2)
def _loaded(name: str, scaling: str, layout: str, content: str) -> Dataset:  # noqa: ARG001
    return load_dataset(name, scaling, layout=layout)


_engines: dict[Any, Engine] = {}


def _engine(data: Dataset, content: str, spec: TaskSpec, threads: int | None) -> Engine:
    """Return a cached engine, or build one: engines keep the data in their own form, so the last few are kept."""
    own = code_of(object, spec.model)
    if own.unknown:  # a model of one's own that cannot be told from another one
        return _build(data, spec, threads)
    key = (content, spec.model_dump_json(), threads, own.sha256)
    if key not in _engines:
        while len(_engines) >= 2:
            _engines.pop(next(iter(_engines)))
        _engines[key] = _build(data, spec, threads)
    return _engines[key]


def _build(data: Dataset, spec: TaskSpec, threads: int | None) -> Engine:
    if spec.engine == "mlp":
        from fedcell.learn.mlp import MlpEngine

        if spec.model != "mlp":
            raise InputError(
                f"task.model is {spec.model!r}, which the mlp engine cannot train; set task.engine to 'torch'"
            )
        if spec.momentum or spec.weight_decay:
            raise InputError("momentum and weight_decay need the torch engine; set task.engine to 'torch'")
        if spec.device != "cpu":
            return _mlp_on_gpu(data, spec)
        return MlpEngine(data, tuple(spec.hidden), spec.learning_rate, spec.batch_size, threads)
    try:
        from fedcell.learn import torch_engine
    except ImportError:
        raise InputError("task.engine is 'torch', but PyTorch is not installed; pip install 'fedcell[torch]'") from None
    return torch_engine.TorchEngine(
        data,
        _module(data, spec),
        learning_rate=spec.learning_rate,
        batch_size=spec.batch_size,
        momentum=spec.momentum,
        weight_decay=spec.weight_decay,
        device=assigned_gpu(spec.device),
        tf32=spec.precision == "tf32",
        threads=threads,
    )


def _mlp_on_gpu(data: Dataset, spec: TaskSpec) -> Engine:
    if reason := _gpu_unsupported(data, spec):
        raise InputError(
            f"task.device is {spec.device!r}, but the MLP cannot train there: {reason}; set task.device to 'cpu', or "
            "task.engine to 'torch', which trains any model on a GPU"
        )
    from fedcell.learn.mlp_cuda import MlpCudaEngine

    return MlpCudaEngine(data, spec.learning_rate, spec.batch_size, assigned_gpu(spec.device))


def _gpu_unsupported(data: Dataset, spec: TaskSpec) -> str:
    try:
        from fedcell.learn.mlp_cuda import unsupported_reason
    except ImportError:
        return "PyTorch is not installed (pip install 'fedcell[torch]')"
    return unsupported_reason(data, spec.hidden, spec.batch_size, spec.device)


def resolve_device(spec: Spec) -> Spec:
    """The run, or race, as this machine can compute it: on the CPU, with a warning, where its GPU cannot train the MLP.

    So a stored run says what computed it: one that falls back is a run on the CPU, under the key of that.

    Args:
        spec: as the user wrote it.

    Returns:
        Spec: the same, or with ``task.device = "cpu"``.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.sim.task import resolve_device
        >>> spec = fc.Spec(task=fc.TaskSpec(device="cuda", hidden=[4]))  # made for one hidden layer of 64 units
        >>> resolve_device(spec).task.device, resolve_device(spec).key() == fc.Spec(task=fc.TaskSpec(hidden=[4])).key()
        ('cpu', True)
    """
    task = spec.task
    if task.device == "cpu" or task.engine != "mlp" or _usable(task.model_dump_json(), task.data_sha256()):
        return spec
    return spec.changed({"task.device": "cpu"})


@lru_cache(maxsize=64)  # a sweep has many runs of one task, and one warning is enough
def _usable(task: str, content: str) -> bool:
    spec = TaskSpec.model_validate_json(task)
    with _LOADING:
        reason = _gpu_unsupported(_dataset(spec, content), spec)
    if reason:
        logging.getLogger("fedcell").warning(
            "task.device is %r, but the MLP trains on the CPU: %s; task.engine 'torch' trains any model on a GPU",
            spec.device,
            reason,
        )
    return not reason


def assigned_gpu(device: str) -> str:
    """Which GPU a worker process uses for ``cuda``: they take turns at the cards; every other name is as it stands."""
    number = os.environ.get(WORKER_NUMBER)
    if device != "cuda" or number is None:
        return device
    import torch

    return f"cuda:{int(number) % max(1, torch.cuda.device_count())}"


def _module(data: Dataset, spec: TaskSpec) -> Any:
    from torch import nn

    from fedcell.learn import torch_modules

    if spec.model == "mlp":
        return torch_modules.mlp_module(data, tuple(spec.hidden))
    if spec.model == "cnn":
        return torch_modules.cnn_module(data)
    module, colon, name = spec.model.partition(":")
    if not colon:
        raise InputError(f"task.model is {spec.model!r}; write mlp, cnn or package.module:function")
    with user_code(spec.model, "task.model"):
        made = load_own(f"task.model {spec.model!r}", module, name)(data)
    if not isinstance(made, nn.Module):
        raise InputError(f"task.model {spec.model!r} returns {short_repr(made)}; let it return a torch.nn.Module")
    return made
