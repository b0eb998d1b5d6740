"""A process that has loaded what `fedcell` loads, and forks itself into every Python command that is asked of it.

Such a command is a process as any other (its own id, session, directory, environment and exit status), less a second
of imports and half a second of reading digits and compiled functions. harness.py starts one zygote for all tests of a
worker, and says which commands start from it.

It forks twice, so that the command has lost its parent: it becomes a child of whoever asked, who is a subreaper then.

A command's fork server, from which its workers come, need not import all that again either: the command forks a spare
of itself first, while it has no threads, and that becomes the fork server when the command starts one.
"""

import atexit
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import process, util
from typing import Any, NoReturn

MOST_BYTES = 2**20
FORK_SERVER = "from multiprocessing.forkserver import main;"
"""What a fork server's program begins with, as the standard library writes it."""
ABOVE = 100
"""Where descriptors are out of the way of the numbers that a fork server expects its own at."""


def import_all() -> None:
    """What most commands need. No thread may be left from here: it would be missing in every fork."""
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401

    import fedcell.cli
    import fedcell.learn.mlp
    import fedcell.plan
    import fedcell.runs
    import fedcell.runs.race
    import fedcell.runs.sweep
    import fedcell.schedule.diverse
    import fedcell.schedule.optimal
    import fedcell.sim.loop

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            import uvicorn  # noqa: F401

            import fedcell.dashboard.app
        except ModuleNotFoundError:  # the extra is not installed
            pass
    for hidden in ([4], [64]):  # for each: the data, what Numba imports with a first function, and the compiled ones
        task, devices = fedcell.TaskSpec(hidden=hidden, sizes=[10, 10]), fedcell.DevicesSpec(count=2)
        list(fedcell.simulate(fedcell.Spec(rounds=1, devices=devices, task=task), threads=1))


def await_command(channel: socket.socket) -> list[str]:
    """Return in a fork, with the arguments of its command; end when nobody is left to ask."""
    while True:
        message, given, _, _ = socket.recv_fds(channel, MOST_BYTES, 3)
        if not message:
            os._exit(0)
        answer, ready = os.pipe()
        if (between := os.fork()) == 0:
            if os.fork() != 0:
                os._exit(0)
            os.close(answer)
            arguments = become(json.loads(message), given)
            os.write(ready, str(os.getpid()).encode())
            os.close(ready)
            channel.close()
            return arguments
        for fd in (ready, *given):
            os.close(fd)
        pid = os.read(answer, 100)
        os.close(answer)
        os.waitpid(between, 0)
        channel.send(pid or b"0")


def become(command: dict[str, Any], given: list[int]) -> list[str]:
    """Take on the command's streams, directory and environment."""
    os.setsid()
    for target, fd in enumerate(given):
        os.dup2(fd, target)
        os.close(fd)
    os.chdir(command["cwd"])
    process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined] # where workers look for their script
    os.environ.clear()
    os.environ.update(command["env"])
    arguments: list[str] = command["arguments"]
    return arguments


def keep_spare() -> None:
    """Fork what becomes this command's first fork server; it ends with the command if that never starts one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a Ctrl-C is the command's
    if (spare := os.fork()) == 0:
        ours.close()
        await_fork_server(theirs)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    theirs.close()
    channel = [ours.detach()]  # a socket that is still open at the end would be warned of
    start = util.spawnv_passfds

    def start_or_wake(path: Any, args: Any, passfds: Any) -> int:
        """As the standard library starts a fork server or its resource tracker: environment and mask are inherited."""
        if not args[-1].startswith(FORK_SERVER) or not channel:
            return start(path, args, passfds)
        blocked = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
        told = {"program": args[-1], "fds": passfds, "env": dict(os.environ), "blocked": blocked, "cwd": os.getcwd()}
        with socket.socket(fileno=channel.pop()) as ours:
            socket.send_fds(ours, [json.dumps(told).encode()], passfds)
        return spare

    util.spawnv_passfds = start_or_wake


def await_fork_server(channel: socket.socket) -> NoReturn:
    """Be the command's fork server once it asks for one, as a new Python with this program would be."""
    try:
        message, given, _, _ = socket.recv_fds(channel, MOST_BYTES, 2)
        channel.close()
        if message:
            told = json.loads(message)
            moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, ABOVE) for fd in given]
            for fd in given:
                os.close(fd)
            for fd, number in zip(moved, told["fds"], strict=True):
                os.dup2(fd, number)
                os.close(fd)
            os.chdir(told["cwd"])
            os.environ.clear()
            os.environ.update(told["env"])
            signal.pthread_sigmask(signal.SIG_SETMASK, told["blocked"])
            exec(told["program"], {})
    finally:
        os._exit(0)


def run(arguments: list[str]) -> None:
    """What Python does with these: `-m module ...`, `-c code` or a file, each with its own arguments."""
    first = os.path.dirname(arguments[0]) if not arguments[0].startswith("-") else os.getcwd()
    if not sys.flags.safe_path:
        sys.path[0] = first  # so far it is the directory of this file
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(arguments[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


@contextmanager
def quick_end() -> Iterator[NoReturn]:
    """End as Python does after these lines, but do not take apart all that is imported: most of a short command's time.

    What they left open is told nevertheless, unless a module still has it.
    """
    status = 0
    try:
        yield  # type: ignore[misc]
    except SystemExit as end:
        if not isinstance(end.code, int | None):  # a text, which Python prints
            raise
        status = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    del sys.modules["__main__"]
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    import_all()
    gc.collect()
    gc.freeze()
    command = await_command(socket.socket(fileno=int(sys.argv[1])))
    keep_spare()
    with quick_end():
        run(command)
