"""The band in whole resource blocks, as LTE and NR give it out.

When is a set of devices done? t*(S) is a break point, a T at which some device can do with one block less. Blocks that
are done by T are the best if there are fewer blocks left than devices that finish at T itself: any shorter round must
give each of those one more. The search for such a T is a bisection; the last few blocks are given out one by one.
docs/optimal.md has the proof.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from fedcell.errors import InputError, require_whole
from fedcell.runtime import cached_njit
from fedcell.schedule.laws.base import setting
from fedcell.schedule.laws.density import (
    Density,
    density_finish_s,
    density_tangent,
    density_time,
    linear,
    linear_inverse_share,
)
from fedcell.schedule.laws.solver import Needs, register
from fedcell.types import Floats

MAX_BLOCKS = 10**9
"""More blocks than that are the paper's band, but for rounding."""
NR_BLOCKS_HZ = tuple(180e3 * 2**mu for mu in range(5))
"""How wide 12 subcarriers are: of 15 kHz in LTE, of 15 to 240 kHz in NR."""
WHOLE = 1.0 - 1e-13
"""A number of blocks that is whole but for rounding is whole."""


@dataclass(frozen=True)
class Blocks(Density):
    """The band comes in ``count`` resource blocks, and each device gets a whole number of them.

    With k blocks an upload takes ``count`` c / k seconds. To have delivered by T a device needs
    ceil(count c_i / (T - t_i)) blocks. A round has at most ``count`` devices; blocks that would not shorten the round
    stay free, so shares can sum to less than 1.

    Attributes:
        count: number of resource blocks, which divide the band. An LTE carrier of 3 MHz has 15 of 180 kHz, and so a
            band of 2.7 MHz; the whole 3 MHz in 15 are blocks of 200 kHz.

    Example:
        >>> import fedcell as fc
        >>> band = fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Blocks(5))
        >>> (5 * band.shares).tolist(), band.round_s  # 5 x 1 / 1 s and 5 x 3 / 3 s of upload; a block stays free
        ([1.0, 3.0], 7.0)
        >>> fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Blocks(8)).round_s
        6.0
    """

    label: ClassVar[str] = "resource blocks"
    carries_late: ClassVar[bool] = False
    unit: ClassVar[str] = "resource block"

    count: int = field(metadata=setting("resource blocks", usual=15))

    def __post_init__(self) -> None:
        require_whole("count of the law blocks", self.count, least=1)
        if self.count > MAX_BLOCKS:
            raise InputError(f"count of the law blocks is more than {MAX_BLOCKS:,}; give at most that, or use density")

    @property
    @override
    def units(self) -> int:
        return self.count

    @override
    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        return Needs(BlocksNeeds(float(self.count)), upload_s, compute_s, upload_s)

    @override
    def equal_shares(self, upload_s: Floats, compute_s: Floats) -> Floats:
        # As many blocks each, and one more for those that would finish last as long as there are some.
        n = upload_s.size
        blocks = np.full(n, self.count // n)
        ends_s = compute_s + upload_s * (self.count / blocks)
        blocks[np.argsort(-ends_s, kind="stable")[: self.count % n]] += 1
        shares: Floats = blocks / self.count
        return shares

    @override
    def resources(self, share: float, bandwidth_hz: float) -> dict[str, float]:
        return {"blocks": round(share * self.count), **super().resources(share, bandwidth_hz)}

    @override
    def notes(self, bandwidth_hz: float, *, total_power: bool = False) -> list[str]:
        width_hz = bandwidth_hz / self.count
        nearest_hz = min(NR_BLOCKS_HZ, key=lambda hz: abs(hz - width_hz))
        said = super().notes(bandwidth_hz, total_power=total_power)
        if abs(width_hz - nearest_hz) <= 1e-6 * nearest_hz:
            return said
        return [
            f"{self.line} divides {bandwidth_hz / 1e6:.6g} MHz into blocks of {width_hz / 1e3:.6g} kHz, not of "
            f"{nearest_hz / 1e3:g} kHz as in LTE and NR; set the band to {self.count * nearest_hz / 1e6:.6g} MHz",
            *said,
        ]


class BlocksNeeds(NamedTuple):
    """The needs ceil(N c / (T - t)) / N."""

    blocks: float


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


def _need(law: Any, c: float, t: float, _e: float, T: float) -> float:
    return math.ceil(law.blocks * c / (T - t) * WHOLE) / law.blocks if t < T else np.inf


def _round_time(law: Any, group: Floats, n: int, start_s: float) -> float:
    c, t, k = group[0, :n], group[1, :n], group[3, :n]
    return blocks_time(law.blocks, c, t, k, density_time(c, t, k, start_s))


register(
    BlocksNeeds,
    need=_need,
    inverse_share=linear_inverse_share,
    is_linear=linear,
    tangent=density_tangent,
    solo_finish_s=density_finish_s,
    round_time=_round_time,
)
