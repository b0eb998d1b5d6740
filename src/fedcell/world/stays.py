"""Intervals in which devices are there, as a trace has them, and who is there at a clock."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedcell.types import Floats
from fedcell.world.cell import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class Stays:
    """The intervals of M devices; those of device i are number first[i] to first[i + 1] - 1.

    Attributes:
        first: (M + 1,) where each device's intervals begin.
        begin_s: (K,) when an interval begins, in seconds from the device's start_s; ascending for each device.
        end_s: (K,) when it ends: at the next one's begin at the latest.
        speed: (K,) how many times as fast as usual the device computes in it; None if always as usual.
        start_s: (M,) the clock at which a device's trace begins, in seconds.
        period_s: (M,) after how many seconds it begins again; infinity for never.
    """

    first: IntArray
    begin_s: Floats
    end_s: Floats
    speed: Floats | None
    start_s: Floats
    period_s: Floats

    def at(self, clock_s: float) -> tuple[BoolArray, Floats, Floats | None]:
        """(M,) who is there, until when, and how fast; see Attendance."""
        base_s = self._base_s(self._turn(clock_s))
        last = self._last_begun(base_s, clock_s)
        begun = last >= self.first[:-1]
        there = begun & (clock_s < base_s + self.end_s[last])
        until_s = np.where(there, base_s + self._leave_s[last], np.inf)
        return there, until_s, None if self.speed is None else np.where(there, self.speed[last], 1.0)

    def next_s(self, clock_s: float) -> float:
        """The first clock from now on at which anybody is there; infinity if never."""
        if self.at(clock_s)[0].any():
            return clock_s
        turn = self._turn(clock_s)
        following = self._last_begun(self._base_s(turn), clock_s) + 1
        over = following == self.first[1:]  # for this turn; the first interval comes again in the next
        some = self.first[1:] > self.first[:-1]
        begin_s = self.begin_s[np.where(some, np.where(over, self.first[:-1], following), 0)]
        return float(np.where(some, self._base_s(turn + over) + begin_s, np.inf).min())

    def _turn(self, clock_s: float) -> Floats:
        """(M,) how often each trace has begun again by now."""
        turn = np.floor((clock_s - self.start_s) / self.period_s)
        # The quotient is rounded: what counts is on which side of a turn's first moment the clock is.
        turn += self._base_s(turn + 1) <= clock_s
        return turn - (np.isfinite(self.period_s) & (self._base_s(turn) > clock_s))

    def _base_s(self, turn: Floats) -> Floats:
        """(M,) the clock at which this turn begins."""
        with np.errstate(invalid="ignore"):
            return self.start_s + np.where(turn == 0, 0.0, turn * self.period_s)

    def _last_begun(self, base_s: Floats, clock_s: float) -> IntArray:
        """(M,) the last interval of each device that has begun in this turn; first[i] - 1 if none has."""
        low, high = self.first[:-1] - 1, self.first[1:] - 1
        while (several := low < high).any():
            middle = (low + high + 1) // 2
            begun = base_s + self.begin_s[middle] <= clock_s
            low, high = np.where(several & begun, middle, low), np.where(several & ~begun, middle - 1, high)
        return low

    @cached_property
    def _leave_s(self) -> Floats:
        """(K,) when the stay that an interval belongs to ends: intervals that touch are one stay."""
        owner = np.repeat(np.arange(len(self.period_s)), np.diff(self.first))
        joined = (owner[1:] == owner[:-1]) & (self.end_s[:-1] == self.begin_s[1:])
        ends = np.flatnonzero(np.append(~joined, True))
        leave_s = self.end_s[ends[np.searchsorted(ends, np.arange(owner.size))]]
        # The stay at the end of a turn goes on in the next one, if that begins with a stay.
        period_s, first = self.period_s[owner], self.first[owner]
        goes_on = (leave_s == period_s) & (self.begin_s[first] == 0)
        again_s = np.where(leave_s[first] == period_s, np.inf, period_s + leave_s[first])
        return np.where(goes_on, again_s, leave_s)
