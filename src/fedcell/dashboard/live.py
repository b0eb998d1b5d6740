"""A race on the page, its runs and how far they are."""

import time
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal, cast

from fedcell.errors import InputError
from fedcell.runs.race import race_runs, race_to_store
from fedcell.runs.store import Store
from fedcell.runs.stored import StoredRace
from fedcell.runs.stored_races import KnownRace
from fedcell.sim.record import ROUND_COLUMNS, RoundRecord
from fedcell.sim.spec import Spec

RaceState = Literal["queued", "running", "paused", "stopping", "stopped", "done", "failed", "interrupted", "damaged"]
INTERRUPTED = "the process that ran the race has ended; resume it"


@dataclass(eq=False)
class LiveRun:
    """One run of a race.

    Attributes:
        key: Spec.key().
        spec: the run.
        state: of the run.
        numbers: its rounds so far, as ROUND_COLUMNS; None while they are in the store only.
        records: its rounds with their plans, until the run is stored.
        reason: why it failed, or empty.
    """

    key: str
    spec: Spec
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    numbers: list[Sequence[Any]] | None = field(default_factory=list)
    records: list[RoundRecord] = field(default_factory=list)
    reason: str = ""

    def last(self, column: str) -> Any:
        """The column's value in its last round; None if it has none, or they are in the store only."""
        return self.numbers[-1][ROUND_COLUMNS.index(column)] if self.numbers else None


@dataclass(eq=False)
class LiveRace:
    """A race and how far it is.

    Attributes:
        id: of the race.
        spec: with a grid of policies and seeds; of a damaged race, with an empty one.
        target: the target accuracy.
        created_unix_s: when it was asked for.
        state: see RaceState.
        reason: why it failed, was interrupted or cannot be read, or empty.
        elsewhere: whether another process runs it.
        runs: by key, seed by seed.
        version: rises with every change of a state.
        name: what the user calls it, or empty.
        note: what the user wrote about it, or empty.
        told: the event that tells of it, and of which version and place in the queue it is.
        keys: of the runs, where they are known.
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
    keys: InitVar[Sequence[str] | None] = None

    def __post_init__(self, keys: Sequence[str] | None) -> None:
        self.renew([run.key() for run in race_runs(self.spec)] if keys is None else keys)

    def renew(self, keys: Sequence[str]) -> None:
        """Take the runs that have these keys: code or data of one's own may have changed."""
        specs = race_runs(self.spec)
        self.runs = {key: self.runs.get(key) or LiveRun(key, run) for key, run in zip(keys, specs, strict=True)}

    @property
    def policies(self) -> list[str]:
        """Its policies, in the order given."""
        return list(self.spec.grid["policy"])

    @property
    def seeds(self) -> list[int]:
        """Its seeds."""
        return list(self.spec.grid["seed"])

    @property
    def ended(self) -> bool:
        """Whether nobody runs it."""
        return self.state in StoredRace.ENDED

    def stored(self) -> StoredRace:
        """The race as the store keeps it."""
        return race_to_store(
            self.id,
            self.spec,
            self.target,
            self.state,
            self.created_unix_s,
            self.reason,
            keys=list(self.runs),
            name=self.name,
            note=self.note,
        )

    def follow(self, stored: StoredRace) -> None:
        """Take over what the store says of a race that this server does not run; an InputError if it is damaged."""
        known = KnownRace.of(stored)
        if known.keys is not None and known.keys != list(self.runs):
            self.renew(known.keys)
        self.reason, self.name, self.note = known.reason, known.name, known.note
        self.elsewhere = stored.is_under_way
        if self.elsewhere or stored.state in stored.ENDED:
            self.state = cast(RaceState, stored.state)
        else:
            self.state, self.reason = "interrupted", INTERRUPTED
        self.version += 1


def from_store(stored: StoredRace, store: Store) -> LiveRace:
    """A race that another process left or runs; a damaged one says why, and hides no other."""
    try:
        known = KnownRace.of(stored)
        keys = known.keys or known.keys_in(store, stored)
        race = LiveRace(stored.id, known.spec, known.target, stored.created_unix_s, keys=keys)
        race.follow(stored)
        return race
    except InputError as error:
        reason = str(error)
    except Exception as error:  # whatever somebody has written there
        reason = f"damaged in the file ({type(error).__name__})"
    nothing = Spec().model_copy(update={"grid": {"policy": [], "seed": []}})
    return LiveRace(stored.id, nothing, 1.0, stored.created_unix_s, "damaged", reason, keys=[])
