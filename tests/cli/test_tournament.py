"""`fedcell tournament` as its users run it."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from fedcell.runs.contest import load_scenarios
from fedcell.runs.store import Store
from harness import FEDCELL, Process, workers_of
from twins.small import write_small_npz

pytestmark = pytest.mark.processes
Call = Callable[..., CompletedProcess[str]]
SCENARIOS = """
[defaults]
budget_s = 900
rounds = 30
target = 0.3
devices.count = 6
task.data = "small.npz"
task.hidden = [8]
[[scenario]]
name = "near"
about = "A small cell."
cell.radius_m = 300
[[scenario]]
name = "far"
cell.radius_m = 1500
"""
OPTIONS = ["--scenarios", "s.toml", "--only", "all", "--only", "random:2", "--policy", "mine:First:k=2"]
MINE = """
from dataclasses import dataclass
import numpy as np
import fedcell as fc

@dataclass(frozen=True)
class First(fc.Policy):
    k: int = 1
    def choose(self, view, rng):
        return np.arange(self.k)
"""
FILES = {"index.html", "tournament.csv", "runs.csv", "tournament.json", "scenarios.toml", "results.db"}
FILES |= {f"{name}.{end}" for name in ("ranks", "ranks-scenarios", "ranks-last", "heat-map") for end in ("png", "svg")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_small_npz(tmp_path / "small.npz")
    (tmp_path / "s.toml").write_text(SCENARIOS)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"results.db-wal", "results.db-shm"}


def stored(path: Path) -> int:
    if not path.exists():
        return 0
    with Store(path, "read") as store:
        return len(store.runs(status="done"))


def test_killed_it_resumes_and_leaves_a_page_tables_and_pictures(folder: Path, fedcell_here: Call) -> None:
    command = ["tournament", *OPTIONS, "--seeds", "3", "--workers", "2", "--out", "out", "--markdown", "tables.md"]
    with Process(*FEDCELL, *command, cwd=folder) as process:
        process.wait_for(lambda: workers_of(process.pid), "its workers")
        process.wait_for(lambda: stored(folder / "out" / "results.db") >= 3, "three runs")
        process.kill()
    kept = stored(folder / "out" / "results.db")
    assert 3 <= kept < 18
    assert names(folder / "out") == {"results.db"}
    done = fedcell_here(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert f"tournament: 18 runs, {kept} of them already stored" in done.stderr
    assert "Who wins where, by time to the target:\n  near (30 % in 900 s): " in done.stdout
    assert "Friedman's test over 6 blocks" in done.stdout
    assert names(folder / "out") == FILES
    page = (folder / "out" / "index.html").read_text()
    assert "mine:First:k=2" in page
    assert str(folder) not in page
    document = json.loads((folder / "out" / "tournament.json").read_text())
    assert document["policies"] == ["all", "random:k=2", "mine:First:k=2"]
    assert all(row["deciding_s"] > 0 for row in document["results"])
    tables = (folder / "tables.md").read_text()
    assert tables.startswith("`fedcell tournament --policy mine:First:k=2 --only all")
    assert "![heat-map](tables-heat-map.png)" in tables
    assert (folder / "tables-ranks.png").read_bytes() == (folder / "out" / "ranks.png").read_bytes()
    assert load_scenarios(folder / "s.toml")[0].name == document["scenarios"][0]["name"]

    again = fedcell_here(*command, cwd=folder)  # all from the store, into a file that has no place for tables
    assert again.returncode == 2
    assert "tables.md has no lines <!-- tournament: begin -->" in again.stderr


def test_runs_that_fail_are_told_and_cost_nobody_else(folder: Path, fedcell_here: Call) -> None:
    options = ["--scenarios", "s.toml", "--scenario", "near", "--only", "random:9", "--only", "all", "--only", "greedy"]
    done = fedcell_here("tournament", *options, "--seeds", "1", "--workers", "1", "--out", "out", "-q", cwd=folder)
    assert done.returncode == 1
    assert (
        "fedcell: random:k=9: 1 of 3 runs failed and rank last, the first of them in near, seed 0: k is 9"
        in done.stderr
    )
    assert len(done.stderr.splitlines()) == 1
    assert "1 seed cannot tell policies apart here; use at least 7." in (folder / "out" / "index.html").read_text()


def test_scenarios_printed_are_those_read(tmp_path: Path, fedcell_here: Call) -> None:
    (tmp_path / "mine.toml").write_text(fedcell_here("tournament", "--print-scenarios", cwd=tmp_path).stdout)
    assert load_scenarios(tmp_path / "mine.toml") == load_scenarios()
    some = fedcell_here(
        "tournament", "--scenarios", "mine.toml", "--scenario", "iid", "--print-scenarios", cwd=tmp_path
    )
    assert some.stdout.count("[[scenario]]") == 1
    assert names(tmp_path) == {"mine.toml"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scenarios", "gone.toml"], "cannot read gone.toml: No such file or directory"),
        (["--scenarios", "empty.toml"], "empty.toml has no scenarios"),
        (["--scenarios", "odd.toml"], "odd.toml, scenario 'a': unknown field 'radius'"),
        (["--scenarios", "lost.toml"], "task.data is 'lost.npz' (No such file or directory)"),
        (["--scenario", "papr"], "there is no scenario 'papr'; did you mean 'paper'?"),
        (["--policy", "gredy"], "unknown policy 'gredy'; did you mean 'greedy'?"),
        (["--policy", "greedy"], "the tournament has the policy 'greedy' twice; it enters by default"),
        (["--only", "all"], "a tournament needs two policies"),
        (["--seeds", "0"], "--seeds is 0"),
        (["--store", "no/results.db"], "is not a directory; create it first"),
        (["--markdown", "no/tables.md"], "is not a directory; create it first"),
        (["--markdown", "odd.toml"], "odd.toml has no lines <!-- tournament: begin --> and"),
        (["--out", "empty.toml/out"], "cannot write into empty.toml/out"),
        (["--cluster", "localhost"], "--cluster is 'localhost'; give the scheduler's address"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    options: list[str], said: str, tmp_path: Path, fedcell_here: Call
) -> None:
    texts = {"empty.toml": "", "odd.toml": "[[scenario]]\nname = 'a'\nradius = 3"}
    texts["lost.toml"] = "[[scenario]]\nname = 'a'\ntask.data = 'lost.npz'"
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    done = fedcell_here("tournament", *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert names(tmp_path) == set(texts)
