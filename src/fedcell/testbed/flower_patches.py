"""Patches of Flower that shorten its pauses, so that rounds of a few seconds can be measured on two cores.

Flower offers no options for these; each patch replaces a name in one of its modules, in a forked process that runs
nothing else. They depend on Flower's internals and refuse any version but the one that they were written for.

1. ``quick_pulls``: whoever pulls a message whose parts are still on their way looks for them after 20 ms, then less
   often, down to every 200 ms. Flower: after 1 s, down to every 10 s, which a round of seconds would mostly consist of.
2. ``quick_supernode``: a SuperNode looks for messages as often as it is told (Flower: every 3 s), and for its app's
   reply every 10 ms (Flower: every 0.5 s); when it begins to wait for a reply, it rings its SuperExec's bell.
3. ``quick_superexec``: a SuperExec waits for that bell (Flower: it looks for work every 1 s), and forks its apps from
   itself, which has imported everything (Flower: starts a new Python, several seconds of a core each).
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.superexec import run_superexec as superexec_loop
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.superlink.cli.flwr_serverapp import flwr_serverapp
from flwr.supernode import start_client_internal as node_loop
from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

from fedcell.errors import InputError
from fedcell.testbed.network import start

WRITTEN_FOR = "1.41."
FLOWER_MESSAGE_POLL_S = 3.0
"""What a SuperNode sleeps between looks for messages, by which that pause is known."""
FLOWER_REPLY_POLL_S = 0.5
"""What it sleeps between looks for its app's reply."""
REPLY_POLL_S = 0.01
OBJECT_POLL_S = (0.02, 0.2)
APPS: dict[str, Callable[[], None]] = {"flwr-clientapp": flwr_clientapp, "flwr-serverapp": flwr_serverapp}


def require_flower() -> None:
    """Refuse a version of Flower that these patches were not written for."""
    found = version("flwr")
    if not found.startswith(WRITTEN_FOR):
        raise InputError(
            f"Flower is {found}, but the testbed works with {WRITTEN_FOR}x only, which it patches; "
            f"install it with pip install 'flwr[simulation]=={WRITTEN_FOR}*'"
        )


def quick_pulls() -> None:
    """Apply patch 1; for every process of Flower."""
    for pull in (inflatable_utils.pull_objects, inflatable_utils.pull_and_inflate_object_from_tree):
        assert pull.__kwdefaults__ is not None
        pull.__kwdefaults__.update(initial_backoff=OBJECT_POLL_S[0], backoff_cap=OBJECT_POLL_S[1])


def quick_supernode(bell: "Bell", message_poll_s: float) -> None:
    """Apply patch 2, for the process of a SuperNode; the bell is rung when a message has been passed on to the app."""

    def sleep(seconds: float) -> None:
        if seconds == FLOWER_REPLY_POLL_S:  # it has passed a message on, and waits for the app's reply
            bell.ring()
        time.sleep({FLOWER_REPLY_POLL_S: REPLY_POLL_S, FLOWER_MESSAGE_POLL_S: message_poll_s}.get(seconds, seconds))

    vars(node_loop)["time"] = _Clock(sleep)


def quick_superexec(bell: "Bell", log: Path) -> None:
    """Apply patch 3, for the process of a SuperExec, which waits for the bell; its apps' output goes to ``log``."""
    vars(superexec_loop)["time"] = _Clock(bell.wait)
    vars(subprocess_executor)["subprocess"] = _Forks(log)


def call_as_command(name: str, command: Callable[[], object], arguments: list[str]) -> None:
    """Call one of Flower's commands, which read their arguments from sys.argv."""
    sys.argv = [name, *arguments]
    command()


class Bell:
    """A pipe by which a SuperNode's process wakes its SuperExec, once for each reply that it waits for."""

    def __init__(self) -> None:
        self._hear, self._pull = os.pipe2(os.O_NONBLOCK)
        self._rung_s = 0.0

    def ring(self) -> None:
        """Wake the SuperExec, unless this was done for the same reply."""
        if time.monotonic() - self._rung_s > 10 * REPLY_POLL_S:  # a new wait
            os.write(self._pull, b"!")
        self._rung_s = time.monotonic()

    def wait(self, seconds: float) -> None:
        """Return when it is rung, or after so many seconds."""
        if select.select([self._hear], [], [], seconds)[0]:
            os.read(self._hear, 100)

    def close(self) -> None:
        """Close its pipe."""
        os.close(self._hear)
        os.close(self._pull)


class _Clock:
    """Replaces the module ``time`` in one of Flower's modules: another ``sleep``, all else the same."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.sleep = sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _Forks:
    """Replaces the module ``subprocess`` in Flower's executor: its commands are forked instead."""

    DEVNULL = None

    def __init__(self, log: Path) -> None:
        self._log = log

    def Popen(self, command: list[str], **_: Any) -> None:  # noqa: N802
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
        start(partial(call_as_command, command[0], APPS[command[0]], command[1:]), self._log)
