"""This machine and process: cores, memory, threads with Ctrl-C, and Numba's compiling.

Python raises KeyboardInterrupt between any two instructions of the main thread: also after ``threading.Condition`` has
taken its lock and before anybody knows, so that the lock is never released and whoever waits for it waits for ever; or
after one half of what belongs together has been done. So whoever shares locks with other threads, as executors do, has
the signal only noted, and asks for it where all is in order.

Compiling takes seconds, once for each machine: whoever waits for it wants to know, and nobody twice. Numba tells of it
in the process that compiles; runs/processes.py passes on what its workers tell. What it has compiled it keeps beside
our modules, or in the user's cache directory. Where neither can be written, as in a read-only container without a home,
it is kept in a temporary directory until the process ends, and its workers share that. The directory is private: what
is read from it are pickles, which can run any code.
"""

import atexit
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any, TypeVar, cast

WORKER_NUMBER = "FEDCELL_WORKER"
"""The environment variable that numbers the worker processes of a runner, from 0."""


def cores() -> int:
    """How many cores this process may run on; all of the machine's where the system cannot say (macOS, Windows)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """How much memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


T = TypeVar("T")
R = TypeVar("R")


class Interrupts:
    """Holds back the main thread's Ctrl-C, where nobody else has a handler for it.

    Example:
        >>> interrupts = Interrupts()
        >>> try:
        ...     with interrupts.held():
        ...         signal.raise_signal(signal.SIGINT)
        ...         print("still here")
        ...     interrupts.check()
        ... except KeyboardInterrupt:
        ...     print("interrupted")
        still here
        interrupted
    """

    def __init__(self) -> None:
        self._came = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within, the first Ctrl-C is noted; one more, before ``check`` was called, is raised at once."""
        ours = threading.current_thread() is threading.main_thread()
        if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        try:
            signal.signal(signal.SIGINT, self._note)
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            signal.default_int_handler(number, frame)
        self._came = True

    def check(self) -> None:
        """Raise the KeyboardInterrupt that was held back, if there is one."""
        if self._came:
            self._came = False
            raise KeyboardInterrupt


def on_threads(
    function: Callable[[T], R], tasks: Iterable[T], threads: int, begin: Callable[[], None] | None = None
) -> list[R]:
    """Call a function for all tasks on several threads; Ctrl-C ends it after the tasks that are under way.

    The threads live for one call (0.1 ms): a pool that outlived it would be dead, and hang, in a forked process.

    Args:
        function: what to do; it should release the interpreter's lock.
        tasks: one argument each.
        threads: how many at most.
        begin: called first in every thread.

    Returns:
        list: what the function returned, in the order of the tasks.

    Example:
        >>> on_threads(abs, [-1, 2, -3], threads=2)
        [1, 2, 3]
    """
    interrupts, found = Interrupts(), list[R]()
    with interrupts.held():
        pool = ThreadPoolExecutor(threads, initializer=begin)
        try:
            for future in [pool.submit(function, task) for task in tasks]:
                found.append(future.result())
                interrupts.check()
        finally:
            pool.shutdown(cancel_futures=True)
    interrupts.check()
    return found


F = TypeVar("F", bound=Callable[..., Any])

_told: list[Callable[[], None]] = []


def when_compiling(tell: Callable[[], None]) -> None:
    """Call a function, in any thread and once, when this process or a worker of it next begins to compile something."""
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
    """As ``numba.njit(cache=True, ...)``, with a cache that is right also after an update, and for laws of users."""
    import numba

    def decorated(function: F) -> F:
        # Nobody calls them from C, and a tenth of the time to compile them went into what would let C do so.
        make: Any = numba.njit
        compiled = make(no_cfunc_wrapper=True, **options)(function)
        try:
            compiled._cache = _cache_class()(function)
        except RuntimeError as error:  # no directory for it can be written
            if "no locator available" not in str(error):
                raise
            if _temporary_cache():
                compiled._cache = _cache_class()(function)
        return cast("F", compiled)

    return decorated


@cache
def _cache_class() -> Any:
    """Numba's cache, with two differences.

    What another version of fedcell left is not read: it may name classes that are gone. And what is compiled for a link
    law of a user's own is not kept: Numba would not notice that the law's code has changed.
    """
    import numba
    from numba.core import caching

    numbas: Any = caching.FunctionCache

    class Cache(numbas):  # type: ignore[misc]  # Numba has no types
        def __init__(self, function: Any) -> None:
            super().__init__(function)
            self._cache_file._version = f"{numba.__version__}, fedcell {sys.modules['fedcell'].__version__}"

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            return None if _is_foreign(sig) else super().load_overload(sig, target_context)

        def save_overload(self, sig: Any, data: Any) -> None:
            if not _is_foreign(sig):
                super().save_overload(sig, data)

    return Cache


def _is_foreign(signature: Any) -> bool:
    """Whether a function is compiled for a named tuple that is not fedcell's."""
    types = getattr(signature, "args", signature)
    modules = [getattr(getattr(one, "instance_class", None), "__module__", "fedcell") for one in types]
    return any(module.partition(".")[0] != "fedcell" for module in modules)


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
