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

How the density law is solved. With x = T - max t and d_i = max t - t_i >= 0 the root of f = sum c / (x + d) = 1 is
found in x, which keeps its full relative precision however small the uploads are beside the training times. 1/f is
increasing and concave in x (a parallel sum of linear functions), so Newton's method on 1/f(x) = 1 climbs
monotonically from any lower bound and is exact at once when all t_i are equal. Lower bounds: x >= sum c - (c-weighted
mean of d), by Jensen's inequality, and x >= sum of the c_i with d_i = 0. Upper bound: x <= sum c. Steps that leave
the bracket, and crawling ones, are replaced by geometric bisection. The paper's Algorithm 1 is the slow twin in the
tests.

How the others are solved: at the functions below, and docs/optimal.md has the proofs.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

# Sums may be reordered (that is what lets them run eight at a time); nothing else is loosened.
_FAST = {"reassoc", "contract", "nsz"}
_BLOCK = 4096  # partial sums of this many terms keep the rounding error of a million terms near 1e-16
_WHOLE = 1.0 - 1e-13
"""A number of blocks that is whole but for rounding is whole."""
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
    return _power_pace(c, t, e, T)


by_law(pace, _pace, {IngressNeeds: _ingress_pace, PowerNeeds: _power_law_pace})


def need(law: Any, c: float, t: float, e: float, T: float) -> float:
    """Return the share that a device needs to be done by T; infinite if none is enough."""
    raise NotImplementedError


def _density_need(_law: Any, c: float, t: float, _e: float, T: float) -> float:
    return c / (T - t) if t < T else np.inf


def _blocks_need(law: Any, c: float, t: float, _e: float, T: float) -> float:
    return math.ceil(law.blocks * c / (T - t) * _WHOLE) / law.blocks if t < T else np.inf


def _ingress_need(_law: Any, c: float, t: float, e: float, T: float) -> float:
    return c / (T - t) if t + e <= T else np.inf


def _power_need(_law: Any, c: float, t: float, e: float, T: float) -> float:
    rate = _power_pace(c, t, e, T)
    return 1.0 / rate if rate > 0.0 else np.inf


by_law(need, _density_need, {BlocksNeeds: _blocks_need, IngressNeeds: _ingress_need, PowerNeeds: _power_need})


def alone(law: Any, c: float, t: float, e: float) -> float:
    """Return when a device is done that has everything to itself."""
    raise NotImplementedError


def _alone(_law: Any, c: float, t: float, _e: float) -> float:
    return c + t


def _ingress_alone(_law: Any, c: float, t: float, e: float) -> float:
    return max(c, e) + t


def _power_alone(_law: Any, c: float, t: float, e: float) -> float:
    return c * (e / math.log1p(e)) + t


by_law(alone, _alone, {IngressNeeds: _ingress_alone, PowerNeeds: _power_alone})


def needed(law: Any, group: Floats, n: int, T: float) -> float:
    """Return the sum of the shares with which a group's n devices are done by T; infinite if one cannot be."""
    raise NotImplementedError


def _density_needed(_law: Any, group: Floats, n: int, T: float) -> float:
    return _shares_at(group, n, T)


def _any_needed(law: Any, group: Floats, n: int, T: float) -> float:
    total = 0.0
    for i in range(n):
        total += need(law, group[0, i], group[1, i], group[2, i], T)
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
    return _blocks_time(law.blocks, c, t, k, density_time(c, t, k, start_s))


def _ingress_round(_law: Any, group: Floats, n: int, start_s: float) -> float:
    end_s = density_time(group[0, :n], group[1, :n], group[3, :n], start_s)
    for i in range(n):
        end_s = max(end_s, group[1, i] + group[2, i])
    return end_s


def _power_round(_law: Any, group: Floats, n: int, _start_s: float) -> float:
    return _power_time(group, n)


by_law(round_time, _density_round, {BlocksNeeds: _blocks_round, IngressNeeds: _ingress_round, PowerNeeds: _power_round})


# The density law.


@njit(cache=True, nogil=True, fastmath=_FAST)
def band_needed(c: Floats, d: Floats, x: float) -> tuple[float, float]:  # pragma: no cover - compiled
    """Return f(x) = sum c / (x + d), and -x f'(x), which is at most f(x)."""
    f, slope = 0.0, 0.0
    for start in range(0, c.size, _BLOCK):
        f_block, slope_block = 0.0, 0.0
        for i in range(start, min(start + _BLOCK, c.size)):
            r = 1.0 / (x + d[i])
            share = c[i] * r
            f_block += share
            slope_block += share * (x * r)
        f += f_block
        slope += slope_block
    return f, slope


