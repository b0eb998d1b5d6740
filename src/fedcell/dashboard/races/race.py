"""A race, its runs and how far they are."""

from dataclasses import dataclass, field
from typing import Literal

from fedcell.runs.race import race_spec
from fedcell.runs.store import Row, StoredRace, document
from fedcell.sim.loop import RoundRecord
from fedcell.sim.spec import Spec, parse_spec

State = Literal["queued", "running", "paused", "stopping", "stopped", "done", "failed", "interrupted"]
ENDED = ("stopped", "done", "failed", "interrupted")
Light = tuple[int, float, float, int, int, float, float]
"""A round without its plan: round, clock_s, round_s, scheduled, delivered, accuracy, loss."""


@dataclass(eq=False)
class Run:
    """One run of a race.

    Attributes:
        key: Spec.key().
        spec: the run.
        state: of the run.
        rows: its rounds so far; None while they are in the store only.
        plans: its rounds with their plans, until the run is stored.
        tries: how often a worker died over it.
    """

    key: str
    spec: Spec
    state: Literal["waiting", "running", "done"] = "waiting"
    rows: list[Light] | None = field(default_factory=list)
    plans: list[Row] = field(default_factory=list)
    tries: int = 0
    last: Light | None = None


@dataclass(eq=False)
class Race:
    """A race and how far it is.

    Attributes:
        id: of the race.
        spec: with a grid of policies and seeds.
        target: the accuracy whose time is asked for.
        created_unix_s: when it was asked for.
        state: see State.
        reason: why it failed or was interrupted, or empty.
        runs: by key.
        version: rises with every change of a state.
        told: the event that tells of it, and of which version and place in the queue it is.
    """

    id: str
    spec: Spec
    target: float
    created_unix_s: float
    state: State = "queued"
    reason: str = ""
    runs: dict[str, Run] = field(default_factory=dict)
    version: int = 1
    told: tuple[object, str] = (None, "")

    def __post_init__(self) -> None:
        # Seed by seed, so that an early end leaves whole seeds.
        runs = sorted(self.spec.runs(), key=lambda run: run.seed)
        self.runs = {(key := run.key()): Run(key, run) for run in runs}

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
        fields = {"spec": document(self.spec), "policies": self.policies, "seeds": self.seeds}
        return StoredRace(
            self.id, fields | {"target": self.target, "reason": self.reason}, self.state, self.created_unix_s
        )


def restored(race: StoredRace) -> Race:
    """A race as an earlier server left it."""
    fields = race.document
    base = parse_spec(fields["spec"], f"race {race.id}")
    spec = race_spec(base.changed({}, {"policy": fields["policies"], "seed": fields["seeds"]}))
    found = Race(race.id, spec, float(fields["target"]), race.created_unix_s, reason=str(fields["reason"]))
    if race.state in ENDED:
        found.state = race.state  # type: ignore[assignment]
    else:
        found.state, found.reason = "interrupted", "the server ended while the race was under way; resume it"
    return found


def light(row: Row) -> Light:
    """A stored round without its plan."""
    number, clock_s, round_s, _, accuracy, loss, devices, _, delivered = row
    return number, clock_s, round_s, len(devices) // 4, len(delivered) // 4, accuracy, loss


def light_record(record: RoundRecord) -> Light:
    """The same of a record."""
    n, delivered = int(record.plan.devices.size), int(record.delivered.size)
    return record.round, record.clock_s, record.round_s, n, delivered, record.accuracy, record.loss
