"""Compiling takes seconds, once for each machine: whoever waits for it wants to know.

Numba tells of it in the process that compiles; runs/processes.py passes on what its workers tell.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, cast

_told: list[Callable[[], None]] = []


def when_compiling(tell: Callable[[], None]) -> None:
    """Call a function, once, when this process or a worker of it next begins to compile something.

    Args:
        tell: called from any thread.
    """
    if tell not in _told:
        _told.append(tell)
    _listen()


def compiling_begins() -> None:
    """Tell those who want to know."""
    while _told:
        _told.pop()()


@cache
def _listen() -> None:
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:  # noqa: ARG002
            compiling_begins()

        def on_end(self, event: Any) -> None:
            pass

    cast("Any", event.register)("numba:compile", Listener())
