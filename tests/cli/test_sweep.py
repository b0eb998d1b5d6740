"""`fedcell sweep` as its users run it."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from fedcell.runs.store import Store
from fedcell.sim.spec import load_spec
from harness import FEDCELL, Process, Terminal, fedcell, run
from twins.small import write_small_npz

pytestmark = pytest.mark.processes
SPEC = """
rounds = 4
[task]
data = "small.npz"
hidden = [4]
[grid]
policy = ["greedy", "random:k=3", "random:k=30"]
"cell.radius_m" = [500, 1500]
seed = [0, 1]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a spec and its data."""
    write_small_npz(tmp_path / "small.npz")
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


def test_every_run_of_the_grid_is_in_the_store_and_failures_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fedcell("sweep", "spec.toml", "--workers", "2", cwd=folder)
    assert done.returncode == 1, done.stderr
    assert done.stdout == "8 runs done, 0 skipped (already stored), 4 failed\n"
    *progress, report = done.stderr.splitlines()
    assert progress[0] == "sweep: 12 runs"
    assert progress[-1] == "sweep: 100 %, 12 of 12 runs, 4 failed, done"
    assert len(progress) <= 11
    assert report.startswith("  failed, 4 runs such as ")
    assert report.endswith(": k is 30, but the cell has 20 devices; give a k of at most 20")
    monkeypatch.chdir(folder)  # where the data are
    wanted = {run.key() for run in load_spec("spec.toml").runs() if run.policy != "random:k=30"}
    with Store("results.db", "read") as store:
        assert {run.key for run in store.runs(status="done")} == wanted
    again = fedcell("sweep", "spec.toml", "--workers", "2", cwd=folder)
    assert again.stdout == "0 runs done, 8 skipped (already stored), 4 failed\n"


def test_a_terminal_shows_progress_with_an_estimate(folder: Path) -> None:
    (folder / "spec.toml").write_text(SPEC.replace("rounds = 4", "rounds = 100"))
    command, env = [*FEDCELL, "sweep", "spec.toml", "--workers", "2"], os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with Terminal() as screen, Process(*command, cwd=folder, env=env, stderr=screen.line) as process:
        done = process.finish()
    assert done.returncode == 1
    assert done.stdout.startswith("8 runs done")
    for words in ("/12", "4 failed", "k is 30"):
        assert words in screen.shown


def test_without_dask_a_sentence_names_the_extra(folder: Path) -> None:
    code = "import sys; sys.modules['distributed'] = None; from fedcell.cli import main; main()"
    done = run(sys.executable, "-c", code, "sweep", "spec.toml", "--cluster", "tcp://a:1", cwd=folder)
    assert done.returncode == 2
    assert "pip install 'fedcell[cluster]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "results.db").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.toml"], "cannot read missing.toml"),
        (["bad.toml"], "unknown field 'polcy'"),
        (["lost.toml"], "task.data is 'lost.npz' (No such file or directory)"),
        (["good.toml", "--store", "no/results.db"], "is not a directory; create it first"),
        (["good.toml", "--store", "bad.toml"], "bad.toml is not a fedcell results file"),
        (["good.toml", "--cluster", "localhost"], "--cluster is 'localhost'; give the scheduler's address"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    arguments: list[str], words: str, tmp_path: Path, fedcell_here: Callable[..., CompletedProcess[str]]
) -> None:
    texts = {"bad.toml": "polcy = 'greedy'", "lost.toml": "task.data = 'lost.npz'", "good.toml": "rounds = 1"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    done = fedcell_here("sweep", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fedcell: ")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts
