"""The workers that `make test` runs in: nothing is lost, mixed up or hung when tests fail, crash or are interrupted."""

import re
import sys
from pathlib import Path

import pytest

from harness import Process, run

pytestmark = pytest.mark.processes
CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from workers import pytest_addoption, pytest_runtestloop
"""
SOUND = """
import os, pytest

@pytest.fixture(scope="module")
def shared():
    yield os.getpid()
    print("shared ends")

def test_first(shared, tmp_path):
    assert "worker-" in str(tmp_path)
    print("not shown")

@pytest.mark.parametrize("i", range(20))
def test_in_the_same_process(shared, i):
    assert os.getpid() == shared

@pytest.mark.skip(reason="no moon")
def test_skipped():
    pass
"""
FAILS = """
def test_fails():
    print("before it failed")
    assert [1, 2] == [1, 3]

def test_goes_on():
    pass
"""
DIES = """
import os
import pytest

def test_dies():
    os.kill(os.getpid(), 9)

def test_never_run():
    pass
"""


def pytest_in(folder: Path, *options: str, **files: str) -> list[str]:
    for name, text in {"conftest": CONFTEST, **files}.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    return [*command, f"--basetemp={folder / 'tmp'}", *options, str(folder)]


def test_all_that_pass_fail_and_are_skipped_are_reported(tmp_path: Path) -> None:
    files = {f"test_sound{i}": SOUND for i in range(4)} | {"test_fails": FAILS}
    done = run(*pytest_in(tmp_path, "--workers=3", **files))
    assert done.returncode == 1, done.stdout
    assert "1 failed, 85 passed, 4 skipped" in done.stdout
    assert done.stdout.count("no moon") == 4
    assert "At index 1 diff: 2 != 3" in done.stdout
    assert done.stdout.count("before it failed") == 1 + FAILS.count("print")  # the source, and what it printed
    assert "not shown" not in done.stdout
    assert len(list((tmp_path / "tmp").glob("worker-*"))) == 3
    assert done.stderr == ""


def test_a_worker_that_dies_fails_the_test_it_ran_and_the_others_go_on(tmp_path: Path) -> None:
    done = run(*pytest_in(tmp_path, "--workers=2", test_a_dies=DIES, test_sound=SOUND))
    assert done.returncode == 1, done.stdout
    assert "1 failed, 21 passed, 1 skipped" in done.stdout
    assert re.search(r"test_dies _+\nthe worker ended with status -9; the tests of this file after", done.stdout)


def test_the_first_failure_ends_all_with_x_and_ctrl_c_tears_down(tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    waits = f"""
import pathlib, time, pytest

@pytest.fixture
def server():
    yield
    pathlib.Path({str(ends)!r}).touch()

def test_waits(server):
    pathlib.Path({str(tmp_path / "waits")!r}).touch()
    time.sleep(600)
"""
    after = f"    while not __import__('pathlib').Path({str(tmp_path / 'waits')!r}).exists(): pass\n"
    fails = FAILS.replace("    print", f"{after}    print")
    done = run(*pytest_in(tmp_path, "--workers=2", "-x", test_waits=waits, test_fails=fails))
    assert "stopping after 1 failures" in done.stdout
    assert "1 failed in" in done.stdout
    assert ends.exists()

    for file in (ends, tmp_path / "waits", tmp_path / "test_fails.py"):
        file.unlink()
    with Process(*pytest_in(tmp_path, "--workers=2")) as process:
        process.wait_for((tmp_path / "waits").exists, "the test to wait")
        process.interrupt()
        assert process.finish().returncode == pytest.ExitCode.INTERRUPTED
    assert ends.exists()
