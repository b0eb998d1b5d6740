"""The paper's law: with the share g of one band, an upload takes c / g seconds.

When is a set of devices done? With x = T - max t and d_i = max t - t_i >= 0 the root of f = sum c / (x + d) = 1 is
found in x, which keeps its full relative precision however small the uploads are beside the training times. 1/f is
increasing and concave in x (a parallel sum of linear functions), so Newton's method on 1/f(x) = 1 climbs monotonically
from any lower bound and is exact at once when all t_i are equal. Lower bounds: x >= sum c - (c-weighted mean of d), by
Jensen's inequality, and x >= sum of the c_i with d_i = 0. Upper bound: x <= sum c. Steps that leave the bracket, and
crawling ones, are replaced by geometric bisection. The paper's Algorithm 1 is the slow twin in the tests.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from fedcell.runtime import cached_njit
from fedcell.schedule.laws import LAWS
from fedcell.schedule.laws.base import Law
from fedcell.schedule.laws.solver import Needs, register
from fedcell.types import Bools, Floats, Indices


@dataclass(frozen=True)
class Density(Law):
    """The paper's law: with the share g of the band, an upload takes c / g seconds.

    Each device sends with a fixed power density, so its rate grows in proportion to its share. To have delivered by T
    a device needs the share c_i / (T - t_i).

    Example:
        >>> import fedcell as fc
        >>> fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Density()).round_s
        6.0
    """

    label: ClassVar[str] = "one band, as in the paper"
    carries_late: ClassVar[bool] = True

    @override
    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        return Needs(DensityNeeds(), upload_s, compute_s, upload_s)

    @override
    def notes(self, bandwidth_hz: float, *, total_power: bool = False) -> list[str]:
        if not total_power:
            return []
        return [
            f"power_dbm: the law {self.line} spreads a device's total power over the whole band of "
            f"{bandwidth_hz / 1e6:.6g} MHz, so that it sends with no more than its share of it; the law "
            f"{LAWS.either('needs_snr')} keeps all"
        ]


class DensityNeeds(NamedTuple):
    """The needs c / (T - t)."""


FAST = {"reassoc", "contract", "nsz"}
"""Sums may be reordered (that is what lets them run eight at a time); nothing else is loosened."""
BLOCK = 4096
"""Partial sums of this many terms keep the rounding error of a million terms near 1e-16."""


@cached_njit(nogil=True, fastmath=FAST)
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


@cached_njit(nogil=True, fastmath=FAST)
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


@cached_njit(nogil=True)
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


@cached_njit(nogil=True)
def density_time(c: Floats, t: Floats, d: Floats, start_s: float) -> float:  # pragma: no cover - compiled
    """Return the T with sum c / (T - t) = 1; d is scratch of their length."""
    slowest = t[0]
    for i in range(1, t.size):
        slowest = max(slowest, t[i])
    for i in range(t.size):
        d[i] = slowest - t[i]
    end: float = slowest + slack_after_slowest(c, d, start_s - slowest)
    return end


@cached_njit(nogil=True)
def _share_rows(
    c: Floats, t: Floats, used: Bools, shares: Floats, round_s: Floats
) -> None:  # pragma: no cover - compiled
    """Solve every row of (rows, n) arrays; ``used`` is (rows, n), or (0, 0) when all devices are used."""
    rows, n = c.shape
    c_row, t_row, d_row = np.empty(n), np.empty(n), np.empty(n)
    all_used = used.size == 0
    for row in range(rows):
        size, slowest = 0, 0.0
        for i in range(n):
            if all_used or used[row, i]:
                c_row[size], t_row[size] = c[row, i], t[row, i]
                slowest = max(slowest, t[row, i])
                size += 1
        for i in range(size):
            d_row[i] = slowest - t_row[i]
        x = slack_after_slowest(c_row[:size], d_row[:size], 0.0)
        round_s[row] = slowest + x
        total, _ = band_needed(c_row[:size], d_row[:size], x)
        at = 0
        for i in range(n):
            if all_used or used[row, i]:
                shares[row, i] = c_row[at] / (x + d_row[at]) / total
                at += 1
            else:
                shares[row, i] = 0.0


# A set that grows. Around T_0 the shares of its devices sum to a series in x = T - T_0,
#     sum c / (T_0 - t + x) = sum_k a_k (-x / r)^k,   a_k = sum c r^k / (T_0 - t)^(k+1),   r = min (T_0 - t),
# whose coefficients only get one term more with each device. ``sums`` are T_0, r, the number of devices, and the a_k.

_TERMS = 16
_REACH = 0.1
"""As far as |x| / r: the terms that are left out are below 1e-16 of the first."""
SUMS = 3 + _TERMS


@cached_njit(nogil=True)
def _count_in(c: float, t: float, sums: Floats) -> None:  # pragma: no cover - compiled
    """Add a device to the series."""
    gap = sums[0] - t
    term, ratio = c / gap, sums[1] / gap
    for k in range(_TERMS):
        sums[3 + k] += term
        term *= ratio
    sums[2] += 1.0


@cached_njit(nogil=True)
def _expand(group: Floats, n: int, T: float, sums: Floats) -> None:  # pragma: no cover - compiled
    """Begin a new series of the group's first n devices, around T."""
    for k in range(SUMS):
        sums[k] = 0.0
    sums[0], sums[1] = T, np.inf
    for i in range(n):
        sums[1] = min(sums[1], T - group[1, i])
    for i in range(n):
        _count_in(group[0, i], group[1, i], sums)


