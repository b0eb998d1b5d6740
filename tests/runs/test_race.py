"""Races: what is compared of them, what their result says, and how a store remembers them."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import rounds_of
from fedcell.plugins import without_imports
from fedcell.runs import race as races
from fedcell.runs.race import (
    KnownRace,
    RaceResult,
    RaceTable,
    comparable,
    default_race,
    is_ours,
    own_code,
    race_policies,
    race_runs,
    race_spec,
    race_to_store,
    run_race,
)
from fedcell.runs.runner import RoundsDone, RunDone
from fedcell.runs.store import Store, spec_document
from fedcell.runs.stored import StoredRace
from fedcell.sim.spec import parse_stored

TINY = fc.Spec(
    rounds=2,
    devices=fc.DevicesSpec(count=3),
    task=fc.TaskSpec(hidden=[4], sizes=[20] * 3),
    grid={"policy": ["all", "random:k=2"], "seed": [1, 0]},
)
A = rounds_of((10.0, 0.5), (20.0, 0.9), (30.0, 0.7), joules=2.0)
B = rounds_of((15.0, 0.3), (25.0, 0.5), (40.0, 0.8), joules=3.0)


def race_of(runs: dict[str, list[Any]], failures: dict[tuple[str, int], str] | None = None, **spec: Any) -> Any:
    """A race with these runs."""
    seeds = list(range(len(next(iter(runs.values())))))
    of = fc.Spec(grid={"policy": list(runs), "seed": seeds}, **spec)
    made = RaceResult(of, list(runs), seeds, {}, True, 0.8, failures or {})
    vars(made)["rounds"] = runs
    return made


def test_the_policies_of_a_race_are_eight_and_want_no_more_devices_than_there_are() -> None:
    assert race_policies()[:4] == ["auto", "diverse", "greedy", "optimal"]
    assert race_policies()[4:] == ["deadline:seconds=8", "deadline:seconds=25", "proportional_fair:k=8", "random:k=8"]
    assert race_policies(5)[-1] == "random:k=5"
    assert race_policies(20, "blocks:count=3")[-2:] == ["proportional_fair:k=3", "random:k=3"]
    with without_imports():
        assert race_policies(20, "no.such:Law")[-1] == "random:k=8"
    assert default_race().grid == {"policy": race_policies(), "seed": [0, 1, 2, 3, 4]}


def test_a_spec_becomes_a_race_of_policies_and_seeds() -> None:
    alone = race_spec(fc.Spec(policy="all", seed=3))
    assert alone.grid == {"policy": ["all"], "seed": [3]}
    assert [(run.policy, run.seed, run.grid) for run in race_runs(TINY)] == [
        ("all", 0, {}),
        ("random:k=2", 0, {}),
        ("all", 1, {}),
        ("random:k=2", 1, {}),
    ]
    with pytest.raises(fc.InputError, match=r"grid is of policy and seed; 'cell.radius_m' needs"):
        race_spec(fc.Spec(grid={"seed": [0], "cell.radius_m": [500.0]}))


def test_seeds_that_ended_for_all_policies_can_be_compared() -> None:
    spec = fc.Spec(grid={"policy": ["all", "greedy"], "seed": [0, 1, 2]})
    done = {("all", 0), ("greedy", 0), ("all", 1), ("greedy", 2)}
    assert comparable(spec, done, ()) == (["all", "greedy"], [0])
    assert comparable(spec, done, {("greedy", 1)}) == (["all", "greedy"], [0, 1])
    assert comparable(spec, done, {("all", 2), ("greedy", 1)}) == (["all", "greedy"], [0, 1, 2])
    assert comparable(spec, {("all", 1)}, {("greedy", n) for n in range(3)}) == (["all"], [1])
    assert comparable(spec, (), {(p, n) for p in ("all", "greedy") for n in range(3)}) == ([], [])


def test_a_result_is_of_the_seeds_that_ended() -> None:
    record = object()
    done: Any = {("all", 0): [record], ("random:k=2", 0): [], ("all", 1): [record]}
    models = {key: np.full(2, key[1], np.float32) for key in done}
    some = RaceResult.of(TINY, done, {}, 0.7, models)
    assert (some.seeds, some.complete, some.stopped, some.target) == ([0], False, True, 0.7)
    assert some.runs == {"all": [[record]], "random:k=2": [[]]}
    assert {policy: len(found) for policy, found in some.models.items()} == {"all": 1, "random:k=2": 0}
    failed = RaceResult.of(TINY, done, {("random:k=2", 1): "why"}, 0.7)
    assert (failed.seeds, failed.complete, failed.stopped, failed.models) == ([1, 0], False, False, {})
    whole = RaceResult.of(TINY, {**done, ("random:k=2", 1): []}, {}, 0.7)
    assert (whole.complete, whole.stopped) == (True, False)


def test_what_never_counts_with() -> None:
    runs = {"all": [A, A], "greedy": [B, A]}
    assert race_of(runs, budget_s=200.0).limit() == 200.0
    assert race_of(runs, rounds=3).limit() == 40.0
    assert race_of(runs).limit("energy") == 9.0
    assert race_of(runs, budget_j=50.0).limit("energy") == 50.0
    assert race_of(runs).needs() == {"all": [20.0, 20.0], "greedy": [40.0, 20.0]}
    assert race_of(runs).needs("energy") == {"all": [4.0, 4.0], "greedy": [9.0, 4.0]}
    for method in ("limit", "needs", "figure"):
        with pytest.raises(fc.InputError, match="by is 'tim'; did you mean 'time'"):
            getattr(race_of(runs), method)("tim")


def test_differences_are_of_seeds_that_both_have() -> None:
    (best, last), *_ = race_of({"all": [A, B, A], "greedy": [B, rounds_of(), A]}).differences().values()
    assert (best.mean, best.n) == (pytest.approx((0.9 - 0.8 + 0.0) / 2), 2)
    assert last.mean == pytest.approx((0.7 - 0.8 + 0.0) / 2)


def test_troubles_are_said_of_each_policy() -> None:
    diverged = replace(rounds_of((10.0, 0.5)), diverged=True)
    failures = {("greedy", 1): "no memory"}
    race = race_of({"all": [A, diverged], "greedy": [A, rounds_of()], "optimal": [rounds_of(), A]}, failures)
    assert race.diverged() == {"all": [1]}
    assert race.troubles() == [
        "all: training diverged with 1 of 2 seeds, which count as never reaching the target; lower task.learning_rate",
        "optimal: no round fits into the budget with 1 of 2 seeds; these have no accuracy and never reach the target",
        "1 of 6 runs failed, the first of them greedy, seed 1: no memory",
    ]
    assert race_of({"all": [A], "greedy": [B]}).troubles() == []
    summary = race.summaries()["greedy"]
    assert (summary.failed, summary.without_round, summary.to_target.n) == (1, 0, 2)
    assert race.summaries()["all"].to_target.mean_s == (20.0 + 450.0) / 2


def test_the_table_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "race.toml"
    path.write_text(RaceTable(target=0.5, by="energy").toml(TINY))
    assert RaceTable.load(path) == RaceTable(target=0.5, by="energy")
    assert fc.load_spec(path) == TINY
    path.write_text("rounds = 1\n")
    assert RaceTable.load(path) == RaceTable(target=0.8, by="time")
    for text in ("target = 0.0", "target = 1.1", "more = 1"):
        path.write_text(f"[race]\n{text}\n")
        with pytest.raises(fc.InputError, match=r"race\.toml: race: "):
            RaceTable.load(path)


def test_a_race_gives_every_run_in_the_order_of_policies_and_tells_whoever_watches() -> None:
    seen: list[Any] = []
    result = run_race(TINY, target=0.01, workers=1, watch=seen.append, models=True)
    assert (result.policies, result.seeds, result.complete, result.stopped) == (
        ["all", "random:k=2"],
        [1, 0],
        True,
        False,
    )
    for policy in result.policies:
        for seed, run in zip(result.seeds, result.runs[policy], strict=True):
            one = list(fc.simulate(TINY.model_copy(update={"policy": policy, "seed": seed, "grid": {}})))
            assert [record.accuracy for record in run] == [record.accuracy for record in one]
    assert {policy: len(models) for policy, models in result.models.items()} == {"all": 2, "random:k=2": 2}
    assert result.class_accuracy()["all"].shape == (2, 10)
    assert sum(isinstance(event, RunDone) for event in seen) == 4
    assert any(isinstance(event, RoundsDone) for event in seen)
    assert run_race(TINY, workers=1).models == {}
    with pytest.raises(fc.InputError, match="target is 0"):
        run_race(TINY, target=0.0)


def test_a_race_that_is_stopped_is_marked_so_and_goes_on(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with Store(tmp_path / "results.db") as store:
        first = run_race(TINY, workers=1, store=store, stop=stop)
        assert first.stopped
        assert not first.complete
        (race,) = store.races()
        assert race.state == "stopped"
        document = race.document | {"name": "mine", "note": "of today"}
        store.put_race(replace(race, document=document, created_unix_s=5.0))
        assert run_race(TINY, workers=1, store=store).complete
        (again,) = store.races()
        assert (again.id, again.state, again.created_unix_s) == (race.id, "done", 5.0)
        known = KnownRace.of(again)
        assert (known.name, known.note, known.reason, known.target) == ("mine", "of today", "", 0.8)
        assert known.keys == [run.key() for run in race_runs(TINY)] == known.keys_in(store, again)
        assert known.spec == TINY
        run_race(TINY, workers=1, store=store, target=0.5)
        assert len(store.races()) == 2  # another target is another race


def test_a_race_of_which_every_run_fails_is_an_error_that_the_store_remembers(tmp_path: Path) -> None:
    fails = TINY.changed({}, {"policy": [f"{__name__}:Fails"], "seed": [0]})
    with Store(tmp_path / "results.db") as store:
        with pytest.raises(fc.InputError, match=r"Fails, seed 0: .*nobody can be chosen"):
            run_race(fails, workers=1, store=store)
        (race,) = store.races()
        assert race.state == "failed"
        assert "nobody can be chosen" in race.document["reason"]
        both = TINY.changed({}, {"policy": ["all", f"{__name__}:Fails"], "seed": [0]})
        result = run_race(both, workers=1, store=store)
        assert (result.policies, result.complete, result.stopped) == (["all"], False, False)
        newest = max(store.races(), key=lambda one: one.created_unix_s)
        assert newest.state == "done"
        assert newest.document["reason"].startswith("1 of 2 runs failed, the first of them")


class Fails(fc.Policy):
    """Never decides."""

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> Any:
        raise fc.InputError("nobody can be chosen")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keys": ["0" * 64]}, "it does not have a key for each run"),
        ({"keys": ["0" * 64] * 4}, "it does not have a key for each run"),
        ({"keys": ["x" * 64] * 4}, "keys.0: String should match pattern"),
        ({"policies": []}, "policies: List should have at least 1 item"),
        ({"seeds": []}, "seeds: List should have at least 1 item"),
        ({"target": 0.0}, "target: Input should be greater than 0"),
        ({"target": 1.1}, "target: Input should be less than or equal to 1"),
        ({"name": "x" * 2001}, "name: String should have at most 2000 characters"),
        ({"seeds": list(range(400))}, r"it has 800 runs; 700 at most are shown as a race"),
    ],
)
def test_a_damaged_race_says_where(changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "MAX_REMEMBERED", 700)
    good = race_to_store("a", TINY, 0.8, "done", 1.0)
    assert KnownRace.of(good).spec == TINY
    with pytest.raises(fc.InputError, match=rf"damaged in the file \(({words}|.*{words})"):
        KnownRace.of(replace(good, document=good.document | changes))
    with pytest.raises(fc.InputError, match=r"^broken$"):
        KnownRace.of(StoredRace("a", {"reason": "broken"}, "damaged", 1.0))


def test_a_race_of_0_2_finds_its_runs_by_what_they_were(tmp_path: Path) -> None:
    """It kept no keys; with code or files of one's own these cannot be computed without importing or opening them."""
    race = race_to_store("a", TINY, 0.8, "done", 1.0, keys=["0" * 64, "1" * 64])
    kept = {k: v for k, v in race.document.items() if k != "keys"}
    race = replace(race, document=kept | {"policies": ["mine:Nearest", "all"], "seeds": [0]})
    known = KnownRace.of(race)
    assert known.keys is None
    records = list(fc.simulate(TINY.model_copy(update={"policy": "all", "seed": 0, "grid": {}})))
    with Store(tmp_path / "results.db") as store:
        run = race_runs(TINY.changed({}, {"policy": ["all"], "seed": [0]}))[0]
        store.put(run, records)
        ours, stored = known.keys_in(store, race)
        assert stored == run.key()
        assert ours not in {run.key(), stored}
        assert len(ours) == 64
        assert known.keys_in(store, race) == [ours, stored]


@pytest.mark.parametrize(
    ("changes", "ours", "code"),
    [
        ({}, True, ""),
        ({"policy": "mine:Nearest"}, False, "mine:Nearest"),
        ({"task.data": "d.npz"}, False, ""),
        ({"task.model": "mine:Net"}, False, "mine:Net"),
        ({"cell.law": "mine:Law"}, False, "mine:Law"),
        ({"cell.channel": "trace:links.csv"}, False, ""),
        ({"devices.availability": "trace:there.csv"}, False, ""),
    ],
)
def test_what_in_a_race_is_of_the_users_own(changes: dict[str, str], ours: bool, code: str) -> None:
    document = spec_document(fc.Spec()) | {"grid": {"policy": ["all", changes.get("policy", "greedy")], "seed": [0]}}
    for name, value in changes.items():
        if name != "policy":
            section, _, field = name.partition(".")
            document[section] = document[section] | {field: value}
    spec = parse_stored(json.loads(json.dumps(document)), "a test")
    assert (is_ours(spec), own_code(spec)) == (ours, code)
