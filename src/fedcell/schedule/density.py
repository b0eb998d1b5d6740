"""Compiled: when a set of devices is done under the density law, the paper's.

With x = T - max t and d_i = max t - t_i >= 0 the root of f = sum c / (x + d) = 1 is found in x, which keeps its full
relative precision however small the uploads are beside the training times. 1/f is increasing and concave in x (a
parallel sum of linear functions), so Newton's method on 1/f(x) = 1 climbs monotonically from any lower bound and is
exact at once when all t_i are equal. Lower bounds: x >= sum c - (c-weighted mean of d), by Jensen's inequality, and
x >= sum of the c_i with d_i = 0. Upper bound: x <= sum c. Steps that leave the bracket, and crawling ones, are replaced
by geometric bisection. The paper's Algorithm 1 is the slow twin in the tests.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FAST = {"reassoc", "contract", "nsz"}
"""Sums may be reordered (that is what lets them run eight at a time); nothing else is loosened."""
BLOCK = 4096
"""Partial sums of this many terms keep the rounding error of a million terms near 1e-16."""


@njit(cache=True, nogil=True, fastmath=FAST)
def band_needed(c: Floats, d: Floats, x: float) -> tuple[float, float]:  # pragma: no cover - compiled
    """Return f(x) = sum c / (x + d), and -x f'(x), which is at most f(x)."""
    f, slope = 0.0, 0.0
    for start in range(0, c.size, BLOCK):
        f_block, slope_block = 0.0, 0.0
        for i in range(start, min(start + BLOCK, c.size)):
            r = 1.0 / (x + d[i])
            share = c[i] * r
            f_block += share
            slope_block += share * (x * r)
        f += f_block
        slope += slope_block
    return f, slope


@njit(cache=True, nogil=True, fastmath=FAST)
def _lower_bound(c: Floats, d: Floats) -> tuple[float, float]:  # pragma: no cover - compiled
    """Return a lower bound on the root x, and the sum of c, an upper bound."""
    total, last, weighted = 0.0, 0.0, 0.0
    for i in range(c.size):
        total += c[i]
    for i in range(c.size):
        weighted += c[i] / total * d[i]
        if d[i] == 0.0:
            last += c[i]
    return max(total - weighted, last), total


@njit(cache=True, nogil=True)
def slack_after_slowest(c: Floats, d: Floats, start: float) -> float:  # pragma: no cover - compiled
    """Return x with sum c / (x + d) = 1, to full double precision.

    ``start`` is a lower bound that the caller happens to know (0 if none).
    """
    low, high = _lower_bound(c, d)
    x = min(max(low, start), high)
    # The bracket: f(low) >= 1 >= f(high), but for rounding.
    residual_before = np.inf
    for step in range(200):
        f, slope = band_needed(c, d, x)
        residual = abs(f - 1.0)
        if residual <= 2.3e-16 or (residual < 1e-10 and residual >= residual_before):
            break
        residual_before = residual
        if f > 1.0:
            low = x
        else:
            high = x
        newton = x * (1.0 + (f - 1.0) * f / slope)
        crawling = step > 10 and step % 2 == 0 and high > 2.0 * low
        if crawling or not (low <= newton <= high):
            newton = math.sqrt(low) * math.sqrt(high)
        if newton == x:
            break
        x = newton
    return x


@njit(cache=True, nogil=True)
def density_time(c: Floats, t: Floats, d: Floats, start_s: float) -> float:  # pragma: no cover - compiled
    """Return the T with sum c / (T - t) = 1; d is scratch of their length."""
    slowest = t[0]
    for i in range(1, t.size):
        slowest = max(slowest, t[i])
    for i in range(t.size):
        d[i] = slowest - t[i]
    end: float = slowest + slack_after_slowest(c, d, start_s - slowest)
    return end
