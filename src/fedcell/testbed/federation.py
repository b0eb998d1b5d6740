"""Flower's own parts in the cell's namespaces: a SuperLink at the base station, a SuperNode at each device, with TLS.

They are Flower's commands, called with their usual arguments in forked processes. Three things are changed, so that a
round of seconds can be watched on two cores:

- an app's process is forked from its SuperExec, which has imported everything, instead of started anew, and the
  SuperExec is woken when its SuperNode has a message (Flower: it looks every 1 s);
- a SuperNode looks for messages as often as it is told (Flower: every 3 s);
- a SuperNode looks for its app's reply every 10 ms (Flower: every 0.5 s), and whoever pulls a message whose parts are
  still on their way looks for them after 20 ms, then less often, down to every 200 ms (Flower: 1 s, down to 10 s).
"""

import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read when Flower is imported
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

# Imported once, and forked with the process; Flower itself imports the first two late.
import flwr.superlink.main
import flwr.supernode.main  # noqa: F401
from flwr.cli.app import app as flwr_command
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.superexec import run_superexec as superexec_loop
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.superlink.cli import flower_superlink
from flwr.superlink.cli.flwr_serverapp import flwr_serverapp
from flwr.supernode import start_client_internal as node_loop
from flwr.supernode.cli import flower_supernode
from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

from fedcell.errors import InputError
from fedcell.testbed.certificates import make_certificate
from fedcell.testbed.network import BASE_ADDRESS, Links
from fedcell.testbed.process import APP, SERVICE, end, ended, inside, start

SERVER_PORT = 8000
NODE_PORT = 9094
START_S = 60.0
REPLY_POLL_S = 0.01
OBJECT_POLL_S = (0.02, 0.2)
APPS: dict[str, Callable[[], None]] = {"flwr-clientapp": flwr_clientapp, "flwr-serverapp": flwr_serverapp}
PROJECT = """\
[project]
name = "fedcell-testbed"
version = "1.0.0"
description = "The paper's task in an emulated cell"
license = "MIT"
dependencies = []

[tool.flwr.app]
publisher = "fedcell"

[tool.flwr.app.components]
serverapp = "fedcell_testbed.parts:server_app"
clientapp = "fedcell_testbed.parts:client_app"

[tool.flwr.app.config]
run = 0
"""
# Flower looks for assignments, without importing.
PARTS = """\
from fedcell.testbed import app

server_app = app.server_app
client_app = app.client_app
"""


