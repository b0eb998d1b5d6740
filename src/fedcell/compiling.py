"""Compiling takes seconds, once for each machine: whoever waits for it wants to know, and nobody twice.

Numba tells of it in the process that compiles; runs/processes.py passes on what its workers tell. What it has compiled
it keeps beside our modules, or in the user's cache directory. Where neither can be written, as in a read-only container
without a home, it is kept in a temporary directory until the process ends, and its workers share that. The directory is
private: what is read from it are pickles, which can run any code.
"""

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

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


def cached_njit(**options: Any) -> Callable[[F], F]:
    """As ``numba.njit(cache=True, ...)``, which fails where no directory for its cache can be written.

    Args:
        options: of ``numba.njit``.

    Returns:
        The decorator.
    """
    import numba

    def decorated(function: F) -> F:
        try:
            return cast("F", numba.njit(cache=True, **options)(function))
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
        return cast("F", numba.njit(cache=_temporary_cache(), **options)(function))

    return decorated


@cache
def _temporary_cache() -> bool:
    """Have Numba keep what it compiles in a directory that ends with this process; False if there is none."""
    import numba

    try:
        place = tempfile.mkdtemp(prefix="fedcell-numba-")  # nobody else may read or write it
    except OSError:
        when_compiling(lambda: _say("what is compiled now cannot be kept, as no directory for it can be written"))
        return False
    maker = os.getpid()
    atexit.register(lambda: shutil.rmtree(place, ignore_errors=True) if os.getpid() == maker else None)
    # For this process, and for those that it starts.
    os.environ["NUMBA_CACHE_DIR"] = place
    cast("Any", numba.config).CACHE_DIR = place
    when_compiling(lambda: _say("what is compiled now is kept only until this program ends"))
    return True


def _say(what: str) -> None:
    logging.getLogger("fedcell").warning(
        "fedcell: %s; set NUMBA_CACHE_DIR to a directory that you may write, and it is compiled once for all", what
    )
