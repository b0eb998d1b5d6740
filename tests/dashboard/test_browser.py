"""The dashboard in a real browser, over a real server; any error or warning in its console is a failure."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcell.runs.rows import ROUND_COLUMNS
from fedcell.runs.store import Measured, Store
from fedcell.sim.loop import simulate
from fedcell.sim.spec import Spec

pytest.importorskip("playwright.sync_api", reason="the dashboard's browser tests need playwright (extra test)")
pytest.importorskip("fastapi", reason="the dashboard needs its extra (pip install fedcell[dashboard])")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from dashboard.browser import ARGUMENTS, CHROMIUM, ROOT, Visitor, begin_race, drop
from harness import LIMIT_S, Served, fedcell, serve

if not CHROMIUM:
    pytest.skip(
        "no Chromium or Chrome is installed, so the dashboard is not tested in a browser", allow_module_level=True
    )

pytestmark = pytest.mark.browser
expect.set_options(timeout=1000 * LIMIT_S)
CSV = (ROOT / "examples" / "devices.csv").read_text()
LONG = {"spec": {"budget_s": 3000.0}, "policies": ["greedy", "random:k=8"], "seeds": 3}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("serve") / "results.db") as server:
        yield server


@pytest.fixture(scope="module")
def finished(server: Served) -> dict[str, Any]:
    """A race that has ended."""
    return server.wait(begin_race(server)["id"], "done")


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    with Visitor(browser) as visitor:
        yield visitor


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


@pytest.fixture
def page(visitor: Visitor) -> Page:
    return visitor.page


def state(page: Page, name: str) -> None:
    expect(page.locator(".race-head .pill")).to_have_attribute("data-state", name)


def numbers(page: Page, selector: str) -> list[str]:
    return [text.replace("\xa0", " ").strip() for text in page.locator(selector).all_inner_texts()]


def digits(value: float, count: int) -> str:
    """So many significant digits, as the page shows a number."""
    return f"{value:.{count}g}"


# Race


def test_a_race_is_started_and_its_curves_reach_the_end(server: Served, page: Page) -> None:
    page.goto(server.url)
    for policy in ("diverse", "optimal", "deadline:seconds=8", "deadline:seconds=25", "proportional_fair:k=8"):
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


def test_the_form_has_what_diverse_needs(server: Served, page: Page) -> None:
    page.goto(server.url)
    form = page.get_by_role("form", name="New race")
    while form.locator(".chip button").count():
        form.locator(".chip button").first.click()
    form.get_by_label("Policy to add").select_option("diverse")
    form.locator(".settings [name=memory]").fill("0")
    form.get_by_role("button", name="Add").click()
    for label, value in (("budget, s", "30"), ("seeds", "1"), ("epochs", "0.1"), ("epsilon", "8")):
        form.get_by_label(label).fill(value)
    form.get_by_label("averaging").select_option("balanced")
    form.get_by_label("profiles").select_option("labels")
    form.get_by_role("button", name="Start race").click()
    for words in ("profiles labels", "epsilon 8", "balanced averaging", "0.1 epoch "):
        expect(page.locator(".race-head .race-spec")).to_contain_text(words)
    state(page, "done")
    race = server.get("/api/races")["races"][0]
    assert [policy["line"] for policy in race["policies"]] == ["diverse:memory=0"]
    assert (race["spec"]["profiles"], race["spec"]["epsilon"]) == ("labels", 8.0)
    assert (race["spec"]["task"]["averaging"], race["spec"]["task"]["epochs"]) == ("balanced", 0.1)
    form.get_by_label("epsilon").fill("")
    form.get_by_role("button", name="Start race").click()
    expect(page.locator(".race-head .race-spec")).not_to_contain_text("epsilon")
    assert server.get("/api/races")["races"][0]["spec"]["epsilon"] is None


def cell(mean: dict[str, Any], scale: float = 1.0, digits: int = 2) -> str:
    half = "" if mean["half"] is None else f" ± {scale * mean['half']:.{digits}f}"
    return f"{scale * mean['mean']:.{digits}f}{half}"


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


def test_eight_tabs_do_not_freeze_each_other(server: Served, finished: dict[str, Any], visitor: Visitor) -> None:
    pages = [visitor.page, *(visitor.context.new_page() for _ in range(7))]
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


def test_a_killed_server_offers_to_resume(visitor: Visitor, tmp_path: Path) -> None:
    visitor.faults.allowed = [
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY_RESPONSE",
    ]
    with serve(tmp_path / "results.db") as server:
        race = begin_race(server, spec={"budget_s": 600.0})["id"]
        server.until(f"/api/races/{race}", lambda found: len(begun(found)) == 2)
        server.post(f"/api/races/{race}/pause")  # or it might be done before a slow page has shown it
        visitor.page.goto(f"{server.url}#race/{race}")
        visitor.page.locator(".race-card path.line[d^=M]").first.wait_for()
        state(visitor.page, "paused")
        server.kill()
        expect(visitor.page.locator("#connection")).to_contain_text("does not answer")
        visitor.page.evaluate("window.notReloaded = true")
    with serve(tmp_path / "results.db", "--port", str(server.port)) as again:  # the page comes back by itself
        state(visitor.page, "interrupted")
        expect(visitor.page.locator("#connection")).to_be_hidden()
        assert visitor.page.evaluate("window.notReloaded")
        visitor.page.locator(".race-head").get_by_role("button", name="Resume").click()
        state(visitor.page, "done")
        assert all(run["state"] == "done" for run in again.get(f"/api/races/{race}")["runs"])
        visitor.page.goto("about:blank")  # a page left open would complain that the server ends


# Cell


def test_rounds_are_scrubbed_and_the_numbers_are_the_apis(server: Served, finished: dict[str, Any], page: Page) -> None:
    run = next(run for run in finished["runs"] if run["policy"] == "greedy" and run["seed"] == 1)
    page.goto(f"{server.url}#cell?run={run['key']}")
    expect(page.locator(".place")).to_have_text(f"round 1 of {run['rounds']}")
    slider = page.get_by_role("slider", name="Round")
    slider.focus()
    for _ in range(3):
        slider.press("ArrowRight")
    check_round(page, server.get(f"/api/runs/{run['key']}/rounds/4?sharing=planned"), run["rounds"])
    page.locator(".segmented button", has_text="equal").click()
    check_round(page, server.get(f"/api/runs/{run['key']}/rounds/4?sharing=equal"), run["rounds"])
    page.reload()
    expect(page.locator(".place")).to_have_text(f"round 4 of {run['rounds']}")
    slider.press("End")
    check_round(page, server.get(f"/api/runs/{run['key']}/rounds/{run['rounds']}?sharing=equal"), run["rounds"])


def check_round(page: Page, document: dict[str, Any], rounds: int) -> None:
    row = page.locator("[data-row=A]")
    expect(page.locator(".place")).to_have_text(f"round {document['round']} of {rounds}")
    expect(row.locator("[data-fact=round_s]")).to_have_text(f"{digits(document['round_s'], 4)} s")
    scheduled = [device for device in document["devices"] if device["scheduled"]]
    expect(row.locator(".bar")).to_have_count(len(scheduled))
    expect(row.locator(".device")).to_have_count(len(document["devices"]))
    device = scheduled[-1]
    row.locator(f".map .device[data-device='{device['index']}'] .body").hover()
    facts = row.locator(".facts")
    expect(facts.locator("[data-fact='finishes at'] dd")).to_have_text(f"{digits(device['finish_s'], 4)} s")
    expect(facts.locator("[data-fact='distance'] dd")).to_have_text(f"{digits(device['distance_m'], 4)} m")
    expect(row.locator(f".bar[data-device='{device['index']}']")).to_have_class(re.compile("lit"))


def test_two_policies_side_by_side_by_round_and_by_clock(server: Served, finished: dict[str, Any], page: Page) -> None:
    runs = {run["policy"]: run for run in finished["runs"] if run["seed"] == 0}
    page.goto(f"{server.url}#cell?run={runs['greedy']['key']}&with={runs['random:k=8']['key']}")
    expect(page.locator("[data-row=B] h2")).to_contain_text("random:k=8")
    page.locator(".segmented button", has_text="clock").click()
    page.get_by_role("slider", name="Time").fill("30")
    for row, policy in (("A", "greedy"), ("B", "random:k=8")):
        rows = server.get(f"/api/runs/{runs[policy]['key']}")["rows"]
        under_way = next((row[0] for row in rows if row[1] >= 30), len(rows))
        expect(page.locator(f"[data-row={row}] [data-fact=round]")).to_have_text(f"round {under_way}")
        # Nobody knows yet how the round under way ends.
        known = "not trained yet"
        if under_way > 1:
            accuracy = rows[under_way - 2][ROUND_COLUMNS.index("accuracy")]
            known = f"{100 * accuracy:.2f} % after round {under_way - 1}"
        expect(page.locator(f"[data-row={row}] [data-fact=accuracy]")).to_have_text(known)
    ends = "paths => paths.map((path) => (path.getTotalLength() ? path.getPointAtLength(1e9).x : 0))"
    cursor = float(page.locator(".cell-side .cursor").get_attribute("x1") or 0)
    assert max(page.locator(".cell-side path.line").evaluate_all(ends)) <= cursor + 0.1
    page.locator(".segmented button", has_text="round").click()
    page.get_by_role("slider", name="Round").fill("1")
    page.locator("[data-row=A] .map").focus()
    page.keyboard.press("ArrowRight")
    for row in ("A", "B"):  # the same device in both
        expect(page.locator(f"[data-row={row}] [data-fact=device] dd")).to_have_text("0")
    page.locator("main").press("Space")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    most = max(run["rounds"] for run in runs.values())
    expect(page.locator(".place")).to_have_text(f"round {most} of {most}")  # it plays to the end
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_the_clock_of_a_first_round_begins_after_the_reports(server: Served, page: Page) -> None:
    race = begin_race(server, policies=["diverse"], seeds=1)
    (run,) = server.wait(race["id"], "done")["runs"]
    number, clock_s, round_s, *_ = server.get(f"/api/runs/{run['key']}")["rows"][0]
    equal = server.get(f"/api/runs/{run['key']}/rounds/{number}?sharing=equal")
    at = int(clock_s)
    assert clock_s - round_s > 0.1
    page.goto(f"{server.url}#cell?run={run['key']}&at={at}&sync=clock&sharing=equal")
    expect(page.locator("[data-row=A] [data-fact=round_s]")).to_have_text(f"{digits(equal['round_s'], 4)} s")
    left = float(page.locator("[data-row=A] .bar .compute").first.get_attribute("x") or 0)
    end, now = (float(page.locator(f"[data-row=A] .{name}").get_attribute("x1") or 0) for name in ("round-end", "now"))
    passed_s = (now - left) / (end - left) * equal["round_s"]
    assert passed_s == pytest.approx(at - (clock_s - round_s), abs=0.01)


# Plan


def planned(*options: str) -> str:
    """What the command line prints of the example."""
    done = fedcell("plan", "examples/devices.csv", *options, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_dropped_csv_gives_the_plans_of_the_command_line(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#plan")
    drop(page, ".devices", "devices.csv", CSV)
    expect(page.locator(".editor-caption")).to_have_text("20 devices, devices.csv")
    expect(page.locator(".editor tbody tr").first.locator("input").first).to_have_value("phone-01")
    expect(page.locator("input[name=radius]")).to_be_disabled()
    plans = json.loads(planned("--compare", "--json"))["plans"]
    expect(page.locator(".compare tbody tr")).to_have_count(len(plans))
    for plan in plans:
        row = numbers(page, f".compare tr[data-policy='{plan['policy']}'] td")
        assert row[:2] == [str(len(plan["devices"])), digits(plan["round_s"], 5)]
        assert row[-1] == f"{plan['imbalance']:.3f}"
        expect(page.locator(f"figure[data-policy='{plan['policy']}'] figcaption")).to_contain_text(plan["policy"])
    for kind in ("csv", "json"):
        with page.expect_download() as caught:
            page.locator(f"[data-export={kind}]").click()
        assert caught.value.suggested_filename == f"plan.{kind}"
        printed = planned("--compare", f"--{kind}")
        assert Path(caught.value.path()).read_text() == printed


def test_many_profile_columns_are_planned_but_not_all_shown(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#plan")
    names = [f"profile:{i}" for i in range(300)]
    rows = [",".join(["1", "2", *("1" if i % 3 == row % 3 else "0" for i in range(300))]) for row in range(6)]
    drop(page, ".devices", "wide.csv", "\n".join([",".join(["upload_s", "compute_s", *names]), *rows]))
    expect(page.locator(".editor-caption")).to_have_text("6 devices, wide.csv; the first 40 columns are shown")
    expect(page.locator(".editor tbody tr").first.locator("input")).to_have_count(40)
    page.get_by_label("upload_s of row 1").fill("1000")  # the others stay as they are
    timeline = page.locator("figure[data-policy='diverse'] figcaption")
    expect(timeline).to_contain_text("3 devices in")
    expect(page.locator("figure[data-policy='diverse'] .bar[data-device='0']")).to_have_count(0)
    expect(page.locator(".compare tr[data-policy='diverse'] td").last).to_have_text("0.000")


def test_sliders_and_edits_plan_again(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#plan")
    drop(page, ".devices", "devices.csv", CSV)
    expect(page.locator(".editor-caption")).to_have_text("20 devices, devices.csv")
    page.get_by_label("bandwidth, MHz, as a number").fill("6")
    wide = json.loads(planned("--json", "--bandwidth-hz", "6e6"))
    round_s = page.locator(".compare tr[data-policy=optimal] td").nth(1)
    expect(round_s).to_have_text(digits(wide["round_s"], 5))
    page.get_by_label("theta, as a number").fill("0.1")
    patient = json.loads(planned("--json", "--bandwidth-hz", "6e6", "--theta", "0.1"))
    expect(page.locator(f".compare tr[data-policy='{patient['policy']}'] td").first).to_have_text(
        str(len(patient["devices"]))
    )
    for _ in range(19):
        page.locator(".off button").first.click()
    expect(page.locator(".compare tr[data-policy=all] td").first).to_have_text("1")
    page.get_by_role("button", name="Add a device").click()
    expect(page.locator(".compare tr[data-policy=all] td").first).to_have_text("2")


def test_rows_are_pasted_from_a_spreadsheet(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#plan")
    expect(page.locator(".compare tr[data-policy=all] td").first).to_have_text("20")
    text = "device\\tupload_s\\tcompute_s\\na\\t1\\t2\\nb\\t1\\t3\\n"
    page.locator(".editor input").first.evaluate(
        f"""input => {{
            const clipboardData = new DataTransfer();
            clipboardData.setData("text/plain", "{text}");
            input.dispatchEvent(new ClipboardEvent("paste", {{ clipboardData, bubbles: true, cancelable: true }}));
        }}"""
    )
    expect(page.locator(".editor-caption")).to_have_text("2 devices, pasted")
    expect(page.locator(".compare tr[data-policy=all] td").first).to_have_text("2")


def test_the_last_answer_wins(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#plan")
    all_row = page.locator(".compare tr[data-policy=all] td").first
    expect(all_row).to_have_text("20")
    held: list[Route] = []
    page.route("**/api/plan", lambda route: held.append(route) if not held else route.continue_())
    count = page.locator(".draw-row").get_by_label("devices")
    with page.expect_request("**/api/plan"):
        count.fill("30")
    count.fill("40")
    expect(all_row).to_have_text("40")
    with page.expect_response("**/api/plan"):
        held[0].continue_()  # the older one comes late
    expect(all_row).to_have_text("40")
    page.unroute_all(behavior="wait")


def test_garbage_is_refused_with_its_sentence(server: Served, visitor: Visitor) -> None:
    visitor.faults.allowed = ["422"]
    page = visitor.page
    page.goto(f"{server.url}#plan")
    expect(page.locator(".compare tr[data-policy=all] td").first).to_have_text("20")
    drop(page, ".devices", "devices.csv", "device,distance_m,samples\na,far,10\n")
    expect(page.locator(".devices .error")).to_contain_text("distance_m")
    expect(page.locator(".devices .error")).to_contain_text("far")
    drop(page, ".devices", "noise.csv", "\x00\x01\x02 nothing, of, the kind")
    expect(page.locator(".devices .error")).not_to_contain_text("far")
    expect(page.locator(".devices .error")).not_to_be_empty()
    expect(page.locator(".compare tr[data-policy=all] td").first).to_have_text("20")  # what was there stays


def test_a_name_is_text_whatever_it_says(server: Served, page: Page) -> None:
    name = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
    page.goto(f"{server.url}#plan")
    drop(page, ".devices", "devices.csv", f'device,upload_s,compute_s\n"{name}",1,2\nb,1,2\n')
    expect(page.locator("td, th").get_by_text(name)).to_be_visible()
    assert page.title() == "Plan · fedcell"
    assert page.locator("main script, main img").count() == 0


# Results


def test_chosen_runs_are_compared_and_downloaded(server: Served, finished: dict[str, Any], page: Page) -> None:
    page.goto(f"{server.url}#results")
    keys = [run["key"] for run in finished["runs"]]
    for key in keys:
        page.locator(f"tr[data-key='{key}'] input").check()
    comparison = page.get_by_role("region", name="Comparison")
    row = server.get(f"/api/results/compare?keys={','.join(keys)}")["table"][0]
    expect(comparison.locator(f"tr[data-policy='{row['policy']}'] td").first).to_have_text(cell(row["best"], 100))
    begins = {"SVG": b"<?xml", "PNG": b"\x89PNG", "CSV": b"group,", "JSON": b"[{"}
    for kind, begin in begins.items():
        with page.expect_download() as caught:
            comparison.get_by_role("link", name=kind, exact=True).click()
        content = Path(caught.value.path()).read_bytes()
        assert content.startswith(begin)
        assert len(content) > 100
    page.get_by_label("Filter by policy").select_option("random:k=8")
    expect(page.locator(".runs tbody tr[data-key]").first.locator("td").nth(1)).to_contain_text("random")
    expect(page.locator(f"tr[data-key='{keys[0]}']")).to_have_count(
        0 if finished["runs"][0]["policy"] == "greedy" else 1
    )
    page.locator(".runs tbody a").first.click()
    expect(page.locator("[data-row=A] h2")).to_contain_text("random:k=8")


def test_measured_finishes_and_the_paper_are_shown(browser: Browser, tmp_path: Path) -> None:
    spec = Spec(policy="greedy", rounds=2)
    records = list(simulate(spec))
    plans = [record.plan for record in records]
    ends = [np.full(plan.devices.size, plan.round_s) for plan in plans]
    measured = [Measured(plan.devices, end, 0.5 * end, 1.25 * end) for plan, end in zip(plans, ends, strict=True)]
    with Store(tmp_path / "results.db") as store:
        key = store.put_measured(spec, records, measured, source="testbed")
    paper = tmp_path / "paper"
    paper.mkdir()
    for name in ("fig1a", "fig3a"):
        shutil.copy(ROOT / "docs" / "reproduction" / f"{name}.png", paper)
    (paper / "index.html").write_text("<!doctype html><title>the report</title>")
    with serve(tmp_path / "results.db", "--paper", str(paper)) as server, Visitor(browser) as visitor:
        page = visitor.page
        page.goto(f"{server.url}#results?keys={key}")
        region = page.get_by_role("region", name="Measured")
        expect(region.locator("circle.dot")).to_have_count(sum(plan.devices.size for plan in plans))
        expect(region).to_contain_text("off by 25 %")
        images = page.get_by_role("region", name="The paper").locator("img")
        expect(images).to_have_count(2)
        expect(page.get_by_role("link", name="The full report")).to_be_visible()
        images.last.scroll_into_view_if_needed()
        expect(images.last).to_have_js_property("complete", True)
        assert images.evaluate_all("images => images.map((image) => image.naturalWidth > 100)") == [True, True]
        page.locator(f"tr[data-key='{key}'] a").click()
        expect(page.locator("[data-row=A] .bars .measured")).to_have_count(plans[0].devices.size)


def test_without_runs_the_pages_say_what_to_do(browser: Browser, tmp_path: Path) -> None:
    with serve(tmp_path / "empty.db") as server, Visitor(browser) as visitor:
        visitor.page.goto(f"{server.url}#results")
        expect(visitor.page.get_by_role("region", name="Runs", exact=True)).to_contain_text("fedcell sweep")
        visitor.page.goto(f"{server.url}#cell")
        expect(visitor.page.locator("#page-cell")).to_contain_text("No runs yet")
        visitor.page.goto(f"{server.url}#race")
        expect(visitor.page.locator("#page-race")).to_contain_text("press Start race")


# The whole


def test_light_dark_talk_and_keys(server: Served, finished: dict[str, Any], browser: Browser) -> None:
    with Visitor(browser, color_scheme="dark") as visitor:
        page = visitor.page
        page.goto(server.url)
        state(page, "done")
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ground)
        page.keyboard.press("t")
        assert page.evaluate(ground) != dark
        page.keyboard.press("b")
        page.reload()  # both are remembered
        assert page.evaluate(ground) != dark
        expect(page.get_by_role("button", name="Talk mode")).to_have_attribute("aria-pressed", "true")
        page.keyboard.press("b")
        for key, name in zip("4321", ("Results", "Plan", "Cell", "Race"), strict=True):
            page.keyboard.press(key)
            expect(page).to_have_title(f"{name} · fedcell")
        page.keyboard.press("?")
        page.get_by_role("dialog").get_by_label("shortcuts").uncheck()
        page.get_by_role("button", name="Close").click()
        page.reload()  # that is remembered too
        page.locator("nav").wait_for()
        for key in "4t?":
            page.keyboard.press(key)
        expect(page).to_have_title("Race · fedcell")
        page.get_by_role("button", name="Keys and help").click()
        page.get_by_role("dialog").get_by_label("shortcuts").check()
        page.get_by_role("link", name="HTTP API").click()
        expect(page.locator("#page-api")).to_contain_text("/api/plan")


SHOWN = {
    "race": ".race-card path.line[d^=M]",
    "cell": "[data-row=A] .bar",
    "plan": ".multiples .bar",
    "results": "#page-results .curves path.line[d^=M]",
    "api": ".api-table td",
}


def places(finished: dict[str, Any]) -> dict[str, str]:
    """Each page's address, with something to see on it."""
    keys = [run["key"] for run in finished["runs"]]
    return {"cell": f"cell?run={keys[0]}&with={keys[1]}", "results": f"results?keys={','.join(keys)}"}


