"""A process that has imported Flower, and forks itself into its commands: each would take 1.4 s to import it.

As tests/zygote.py, but it is Flower that starts most of them: it finds the scripts of `write_commands` on PATH, and
they ask the zygote by way of command.py.
"""

import ctypes
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from shlex import quote
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from harness import MARK
from zygote import MOST_BYTES, become, quick_end

READY = "ready"


def write_commands(folder: Path, address: str) -> None:
    """Scripts with the names of Flower's commands, for which the zygote at this address forks them."""
    folder.mkdir()
    asking = [sys.executable, "-I", "-S", str(Path(__file__).with_name("command.py")), address]
    for command in distribution("flwr").entry_points:
        script = folder / command.name
        script.write_text(f'#!/bin/sh\nexec {" ".join(map(quote, asking))} "$0" "$@"\n')
        script.chmod(0o700)


def import_all(*others: str) -> dict[str, Callable[[], Any]]:
    """Flower's commands by name. Nothing here may start a thread: it would be missing in every fork."""
    import fedcell.flower

    commands = {command.name: command.load() for command in distribution("flwr").entry_points}
    for module in others:
        import_module(module)
    task, devices = fedcell.TaskSpec(sizes=[10, 10]), fedcell.DevicesSpec(count=2)
    list(fedcell.simulate(fedcell.Spec(rounds=1, devices=devices, task=task), threads=1))  # digits, compiled functions
    return commands


def await_command(address: str) -> list[str]:
    """Return in a fork, with its command and arguments; who asked is told the status with which it ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind("\0" + address)
        server.listen(100)
        print(READY, flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
        while True:
            asking, _ = server.accept()
            if os.fork() == 0:
                break
            asking.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with asking:
        message, given, _, _ = socket.recv_fds(asking, MOST_BYTES, 3)
        if (pid := os.fork()) != 0:
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with suppress(OSError):  # who asked has been killed
                asking.send(str(status).encode())
            os._exit(0)
    command = json.loads(message)
    wear(command["env"][MARK])
    return become(command, given)


def wear(mark: str) -> None:
    """Show the mark by which the harness finds a process: in the memory where /proc looks for its environment."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    ctypes.memmove(getenv(MARK.encode()), mark.encode(), len(mark))


if __name__ == "__main__":
    commands = import_all(*sys.argv[2:])
    gc.collect()
    gc.freeze()
    sys.argv = await_command(sys.argv[1])
    sys.path[0] = str(Path(sys.executable).parent)
    with quick_end():
        sys.exit(commands[Path(sys.argv[0]).name]())
