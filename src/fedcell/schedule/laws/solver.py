"""Compiled: which share a device needs to be done by T, and when a set is done, by the functions that a law registers.

A law is, here, a named tuple whose type selects the code (Numba compiles each caller once for each law that is used)
and three numbers for each device: c and t, mostly its upload and compute time in seconds, and e, whatever else the law
has to know. The need g(T) falls with T for every law; all that is built on it uses nothing else. So a law has to
register `need`, and all other functions of this module follow from it; a law registers those of them that it can
compute faster, and those where its needs fall in steps.

A group is a set of devices that changes: the first n columns of an array of GROUP_ROWS rows, of which the first three
are their c, t and e, and the others are scratch.
"""

# ruff: noqa: ARG001 - a function takes whatever any law may need

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from fedcell.runtime import cached_njit
from fedcell.types import Bools, Floats, Indices

FITS = 1.0 + 1e-12
"""Needs that sum to this fit: they are rounded, and the exact round time is solved for later."""
GROUP_ROWS = 7
SERIES_SIZE = 32
"""So many numbers a law may keep while a group grows; see `grown_round_time`."""
_LATEST_S = 1e300


class Needs(NamedTuple):
    """What the compiled functions take of M devices under a law.

    Attributes:
        law: a named tuple of the law's own type, for which its functions are registered, with its numbers.
        c: (M,) what the law's `need` takes as c.
        t: (M,) likewise.
        e: (M,) likewise; c again where the law has no use for it.
    """

    law: Any
    c: Floats
    t: Floats
    e: Floats


_registered: dict[str, dict[type, Callable[..., Any]]] = {}


def register(kind: type, **functions: Callable[..., Any]) -> None:
    """Register a law's functions, which Numba compiles in place of those of this module.

    Args:
        kind: the named tuple that stands for the law in compiled code.
        functions: at least ``need``, and any other function of this module that takes a law first; written in Python
            that Numba compiles, with the same arguments.
    """
    for name, function in functions.items():
        _registered[name][kind] = function


