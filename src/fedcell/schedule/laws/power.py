"""A total power for each device, so that a narrower share has a better SNR.

With the share g an upload takes y = c u / ln(1 + u) seconds, u = s / g, s the SNR over the entire band and c the time
with a band without limits. To be done by T a device needs g = s / u, where u / ln(1 + u) = (T - t) / c =: x. There is
no closed form for u, but with v = ln(1 + u) it is u = x v, and v is a smooth function of ln x alone: a quotient of two
polynomials gives it to double precision, without iterations and without branches, so that eight devices are looked at
at a time.

How the round time of a set is found. As a function of T the inverse share 1/g is convex, so its tangents lie below it:
with tangents in their place the devices look like ones of the density law, and the round with these is no shorter than
t*. It starts Newton's method on 1 / (sum of needs) = 1, which takes two or three steps from there.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike
from typing_extensions import override

from fedcell.errors import InputError, read_only
from fedcell.runtime import cached_njit
from fedcell.schedule.laws.base import Law
from fedcell.schedule.laws.density import BLOCK, FAST, density_time
from fedcell.schedule.laws.solver import Needs, register
from fedcell.settings import NOT_IN_A_LINE
from fedcell.types import Floats


@dataclass(frozen=True, eq=False)
class Power(Law):
    """Each device has a total transmit power, so with a narrower share it has a better signal-to-noise ratio.

    With the share g of the band B, the power P and the channel h a device sends g B log2(1 + P h / (g N0 B)) bit/s.
    With s = P h / (N0 B), its SNR if it has the entire band, an upload takes c log(1 + s) / (g log(1 + s/g)) seconds.
    The rate grows with the share, but never beyond P h / (N0 ln 2): to have delivered within less than c log(1 + s) / s
    seconds no share is enough.

    Attributes:
        snr: (M,) s_i, a linear ratio, positive; None where it is filled in later, as in a spec.

    Example:
        >>> import fedcell as fc
        >>> band = fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Power([10.0, 1.0]))
        >>> band.shares.round(3).tolist(), round(band.round_s, 3)  # 6 s with a fixed power density
        ([0.188, 0.812], 5.191)
    """

    label: ClassVar[str] = "one band, total power"
    needs_snr: ClassVar[bool] = True

    snr: Floats | None = field(default=None, metadata=NOT_IN_A_LINE)

    def __post_init__(self) -> None:
        if self.snr is not None:
            snr = np.asarray(self.snr, dtype=np.float64)
            bad = ~(np.isfinite(snr) & (snr > 0.0))
            if bad.any():
                where = int(np.flatnonzero(bad)[0])
                raise InputError(
                    f"snr[{where}] of the law power is {snr.reshape(-1)[where]:g}; give a positive linear ratio"
                )
            object.__setattr__(self, "snr", read_only(snr))

    @property
    def _s(self) -> Floats:
        if self.snr is None:
            raise InputError("the law power needs the SNR of every device; write Power(snr), with the entire band")
        return self.snr

    @override
    def for_devices(self, snr: Floats | None, model_bits: float) -> "Power":
        return self if self.snr is not None else Power(snr)

    @override
    def take(self, devices: ArrayLike) -> "Power":
        return Power(self._s[np.asarray(devices)])

    @override
    def row(self, index: int) -> "Power":
        return self if self._s.ndim == 1 else Power(self._s.reshape(-1, self._s.shape[-1])[index])

    @override
    def check(self, shape: tuple[int, ...]) -> None:
        if self._s.shape not in (shape, shape[-1:]):
            raise InputError(
                f"snr of the law power has shape {self._s.shape}, upload_s has {shape}; give one for every device"
            )

    @override
    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        s = np.broadcast_to(self._s, upload_s.shape).copy()  # a view would be read-only: see bandwidth.times
        c = without_limits(upload_s.reshape(-1), s.reshape(-1)).reshape(s.shape)
        return Needs(PowerNeeds(), c, compute_s, s)

    @override
    def upload_s(self, whole_s: Floats, shares: Floats) -> Floats:
        seconds: Floats = whole_s * (np.log1p(self._s) / (shares * np.log1p(self._s / shares)))
        return seconds

    @override
    def power_fraction(self, whole_s: Floats, shares: Floats) -> Floats:
        return np.ones(shares.size)


class PowerNeeds(NamedTuple):
    """The needs s / u with ln(1 + u) / u = c / (T - t), c the time with a band without limits."""


_FAR = math.exp(40.0)
# v / ln x for ln x in [0, 40]: interpolated at 27 points, those of Chebyshev in z = ln x / (ln x + 10.5); to 2e-16.
# fmt: off
_OVER = (
    1.9999999999999998, 3.2887986907090037, 2.3913774002221615, 0.9944770072571715, 0.2633868706261076,
    0.04792824515274241, 0.006426064968339892, 0.0006478415502410677, 4.960546684897053e-05, 2.959338314926638e-06,
    1.2890080346306507e-07, 4.072870186774056e-09, 5.537799929960951e-11, 1.7326351122658217e-13,
)
_UNDER = (
    1.0, 1.8110660120211421, 1.4419774798931266, 0.6545458977495687, 0.18728899125185483,
    0.03611388937800505, 0.0050349543050354755, 0.0005306094538869426, 4.160592483971871e-05, 2.577034980871085e-06,
    1.1451000497536565e-07, 3.806815869696411e-09, 5.420139642531407e-11, 1.7307620821014846e-13,
)
# fmt: on
_ROOT_HALF, _ONE, _MANTISSA = 0x3FE6A09E667F3BCD, 0x3FF0000000000000, 0x000FFFFFFFFFFFFF


@cached_njit(nogil=True, fastmath={"contract"}, error_model="numpy")
def _log(x: float) -> float:  # pragma: no cover - compiled
    """Return ln x for a normal x > 0, as math.log does, but in arithmetic that runs for eight numbers at a time.

    x = 2^k (1 + f) with 1 + f between the roots of 1/2 and 2, and ln(1 + f) from the series of s = f / (2 + f) as in
    FreeBSD's e_log.c; its error is below one unit in the last place.
    """
    bits = np.float64(x).view(np.int64) + (_ONE - _ROOT_HALF)
    k = float((bits >> 52) - 1023)
    f = np.int64((bits & _MANTISSA) + _ROOT_HALF).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01))
    even = z * (
        6.666666666666735130e-01
        + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    half = 0.5 * f * f
    small: float = s * (half + odd + even) + k * 1.90821492927058770002e-10 - half + f
    return small + k * 6.93147180369123816490e-01


@cached_njit(nogil=True, fastmath={"contract"}, error_model="numpy")
def _log1p(u: float) -> float:  # pragma: no cover - compiled
    """Return ln(1 + u) for u >= 0."""
    w = 1.0 + u
    return _log(w) + (u - (w - 1.0)) / w


# Inlined by Numba: loops over what LLVM inlines later do not run for eight numbers at a time.
@njit(inline="always")
def _polynomial(terms: tuple[float, ...], x: float) -> float:  # pragma: no cover - compiled
    y = terms[13]
    for j in range(12, -1, -1):
        y = y * x + terms[j]
    return y


@njit(inline="always")
def _wide(x: float) -> float:  # pragma: no cover - compiled
    """Return u with u / ln(1 + u) = x, for 1 <= x <= FAR."""
    log = _log(x)
    return x * (log * (_polynomial(_OVER, log) / _polynomial(_UNDER, log)))


@cached_njit(nogil=True, fastmath={"contract"}, error_model="numpy")
def power_inverse_share(c: float, t: float, s: float, T: float) -> float:  # pragma: no cover - compiled
    """Return 1/g, the inverse share of a device that is to be done by T; not positive if no share is enough."""
    x = (T - t) / c
    if not x > 1.0:
        return T - t - c
    if x <= _FAR:
        return _wide(x) / s
    if x == np.inf:
        return x
    v = math.log(x)
    for _ in range(12):  # v = ln(1 + x v); the error shrinks by v each time
        v = math.log(x) + math.log(v)
    return x * (v / s)


@cached_njit(nogil=True, fastmath={"contract"}, error_model="numpy")
def power_inverse_shares(
    c: Floats, t: Floats, s: Floats, T: float, found: Floats
) -> None:  # pragma: no cover - compiled
    """Fill ``found`` with the inverse shares of devices."""
    rare = 0
    for i in range(c.size):
        x = (T - t[i]) / c[i]
        found[i] = _wide(x) / s[i]
        rare += not 1.0 < x <= _FAR
    if rare:
        for i in range(c.size):
            if not 1.0 < (T - t[i]) / c[i] <= _FAR:
                found[i] = power_inverse_share(c[i], t[i], s[i], T)


@cached_njit(nogil=True, error_model="numpy")
def without_limits(upload_s: Floats, s: Floats) -> Floats:  # pragma: no cover - compiled
    """Return upload times with a band without limits, from those with the entire band."""
    c = np.empty(upload_s.size)
    for i in range(c.size):
        c[i] = upload_s[i] * (_log1p(s[i]) / s[i])
    return c


@cached_njit(nogil=True, error_model="numpy")
def power_solo_finish_s(c: float, t: float, s: float) -> float:  # pragma: no cover - compiled
    """Return when a device is done that has the entire band."""
    return c * (s / _log1p(s)) + t


@cached_njit(nogil=True, error_model="numpy")
def power_needs(c: Floats, t: Floats, s: Floats, T: float, found: Floats) -> None:  # pragma: no cover - compiled
    """Fill ``found`` with the needs of devices at T."""
    power_inverse_shares(c, t, s, T, found)
    for i in range(c.size):
        found[i] = 1.0 / found[i] if found[i] > 0.0 else np.inf


@njit(inline="always")
def _falls(c: float, y: float, s: float, pace: float) -> float:  # pragma: no cover - compiled
    """Return by how much a need falls with each second more, y = T - t."""
    u = s * pace
    bend = c * u / y - u / (1.0 + u) if u > 1e-4 else u * u * (0.5 - u * (2.0 / 3.0))
    return s * c / (y * y * bend)


@cached_njit(nogil=True, error_model="numpy")
def power_tangent(c: float, t: float, s: float, T: float) -> tuple[float, float]:  # pragma: no cover - compiled
    """Return the need at T, a convex function, and its falling slope; infinite if no share is enough."""
    pace = power_inverse_share(c, t, s, T)
    return (1.0 / pace, _falls(c, T - t, s, pace)) if pace > 0.0 else (np.inf, 0.0)


@cached_njit(nogil=True, fastmath=FAST, error_model="numpy")
def _needed_and_slope(
    c: Floats, t: Floats, s: Floats, T: float, pace: Floats
) -> tuple[float, float]:  # pragma: no cover - compiled
    """Return the sum of the needs, given the inverse shares at T, and minus its derivative by T."""
    total, slope = 0.0, 0.0
    for start in range(0, c.size, BLOCK):
        total_block, slope_block = 0.0, 0.0
        for i in range(start, min(start + BLOCK, c.size)):
            total_block += 1.0 / pace[i]
            slope_block += _falls(c[i], T - t[i], s[i], pace[i])
        total += total_block
        slope += slope_block
    return total, slope


@cached_njit(nogil=True, error_model="numpy")
def _tangent_time(group: Floats, n: int) -> float:  # pragma: no cover - compiled
    """Return the round time with tangents at equal shares, which is at least that of the devices."""
    c, t, s = group[0, :n], group[1, :n], group[2, :n]
    like_c, like_t = group[4, :n], group[5, :n]
    for i in range(n):
        u = s[i] * n
        log = _log1p(u)
        upload_s = c[i] * (u / log)
        bend = 1.0 - u / ((1.0 + u) * log) if u > 1e-5 else 0.5 * u
        like_c[i] = upload_s * bend / n
        like_t[i] = t[i] + upload_s * (1.0 - bend)
    return density_time(like_c, like_t, group[3, :n], 0.0)


@cached_njit(nogil=True)
def power_time(group: Floats, n: int) -> float:  # pragma: no cover - compiled
    """Return t*(S) of a group's n devices."""
    c, t, s, pace = group[0, :n], group[1, :n], group[2, :n], group[3, :n]
    low = t[0] + c[0]
    for i in range(1, n):
        low = max(low, t[i] + c[i])
    high = _tangent_time(group, n)
    T = high
    for _ in range(100):
        power_inverse_shares(c, t, s, T, pace)
        total, slope = _needed_and_slope(c, t, s, T, pace)
        # In (low, high] there is t*; at low a device still needs more than all.
        if total > 1.0:
            low = T
        else:
            high = T
        step = total * (total - 1.0) / slope
        if abs(step) <= 1e-15 * T:
            break
        if low < T + step < high:
            T += step
            if abs(step) <= 1e-9 * T:  # the next one would be as small as its square
                break
        else:
            T = low + 0.5 * (high - low)
            if not low < T < high:
                break
    return T


