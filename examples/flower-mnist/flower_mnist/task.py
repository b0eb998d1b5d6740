"""What server and clients share: the run config as a fedcell spec, and the model as Flower's arrays."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, UserConfig

from fedcell.learn.engine import Vector
from fedcell.sim.spec import Spec
from fedcell.sim.task import Task, load_task


def spec_of(config: UserConfig) -> Spec:
    """The run config's fields, put over the paper's; ``radio`` and ``state`` are this app's own."""
    changes: dict[str, Any] = {name: value for name, value in config.items() if name not in ("radio", "state")}
    for name in ("rounds", "target_accuracy"):  # Flower's config has no "none"
        changes[name] = changes.get(name) or None
    return Spec().changed(changes)


def task_of(spec: Spec) -> Task:
    """MNIST, dealt to the devices, and the engine that trains the MLP on one core."""
    return load_task(spec.task, spec.devices.count, spec.seed, threads=1)


def to_arrays(model: Vector) -> ArrayRecord:
    """The model for the wire: one vector of all weights."""
    return ArrayRecord({"weights": Array(model)})


def to_model(arrays: ArrayRecord) -> Vector:
    """The inverse."""
    return np.asarray(arrays["weights"].numpy(), dtype=np.float32)
