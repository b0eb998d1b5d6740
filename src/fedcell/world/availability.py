"""Device availability: which devices can be asked to train, until when, and how fast they are then.

Each availability model is a pure function of seed and clock, as mobility is, so policies with one seed meet the same
devices and a run can resume at any round.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from fedcell import settings
from fedcell.errors import InputError, require_number
from fedcell.rng import stream
from fedcell.types import Floats
from fedcell.world.cell import BoolArray

if TYPE_CHECKING:
    from fedcell.world.availability_trace import Trace

PAUSE_S = 60.0
"""After so many seconds a server looks again that can reach nobody, though some devices are there."""


@dataclass(frozen=True, eq=False)
class AvailabilitySnapshot:
    """Who of M devices is there at one moment.

    Attributes:
        there: (M,) booleans.
        until_s: (M,) the clock at which a device that is there leaves, in seconds; infinity if never.
        speed: (M,) how many times as fast as usual a device computes; None if all compute as usual.
    """

    there: BoolArray
    until_s: Floats
    speed: Floats | None = None


class Availability(Protocol):
    """Who is there when: a pure function of seed and clock."""

    def at(self, count: int, seed: int, clock_s: float) -> AvailabilitySnapshot | None:
        """Return who of ``count`` devices is there at this clock; None if all are and stay."""

    def next_s(self, count: int, seed: int, clock_s: float) -> float:
        """Return the first clock from now on, in seconds, at which any device is there; infinity if never."""


@dataclass(frozen=True)
class Always(Availability):
    """Every device is always there, as in the paper.

    Example:
        >>> import fedcell as fc
        >>> fc.Always().at(count=3, seed=0, clock_s=0.0) is None
        True
    """

    @override
    def at(self, count: int, seed: int, clock_s: float) -> AvailabilitySnapshot | None:
        return None

    @override
    def next_s(self, count: int, seed: int, clock_s: float) -> float:
        return clock_s


@dataclass(frozen=True)
class DayNight(Availability):
    """Every device is there once a day: at its own time of the day, a little earlier or later each day.

    Device i's n-th day is the time from (n + spread u_i) day_s to (n + 1 + spread u_i) day_s, u_i uniform in [0, 1).
    Of a day it is there from x_n to y_n, which lie around the day's middle:

        x_n = (1 - there) day_s / 2 + noise a (v_n - 1/2)
        y_n = (1 + there) day_s / 2 + noise a (w_n - 1/2),    a = min(there, 1 - there) day_s,

    v_n and w_n uniform in [0, 1), independent for each device and day. So a device is there for the part ``there`` of
    the time on average, and always in one piece a day.

    Attributes:
        there: the part of the time for which a device is there, above 0 and at most 1.
        day_s: length of a day in seconds, at least 1.
        spread: how far the devices' days are apart: 0 if they all begin together, 1 if any time of the day is as
            likely (devices all around the world).
        noise: how much a device's times vary from day to day, from 0 to 1.

    Example:
        >>> import fedcell as fc
        >>> nights = fc.DayNight(there=0.25, day_s=1000.0)
        >>> [int(nights.at(count=1000, seed=0, clock_s=clock_s).there.sum()) for clock_s in (0.0, 500.0)]
        [235, 253]
        >>> together = fc.DayNight(there=0.25, day_s=1000.0, spread=0.0)
        >>> [int(together.at(count=1000, seed=0, clock_s=clock_s).there.sum()) for clock_s in (0.0, 400.0, 500.0)]
        [0, 711, 1000]
    """

    there: float = 0.5
    day_s: float = 86_400.0
    spread: float = 1.0
    noise: float = 0.5

    def __post_init__(self) -> None:
        require_number("there", self.there, above=0)
        require_number("day_s", self.day_s, least=1)
        for name in ("spread", "noise"):
            require_number(name, getattr(self, name), least=0)
        for name in ("there", "spread", "noise"):
            if getattr(self, name) > 1:
                raise InputError(f"{name} is {getattr(self, name):g}; give a number up to 1")

    @override
    def at(self, count: int, seed: int, clock_s: float) -> AvailabilitySnapshot | None:
        """Return who is there: those for whom this is between x_n and y_n of their day."""
        if self.there == 1.0:
            return None
        day, phase = self._day(count, seed, clock_s)
        begin_s, end_s = self._stay(count, seed, day, phase)
        return AvailabilitySnapshot((begin_s <= clock_s) & (clock_s < end_s), end_s)

    @override
    def next_s(self, count: int, seed: int, clock_s: float) -> float:
        """Return when the first of them comes: each does today or tomorrow."""
        day, phase = self._day(count, seed, clock_s)
        begin_s, end_s = self._stay(count, seed, day, phase)
        tomorrow_s, _ = self._stay(count, seed, day + 1, phase)
        return float(np.where(clock_s < end_s, np.maximum(begin_s, clock_s), tomorrow_s).min())

    def _day(self, count: int, seed: int, clock_s: float) -> tuple[NDArray[np.int64], Floats]:
        """(M,) each device's day n, and its phase spread u_i; the first may be day -1."""
        phase = self.spread * stream(seed, "daynight").random(count)
        day = np.floor(clock_s / self.day_s - phase).astype(np.int64)
        # The quotient is rounded: what counts is on which side of the day's first moment the clock is.
        day += (day + 1 + phase) * self.day_s <= clock_s
        day -= (day + phase) * self.day_s > clock_s
        return day, phase

    def _stay(self, count: int, seed: int, day: NDArray[np.int64], phase: Floats) -> tuple[Floats, Floats]:
        """(M,) the clocks at which each device comes and leaves on its day."""
        first = int(day.min())  # with its phase below 1, a device is on this day or the next
        draws = [stream(seed, "daynight", n + 1).random((count, 2)) for n in (first, first + 1)]
        shift = np.where((day == first)[:, np.newaxis], *draws) - 0.5
        swing = self.noise * min(self.there, 1 - self.there)
        base_s = (day + phase) * self.day_s
        begin_s = base_s + ((1 - self.there) / 2 + swing * shift[:, 0]) * self.day_s
        return begin_s, base_s + ((1 + self.there) / 2 + swing * shift[:, 1]) * self.day_s


AVAILABILITIES: "settings.Registry[Always | DayNight | Trace]" = settings.Registry(
    "availability",
    {
        "always": "fedcell.world.availability:Always",
        "daynight": "fedcell.world.availability:DayNight",
        "trace": "fedcell.world.availability_trace:Trace",
    },
    positional=settings.file_first,
)
"""Availability models by name."""
