"""`fedcell fit` as a user calls it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from harness import fedcell

pytestmark = pytest.mark.processes


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_fit_prints_the_policy_to_use(tmp_path: Path, fedcell_here: Callable[..., CompletedProcess[str]]) -> None:
    options = ("--partition", "labels:2", "--target", "0.4", "--seeds", "2", "--rounds-limit", "6", "--plot", "fit.png")
    done = fedcell("fit", *options, "--k", "2", "20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Rounds to 40 % on labels:2, 2 trials of at most 6 rounds" in done.stdout
    assert re.search(r"^Policy: optimal:theta=-?[\d.e-]+$", done.stdout, re.MULTILINE)
    assert names(tmp_path) - {"results.db-wal", "results.db-shm"} == {"results.db", "fit.png"}
    # The same runs answer for another target, and say when nobody gets there.
    high = fedcell_here("fit", *options[:3], "0.99", *options[4:8], "--k", "2", "--k", "20", cwd=tmp_path)
    assert high.returncode == 2
    assert "0 of 2" in high.stdout
    assert "more than 6" in high.stdout
    assert "lower the target or raise the limit" in high.stderr
    assert "done" not in high.stderr
    # And when all are there at once, which is said once.
    low = fedcell_here("fit", "--target", "0.01", *options[4:8], "--k", "2", "20", cwd=tmp_path)
    sentence = "fedcell: every number of devices needed 1 round, which does not show how many rounds more devices save"
    assert low.stderr == f"{sentence}; set a higher target accuracy\n"
    assert low.returncode == 2
    assert "Fit of" not in low.stdout
    document = json.loads(fedcell_here("fit", *options[:8], "--k", "2", "20", "--json", cwd=tmp_path).stdout)
    assert re.search(f"^Policy: {document['policy']}$", done.stdout, re.MULTILINE)
    assert document["policy"] == f"optimal:theta={document['fits']['curve']['theta']:.4g}"
    assert [(row["devices"], len(row["trials"])) for row in document["rounds"]] == [(2, 2), (20, 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "2"], "--k is 2; give at least two different numbers from 1 to 20"),
        (["--k", "2", "40"], "--k is 2, 40; give"),
        (["--rounds-limit", "0"], "--rounds-limit is 0"),
        (["--partition", "label:2"], "did you mean"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(
    tmp_path: Path, arguments: list[str], message: str, fedcell_here: Callable[..., CompletedProcess[str]]
) -> None:
    (tmp_path / "file").write_text("text")
    done = fedcell_here("fit", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("fedcell: ")
    assert done.stderr.count("\n") == 1
    assert names(tmp_path) == {"file"}
    assert (tmp_path / "file").read_text() == "text"
