"""Tournaments: scenarios and contenders, every run as the loop runs it, who wins where, and what is shown of it."""

import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import fedcell as fc
from fedcell.errors import InputError
from fedcell.runs import tournament_report
from fedcell.runs.contest import (
    Scenario,
    Tournament,
    load_scenarios,
)
from fedcell.runs.records import Rounds
from fedcell.runs.stats import summarise
from fedcell.runs.store import Store
from fedcell.runs.sweep import Progress
from fedcell.runs.tournament import MEASURES, TournamentResult, Winner, deciding_s, run_tournament
from fedcell.runs.tournament_report import (
    BEGIN,
    END,
    TournamentReport,
    put_between,
)
from fedcell.tables import Table
from twins.small import write_small_npz

PAPER = Scenario("paper", "The paper's.", 0.8, fc.Spec(budget_s=300.0))


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> list[Scenario]:
    """Two of them, of five devices with a few digits each."""
    path = tmp_path_factory.mktemp("data") / "small.npz"
    write_small_npz(path)
    task = fc.TaskSpec(data=str(path), hidden=[4])
    spec = fc.Spec(budget_s=500.0, rounds=3, task=task, devices=fc.Devices(count=5))
    return [
        Scenario("near", "A small cell.", 0.2, spec.changed({"cell.radius_m": 300.0})),
        Scenario("far", "", 0.2, spec.changed({"cell.radius_m": 1500.0})),
    ]


def test_deciding_is_timed_and_a_policy_that_fails_has_no_time(scenarios: list[Scenario]) -> None:
    spec = scenarios[0].spec
    assert 0.0 < deciding_s(spec.changed({"policy": "greedy"}), rounds=2) < 10.0
    assert math.isnan(deciding_s(spec.changed({"policy": "random:k=8"}), rounds=2))


# --- runs ----------------------------------------------------------------------------------------------------------


def run(wanted: Tournament, path: Path, seen: list[Progress] | None = None, stop_after: int = 99) -> TournamentResult:
    """On threads of this process, killed by Ctrl-C when so many runs are done."""

    def watch(now: Progress) -> None:
        if seen is not None:
            seen.append(now)
        if now.done >= stop_after:
            raise KeyboardInterrupt

    with Store(path) as store, ThreadPoolExecutor(2) as threads:
        return run_tournament(wanted, store, threads, watch=watch)


@pytest.fixture(scope="module")
def wanted(scenarios: list[Scenario]) -> Tournament:
    return Tournament(scenarios, ["all", "random:k=2", "random:k=9"], [0, 1, 2])


@pytest.fixture(scope="module")
def result(wanted: Tournament, tmp_path_factory: pytest.TempPathFactory) -> TournamentResult:
    """Of three policies, one of which wants more devices than there are."""
    return run(wanted, tmp_path_factory.mktemp("store") / "results.db")


def test_every_run_is_the_loops(result: TournamentResult, scenarios: list[Scenario]) -> None:
    assert len(result.rounds) == 2 * 2 * 3
    for one in scenarios:
        spec = one.spec.changed({"policy": "random:k=2", "seed": 1})
        ours, loops = result.rounds[one.name, "random:k=2", 1], Rounds.of_records(fc.simulate(spec, threads=1))
        np.testing.assert_array_equal(ours.clock_s, loops.clock_s)
        np.testing.assert_array_equal(ours.accuracy, loops.accuracy)


def test_failed_runs_are_counted_and_named_and_rank_last(result: TournamentResult) -> None:
    assert set(result.failures) == {(name, "random:k=9", seed) for name in ("near", "far") for seed in (0, 1, 2)}
    (said,) = result.troubles()
    assert said == (
        "random:k=9: 6 of 18 runs failed and rank last, the first of them in near, seed 0: "
        "k is 9, but the cell has 5 devices; give a k of at most 5"
    )
    for measure in MEASURES:
        assert result.ranking(measure).mean[2] == 3.0
    assert np.isinf(result.scores("near", "last")[:, 2]).all()
    assert (result.values("near", "time")[:, 2] == 500.0).all()
    assert TournamentReport(result).overall().rows[-1][0] == "random:k=9"
    assert TournamentReport(result).overall().rows[-1][-1] == "6"


