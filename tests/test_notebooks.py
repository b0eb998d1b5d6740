"""The notebooks run from top to bottom."""

import json
from pathlib import Path

import pytest

from harness import PYTHON, run

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_four() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.processes
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_it_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    document = json.loads(path.read_text())
    assert document["nbformat"] == 4
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert cells
    for cell in cells:
        assert not any(output.get("output_type") == "error" for output in cell["outputs"])
    if "torch" in path.read_text():
        pytest.importorskip("torch")
    (tmp_path / "notebook.py").write_text("\n\n".join("".join(cell["source"]) for cell in cells))
    done = run(*PYTHON, "notebook.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
