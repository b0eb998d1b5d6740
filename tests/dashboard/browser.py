"""A real browser that notes everything that goes wrong in it, and what the tests read from a page.

Test files that import this are skipped, and say why, where there is no browser.
"""

import shutil
from pathlib import Path
from typing import Any, Self

import pytest

pytest.importorskip("playwright.sync_api", reason="the dashboard's browser tests need playwright (extra test)")
pytest.importorskip("fastapi", reason="the dashboard needs its extra (pip install fedcell[dashboard])")

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect

from harness import LIMIT_S, Served

ROOT = Path(__file__).parents[2]
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
if not CHROMIUM:
    pytest.skip(
        "no Chromium or Chrome is installed, so the dashboard is not tested in a browser", allow_module_level=True
    )
expect.set_options(timeout=1000 * LIMIT_S)
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


def state(page: Page, name: str) -> None:
    """The race that is shown comes to this state."""
    expect(page.locator(".race-head .pill")).to_have_attribute("data-state", name)


def digits(value: float, count: int) -> str:
    """So many significant digits, as the page shows a number."""
    return f"{value:.{count}g}"


def cell(mean: dict[str, Any], scale: float = 1.0, digits: int = 2) -> str:
    """A mean and half its interval, as the page's tables show them."""
    half = "" if mean["half"] is None else f" ± {scale * mean['half']:.{digits}f}"
    return f"{scale * mean['mean']:.{digits}f}{half}"
