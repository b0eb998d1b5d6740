"""A real `fedcell serve` and a real browser that notes everything that goes wrong in it."""

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request

ROOT = Path(__file__).parents[2]
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
ARGUMENTS = [
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WAIT_S = 60.0


class Server:
    """`fedcell serve` on a free port, as a user starts it."""

    def __init__(self, store: Path, *options: str) -> None:
        command = [sys.executable, "-m", "fedcell.cli", "serve", str(store), "--no-browser", "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=store.parent)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, f"fedcell serve printed {line!r}"
        self.url = found[0]

    def ask(self, path: str, body: Any = None) -> Any:
        """The API's answer."""
        headers = {"Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers)) as response:
            return json.load(response)

    def race(self, **changes: Any) -> dict[str, Any]:
        """Queue a small race."""
        document = {"spec": {"budget_s": 60.0}, "policies": ["greedy", "random:k=8"], "seeds": 2} | changes
        race: dict[str, Any] = self.ask("api/races", document)
        return race

    def wait(self, race: str, *states: str) -> dict[str, Any]:
        """Wait until the race is in one of the states."""
        document: dict[str, Any] = until(lambda: self.ask(f"api/races/{race}"), lambda found: found["state"] in states)
        return document

    def end(self) -> None:
        """As Ctrl-C would."""
        self.process.terminate()
        self._reap()

    def kill(self) -> None:
        """As kill -9 would."""
        self.process.kill()
        self._reap()

    def _reap(self) -> None:
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


def until(ask: Callable[[], Any], fits: Callable[[Any], bool]) -> Any:
    """Ask until the answer fits."""
    end = time.monotonic() + WAIT_S
    while not fits(answer := ask()):
        assert time.monotonic() < end, f"still {answer}"
        time.sleep(0.05)
    return answer


class Faults:
    """What a page did wrong: errors and warnings of its console, exceptions, failed requests.

    Attributes:
        allowed: texts that are expected, such as the status of a request that the test wants refused.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.allowed: list[str] = []
        self._seen: list[str] = []
        context.on("console", self._console)
        context.on("weberror", lambda error: self._seen.append(f"exception: {error.error}"))
        context.on("requestfailed", self._failed)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._seen.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the page itself gave it up for a newer one, or was left
            self._seen.append(f"request failed: {request.url}: {request.failure}")

    def check(self) -> None:
        """Fail if there were any."""
        seen = [text for text in self._seen if not any(allowed in text for allowed in self.allowed)]
        assert not seen, "\n".join(seen)


def drop(page: Page, selector: str, name: str, content: str) -> None:
    """Drop a file onto an element."""
    transfer = page.evaluate_handle(
        """([name, content]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([content], name, { type: "text/csv" }));
            return transfer;
        }""",
        [name, content],
    )
    page.dispatch_event(selector, "drop", {"dataTransfer": transfer})


def fedcell(*arguments: str) -> bytes:
    """What the command line prints."""
    command = [sys.executable, "-m", "fedcell.cli", *arguments]
    return subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout
