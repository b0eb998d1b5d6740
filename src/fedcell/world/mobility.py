"""Where the devices are: each mobility model is a pure function of seed, round and clock."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from typing_extensions import override

from fedcell import settings
from fedcell.errors import InputError, require_number
from fedcell.rng import stream
from fedcell.types import Floats
from fedcell.world.cell import Cell, uniform_in_disc

_FIRST_LEGS = 8
_MAX_DEVICE_LEGS = 2**24  # about 0.7 GB of legs


class Mobility(Protocol):
    """A mobility model: any class with this method."""

    def positions(self, cell: Cell, count: int, seed: int, round_index: int, clock_s: float) -> Floats:
        """Return the positions of the devices.

        Args:
            cell: its radius bounds the positions.
            count: M, the number of devices.
            seed: the run's random seed.
            round_index: the round, from 0.
            clock_s: seconds from the start of the run.

        Returns:
            (M, 2) metres from the base station.
        """
        ...


@dataclass(frozen=True)
class Redrawn(Mobility):
    """New uniform positions in every round, as in the paper.

    Example:
        >>> import fedcell as fc
        >>> cell = fc.Cell(radius_m=500.0)
        >>> for r in range(2):
        ...     print(fc.Redrawn().positions(cell, count=1, seed=1, round_index=r, clock_s=0.0).round(1).tolist())
        [[26.2, -485.5]]
        [[-15.3, 352.9]]
    """

    @override
    def positions(self, cell: Cell, count: int, seed: int, round_index: int, clock_s: float) -> Floats:
        """(M, 2) metres from the base station, drawn for the round; the clock has no effect."""
        return uniform_in_disc(cell.radius_m, stream(seed, "placement", round_index).random((count, 2)))


@dataclass(frozen=True)
class Static(Mobility):
    """Uniform positions, drawn once for the run.

    Example:
        >>> import fedcell as fc
        >>> cell = fc.Cell(radius_m=500.0)
        >>> for r in range(2):
        ...     print(fc.Static().positions(cell, count=1, seed=1, round_index=r, clock_s=0.0).round(1).tolist())
        [[89.5, 452.0]]
        [[89.5, 452.0]]
    """

    @override
    def positions(self, cell: Cell, count: int, seed: int, round_index: int, clock_s: float) -> Floats:
        """(M, 2) metres from the base station, the same in every round."""
        return uniform_in_disc(cell.radius_m, stream(seed, "placement").random((count, 2)))


@dataclass(frozen=True)
class RandomWaypoint(Mobility):
    """Random waypoint: a device walks straight to a uniform point at a uniform speed, pauses, and walks on.

    Leg l of all devices is drawn from ``stream(seed, "waypoint", l)``: the walk depends on seed and time only, so
    policies whose rounds last differently see the same walks. At time 0 the devices start walking from the uniform
    positions of `Static`. In the long run a random-waypoint device is closer to the centre than a uniform one (straight
    lines between uniform points cross it) and slower than its mean speed (slow legs last longer).

    Attributes:
        speed_mps: (slowest, fastest) speed of a leg, in m/s, positive.
        pause_s: (shortest, longest) pause between two legs, in seconds.

    Example:
        >>> import fedcell as fc
        >>> walk = fc.RandomWaypoint(speed_mps=(0.5, 2.0), pause_s=(0.0, 10.0))
        >>> for clock_s in (0.0, 100.0):
        ...     print(walk.positions(fc.Cell(radius_m=500.0), 1, 1, 0, clock_s).round(1).tolist())
        [[89.5, 452.0]]
        [[185.3, 445.5]]
    """

    speed_mps: tuple[float, float] = (0.5, 2.0)
    pause_s: tuple[float, float] = (0.0, 10.0)

    def __post_init__(self) -> None:
        for name in ("speed_mps", "pause_s"):
            pair = getattr(self, name)
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise InputError(f"{name} is {pair!r}; give a pair (least, most)")
            for value in pair:
                if name == "speed_mps":
                    require_number(name, value, above=0)
                else:
                    require_number(name, value, least=0)
            if pair[0] > pair[1]:
                raise InputError(f"{name} is {pair!r}; give the least first")

    @override
    def positions(self, cell: Cell, count: int, seed: int, round_index: int, clock_s: float) -> Floats:
        """(M, 2) metres from the base station at time ``clock_s``; the round has no effect."""
        legs = _FIRST_LEGS
        while (walk := _walk(self, cell.radius_m, count, seed, legs)).known_until_s <= clock_s:
            legs *= 2
            if legs * count > _MAX_DEVICE_LEGS:
                raise InputError(
                    f"clock_s is {clock_s:g}, by which {count} devices walk more legs than fit in memory; "
                    "lower clock_s or speed_mps"
                )
        device = np.arange(count)
        leg = np.count_nonzero(walk.end_s <= clock_s, axis=0)
        travel_s = walk.travel_s[leg, device]
        elapsed_s = np.minimum(clock_s - walk.start_s[leg, device], travel_s)
        done = np.divide(elapsed_s, travel_s, out=np.ones(count), where=travel_s > 0)[:, np.newaxis]
        places: Floats = (1 - done) * walk.points_m[leg, device] + done * walk.points_m[leg + 1, device]
        return places


class _Walk(NamedTuple):
    points_m: Floats  # (legs + 1, M, 2)
    start_s: Floats  # (legs, M)
    travel_s: Floats  # (legs, M)
    end_s: Floats  # (legs, M), after the pause
    known_until_s: float


# The length doubles on demand, so eight entries hold one seed's walk of up to 1,024 legs.
@lru_cache(maxsize=8, typed=True)
def _walk(mobility: RandomWaypoint, radius_m: float, count: int, seed: int, legs: int) -> _Walk:
    """Return the first legs of all devices; a longer walk begins with the same legs."""
    (slowest, fastest), (shortest, longest) = mobility.speed_mps, mobility.pause_s
    points_m = np.empty((legs + 1, count, 2))
    points_m[0] = uniform_in_disc(radius_m, stream(seed, "placement").random((count, 2)))
    travel_s, pause_s = np.empty((2, legs, count))
    for leg in range(legs):
        unit = stream(seed, "waypoint", leg).random((count, 4))
        points_m[leg + 1] = uniform_in_disc(radius_m, unit[:, :2])
        way = points_m[leg + 1] - points_m[leg]
        travel_s[leg] = np.hypot(way[:, 0], way[:, 1]) / (slowest + (fastest - slowest) * unit[:, 2])
        pause_s[leg] = shortest + (longest - shortest) * unit[:, 3]
    end_s = np.cumsum(travel_s + pause_s, axis=0)
    start_s = np.vstack([np.zeros(count), end_s[:-1]])
    return _Walk(points_m, start_s, travel_s, end_s, float(end_s[-1].min()))


MOBILITIES = settings.Registry[Redrawn | Static | RandomWaypoint](
    "mobility",
    {
        "redrawn": "fedcell.world.mobility:Redrawn",
        "static": "fedcell.world.mobility:Static",
        "waypoint": "fedcell.world.mobility:RandomWaypoint",
    },
)
"""Mobility models by name."""