def _inverse_share(_law: Any, c: float, t: float, e: float, T: float) -> float:
    return power_inverse_share(c, t, e, T)


def _inverse_shares(_law: Any, c: Floats, t: Floats, e: Floats, T: float, found: Floats) -> None:
    power_inverse_shares(c, t, e, T, found)


def _need(_law: Any, c: float, t: float, e: float, T: float) -> float:
    rate = power_inverse_share(c, t, e, T)
    return 1.0 / rate if rate > 0.0 else np.inf


def _needs_at(_law: Any, c: Floats, t: Floats, e: Floats, T: float, found: Floats) -> None:
    power_needs(c, t, e, T, found)


def _tangent(_law: Any, c: float, t: float, e: float, T: float) -> tuple[float, float]:
    return power_tangent(c, t, e, T)


def _solo_finish_s(_law: Any, c: float, t: float, e: float) -> float:
    return power_solo_finish_s(c, t, e)


def _round_time(_law: Any, group: Floats, n: int, _start_s: float) -> float:
    return power_time(group, n)


register(
    PowerNeeds,
    need=_need,
    inverse_share=_inverse_share,
    inverse_shares=_inverse_shares,
    needs_at=_needs_at,
    tangent=_tangent,
    solo_finish_s=_solo_finish_s,
    round_time=_round_time,
)
