"""Work on several threads, and Ctrl-C where it does no harm.

Python raises KeyboardInterrupt between any two instructions of the main thread: also after ``threading.Condition`` has
taken its lock and before anybody knows, so that the lock is never released and whoever waits for it waits for ever; or
after one half of what belongs together has been done. So whoever shares locks with other threads, as executors do, has
the signal only noted, and asks for it where all is in order.
"""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

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
