"""The race page in a real browser, over a real server; any error or warning in its console is a failure."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dashboard.browser")  # which says why where there is no browser

from playwright.sync_api import Browser, Page, Route, expect

from dashboard.browser import Visitor, begin_race, cell, digits, state
from harness import TINY, Served, serve

pytestmark = pytest.mark.browser
LONG = {"spec": {"budget_s": 3000.0}, "policies": ["greedy", "random:k=8"], "seeds": 3}


@pytest.fixture
def long_races(server: Served) -> Iterator[list[str]]:
    """Two races that last longer than the test; one waits."""
    races = [begin_race(server, **LONG)["id"] for _ in range(2)]
    yield races
    for race in server.get("/api/races")["races"]:
        if race["id"] in races and race["state"] in ("queued", "running", "paused"):
            server.post(f"/api/races/{race['id']}/stop")
    for race in server.get("/api/races")["races"]:
        if race["id"] in races:
            server.wait(race["id"], "stopped")


def test_a_race_is_started_and_its_curves_reach_the_end(server: Served, page: Page) -> None:
    page.goto(server.url)
    for policy in (
        "auto",
        "diverse",
        "optimal",
        "deadline:seconds=8",
        "deadline:seconds=25",
        "proportional_fair:k=8",
    ):
        page.get_by_role("button", name=f"Remove {policy}", exact=True).click()
    page.get_by_label("budget, s").fill("70")
    page.get_by_label("seeds").fill("2")
    page.get_by_role("button", name="Start race").click()
    state(page, "done")
    race = server.get("/api/races")["races"][0]
    assert [policy["line"] for policy in race["policies"]] == ["greedy", "random:k=8"]
    assert race["spec"]["budget_s"] == 70.0
    curves = server.get(f"/api/races/{race['id']}/curves")
    for row in curves["table"]:
        shown = [cell(row["best"], 100), cell(row["last"], 100), reached(row["time_to_target"])]
        shown += [cell(row["devices"]), cell(row["round_s"]), cell(row["rounds"], 1, 1)]
        expect(page.locator(f".race-card tr[data-policy='{row['policy']}'] td")).to_have_text(shown)
    right = page.locator(".race-card .axis").get_attribute("x2")
    # A curve's last step is at the end of the budget, once the page has drawn the last curves.
    page.wait_for_function(
        "right => [...document.querySelectorAll('.race-card path.line')]"
        ".every((path) => Math.abs(path.getPointAtLength(1e9).x - right) < 1)",
        arg=float(right or 0),
    )
    assert page.locator(".race-card path.line").count() == 2
    assert page.locator(".race-card path.seed").count() == 4  # of two seeds no band says anything
    assert page.locator(".race-card path.band").count() == 0


def test_runs_that_failed_and_seeds_that_diverged_are_told(server: Served, page: Page) -> None:
    spec = {"rounds": 2, "devices": {"count": 4}, "task": {"hidden": [4], "learning_rate": 1e30}}
    race = begin_race(server, spec=spec, policies=["all", "random:k=9"], seeds=2)
    server.wait(race["id"], "done")
    page.goto(f"{server.url}#race/{race['id']}")
    for policy, words in (("all", "diverged: 2 of 2 seeds"), ("random:k=9", "failed: 2 runs")):
        expect(page.locator(f".race-card tr[data-policy='{policy}'] .trouble")).to_have_text(words)
    page.goto(f"{server.url}#results?keys={','.join(run['key'] for run in race['runs'])}")
    comparison = page.get_by_role("region", name="Comparison")
    expect(comparison.locator("tr[data-policy='random:k=9'] .trouble")).to_have_text("failed: 2 runs")
    for run in race["runs"]:
        words = "1, diverged" if run["policy"] == "all" else "failed"
        expect(page.locator(f"tr[data-key='{run['key']}'] td").nth(4)).to_have_text(words)


def test_work_and_uploads_are_told_where_policies_differ_in_them(server: Served, page: Page) -> None:
    race = server.post("/api/races", {"spec": TINY, "policies": ["auto", "all"], "seeds": 1})
    server.wait(race["id"], "done")
    page.goto(f"{server.url}#race/{race['id']}")
    table = page.locator("table", has=page.locator("caption", has_text="Work and uploads"))
    row = {one["policy"]: one for one in server.get(f"/api/races/{race['id']}/curves")["table"]}["auto"]
    told = [digits(row[name]["mean"], 3) for name in ("epochs", "bits")]
    expect(table.locator("tr[data-policy=auto] td")).to_have_text([*told, re.compile("B$|bytes$")])
    expect(table.locator("tr[data-policy=all] td").nth(0)).to_have_text("1")
    other = server.post("/api/races", {"spec": TINY, "policies": ["all", "random:k=2"], "seeds": 1})
    server.wait(other["id"], "done")
    page.goto(f"{server.url}#race/{other['id']}")
    expect(page.locator("tr[data-policy='random:k=2']").first).to_be_visible()
    expect(table).to_have_count(0)


def test_the_form_has_what_diverse_and_the_radio_need(server: Served, page: Page) -> None:
    page.goto(server.url)
    form = page.get_by_role("form", name="New race")
    form.locator(".chip button").first.wait_for()
    while form.locator(".chip button").count():
        form.locator(".chip button").first.click()
    form.get_by_label("Policy to add").select_option("diverse")
    form.locator(".settings [name=memory]").fill("0")
    form.get_by_role("button", name="Add").click()
    for label, value in (("budget, s", "30"), ("seeds", "1"), ("epochs", "0.1"), ("epsilon", "8"), ("slack", "2")):
        form.get_by_label(label).fill(value)
    form.get_by_label("SNR error, dB").fill("3")
    form.get_by_label("availability").fill("daynight:there=0.8,day_s=600")
    form.get_by_label("aggregator").fill("fedavgm:beta=0.5,weights=balanced")
    form.get_by_label("profiles").select_option("labels")
    form.get_by_label("link law").select_option("blocks")
    form.get_by_label("resource blocks", exact=True).fill("6")
    form.get_by_role("button", name="Start race").click()
    told = ["law blocks:count=6", "profiles labels", "epsilon 8", "epochs 0.1", "SNR error 3 dB"]
    for words in (*told, "slack 2", "aggregator fedavgm:beta=0.5,weights=balanced"):
        expect(page.locator(".race-head .race-spec")).to_contain_text(words)
    state(page, "done")
    race = server.get("/api/races")["races"][0]
    assert [policy["line"] for policy in race["policies"]] == ["diverse:memory=0"]
    assert race["spec"]["cell"]["law"] == "blocks:count=6"
    assert (race["spec"]["profiles"], race["spec"]["epsilon"]) == ("labels", 8.0)
    task = race["spec"]["task"]
    assert (task["aggregator"], task["epochs"]) == ("fedavgm:beta=0.5,weights=balanced", 0.1)
    assert (race["spec"]["slack"], race["spec"]["cell"]["csi_error_db"]) == (2.0, 3.0)
    assert race["spec"]["devices"]["availability"] == "daynight:there=0.8,day_s=600"
    form.get_by_label("epsilon").fill("")
    form.get_by_label("link law").select_option("density")
    form.get_by_label("aggregator").fill("mean:late=0.5")
    form.get_by_role("button", name="Start race").click()
    expect(page.locator(".race-head .race-spec")).not_to_contain_text("epsilon")
    expect(page.locator(".race-head .race-spec")).to_contain_text("aggregator mean:late=0.5")
    race = server.get("/api/races")["races"][0]
    assert (race["spec"]["epsilon"], race["spec"]["task"]["aggregator"]) == (None, "mean:late=0.5")


def reached(time: dict[str, Any]) -> str:
    when = "never" if time["median_s"] is None else f"{time['median_s']:.0f} s"
    return when if time["reached"] == time["n"] else f"{when} ({time['reached']}/{time['n']})"


def test_two_browsers_see_the_same_race_paused_reloaded_stopped(
    server: Served, long_races: list[str], browser: Browser, page: Page
) -> None:
    with Visitor(browser) as second:
        second.faults.allowed = ["404"]  # it may ask for the curves at the very moment that the other forgets the race
        race = long_races[0]
        for one in (page, second.page):
            one.goto(f"{server.url}#race/{race}")
            state(one, "running")
            one.locator(".race-card path.line[d^=M]").first.wait_for()
        tables = second.page.locator(".race-card .tables")
        expect(tables.locator("caption").first).to_contain_text("so far, at")
        expect(tables).to_contain_text("not yet")
        expect(tables).not_to_contain_text("never")
        page.get_by_role("link", name="Look into rounds").click()  # of the race under way
        page.locator("[data-row=A] .bar").first.wait_for()
        page.go_back()
        page.get_by_role("button", name="Pause").click()
        for one in (page, second.page):
            state(one, "paused")
        heads = page.locator(".race-card .head[visibility=visible]")
        expect(heads).to_have_count(2)
        places = heads.evaluate_all("heads => heads.map((head) => head.getAttribute('transform').split(/[( ]/)[1])")
        assert len(set(places)) == 1  # nobody is shown ahead of the others
        second.page.locator("body").press("Space")  # the same by keyboard
        for one in (page, second.page):
            state(one, "running")
        page.reload()
        state(page, "running")
        assert page.url.endswith(f"#race/{race}")
        page.locator(".race-card path.line[d^=M]").first.wait_for()
        second.page.locator(".race-head").get_by_role("button", name="Stop").click()
        for one in (page, second.page):
            state(one, "stopped")
            expect(one.locator(".race-head").get_by_role("button", name="Resume")).to_be_visible()
        page.locator(f"[data-race='{race}']").get_by_role("button", name="Forget").click()
        for one in (page, second.page):
            expect(one.locator(f"[data-race='{race}']")).to_have_count(0)


def test_a_queued_race_can_be_cancelled(server: Served, long_races: list[str], page: Page) -> None:
    first, second = long_races
    page.goto(f"{server.url}#race/{first}")
    entry = page.locator(f"[data-race='{second}']")
    expect(entry.locator(".pill")).to_have_text(re.compile("queued"))
    entry.get_by_role("button", name="Cancel").click()
    expect(entry.locator(".pill")).to_have_text("stopped")


def test_what_the_server_refuses_is_said_at_the_form_and_a_busy_one_is_asked_again(
    server: Served, visitor: Visitor
) -> None:
    visitor.faults.allowed = ["422", "503"]
    page = visitor.page
    page.set_viewport_size({"width": 1280, "height": 720})
    busy = [True]

    def answer(route: Route) -> None:
        if busy:
            route.fulfill(status=503, json={"detail": "the server has more to do than it can"})
        else:
            route.continue_()

    page.route("**/api/info", answer)
    page.goto(server.url)
    expect(page.locator("#connection")).to_contain_text("busy")
    busy.clear()
    page.get_by_label("mobility").fill("teleport")
    expect(page.locator("#connection")).to_be_hidden()
    button = page.get_by_role("button", name="Start race")
    button.click()
    error = page.locator("form .error")
    expect(error).to_contain_text("teleport")
    expect(error).to_be_in_viewport(ratio=1)
    foot, body = (page.locator(f".form-{part}").bounding_box() for part in ("foot", "body"))
    assert foot is not None
    assert body is not None
    assert foot["y"] >= body["y"] + body["height"]  # the button lies on nothing
    page.locator(".form").get_by_role("button", name="Add").scroll_into_view_if_needed()
    expect(page.locator(".form").get_by_role("button", name="Add")).to_be_in_viewport(ratio=1)
    page.unroute_all(behavior="wait")


def test_seven_tabs_do_not_freeze_each_other(server: Served, finished: dict[str, Any], visitor: Visitor) -> None:
    pages = [visitor.page, *(visitor.context.new_page() for _ in range(6))]  # a browser has six connections to a server
    for page in pages:
        page.goto(f"{server.url}#race/{finished['id']}")
    for page in pages:
        state(page, "done")
    race = begin_race(server)["id"]  # its runs are stored already
    for page in pages:  # all hear of it
        expect(page.locator(f"[data-race='{race}'] .pill")).to_have_text("done")


def begun(race: dict[str, Any]) -> set[str]:
    """The policies that have a curve to draw."""
    return {run["policy"] for run in race["runs"] if (run["rounds"] or 0) > 2}


def test_a_server_without_runs_says_what_to_do_and_a_killed_one_offers_to_resume(
    visitor: Visitor, tmp_path: Path
) -> None:
    visitor.faults.allowed = [
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY_RESPONSE",
    ]
    with serve(tmp_path / "results.db", "--workers", "1") as server:
        visitor.page.goto(f"{server.url}#results")
        expect(visitor.page.get_by_role("region", name="Runs", exact=True)).to_contain_text("fedcell sweep")
        visitor.page.goto(f"{server.url}#cell")
        expect(visitor.page.locator("#page-cell")).to_contain_text("No runs yet")
        visitor.page.goto(f"{server.url}#race")
        expect(visitor.page.locator("#page-race")).to_contain_text("press Start race")
        race = begin_race(server, spec={"rounds": 4000, "task": {"hidden": [4], "sizes": [300] * 20}}, seeds=1)["id"]
        server.until(f"/api/races/{race}", lambda found: len(begun(found)) == 2)
        server.post(f"/api/races/{race}/pause")
        visitor.page.locator(".race-card path.line[d^=M]").first.wait_for()
        state(visitor.page, "paused")
        server.kill()
        expect(visitor.page.locator("#connection")).to_contain_text("does not answer")
        visitor.page.evaluate("window.notReloaded = true")
    with serve(
        tmp_path / "results.db", "--workers", "1", "--port", str(server.port)
    ) as again:  # the page comes back by itself
        state(visitor.page, "interrupted")
        expect(visitor.page.locator("#connection")).to_be_hidden()
        assert visitor.page.evaluate("window.notReloaded")
        rounds = [run["rounds"] for run in again.get(f"/api/races/{race}")["runs"]]
        visitor.page.locator(".race-head").get_by_role("button", name="Resume").click()
        state(visitor.page, "running")
        again.until(f"/api/races/{race}", lambda found: [run["rounds"] for run in found["runs"]] > rounds)
        again.post(f"/api/races/{race}/stop")
        state(visitor.page, "stopped")  # it hears of the new server's races
        visitor.page.goto("about:blank")  # a page left open would complain that the server ends
