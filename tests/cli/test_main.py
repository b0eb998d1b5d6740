"""What holds for every command: a quick start, options that several have, and a directory's own modules."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numba
import pytest

import fedcell as fc
from fedcell.cli.console import EtaEstimator, announce_compiling, set_verbosity
from fedcell.cli.options import complete_figure
from fedcell.paper import FIGURES
from fedcell.runs.store import Store
from harness import run
from twins.small import write_small_npz

EXAMPLE = Path(__file__).parents[2] / "examples" / "devices.csv"
SCRIPT = Path(sys.executable).with_name("fedcell")
POLICY = """
from dataclasses import dataclass
import numpy as np
import fedcell as fc

@dataclass(frozen=True)
class Nearest(fc.Policy):
    k: int = 3
    def choose(self, view, rng):
        return np.argsort(view.upload_s)[: self.k]
"""
SPEC = """
policy = "mine:Nearest"
rounds = 1
task = { data = "small.npz", hidden = [4] }
grid.seed = [0, 1, 2]
"""


def installed(*arguments: str | Path, cwd: Path) -> CompletedProcess[str]:
    """The script that pip installs: unlike python -m, it does not look for modules in the directory first."""
    return run(sys.executable, "-W", "error", SCRIPT, *arguments, cwd=cwd, cold=True)


@pytest.fixture
def hiding(tmp_path: Path) -> Path:
    """A directory with modules named like Python's, ours, and some that ours use if installed, all broken; a policy."""
    for name in ("queue", "json", "random", "csv", "socket", "asyncio", "numpy", "rich", "scipy", "pandas", "cffi"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('the {name} of this directory')")
    (tmp_path / "mine.py").write_text(POLICY)
    return tmp_path


@pytest.mark.processes
def test_modules_of_this_directory_hide_no_others(hiding: Path) -> None:
    for command in ((SCRIPT,), ("-m", "fedcell")):
        done = run(sys.executable, "-W", "error", *command, "plan", EXAMPLE, "--json", cwd=hiding, cold=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["policy"] == "optimal"


def test_a_policy_that_another_module_hides_is_named(hiding: Path, fedcell_here: Any) -> None:
    done = fedcell_here("plan", EXAMPLE, "--policy", "json:Nearest", cwd=hiding)
    assert done.returncode == 2
    assert "which hides json.py in this directory; rename yours" in done.stderr


@pytest.mark.processes
def test_a_policy_of_this_directory_is_found_there_by_the_command_and_its_workers(hiding: Path) -> None:
    done = installed("plan", EXAMPLE, "--policy", "mine:Nearest", "--json", cwd=hiding)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)["devices"]) == 3
    write_small_npz(hiding / "small.npz")
    (hiding / "spec.toml").write_text(SPEC)
    swept = installed("sweep", "spec.toml", "--workers", "2", cwd=hiding)
    assert swept.stdout == "3 runs done, 0 skipped (already stored), 0 failed\n", swept.stderr


