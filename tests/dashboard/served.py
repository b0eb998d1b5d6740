"""`fedcell serve` in a process of its own, as a user has it, and a client that talks to it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

TINY = {"rounds": 2, "devices": {"count": 4}, "task": {"hidden": [4]}}
"""A race of seconds: each device has 15,000 digits, the model 4 hidden units."""


class Served:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url
        self.port = int(url.rstrip("/").rpartition(":")[2])
        self.http = httpx.Client(base_url=url, timeout=60.0)

    def post(self, path: str, document: Any = None) -> Any:
        """The answer's document; the status must be a success."""
        answer = self.http.post(path, json=document) if document is not None else self.http.post(path)
        assert answer.is_success, answer.text
        return answer.json()

    def get(self, path: str) -> Any:
        """The answer's document; the status must be a success."""
        answer = self.http.get(path)
        assert answer.is_success, answer.text
        return answer.json()

    def wait(self, id: str, *states: str, limit_s: float = 90.0) -> dict[str, Any]:
        """The race, once it is in one of the states."""
        return self.until(f"/api/races/{id}", lambda race: race["state"] in states, limit_s)

    def until(self, path: str, holds: Any, limit_s: float = 90.0) -> dict[str, Any]:
        """The document at a path, once the condition holds."""
        end = time.monotonic() + limit_s
        while not holds(found := self.get(path)):
            assert time.monotonic() < end, f"{path} was still {json.dumps(found)[:500]}"
            time.sleep(0.02)
        return found  # type: ignore[no-any-return]

    def rss_mb(self) -> float:
        """The server's memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def workers(self) -> list[int]:
        """The process ids of the server's workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        found = [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]
        assert children.exists()
        return [pid for pid in found if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]

    def kill(self) -> None:
        """As `kill -9`."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serve(store: Path, *options: str) -> Iterator[Served]:
    """A server on a free port, ended with Ctrl-C; what it says besides its address is a fault."""
    command = [sys.executable, "-m", "fedcell.cli", "serve", str(store), "--no-browser", "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=store.parent, env=dict(os.environ)
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("fedcell dashboard at http://"):
        raise AssertionError(line + process.communicate()[1])
    served = Served(process, line.split()[3])
    try:
        yield served
    finally:
        served.http.close()
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert said == "", said
    assert process.returncode in (0, -signal.SIGKILL)


def read_events(url: str, *, until: str = "end", limit_s: float = 90.0) -> list[tuple[str, Any]]:
    """The events of a stream, up to the first of this name."""
    found: list[tuple[str, Any]] = []
    with httpx.stream("GET", url, timeout=limit_s) as stream:
        assert stream.status_code == 200
        name = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((name, json.loads(line.removeprefix("data: "))))
                if name == until:
                    break
    return found