@cached_njit(nogil=True, error_model="numpy")
def _longer(c: float, t: float, T: float, sums: Floats) -> float:  # pragma: no cover - compiled
    """Return when the devices of the series and one more are done, from T on; NaN if the series does not reach it."""
    for _ in range(20):
        x = (T - sums[0]) / sums[1]
        if not (abs(x) <= _REACH and t < T):
            return np.nan
        f, slope = sums[2 + _TERMS], 0.0
        for k in range(_TERMS - 2, -1, -1):
            slope = f - x * slope
            f = sums[3 + k] - x * f
        share = c / (T - t)
        f += share
        step = (f - 1.0) * f / (slope / sums[1] + share / (T - t))
        T += step
        if abs(step) <= 1e-15 * T:
            return T
    return np.nan


@cached_njit(nogil=True)
def longer_by_sums(group: Floats, n: int, T: float, sums: Floats) -> float:  # pragma: no cover - compiled
    """Return when a group's n devices are done, given when all but the last are: T.

    ``sums``, zeros at first, are kept from call to call while the group grows.
    """
    if sums[2] == 0.0 or abs(T - sums[0]) > 0.5 * _REACH * sums[1]:
        _expand(group, n - 1, T, sums)
    while sums[2] < n - 1:
        at = int(sums[2])
        if sums[0] - group[1, at] < sums[1]:
            _expand(group, n - 1, T, sums)
        else:
            _count_in(group[0, at], group[1, at], sums)
    end_s = _longer(group[0, n - 1], group[1, n - 1], T, sums)
    if np.isnan(end_s):
        return density_time(group[0, :n], group[1, :n], group[3, :n], T)
    return end_s


@cached_njit(nogil=True, fastmath={"reassoc", "contract", "nsz", "nnan"})
def _best_inverse_share(rate: Floats, t: Floats, T: float) -> float:  # pragma: no cover - compiled
    best = -np.inf
    for i in range(t.size):
        best = max(best, (T - t[i]) * rate[i])
    return best


@cached_njit(nogil=True)
def _cheapest(rate: Floats, t: Floats, index: Indices, T: float) -> int:  # pragma: no cover - compiled
    """Return the position with the smallest share at T, the lowest device index among equals."""
    best, found = _best_inverse_share(rate, t, T), -1
    for i in range(t.size):
        if (T - t[i]) * rate[i] >= best and (found < 0 or index[i] < index[found]):
            found = i
    return found


# What the law registers.


@cached_njit(nogil=True)
def _shares_at(group: Floats, n: int, T: float) -> float:  # pragma: no cover - compiled
    total = 0.0
    for i in range(n):
        if group[1, i] >= T:
            return np.inf
        total += group[0, i] / (T - group[1, i])
    return total


def linear_inverse_share(_law: Any, c: float, t: float, _e: float, T: float) -> float:
    """(T - t) / c; for whole blocks too: a device never needs fewer of them than one with a smaller c / (T - t)."""
    return (T - t) / c


def linear(_law: Any) -> bool:
    """Whether the need falls as one over the time: it does, for every device."""
    return True


def density_tangent(_law: Any, c: float, t: float, _e: float, T: float) -> tuple[float, float]:
    """The need itself, and its slope; laws that need no less have it, too."""
    return (c / (T - t), c / (T - t) / (T - t)) if t < T else (np.inf, 0.0)


def density_finish_s(_law: Any, c: float, t: float, _e: float) -> float:
    """c + t."""
    return c + t


def _need(_law: Any, c: float, t: float, _e: float, T: float) -> float:
    return c / (T - t) if t < T else np.inf


def _exceeds(_law: Any, c: float, t: float, _e: float, T: float, share_left: float) -> bool:
    return t >= T or c > share_left * (T - t)  # most devices fail here, so the division is saved


def _needed(_law: Any, group: Floats, n: int, T: float) -> float:
    return _shares_at(group, n, T)


def _fits(_law: Any, total: float) -> bool:
    return total < 1.0


def _round_time(_law: Any, group: Floats, n: int, start_s: float) -> float:
    return density_time(group[0, :n], group[1, :n], group[3, :n], start_s)


def _grown_round_time(_law: Any, group: Floats, n: int, T: float, series: Floats, many: int) -> float:
    if n > many:
        return longer_by_sums(group, n, T, series)
    return density_time(group[0, :n], group[1, :n], group[3, :n], T)


def _smallest_need(_law: Any, near: Floats, index: Indices, n: int, T: float) -> int:
    return _cheapest(near[3, :n], near[1, :n], index[:n], T)


def _share_all(_law: Any, c: Floats, t: Floats, _e: Floats, used: Bools, shares: Floats, round_s: Floats) -> bool:
    _share_rows(c, t, used, shares, round_s)
    return True


register(
    DensityNeeds,
    need=_need,
    inverse_share=linear_inverse_share,
    is_linear=linear,
    tangent=density_tangent,
    solo_finish_s=density_finish_s,
    exceeds=_exceeds,
    needed=_needed,
    fits=_fits,
    round_time=_round_time,
    grown_round_time=_grown_round_time,
    smallest_need=_smallest_need,
    share_rows=_share_all,
)
