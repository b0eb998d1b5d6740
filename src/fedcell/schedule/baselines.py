"""The policies that the paper compares with, and two other common ones."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from fedcell.errors import InputError
from fedcell.schedule.downlink import best_under
from fedcell.schedule.greedy import grow
from fedcell.schedule.policy import Policy, at_least_one, max_scheduled, require_devices
from fedcell.schedule.view import RoundView
from fedcell.types import Indices


@dataclass(frozen=True)
class FixedNumber(Policy):
    """Schedules exactly k devices per round, including the ones that must be included.

    Attributes:
        k: devices per round.
    """

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one("k", self.k)

    def _first(self, order: Indices, view: RoundView) -> Indices:
        """Return the forced devices and the first of the others in ``order``, k in total."""
        require_devices(self.k, view)
        if self.k > view.law.max_devices:
            raise InputError(f"k is {self.k}, but there are {view.law.capacity}; give a smaller k")
        max_scheduled(view, self.k, "k")
        if view.must_include is None:
            return order[: self.k]
        others = order[~view.must_include[order]]
        return np.concatenate((view.forced, others[: self.k - view.forced.size]))


@dataclass(frozen=True)
class Random(FixedNumber):
    """Schedule k devices chosen at random; every set of k devices is equally likely.

    Attributes:
        k: devices per round, a whole number from 1 to M.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 9.0, 1.5], compute_s=[3.0, 2.0, 5.0, 8.0])
        >>> plan = fc.Random(k=2).decide(view, np.random.default_rng(0))
        >>> plan.devices.tolist(), round(plan.round_s, 3)
        ([0, 1], 5.414)
    """

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the first k devices of a random permutation."""
        return self._first(rng.permutation(view.order()), view)


@dataclass(frozen=True)
class RoundRobin(FixedNumber):
    """Schedule k devices in turn: in round r those at positions k r to k r + k - 1, modulo M.

    The order is that of ``view.ids``; without ids, that of (upload_s, compute_s).

    Attributes:
        k: devices per round, a whole number from 1 to M.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> times_s = {"upload_s": [1.0, 2.0, 9.0], "compute_s": [3.0, 2.0, 5.0]}
        >>> views = [fc.RoundView(**times_s, ids=[0, 1, 2], round_index=r) for r in range(3)]
        >>> [fc.RoundRobin(k=2).decide(view, np.random.default_rng(0)).devices.tolist() for view in views]
        [[0, 1], [0, 2], [1, 2]]
    """

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Rotate the order by k positions per round and return the first k."""
        return self._first(np.roll(view.order(), -self.k * view.round_index), view)


@dataclass(frozen=True)
class ProportionalFair(FixedNumber):
    """Schedule the k devices with the best instantaneous channel, which is what the paper means by this name.

    Attributes:
        k: devices per round, a whole number from 1 to M.
        relative: compare each device's channel with its own average instead (mean_upload_s / upload_s, as in a
            base station's proportional-fair scheduler); the view must then have mean_upload_s.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 9.0, 1.5], compute_s=[3.0, 2.0, 5.0, 8.0])
        >>> fc.ProportionalFair(k=2).decide(view, np.random.default_rng(0)).devices.tolist()
        [0, 3]
    """

    relative: bool = field(default=False, kw_only=True)

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Sort by upload time, absolute or relative to the device's own average."""
        cost: NDArray[np.float64] = view.upload_s
        if self.relative:
            if view.mean_upload_s is None:
                raise InputError(
                    "proportional_fair:relative=true needs mean_upload_s in the view; give each device's average in s"
                )
            cost = view.upload_s / view.mean_upload_s
        return self._first(np.argsort(cost, kind="stable"), view)


@dataclass(frozen=True)
class Deadline(Policy):
    """Schedule as many devices as can finish before a deadline: client selection.

    Starting from no device, keep adding the one that lengthens the round least, as long as the round ends within
    ``seconds``. This is Nishio and Yonetani's FedCS as the paper adapts it (CL-low: 8 s, CL-high: 25 s). If no device
    can meet the deadline, the plan is empty and the round lasts until the deadline. Devices that must be included stay
    in even if they miss the deadline; no others are added then.

    Attributes:
        seconds: the deadline, a positive number of seconds from the start of the round.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 9.0, 1.5], compute_s=[3.0, 2.0, 5.0, 8.0])
        >>> plan = fc.Deadline(seconds=6.0).decide(view, np.random.default_rng(0))
        >>> plan.devices.tolist(), round(plan.round_s, 3)
        ([0, 1], 5.414)
        >>> nobody = fc.Deadline(seconds=1.0).decide(view, np.random.default_rng(0))
        >>> nobody.devices.tolist(), nobody.round_s
        ([], 1.0)
    """

    seconds: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.seconds) and self.seconds > 0.0):
            raise InputError(f"seconds is {self.seconds}; give the deadline as a positive number of seconds")

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices, in the order in which they were added, that finish before the deadline."""
        most = max_scheduled(view, self.max_devices, "max_devices")
        if view.downlink is None:
            return grow(view, most, deadline_s=self.seconds)
        return best_under(
            view,
            most,
            lambda part, _, limit: grow(part, limit, deadline_s=self.seconds),
            lambda devices, round_s: 1.0 / devices.size if round_s <= self.seconds else math.inf,
        )

    @override
    def empty_round_s(self) -> float:
        """The deadline: the server waits until then."""
        return self.seconds


@dataclass(frozen=True)
class All(Policy):
    """Schedule every device in every round; with ``max_devices``, those that would finish first on their own.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 9.0, 1.5], compute_s=[3.0, 2.0, 5.0, 8.0])
        >>> round(fc.All().decide(view, np.random.default_rng(0)).round_s, 3)
        18.437
        >>> round(fc.All(sharing="equal").decide(view, np.random.default_rng(0)).round_s, 3)
        41.0
    """

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return all devices."""
        return np.argsort(view.upload_s + view.compute_s, kind="stable")
