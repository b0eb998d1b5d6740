"""A real browser that notes everything that goes wrong in it, and what the tests read from a page.

Test files that import this are skipped, and say why, where there is no browser.
"""

import shutil
from pathlib import Path
from typing import Any, Self

import pytest

pytest.importorskip("playwright.sync_api", reason="the dashboard's browser tests need playwright (extra test)")
pytest.importorskip("fastapi", reason="the dashboard needs its extra (pip install fedcell[dashboard])")

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, ViewportSize, expect

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
WINDOW: ViewportSize = {"width": 1366, "height": 768}
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
        """Fail if there were any since the last check; what was allowed is so no more."""
        seen = [text for text in self._seen if not any(allowed in text for allowed in self.allowed)]
        self._seen, self.allowed = [], []
        assert not seen, "\n".join(seen)


class Visitor:
    """Someone with a browser window of their own, in which nothing may go wrong until they leave."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.context = browser.new_context(viewport=WINDOW, **options)
        self.context.set_default_timeout(1000 * LIMIT_S)
        self.faults = Faults(self.context)
        self.page = self.context.new_page()

    def begin_again(self, url: str) -> None:
        """As if this were another window: a new one, with its processes and empty caches, costs a second more.

        Args:
            url: the server's, of whose pages nothing is kept.
        """
        for page in self.context.pages:
            if page is not self.page:
                page.close()
        nothing = '<!doctype html><link rel="icon" href="data:,">'
        self.page.route(f"{url}nothing", lambda route: route.fulfill(body=nothing, content_type="text/html"))
        self.page.goto(f"{url}nothing")  # of the same site, so that its next page starts no process
        self.page.unroute_all(behavior="wait")
        self.page.evaluate("() => [localStorage, sessionStorage].forEach((kept) => kept.clear())")
        self.page.emulate_media(media="null", color_scheme="null", reduced_motion="null", forced_colors="null")
        self.page.set_viewport_size(WINDOW)
        self.page.mouse.move(0, 0)
        self.faults.check()

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


def check_with_axe(page: Page, part: str = "html") -> None:
    """axe finds nothing in a part of the page, in either theme.

    Args:
        page: whose other parts another test looks at.
        part: the selector of the part.
    """
    page.evaluate(AXE_SCRIPT)
    for theme, rules in (("light", None), ("dark", ["color-contrast", "link-in-text-block"])):  # what goes by colours
        found = page.evaluate(
            """async ([theme, part, rules]) => {
                document.documentElement.dataset.theme = theme;
                const options = { resultTypes: ["violations"], ...(rules && { runOnly: rules }) };
                const { violations } = await axe.run(part, options);
                return violations.map(({ id, nodes }) => [id, nodes.slice(0, 5).map((node) => node.html)]);
            }""",
            [theme, part, rules],
        )
        assert not found, (theme, found)


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
