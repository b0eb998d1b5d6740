"""Downlink: when the scheduled devices have the model, before which none can start to train.

With a downlink, a round with the devices S takes t*(S) with each device's compute time lengthened by the time at which
it has the model. That time depends on S, but only through one number: a multicast goes at the rate of the slowest
device of S, and among n devices that share the downlink equally each has 1/n of it. So `best_under` searches over that
number: for a range of it, the policy's own choice with the least delay of the range, and all devices that the range
allows, bounds what any set in it is worth. Where that choice is exact (`Optimal`), so is the result.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fedcell.errors import InputError, read_only
from fedcell.types import Floats, Indices

if TYPE_CHECKING:
    from fedcell.schedule.view import RoundView


@dataclass(frozen=True, eq=False)
class _Downlink:
    """What both kinds of downlink have.

    Attributes:
        seconds: (M,) how long the model takes to each device over the entire downlink, positive.
    """

    seconds: Floats

    def __post_init__(self) -> None:
        seconds = np.asarray(self.seconds, dtype=np.float64)
        bad = ~(np.isfinite(seconds) & (seconds > 0.0))
        if seconds.ndim != 1 or bad.any():
            what = f"seconds[{int(np.flatnonzero(bad)[0])}]" if seconds.ndim == 1 else "seconds"
            raise InputError(
                f"{what} of the downlink cannot be used; give a positive number of seconds for each device"
            )
        object.__setattr__(self, "seconds", read_only(seconds))


@dataclass(frozen=True, eq=False)
class Multicast(_Downlink):
    """The model is sent once, at the rate of the slowest scheduled device: all have it at the same time.

    Attributes:
        seconds: (M,) how long the model takes to each device over the entire downlink, positive.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView([1.0, 3.0], [2.0, 2.0], downlink=fc.Multicast([0.5, 1.0]))
        >>> plan = fc.All().decide(view, np.random.default_rng(0))
        >>> plan.starts_s.tolist(), plan.round_s  # 1 s down, then 6 s
        ([1.0, 1.0], 7.0)
    """

    def take(self, devices: ArrayLike) -> "Multicast":
        """The downlink of some of the devices."""
        return Multicast(self.seconds[np.asarray(devices)])

    def starts_s(self, devices: Indices) -> Floats:
        """(n,) when each of these devices has the model, if they are the ones scheduled."""
        return np.full(devices.size, self.seconds[devices].max(initial=0.0))

    def delay_levels(self, most: int) -> Floats:  # noqa: ARG002
        """The values that the number may have on which the delays depend: how long the multicast takes."""
        return np.unique(self.seconds)

    def allowed(self, level: float, most: int) -> tuple[Indices, int]:
        """The devices that a set of this level may have, and how many of them."""
        return np.flatnonzero(self.seconds <= level), most

    def delays_s(self, level: float) -> Floats:
        """(M,) when each device would have the model at this level."""
        return np.full(self.seconds.size, level)


@dataclass(frozen=True, eq=False)
class Unicast(_Downlink):
    """Each scheduled device gets a copy of its own, all at once, over an equal share of the downlink.

    Attributes:
        seconds: (M,) how long the model takes to each device over the entire downlink, positive.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView([1.0, 3.0], [2.0, 2.0], downlink=fc.Unicast([0.5, 0.5]))
        >>> plan = fc.All().decide(view, np.random.default_rng(0))
        >>> plan.starts_s.tolist(), plan.round_s
        ([1.0, 1.0], 7.0)
    """

    def take(self, devices: ArrayLike) -> "Unicast":
        """The downlink of some of the devices."""
        return Unicast(self.seconds[np.asarray(devices)])

    def starts_s(self, devices: Indices) -> Floats:
        """(n,) when each of these devices has the model, if they are the ones scheduled."""
        starts_s: Floats = devices.size * self.seconds[devices]
        return starts_s

    def delay_levels(self, most: int) -> Floats:
        """The values that the number may have on which the delays depend: the number of devices."""
        return np.arange(1.0, most + 1.0)

    def allowed(self, level: float, most: int) -> tuple[Indices, int]:
        """The devices that a set of this level may have, and how many of them."""
        return np.arange(self.seconds.size), min(int(level), most)

    def delays_s(self, level: float) -> Floats:
        """(M,) when each device would have the model at this level."""
        delays_s: Floats = level * self.seconds
        return delays_s


Downlink = Multicast | Unicast

MAX_EVALUATIONS = 200
"""The search stops after so many choices with what it has found, which then need not be the best: in large cells."""


def best_under(
    view: "RoundView",
    most: int,
    choose: Callable[["RoundView", Indices, int], Indices],
    worth: Callable[[Indices, float], float],
) -> Indices:
    """Choose devices under the view's downlink.

    Args:
        view: what the server knows, with a downlink.
        most: the largest number of devices.
        choose: the policy's choice without a downlink, from a view of some of the devices, their indices in the whole
            view, and the largest number: indices in the smaller view.
        worth: what a set, given by its indices in the whole view, is worth with a round of so many seconds: the less,
            the better.

    Returns:
        (n,) the device indices of the best set found.
    """
    from fedcell.schedule.bandwidth import allocate

    downlink, forced = view.downlink, view.forced
    assert downlink is not None
    levels = downlink.delay_levels(most)
    best, best_value = forced, math.inf

    def seconds(devices: Indices, delays_s: Floats) -> float:
        compute_s = view.compute_s[devices] + delays_s
        return float(allocate(view.upload_s[devices], compute_s, law=view.law.take(devices)).round_s)

    def look(low: int, high: int) -> float:
        """Bound what sets with these levels are worth; the set that is chosen may be the best so far."""
        nonlocal best, best_value
        there, limit = downlink.allowed(levels[high], most)
        limit = min(limit, there.size)
        if limit < forced.size or not np.isin(forced, there).all():
            return math.inf
        delays_s = downlink.delays_s(levels[low])
        part = replace(view.only(there), compute_s=view.compute_s[there] + delays_s[there], downlink=None)
        found: Indices = there[choose(part, there, limit)]
        if found.size == 0:
            return math.inf
        value = worth(found, seconds(found, downlink.starts_s(found)))
        if value < best_value:
            best, best_value = found, value
        return worth(found, seconds(found, delays_s[found]))

    ranges = [(look(0, levels.size - 1), 0, levels.size - 1)]
    for _ in range(MAX_EVALUATIONS):
        if not ranges or ranges[0][0] >= best_value * (1.0 - 1e-12):
            break
        _, low, high = heapq.heappop(ranges)
        if low == high:
            continue
        middle = (low + high) // 2
        for a, b in ((low, middle), (middle + 1, high)):
            heapq.heappush(ranges, (look(a, b), a, b))
    return best
