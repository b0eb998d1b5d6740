"""The command of a race gives the race again."""

import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from fedcell.defaults import TARGET_ACCURACY
from fedcell.runs.race import default_race, race_spec
from fedcell.runs.race_report import OPTIONS, race_command
from fedcell.sim.spec import Spec, load_spec

Here = Callable[..., CompletedProcess[str]]
CHANGES: dict[str, Any] = {
    "budget_s": 60.5,
    "budget_j": 1e-3,
    "rounds": 7,
    "knowledge": "observed",
    "slack": 1.25,
    "explore": False,
    "profiles": "labels",
    "epsilon": 4.0,
    "cell.radius_m": 900.0,
    "cell.channel": "uma:carrier_hz=2000000000.0",
    "cell.rate": "shannon:gap_db=3.0",
    "cell.fading": "rayleigh",
    "cell.shadowing_db": 8.0,
    "cell.law": "blocks:count=15",
    "cell.downlink": "multicast",
    "cell.csi_error_db": 3.0,
    "devices.count": 12,
    "devices.mobility": "waypoint:speed_mps=1.5,pause_s=10.0",
    "devices.failure": 0.1,
    "devices.availability": "daynight:there=0.5",
    "devices.battery_j": 1e4,
    "task.data": "fashion-mnist",
    "task.partition": "dirichlet:alpha=0.5",
    "task.epochs": 0.5,
    "task.aggregator": "fedavgm:late=0.5",
    "task.engine": "torch",
    "task.model": "cnn",
    "task.device": "cuda",
    "task.compression": "quantise:bits=4",
    "task.evaluate": "seconds:2",
}


def ran(here: Here, contest: Spec, target: float, tmp_path: Path) -> Spec:
    """The race that the command would run."""
    command, toml = race_command(contest, target)
    if toml is not None:
        (tmp_path / "race.toml").write_text(toml)
    words = shlex.split(command)
    assert words[:2] == ["fedcell", "race"]
    (tmp_path / "spec.toml").write_text(here(*words[1:], "--print-spec", cwd=tmp_path).stdout)
    assert ("--target" in words) == (target != TARGET_ACCURACY)
    return race_spec(load_spec(tmp_path / "spec.toml"))


def changed(changes: dict[str, Any], **grid: list[Any]) -> Spec:
    base = default_race()
    return race_spec(base.changed(changes, base.grid | grid))


def test_every_option_of_the_command_line_is_tried() -> None:
    assert CHANGES.keys() == OPTIONS.keys()


@pytest.mark.parametrize("field", CHANGES)
def test_each_option_gives_the_race_again(field: str, fedcell_here: Here, tmp_path: Path) -> None:
    extra: dict[str, Any] = {"task.engine": "torch"} if field in ("task.model", "task.device") else {}
    extra |= {"knowledge": "observed"} if field == "explore" else {}
    extra |= {"slack": 1.5} if field == "task.aggregator" else {}
    contest = changed(extra | {field: CHANGES[field]})
    assert race_command(contest, TARGET_ACCURACY)[1] is None
    assert ran(fedcell_here, contest, TARGET_ACCURACY, tmp_path) == contest


def test_policies_seeds_and_a_target_are_part_of_the_command(fedcell_here: Here, tmp_path: Path) -> None:
    contest = changed({"rounds": 5, "budget_s": 450.0}, policy=["greedy", "random:k=3"], seed=[0, 1])
    command, toml = race_command(contest, 0.75)
    assert toml is None
    assert command.startswith("fedcell race --policy greedy --policy random:k=3 --seeds 2 ")
    assert command.endswith(" --target 0.75")
    assert ran(fedcell_here, contest, 0.75, tmp_path) == contest
    assert race_command(default_race(), TARGET_ACCURACY) == ("fedcell race", None)


def test_what_has_no_option_comes_in_a_file(fedcell_here: Here, tmp_path: Path) -> None:
    for contest in (changed({"task.hidden": [3]}), changed({}, seed=[3, 5])):
        command, toml = race_command(contest, TARGET_ACCURACY)
        assert command == "fedcell race race.toml"
        assert toml is not None
        assert ran(fedcell_here, contest, TARGET_ACCURACY, tmp_path) == contest
