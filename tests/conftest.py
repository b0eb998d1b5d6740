import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hypothesis import settings

import harness

# The first call of a compiled function may compile it: no deadline. The same examples on every machine.
settings.register_profile("fedcell", deadline=None, derandomize=True)
settings.load_profile("fedcell")

harness.accept_interrupts()

# The slow ones that mostly wait begin first, so that the others run beside them.
WAITING = ("flower", "links", "browser", "processes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files whose tests wait come first. `--dist loadfile` keeps a file's tests, which share servers, together."""

    def first_mark(item: pytest.Item) -> int:
        return min((WAITING.index(mark.name) for mark in item.iter_markers() if mark.name in WAITING), default=9)

    places: dict[Path, int] = {}
    for item in items:
        places[item.path] = min(first_mark(item), places.get(item.path, 9))
    items.sort(key=lambda item: places[item.path])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that starts processes says so with a marker; the harness refuses to start any for one that does not."""
    harness.marked = any(mark.name in WAITING for mark in item.iter_markers())


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
