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

PROCESS_MARKS = ("flower", "links", "browser", "processes")
"""Tests that start processes; those with the first of these take longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, else one of them would run alone at the end."""
    ranks: dict[Path, int] = {}
    for item in items:
        marks = [place for place, name in enumerate(PROCESS_MARKS) if item.get_closest_marker(name)]
        ranks[item.path] = min([ranks.get(item.path, len(PROCESS_MARKS)), *marks])
    items.sort(key=lambda item: ranks[item.path])


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
