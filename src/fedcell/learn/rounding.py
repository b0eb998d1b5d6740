"""Rounded uploads, compiled: the models of `fedcell.quantisation`, bit for bit, in a fraction of a training's time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedcell.learn.engine import HostUpdates, Job
from fedcell.quantisation import LEAST_SCALE, WEIGHT_BITS, key_words, levels_of
from fedcell.runtime import cached_njit
from fedcell.types import Vector

EXPONENT = np.uint32(0x7F800000)
"""The bits of an infinite float32; those of NaN are more."""


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})
def measured(start: Any, model: Any) -> Any:
    """Of an update, a tensor: the bits of its largest |u|, the sum of |u| and that of u^2."""
    top, total, square = np.uint32(0), 0.0, 0.0
    for i in range(start.size):
        u = np.float32(abs(model[i] - start[i]))
        top = max(top, np.float32(u).view(np.uint32))  # as numbers, and NaN is larger than all
        total += np.float64(u)
        square += np.float64(u) * np.float64(u)
    return top, total, square


@njit(nogil=True, error_model="numpy")  # without fastmath: nothing is fused
def rounded(start: Any, model: Any, first: Any, a: Any, b: Any, most: Any, scale: Any) -> None:
    """Replace a tensor by its start and the rounded update; its first entry is number ``first`` of the vector."""
    factor, step = most / scale, scale / most
    for i in range(start.size):
        x = np.uint32(np.uint32(first + i) * b) + a
        x = np.uint32(x)
        x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D))
        x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B))
        x = np.uint32(x ^ (x >> np.uint32(16)))
        drawn = np.float32(np.int32(x >> np.uint32(8))) * np.float32(2.0**-24)
        level = (model[i] - start[i]) * factor
        low = np.floor(level)
        low += np.float32(1.0) if drawn < level - low else np.float32(0.0)
        model[i] = start[i] + min(max(low, -most), most) * step


@cached_njit(nogil=True, error_model="numpy")
def round_model(start: Any, model: Any, ends: Any, a: Any, b: Any, most: Any, sums: Any) -> None:
    """Round the update of one model in place, and write its peaks, absolutes and squares as trained to ``sums``."""
    first = 0
    sums[:] = 0.0
    for tensor in range(ends.size):
        last = ends[tensor]
        before, after = start[first:last], model[first:last]
        top, total, square = measured(before, after)
        if top >= EXPONENT:
            after[:] = np.nan
            sums[:] = np.nan
        else:
            scale = np.uint32(top).view(np.float32)
            sums[0] += (last - first) * np.float64(scale) * np.float64(scale)
            sums[1] += np.float64(scale) * total
            sums[2] += square
            if scale >= np.float32(LEAST_SCALE):
                rounded(before, after, first, a, b, most, scale)
            else:
                after[:] = before
        first = last


def round_job(job: Job, model: Vector, ends: NDArray[np.int64], sums: NDArray[np.float64]) -> None:
    """Round what a job uploads, if it is to be rounded.

    Args:
        job: checked.
        model: (P,) as trained; replaced by its start and what arrives of the update.
        ends: (T,) where each tensor ends in it.
        sums: (3,) replaced by the peaks, absolutes and squares of the update as trained.
    """
    if job.bits < WEIGHT_BITS:
        a, b = key_words(job.key)
        round_model(job.start, model, ends, np.uint32(a), np.uint32(b), np.float32(levels_of(job.bits)), sums)


def rounded_updates(
    jobs: Sequence[Job],
    models: NDArray[np.float32],
    losses: NDArray[np.float64],
    rms: NDArray[np.float64],
    tensors: tuple[int, ...],
) -> HostUpdates:
    """Return the updates of jobs whose models are in this process's memory, rounded as the jobs say.

    Args:
        jobs: J of them, checked.
        models: (J, P) as trained; written to.
        losses: (J,) mean training losses.
        rms: (J,) root mean squares of the samples' losses.
        tensors: the number of weights of each array of a model.
    """
    ends, sums = np.cumsum(tensors), np.full((len(jobs), 3), np.nan)
    for job, model, row in zip(jobs, models, sums, strict=True):
        round_job(job, model, ends, row)
    return HostUpdates([job.start for job in jobs], models, losses, rms, tensors, sums)
