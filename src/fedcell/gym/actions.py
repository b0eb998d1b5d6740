"""An agent's actions as policies: a set of devices, or scores from which the best set is taken."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedcell.errors import InputError
from fedcell.schedule.bandwidth import allocate
from fedcell.schedule.policy import Policy, room
from fedcell.schedule.view import RoundView
from fedcell.types import Floats, Indices

NOBODY_S = 1.0
"""How long the server waits in a round for which the agent chose nobody."""
MOST_SIZES = 200
"""So many sizes of sets are looked at, at most; in larger cells they are spread evenly on a logarithmic scale."""


@dataclass(frozen=True)
class Given(Policy):
    """Schedule the devices that were given, those of them that are there.

    Attributes:
        devices: device numbers.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.gym import Given
        >>> view = fc.RoundView(upload_s=[1.0, 3.0, 9.0], compute_s=[2.0, 2.0, 5.0])
        >>> Given((0, 1)).decide(view, np.random.default_rng(0)).devices.tolist()
        [0, 1]
    """

    devices: tuple[int, ...] = ()
    uses_profiles: ClassVar[bool] = True
    uses_norms: ClassVar[bool] = True

    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:  # noqa: ARG002
        """Return them."""
        return np.flatnonzero(np.isin(_numbers(view), self.devices))

    def cost_of_nobody_s(self) -> float:
        """A second: the agent's wait is not free."""
        return NOBODY_S


@dataclass(frozen=True)
class Scored(Policy):
    """Schedule the n devices with the highest scores, with the n that minimises (theta + 1/n) x round time.

    Attributes:
        scores: (M,) by device number; the higher, the more wanted.
        theta: as in `Greedy`: the larger, the shorter the rounds.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.gym import Scored
        >>> view = fc.RoundView(upload_s=[1.0, 3.0, 90.0], compute_s=[2.0, 2.0, 5.0])
        >>> Scored((0.1, 0.9, 0.0), theta=0.0).decide(view, np.random.default_rng(0)).devices.tolist()
        [0, 1]
    """

    scores: tuple[float, ...] = ()
    theta: float = 0.0
    uses_profiles: ClassVar[bool] = True
    uses_norms: ClassVar[bool] = True

    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:  # noqa: ARG002
        """Return the best of the sets that the order of the scores allows."""
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.size <= (last := int(_numbers(view).max())):
            raise InputError(f"there are {scores.size} scores, but a device has the number {last}; give one for each")
        if not np.isfinite(scores).all():
            raise InputError(f"scores[{int(np.argmin(np.isfinite(scores)))}] is not a finite number; give finite ones")
        order = np.argsort(-scores[_numbers(view)], kind="stable")
        most = room(view, self.max_devices, "max_devices")
        sizes = (
            np.unique(np.geomspace(1, most, min(most, MOST_SIZES)).round().astype(int)) if most > MOST_SIZES else None
        )
        counts = np.arange(1, most + 1) if sizes is None else sizes
        costs = [(self.theta + 1.0 / n) * _round_s(view, order[:n]) for n in counts]
        return order[: counts[int(np.argmin(costs))]]


def _numbers(view: RoundView) -> Indices:
    return np.arange(len(view)) if view.ids is None else view.ids


def _round_s(view: RoundView, devices: Indices) -> float:
    starts_s: Floats | float = 0.0 if view.downlink is None else view.downlink.starts_s(devices)
    compute_s = starts_s + view.compute_s[devices]
    return float(allocate(view.upload_s[devices], compute_s, law=view.law.take(devices)).round_s)
