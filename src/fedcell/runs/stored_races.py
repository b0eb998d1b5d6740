"""Races as a results file has them, read back: checked, and without importing, opening or hashing what they name."""

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedcell.errors import InputError, printable
from fedcell.learn.published import PUBLISHED
from fedcell.runs.race import race_runs
from fedcell.runs.store import Store
from fedcell.runs.stored import (
    MAX_POLICIES,
    MAX_REASON,
    MOST_REMEMBERED,
    PolicyText,
    StoredRace,
    StoredRun,
    StoredSeed,
)
from fedcell.schedule.laws import LAWS
from fedcell.schedule.registry import POLICIES
from fedcell.sim.spec import Spec, parse_stored
from fedcell.sim.spec_upgrade import upgraded
from fedcell.world import SnrTrace


class _RaceFields(BaseModel):
    """The document of a stored race; version 0.2.0 wrote no keys."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
    spec: dict[str, Any]
    policies: Annotated[list[PolicyText], Field(min_length=1, max_length=MAX_POLICIES)]
    seeds: Annotated[list[StoredSeed], Field(min_length=1, max_length=MOST_REMEMBERED)]
    target: Annotated[float, Field(gt=0.0, le=1.0)]
    reason: str
    name: Annotated[str, Field(max_length=MAX_REASON)] = ""
    note: Annotated[str, Field(max_length=MAX_REASON)] = ""
    keys: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] | None = None

    @model_validator(mode="after")
    def _whole(self) -> "_RaceFields":
        runs = len(self.policies) * len(self.seeds)
        if runs > MOST_REMEMBERED:
            raise ValueError(f"it has {runs:,} runs; {MOST_REMEMBERED:,} at most are shown as a race")
        if self.keys is not None and (len(self.keys) != runs or len(set(self.keys)) != runs):
            raise ValueError("it does not have a key for each run")
        return self


@dataclass(frozen=True, eq=False)
class KnownRace:
    """A stored race whose document is in order.

    Attributes:
        spec: as race_spec returned it; a policy of one's own is its line, see `parse_stored`.
        target: the target accuracy.
        reason: why it failed, or empty.
        name: what the user calls it.
        note: what the user wrote about it.
        keys: of its runs, in the order of `race_runs`; None if version 0.2.0 wrote the race, which kept none.
    """

    spec: Spec
    target: float
    reason: str
    name: str
    note: str
    keys: list[str] | None

    @classmethod
    def of(cls, race: StoredRace) -> "KnownRace":
        """Of a race that a store has; an InputError if it is damaged. Nothing that it names is imported or hashed."""
        if race.state == "damaged":
            raise InputError(str(race.document["reason"]))
        try:
            fields = _RaceFields.model_validate(race.document)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, fault["loc"]))
            raise InputError(f"damaged in the file ({place}{': ' if place else ''}{fault['msg']})") from None
        grid = {"policy": fields.policies, "seed": fields.seeds}
        spec = parse_stored(fields.spec | {"grid": grid}, f"race {race.id}")
        reason = printable(fields.reason[:MAX_REASON])
        return cls(spec, fields.target, reason, fields.name, fields.note, fields.keys)

    def keys_in(self, store: Store, race: StoredRace) -> list[str]:
        """The keys of the runs of a race that version 0.2.0 wrote down, in the order of `race_runs`.

        They follow from the spec if all in it is fedcell's own. Otherwise they count code or files that may have
        changed, or be elsewhere: then the stored runs of the same specification are the race's, the newest of each; a
        run that is not stored has a key that stands for it.
        """
        if is_ours(self.spec):
            return [run.key() for run in race_runs(self.spec)]
        stored: dict[str, StoredRun] = {}
        for run in store.runs():
            if run.status != "damaged" and run.source == "simulation":
                mark = _mark(run.document)
                if mark not in stored or stored[mark].finished_unix_s < run.finished_unix_s:
                    stored[mark] = run
        base = upgraded(race.document["spec"])
        marks = [_mark(base | {"policy": run.policy, "seed": run.seed}) for run in race_runs(self.spec)]
        return [stored[mark].key if mark in stored else hashlib.sha256(mark.encode()).hexdigest() for mark in marks]


def is_ours(spec: Spec) -> bool:
    """Whether nothing in the race is of the user's own, code or files."""
    named = spec.task.data in PUBLISHED and ":" not in spec.task.model
    laws = [spec.cell.law, *spec.grid.get("cell.law", [])]
    built_in = all(map(POLICIES.is_built_in, spec.grid["policy"])) and all(map(LAWS.is_built_in, laws))
    traces = isinstance(spec.cell.channel, SnrTrace) or spec.devices.availability.startswith("trace")
    return named and built_in and not traces


def _mark(document: dict[str, Any]) -> str:
    """What tells runs apart by their documents: without the code, and what is left out where it does not matter."""
    left_out = ("code", "profiles", "epsilon", "slack", "explore")
    return json.dumps({k: v for k, v in document.items() if k not in left_out}, sort_keys=True)


def own_code(spec: Spec) -> str:
    """The first policy, law or model of a race that is code of somebody's own; empty if there is none."""
    named = [text for text in spec.grid["policy"] if POLICIES.names_code(text)]
    named += [text for text in (spec.cell.law, *spec.grid.get("cell.law", [])) if LAWS.names_code(text)]
    return str((named or [spec.task.model if ":" in spec.task.model else ""])[0])