@dataclass
class Federation:
    """Flower's processes of one cell; they end with the cell's network, or with ``close``.

    Attributes:
        links: the network.
        folder: for certificates, logs and Flower's own files.
        node_poll_s: how often a SuperNode looks for messages.
    """

    links: Links
    folder: Path
    node_poll_s: float
    _pids: dict[str, int] = field(default_factory=dict)  # of those that are not known to have ended
    _bells: list["_Bell"] = field(default_factory=list)

    def start(self) -> None:
        """Start everything; return when all nodes may connect."""
        (self.folder / "flwr").mkdir()
        certificate, key = make_certificate(self.folder, [BASE_ADDRESS, "127.0.0.1"])
        self._write_app(certificate)
        (self.folder / "tmp").mkdir()
        base, devices = self.links.base, range(self.links.count)
        server = ["--host", "0.0.0.0", "--port", str(SERVER_PORT), "--disable-runtime-dependency-installation"]
        server += ["--isolation", "process", "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)]
        self._start("superlink", base, flower_superlink, [*server, "--ssl-ca-certfile", str(certificate)])
        self._wait_for("superlink", base, BASE_ADDRESS, SERVER_PORT)
        server_bell, *bells = self._bells = [_Bell() for _ in range(1 + self.links.count)]
        server_app = partial(self._superexec, "serverapp", f"127.0.0.1:{SERVER_PORT}", certificate, server_bell)
        self._start("superexec", base, server_app)
        for device in devices:
            node = ["--superlink", f"{BASE_ADDRESS}:{SERVER_PORT}", "--root-certificates", str(certificate)]
            node += ["--isolation", "process", "--host", "127.0.0.1", "--port", str(NODE_PORT)]
            node += ["--node-config", f"partition-id={device}"]
            call = partial(self._supernode, bells[device])
            self._start(f"supernode-{device}", self.links.device(device), call, node)
        for device in devices:
            namespace = self.links.device(device)
            self._wait_for(f"supernode-{device}", namespace, "127.0.0.1", NODE_PORT)
            app = partial(self._superexec, f"clientapp-{device}", f"127.0.0.1:{NODE_PORT}", None, bells[device])
            self._start(f"superexec-{device}", namespace, app)

    def submit(self, run: int) -> None:
        """Have the app run with this number in its configuration, by ``flwr run``."""
        arguments = ["run", str(self.folder / "app"), "cell", "--run-config", f"run={run}"]
        name = f"flwr-run-{run}"
        self._start(name, self.links.base, flwr_command, arguments)
        self._until(lambda: self._ended(name), name)
        if "Successfully started run" not in self._log(name).read_text():
            raise self._fault(name, "failed")

    def check(self) -> None:
        """Refuse to go on where the server's processes have ended."""
        for name in ("superlink", "superexec"):
            if self._ended(name):
                raise self._fault(name, "has ended")

    def close(self) -> None:
        """Kill all processes."""
        for pid in self._pids.values():
            end(pid)
        for bell in self._bells:
            bell.close()

    def _write_app(self, certificate: Path) -> None:
        package = self.folder / "app" / "fedcell_testbed"
        package.mkdir(parents=True)
        (package.parent / "pyproject.toml").write_text(PROJECT)
        (package / "__init__.py").touch()
        (package / "parts.py").write_text(PARTS)
        connection = f'[superlink.cell]\naddress = "{BASE_ADDRESS}:{SERVER_PORT}"\n'
        connection += f'root-certificates = "{certificate}"\n'
        (self.folder / "flwr" / "config.toml").write_text(f'[superlink]\ndefault = "cell"\n\n{connection}')

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _start(
        self, name: str, namespace: str, command: Callable[[], object], arguments: list[str] | None = None
    ) -> None:
        priority = SERVICE if name.startswith(("superlink", "supernode")) else APP
        call = partial(self._call, name, command, arguments or [])
        self._pids[name] = start(call, self._log(name), namespace, priority)

    def _ended(self, name: str) -> bool:
        if name in self._pids and ended(self._pids[name]) is not None:
            del self._pids[name]  # the number may soon be another process's
        return name not in self._pids

    def _fault(self, name: str, what: str) -> InputError:
        lines = [line for line in self._log(name).read_text(errors="replace").splitlines() if line.strip()]
        said = f" and last said {lines[-1].strip()[:200]!r}" if lines else ""
        return InputError(f"Flower's {name} {what}{said}; see all of it with --logs FOLDER")

    def _call(self, name: str, command: Callable[[], object], arguments: list[str]) -> None:
        """In a new process, as Flower's command."""
        os.environ["FLWR_HOME"] = str(self.folder / "flwr")
        tempfile.tempdir = str(self.folder / "tmp")  # apps unpack themselves every time
        for pull in (inflatable_utils.pull_objects, inflatable_utils.pull_and_inflate_object_from_tree):
            assert pull.__kwdefaults__ is not None
            pull.__kwdefaults__.update(initial_backoff=OBJECT_POLL_S[0], backoff_cap=OBJECT_POLL_S[1])
        _as_command(name, command, arguments)

    def _supernode(self, bell: "_Bell") -> None:
        def sleep(seconds: float) -> None:
            if seconds == 0.5:  # it has passed a message on, and waits for the app's reply
                bell.ring()
            time.sleep({0.5: REPLY_POLL_S, 3: self.node_poll_s}.get(seconds, seconds))

        vars(node_loop)["time"] = _Clock(sleep)
        flower_supernode()

    def _superexec(self, app: str, address: str, certificate: Path | None, bell: "_Bell") -> None:
        vars(superexec_loop)["time"] = _Clock(bell.wait)
        vars(subprocess_executor)["subprocess"] = _Forks(self._log(app))
        root = None if certificate is None else str(certificate)
        superexec_loop.run_superexec(runtime_api_address=address, insecure=root is None, root_certificates_path=root)

    def _wait_for(self, name: str, namespace: str, host: str, port: int) -> None:
        def answers() -> bool:
            with inside(namespace), socket.socket() as probe, suppress(OSError):
                probe.settimeout(1.0)
                probe.connect((host, port))
                return True
            return False

        self._until(answers, name)

    def _until(self, done: Callable[[], bool], name: str) -> None:
        give_up_s = time.monotonic() + START_S
        while not done():
            if self._ended(name) and not done():
                raise self._fault(name, "ended before it was ready")
            if time.monotonic() > give_up_s:
                raise self._fault(name, f"was not ready after {START_S:g} s")
            time.sleep(0.02)


def _as_command(name: str, command: Callable[[], object], arguments: list[str]) -> None:
    sys.argv = [name, *arguments]
    command()


class _Clock:
    """Flower's module ``time`` with pauses of our own."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.sleep = sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _Bell:
    """Wakes a SuperExec from its SuperNode's process. Rung while somebody waits for a reply, it is heard once."""

    def __init__(self) -> None:
        self._hear, self._pull = os.pipe2(os.O_NONBLOCK)
        self._rung_s = 0.0

    def ring(self) -> None:
        if time.monotonic() - self._rung_s > 10 * REPLY_POLL_S:  # a new wait
            os.write(self._pull, b"!")
        self._rung_s = time.monotonic()

    def close(self) -> None:
        os.close(self._hear)
        os.close(self._pull)

    def wait(self, seconds: float) -> None:
        if select.select([self._hear], [], [], seconds)[0]:
            os.read(self._hear, 100)


class _Forks:
    """What Flower's executor uses of the module ``subprocess``: its commands are forked instead."""

    DEVNULL = None

    def __init__(self, log: Path) -> None:
        self._log = log

    def Popen(self, command: list[str], **_: Any) -> None:  # noqa: N802
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
        start(partial(_as_command, command[0], APPS[command[0]], command[1:]), self._log)
