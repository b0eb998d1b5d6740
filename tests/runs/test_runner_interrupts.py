"""Ctrl-C at any line of the driver: the runner ends, its threads with it, and what is stored is right."""

from pathlib import Path

import pytest

from harness import LIMIT_S, PYTHON, run

pytestmark = pytest.mark.processes

SWEEP = f"""
import faulthandler, sys
from contextlib import closing
from itertools import count
from pathlib import Path

sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from ctrl_c import pressed_before
from fedcell.runs import runner
from fedcell.runs.records import encode
from fedcell.runs.store import Store
from fedcell.sim.loop import simulate
from fedcell.sim.spec import Spec

OURS = [f"fedcell/{{name}}.py" for name in ("threads", "runs/runner", "runs/processes", "runs/store")]
runner.SLICE_S = runner.SAVE_EVERY_S = 0.0  # so that rounds come and are stored one by one


def sweep(runs, store, on, function, at):
    with pressed_before(at, *OURS, function=function) as pressed:
        with closing(iter(runner.Runner(runs, store=store, on=on, workers=2))) as events:
            for event in events:
                pass
    return pressed.yet


def main():
    data, folder, on, step, *functions = sys.argv[1:]
    faulthandler.dump_traceback_later({LIMIT_S - 30}, exit=True)  # of a hang, where it is
    task = {{"data": data, "hidden": [4]}}
    grid = {{"seed": [0, 1, 2]}}
    runs = Spec(policy="random:k=1", rounds=2, devices={{"count": 4}}, task=task, grid=grid).runs()
    truth = [[encode(record) for record in simulate(run, threads=1)] for run in runs]
    tried = 0
    for function in functions or [""]:
        for at in count(int(step), int(step)):
            path = Path(folder, f"{{on}}-{{function}}-{{at}}.db")
            print(path.name, flush=True)  # the last is where it failed
            with Store(path) as store:
                came = sweep(runs, store, on, function, at)
                if came:
                    assert not sweep(runs, store, on, "", 0)  # goes on where it was
                assert [[encode(record) for record in store.get(run)] for run in runs] == truth
            path.unlink()
            tried += came
            if not came or (functions and at == 4 * int(step)):
                break
    print(tried, "times")


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("on", "step", "functions", "least"),
    [
        ("threads", "41", [], 40),
        ("processes", "1", ["submit", "__enter__"], 8),
        ("processes", "2", ["_keep", "shutdown"], 6),
    ],
)
def test_ctrl_c_at_any_line_ends_all_and_loses_nothing(
    on: str, step: str, functions: list[str], least: int, small_npz: Path, tmp_path: Path
) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP)
    done = run(*PYTHON, script, small_npz, tmp_path, on, step, *functions)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-300:] + done.stderr
    assert int(done.stdout.split()[-2]) >= least
