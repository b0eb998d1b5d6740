"""Cores, threads with Ctrl-C at any line, and who is told that something is compiled."""

import importlib
import os
import pickle
import signal
import stat
import threading
from pathlib import Path
from typing import Any

import numba
import pytest

from fedcell import runtime
from fedcell.runs.processes import Processes
from fedcell.runtime import Interrupts, cores, on_threads, when_compiling
from harness import LIMIT_S, PYTHON, fedcell, python, run


def test_results_are_in_order_and_every_thread_begins() -> None:
    begun: list[int] = []
    barrier = threading.Barrier(2)

    def work(number: int) -> int:
        if number < 2:
            barrier.wait(LIMIT_S)  # so that there are two threads
        return number * number

    found = on_threads(work, range(20), 2, begin=lambda: begun.append(threading.get_ident()))
    assert found == [number * number for number in range(20)]
    assert len(set(begun)) == 2


def test_what_fails_is_raised_and_no_thread_is_left() -> None:
    before = set(threading.enumerate())  # other tests of this process may have left some
    with pytest.raises(ZeroDivisionError):
        on_threads(lambda number: 1 / number, [2, 1, 0, 1], 2)
    assert set(threading.enumerate()) <= before


def test_elsewhere_than_in_the_main_thread_and_with_other_handlers_nothing_is_held() -> None:
    seen = []

    def handler(*_: object) -> None:
        seen.append("theirs")

    before = signal.signal(signal.SIGINT, handler)
    try:
        with Interrupts().held():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["theirs"]
    thread = threading.Thread(target=lambda: seen.extend(on_threads(str, [1, 2], 2)))
    thread.start()
    thread.join(LIMIT_S)
    assert seen == ["theirs", "1", "2"]


def test_a_second_ctrl_c_is_raised_at_once() -> None:
    interrupts = Interrupts()
    said = []
    try:
        with interrupts.held():
            for press in ("once", "twice"):
                signal.raise_signal(signal.SIGINT)
                said.append(press)
    except KeyboardInterrupt:
        said.append("raised")
    assert said == ["once", "raised"]
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()
    interrupts.check()


AT_ANY_LINE = f"""
import faulthandler, sys, time
from itertools import count

sys.path.insert(0, {str(Path(__file__).parent)!r})
from ctrl_c import pressed_before
from fedcell.runtime import on_threads

faulthandler.dump_traceback_later({LIMIT_S - 30}, exit=True)  # of a hang, where it is
for at in count(1, 5):
    with pressed_before(at, "fedcell/threads.py") as pressed:
        found = on_threads(lambda number: time.sleep(0.001 * number) or number, range(4), 2)
    if not pressed.yet:
        break
print(at, found)
"""


@pytest.mark.processes
def test_ctrl_c_at_any_line_ends_it() -> None:
    at, found = python(AT_ANY_LINE).split(" ", 1)
    assert int(at) > 60
    assert found == "[0, 1, 2, 3]\n"


def test_cores_are_those_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert cores() == 3


def test_cores_where_the_system_cannot_say_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


def compile_something() -> int:
    return int(numba.njit(lambda x: x + 1)(1))


def test_whoever_wants_to_know_is_told_once() -> None:
    told: list[str] = []

    def tell() -> None:
        told.append("here")

    when_compiling(tell)
    when_compiling(tell)
    assert compile_something() == compile_something() == 2
    assert told == ["here"]


@pytest.mark.processes
def test_a_worker_tells_its_driver_before_it_answers() -> None:
    told: list[str] = []
    with Processes(1) as processes:
        assert processes.submit(int, "3").result() == 3
        when_compiling(lambda: told.append("a worker"))
        assert told == []
        assert [processes.submit(compile_something).result() for _ in range(2)] == [2, 2]
        assert told == ["a worker"]
        assert processes.submit(int, "3").result() == 3


READ_ONLY = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "NUMBA_CACHE_DIR": "/proc/none"}
"""For Numba as if neither our modules' directories nor the user's could be written, not even by root."""
ALLOCATING = """
import os, pathlib
import fedcell as fc
from fedcell.runs.processes import Processes

def allocated():
    found = fc.allocate([1.0, 2.0], [1.0, 1.0])
    place = pathlib.Path(os.environ["NUMBA_CACHE_DIR"])
    return str(place), found.round_s, sum(1 for _ in place.rglob("*.nbc"))

if __name__ == "__main__":
    told = [allocated()]
    with Processes(1) as processes:
        told.append(processes.submit(allocated).result())
    assert told[0] == told[1], told  # the worker has compiled nothing again
    place, _, files = told[0]
    print(place, oct(os.stat(place).st_mode), files)
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(numba.config, "CACHE_LOCATOR_CLASSES"), reason="an older Numba")
def test_where_no_cache_can_be_written_a_temporary_one_is_shared_with_the_workers(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(ALLOCATING)
    (tmp_path / "tmp").mkdir()
    env = {**os.environ, **READ_ONLY, "TMPDIR": str(tmp_path / "tmp")}
    done = run(*PYTHON, "work.py", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    place, mode, files = done.stdout.split()
    assert Path(place).parent == tmp_path / "tmp"
    assert (int(mode, 8), int(files) > 0) == (stat.S_IFDIR | 0o700, True)
    assert list((tmp_path / "tmp").iterdir()) == []  # nothing is left
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        "fedcell: what is compiled now is kept only until this program ends; set NUMBA_CACHE_"
    )


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(numba.config, "CACHE_LOCATOR_CLASSES"), reason="an older Numba")
def test_without_any_place_at_all_it_compiles(tmp_path: Path) -> None:
    code = "import tempfile; tempfile.tempdir = '/proc'; import fedcell as fc; print(fc.allocate([1.0], [1.0]).round_s)"
    done = run(*PYTHON, "-c", code, cwd=tmp_path, env={**os.environ, **READ_ONLY})
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    assert done.stderr.startswith("fedcell: what is compiled now cannot be kept, as no directory for it")
    assert done.stderr.count("\n") == 1


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(numba.config, "CACHE_LOCATOR_CLASSES"), reason="an older Numba")
def test_a_command_that_compiles_nothing_says_nothing(tmp_path: Path) -> None:
    done = fedcell("plan", "--help", env={**os.environ, **READ_ONLY}, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_another_version_left_in_numbas_cache_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name classes that are gone, and Numba unpickles it before it looks whether it is of any use."""
    (tmp_path / "compiled_here.py").write_text(
        "from fedcell.runtime import cached_njit\n\n\n@cached_njit()\ndef twice(x):\n    return 2 * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    twice: Any = importlib.import_module("compiled_here").twice
    index = Path(twice._cache._cache_file._index_path)
    index.parent.mkdir(exist_ok=True)
    index.write_bytes(pickle.dumps(numba.__version__) + b"cfedcell.schedule.needs\nDensityNeeds\n.")
    assert twice(3) == 6
    assert twice.stats.cache_misses
    again: Any = runtime.cached_njit()(twice.py_func)
    assert again(3) == 6
    assert again.stats.cache_hits
