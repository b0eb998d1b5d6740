"""Flower's own parts in the cell's namespaces: a SuperLink, a SuperNode for each device, and TLS.

They are Flower's commands, called with their usual arguments in forked processes. What is changed inside them is all in
flower_patches.py.
"""

import datetime
import ipaddress
import os
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import flwr.superlink.main
import flwr.supernode.main  # noqa: F401
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from flwr.cli.app import app as flwr_command
from flwr.supercore.superexec.run_superexec import run_superexec
from flwr.superlink.cli import flower_superlink
from flwr.supernode.cli import flower_supernode

from fedcell.errors import InputError
from fedcell.testbed.flower_patches import (
    Bell,
    call_as_command,
    quick_pulls,
    quick_superexec,
    quick_supernode,
    require_flower,
)
from fedcell.testbed.network import APP, BASE_ADDRESS, SERVICE, Links, end, ended, inside, start

_VALID = datetime.timedelta(days=2)


def make_certificate(folder: Path, addresses: list[str]) -> tuple[Path, Path]:
    """Write ``certificate.pem``, for a server at these addresses, and ``key.pem`` into a folder; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedcell base station")])
    now = datetime.datetime.now(datetime.UTC)
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(text)) for text in addresses])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
        .add_extension(hosts, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = folder / "certificate.pem", folder / "key.pem"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.touch(mode=0o600)
    private = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    return certificate_path, key_path


# Imported once, and forked with the process; Flower itself imports the first two late.


SERVER_PORT = 8000
NODE_PORT = 9094
START_S = 60.0
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
    """The processes of Flower in one cell; they end with the cell's network, or with ``close``."""

    links: Links
    folder: Path
    node_poll_s: float
    _pids: dict[str, int] = field(default_factory=dict)  # of those that are not known to have ended
    _bells: list[Bell] = field(default_factory=list)

    def start(self) -> None:
        """Start everything; return when all nodes may connect."""
        require_flower()
        (self.folder / "flwr").mkdir()
        certificate, key = make_certificate(self.folder, [BASE_ADDRESS, "127.0.0.1"])
        self._write_app(certificate)
        (self.folder / "tmp").mkdir()
        base, devices = self.links.base, range(self.links.count)
        server = ["--host", "0.0.0.0", "--port", str(SERVER_PORT), "--disable-runtime-dependency-installation"]
        server += ["--isolation", "process", "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)]
        self._start("superlink", base, flower_superlink, [*server, "--ssl-ca-certfile", str(certificate)])
        self._wait_for("superlink", base, BASE_ADDRESS, SERVER_PORT)
        server_bell, *bells = self._bells = [Bell() for _ in range(1 + self.links.count)]
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
        """Run the app with ``flwr run``, with this number in its configuration."""
        arguments = ["run", str(self.folder / "app"), "cell", "--run-config", f"run={run}"]
        name = f"flwr-run-{run}"
        self._start(name, self.links.base, flwr_command, arguments)
        self._until(lambda: self._ended(name), name)
        if "Successfully started run" not in self._log(name).read_text():
            raise self._fault(name, "failed")

    def check(self) -> None:
        """Raise an InputError if one of the server's processes has ended."""
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
        return InputError(f"Flower's {name} {what}{said}; see the full log with --logs DIRECTORY")

    def _call(self, name: str, command: Callable[[], object], arguments: list[str]) -> None:
        """Run one of Flower's commands; called in a new process."""
        os.environ["FLWR_HOME"] = str(self.folder / "flwr")
        tempfile.tempdir = str(self.folder / "tmp")  # apps unpack themselves every time
        quick_pulls()
        call_as_command(name, command, arguments)

    def _supernode(self, bell: Bell) -> None:
        quick_supernode(bell, self.node_poll_s)
        flower_supernode()

    def _superexec(self, app: str, address: str, certificate: Path | None, bell: Bell) -> None:
        quick_superexec(bell, self._log(app))
        root = None if certificate is None else str(certificate)
        run_superexec(runtime_api_address=address, insecure=root is None, root_certificates_path=root)

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
