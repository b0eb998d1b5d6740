"""`fedcell reproduce` as a user calls it."""

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig9"], "there is no figure 'fig9'; did you mean 'fig"),
        (["figure2"], "did you mean 'fig2'?"),
        (["fig1a", "--out", "file/paper"], "cannot write into file/paper: Not a directory"),
        (["fig2", "--quick", "--out", "new", "--store", "file"], "file is not a fedcell results file"),
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
