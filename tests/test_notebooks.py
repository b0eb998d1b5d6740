"""The notebooks run from top to bottom, and show what is kept in them."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import PYTHON, run

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))


def shown(path: Path) -> list[list[Any]]:
    """What each code cell shows: kinds of data and texts, whose numbers another processor may give otherwise."""
    document = json.loads(path.read_text())
    assert document["nbformat"] == 4
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    found = []
    for cell in cells:
        texts = [output.get("text") or output["data"]["text/plain"] for output in cell["outputs"]]
        kinds = [sorted(output.get("data", {})) for output in cell["outputs"]]
        found.append([kinds, [re.sub(r"[\s\d.,+-]+", " ", "".join(text)) for text in texts]])
    return found


def test_there_are_four() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.processes
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_it_runs_and_shows_what_it_says(path: Path, tmp_path: Path) -> None:
    if "torch" in path.read_text():
        pytest.importorskip("torch")
    again = Path(shutil.copy(path, tmp_path))
    done = run(*PYTHON, Path(__file__).with_name("notebooks.py"), again, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert any(texts for _, texts in shown(again))
    assert shown(again) == shown(path), "run `make notebooks`"
