"""The race that `fedcell race` runs and the page offers where nothing else is asked for."""

from typing import Any

from fedcell import defaults
from fedcell.sim.spec import CellSpec, Spec

RACE_POLICIES = (
    "diverse",
    "greedy",
    "optimal",
    "deadline:seconds=8",
    "deadline:seconds=25",
    "proportional_fair:k=8",
    "random:k=8",
)
RACE_CELL = CellSpec(radius_m=defaults.RACE_RADIUS_M)
"""The cell of the paper's Fig. 3."""


def default_race() -> Spec:
    """The contest of the paper's Fig. 3, its policies and Diverse: a cell of 1,400 m, 450 simulated s, seeds 0 to 4."""
    grid: dict[str, list[Any]] = {"policy": list(RACE_POLICIES), "seed": list(range(defaults.SEEDS))}
    return Spec(cell=RACE_CELL, grid=grid)
