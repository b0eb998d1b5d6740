"""The policies that the paper compares with, and two that everybody asks about."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.schedule.greedy import grow
from fedcell.schedule.policy import Indices, Policy, RoundView, at_least_one, room


@dataclass(frozen=True)
class _FixedNumber(Policy):
    """Schedules exactly k devices, the forced ones among them.

    Attributes:
        k: devices a round.
    """

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one("k", self.k)

    def _first(self, order: Indices, view: RoundView) -> Indices:
        """Return the forced devices and the first of the others in ``order``, k in all."""
        if self.k > len(view):
            raise InputError(f"k is {self.k}, but the cell has {len(view)} devices; give a k of at most {len(view)}")
        room(view, self.k, "k")
        if view.must_include is None:
            return order[: self.k]
        others = order[~view.must_include[order]]
        return np.concatenate((view.forced, others[: self.k - view.forced.size]))


@dataclass(frozen=True)
class Random(_FixedNumber):
    """k devices at random, each set equally likely."""

    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Shuffle, and take the first k."""
        return self._first(rng.permutation(view.order()), view)


@dataclass(frozen=True)
class RoundRobin(_FixedNumber):
    """k devices in turn: in round r those at the places k r to k r + k - 1, modulo M, of the view's order."""

    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:  # noqa: ARG002
        """Turn the order on by k places a round."""
        return self._first(np.roll(view.order(), -self.k * view.round_index), view)


@dataclass(frozen=True)
class ProportionalFair(_FixedNumber):
    """The k devices with the best instantaneous channel, as the paper uses the name.

    Attributes:
        relative: compare each device's channel with its own average instead (mean_upload_s / upload_s, as in a
            base station's proportional-fair scheduler); the view must then hold mean_upload_s.
    """

    relative: bool = field(default=False, kw_only=True)

    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:  # noqa: ARG002
        """Sort by upload time, absolute or relative to the device's own average."""
        cost: NDArray[np.float64] = view.upload_s
        if self.relative:
            if view.mean_upload_s is None:
                raise InputError(
                    "proportional_fair:relative=true needs mean_upload_s in the view; give each device's average"
                )
            cost = view.upload_s / view.mean_upload_s
        return self._first(np.argsort(cost, kind="stable"), view)


@dataclass(frozen=True)
class Deadline(Policy):
    """Client selection: add the device that lengthens the round least while the round ends within ``seconds``.

    This is Nishio and Yonetani's FedCS as the paper adapts it (CL-low: 8 s, CL-high: 25 s). When no device can make the
    deadline the plan is empty, and the round costs the deadline. Devices that must be included stay in even if
    they overrun it; nobody is added to them then.

    Attributes:
        seconds: the deadline, positive.
    """

    seconds: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.seconds) and self.seconds > 0.0):
            raise InputError(f"seconds is {self.seconds}; give the deadline as a positive number of seconds")

    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:  # noqa: ARG002
        """Return as many devices as the greedy order fits into the deadline."""
        return grow(view, room(view, self.max_devices, "max_devices"), deadline_s=self.seconds)

    def cost_of_nobody_s(self) -> float:
        """The server waits until the deadline."""
        return self.seconds


@dataclass(frozen=True)
class All(Policy):
    """Every device, every round; under ``max_devices`` those that would be done soonest alone."""

    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:  # noqa: ARG002
        """Return all devices."""
        return np.argsort(view.upload_s + view.compute_s, kind="stable")