def test_interrupted_it_resumes_and_ends_the_same(wanted: Tournament, result: TournamentResult, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(wanted, tmp_path / "results.db", stop_after=3)
    seen: list[Progress] = []
    again = run(wanted, tmp_path / "results.db", seen)
    assert 3 <= seen[0].skipped < 12
    assert (seen[0].done, seen[-1].left) == (0, 0)
    assert TournamentReport(again).to_json("") == TournamentReport(result).to_json("")


def test_a_tournament_whose_runs_all_fail_says_why(scenarios: list[Scenario], tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="all 4 runs failed, the first of them random:k=9 in near, seed 0: k is 9, but"
    ):
        run(Tournament(scenarios, ["random:k=9", "round_robin:k=9"], [0]), tmp_path / "results.db")


def test_policies_may_be_written_as_anybody_writes_them(scenarios: list[Scenario], tmp_path: Path) -> None:
    found = run(Tournament(scenarios[:1], ["all", "fed_cgd:seconds=12,variance=1"], [0]), tmp_path / "results.db")
    assert (found.tournament.policies, found.failures) == (["all", "fed_cgd:seconds=12"], {})
    assert set(found.rounds) == {("near", policy, 0) for policy in found.tournament.policies}
    with pytest.raises(InputError) as told:
        run(Tournament(scenarios[:1], ["random:2", "all", "random:k=2"], [0]), tmp_path / "results.db")
    said = "the tournament has the policy 'random:k=2' twice (as 'random:2' and 'random:k=2'); give it once"
    assert str(told.value) == said


def test_an_own_policy_that_returns_garbage_costs_its_own_runs(
    scenarios: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "garbled.py").write_text(
        "from dataclasses import dataclass\nimport fedcell as fc\n@dataclass(frozen=True)\nclass Wild(fc.Policy):\n"
        "    def choose(self, view, rng):\n        return [99] if view.upload_s.max() > 0.03 else [0]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = run(Tournament(scenarios, ["all", "garbled:Wild"], [0, 1]), tmp_path / "results.db")
    assert set(found.failures) == {("far", "garbled:Wild", seed) for seed in (0, 1)}
    assert "Wild.choose returned device 99, but the devices are 0 to 4" in found.troubles()[0]
    assert len(found.rounds) == 6


def test_more_runs_than_anybody_waits_for_are_refused() -> None:
    with pytest.raises(InputError, match="the tournament has 1,000,002 runs"):
        Tournament([PAPER], ["all", "greedy", "optimal"], list(range(333_334)))


# --- what they show ------------------------------------------------------------------------------------------------


def rounds_of(reached_s: float, last: float) -> Rounds:
    """A run that reaches 80 % after so many seconds, if at all before 300, and ends at another accuracy."""
    clock_s = np.array([10.0, min(reached_s, 299.0), 299.5])
    accuracy = np.array([0.1, 0.8 if reached_s < 299 else 0.2, last])
    return Rounds(clock_s, np.diff(clock_s, prepend=0.0), np.ones(3), accuracy)


@pytest.fixture(scope="module")
def made() -> TournamentResult:
    """Four policies in two scenarios: fast wins the first, the second is a tie of fast and even."""
    rng = np.random.default_rng(0)
    two = [PAPER, Scenario("other", "Another.", 0.8, fc.Spec(budget_s=300.0, cell=fc.Cell(radius_m=500.0)))]
    wanted, seeds = Tournament(two, ["never", "fast", "even", "slow"], list(range(12))), range(12)
    rounds = {}
    for one in ("paper", "other"):
        for seed in seeds:
            noise = rng.normal(0, 1, 3)
            rounds[one, "never", seed] = rounds_of(400.0, 0.7)
            rounds[one, "fast", seed] = rounds_of(50 + noise[0], 0.75)
            rounds[one, "even", seed] = rounds_of((50 if one == "other" else 90) + noise[1], 0.75)
            rounds[one, "slow", seed] = rounds_of(200 + noise[2], 0.79)
    return TournamentResult(wanted, rounds, {}, {(policy, 20): 0.0015 for policy in wanted.policies})


def test_winners_and_ties(made: TournamentResult) -> None:
    assert (made.winners["paper", "time"].best, made.winners["paper", "time"].tied) == ("fast", [])
    other = made.winners["other", "time"]
    assert {other.best, *other.tied} == {"fast", "even"}
    assert other.text() in ("tie of 2: fast, even", "tie of 2: even, fast")
    assert made.winners["paper", "last"].text() == "slow"
    shown = {row[0]: row for row in TournamentReport(made).winners().rows}
    assert shown["paper"][:3] == ["paper", "80 % in 300 s", "fast"]


def test_mean_ranks_over_blocks_and_over_scenarios(made: TournamentResult) -> None:
    """By time: never is always 4th and slow 3rd; fast is 1st in all of paper's 12 blocks."""
    ranks = made.ranking("time")
    assert ranks.blocks == 24
    assert (ranks.mean[0], ranks.mean[3]) == (4.0, 3.0)
    assert made.mean_ranks("time")[0].tolist() == [4.0, 1.0, 2.0, 3.0]
    assert ranks.mean[1] == pytest.approx((1.0 + made.mean_ranks("time")[1, 1]) / 2)
    assert made.ranking("time", seeds=False).blocks == 2
    assert made.ranking("last").mean.tolist() == [4.0, 2.5, 2.5, 1.0]  # equal accuracies share their ranks


def test_tables_say_what_the_statistics_do(made: TournamentResult) -> None:
    overall = {row[0]: row for row in TournamentReport(made).overall().rows}
    assert TournamentReport(made).overall().rows[0][0] == "fast"
    assert overall["fast"] == ["fast", f"{made.ranking('time').mean[1]:.2f}", *overall["fast"][2:4], "1", "1", "1.50"]
    assert overall["never"][4:6] == ["0", "0"]
    one = {row[0]: row for row in TournamentReport(made).scenario(PAPER).rows}
    found = summarise([made.rounds["paper", "fast", seed] for seed in range(12)], 0.8, 300.0)
    assert one["fast"][:5] == ["fast", "1.00", found.to_target.text(), found.best.text(100, 1), found.last.text(100, 1)]
    assert one["never"][2] == "never (0/12)"


def test_every_table_of_a_tournament_with_failed_and_empty_runs() -> None:
    """Of two seeds of two policies, greedy fails once and has no round in the other scenario's second seed."""
    two = [PAPER, Scenario("other", "Another.", 0.75, fc.Spec(budget_s=200.0, rounds=9))]
    wanted = Tournament(two, ["greedy", "all"], [3, 5])
    rounds = {(one, "all", seed): rounds_of(50.0, 0.9) for one in ("paper", "other") for seed in (3, 5)}
    rounds |= {("paper", "greedy", 3): rounds_of(60.0, 0.85), ("other", "greedy", 3): rounds_of(400.0, 0.6)}
    rounds |= {("other", "greedy", 5): Rounds.of([])}
    failures = {("paper", "greedy", 5): "no memory"}
    result = TournamentResult(wanted, rounds, failures, {("all", 20): 0.0015, ("greedy", 20): math.nan})
    report = TournamentReport(result)
    overall = report.overall()
    assert overall.title == "Mean ranks of 2 policies, 2 scenarios, 2 seeds each"
    assert list(overall.headings)[4:] == ["wins", "ties", "ms, M = 20", "failed"]
    assert [list(row) for row in overall.rows] == [
        ["all", "1.00", "1.00", "1.00", "0", "0", "1.50", "0"],
        ["greedy", "2.00", "2.00", "2.00", "0", "0", "-", "1"],
    ]
    assert [list(row)[1:] for row in report.matrix("time").rows] == [["50 s", "50 s"], ["never (1/2)", "never (0/2)"]]
    assert report.matrix("time").title == "Median time to the target (of 2 seeds that reached it, if not all)"
    assert [list(row)[1:] for row in report.matrix("best").rows] == [["90.0", "90.0"], ["85.0 (1/2)", "60.0 (1/2)"]]
    assert report.matrix("last").title == "Last accuracy, %"
    assert report.matrix("last").headings == ["policy", "paper", "other"]
    paper = report.scenario(PAPER)
    assert list(paper.headings)[:5] == ["policy", "mean rank", "to 80 %", "best, %", "last, %"]
    assert list(paper.headings)[5:] == ["devices a round", "seconds a round", "rounds", "seeds", "failed runs"]
    assert [list(row)[-2:] for row in paper.rows] == [["2 of 2", "0"], ["1 of 2", "1"]]
    assert [row[1] for row in report.scenario(two[1]).rows] == ["1.00", "2.00"]
    assert [row["with_round"] for row in report.rows()] == [1, 2, 1, 2]
    assert [row["failed"] for row in report.run_rows()] == ["", "", "no memory", "", "", "", "", ""]
    assert [row["s_to_target_or_budget"] for row in report.run_rows()] == [60, 50, 300, 50, 200, 50, 200, 50]
    verdicts = report.verdicts()
    assert [said.partition(":")[0] for said in verdicts] == [
        "In these scenarios, by time to the target",
        "For other scenarios like these",
        "In these scenarios, by last accuracy",
    ]
    (untold,) = report.untold("time")
    assert untold.startswith("Everywhere: ")
    page = report.page("fedcell tournament", dict.fromkeys(report.pictures(), b"png"))
    assert "2 scenarios, 2 seeds each, 8 runs." in page
    assert "target = 0.75; <code>budget_s = 200.0, rounds = 9</code>" in page
    assert "Everywhere: " in page


def test_a_single_scenario_is_not_one_of_many() -> None:
    wanted = Tournament([PAPER], ["all", "greedy"], [0])
    rounds = {("paper", policy, 0): rounds_of(50.0, 0.9) for policy in ("all", "greedy")}
    report = TournamentReport(TournamentResult(wanted, rounds, {}))
    assert report.overall().title == "Mean ranks of 2 policies, 1 scenario, 1 seed each"
    assert list(report.overall().headings)[4:] == ["wins", "ties"]
    assert len(report.verdicts()) == 2
    assert set(report.pictures()) == {"ranks", "ranks-last", "heat-map"}
    assert "seeds" not in report.scenario(PAPER).headings


def test_winners_are_said_in_words() -> None:
    assert Winner("a", []).text() == "a"
    assert Winner("a", list("bcde")).text() == "tie of 5: a, b, c, d, e"
    assert Winner("a", list("bcdef")).text() == "tie of 6: a, b, c, d and 2 more"
    assert Winner("a", ["b"], "too few").text() == "too few"
    assert (Winner("a", ["b"], "too few").leaders(), Winner("a", ["b"]).leaders()) == ([], ["a", "b"])
    assert tournament_report._framed([Winner("a", [])]).startswith("framed: the winner")
    assert tournament_report._framed([Winner("", [], "x"), Winner("", [], "y"), Winner("", [], "x")]) == "x / y"
    assert tournament_report._short(list(range(7))) == "[0, ..., 6]"
    assert tournament_report._short([1] * 6) == str([1] * 6)


def test_data_for_machines(made: TournamentResult) -> None:
    document = json.loads(TournamentReport(made).to_json("fedcell tournament"))
    assert document["rankings"]["time"]["mean_ranks"]["never"] == 4.0
    assert document["winners"][0] == {"scenario": "paper", "by": "time", "best": "fast", "tied": [], "untold": ""}
    assert document["results"][0]["median_s_to_target"] is None  # never
    lines = TournamentReport(made).to_csv().splitlines()
    assert len(lines) == 1 + 2 * 4
    assert lines[1].startswith("paper,never,0.8,300.0,12,0,,0,")
    runs = TournamentReport(made).runs_csv().splitlines()
    assert len(runs) == 1 + 2 * 4 * 12
    assert runs[0] == "scenario,policy,seed,s_to_target_or_budget,best,last,failed"
    assert runs[1] == "paper,never,0,300.0,0.7,0.7,"


def test_the_page_needs_nothing_else_and_shows_everything(made: TournamentResult) -> None:
    names = TournamentReport(made).pictures()
    assert set(names) == {"ranks", "ranks-scenarios", "ranks-last", "heat-map"}
    page = TournamentReport(made).page("fedcell tournament --policy 'a<b'", dict.fromkeys(names, b"png"))
    assert not re.search(r"<script|<link|@import|url\(|src=\"(?!data:image/png;base64,)", page)
    assert page.count("<figure class=large>") == 4
    assert "a&lt;b" in page
    for words in ("Friedman", "Holm", "critical difference", "tie of 2", "Another.", "never (0/12)", "[[scenario]]"):
        assert words in page


def test_markdown_stands_between_the_marks_of_a_page(made: TournamentResult) -> None:
    tables = TournamentReport(made).markdown("fedcell tournament")
    assert "| fast | " in tables
    assert put_between("", tables, "new.md") == tables
    page = f"# Ours\n{BEGIN}\nold\n{END}\nrest\n"
    once = put_between(page, tables, "page.md")
    assert once == f"# Ours\n{BEGIN}\n\n{tables.strip()}\n\n{END}\nrest\n"
    assert put_between(once, tables, "page.md") == once
    with pytest.raises(InputError, match=r"page.md has no lines <!-- tournament: begin --> and"):
        put_between("# Ours\n", tables, "page.md")


def test_a_bar_in_a_name_does_not_break_a_table() -> None:
    assert Table("t", ["a|b"], [["c"]]).markdown() == "**t**\n\n| a\\|b |\n| --- |\n| c |\n"


def test_the_page_of_the_docs_lists_the_standard_scenarios_and_has_the_marks() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tournament.md").read_text()
    for one in load_scenarios():
        target = f"{100 * one.target:g} %, {one.spec.budget_s:g} s"
        assert f"| `{one.name}` | {one.about} | {target} |" in page
    assert f"{len(load_scenarios())} standard scenarios" in page
    assert page.count(BEGIN) == page.count(END) == 1
