"""The race that `fedcell race` runs and the page offers where nothing else is asked for."""

from typing import Any

from fedcell import defaults
from fedcell.schedule.laws import parse_law
from fedcell.sim.spec import Spec


def race_policies(devices: int = defaults.DEVICES, law: str = "density") -> list[str]:
    """The policies of the paper's Fig. 3, and Diverse, for a cell of so many devices under a link law."""
    k = int(min(8, devices, parse_law(law).most))
    by_time = ["diverse", "greedy", "optimal", "deadline:seconds=8", "deadline:seconds=25"]
    return [*by_time, f"proportional_fair:k={k}", f"random:k={k}"]


RACE_POLICIES = tuple(race_policies())


def default_race() -> Spec:
    """The contest of the paper's Fig. 3, its policies and Diverse: a cell of 1,400 m, 450 simulated s, seeds 0 to 4."""
    grid: dict[str, list[Any]] = {"policy": list(RACE_POLICIES), "seed": list(range(defaults.SEEDS))}
    return Spec(grid=grid)
