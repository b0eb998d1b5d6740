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


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that starts processes says so with a marker; the harness refuses to start any for one that does not."""
    harness.marked = any(mark.name in ("processes", "browser", "flower", "links") for mark in item.iter_markers())


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
            patched.setattr(sys, "argv", ["fedcell", *words])
            with pytest.raises(SystemExit) as stopped:
                cli.main()
        return CompletedProcess(words, int(stopped.value.code or 0), *capsys.readouterr())

    return call
