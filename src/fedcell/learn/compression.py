"""Compression of uploads: what arrives of an update, and how many bits it has on the air.

A compression is named by a short string, the same in Python, on the command line and in TOML::

none                  the weights as they are, 32 bits each
quantise:bits=8       stochastic rounding to few bits a weight (Alistarh et al. 2017); see `fedcell.quantisation`
topk:part=0.01        the largest hundredth of the entries as they are (Aji, Heafield 2017), with error feedback
sign                  of each entry the sign, of each tensor the mean size (Karimireddy et al. 2019), likewise

Rounding is unbiased and needs no memory. The other two are not: with error feedback a device keeps what it has not
sent, its residual, and adds it to the next update that it sends, however many rounds later that is. A device whose
upload does not arrive keeps its residual as it was.

The rounding of `fedcell.quantisation` is compiled here: the same models, bit for bit, in a fraction of the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray
from typing_extensions import override

from fedcell import settings
from fedcell.errors import InputError, require_number
from fedcell.learn.engine import HostUpdates, Job, Updates
from fedcell.quantisation import (
    HEADER_BITS,
    MIN_SCALE,
    MOST_BITS,
    SCALE_BITS,
    WEIGHT_BITS,
    checked_bits,
    key_words,
    levels_of,
    upload_bits,
)
from fedcell.runtime import cached_njit
from fedcell.types import Vector

Residuals = Mapping[int, Vector]
"""What devices have not sent yet (P,), by their numbers; those that have never sent anything have none."""


class Compression:
    """What becomes of an update on its way; the classes below are all there are.

    Attributes:
        name: in specs.
        bits: a weight, as an engine rounds it; 32 if it does not.
        feedback: whether devices keep what they have not sent. Then `sent` says what that is, and nobody else decides
            the bits of an upload.
    """

    name: ClassVar[str]
    bits: int = WEIGHT_BITS
    feedback: ClassVar[bool] = False

    def upload_bits(self, weights: float, tensors: int) -> float:
        """Return the size of an upload in bits.

        Args:
            weights: number of weights of the model.
            tensors: number of arrays that they are in.
        """
        return float(upload_bits(weights, tensors, self.bits))

    def sent(self, update: Vector, tensors: Sequence[int]) -> Vector:  # noqa: ARG002
        """Return what is sent (P,) of an update (P,) whose arrays have so many weights."""
        return update


@dataclass(frozen=True)
class Whole(Compression):
    """The weights as they are."""

    name = "none"


@dataclass(frozen=True)
class Quantise(Compression):
    """Stochastic rounding to ``bits`` a weight, from 2 to 16. Whoever plans may decide other bits."""

    name = "quantise"
    bits: int = 8
    feedback: bool = False  # type: ignore[misc]

    def __post_init__(self) -> None:
        if self.feedback:
            raise InputError(
                "feedback of quantise is true, but error feedback with 2-bit stochastic rounding diverges, and with "
                "more bits it is not needed, for rounding is unbiased; leave feedback out"
            )
        checked_bits("quantise has", np.array([self.bits], np.float64))
        if self.bits > MOST_BITS:
            raise InputError(f"quantise has {self.bits} bits a weight, which rounds nothing; write none")


@dataclass(frozen=True)
class TopK(Compression):
    """The largest ``part`` of all entries, at least one; the first of equal ones."""

    name = "topk"
    feedback = True
    part: float = 0.01

    def __post_init__(self) -> None:
        require_number("part", self.part, above=0)
        if self.part > 1.0:
            raise InputError(f"part of topk is {self.part!r}; give a number above 0, up to 1")

    def count(self, weights: float) -> int:
        """Return how many entries are sent."""
        return max(1, ceil(self.part * weights))

    @override
    def upload_bits(self, weights: float, tensors: int) -> float:
        """A header, the entries, and where they are: a number for each or a bit for every weight, what is shorter."""
        count = self.count(weights)
        return float(HEADER_BITS + WEIGHT_BITS * count + min(count * ceil(log2(max(weights, 2.0))), ceil(weights)))

    @override
    def sent(self, update: Vector, tensors: Sequence[int]) -> Vector:
        size, count = np.abs(update), self.count(update.size)
        least = np.partition(size, update.size - count)[update.size - count]
        kept = size > least
        kept[np.flatnonzero(size == least)[: count - int(kept.sum())]] = True
        return np.where(kept, update, np.float32(0.0))


@dataclass(frozen=True)
class Sign(Compression):
    """Of each entry its sign (zero counts as positive), of each tensor the mean of the entries' sizes."""

    name = "sign"
    feedback = True

    @override
    def upload_bits(self, weights: float, tensors: int) -> float:
        return float(HEADER_BITS + SCALE_BITS * tensors + ceil(weights))

    @override
    def sent(self, update: Vector, tensors: Sequence[int]) -> Vector:
        parts = np.split(update, np.cumsum(tensors)[:-1])
        scales = [np.float32(np.abs(part).mean(dtype=np.float64)) for part in parts]
        return np.concatenate(
            [np.where(part >= 0, scale, -scale) for part, scale in zip(parts, scales, strict=True)], dtype=np.float32
        )


