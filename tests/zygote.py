"""A process that has imported what `fedcell` imports, and forks itself into every Python command that is asked of it.

Such a command is a process as any other (its own id, session, directory, environment and exit status), less a second
of imports. harness.py starts one zygote for all tests of a worker, and says which commands start from it.

It forks twice, so that the command has lost its parent: it becomes a child of whoever asked, who is a subreaper then.
"""

import gc
import json
import os
import runpy
import socket
import sys
import types
import warnings
from typing import Any

MOST_BYTES = 2**20


def import_all() -> None:
    """What most commands need. Nothing here may start a thread: it would be missing in every fork."""
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
    fedcell.allocate([1.0], [1.0])  # Numba imports much of itself with the first compiled function


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
    os.environ.clear()
    os.environ.update(command["env"])
    arguments: list[str] = command["arguments"]
    return arguments


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


if __name__ == "__main__":
    import_all()
    gc.collect()
    gc.freeze()
    run(await_command(socket.socket(fileno=int(sys.argv[1]))))
