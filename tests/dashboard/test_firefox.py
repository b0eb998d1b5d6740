"""The page in Firefox as Debian has it, by its own protocol (WebDriver BiDi): Playwright would need another Firefox."""

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.shown import RACE, fill
from fedcell.runs.store import Store
from harness import LIMIT_S, Process, serve, wait_until

FIREFOX = next((path for name in ("firefox-esr", "firefox") if (path := shutil.which(name))), "")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not FIREFOX, reason="no Firefox is installed, so the dashboard is not tested in it"),
]
ONE_PROCESS = 'user_pref("dom.ipc.processPrelaunch.enabled", false);\nuser_pref("fission.autostart", false);\n'
"""Eight processes, of which we use one, cost a second and a half."""


class Tab:
    """One tab of a Firefox.

    Attributes:
        faults: errors and warnings of its console.
    """

    def __init__(self, socket: Any) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.faults: list[str] = []
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded"])
        self._context = self._ask("browsingContext.getTree")["contexts"][0]["context"]

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            told = json.loads(self._socket.recv(timeout=LIMIT_S))
            entry = told.get("params", {})
            if told.get("method") == "log.entryAdded" and entry["level"] in ("error", "warn"):
                self.faults.append(str(entry["text"]))
            if told.get("id") == number:
                assert told["type"] == "success", told
                return dict(told["result"])

    def go(self, url: str) -> None:
        """Open an address."""
        self._ask("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def read(self, expression: str) -> Any:
        """The value of a JavaScript expression: a number, a text or a truth."""
        target = {"context": self._context}
        answer = self._ask("script.evaluate", expression=expression, target=target, awaitPromise=True)
        assert answer["type"] == "success", answer
        return answer["result"].get("value")

    def until(self, expression: str, wanted: Any) -> None:
        """Wait until the expression has this value."""
        wait_until(lambda: self.read(expression) == wanted, f"{expression} to be {wanted!r}")


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    pytest.importorskip("fastapi", reason="the dashboard needs its extra (pip install fedcell[dashboard])")
    client = pytest.importorskip("websockets.sync.client", reason="Firefox is spoken to by websockets")
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "user.js").write_text(ONE_PROCESS)
    arguments = ("--headless", "--no-remote", "--profile", tmp_path / "profile", "--remote-debugging-port", "0")
    with Process(FIREFOX, *arguments, "about:blank") as firefox:
        pattern = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
        found = firefox.wait_for(lambda: pattern.search(firefox.err), "Firefox's address")
        assert found is not None
        with client.connect(f"{found[1]}/session", max_size=2**24) as socket:
            yield Tab(socket)


def count(selector: str) -> str:
    return f"document.querySelectorAll({json.dumps(selector)}).length"


def test_the_pages_work_in_firefox(tab: Tab, tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        fill(store)
    with serve(tmp_path / "results.db") as server:
        tab.go(f"{server.url}#race/{RACE}")
        tab.until(count(".race-card path.line[d^=M]"), 3)
        assert "sooner than greedy" in tab.read("document.querySelector('.headline').textContent")
        # As by hand, with its event: else the page may choose the speed again, and the replay takes 16 seconds.
        tab.read("speed = document.querySelector('.replay select'); speed.value = '1000'")
        tab.read("speed.dispatchEvent(new Event('change')); document.querySelector('.replay .play').click()")
        tab.until("document.querySelector('.replay .place').textContent", "160 s of 160 s")
        tab.read("document.querySelector('.race-more [data-action=command]').click()")
        tab.until(count("dialog[open] pre"), 2)
        tab.go(f"{server.url}#plan")
        tab.until(f"{count('.multiples .bar')} > 9", True)
        tab.until(f"{count('.plan-map .device')} > 9", True)
        tab.go(f"{server.url}#cell")
        tab.until(f"{count('[data-row=A] .bar')} > 0", True)
        tab.go(f"{server.url}#results")
        tab.until(f"{count('.runs tbody tr')} > 9", True)
        page = tmp_path / "race.html"
        page.write_bytes(server.http.get(f"/api/races/{RACE}/page.html").content)
        tab.go(page.as_uri())
        tab.until(count("path.line[d^=M]"), 3)
        assert tab.faults == []
        tab.go("about:blank")
