"""/api/runs and /api/results: what the results files hold, round by round and side by side."""

from typing import Any, Literal

from fastapi import APIRouter, Path, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fedcell import defaults
from fedcell.dashboard import limits
from fedcell.dashboard.cells import RunWorld, ShownSharing, field_document, round_document, start_of
from fedcell.dashboard.colours import styles
from fedcell.dashboard.exports import MEDIA, compared, compared_data, compared_picture, grouped
from fedcell.dashboard.listing import Chosen, Sort, field_means, listed, stored_document
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
from fedcell.dashboard.state import AppState, FoundRun
from fedcell.errors import InputError
from fedcell.runs.comparisons import Axis
from fedcell.runs.store import differing_fields
from fedcell.runs.stored import Source, StoredRun
from fedcell.sim.record import ROUND_COLUMNS

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

    async def every_run(store: str | None) -> list[tuple[StoredRun, str]]:
        return [(run, thread.name) for thread in state.readable(store) for run in await thread.runs()]

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
        return grouped(found, differing_fields(run.document for run in stored))

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
