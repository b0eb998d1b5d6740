"""/api/tournaments: policies ranked over the scenarios and seeds of a tournament."""

import io
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from fastapi import APIRouter, Path, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fedcell.dashboard import limits
from fedcell.dashboard.exports import MEDIA
from fedcell.dashboard.runs import FAULTS, StoreName
from fedcell.dashboard.schemas import RankedRuns, RankingAnswer, TournamentList, as_json
from fedcell.dashboard.state import AppState, StoreReader
from fedcell.errors import InputError
from fedcell.plots import styles
from fedcell.runs.contest import load_tournament
from fedcell.runs.records import Measure
from fedcell.runs.store import Store
from fedcell.runs.stored import StoredTournament
from fedcell.runs.tournament import TournamentResult, Winner
from fedcell.runs.tournament_report import TournamentReport

RESULTS_KEPT = 4

Ended = tuple[set[str], dict[str, str]]
"""The keys of the runs that are done, and of those that failed with their reasons."""


class Rankings:
    """What came of the tournaments last looked at: reading thousands of runs takes a second."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, float | None], tuple[Ended, TournamentResult]] = OrderedDict()

    async def result(self, reader: StoreReader, stored: StoredTournament, target: float | None) -> TournamentResult:
        """What the file has of a tournament, read again only if more of its runs have ended.

        Args:
            reader: the results file.
            stored: the tournament.
            target: the accuracy whose time is compared in all scenarios, instead of each one's own.
        """
        place = (reader.name, stored.id, target)
        ended = await reader.ask(lambda store: ended_of(store, stored.keys))
        known = self._known.get(place)
        if known is None or known[0] != ended:
            known = (ended, await self._read(reader, stored, target))
        self._known[place] = known
        self._known.move_to_end(place)
        while len(self._known) > RESULTS_KEPT:
            self._known.popitem(last=False)
        return known[1]

    async def _read(self, reader: StoreReader, stored: StoredTournament, target: float | None) -> TournamentResult:
        if target is not None:
            own = await self.result(reader, stored, None)
            scenarios = [replace(one, target=target) for one in own.tournament.scenarios]
            return replace(own, tournament=replace(own.tournament, scenarios=scenarios))
        return await reader.ask(lambda store: TournamentResult.of_store(store, *load_tournament(stored)))


def ended_of(store: Store, keys: Sequence[str]) -> Ended:
    """Which of the runs have ended, and how."""
    return store.done(keys), store.failures(keys)


def listed_document(stored: StoredTournament, store: str, ended: Ended) -> dict[str, Any]:
    """A tournament as TournamentDocument has it."""
    document = stored.document
    return {
        "id": stored.id,
        "store": store,
        "asked_unix_s": stored.asked_unix_s,
        "scenarios": [one["name"] for one in document["scenarios"]],
        "policies": document["policies"],
        "seeds": document["seeds"],
        "runs": len(stored.keys),
        "ended": sum(key in ended[0] or key in ended[1] for key in stored.keys),
        "damage": stored.damage,
    }


def ranking_document(stored: StoredTournament, result: TournamentResult, by: Measure) -> dict[str, Any]:
    """The ranking as RankingAnswer has it: policies and rows of cells are in its order."""
    tournament, ranks = result.tournament, result.ranking(by)
    lines = [tournament.policies[place] for place in ranks.order()]
    looks, leads = styles(tournament.policies), result.leads(by)
    several = len(tournament.scenarios) > 1
    return {
        "id": stored.id,
        "by": by,
        "blocks": ranks.blocks,
        "critical": ranks.critical,
        "said": ranks.text(),
        "said_of_others": result.ranking(by, seeds=False).text() if several else None,
        "reading": TournamentReport.READING,
        "policies": [
            {
                "line": line,
                "colour": looks[line][0],
                "dash": looks[line][1],
                "rank": float(ranks.mean[tournament.policies.index(line)]),
                "wins": leads[line][0],
                "shares": leads[line][1],
            }
            for line in lines
        ],
        "groups": ranks.groups(),
        "scenarios": [
            {
                "name": one.name,
                "about": one.about,
                "target": one.target,
                "budget_s": one.spec.budget_s,
                "best": result.winners[one.name, by].best,
                "tied": result.winners[one.name, by].tied,
                "said": result.winners[one.name, by].text(),
            }
            for one in tournament.scenarios
        ],
        "what": TournamentReport(result).matrix(by).title,
        "cells": _cells(result, by, lines),
        "seeds": tournament.seeds,
        "seeds_asked": len(stored.document["seeds"]),
        "troubles": [*TournamentReport(result).untold(by), *result.troubles()],
    }


def _cells(result: TournamentResult, by: Measure, lines: Sequence[str]) -> list[list[dict[str, Any]]]:
    """A row for each policy: what it reached in each scenario, its mean rank there, and whether it wins."""
    tournament, ranks = result.tournament, result.mean_ranks(by)
    texts = {policy: row for policy, *row in TournamentReport(result).matrix(by).rows}
    return [
        [
            {
                "text": texts[line][place],
                "rank": float(ranks[place, tournament.policies.index(line)]),
                "verdict": _verdict(result.winners[one.name, by], line),
            }
            for place, one in enumerate(tournament.scenarios)
        ]
        for line in lines
    ]


def _verdict(winner: Winner, line: str) -> str:
    if winner.untold:
        return "unknown"
    if line not in winner.leaders():
        return "loses"
    return "shares" if winner.tied else "wins"


def runs_document(stored: StoredTournament, scenario: str, policy: str, ended: Ended) -> list[dict[str, Any]]:
    """The runs behind a cell, a seed each; none if there is no such cell."""
    names = [one["name"] for one in stored.document["scenarios"]]
    who: list[str] = stored.document["policies"]
    if scenario not in names or policy not in who:
        return []
    seeds: list[int] = stored.document["seeds"]
    first, step = names.index(scenario) * len(who) + who.index(policy), len(names) * len(who)
    keys = [stored.keys[first + step * place] for place in range(len(seeds))]
    return [
        {"key": key, "seed": seed, "state": "done" if key in ended[0] else "failed" if key in ended[1] else "missing"}
        for seed, key in zip(seeds, keys, strict=True)
    ]


def ranking_data(result: TournamentResult, ending: str) -> str:
    """As `fedcell tournament` writes tournament.csv and tournament.json."""
    return TournamentReport(result).to_csv() if ending == "csv" else TournamentReport(result).to_json("fedcell serve")


def ranking_picture(result: TournamentResult, by: Measure, ending: str) -> bytes:
    """The critical-difference diagram as `fedcell tournament` draws it."""
    content = io.BytesIO()
    TournamentReport(result).ranks_picture(by).savefig(content, format=ending, dpi=200)
    return content.getvalue()


Id = Path(pattern="^[0-9a-f]{16}$")
By = Query("time", description="What is compared: time to the target, best accuracy or last accuracy.")
Target = Query(None, gt=0.0, le=1.0, description="The target of all scenarios; each one's own by default.")


def router(state: AppState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["tournaments"], responses=FAULTS)
    rankings = Rankings()

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
        """The tournaments of the results files, the newest first."""
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
        """Mean ranks, who are not significantly different, and who wins where, of the seeds that all have finished."""
        reader, stored = await find(id, store)
        result = await rankings.result(reader, stored, target)
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
        result = await rankings.result(*await find(id, store), target)
        content = await state.views.run(lambda: ranking_picture(result, by, ending))
        return Response(content, media_type=MEDIA[ending], headers=_named(id, ending))

    @routes.get("/tournaments/{id}/data.{ending}", response_class=Response, responses=_kinds("csv", "json"))
    async def data(
        ending: Literal["csv", "json"], id: str = Id, target: float | None = Target, store: str | None = StoreName
    ) -> Response:
        """The tables, as `fedcell tournament` writes them."""
        result = await rankings.result(*await find(id, store), target)
        content = await state.views.run(lambda: ranking_data(result, ending))
        return Response(content, media_type=MEDIA[ending], headers=_named(id, ending))

    return routes


def _kinds(*endings: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {MEDIA[ending]: {} for ending in endings}}}


def _named(id: str, ending: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="tournament-{id}.{ending}"'}
