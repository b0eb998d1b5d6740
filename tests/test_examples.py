"""Every example runs as its first lines say."""

from pathlib import Path

import pytest

from harness import PYTHON, run

EXAMPLES = Path(__file__).parents[1] / "examples"
ARGUMENTS = {
    "cifar_resnet.py": ["made-up", "1"],
    "cnn_torch.py": ["2"],
    "learn_to_schedule.py": ["0.001", "1"],
    "moving_cell.py": ["2"],
    "own_policy.py": ["2"],
}
"""Fewer rounds and seeds than they have by themselves."""
SAYS = {
    "channels.py": "of places reached",
    "cifar_resnet.py": "1 rounds",
    "one_round.py": "all end together",
    "own_policy.py": "Rested - greedy",
    "cnn_torch.py": "round   2",
    "learn_to_schedule.py": "256 rounds played",
    "laws.py": "power: 13.5 dBm a device       20 devices",
    "sionna_channels.py": "Sionna",
    "moving_cell.py": "observed  proportional_fair:k=8",
}


def test_no_example_is_forgotten() -> None:
    elsewhere = {"own_law.py"}  # schedule/laws/test_base_own_law.py, which compiles it anyway
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS) | elsewhere


@pytest.mark.processes
@pytest.mark.parametrize("name", SAYS)
def test_example_runs(name: str, tmp_path: Path) -> None:
    if name in ("cifar_resnet.py", "cnn_torch.py", "learn_to_schedule.py"):
        pytest.importorskip("torch")
    done = run(*PYTHON, EXAMPLES / name, *ARGUMENTS.get(name, []), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
    assert done.stderr == ""
