"""`fedcell reproduce` as a user calls it."""

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from harness import FEDCELL, Process, fedcell

pytestmark = pytest.mark.processes


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_reproduce_writes_pictures_tables_and_a_page_and_runs_nothing_twice(tmp_path: Path) -> None:
    first = fedcell("reproduce", "fig1a", "fig2", "--quick", "--seeds", "1", "--out", "out", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "fig2: 100 %" in first.stderr
    warning, *said = first.stdout.splitlines()
    assert warning.startswith("With --quick everything is tried and nothing is shown")
    assert "tried: The latency bounds of Proposition 1 hold at R = 600 m" in said
    assert "confirmed" not in first.stdout
    files = {f"{figure}.{ending}" for figure in ("fig1a", "fig2") for ending in ("png", "svg", "csv", "json")}
    assert names(tmp_path / "out") - {"results.db-wal", "results.db-shm"} == files | {"index.html", "results.db"}
    page = (tmp_path / "out" / "index.html").read_text()
    assert "68.2" in page
    assert str(tmp_path) not in page
    assert "With --quick everything is tried" in page
    assert ">confirmed<" not in page
    drawn = (tmp_path / "out" / "fig2.csv").read_text()
    second = fedcell("reproduce", "fig2", "--quick", "--seeds", "1", "--out", "out", cwd=tmp_path)
    assert second.returncode == 0
    assert second.stderr == ""  # all from the store
    assert (tmp_path / "out" / "fig2.csv").read_text() == drawn
    both = (tmp_path / "out" / "index.html").read_text()
    assert both.count("<figure>") == page.count("<figure>") == 2  # the page has what was made before, too
    assert "<code>fedcell reproduce fig2 --seeds 1 --quick</code>" in both


def test_what_another_machine_computed_is_not_run_again(tmp_path: Path) -> None:
    """The proof of Auto in parts, by cell; the rounds of each come together from files."""
    common = ("--quick", "--seeds", "1")
    for cell in ("race", "static"):
        part = ("--cells", cell, "--store", f"{cell}.db", "--out", cell)
        done = fedcell("reproduce", "auto-times", *common, *part, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines()[-1].startswith("auto-times: 100 %")
        assert fedcell("results", "export", f"{cell}.db", "--rounds", f"{cell}.npz", cwd=tmp_path).returncode == 0
    files = ("--rounds", "race.npz", "--rounds", "static.npz")
    both = fedcell("reproduce", "auto-times", *common, "--cells", "static,race", *files, cwd=tmp_path)
    assert (both.returncode, both.stderr) == (0, "")  # nothing was run
    rows = (tmp_path / "out/paper/auto-times.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 4
    for cell in ("race", "static"):
        alone = (tmp_path / cell / "auto-times.csv").read_text().splitlines()[1:]
        assert [row for row in rows if row.startswith(f"{cell},")] == alone
    page = (tmp_path / "out/paper/index.html").read_text()
    assert "<code>fedcell reproduce auto-times --seeds 1 --cells race,static --quick</code>" in page


def test_a_cell_whose_data_is_not_there_is_said(tmp_path: Path) -> None:
    env = os.environ | {"FEDCELL_DATA": str(tmp_path)}
    options = ("--quick", "--seeds", "1", "--cells", "wisdm")
    done = fedcell("reproduce", "auto-times", *options, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    sentence = "Left out: wisdm, for there is no wisdm51-watch-accel.npz; FEDCELL_DATA names no directory that has it"
    assert sentence in done.stdout
    assert sentence in (tmp_path / "out/paper/index.html").read_text()


def test_ctrl_c_says_what_is_kept(tmp_path: Path) -> None:
    for command, store in ((["reproduce", "fig2"], "out/paper/results.db"), (["fit"], "results.db")):
        with Process(*FEDCELL, *command, cwd=tmp_path) as process:
            process.wait_for_text("runs\n")
            process.interrupt()
            done = process.finish()
        assert (done.returncode, done.stdout) == (130, ""), done.stderr
        said = f"fedcell: stopped; the finished runs are stored in {store}, run the same command to resume"
        assert done.stderr.splitlines()[-1] == said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig9"], "there is no figure 'fig9'; did you mean 'fig"),
        (["figure2"], "did you mean 'fig2'?"),
        (["fig1a", "--out", "file/paper"], "cannot write into file/paper: Not a directory"),
        (["fig2", "--quick", "--out", "new", "--store", "file"], "file is not a fedcell results file"),
        (["auto", "--cells", "rase"], "there is no cell 'rase'; did you mean 'race'"),
        (["auto", "fig2", "--cells", "race"], "--cells chooses cells of auto, but fig2 is asked for too; leave out"),
        (["auto", "--rounds", "file"], "file is not a file of rounds ("),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(
    tmp_path: Path, arguments: list[str], message: str, fedcell_here: Callable[..., CompletedProcess[str]]
) -> None:
    (tmp_path / "file").write_text("text")
    done = fedcell_here("reproduce", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("fedcell: ")
    assert done.stderr.count("\n") == 1
    assert names(tmp_path) - {"new"} == {"file"}
    assert (tmp_path / "file").read_text() == "text"
