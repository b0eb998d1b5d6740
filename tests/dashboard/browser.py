"""A real browser that notes everything that goes wrong in it."""

import shutil
from pathlib import Path
from typing import Any, Self

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

from harness import LIMIT_S, Served

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


def begin_race(served: Served, **changes: Any) -> dict[str, Any]:
    """Queue a small race."""
    document = {"spec": {"budget_s": 60.0}, "policies": ["greedy", "random:k=8"], "seeds": 2} | changes
    race: dict[str, Any] = served.post("/api/races", document)
    return race


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


class Visitor:
    """Someone with a browser window of their own, in which nothing may go wrong until they leave."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1366, "height": 768}, **options)
        self.context.set_default_timeout(1000 * LIMIT_S)
        self.faults = Faults(self.context)
        self.page = self.context.new_page()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.context.close()
        if kind is None:
            self.faults.check()


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
