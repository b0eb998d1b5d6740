"""Processes inside the cell's namespaces, forked from this one so that nothing is imported twice.

A start of Python with Flower and the training engine takes seconds of processor time; a fork takes milliseconds. Every
process ends with its parent, also if that is killed.
"""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

APP, SERVICE = 1, 2
"""Real-time priorities, the least two, before all other work of the machine: what waits for a processor would be
measured as a slow link. What moves messages goes before what makes them."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def start(function: Callable[[], object], log: Path, namespace: str | None = None, priority: int = APP) -> int:
    """Call the function in a new process, in a network namespace of its own or in the caller's.

    Call it from the main thread, for the new process ends with the thread that started it.

    Args:
        function: what the process does.
        log: file to which its output is appended.
        namespace: network namespace in which it runs; None for the caller's.
        priority: APP or SERVICE.

    Returns:
        Its process id.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    # Python loses a Ctrl-C that comes while it forks.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    pid = os.fork()
    if pid == 0:
        _be_child(function, log, namespace, priority, parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


def _be_child(function: Callable[[], object], log: Path, namespace: str | None, priority: int, parent: int) -> NoReturn:
    code = 1
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)
        os.setpgid(0, 0)  # a Ctrl-C at the terminal is the owner's to handle
        for number in (*_ENDING, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
        _redirect(log)
        if namespace is not None:
            enter(namespace)
        function()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)  # in any case: the caller's blocks are not this process's to leave


def _redirect(log: Path) -> None:
    nothing, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    # Whatever the caller made of them (a test's capture, a progress bar's), the log is theirs now.
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode, 1, closefd=False) for n, mode in enumerate("rww"))


def enter(namespace: str) -> None:
    """Move this thread, and what it starts, into a network namespace."""
    with open(f"/run/netns/{namespace}") as file:
        _setns(file.fileno())


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Move this thread into a network namespace for the block; sockets made inside stay there."""
    with open("/proc/thread-self/ns/net") as own:
        enter(namespace)
        try:
            yield
        finally:
            _setns(own.fileno())


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "network namespace")


def end(pid: int) -> None:
    """Kill a process that ``start`` returned, if it still runs, and forget it."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        return


def ended(pid: int) -> int | None:
    """Return the exit status of a process that ``start`` returned, negative for a signal; None while it runs."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 1
    return os.waitstatus_to_exitcode(status) if done else None
