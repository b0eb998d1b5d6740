import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hypothesis import settings

import harness
from workers import pytest_addoption, pytest_runtestloop  # noqa: F401 (pytest finds its hooks here)

# The first call of a compiled function may compile it: no deadline. The same examples on every machine.
settings.register_profile("fedcell", deadline=None, derandomize=True)
settings.load_profile("fedcell")

harness.accept_interrupts()

# Set before anything imports NumPy or PyTorch. Workers outnumber cores, and the threads of a library's pool wait for
# each other by spinning: a test of a second took two minutes.
os.environ["OMP_NUM_THREADS"] = "1"

# The longest files, by `--durations=0`, begin first, else one of them would run alone at the end.
LONGEST_FIRST = (
    "test_docs.py",
    "flower/test_deployment.py",
    "flower/test_simulation.py",
    "testbed/test_runs_links.py",
    "paper/test_figures.py",
    "learn/test_torch_engine.py",
    "dashboard/test_damaged.py",
    "runs/test_sweep.py",
    "runs/test_one_store.py",
    "test_examples.py",
    "flower/test_messages.py",
    "dashboard/test_fuzz.py",
    "dashboard/test_browser_pages.py",
    "cli/test_main.py",
    "sim/test_loop.py",
    "schedule/laws/test_laws.py",
    "dashboard/test_browser.py",
    "test_notebooks.py",
    "protocol/test_drivers.py",
    "schedule/laws/test_base_own_law.py",
    "cli/test_race.py",
    "flower/test_scheduled.py",
    "test_doctests.py",
    "world/test_tr38901.py",
    "runs/test_trackers.py",
    "protocol/test_estimates.py",
    "runs/test_runner.py",
    "flower/test_scheduled_profiles.py",
    "flower/test_new_app.py",
)
PROCESS_MARKS = {"flower", "links", "browser", "processes"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, the others as they were collected."""
    tests = Path(__file__).parent
    places = {tests / name: place for place, name in enumerate(LONGEST_FIRST)}
    assert not (gone := [path for path in places if not path.exists()]), f"no longer there: {gone}"
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that starts processes says so with a marker; the harness refuses to start any for one that does not."""
    harness.marked = any(mark.name in PROCESS_MARKS for mark in item.iter_markers())


@pytest.fixture
def fedcell_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CompletedProcess[str]]:
    """`harness.fedcell` without a process: a second less, for what does not depend on having one."""

    def call(*arguments: object, cwd: Path | None = None) -> CompletedProcess[str]:
        from fedcell import cli

        words = [str(argument) for argument in arguments]
        with monkeypatch.context() as patched:
            if cwd is not None:
                patched.chdir(cwd)
            patched.setattr(sys, "path", list(sys.path))
            patched.setenv("PYTHONSAFEPATH", "")  # main sets it; put back afterwards
            patched.setattr(sys, "argv", ["fedcell", *words])
            with pytest.raises(SystemExit) as stopped:
                cli.main()
        return CompletedProcess(words, int(stopped.value.code or 0), *capsys.readouterr())

    return call
