"""What server and clients share: the run config as a fedcell spec, and the model as Flower's arrays."""

from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, UserConfig

from fedcell.errors import InputError
from fedcell.sim.loop import Simulation
from fedcell.sim.spec import Spec
from fedcell.sim.task import Task
from fedcell.types import Vector


def spec_of(config: UserConfig) -> Spec:
    """The run config's fields, put over the paper's; ``radio`` and ``state`` are this app's own."""
    changes: dict[str, Any] = {name: value for name, value in config.items() if name not in ("radio", "state")}
    for name in ("rounds", "target_accuracy", "epsilon"):  # Flower's config has no "none"
        changes[name] = changes.get(name) or None
    spec = Spec().changed(changes)
    if spec.profiles == "updates" and spec.uses_profiles:
        raise InputError("profiles is 'updates', but nodes report theirs here; set it to gradients, labels or none")
    if spec.task.aggregator not in ("mean", "samples", "balanced"):
        raise InputError(
            f"task.aggregator is {spec.task.aggregator!r}, but late models and server optimizers are the simulator's; "
            "here late models are dropped, and FedAvg averages: use mean, samples or balanced"
        )
    return spec


def run_of(config: UserConfig) -> Simulation:
    """The run: MNIST, dealt to the devices, the engine that trains the MLP on one core, and the cell."""
    return _loaded(tuple(sorted(config.items())))


@lru_cache(maxsize=1)
def _loaded(config: tuple[tuple[str, Any], ...]) -> Simulation:
    """The run of a process, loaded once: in a simulation it answers many messages."""
    return Simulation.load(spec_of(dict(config)), threads=1)


def to_arrays(model: Vector, task: Task) -> ArrayRecord:
    """The model for the wire: its tensors one after the other, each as a vector."""
    parts = np.split(model, np.cumsum(task.engine.tensors)[:-1])
    return ArrayRecord({f"tensor-{number}": Array(part) for number, part in enumerate(parts)})


def to_model(arrays: ArrayRecord) -> Vector:
    """The inverse."""
    return np.concatenate([array.numpy() for array in arrays.values()], dtype=np.float32)
