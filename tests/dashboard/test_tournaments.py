"""A stored tournament as the page shows it: what `fedcell tournament` says of the same runs."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the dashboard needs its extra (pip install fedcell[dashboard])")

from matplotlib.patches import Rectangle

from dashboard.shown import ROUND_S, SEEDS, fill
from fedcell.dashboard.schemas import RankingAnswer, TournamentDocument
from fedcell.dashboard.state import StoreReader
from fedcell.dashboard.tournaments import (
    Rankings,
    ended_of,
    listed_document,
    ranking_data,
    ranking_document,
    ranking_picture,
    runs_document,
)
from fedcell.runs.contest import load_tournament
from fedcell.runs.records import Measure
from fedcell.runs.store import Store
from fedcell.runs.tournament import MEASURES, TournamentResult
from fedcell.runs.tournament_report import TournamentReport


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rankings") / "results.db"
    with Store(path) as store:
        fill(store)
    return path


@pytest.mark.parametrize("measure", MEASURES)
def test_ranks_texts_and_winners_are_those_of_the_command(path: Path, measure: Measure) -> None:
    with Store(path, "read") as store:
        (stored,) = store.tournaments()
        result = TournamentResult.of_store(store, *load_tournament(stored))
    told = RankingAnswer.model_validate(ranking_document(stored, result, measure))
    ranks = {row[0]: row[1 + MEASURES.index(measure)] for row in TournamentReport(result).overall().rows}
    assert {one.line: f"{one.rank:.2f}" for one in told.policies} == ranks
    assert [one.rank for one in told.policies] == sorted(one.rank for one in told.policies)
    texts = {row[0]: row[1:] for row in TournamentReport(result).matrix(measure).rows}
    assert {one.line: [cell.text for cell in row] for one, row in zip(told.policies, told.cells, strict=True)} == texts
    said = [row[2 + MEASURES.index(measure)] for row in TournamentReport(result).winners().rows]
    assert [one.said for one in told.scenarios] == said
    for place, scenario in enumerate(told.scenarios):
        best = {one.line for one, row in zip(told.policies, told.cells, strict=True) if row[place].verdict != "loses"}
        assert best == {scenario.best, *scenario.tied}
        assert any(row[place].verdict == "wins" for row in told.cells) == (not scenario.tied)
    assert told.blocks == 2 * SEEDS
    assert told.groups == result.ranking(measure).groups()


def test_nobody_is_framed_who_never_gets_there_or_with_too_few_seeds(path: Path) -> None:
    with Store(path, "read") as store:
        (stored,) = store.tournaments()
        result = TournamentResult.of_store(store, *load_tournament(stored))
    high = [replace(one, target=0.99) for one in result.tournament.scenarios]
    never = replace(result, tournament=replace(result.tournament, scenarios=high))
    few = replace(result, tournament=replace(result.tournament, seeds=[0, 1, 2]))
    for found, why in (
        (never, "no policy reaches the target with more than half of the seeds"),
        (few, "3 seeds cannot tell policies apart here; use at least 7"),
    ):
        told = RankingAnswer.model_validate(ranking_document(stored, found, "time"))
        assert {cell.verdict for row in told.cells for cell in row} == {"unknown"}
        assert {one.said for one in told.scenarios} == {why}
        assert told.troubles == [f"Everywhere: {why}"]
        assert [(one.wins, one.shares) for one in told.policies] == [(0, 0)] * 3
        picture = TournamentReport(found).pictures()["heat-map"].axes[0]
        assert not [patch for patch in picture.patches if isinstance(patch, Rectangle)]
        assert why in picture.get_title(loc="left")
    (race, _), cells = result.tournament.scenarios, ranking_document(stored, result, "time")["cells"]
    lines = [row["line"] for row in ranking_document(stored, result, "time")["policies"]]
    verdicts = {line: row[0]["verdict"] for line, row in zip(lines, cells, strict=True)}
    assert verdicts == {"diverse": "wins", "greedy": "loses", "random:k=2": "loses"}  # who never gets there is behind
    assert race.name == "race"


def test_the_runs_behind_a_cell(path: Path) -> None:
    with Store(path, "read") as store:
        (stored,) = store.tournaments()
        ended = ended_of(store, stored.keys)
        for scenario in ("race", "small"):
            for policy in ROUND_S:
                runs = runs_document(stored, scenario, policy, ended)
                assert [run["seed"] for run in runs] == list(range(SEEDS))
                assert {run["state"] for run in runs} == {"done"}
                found = [store.find(run["key"]) for run in runs]
                assert {(run.policy, run.document["cell"]["radius_m"]) for run in found} == {
                    (policy, 300.0 if scenario == "small" else 1400.0)
                }
        assert runs_document(stored, "race", "nobody", ended) == []
        assert {run["state"] for run in runs_document(stored, "race", "greedy", (set(), {}))} == {"missing"}
        listed = TournamentDocument.model_validate(listed_document(stored, "results.db", ended))
    assert (listed.runs, listed.ended, listed.scenarios) == (2 * SEEDS * len(ROUND_S),) * 2 + (["race", "small"],)


def test_a_tournament_is_read_again_only_when_more_of_it_has_ended(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copy(path, tmp_path))
    reads: list[str] = []

    def counted(store: Store, *args: object) -> TournamentResult:
        reads.append("read")
        return read(store, *args)  # type: ignore[arg-type]

    read = TournamentResult.of_store
    monkeypatch.setattr(TournamentResult, "of_store", counted)

    async def look() -> None:
        reader, known = StoreReader(copy, "write"), Rankings()
        (stored,) = await reader.ask(Store.tournaments)
        first = await known.result(reader, stored, None)
        assert await known.result(reader, stored, None) is first
        sooner = await known.result(reader, stored, 0.2)
        assert [one.target for one in sooner.tournament.scenarios] == [0.2, 0.2]
        assert sooner.summaries["race", "diverse"].to_target.median_s == pytest.approx(16.48)
        assert reads == ["read"]
        row = json.loads(ranking_data(sooner, "json"))["results"][0]
        assert (row["policy"], row["target"]) == ("greedy", 0.2)
        assert ranking_data(sooner, "csv").startswith("scenario,policy,target")
        assert ranking_picture(sooner, "best", "svg").startswith(b"<?xml")
        await reader.ask(lambda store: store.delete([stored.keys[0]]))
        again = await known.result(reader, stored, None)
        assert again.tournament.seeds == list(range(1, SEEDS))
        assert reads == ["read"] * 2
        assert reader.close(10.0)

    asyncio.run(look())
