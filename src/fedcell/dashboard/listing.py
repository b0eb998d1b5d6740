"""The stored runs as the page Results lists them: chosen, sorted and averaged here, however many there are."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from fedcell.dashboard import limits
from fedcell.dashboard.colours import styles
from fedcell.dashboard.schemas import as_json
from fedcell.errors import InputError, did_you_mean
from fedcell.runs.store import differing_fields
from fedcell.runs.stored import StoredRun, flat

Found: TypeAlias = Sequence[tuple[StoredRun, str]]
"""Runs, and the names of their results files."""
Sort = Literal[
    "policy", "seed", "differs", "rounds", "best", "last", "source", "file", "finished",
    "-policy", "-seed", "-differs", "-rounds", "-best", "-last", "-source", "-file", "-finished",
]  # fmt: skip


@dataclass(frozen=True)
class Chosen:
    """Which runs are asked for.

    Attributes:
        policy: of this policy alone.
        source: from there alone.
        keys: these alone, by the first digits of their keys, separated by commas.
    """

    policy: str | None
    source: str | None
    keys: str

    @cached_property
    def _begins(self) -> tuple[str, ...]:
        found = tuple(key.strip() for key in self.keys.split(",") if key.strip())
        if len(found) > limits.KEYS:
            raise InputError(f"keys has {len(found)} runs; give {limits.KEYS} at most, separated by commas")
        for key in found:
            if not 8 <= len(key) <= 64:
                raise InputError(f"{key[:64]!r} is not a run's key; give at least eight of its hexadecimal digits")
        return found

    def of(self, found: Found) -> list[tuple[StoredRun, str]]:
        """Those of them that are meant."""
        kept = [pair for pair in found if self.source in (None, pair[0].source)]
        if self._begins:
            kept = [pair for pair in kept if pair[0].key.startswith(self._begins)]
        return [pair for pair in kept if self.policy in (None, "", pair[0].policy)]


def listed(found: Found, chosen: Chosen, sort: str, limit: int, offset: int) -> str:
    """One page of the runs as RunList has them."""
    kept = chosen.of(found)
    differing = differing_fields(run.document for run, _ in kept if run.status != "damaged")
    by = _ORDERS[sort.removeprefix("-")]
    kept.sort(key=lambda pair: (pair[0].seed, pair[0].key))
    kept.sort(key=lambda pair: by(pair, differing), reverse=sort.startswith("-"))
    rows = [
        stored_document(run, name, {field: flat(run.document).get(field) for field in differing})
        for run, name in kept[offset : offset + limit]
    ]
    policies = sorted({run.policy for run, _ in found if chosen.source in (None, run.source)})
    return as_json({"runs": rows, "total": len(kept), "policies": policies})


def _differs(pair: tuple[StoredRun, str], differing: Sequence[str]) -> tuple[tuple[bool, float, str], ...]:
    values = flat(pair[0].document)
    return tuple(_size(values.get(name)) for name in differing)


def _accuracy(run: StoredRun, accuracy: float) -> float:
    return accuracy if run.rounds else -1.0


_ORDERS: dict[str, Callable[[tuple[StoredRun, str], Sequence[str]], Any]] = {
    "policy": lambda pair, _: pair[0].policy,
    "seed": lambda pair, _: pair[0].seed,
    "differs": _differs,
    "rounds": lambda pair, _: pair[0].rounds,
    "best": lambda pair, _: _accuracy(pair[0], pair[0].best_accuracy),
    "last": lambda pair, _: _accuracy(pair[0], pair[0].last_accuracy),
    "source": lambda pair, _: pair[0].source,
    "file": lambda pair, _: pair[1],
    "finished": lambda pair, _: pair[0].finished_unix_s,
}


def _size(value: Any) -> tuple[bool, float, str]:
    """What values of a field are sorted by: numbers by size, then all others by their text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not is_number, float(value) if is_number else 0.0, "" if is_number else str(value)


def field_means(found: Found, chosen: Chosen, across: str, down: str, value: str) -> str:
    """Mean accuracies by the values of two fields, as FieldMeans has them; runs without a round are left out."""
    kept = [run for run, _ in chosen.of(found) if run.rounds and run.status != "damaged"]
    fields = differing_fields(run.document for run in kept)
    if not fields:
        return as_json({"fields": [], "runs": len(kept)} | dict.fromkeys(("across", "down"), None))
    across = across or fields[0]
    for name in (across, down):
        if name not in (*fields, "policy"):
            raise InputError(f"the runs do not differ in {name[:60]!r}; {did_you_mean(name, [*fields, 'policy'])}")
    groups = defaultdict[tuple[str, str], list[float]](list)
    ends: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for run in kept:
        values = flat(run.document)
        names = [str(values.get(name)) for name in (across, down)]
        for end, text, name in zip(ends, names, (across, down), strict=True):
            end[text] = values.get(name)
        groups[names[0], names[1]].append(getattr(run, value))
    xs, ys = (sorted(end, key=lambda text, end=end: _size(end[text])) for end in ends)  # type: ignore[misc]
    if len(xs) * len(ys) > limits.MEANS:
        raise InputError(f"{across} and {down} have {len(xs)} x {len(ys)} values; choose fields with fewer")
    numbers = [[groups.get((x, y), []) for x in xs] for y in ys]
    colours = styles(ys) if down == "policy" else {}
    document = {
        "across": across,
        "down": down,
        "fields": [*fields, "policy"],
        "runs": len(kept),
        "x": [ends[0][text] for text in xs],
        "y": [ends[1][text] for text in ys],
        "styles": [{"colour": colours[y][0], "dash": colours[y][1]} if colours else None for y in ys],
        "means": [[sum(cell) / len(cell) if cell else None for cell in row] for row in numbers],
        "counts": [[len(cell) for cell in row] for row in numbers],
    }
    return as_json(document)


def stored_document(run: StoredRun, store: str, differs: dict[str, Any]) -> dict[str, Any]:
    """A stored run as RunDocument has it."""
    colour, dash = styles([run.policy])[run.policy]
    return {
        "key": run.key,
        "store": store,
        "policy": run.policy,
        "seed": run.seed,
        "status": run.status,
        "reason": run.reason,
        "source": run.source,
        "rounds": run.rounds,
        "best_accuracy": run.best_accuracy if run.rounds else None,
        "last_accuracy": run.last_accuracy if run.rounds else None,
        "finished_unix_s": run.finished_unix_s,
        "duration_s": run.duration_s,
        "diverged": run.diverged,
        "doubt": run.doubt,
        "colour": colour,
        "dash": dash,
        "differs": differs,
    }
