"""What a tournament is of: scenarios and policies, and how a store remembers it."""

import json
import re
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import fedcell as fc
from fedcell.errors import InputError
from fedcell.runs.contest import (
    Scenario,
    Tournament,
    changed_fields,
    chosen_scenarios,
    contenders,
    load_scenarios,
    load_tournament,
    save_tournament,
    scenarios_toml,
)
from fedcell.runs.store import Store
from fedcell.runs.tournament import TournamentResult
from fedcell.schedule.registry import POLICIES
from fedcell.sim.loop import simulate
from fedcell.sim.record import RoundRecord

PAPER = Scenario("paper", "The paper's.", 0.8, fc.Spec(budget_s=300.0))
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


# --- scenarios -----------------------------------------------------------------------------------------------------


def test_the_standard_scenarios_have_what_the_issue_lists_and_the_paper_for_all_else() -> None:
    found = {one.name: one for one in load_scenarios()}
    assert 12 <= len(found) <= 14
    assert changed_fields(found["paper"].spec) == {"budget_s": 300.0}
    assert {one.spec.task.partition for one in found.values()} == {"iid", "labels:5", "labels:2", "labels:1"}
    assert {one.spec.devices.mobility for one in found.values()} == {"redrawn", "static", "waypoint"}
    radii = [one.spec.cell.radius_m for one in found.values()]
    assert (min(radii), max(radii)) == (300.0, 2000.0)
    assert found["fading"].spec.cell.fading == "rayleigh"
    assert found["failing"].spec.devices.failure > 0
    assert found["unknown-times"].spec.knowledge == "observed"
    assert (
        found["unknown-times"].spec.devices.document()["seconds_per_sample"]
        == found["slow-devices"].spec.devices.document()["seconds_per_sample"]
    )
    assert found["day-and-night"].spec.devices.availability.startswith("daynight")
    for one in found.values():
        assert re.fullmatch(r"[A-Z0-9][^\n]*\.", one.about), one
        assert one.spec.budget_s <= 300.0


def test_scenarios_written_are_those_read(tmp_path: Path) -> None:
    standard = load_scenarios()
    odd = Scenario("odd", 'with "quotes"', 0.5, fc.Spec(budget_s=9.0, rounds=4, task=fc.TaskSpec(hidden=[4, 5])))
    (tmp_path / "s.toml").write_text(scenarios_toml([*standard, odd]))
    assert load_scenarios(tmp_path / "s.toml") == [*standard, odd]


