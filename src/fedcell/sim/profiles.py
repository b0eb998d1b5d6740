"""What a simulated server learns about its devices' data: from reports before the first round, or from updates."""

from __future__ import annotations  # what only types name is not imported

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcell.learn.engine import Job
from fedcell.learn.profile import REPORT_SAMPLES, normalised, private
from fedcell.rng import keyed, stream
from fedcell.schedule.bandwidth import allocate
from fedcell.types import Floats, Vector
from fedcell.world import compute_j, transmit_j

if TYPE_CHECKING:
    from fedcell.sim.spec import Spec
    from fedcell.sim.task import Task
    from fedcell.world import Conditions, World

BITS_PER_ENTRY = 32


def reports(spec: Spec, task: Task, world: World, model: Vector) -> tuple[Floats, float, Floats]:
    """Return the profiles that the devices report before the first round, how long that takes, and what it costs.

    For a ``gradients`` report every device trains on 100 of its samples from the initial model, and uploads the change
    of the output layer's biases, all devices at once with optimal shares of the band in the conditions of the first
    round. A device that is not there then reports when it comes, beside the round that goes on; one that has no rate
    then spends nothing on its report before it is first in reach (see `report_j`). Label shares (``labels``) are known
    beforehand, and cost nothing.

    Args:
        spec: the run.
        task: its data.
        world: its devices and channels.
        model: (P,) the initial model.

    Returns:
        (M, classes) profiles, NaN if there are no reports; seconds; and (M,) joules, 0 for those that have no rate yet.
    """
    M, classes = task.label_counts.shape
    if spec.profiles == "labels":
        shares = task.label_counts / np.maximum(task.samples, 1)[:, np.newaxis]
        return _hidden(shares, spec), 0.0, np.zeros(M)
    if spec.profiles != "gradients":
        return np.full((M, classes), np.nan), 0.0, np.zeros(M)
    orders = keyed(spec.seed, "profiles", 0)
    visited = [orders(i).permutation(part)[:REPORT_SAMPLES] for i, part in enumerate(task.parts)]
    updates = task.engine.update([Job(model, order[np.newaxis], key=(spec.seed, i)) for i, order in enumerate(visited)])
    conditions = world.conditions(spec.seed, 0, 0.0)
    work, size = _effort(task, world)
    there, report_s = conditions.there, 0.0
    if there.size:
        report_s = float(allocate(conditions.upload_s[there] * size, (conditions.compute_s * work)[there]).round_s)
    profiles = _hidden(output_change(updates.output_bias(classes), model, classes), spec)
    return profiles, report_s, report_j(task, world, conditions)


def report_j(task: Task, world: World, conditions: Conditions, band: float = 1.0) -> Floats:
    """Return what a ``gradients`` report costs in the conditions of a round.

    Args:
        task: its data.
        world: its devices.
        conditions: of the round.
        band: the part of the band that its upload times are for.

    Returns:
        (M,) joules; 0 for a device without a rate, which cannot send one.
    """
    work, size = _effort(task, world)
    upload_s = np.where(np.isfinite(conditions.upload_s), conditions.upload_s, 0.0)
    sending_j = transmit_j(world.devices.power_w_per_hz, world.cell.bandwidth_hz, size * band, upload_s)
    joules = work * compute_j(world.devices, conditions.compute_s) + sending_j
    return np.where(np.isfinite(conditions.upload_s), joules, 0.0)


def _effort(task: Task, world: World) -> tuple[Floats, float]:
    """(M,) the training for a report as a part of a round's, and its size as a part of an upload's."""
    visited = np.minimum([len(part) for part in task.parts], REPORT_SAMPLES)
    size = BITS_PER_ENTRY * task.label_counts.shape[1] / world.upload_bits
    return visited / np.asarray(world.devices.samples), size


def output_change(models: NDArray[np.float32], start: Vector, classes: int) -> Floats:
    """Return the normalised change of the last ``classes`` weights: the output layer's biases.

    Args:
        models: (n, P) after training, or the end of each that has at least ``classes`` weights.
        start: (P,) before it.
        classes: the number of classes.

    Returns:
        (n, classes) profiles.
    """
    return normalised(models[:, -classes:].astype(np.float64) - start[-classes:])


def _hidden(profiles: Floats, spec: Spec) -> Floats:
    if spec.epsilon is None:
        return profiles
    return private(profiles, spec.epsilon, stream(spec.seed, "privacy"))