def _by_law(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let Numba compile calls of this function as the law's own one, or as itself if the law has none."""
    own = _registered[function.__name__] = {}
    overload(function, strict=False)(lambda law, *_: own.get(law.instance_class, function))
    return function


# What a law has to say.


@_by_law
def need(law: Any, c: float, t: float, e: float, T: float) -> float:
    """Return the share that a device needs to be done by T; infinite if none is enough."""
    raise NotImplementedError


# What follows from it for one device.


@_by_law
def inverse_share(law: Any, c: float, t: float, e: float, T: float) -> float:
    """Return a number that ranks devices by their needs just below T: the larger, the smaller the need.

    It rises with T, and is not positive where no share is enough. A law whose needs fall in steps registers one that
    tells devices of equal needs apart.
    """
    share = need(law, c, t, e, T)
    if share == np.inf:
        return -np.inf
    return 1.0 / share if share > 0.0 else np.inf


@_by_law
def is_linear(law: Any) -> bool:
    """Return whether inverse shares are straight lines, (T - t) / c, where a device can be done at all."""
    return False


@_by_law
def tangent(law: Any, c: float, t: float, e: float, T: float) -> tuple[float, float]:
    """Return value and falling slope at T of a convex function that is never above the need.

    It is infinite where no share is enough, or 0 everywhere, which says nothing: the exact optimum then takes longer.
    """
    return 0.0, 0.0


@_by_law
def solo_finish_s(law: Any, c: float, t: float, e: float) -> float:
    """Return when a device is done that has everything to itself."""
    high = t + c
    while not need(law, c, t, e, high) <= 1.0:
        high = t + 2.0 * (high - t)
        if not high < _LATEST_S:
            return np.inf
    low = t
    while True:
        T = low + 0.5 * (high - low)
        if not low < T < high:
            return high
        if need(law, c, t, e, T) <= 1.0:
            high = T
        else:
            low = T


@_by_law
def exceeds(law: Any, c: float, t: float, e: float, T: float, share_left: float) -> bool:
    """Return whether a device cannot be done by T with the share that is left."""
    share: float = need(law, c, t, e, T)
    return share > share_left + 1e-12


# What follows from it for several devices.


@_by_law
def inverse_shares(law: Any, c: Floats, t: Floats, e: Floats, T: float, found: Floats) -> None:
    """Fill ``found`` with the inverse shares of devices."""
    for i in range(c.size):
        found[i] = inverse_share(law, c[i], t[i], e[i], T)


@_by_law
def needs_at(law: Any, c: Floats, t: Floats, e: Floats, T: float, found: Floats) -> None:
    """Fill ``found`` with the needs of devices at T."""
    for i in range(c.size):
        found[i] = need(law, c[i], t[i], e[i], T)


@_by_law
def needed(law: Any, group: Floats, n: int, T: float) -> float:
    """Return the sum of the shares with which a group's n devices are done by T; infinite if one cannot be."""
    needs_at(law, group[0, :n], group[1, :n], group[2, :n], T, group[3, :n])
    total = 0.0
    for i in range(n):
        total += group[3, i]
    return total


@_by_law
def fits(law: Any, total: float) -> bool:
    """Return whether devices whose needs at T sum to ``total`` can be done before T, or perhaps at it."""
    return total <= FITS  # needs that fall in steps may be met exactly


@_by_law
def round_time(law: Any, group: Floats, n: int, start_s: float) -> float:
    """Return t*(S), the least T at which the needs of a group's n devices sum to at most 1; infinite if there is none.

    ``start_s`` is a lower bound on it that the caller happens to know (0 if none).
    """
    low = start_s
    for i in range(n):
        low = max(low, solo_finish_s(law, group[0, i], group[1, i], group[2, i]))
    if not low < _LATEST_S:
        return np.inf
    if needed(law, group, n, low) <= FITS:
        return low
    high = 2.0 * low
    while not needed(law, group, n, high) <= FITS:
        high *= 2.0
        if not high < _LATEST_S:
            return np.inf
    while True:
        T = low + 0.5 * (high - low)
        if not low < T < high:
            return high
        if needed(law, group, n, T) <= FITS:
            high = T
        else:
            low = T


@_by_law
def grown_round_time(law: Any, group: Floats, n: int, T: float, series: Floats, many: int) -> float:
    """Return the round time of a group's n devices, where T is that of all but the last.

    ``series`` has SERIES_SIZE numbers, zeros at first, that are kept from call to call while a group grows. A law may
    use them for groups of more than ``many`` devices, so that a device more costs no more in a larger group.
    """
    end_s: float = round_time(law, group, n, T)
    return end_s


@_by_law
def smallest_need(law: Any, near: Floats, index: Indices, n: int, T: float) -> int:
    """Return the position, among n devices, of the one with the smallest need just below T, of equal ones the first.

    ``near`` has their c, t, e and 1/c in its first rows, one row of scratch, and ``index`` their order.
    """
    mine = near[4, :n]
    inverse_shares(law, near[0, :n], near[1, :n], near[2, :n], T, mine)
    found = 0
    for at in range(1, n):
        if mine[at] > mine[found] or (mine[at] == mine[found] and index[at] < index[found]):
            found = at
    return found


@_by_law
def share_rows(law: Any, c: Floats, t: Floats, e: Floats, used: Bools, shares: Floats, round_s: Floats) -> bool:
    """Fill the shares, and the round time, of every row of (rows, n) arrays; ``used`` is (0, 0) where all devices are.

    The shares are what the devices need to be done by the end of the round. Returns whether they sum to 1 exactly.
    """
    rows, n = c.shape
    group = np.empty((GROUP_ROWS, n))
    for row in range(rows):
        size = 0
        for i in range(n):
            if used.size == 0 or used[row, i]:
                group[0, size], group[1, size], group[2, size] = c[row, i], t[row, i], e[row, i]
                size += 1
        T = round_time(law, group, size, 0.0)
        round_s[row] = T
        needs_at(law, group[0, :size], group[1, :size], group[2, :size], T, group[3, :size])
        size = 0
        for i in range(n):
            shares[row, i] = 0.0
            if used.size == 0 or used[row, i]:
                shares[row, i] = group[3, size]
                size += 1
    return False


# The n-th largest of many numbers, which NumPy has, but which would take eight times as long to compile.


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
    low: Any = np.int64(0)
    high = a.size - 1  # a literal 0 would have `parted` compiled twice
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
