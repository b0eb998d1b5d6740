"""`fedcell reproduce` and `fedcell fit` as a user calls them."""

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from harness import fedcell

pytestmark = pytest.mark.processes


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_reproduce_writes_pictures_tables_and_a_page_and_runs_nothing_twice(tmp_path: Path) -> None:
    first = fedcell("reproduce", "fig1a", "fig2", "--quick", "--seeds", "1", "--out", "out", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "fig2: 100 %" in first.stderr
    assert "confirmed: The latency bounds of Proposition 1 hold at R = 600 m" in first.stdout
    files = {f"{figure}.{ending}" for figure in ("fig1a", "fig2") for ending in ("png", "svg", "csv")}
    assert names(tmp_path / "out") - {"results.db-wal", "results.db-shm"} == files | {"index.html", "results.db"}
    page = (tmp_path / "out" / "index.html").read_text()
    assert "68.2" in page
    assert str(tmp_path) not in page
    drawn = (tmp_path / "out" / "fig2.csv").read_text()
    second = fedcell("reproduce", "fig1a", "fig2", "--quick", "--seeds", "1", "--out", "out", cwd=tmp_path)
    assert second.returncode == 0
    assert "done" not in second.stderr  # all from the store
    assert (tmp_path / "out" / "fig2.csv").read_text() == drawn


def test_fit_prints_the_policy_to_use(tmp_path: Path) -> None:
    options = ("--partition", "labels:2", "--target", "0.4", "--seeds", "2", "--rounds-limit", "6", "--plot", "fit.png")
    done = fedcell("fit", *options, "--k", "2", "20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Rounds to 40 % on labels:2, 2 trials of at most 6 rounds" in done.stdout
    assert re.search(r"^Policy: greedy:theta=-?[\d.e-]+$", done.stdout, re.MULTILINE)
    assert names(tmp_path) - {"results.db-wal", "results.db-shm"} == {"results.db", "fit.png"}
    # The same runs answer for another target, and say when nobody gets there.
    high = fedcell("fit", *options[:3], "0.99", *options[4:8], "--k", "2", "--k", "20", cwd=tmp_path)
    assert high.returncode == 2
    assert "0 of 2" in high.stdout
    assert "more than 6" in high.stdout
    assert "lower the target or raise the limit" in high.stderr
    assert "done" not in high.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "fig9"], "there is no figure 'fig9'; did you mean 'fig"),
        (["reproduce", "figure2"], "did you mean 'fig2'?"),
        (["reproduce", "fig1a", "--seeds", "0"], "--seeds is 0; give a whole number from 1 to 10,000"),
        (["reproduce", "fig1a", "--workers", "0"], "--workers is 0"),
        (["reproduce", "fig1a", "--out", "file/paper"], "cannot write into file/paper: Not a directory"),
        (["reproduce", "fig2", "--quick", "--out", "new", "--store", "file"], "file is no fedcell store"),
        (["fit", "--target", "80"], "--target is 80; give an accuracy between 0 and 1"),
        (["fit", "--k", "2"], "--k is 2; give at least two different numbers from 1 to 20"),
        (["fit", "--k", "2", "40"], "--k is 2, 40; give"),
        (["fit", "--rounds-limit", "0"], "--rounds-limit is 0"),
        (["fit", "--partition", "label:2"], "did you mean"),
        (["fit", "--plot", "fit.doc"], "fit.doc has no picture's ending"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(
    tmp_path: Path, arguments: list[str], message: str, fedcell_here: Callable[..., CompletedProcess[str]]
) -> None:
    (tmp_path / "file").write_text("text")
    done = fedcell_here(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("fedcell: ")
    assert done.stderr.count("\n") == 1
    assert names(tmp_path) - {"new"} == {"file"}
    assert (tmp_path / "file").read_text() == "text"