def test_a_scenario_changes_single_fields_of_the_defaults(tmp_path: Path) -> None:
    text = "[defaults]\nbudget_s=9\ntarget=0.5\n[defaults.cell]\nradius_m=10.0\nbandwidth_hz=1e6\n"
    (tmp_path / "s.toml").write_text(
        text + '[[scenario]]\nname="a"\ncell.radius_m=20.0\n[[scenario]]\nname="b"\ntarget=1\n'
    )
    a, b = load_scenarios(tmp_path / "s.toml")
    assert (a.spec.cell.radius_m, a.spec.cell.bandwidth_hz, a.target, a.spec.budget_s) == (20.0, 1e6, 0.5, 9.0)
    assert (b.spec.cell.radius_m, b.target) == (10.0, 1.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no scenarios; write each as a table [[scenario]] with a name"),
        ("[scenario]\nname='a'", "has no scenarios"),
        ("scenario = [1]", "has no scenarios"),
        ("[[scenaro]]\nname='a'", "unknown table 'scenaro'; write [defaults] and [[scenario]]"),
        ("[[scenario]]\nabout='x'", "the name of a scenario is None; give a word"),
        ("[[scenario]]\nname='<b>'", "the name of a scenario is '<b>'"),
        ("[[scenario]]\nname='a'\n[[scenario]]\nname='a'", "has the scenario 'a' twice; give each its own name"),
        ("[[scenario]]\nname='a'\nbudget=3", "scenario 'a': unknown field 'budget'; did you mean 'budget_s'?"),
        (
            "[[scenario]]\nname='a'\ncell.radius=3",
            "scenario 'a': unknown field 'cell.radius'; did you mean 'radius_m'?",
        ),
        ("[[scenario]]\nname='a'\ntarget=80", "scenario 'a': target is 80; give an accuracy between 0 and 1"),
        ("[[scenario]]\nname='a'\nabout=3", "scenario 'a': about is 3; give a sentence"),
        ("[[scenario]]\nname='a'\npolicy='all'", "scenario 'a': policy is the tournament's to choose; leave it out"),
        ("[[scenario]]\nname='a'\nrounds=5", "scenario 'a': budget_s is not given"),
        ("[defaults]\nname='a'\n[[scenario]]", "[defaults] has fields that scenarios share"),
        ("defaults = 3\n[[scenario]]\nname='a'", "[defaults] has fields that scenarios share"),
        ("[[scenario]", "is not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_of_scenarios_is_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(InputError) as error:
        load_scenarios(tmp_path / "s.toml")
    assert str(error.value).startswith(str(tmp_path / "s.toml"))
    assert said in str(error.value)


def test_scenarios_are_chosen_by_name() -> None:
    assert [one.name for one in chosen_scenarios(load_scenarios(), ["iid", "paper"])] == ["paper", "iid"]
    with pytest.raises(InputError, match="there is no scenario 'papr'; did you mean 'paper'\\?"):
        chosen_scenarios(load_scenarios(), ["papr"])


# --- contenders ----------------------------------------------------------------------------------------------------


def test_every_registered_policy_enters_with_its_defaults_or_those_of_the_race() -> None:
    found = contenders([PAPER])
    assert {policy.partition(":")[0] for policy in found} >= set(POLICIES)
    wanted = {"greedy", "random:k=8", "round_robin:k=8", "proportional_fair:k=8", "deadline:seconds=8"}
    assert wanted | {"deadline:seconds=25"} <= set(found)


def test_in_a_small_cell_nobody_enters_with_more_devices_than_there_are() -> None:
    few = Scenario("few", "", 0.8, fc.Spec(devices=fc.Devices(count=5)))
    found = contenders([PAPER, few])
    assert {"random:k=5", "round_robin:k=5"} <= set(found)
    assert all(getattr(fc.parse_policy(policy), "k", 0) <= 5 for policy in found)


def test_a_package_whose_policy_cannot_enter_is_named_and_costs_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usual = contenders([PAPER])
    lost = EntryPoint("lost", "no_such_module:Lost", POLICIES.group)
    monkeypatch.setattr(POLICIES, "installed", lambda: {"lost": lost})
    assert contenders([PAPER]) == usual
    (said,) = caplog.messages
    assert said.startswith("policy 'lost' does not enter the tournament: policy 'lost' of the package 'unknown' cannot")


def test_own_policies_are_added_or_stand_alone() -> None:
    assert contenders([PAPER], ["random:4"]) == [*contenders([PAPER]), "random:k=4"]
    assert contenders([PAPER], ["random:4"], ["greedy:theta=0", "random"]) == ["greedy", "random:k=8", "random:k=4"]


@pytest.mark.parametrize(
    ("added", "only", "said"),
    [
        (["greedy:theta=0"], [], "the tournament has the policy 'greedy' twice; it enters by default"),
        (["all"], ["all"], "the tournament has the policy 'all' twice; give it once"),
        (["gredy"], [], "unknown policy 'gredy'; did you mean 'greedy'?"),
        ([], ["all"], "a tournament needs two policies; add another to 'all' with --policy"),
    ],
)
def test_contenders_that_cannot_be(added: list[str], only: list[str], said: str) -> None:
    with pytest.raises(InputError) as error:
        contenders([PAPER], added, only)
    assert str(error.value) == said


def test_the_runs_of_a_tournament_come_seed_by_seed_and_are_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [Scenario(name, "", 0.5, TINY.changed({"seed": 9})) for name in ("a", "b")]
    wanted = Tournament(two, ["all", "random:2"], [3, 5])
    assert wanted.entries() == [
        (name, policy, seed) for seed in (3, 5) for name in ("a", "b") for policy in ("all", "random:2")
    ]
    runs = wanted.runs()
    assert list(runs) == wanted.entries()
    assert (runs["b", "random:2", 5].policy, runs["b", "random:2", 5].seed) == ("random:k=2", 5)
    monkeypatch.setattr("fedcell.runs.contest.MAX_RUNS", 8)
    assert len(Tournament(two, ["all", "random:2"], [3, 5]).runs()) == 8
    with pytest.raises(InputError, match="the tournament has 12 runs; 8 at most, fewer --seeds will do"):
        Tournament(two, ["all", "random:2"], [3, 5, 7])
    with pytest.raises(InputError, match="the tournament has 0 runs"):
        Tournament(two, ["all"], [])


def test_a_target_may_be_1_and_is_above_0(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[[scenario]]\nname="a"\nabout="  two\\n words "\ntarget=1\n')
    (one,) = load_scenarios(path)
    assert (one.target, one.about) == (1.0, "two words")
    for target in ("0.0", "1.1", "true", '"x"'):
        path.write_text(f'[[scenario]]\nname="a"\ntarget={target}\n')
        with pytest.raises(InputError, match=r"give an accuracy between 0 and 1, such as 0.8"):
            load_scenarios(path)
    path.write_text(f'[[scenario]]\nname="{"a" * 41}"\n')
    with pytest.raises(InputError, match="give a word of up to 40 letters"):
        load_scenarios(path)
    path.write_text(f'[[scenario]]\nname="{"a" * 40}"\n')
    assert load_scenarios(path)[0].target == 0.8