def test_no_page_is_wider_than_the_window(server: Served, finished: dict[str, Any], page: Page) -> None:
    for name, selector in SHOWN.items():
        page.goto(f"{server.url}#{places(finished).get(name, name)}")
        page.locator(selector).first.wait_for()
        for width, talk in ((1280, False), (1024, True), (414, False), (360, True), (320, False)):
            page.set_viewport_size({"width": width, "height": 720})
            page.evaluate("talk => document.documentElement.classList.toggle('talk', talk)", talk)
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)


def test_a_plan_at_1280_is_whole_and_to_scale(server: Served, page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{server.url}#plan")
    drop(page, ".devices", "devices.csv", "device,upload_s,compute_s\n" + "".join(f"d{i},1,{i}\n" for i in range(1, 5)))
    expect(page.locator(".compare tr[data-policy=all] td").first).to_have_text("4")
    assert page.locator(".comparison").evaluate("table => table.scrollWidth <= table.clientWidth")
    counts = page.locator(".objective .tick[text-anchor=middle]").all_text_contents()
    assert counts == [str(int(text)) for text in counts]  # no one and a half devices
    times = page.locator(".multiples .tick[text-anchor=middle]").all_text_contents()
    assert times
    assert all(re.fullmatch(r"[\d.]+ s", text) for text in times)
    drop(page, ".devices", "slow.csv", "device,upload_s,compute_s\nslow,1,1000\n" + "a,1,1\nb,1,1\nc,1,1\n")
    expect(page.get_by_role("region", name="Timelines")).to_contain_text(
        re.compile("cut off: .*all, all:sharing=equal")
    )
    wide = "bars => Math.max(...bars.map((bar) => bar.getBBox().width))"
    panel = page.locator("figure[data-policy=optimal]")
    whole = panel.locator(".bars").evaluate("svg => svg.clientWidth")
    assert panel.locator(".bar .upload").evaluate_all(wide) > whole / 10


def test_axe_finds_nothing_in_both_themes(server: Served, finished: dict[str, Any], page: Page) -> None:
    axe = Axe()
    for name, selector in SHOWN.items():
        page.goto(f"{server.url}#{places(finished).get(name, name)}")
        page.locator(selector).first.wait_for()
        for theme, rules in (
            ("light", {}),
            ("dark", {"runOnly": ["color-contrast"]}),
        ):  # nothing else goes by the theme
            page.evaluate("theme => (document.documentElement.dataset.theme = theme)", theme)
            found = axe.run(page, options={"resultTypes": ["violations"], **rules}).response["violations"]
            assert not found, (name, theme, [(one["id"], [node["html"] for node in one["nodes"]][:5]) for one in found])
        unreached = page.locator("main *").evaluate_all(
            """all => all.filter((one) => ["auto", "scroll"].includes(getComputedStyle(one).overflowX)
                && (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight)
                && !one.matches("[tabindex='0'][role=region][aria-label], .form-body"))
                .map((one) => one.className)"""
        )
        assert not unreached, name


def test_on_paper_and_with_the_colours_of_the_system(server: Served, finished: dict[str, Any], page: Page) -> None:
    page.goto(f"{server.url}#race/{finished['id']}")
    page.locator(".race-card path.line[d^=M]").first.wait_for()
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    # In one step: what is drawn again meanwhile has no style any more.
    stroke = "getComputedStyle(document.querySelector('.race-card path.line[d^=M]')).stroke"
    ground = "getComputedStyle(document.body).backgroundColor"
    colour = page.evaluate(stroke)
    page.emulate_media(forced_colors="active")
    assert page.evaluate(stroke) == colour != ""  # it tells one policy from another
    page.emulate_media(media="print", forced_colors="none")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    expect(page.locator(".race-form")).to_be_hidden()
    expect(page.locator(".race-card .tables")).to_be_visible()