@pytest.mark.processes
@pytest.mark.parametrize("command", [[], ["sweep"], ["results", "list"], ["serve"]], ids=" ".join)
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    """But for that of a race, whose options are the fields of the spec."""
    code = (
        "import sys, fedcell.cli\n"
        f"sys.argv = ['fedcell', *{command}, '--help']\n"
        "try:\n    fedcell.cli.main()\n"
        "except SystemExit:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = run(sys.executable, "-c", code)
    assert "Usage: fedcell" in done.stdout
    loaded = set(done.stderr.split())
    heavy = {"numpy", "numba", "pydantic", "matplotlib", "uvicorn", "asyncio"}
    assert not loaded & (heavy if command else heavy | {"rich", "json"})  # Typer itself may load Rich for an option
    ours = {name for name in loaded if name.startswith("fedcell.") and not name.startswith("fedcell.cli")}
    names = {"fedcell.settings", "fedcell.schedule", "fedcell.schedule.laws", "fedcell.schedule.registry"}
    assert ours == {"fedcell.errors", "fedcell.defaults", "fedcell.files"} | names


@pytest.mark.parametrize(
    ("option", "sentence", "commands"),
    [
        (
            ["--workers", "0"],
            "--workers is 0; give a whole number of at least 1",
            [["race"], ["sweep", "spec.toml"], ["tournament"], ["fit"], ["reproduce"], ["serve"]],
        ),
        (
            ["--seeds", "0"],
            "--seeds is 0; give a whole number from 1 to 10,000",
            [["race"], ["tournament"], ["fit"], ["reproduce"]],
        ),
        (
            ["--target", "80"],
            "--target is 80; give an accuracy between 0 and 1, such as 0.8",
            [["race"], ["fit"], ["flower", "state"]],
        ),
        (
            ["--plot", "picture.gif"],
            "picture.gif is not a figure's name; it must end in .png, .svg or .pdf",
            [["plan", "devices.csv"], ["race"], ["fit"], ["flower", "state"], ["testbed"]],
        ),
        (
            ["--json", "--csv"],
            "--json and --csv were both given; choose one",
            [["plan", "devices.csv"], ["race"]],
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_an_option_is_checked_alike_by_every_command_that_has_it(
    option: list[str],
    sentence: str,
    commands: list[list[str]],
    tmp_path: Path,
    fedcell_here: Callable[..., CompletedProcess[str]],
) -> None:
    for command in commands:
        done = fedcell_here(*command, *option, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"fedcell: {sentence}\n"), command
    assert list(tmp_path.iterdir()) == []


COMMANDS = ["", "plan", "race", "sweep", "tournament", "fit", "reproduce", "flower", "flower new", "testbed", "serve"]
OF_RESULTS = ["results", "results list", "results show", "results export", "results delete"]


@pytest.mark.parametrize("command", [*COMMANDS, *OF_RESULTS])
def test_the_help_of_every_command_is_plain_text(command: str, fedcell_here: Any) -> None:
    done = fedcell_here(*command.split(), "-h")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: fedcell {command}".rstrip())
    assert "\\" not in done.stdout
    assert "\x1b" not in done.stdout
    assert fedcell_here(*command.split(), "--help").stdout == done.stdout


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (["plan"], "missing argument 'DEVICES'; see fedcell plan --help"),
        (
            ["plan", "x.csv", "--theta", "x"],
            "invalid value for '--theta': 'x' is not a valid float; see fedcell",
        ),
        (["race", "--sedes", "3"], "no such option: --sedes"),
        (["rase"], "no such command 'rase'; did you mean 'race'?"),
        (["results", "lst"], "no such command 'lst'; did you mean 'list'?"),
        (["plan", "x.csv", "y.csv"], "got unexpected extra argument (y.csv); see fedcell plan --help"),
        (["race", "--seeds"], "option '--seeds' requires an argument; see fedcell"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_call_that_is_not_understood_is_one_sentence(call: list[str], sentence: str, fedcell_here: Any) -> None:
    done = fedcell_here(*call)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"fedcell: {sentence}")
    assert done.stderr.count("\n") == 1


@pytest.mark.processes
def test_the_shell_completes_commands_options_policies_figures_and_fields(tmp_path: Path) -> None:
    for typed, found in (
        ("fedcell re", "reproduce"),
        ("fedcell race --policy gr", "greedy"),
        ("fedcell reproduce t", "table1"),
    ):
        env = os.environ | {
            "_FEDCELL_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(typed.count(" ")),
        }
        assert found in run(SCRIPT, env=env).stdout.split()
    with fc.Store(tmp_path / "r.db") as store:
        for radius_m in (300.0, 450.0):
            store.put(fc.Spec(rounds=1, cell=fc.Cell(radius_m=radius_m)), [])
    for typed, words in (
        ("--where cell.rad", {"cell.radius_m=300", "cell.radius_m=450"}),
        ("--where radius", {"radius_m=300", "radius_m=450"}),
        ("--where statu", {"status=done"}),
        ("--sort best", {"best_accuracy"}),
    ):
        line = f"fedcell results list r.db {typed}"
        env = os.environ | {"_FEDCELL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "5"}
        assert set(run(SCRIPT, env=env, cwd=tmp_path).stdout.split()) == words
    line = "fedcell results list none.db --where r"
    env = os.environ | {"_FEDCELL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "5"}
    none = run(SCRIPT, env=env, cwd=tmp_path)
    assert (none.stdout.strip(), none.stderr) == ("", "")
    assert complete_figure("") == [*FIGURES, "all", "auto"]
    assert complete_figure("table") == ["table1"]


def test_compiling_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    announce_compiling()
    for number in (1, 2):
        assert numba.njit(lambda x: x + 1)(number) == number + 1
    assert capsys.readouterr().err == "note: compiling for this machine, once; this takes some seconds\n"


def test_no_time_left_is_told_before_there_is_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([0.0, 60.0, 61.0, 70.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times_s))
    pace = EtaEstimator()
    assert pace.left_s(0, 100) is None
    assert pace.left_s(1, 100) is None  # the first minute was imports and compilation
    assert pace.left_s(8, 100) is None  # a second is too short
    assert pace.left_s(11, 100) == 89  # ten in ten seconds


def test_quiet_and_verbose(tmp_path: Path, fedcell_here: Any) -> None:
    write_small_npz(tmp_path / "small.npz")
    options = ["--data", "small.npz", "--policy", "all", "--policy", "random:2", "--seeds", "2", "--rounds", "2"]
    call = ["race", *options, "--plot", "race.png", "--workers", "1"]
    assert fedcell_here(*call, "-q", cwd=tmp_path).stderr == ""
    said = fedcell_here(*call, "-v", cwd=tmp_path).stderr.splitlines()
    assert said[0] == "race: 4 runs"
    assert [line.split(",")[1] for line in said[1:]] == [f" {n} of 4 runs" for n in (1, 2, 3, 4)]
    assert said[-1].startswith("race: 100 %")
    plain = fedcell_here(*call, cwd=tmp_path).stderr.splitlines()
    assert plain[0] == "race: 4 runs"
    assert plain[-1] == "race: 100 %, 4 of 4 runs"
    both = fedcell_here("sweep", "spec.toml", "-q", "-v", cwd=tmp_path)
    assert both.stderr == "fedcell: --quiet and --verbose were both given; choose one\n"


def test_matplotlib_does_not_speak_of_its_caches(fedcell_here: Any) -> None:
    assert fedcell_here("--version").returncode == 0
    assert not logging.getLogger("matplotlib.font_manager").isEnabledFor(logging.WARNING)


def test_the_testbed_says_less_with_q_and_more_with_v(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("flwr")
    from fedcell.cli.testbed import _say_round
    from fedcell.flower import ScheduledRound

    done = ScheduledRound(
        round=1,
        clock_s=7.5,
        round_s=7.5,
        planned_s=6.0,
        devices=[0, 3],
        names=["a", "d"],
        shares=[0.25, 0.75],
        planned_finish_s=[6.0, 6.0],
        began_s=[2.0, None],
        finish_s=[6.1, None],
        delivered=[0],
        late=[],
        metrics={"server": {"accuracy": 0.81}},
    )
    said = {}
    for name, options in {"quiet": (True, False), "normal": (False, False), "verbose": (False, True)}.items():
        set_verbosity(*options)
        _say_round(fc.Spec(policy="all"), done)
        said[name] = capsys.readouterr().err
    set_verbosity(quiet=False, verbose=False)
    assert said["quiet"] == ""
    assert said["normal"].startswith("all, seed 0, round 1: planned 6.000 s, took 7.500 s, 1 of 2 devices")
    assert said["verbose"] == said["normal"] + (
        "  a: 25.00 % of the band, planned 6.000 s, arrived after 6.100 s\n"
        "  d: 75.00 % of the band, planned 6.000 s, it did not arrive\n"
    )


@pytest.mark.processes
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(closed: str, tmp_path: Path) -> None:
    """As cron and daemons start commands; no file of ours gets the number of a stream."""
    race = "race --rounds 1 --seeds 1 --policy all --devices 3 --plot none --store r.db"
    for command in (f"plan {EXAMPLE}", race, "results list r.db"):
        done = run("sh", "-c", f"{sys.executable} -W error -m fedcell {command} {closed}", cwd=tmp_path)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (command, done.stderr)
    with Store(tmp_path / "r.db", "read") as store:
        assert len(store.runs()) == 1


@pytest.mark.processes
def test_not_every_refusal_of_the_system_is_blamed_on_standard_output(tmp_path: Path) -> None:
    code = "import fedcell.cli.plan as p\ndef f(*a, **k): raise OSError(12, 'Cannot allocate memory')\n"
    code += "import fedcell.plan.device_table as d\nd.read_devices = f\nimport fedcell.cli, sys\n"
    done = run(sys.executable, "-c", f"{code}sys.argv = ['fedcell', 'plan', {str(EXAMPLE)!r}]\nfedcell.cli.main()")
    assert done.returncode == 2
    said = "Cannot allocate memory; free memory, processes or files, and try again\n"
    assert done.stderr == f"fedcell: the system refused something: {said}"
    listed = run(sys.executable, "-m", "fedcell", "results", "list", "/proc/self/mem")
    assert (listed.returncode, listed.stderr.startswith("fedcell: cannot read /proc/self/mem: ")) == (2, True)
    full = run("sh", "-c", f"{sys.executable} -m fedcell plan {EXAMPLE} >/dev/full")
    assert full.stderr.startswith("fedcell: standard output: No space left on device; write it elsewhere")
