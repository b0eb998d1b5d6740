"""Races that tests have a server run."""

from typing import Any

from fedcell.dashboard.schemas import RaceDocument
from harness import Served

LONG: dict[str, Any] = {"rounds": 4000, "devices": {"count": 20}, "task": {"hidden": [4], "sizes": [1000] * 20}}
"""Longer than any test, in rounds of 20 ms."""


def begin(served: Served, document: dict[str, Any], seeds: int = 1, policies: list[str] | None = None) -> str:
    """Queue a race; its id."""
    race = served.post("/api/races", {"spec": document, "policies": policies or ["all"], "seeds": seeds})
    RaceDocument.model_validate(race)
    return str(race["id"])
