"""Who is told that something is compiled, here and in worker processes."""

import os
import stat
from pathlib import Path

import numba
import pytest

from fedcell.compiling import when_compiling
from fedcell.runs.processes import Processes
from harness import PYTHON, fedcell, run


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
