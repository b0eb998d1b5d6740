"""The race that `fedcell race` runs and the page offers where nothing else is asked for."""

from typing import Any

from fedcell import defaults
from fedcell.sim.spec import CellSpec, Spec

PAPER_POLICIES = (
    "greedy",
    "optimal",
    "deadline:seconds=8",
    "deadline:seconds=25",
    "proportional_fair:k=8",
    "random:k=8",
)
RACE_CELL = CellSpec(radius_m=defaults.RACE_RADIUS_M)
"""The cell of the paper's Fig. 3."""


def paper_race() -> Spec:
    """The contest of the paper's Fig. 3: its policies in a cell of 1,400 m for 450 simulated seconds, seeds 0 to 4."""
    grid: dict[str, list[Any]] = {"policy": list(PAPER_POLICIES), "seed": list(range(defaults.SEEDS))}
    return Spec(cell=RACE_CELL, grid=grid)
