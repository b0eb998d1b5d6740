"""`fedcell reproduce` as a user calls it."""

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
