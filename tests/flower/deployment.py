"""Flower itself, on loopback: a SuperLink, SuperNodes and `flwr`, each a process that is ended by its id.

Every process we start, and what it starts in turn, carries a mark in its environment. So none is missed at the end,
even one that has changed its process group or outlived its parent, and none that is not ours is touched.
"""

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil  # type: ignore[import-untyped]

from flower.keys import make_certificates, make_node_key

MARK = "FEDCELL_TEST_PROCESS"
TAIL_CHARACTERS = 3000
BIN = Path(sys.executable).parent
LINK = "superlink"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Deployment:
    """A SuperLink and its SuperNodes in a folder of their own.

    Attributes:
        folder: for keys, logs, the database and FLWR_HOME.
        simulation: the SuperLink runs the simulation engine (without TLS, for nobody connects to it).
        nodes: by the name we gave a SuperNode, the id the SuperLink gave it.
        pace_s: how long a round takes on this machine as busy as it is; a test may measure it.
    """

    folder: Path
    simulation: bool = False
    nodes: dict[str, int] = field(default_factory=dict)
    pace_s: float = 15.0
    _mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    _started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        home = self.folder / "flwr-home"
        home.mkdir()
        make_certificates(self.folder)
        trust = "insecure = true" if self.simulation else f'root-certificates = "{self.folder / "ca.pem"}"'
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{self._port}"\n{trust}\n'
        )
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(("FLWR_", "RAY_"))} | {
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }

    # --- processes -------------------------------------------------------------------------------------------------

    def start(self, name: str, command: list[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a process; what it says goes to its log."""
        with self.log_path(name).open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env={**self._env, **(env or {}), MARK: f"{self._mark} {name}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )
        self._started[name] = process
        return process

    def living(self, name: str | None = None) -> list[psutil.Process]:
        """The processes that we started and what these started in turn, of one name or all, that have not ended."""
        found = []
        for process in psutil.process_iter():
            try:
                mark, _, known = process.environ().get(MARK, "").partition(" ")
                if mark == self._mark and name in (None, known) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue  # it is gone, or nobody's of ours
        return found

    def kill(self, name: str | None = None) -> None:
        """SIGKILL for a process and all that it started (or for all of all), and wait until none is left."""

        def none_left() -> bool:
            processes = self.living(name)
            for process in processes:  # again and again: one may start another meanwhile
                with suppress(psutil.NoSuchProcess):
                    process.kill()  # psutil sees to it that its id is not another's by now
            return not processes

        wait_until(none_left, "the killed processes to be gone", 30.0)
        for known, started in self._started.items():
            if name in (None, known):
                started.wait(timeout=30.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End everything."""
        if kind is not None:
            for name, tail in self.tails().items():
                print(f"----- {name}\n{tail}")
        self.kill()

    # --- logs ------------------------------------------------------------------------------------------------------

    def log_path(self, name: str) -> Path:
        """Where a process writes."""
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        """What a process has written."""
        path = self.log_path(name)
        return path.read_text(errors="replace") if path.exists() else ""

    def tails(self) -> dict[str, str]:
        """The end of every log."""
        return {path.stem: path.read_text(errors="replace")[-TAIL_CHARACTERS:] for path in self.folder.glob("*.log")}

    def wait_for(self, what: str, condition: Callable[[], Any], within_s: float, *, alive: str | None = None) -> None:
        """Wait until the condition holds; give up when it does not in time, or when ``alive`` has ended."""

        def holds() -> bool:
            if condition():
                return True
            if alive is not None and (status := self._started[alive].poll()) is not None:
                raise AssertionError(f"{alive} ended with status {status} while a test awaited {what}")
            return False

        wait_until(holds, what, within_s)

    # --- Flower ----------------------------------------------------------------------------------------------------

    def start_superlink(self, within_s: float = 60.0) -> None:
        """Start the SuperLink (again), and wait until it answers."""
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self._port)]
        command += ["--database", str(self.folder / "superlink.db")]
        if self.simulation:
            command += ["--insecure", "--simulation"]
        else:
            command += ["--ssl-ca-certfile", str(self.folder / "ca.pem"), "--enable-supernode-auth"]
            command += ["--ssl-certfile", str(self.folder / "server.pem")]
            command += ["--ssl-keyfile", str(self.folder / "server.key")]
        self.start(LINK, command)
        self.wait_for("the SuperLink to listen", self._listens, within_s, alive=LINK)

    def _listens(self) -> bool:
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self._port)) == 0

    def flwr(self, *arguments: str, within_s: float = 60.0) -> dict[str, Any]:
        """Run a command of `flwr` that answers in JSON."""
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments, "--format", "json"],
            env={**self._env, MARK: f"{self._mark} flwr"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within_s,
            cwd=self.folder,
            check=False,
        )
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"flwr {' '.join(arguments)} said: {done.stdout}{done.stderr}") from None
        assert answer.get("success"), f"flwr {' '.join(arguments)} said: {answer}"
        return answer

    def register(self, *names: str) -> None:
        """Make keys for SuperNodes, and make them known to the SuperLink."""

        def register_one(name: str) -> int:
            make_node_key(self.folder / name)
            return int(self.flwr("supernode", "register", str(self.folder / f"{name}.pub"), "test")["node-id"])

        with ThreadPoolExecutor(2) as pool:  # each is a second of imports
            self.nodes |= zip(names, pool.map(register_one, names), strict=True)

    def unregister(self, name: str) -> None:
        """Tell the SuperLink that a SuperNode will not come back."""
        self.flwr("supernode", "unregister", str(self.nodes[name]), "test")

    def start_node(self, name: str, config: str, env: Mapping[str, str] | None = None) -> None:
        """Start a SuperNode with the key of its name."""
        if not (self.folder / name).exists():
            make_node_key(self.folder / name)
        self.start(
            name,
            [
                *("flower-supernode", "--superlink", f"127.0.0.1:{self._port}"),
                *("--root-certificates", str(self.folder / "ca.pem")),
                *("--auth-supernode-private-key", str(self.folder / name)),
                *("--host", "127.0.0.1", "--port", str(free_port()), "--node-config", config),
            ],
            env,
        )

    def connected(self, name: str) -> bool:
        """Whether a SuperNode has been let in."""
        return f"SuperNode ID: {self.nodes[name]}" in self.log(name)

    def has_sent(self, name: str) -> bool:
        """Whether a SuperNode has answered a message."""
        return "Sent successfully" in self.log(name)

    def ended(self, name: str) -> bool:
        """Whether a process has ended by itself."""
        return self._started[name].poll() is not None

    def listed(self) -> dict[int, str]:
        """The SuperNodes that the SuperLink knows, and whether each is online."""
        return {int(node["node-id"]): node["status"] for node in self.flwr("supernode", "list", "test")["nodes"]}

    def submit(self, name: str, app: Path, config: str = "", *options: str) -> None:
        """Start ``flwr run --stream``; its process and its log have the name, and it ends when the run does."""
        self.start(name, ["flwr", "run", str(app), "test", "--stream", "--run-config", config, *options])

    def finish(self, name: str, within_s: float) -> str:
        """Wait until the run has ended well, and return its log."""
        process = self._started[name]
        self.wait_for(f"the run {name} to end", lambda: self.ended(name), within_s)
        log = self.log(name)
        failed = process.returncode != 0 or "Traceback" in log
        assert not failed, f"the run {name} failed (status {process.returncode})"
        return log


def wait_until(condition: Callable[[], Any], what: str, within_s: float) -> None:
    """Wait, but not for ever."""
    give_up_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"waited {within_s:g} s in vain for {what}")
        time.sleep(0.1)
