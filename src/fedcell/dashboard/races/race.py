"""A race on the page, its runs and how far they are."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from fedcell.runs.race import ENDED, is_under_way, race_from_store, race_runs, race_to_store
from fedcell.runs.rows import ROUND_COLUMNS, Row
from fedcell.runs.store import StoredRace
from fedcell.sim.spec import Spec

RaceState = Literal["queued", "running", "paused", "stopping", "stopped", "done", "failed", "interrupted"]
INTERRUPTED = "the process that ran the race has ended; resume it"


@dataclass(eq=False)
class LiveRun:
    """One run of a race.

    Attributes:
        key: Spec.key().
        spec: the run.
        state: of the run.
        numbers: its rounds so far, as ROUND_COLUMNS; None while they are in the store only.
        rows: its rounds with their plans, until the run is stored.
        reason: why it failed, or empty.
    """

    key: str
    spec: Spec
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    numbers: list[Sequence[Any]] | None = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    reason: str = ""

    def last(self, column: str) -> Any:
        """The column's value in its last round; None if it has none, or they are in the store only."""
        return self.numbers[-1][ROUND_COLUMNS.index(column)] if self.numbers else None


@dataclass(eq=False)
class LiveRace:
    """A race and how far it is.

    Attributes:
        id: of the race.
        spec: with a grid of policies and seeds.
        target: the target accuracy.
        created_unix_s: when it was asked for.
        state: see RaceState.
        reason: why it failed or was interrupted, or empty.
        elsewhere: whether another process runs it.
        runs: by key, seed by seed.
        version: rises with every change of a state.
        name: what the user calls it, or empty.
        note: what the user wrote about it, or empty.
        told: the event that tells of it, and of which version and place in the queue it is.
    """

    id: str
    spec: Spec
    target: float
    created_unix_s: float = field(default_factory=time.time)
    state: RaceState = "queued"
    reason: str = ""
    elsewhere: bool = False
    runs: dict[str, LiveRun] = field(default_factory=dict)
    version: int = 1
    name: str = ""
    note: str = ""
    told: tuple[object, str] = (None, "")

    def __post_init__(self) -> None:
        self.runs = {(key := run.key()): LiveRun(key, run) for run in race_runs(self.spec)}

    @property
    def policies(self) -> list[str]:
        """Its policies, in the order given."""
        return list(self.spec.grid["policy"])

    @property
    def seeds(self) -> list[int]:
        """Its seeds."""
        return list(self.spec.grid["seed"])

    def stored(self) -> StoredRace:
        """The race as the store keeps it."""
        words = {"name": self.name, "note": self.note}
        return race_to_store(self.id, self.spec, self.target, self.state, self.created_unix_s, self.reason, **words)

    def follow(self, stored: StoredRace) -> None:
        """Take over what the store says of a race that this server does not run."""
        self.reason = str(stored.document["reason"])
        self.name, self.note = (str(stored.document.get(field, "")) for field in ("name", "note"))
        self.elsewhere = is_under_way(stored)
        if self.elsewhere or stored.state in ENDED:
            self.state = cast(RaceState, stored.state)
        else:
            self.state, self.reason = "interrupted", INTERRUPTED
        self.version += 1


def from_store(stored: StoredRace) -> LiveRace:
    """A race that another process left or runs."""
    spec, target = race_from_store(stored)
    race = LiveRace(stored.id, spec, target, stored.created_unix_s)
    race.follow(stored)
    return race
