"""Flower itself, on loopback: a SuperLink, SuperNodes and `flwr`, each a process of the harness."""

import json
import os
import re
import socket
import sys
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import STDOUT
from time import monotonic
from typing import Any, Self

import psutil  # type: ignore[import-untyped]

from flower.keys import make_certificates, make_node_key
from flower.zygote import READY, write_commands
from harness import LIMIT_S, Process, free_port, run, wait_until

TAIL_CHARACTERS = 3000
BIN = Path(sys.executable).parent
RAY_BACKEND = "flwr.server.superlink.fleet.vce.backend.raybackend"
LINK, ZYGOTE = "superlink", "zygote"


@dataclass
class Deployment:
    """A SuperLink and its SuperNodes in a folder of their own.

    Attributes:
        folder: for keys, logs, the database and FLWR_HOME.
        simulation: the SuperLink runs the simulation engine (without TLS, for nobody connects to it).
        nodes: by the name we gave a SuperNode, the id the SuperLink gave it.
        cold: each process of Flower's starts from nothing, rather than from the zygote.
        pace_s: how long a round takes on this machine as busy as it is; a test may measure it.
    """

    folder: Path
    simulation: bool = False
    cold: bool = False
    nodes: dict[str, int] = field(default_factory=dict)
    pace_s: float = 15.0
    _started: dict[str, Process] = field(default_factory=dict)
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
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }
        self._bin = BIN

    # --- processes -------------------------------------------------------------------------------------------------

    def start(self, name: str, command: list[str], env: Mapping[str, str] | None = None, *, cold: bool = False) -> None:
        """Start a process; what it says goes to its log. ``cold``: it and all that it starts, from nothing."""
        found = BIN if cold else self._bin
        whole_env = self._env | {"PATH": f"{found}{os.pathsep}{os.environ.get('PATH', '')}"} | dict(env or {})
        with self.log_path(name).open("ab") as log:
            words = [str(found / command[0]), *command[1:]]
            self._started[name] = Process(*words, env=whole_env, stdout=log, stderr=STDOUT, cwd=self.folder)

    def _start_zygote(self) -> None:
        address, self._bin = uuid.uuid4().hex, self.folder / "bin"
        write_commands(self._bin, address)
        engine = [RAY_BACKEND] if self.simulation else []
        self.start(ZYGOTE, [sys.executable, str(Path(__file__).with_name("zygote.py")), address, *engine])
        self.wait_for("the zygote", lambda: READY in self.log(ZYGOTE), alive=ZYGOTE)

    def _start_ray(self) -> None:
        """Start what each run of the engine starts for itself where there is none.

        Ray gives its own processes 30 s, too few on a very busy machine: then it ends, and is started again.
        """
        started = "ray.init('local', include_dashboard=False).address_info['gcs_address']"
        code = f"import ray, signal; print('address', {started}); signal.pause()"
        give_up_s = monotonic() + 2 * LIMIT_S
        while True:
            self.start("ray", [sys.executable, "-c", code])
            said = self.wait_for(
                "Ray", lambda: re.search(r"^address (\S+)$", self.log("ray"), re.M) or self.ended("ray")
            )
            if said is not True:  # it has not ended
                break
            assert monotonic() < give_up_s, self.log("ray")
            self.kill("ray")  # what it had started
        self._env["RAY_ADDRESS"] = said[1]

    def kill(self, name: str) -> None:
        """SIGKILL for a process and all that it started, and wait until none is left."""
        self._started[name].end()

    def processes(self, name: str) -> list[psutil.Process]:
        """A process and all that it started, as far as they live."""
        return self._started[name].living()

    def pid(self, name: str) -> int:
        """Its process id."""
        return self._started[name].pid

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.push(self)
            if not self.cold and sys.platform == "linux":
                self._start_zygote()
            if self.simulation:
                self._start_ray()
            undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End everything."""
        if kind is not None:
            for name, tail in self.tails().items():
                print(f"----- {name}\n{tail}")
        for process in self._started.values():
            process.end()

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

    def wait_for(
        self, what: str, condition: Callable[[], Any], within_s: float = LIMIT_S, *, alive: str | None = None
    ) -> Any:
        """What the condition gives once it holds; a failure when it does not in time, or when ``alive`` has ended."""
        if alive is None:
            return wait_until(condition, what, within_s)
        return self._started[alive].wait_for(condition, what, within_s)

    # --- Flower ----------------------------------------------------------------------------------------------------

    def start_superlink(self, within_s: float = LIMIT_S, *, cold: bool = False) -> None:
        """Start the SuperLink (again), and wait until it answers."""
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self._port)]
        command += ["--database", str(self.folder / "superlink.db")]
        if self.simulation:
            command += ["--insecure", "--simulation"]
        else:
            command += ["--ssl-ca-certfile", str(self.folder / "ca.pem"), "--enable-supernode-auth"]
            command += ["--ssl-certfile", str(self.folder / "server.pem")]
            command += ["--ssl-keyfile", str(self.folder / "server.key")]
        self.start(LINK, command, cold=cold)
        self.wait_for("the SuperLink to listen", self._listens, within_s, alive=LINK)

    def _listens(self) -> bool:
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self._port)) == 0

    def flwr(self, *arguments: str, within_s: float = LIMIT_S) -> dict[str, Any]:
        """Run a command of `flwr` that answers in JSON."""
        done = run(self._bin / "flwr", *arguments, "--format", "json", env=self._env, cwd=self.folder, limit_s=within_s)
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

    def start_node(self, name: str, config: str, env: Mapping[str, str] | None = None, *, cold: bool = False) -> None:
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
            cold=cold,
        )

    def connected(self, name: str) -> bool:
        """Whether a SuperNode has been let in."""
        return f"SuperNode ID: {self.nodes[name]}" in self.log(name)

    def has_sent(self, name: str) -> bool:
        """Whether a SuperNode has answered a message."""
        return "Sent successfully" in self.log(name)

    def ended(self, name: str) -> bool:
        """Whether a process has ended by itself."""
        return self._started[name].ended

    def listed(self) -> dict[int, str]:
        """The SuperNodes that the SuperLink knows, and whether each is online."""
        return {int(node["node-id"]): node["status"] for node in self.flwr("supernode", "list", "test")["nodes"]}

    def submit(self, name: str, app: Path, config: str = "", *options: str) -> None:
        """Start ``flwr run --stream``; its process and its log have the name, and it ends when the run does."""
        self.start(name, ["flwr", "run", str(app), "test", "--stream", "--run-config", config, *options])

    def finish(self, name: str, within_s: float) -> str:
        """Wait until the run has ended well, and return its log."""
        status = self._started[name].finish(within_s).returncode
        log = self.log(name)
        assert status == 0, f"the run {name} failed (status {status})"
        assert "Traceback" not in log, f"the run {name} failed"
        return log
