"""/api/runs and /api/results: what the results files hold, round by round and side by side."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal, TypeAlias

from fastapi import APIRouter, Path, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fedcell import defaults
from fedcell.dashboard import limits
from fedcell.dashboard.cells import RunWorld, ShownSharing, field_document, round_document, start_of
from fedcell.dashboard.exports import MEDIA, compared, compared_data, compared_picture, grouped
from fedcell.dashboard.schemas import (
    Curves,
    ErrorAnswer,
    FieldAnswer,
    FieldMeans,
    RoundAnswer,
    RunAnswer,
    RunList,
    as_json,
)
from fedcell.dashboard.state import AppState, FoundRun, Pair
from fedcell.errors import InputError, did_you_mean
from fedcell.plots import styles
from fedcell.runs.comparisons import Axis
from fedcell.runs.store import differing_in
from fedcell.runs.stored import Source, StoredRun, flat
from fedcell.sim.record import ROUND_COLUMNS

Found: TypeAlias = Sequence[Pair]
Sort = Literal[
    "policy", "seed", "differs", "rounds", "best", "last", "source", "file", "finished",
    "-policy", "-seed", "-differs", "-rounds", "-best", "-last", "-source", "-file", "-finished",
]  # fmt: skip


@dataclass(frozen=True)
class Chosen:
    """Which runs are asked for: of a policy, from a source, by the first digits of keys, separated by commas."""

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

    def of(self, found: Found) -> list[Pair]:
        """Those of them that are meant."""
        kept = list(found)
        if self.source is not None:
            kept = [pair for pair in kept if pair[0].source == self.source]
        if self._begins:
            kept = [pair for pair in kept if pair[0].key.startswith(self._begins)]
        if self.policy:
            kept = [pair for pair in kept if pair[0].policy == self.policy]
        return kept


def listed(found: Found, chosen: Chosen, sort: str, limit: int, offset: int) -> str:
    """One page of the runs as RunList has them."""
    kept = chosen.of(found)
    differing = differing_in(run for run, _ in kept)
    by = _place_by_what_differs(kept, differing) if sort.endswith("differs") else _ORDERS[sort.removeprefix("-")]
    kept.sort(key=lambda pair: pair[0].seed)  # as those of each file come already
    kept.sort(key=by, reverse=sort.startswith("-"))
    rows = [
        stored_document(run, name, {field: flat(run.document).get(field) for field in differing})
        for run, name in kept[offset : offset + limit]
    ]
    policies = sorted({run.policy for run, _ in found if chosen.source in (None, run.source)})
    return as_json({"runs": rows, "total": len(kept), "policies": policies})


def _place_by_what_differs(found: Found, differing: Sequence[str]) -> Callable[[Pair], int]:
    """A run's place by the values of these fields; many runs share their fields, so only these are sorted."""
    shared = {id(run.fields): run.fields for run, _ in found}
    columns = {mark: flat(fields) for mark, fields in shared.items()}
    sizes = {mark: tuple(_size(values.get(name)) for name in differing) for mark, values in columns.items()}
    places = {size: place for place, size in enumerate(sorted(set(sizes.values())))}
    return lambda pair: places[sizes[id(pair[0].fields)]]


_ORDERS: dict[str, Callable[[Pair], Any]] = {
    "policy": lambda pair: pair[0].policy,
    "seed": lambda pair: pair[0].seed,
    "rounds": lambda pair: pair[0].rounds,
    "best": lambda pair: pair[0].best_accuracy if pair[0].rounds else -1.0,
    "last": lambda pair: pair[0].last_accuracy if pair[0].rounds else -1.0,
    "source": lambda pair: pair[0].source,
    "file": lambda pair: pair[1],
    "finished": lambda pair: pair[0].finished_unix_s,
}


