"""What the tests of a file share: a server, or a browser, one window of it and a server."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from harness import Served, serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from dashboard.browser import Visitor


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    from dashboard.browser import ARGUMENTS, CHROMIUM

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("serve") / "results.db", "--workers", "1") as server:
        yield server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for the tests of a file that drive no browser."""
    with serve(tmp_path_factory.mktemp("served") / "results.db", "--workers", "2") as served:
        yield served


@pytest.fixture(scope="module")
def finished(server: Served) -> dict[str, Any]:
    """A race that has ended."""
    from dashboard.browser import begin_race

    return server.wait(begin_race(server)["id"], "done")


@pytest.fixture(scope="module")
def window(browser: "Browser") -> "Iterator[Visitor]":
    from dashboard.browser import Visitor

    with Visitor(browser) as visitor:
        yield visitor


@pytest.fixture
def visitor(window: "Visitor", server: Served) -> "Iterator[Visitor]":
    """Each test finds the window empty."""
    yield window
    window.begin_again(server.url)


@pytest.fixture
def page(visitor: "Visitor") -> "Page":
    return visitor.page
