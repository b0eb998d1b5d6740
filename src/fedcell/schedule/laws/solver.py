"""Compiled: which share a device needs to be done by T, and when a set of devices is done, for every link law.

A law is, here, a tuple whose type selects the code (Numba compiles each function once for each law that is used) and
three numbers for each device: c and t, mostly its upload and compute time in seconds, and e, whatever else the law has
to know. The need g(T) falls with T for every law; all that is built on it uses nothing else.

| law | c | e | need at T |
|---|---|---|---|
| DensityNeeds | upload time with the entire band | - | c / (T - t) |
| BlocksNeeds(N) | the same | - | ceil(N c / (T - t)) / N |
| IngressNeeds | upload time with the entire pipe | of its own line | c / (T - t), from T = t + e on |
| PowerNeeds | upload time with a band without limits | SNR s over the whole band | s / u, ln(1 + u) / u = c / (T - t) |

A group is a set of devices that changes: the first n columns of an array of GROUP_ROWS rows, of which the first three
are their c, t and e, and the others are scratch.

How a set's round time is found: density.py, blocks.py and power.py; docs/optimal.md has the proofs.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from fedcell.runtime import cached_njit
from fedcell.schedule.laws.blocks import WHOLE, blocks_time
from fedcell.schedule.laws.density import density_time
from fedcell.schedule.laws.power import power_alone, power_needs, power_pace, power_paces, power_tangent, power_time
from fedcell.types import Floats

FITS = 1.0 + 1e-12
"""Needs that sum to this fit: they are rounded, and the exact round time is solved for later."""


GROUP_ROWS = 7


class DensityNeeds(NamedTuple):
    """The paper's law."""


class BlocksNeeds(NamedTuple):
    """Whole resource blocks, so many of them."""

    blocks: float


class IngressNeeds(NamedTuple):
    """Own lines into one pipe."""


class PowerNeeds(NamedTuple):
    """A total power for each device."""


Tag = DensityNeeds | BlocksNeeds | IngressNeeds | PowerNeeds


class Needs(NamedTuple):
    """What the compiled functions take of M devices under a law.

    Attributes:
        law: which law.
        c: (M,) see the table above.
        t: (M,) likewise.
        e: (M,) likewise; c again where the law has no use for it.
    """

    law: Tag
    c: Floats
    t: Floats
    e: Floats


def by_law(function: Callable[..., Any], otherwise: Callable[..., Any], kinds: dict[type, Callable[..., Any]]) -> None:
    """Have Numba compile calls of ``function`` as the one of ``kinds`` for the law that is the first argument."""
    overload(function, strict=False)(lambda law, *_: kinds.get(law.instance_class, otherwise))


def pace(law: Any, c: float, t: float, e: float, T: float) -> float:
    """Return a number that ranks devices by their needs just below T: larger for a smaller need."""
    raise NotImplementedError


def _pace(_law: Any, c: float, t: float, _e: float, T: float) -> float:
    # For blocks too: of these a device never needs fewer than one with a smaller c / (T - t).
    return (T - t) / c


def _ingress_pace(_law: Any, c: float, t: float, e: float, T: float) -> float:
    return (T - t) / c if t + e < T else -np.inf


def _power_law_pace(_law: Any, c: float, t: float, e: float, T: float) -> float:
    return power_pace(c, t, e, T)


by_law(pace, _pace, {IngressNeeds: _ingress_pace, PowerNeeds: _power_law_pace})


def paces(law: Any, c: Floats, t: Floats, e: Floats, T: float, found: Floats) -> None:
    """Fill ``found`` with the paces of devices."""
    raise NotImplementedError


def _paces(law: Any, c: Floats, t: Floats, e: Floats, T: float, found: Floats) -> None:
    for i in range(c.size):
        found[i] = pace(law, c[i], t[i], e[i], T)


def _power_paces(_law: Any, c: Floats, t: Floats, e: Floats, T: float, found: Floats) -> None:
    power_paces(c, t, e, T, found)


by_law(paces, _paces, {PowerNeeds: _power_paces})


def straight(law: Any) -> bool:
    """Return whether paces are straight lines, (T - t) / c, where a device can be done at all."""
    raise NotImplementedError


def _straight(_law: Any) -> bool:
    return True


def _bent(_law: Any) -> bool:
    return False


by_law(straight, _straight, {PowerNeeds: _bent})


def need(law: Any, c: float, t: float, e: float, T: float) -> float:
    """Return the share that a device needs to be done by T; infinite if none is enough."""
    raise NotImplementedError


def _density_need(_law: Any, c: float, t: float, _e: float, T: float) -> float:
    return c / (T - t) if t < T else np.inf


def _blocks_need(law: Any, c: float, t: float, _e: float, T: float) -> float:
    return math.ceil(law.blocks * c / (T - t) * WHOLE) / law.blocks if t < T else np.inf


def _ingress_need(_law: Any, c: float, t: float, e: float, T: float) -> float:
    return c / (T - t) if t + e <= T else np.inf


def _power_need(_law: Any, c: float, t: float, e: float, T: float) -> float:
    rate = power_pace(c, t, e, T)
    return 1.0 / rate if rate > 0.0 else np.inf


by_law(need, _density_need, {BlocksNeeds: _blocks_need, IngressNeeds: _ingress_need, PowerNeeds: _power_need})


def needs_at(law: Any, c: Floats, t: Floats, e: Floats, T: float, found: Floats) -> None:
    """Fill ``found`` with the needs of devices at T."""
    raise NotImplementedError


