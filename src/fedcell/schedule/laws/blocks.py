"""Compiled: when a set of devices is done whose band comes in whole resource blocks.

t*(S) is a break point, a T at which some device can do with one block less. Blocks that are done by T are the best if
there are fewer blocks left than devices that finish at T itself: any shorter round must give each of those one more.
The search for such a T is a bisection; the last few blocks are given out one by one. docs/optimal.md has the proof.
"""

import math

import numpy as np

from fedcell.runtime import cached_njit
from fedcell.types import Floats

WHOLE = 1.0 - 1e-13
"""A number of blocks that is whole but for rounding is whole."""


@cached_njit(nogil=True)
def _blocks_at(count: float, c: Floats, t: Floats, T: float, k: Floats) -> float:  # pragma: no cover - compiled
    """Fill k with the blocks that each device needs to be done by T, and return their number."""
    total = 0.0
    for i in range(c.size):
        k[i] = math.ceil(count * c[i] / (T - t[i]) * WHOLE)
        total += k[i]
    return total


@cached_njit(nogil=True)
def _last_end(count: float, c: Floats, t: Floats, k: Floats) -> tuple[float, int]:  # pragma: no cover - compiled
    """Return when the last device is done with these blocks, and how many are done only then."""
    end_s, last = 0.0, 0
    for i in range(c.size):
        mine_s = t[i] + count * c[i] / k[i]
        if mine_s > end_s:
            end_s, last = mine_s, 0
        if mine_s == end_s:
            last += 1
    return end_s, last


@cached_njit(nogil=True)
def blocks_time(count: float, c: Floats, t: Floats, k: Floats, least_s: float) -> float:  # pragma: no cover - compiled
    """Return t*(S); ``least_s`` is that of the density law, k is scratch."""
    n = c.size
    if n > count:
        return np.inf
    if n == count:
        for i in range(n):
            k[i] = 1.0
        return _last_end(count, c, t, k)[0]
    soonest = t[0]
    for i in range(1, n):
        soonest = min(soonest, t[i])
    # At high_s every device needs at most its share of N - n blocks, and rounding up costs less than n more.
    low_s, high_s = least_s, soonest + (least_s - soonest) * (count / (count - n)) * (1.0 + 1e-12)
    short, left = float(n), count - _blocks_at(count, c, t, high_s, k)
    halve = False
    while True:  # k has the blocks for a round of high_s, ``left`` are left; in low_s they are too few by ``short``
        high_s, last = _last_end(count, c, t, k)
        if last > left:
            return high_s
        if left <= 8.0:
            for i in range(n):
                if t[i] + count * c[i] / k[i] == high_s:
                    k[i] += 1.0
            left -= last
            continue
        total = np.inf
        while total > count:
            trial_s = low_s + (high_s - low_s) * (0.5 if halve else short / (short + left))
            halve = not halve
            if not low_s < trial_s < high_s:
                return high_s
            total = _blocks_at(count, c, t, trial_s, k)
            if total > count:
                low_s, short = trial_s, total - count
        left = count - total