@njit(cache=True, nogil=True, fastmath=_FAST)
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
def _shares_at(group: Floats, n: int, T: float) -> float:  # pragma: no cover - compiled
    total = 0.0
    for i in range(n):
        if group[1, i] >= T:
            return np.inf
        total += group[0, i] / (T - group[1, i])
    return total


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


# Resource blocks. t*(S) is a break point, a T at which some device can do with one block less. Blocks that are done by
# T are the best if there are fewer blocks left than devices that finish at T itself: any shorter round must give each
# of those one more. The search for such a T is a bisection; the last few blocks are given out one by one.


@njit(cache=True, nogil=True)
def _blocks_at(count: float, c: Floats, t: Floats, T: float, k: Floats) -> float:  # pragma: no cover - compiled
    """Fill k with the blocks that each device needs to be done by T, and return their number."""
    total = 0.0
    for i in range(c.size):
        k[i] = math.ceil(count * c[i] / (T - t[i]) * _WHOLE)
        total += k[i]
    return total


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _blocks_time(count: float, c: Floats, t: Floats, k: Floats, least_s: float) -> float:  # pragma: no cover - compiled
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


# A total power. With the share g the time of an upload is y = c u / ln(1 + u), u = s / g. As a function of T the pace
# 1/g is convex, so its tangents lie below it: with the tangents at any paces the devices look like ones of the density
# law, and the round with these is no shorter than t*. From there the tangents are taken at the paces so found: Newton's
# method, from above.


@njit(cache=True, nogil=True)
def _power_pace(c: float, t: float, s: float, T: float) -> float:  # pragma: no cover - compiled
    """Return 1/g = u / s with ln(1 + u) / u = c / (T - t); not positive if no share is enough.

    u = -1 - W(-q exp(-q)) / q, W the lower branch of Lambert's function, by the approximation of Barry et al. (2000),
    to 0.025 %, and one step of Householder's method of fourth order.
    """
    if T - t <= c or np.inf == T:
        return T - t - c
    q = c / (T - t)
    sigma = max(q - 1.0 - math.log(q), 0.0)
    root = math.sqrt(sigma)
    w = (
        1.0
        + sigma
        + 2.0
        / 0.3361
        * (1.0 - 1.0 / (1.0 + 0.3361 * root * math.sqrt(0.5) / (1.0 - 0.0042 * sigma * math.exp(-0.0201 * root))))
    )
    u = w / q - 1.0
    if u < 1e-3:  # cancellation: from the series of ln(1 + u) / u
        p = 1.0 - q
        u = 2.0 * p * (1.0 + p * (4.0 / 3.0 + p * (14.0 / 9.0)))
    for _ in range(2 if u < 0.1 else 1):
        v = 1.0 / (1.0 + u)
        f, f1 = math.log1p(u) - q * u, v - q
        h = f / f1
        a2, a3 = -0.5 * v * v / f1, v * v * v / (3.0 * f1)
        u -= h * (1.0 - a2 * h) / (1.0 - 2.0 * a2 * h + a3 * h * h)
    return u / s


@njit(cache=True, nogil=True)
def _power_time(group: Floats, n: int) -> float:  # pragma: no cover - compiled
    c, t, s = group[0, :n], group[1, :n], group[2, :n]
    d, pace, like_c, like_t = group[3, :n], group[4, :n], group[5, :n], group[6, :n]
    pace[:] = float(n)
    end_s = np.inf
    while True:
        for i in range(n):
            u = s[i] * pace[i]
            log = math.log1p(u)
            upload_s = c[i] * (u / log)
            bend = 1.0 - u / ((1.0 + u) * log) if u > 1e-5 else 0.5 * u
            like_c[i] = upload_s * bend / pace[i]
            like_t[i] = t[i] + upload_s * (1.0 - bend)
        before_s, end_s = end_s, density_time(like_c, like_t, d, 0.0)
        if not end_s < before_s * (1.0 - 4e-16):
            return min(end_s, before_s)
        for i in range(n):
            pace[i] = (end_s - like_t[i]) / like_c[i]