def _needs_at(law: Any, c: Floats, t: Floats, e: Floats, T: float, found: Floats) -> None:
    for i in range(c.size):
        found[i] = need(law, c[i], t[i], e[i], T)


def _power_needs_at(_law: Any, c: Floats, t: Floats, e: Floats, T: float, found: Floats) -> None:
    power_needs(c, t, e, T, found)


by_law(needs_at, _needs_at, {PowerNeeds: _power_needs_at})


def tangent(law: Any, c: float, t: float, e: float, T: float) -> tuple[float, float]:
    """Return value and falling slope at T of a convex function that is never above the need; infinite before it is."""
    raise NotImplementedError


def _tangent(_law: Any, c: float, t: float, _e: float, T: float) -> tuple[float, float]:
    # Blocks need no less, nor do own lines.
    return (c / (T - t), c / (T - t) / (T - t)) if t < T else (np.inf, 0.0)


def _power_tangent(_law: Any, c: float, t: float, e: float, T: float) -> tuple[float, float]:
    return power_tangent(c, t, e, T)


by_law(tangent, _tangent, {PowerNeeds: _power_tangent})


def alone(law: Any, c: float, t: float, e: float) -> float:
    """Return when a device is done that has everything to itself."""
    raise NotImplementedError


def _alone(_law: Any, c: float, t: float, _e: float) -> float:
    return c + t


def _ingress_alone(_law: Any, c: float, t: float, e: float) -> float:
    return max(c, e) + t


def _power_alone(_law: Any, c: float, t: float, e: float) -> float:
    return power_alone(c, t, e)


by_law(alone, _alone, {IngressNeeds: _ingress_alone, PowerNeeds: _power_alone})


def needed(law: Any, group: Floats, n: int, T: float) -> float:
    """Return the sum of the shares with which a group's n devices are done by T; infinite if one cannot be."""
    raise NotImplementedError


@cached_njit(nogil=True)
def _shares_at(group: Floats, n: int, T: float) -> float:  # pragma: no cover - compiled
    total = 0.0
    for i in range(n):
        if group[1, i] >= T:
            return np.inf
        total += group[0, i] / (T - group[1, i])
    return total


def _density_needed(_law: Any, group: Floats, n: int, T: float) -> float:
    return _shares_at(group, n, T)


def _any_needed(law: Any, group: Floats, n: int, T: float) -> float:
    needs_at(law, group[0, :n], group[1, :n], group[2, :n], T, group[3, :n])
    total = 0.0
    for i in range(n):
        total += group[3, i]
    return total


by_law(needed, _any_needed, {DensityNeeds: _density_needed})


def fits(law: Any, total: float) -> bool:
    """Return whether devices whose needs at T sum to ``total`` can be done before T, or perhaps at it."""
    raise NotImplementedError


def _fits_before(_law: Any, total: float) -> bool:
    return total < 1.0


def _fits_perhaps(_law: Any, total: float) -> bool:  # needs that fall in steps may be met exactly
    return total <= FITS


by_law(fits, _fits_perhaps, {DensityNeeds: _fits_before})


def round_time(law: Any, group: Floats, n: int, start_s: float) -> float:
    """Return t*(S), the least T at which the needs of a group's n devices sum to at most 1; infinite if there is none.

    ``start_s`` is a lower bound on it that the caller happens to know (0 if none).
    """
    raise NotImplementedError


def _density_round(_law: Any, group: Floats, n: int, start_s: float) -> float:
    return density_time(group[0, :n], group[1, :n], group[3, :n], start_s)


def _blocks_round(law: Any, group: Floats, n: int, start_s: float) -> float:
    c, t, k = group[0, :n], group[1, :n], group[3, :n]
    return blocks_time(law.blocks, c, t, k, density_time(c, t, k, start_s))


def _ingress_round(_law: Any, group: Floats, n: int, start_s: float) -> float:
    end_s = density_time(group[0, :n], group[1, :n], group[3, :n], start_s)
    for i in range(n):
        end_s = max(end_s, group[1, i] + group[2, i])
    return end_s


def _power_round(_law: Any, group: Floats, n: int, _start_s: float) -> float:
    return power_time(group, n)


by_law(round_time, _density_round, {BlocksNeeds: _blocks_round, IngressNeeds: _ingress_round, PowerNeeds: _power_round})


@cached_njit(nogil=True)
def parted(a: Floats, low: int, high: int) -> tuple[int, int, float]:  # pragma: no cover - compiled
    """Part a[low..high] around a pivot, Hoare's way: up to j none is larger, from i on none smaller, between all equal.

    Returns i, j and the pivot; i > low and j < high.
    """
    first, middle, last = a[low], a[(low + high) // 2], a[high]
    pivot = max(min(first, middle), min(max(first, middle), last))
    i, j = low, high
    while i <= j:
        while a[i] < pivot:
            i += 1
        while a[j] > pivot:
            j -= 1
        if i <= j:
            a[i], a[j] = a[j], a[i]
            i += 1
            j -= 1
    return i, j, pivot


@cached_njit(nogil=True)
def nth_largest(values: Floats, n: int) -> float:  # pragma: no cover - compiled
    """Return the n-th largest, as np.partition would find it, by Hoare's FIND."""
    a, k = values.copy(), values.size - n
    low, high = 0, a.size - 1
    while low < high:
        i, j, _ = parted(a, low, high)
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:  # between j and i all are the pivot
            break
    nth: float = a[k]
    return nth
