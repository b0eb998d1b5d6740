"""/api/tournaments: policies ranked over the scenarios and seeds of a tournament, or of a sweep over policies."""

from typing import Any, Literal

from fastapi import APIRouter, Path, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fedcell.dashboard import limits
from fedcell.dashboard.api.runs import FAULTS, StoreName
from fedcell.dashboard.exports import MEDIA
from fedcell.dashboard.rankings import (
    ended_of,
    listed_document,
    ranking_data,
    ranking_document,
    ranking_picture,
    runs_document,
)
from fedcell.dashboard.schemas import RankedRuns, RankingAnswer, TournamentList, as_json
from fedcell.dashboard.state import AppState, StoreReader
from fedcell.errors import InputError
from fedcell.runs.records import Measure
from fedcell.runs.store import Store
from fedcell.runs.stored import StoredTournament

Id = Path(pattern="^[0-9a-f]{16}$")
By = Query("time", description="What is compared: time to the target, best accuracy or last accuracy.")
Target = Query(None, gt=0.0, le=1.0, description="The target of all scenarios; each one's own by default.")


def router(state: AppState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["tournaments"], responses=FAULTS)

    async def find(id: str, store: str | None) -> tuple[StoreReader, StoredTournament]:
        for reader in state.readable(store):
            for one in await reader.ask(Store.tournaments):
                if one.id == id and one.damage:
                    raise InputError(f"the tournament is {one.damage}")
                if one.id == id:
                    return reader, one
        raise HTTPException(404, f"there is no tournament {id!r}; see /api/tournaments")

    @routes.get("/tournaments", response_class=Response, responses={200: {"model": TournamentList}})
    async def listed(store: str | None = StoreName) -> Response:
        """The tournaments of the results files, and sweeps over policies, the newest first."""
        found = []
        for reader in state.readable(store):
            told = await reader.ask(lambda store: [(one, ended_of(store, one.keys)) for one in store.tournaments()])
            found += [listed_document(one, reader.name, ended) for one, ended in told]
        found.sort(key=lambda one: -one["asked_unix_s"])
        return Response(as_json({"tournaments": found}), media_type="application/json")

    @routes.get("/tournaments/{id}", response_class=Response, responses={200: {"model": RankingAnswer}})
    async def one(
        id: str = Id, by: Measure = By, target: float | None = Target, store: str | None = StoreName
    ) -> Response:
        """Mean ranks, who cannot be told apart, and who wins where, of the seeds that all have finished."""
        reader, stored = await find(id, store)
        result = await state.rankings.result(reader, stored, target)
        text = await state.views.run(lambda: as_json(ranking_document(stored, result, by)))
        return Response(text, media_type="application/json")

    @routes.get("/tournaments/{id}/runs")
    async def runs(
        id: str = Id,
        scenario: str = Query(max_length=limits.SCENARIO_CHARACTERS),
        policy: str = Query(max_length=limits.POLICY_CHARACTERS),
        store: str | None = StoreName,
    ) -> RankedRuns:
        """The runs of one policy in one scenario."""
        reader, stored = await find(id, store)
        ended = await reader.ask(lambda store: ended_of(store, stored.keys))
        found = runs_document(stored, scenario, policy, ended)
        if not found:
            raise HTTPException(404, f"the tournament has no {policy[:100]!r} in {scenario[:100]!r}")
        return RankedRuns.model_validate({"runs": found})

    @routes.get("/tournaments/{id}/figure.{ending}", response_class=Response, responses=_kinds("svg", "png"))
    async def figure(
        ending: Literal["svg", "png"],
        id: str = Id,
        by: Measure = By,
        target: float | None = Target,
        store: str | None = StoreName,
    ) -> Response:
        """The critical-difference diagram as a picture."""
        result = await state.rankings.result(*await find(id, store), target)
        content = await state.views.run(lambda: ranking_picture(result, by, ending))
        return Response(content, media_type=MEDIA[ending], headers=_named(id, ending))

    @routes.get("/tournaments/{id}/data.{ending}", response_class=Response, responses=_kinds("csv", "json"))
    async def data(
        ending: Literal["csv", "json"], id: str = Id, target: float | None = Target, store: str | None = StoreName
    ) -> Response:
        """The tables, as `fedcell tournament` writes them."""
        result = await state.rankings.result(*await find(id, store), target)
        content = await state.views.run(lambda: ranking_data(result, ending))
        return Response(content, media_type=MEDIA[ending], headers=_named(id, ending))

    return routes


def _kinds(*endings: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {MEDIA[ending]: {} for ending in endings}}}


def _named(id: str, ending: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="tournament-{id}.{ending}"'}