def _size(value: Any) -> tuple[bool, float, str]:
    """What values of a field are sorted by: numbers by size, then all others by their text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not is_number, float(value) if is_number else 0.0, "" if is_number else str(value)


def field_means(found: Found, chosen: Chosen, across: str, down: str, value: str) -> str:
    """Mean accuracies by the values of two fields, as FieldMeans has them; runs without a round are left out."""
    kept = [run for run, _ in chosen.of(found) if run.rounds and run.status != "damaged"]
    fields = differing_in(kept)
    if not fields:
        return as_json({"fields": [], "runs": len(kept)} | dict.fromkeys(("across", "down"), None))
    across = across or fields[0]
    for name in (across, down):
        if name not in (*fields, "policy"):
            raise InputError(f"the runs do not differ in {name[:60]!r}; {did_you_mean(name, [*fields, 'policy'])}")
    groups = defaultdict[tuple[str, str], list[float]](list)
    ends: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    named: dict[tuple[int, str], tuple[str, str]] = {}
    for run in kept:
        if (mark := (id(run.fields), run.policy)) not in named:
            values = flat(run.document)
            named[mark] = (str(values.get(across)), str(values.get(down)))
            for end, text, name in zip(ends, named[mark], (across, down), strict=True):
                end[text] = values.get(name)
        groups[named[mark]].append(getattr(run, value))
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


Key = Path(pattern="^[0-9a-f]{8,64}$", description="The first digits of a run's key, eight at least.")
StoreName = Query(None, description="One results file; all of them by default.")
Keys = Query(max_length=65 * limits.KEYS, description=f"Keys of runs, separated by commas; {limits.KEYS} at most.")
By = Query("time", description="What accuracy is shown against: time or energy.")
KeysOrAll = Query(
    "",
    max_length=65 * limits.KEYS,
    description=f"Only these, by the first eight digits of their keys or more; {limits.KEYS} at most.",
)
Policy = Query(None, max_length=1000)
SortBy = Query("-finished", description="The column, with - before it for the largest first.")
FAULTS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorAnswer} for status in (404, 422)}


def router(state: AppState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["runs"], responses=FAULTS)

    @routes.get("/runs", response_class=Response, responses={200: {"model": RunList}})
    async def runs(
        store: str | None = StoreName,
        policy: str | None = Policy,
        source: Source | None = None,
        keys: str = KeysOrAll,
        sort: Sort = SortBy,
        limit: int = Query(100, ge=1, le=limits.LISTED_RUNS),
        offset: int = Query(0, ge=0, le=10**9),
    ) -> Response:
        """The runs of the results files, the newest first or by another column, and all policies to choose from."""
        found = await every_run(store)
        chosen = Chosen(policy, source, keys)
        text = await state.views.run(lambda: listed(found, chosen, sort, limit, offset))
        return Response(text, media_type="application/json")

    @routes.get("/means", response_class=Response, responses={200: {"model": FieldMeans}})
    async def means(
        store: str | None = StoreName,
        policy: str | None = Policy,
        source: Source | None = None,
        keys: str = KeysOrAll,
        across: str = Query("", max_length=100, description="A field in which the runs differ, or policy."),
        down: str = Query("policy", max_length=100, description="Another one."),
        value: Literal["best_accuracy", "last_accuracy"] = "best_accuracy",
    ) -> Response:
        """Mean accuracies of all these runs, by the values of one or two fields in which they differ."""
        found = await every_run(store)
        chosen = Chosen(policy, source, keys)
        text = await state.views.run(lambda: field_means(found, chosen, across, down, value))
        return Response(text, media_type="application/json")

    async def every_run(store: str | None) -> list[Pair]:
        return list(chain.from_iterable([await thread.runs() for thread in state.readable(store)]))

    @routes.get("/runs/{key}", response_class=Response, responses={200: {"model": RunAnswer}})
    async def run(key: str = Key, store: str | None = StoreName) -> Response:
        """One run and its rounds; runs of the race that computes too."""
        found = await state.run(key, store)
        rows = [record.numbers() for record in found.records]
        told = {"run": run_document(found), "spec": found.document, "columns": ROUND_COLUMNS, "rows": rows}
        return Response(as_json(told), media_type="application/json")

    @routes.get("/runs/{key}/rounds/{number}", response_class=Response, responses={200: {"model": RoundAnswer}})
    async def one_round(
        number: int = Path(ge=1, le=10**9),
        key: str = Key,
        sharing: ShownSharing = "planned",
        store: str | None = StoreName,
    ) -> Response:
        """One round: every device, its channel and times, and its share of the band (or what it would be)."""
        found = await state.run(key, store)
        if number > len(found.records):
            raise HTTPException(404, f"the run has {len(found.records)} rounds, no round {number}")
        record, measured = found.records[number - 1], found.measured[number - 1] if found.measured else None
        simulated = found.stored is None or found.stored.source == "simulation"
        before_s = start_of(found.records, number, simulated=simulated)

        def draw() -> str:
            world = RunWorld.of(found.document)
            return as_json(round_document(world, before_s, record, len(found.records), sharing, measured))

        return Response(await state.views.run(draw), media_type="application/json")

    @routes.get("/runs/{key}/field", response_class=Response, responses={200: {"model": FieldAnswer}})
    async def field(
        key: str = Key, size: int = Query(96, ge=2, le=limits.FIELD_SIZE), store: str | None = StoreName
    ) -> Response:
        """Mean SNR over the run's cell."""
        found = await state.run(key, store)
        text = await state.views.run(lambda: as_json(field_document(RunWorld.of(found.document), size)))
        return Response(text, media_type="application/json")

    async def chosen(keys: str) -> dict[str, list[FoundRun]]:
        names = list(dict.fromkeys(key.strip() for key in keys.split(",") if key.strip()))
        if not 1 <= len(names) <= limits.KEYS:
            raise InputError(f"keys has {len(names)} runs; give 1 to {limits.KEYS}, separated by commas")
        for name in names:
            if not 8 <= len(name) <= 64:
                raise InputError(f"{name[:64]!r} is not a run's key; give at least eight of its hexadecimal digits")
        found = [await state.run(name) for name in names]
        stored = [run.stored for run in found if run.stored is not None]
        return grouped(found, differing_in(stored))

    @routes.get("/results/compare", response_class=Response, responses={200: {"model": Curves}})
    async def compare(
        keys: str = Keys,
        target: float = Query(defaults.TARGET_ACCURACY, gt=0.0, le=1.0),
        by: Axis = By,
        among: int = Query(0, ge=0, le=1000, description="Of how many policies these were picked, for the correction."),
    ) -> Response:
        """Curves, tables and verdicts of stored runs, grouped by policy and whatever else differs but the seed."""
        groups = await chosen(keys)
        text = await state.views.run(lambda: compared(groups, target, by, among))
        return Response(text, media_type="application/json")

    @routes.get("/results/figure.{ending}", response_class=Response, responses=_kinds("image/svg+xml", "image/png"))
    async def figure(ending: Literal["svg", "png"], keys: str = Keys, by: Axis = By) -> Response:
        """Their mean curves as a picture."""
        groups = await chosen(keys)
        content = await state.views.run(lambda: compared_picture(groups, ending, by))
        return Response(content, media_type=MEDIA[ending], headers=_named(ending))

    @routes.get("/results/data.{ending}", response_class=Response, responses=_kinds("text/csv", "application/json"))
    async def data(ending: Literal["csv", "json"], keys: str = Keys) -> Response:
        """All their rounds."""
        groups = await chosen(keys)
        content = await state.views.run(lambda: compared_data(groups, ending))
        return Response(content, media_type=MEDIA[ending], headers=_named(ending))

    return routes


def _kinds(*kinds: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {kind: {} for kind in kinds}}}


def _named(ending: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="fedcell-results.{ending}"'}


def run_document(found: FoundRun) -> dict[str, Any]:
    """A run as RunDocument has it."""
    if found.stored is not None:
        return stored_document(found.stored, found.store or "", {})
    policy = str(found.document["policy"])
    colour, dash = styles([policy])[policy]
    accuracies = [record.accuracy for record in found.records]
    return {
        "key": found.key,
        "store": None,
        "policy": policy,
        "seed": found.document["seed"],
        "status": "running",
        "reason": "",
        "source": "simulation",
        "rounds": len(accuracies),
        "best_accuracy": max(accuracies, default=None),
        "last_accuracy": accuracies[-1] if accuracies else None,
        "finished_unix_s": None,
        "duration_s": None,
        "diverged": False,
        "doubt": "",
        "colour": colour,
        "dash": dash,
        "differs": {},
    }
