"""Every example runs as its first lines say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
ARGUMENTS = {"cnn_torch.py": ["2"]}
SAYS = {
    "one_round.py": "all end together",
    "own_policy.py": "Rested - greedy",
    "cnn_torch.py": "round   2",
    "moving_cell.py": "observed  proportional_fair:k=8",
}


def test_no_example_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_example_runs(name: str) -> None:
    if name == "cnn_torch.py":
        pytest.importorskip("torch")
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *ARGUMENTS.get(name, [])]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
    assert done.stderr == ""
