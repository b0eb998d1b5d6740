"""Tournaments as a store remembers them."""

import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedcell as fc
from fedcell.errors import InputError
from fedcell.runs.contest import Scenario, Tournament, contenders, load_tournament, save_tournament
from fedcell.runs.store import Store
from fedcell.runs.tournament import TournamentResult
from fedcell.sim.loop import simulate
from fedcell.sim.record import RoundRecord

TINY = fc.Spec(rounds=1, devices=fc.Devices(count=4), task=fc.TaskSpec(hidden=[4]))


@pytest.fixture(scope="module")
def record() -> RoundRecord:
    (record,) = simulate(TINY.changed({"policy": "all"}))
    return record


def test_more_seeds_replace_a_tournament_and_whole_seeds_count(tmp_path: Path, record: RoundRecord) -> None:
    cells = [Scenario("near", "A small cell.", 0.5, TINY.changed({"budget_s": 40.0}))]
    short, long = (Tournament(cells, ["all", "greedy"], list(range(n))) for n in (1, 3))
    with Store(tmp_path / "results.db") as store:
        for one in (short, long):
            save_tournament(store, one, {entry: run.key() for entry, run in one.runs().items()})
        (stored,) = store.tournaments()
        tournament, keys = load_tournament(stored)
        assert tournament == long
        with pytest.raises(InputError, match="no seed is finished by all policies"):
            TournamentResult.of_store(store, tournament, keys)
        runs = long.runs()
        for policy in ("all", "greedy"):
            store.put(runs["near", policy, 2], [replace(record, accuracy=0.6, clock_s=7.0)])
        store.put(runs["near", "all", 0], [record])
        store.fail(runs["near", "greedy", 0], "it was too far")
        store.put(runs["near", "all", 1], [record])  # of seed 1, greedy is missing
        result = TournamentResult.of_store(store, tournament, keys)
        assert result.tournament.seeds == [0, 2]
        assert result.failures == {("near", "greedy", 0): "it was too far"}
        assert result.values("near", "time").tolist() == [[40.0, 40.0], [7.0, 7.0]]
        assert result.leads("time") == {"all": (0, 0), "greedy": (0, 0)}  # two seeds tell nobody apart


def test_nobody_who_reads_a_tournament_imports_a_policy_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: RoundRecord
) -> None:
    (tmp_path / "own_of_a_test.py").write_text(
        "from fedcell import Random\n\nclass Mine(Random):\n    pass\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    wanted = Tournament([Scenario("one", "", 0.5, TINY)], ["all", "own_of_a_test:Mine:k=2"], [0])
    runs = wanted.runs()
    with Store(tmp_path / "results.db") as store:
        for run in runs.values():
            store.put(run, [record])
        save_tournament(store, wanted, {entry: run.key() for entry, run in runs.items()})
    monkeypatch.delitem(sys.modules, "own_of_a_test")
    with Store(tmp_path / "results.db", "read") as store:
        tournament, keys = load_tournament(store.tournaments()[0])
        assert len(TournamentResult.of_store(store, tournament, keys).rounds) == 2
    assert tournament.policies == ["all", "own_of_a_test:Mine:k=2"]
    assert "own_of_a_test" not in sys.modules


@pytest.mark.parametrize("planted", [{"policy": "planted:Mine"}, {"grid": {"policy": ["planted:Mine"]}}])
def test_no_file_makes_its_reader_import_a_module(
    planted: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    wanted = Tournament([Scenario("one", "", 0.5, TINY)], ["all", "greedy"], [0])
    with Store(tmp_path / "results.db") as store:
        save_tournament(store, wanted, {entry: run.key() for entry, run in wanted.runs().items()})
        (stored,) = store.tournaments()
    stored.document["scenarios"][0]["spec"] |= planted
    assert load_tournament(stored)[0].policies == wanted.policies
    assert "planted" not in sys.modules


def test_a_damaged_or_enormous_tournament(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Tournament([Scenario("one", "", 0.5, TINY)], ["all", "greedy"], [0])
    keys = {entry: run.key() for entry, run in wanted.runs().items()}
    path = tmp_path / "results.db"
    with Store(path) as store:
        save_tournament(store, wanted, keys)
        (stored,) = store.tournaments()
        with pytest.raises(InputError, match=f"tournament {stored.id} is damaged; run it again"):
            load_tournament(replace(stored, keys=stored.keys[1:]))
    whole = stored.document
    for damaged in ("[", "{}", "[" * 100_000, *({**whole, name: None} for name in whole), {**whole, "seeds": [0, 1]}):
        with closing(sqlite3.connect(path)) as db, db:
            text = damaged if isinstance(damaged, str) else json.dumps(damaged)
            db.execute("UPDATE tournaments SET document = ?", (text,))
        with Store(path) as store:
            (found,) = store.tournaments()
            assert (found.id, found.document["policies"], found.keys) == (stored.id, [], []), damaged
            with pytest.raises(InputError, match=f"tournament {stored.id} is damaged in the file .*; run it again"):
                load_tournament(found)
    monkeypatch.setattr("fedcell.runs.contest.MAX_REMEMBERED", 1)
    with Store(tmp_path / "other.db") as store:
        save_tournament(store, wanted, keys)
        assert store.tournaments() == []


@pytest.mark.parametrize(
    ("added", "only", "words"),
    [
        (["greedy"], [], "has the policy 'greedy' twice; it enters by default"),
        (["greedy"], ["greedy", "all"], "has the policy 'greedy' twice; give it once"),
        (["random:k=3", "random:3"], [], "has the policy 'random:k=3' twice; give it once"),
        ([], ["all"], "needs two policies; add another to 'all' with --policy"),
    ],
)
def test_policies_that_cannot_compete_are_one_sentence(added: list[str], only: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        contenders([Scenario("near", "A small cell.", 0.5, TINY)], added, only)