COMPRESSIONS = settings.Registry[Compression](
    "compression", {kind.name: f"{kind.__module__}:{kind.__name__}" for kind in (Whole, Quantise, TopK, Sign)}
)
"""By name. A new one is a class and its place here."""


def fed_back(
    compression: Compression,
    updates: Updates,
    start: Vector,
    devices: NDArray[np.int64],
    residuals: Residuals,
    tensors: tuple[int, ...],
    *,
    sums: bool,
) -> tuple[HostUpdates, Residuals]:
    """Compress updates with error feedback.

    Args:
        compression: one with ``feedback``.
        updates: of n devices, as trained.
        start: (P,) the model that all of them started from.
        devices: (n,) their numbers.
        residuals: before.
        tensors: the number of weights of each array of a model.
        sums: whether anybody wants the sums of the updates as trained.

    Returns:
        The updates that arrive, and the residuals after.

    Example:
        >>> import numpy as np
        >>> from fedcell.learn.compression import TopK, fed_back
        >>> from fedcell.learn.engine import HostUpdates
        >>> start, kept = np.zeros(3, np.float32), {}
        >>> for _ in range(2):
        ...     trained = HostUpdates([start], np.array([[3, -2, 0]], np.float32), np.ones(1))
        ...     found, kept = fed_back(TopK(0.3), trained, start, np.array([7]), kept, (3,), sums=False)
        ...     print(found.models().tolist(), kept[7].tolist())
        [[3.0, 0.0, 0.0]] [0.0, -2.0, 0.0]
        [[0.0, -4.0, 0.0]] [3.0, 0.0, 0.0]
    """
    trained, kept = updates.models(), dict(residuals)
    models = np.empty_like(trained)
    for row, device in enumerate(devices.tolist()):
        wanted = trained[row] - start
        if device in kept:
            wanted += kept[device]
        if not np.isfinite(wanted).all():  # training has diverged, which ends the run
            models[row] = np.nan
            continue
        sent = compression.sent(wanted, tensors)
        models[row], kept[device] = start + sent, wanted - sent
    found = updates.sums() if sums else np.empty(0)
    return HostUpdates([start] * len(models), models, updates.losses, updates.rms, tensors, found), kept


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
            if scale >= np.float32(MIN_SCALE):
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


@cached_njit(nogil=True)
def sketched(  # pragma: no cover - compiled
    update: Vector, order: NDArray[np.int32], signs: Vector, sketch: NDArray[np.float64]
) -> None:
    """Fill the sketch of an update: of each part of its entries the sum, with their signs, as np.sum adds them up."""
    length = order.size // sketch.size
    for at in range(sketch.size):
        sketch[at] = _part_sum(update, order, signs, at * length, length)


@cached_njit(nogil=True)
def _part_sum(  # pragma: no cover - compiled
    update: Vector, order: NDArray[np.int32], signs: Vector, first: int, n: int
) -> float:
    """Return the sum of n entries as np.sum does it, by pairs of halves that are multiples of 8."""
    if n > 128:
        half = n // 2 - n // 2 % 8
        whole = _part_sum(update, order, signs, first, half)
        return whole + _part_sum(update, order, signs, first + half, n - half)
    total, last = 0.0, first
    if n >= 8:
        last = first + n - n % 8
        a = b = c = d = e = f = g = h = 0.0
        for i in range(first, last, 8):
            a += np.float64(update[order[i]] * signs[i])
            b += np.float64(update[order[i + 1]] * signs[i + 1])
            c += np.float64(update[order[i + 2]] * signs[i + 2])
            d += np.float64(update[order[i + 3]] * signs[i + 3])
            e += np.float64(update[order[i + 4]] * signs[i + 4])
            f += np.float64(update[order[i + 5]] * signs[i + 5])
            g += np.float64(update[order[i + 6]] * signs[i + 6])
            h += np.float64(update[order[i + 7]] * signs[i + 7])
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(last, first + n):
        total += np.float64(update[order[i]] * signs[i])
    return total
