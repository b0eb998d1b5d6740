"""The cell, the results and all pages alike in a real browser, over a real server, with nothing in its console."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedcell.runs.store import Measured, Store
from fedcell.sim.loop import simulate
from fedcell.sim.record import ROUND_COLUMNS
from fedcell.sim.spec import Spec

pytest.importorskip("dashboard.browser")  # which says why where there is no browser

from playwright.sync_api import Page, Route, expect

from dashboard.browser import ROOT, WINDOW, begin_race, cell, check_with_axe, digits, state
from harness import Served, serve, wait_until

pytestmark = pytest.mark.browser


class MeasuredRun(NamedTuple):
    """A run whose devices were measured, as a testbed does.

    Attributes:
        store: the results file that has it.
        key: of the run.
        devices: how many a round has.
    """

    store: Path
    key: str
    devices: list[int]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> MeasuredRun:
    """Each device took a quarter longer than planned."""
    spec = Spec(policy="greedy", rounds=2)
    records = list(simulate(spec))
    plans = [record.plan for record in records]
    ends = [np.full(plan.devices.size, plan.round_s) for plan in plans]
    finishes = [Measured(plan.devices, end, 0.5 * end, 1.25 * end) for plan, end in zip(plans, ends, strict=True)]
    path = tmp_path_factory.mktemp("measured") / "results.db"
    with Store(path) as store:
        key = store.put_measured(spec, records, finishes, source="testbed")
    return MeasuredRun(path, key, [plan.devices.size for plan in plans])


@pytest.fixture(scope="module")
def server(measured: MeasuredRun) -> Iterator[Served]:
    """With a measured run and the paper's report."""
    paper = measured.store.with_name("paper")
    paper.mkdir()
    for name in ("fig1a", "fig3a"):
        shutil.copy(ROOT / "docs" / "reproduction" / f"{name}.png", paper)
    (paper / "index.html").write_text("<!doctype html><title>the report</title>")
    with serve(measured.store, "--workers", "1", "--paper", str(paper)) as server:
        yield server


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


def test_accuracy_is_shown_against_energy_if_asked(server: Served, finished: dict[str, Any], page: Page) -> None:
    page.goto(f"{server.url}#race/{finished['id']}")
    chart, table = page.locator(".race-card .curves-chart"), page.locator(".race-card .tables")
    expect(chart.locator("path.line")).to_have_count(2)
    chart.get_by_role("button", name="energy").click()
    expect(chart.locator(".axis-label").first).to_have_text("energy spent by all devices, J")
    expect(page.locator(".race-card h1")).to_have_text("Accuracy against energy")
    curves = server.get(f"/api/races/{finished['id']}/curves?by=energy")
    mean_j = curves["table"][0]["joules"]["mean"]
    expect(table.locator("tr[data-policy='greedy']").last).to_contain_text(f"{mean_j:.1f}")
    expect(page.get_by_role("link", name="SVG")).to_have_attribute("href", re.compile("by=energy"))
    chart.get_by_role("button", name="time").click()
    expect(chart.locator(".axis-label").first).to_have_text("simulated wall-clock time, s")


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
    expect(facts.locator("[data-fact='spends'] dd")).to_have_text(f"{digits(device['joules'], 4)} J")
    expect(facts.locator("[data-fact='distance'] dd")).to_have_text(f"{digits(device['distance_m'], 4)} m")
    expect(row.locator(f".bar[data-device='{device['index']}']")).to_have_class(re.compile("lit"))


def test_whole_blocks_are_shown_and_axe_finds_nothing(server: Served, page: Page) -> None:
    spec = {"budget_s": 30.0, "cell": {"law": "blocks:count=15"}}
    race = server.wait(begin_race(server, spec=spec, policies=["greedy"], seeds=1)["id"], "done")
    (run,) = race["runs"]
    page.goto(f"{server.url}#cell?run={run['key']}")
    document = server.get(f"/api/runs/{run['key']}/rounds/1?sharing=planned")
    scheduled = [device for device in document["devices"] if device["scheduled"]]
    row = page.locator("[data-row=A]")
    expect(row.locator(".block-device")).to_have_count(len(scheduled))
    for device in scheduled:
        drawn = row.locator(f".block-device[data-device='{device['index']}']")
        assert drawn.get_attribute("data-blocks") == str(device["blocks"])
    free = 15 - sum(device["blocks"] for device in scheduled)
    told = ", ".join(f"device {device['index']} has {device['blocks']}" for device in scheduled)
    expect(row.locator(".blocks")).to_have_attribute(
        "aria-label", f"Resource blocks of the round of run A: {told}; {free} free"
    )
    expect(row.locator("h2")).to_contain_text("blocks:count=15")
    last = scheduled[-1]
    row.locator(f".block-device[data-device='{last['index']}'] rect").hover()
    expect(row.locator("[data-fact='resource blocks'] dd")).to_have_text(str(last["blocks"]))
    expect(row.locator(f".bar[data-device='{last['index']}']")).to_have_class(re.compile("lit"))
    words = f"{last['blocks']} block{'s' * (last['blocks'] != 1)}"
    expect(row.locator(f".bar[data-device='{last['index']}'] .share")).to_have_text(words)
    check_with_axe(page, "[data-row=A]")
    for width in (1280, 414, 320):
        page.set_viewport_size({"width": width, "height": 720})
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


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
    page.get_by_label("Speed").select_option("4")
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


def test_a_column_that_the_page_does_not_know_is_shown_with_its_words(
    server: Served, measured: MeasuredRun, page: Page
) -> None:
    spec = Spec(policy="random:k=3", rounds=1, seed=77)
    (record,) = simulate(spec)
    with Store(measured.store) as store:
        store.put(
            spec, [replace(record, plan=replace(record.plan, epochs=np.array([0.5, 0.25, 1.0])), epochs=1.75 / 3)]
        )

    def with_another(route: Route) -> None:
        answer = route.fetch()
        shown = answer.json()
        shown["columns"] += [
            {"name": "spread", "unit": "nats", "text": "spread of the losses", "per_device": False},
            {"name": "wait_s", "unit": "s", "text": "wait for the band", "per_device": True},
            {"name": "nothing", "unit": "", "text": "of which nobody says anything", "per_device": True},
        ]
        for device in shown["devices"]:
            device |= {"wait_s": 1.5 if device["scheduled"] else None, "nothing": None}
        route.fulfill(response=answer, json=shown | {"spread": 0.25})

    page.route("**/rounds/1*", with_another)
    page.goto(f"{server.url}#cell?run={spec.key()}")
    row = page.locator("[data-row=A]")
    expect(row.locator("[data-fact=spread]")).to_have_text("spread of the losses 0.25 nats")
    expect(row.locator("[data-fact=epochs]")).to_have_text("0.583 epochs")
    expect(row.locator("[data-fact=bits]")).to_have_text("32 bits a weight")
    expect(row.locator("[data-fact=sent_bytes]")).to_have_text("611 kB sent")
    row.get_by_role("button", name="Table").click()
    expect(row.locator("thead th").nth(-2)).to_have_text("epochs")
    expect(row.locator("thead th").last).to_have_text("wait for the band, s")
    for device, epochs in zip(record.plan.devices.tolist(), ("0.5", "0.25", "1"), strict=True):
        expect(row.locator(f"tr[data-device='{device}'] td").nth(-2)).to_have_text(epochs)
        expect(row.locator(f"tr[data-device='{device}'] td").last).to_have_text("1.5")


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


def test_measured_finishes_and_the_paper_are_shown(server: Served, measured: MeasuredRun, page: Page) -> None:
    page.goto(f"{server.url}#results?keys={measured.key}")
    region = page.get_by_role("region", name="Measured")
    expect(region.locator("circle.dot")).to_have_count(sum(measured.devices))
    expect(region).to_contain_text("off by 25 %")
    images = page.get_by_role("region", name="The paper").locator("img")
    expect(images).to_have_count(2)
    expect(page.get_by_role("link", name="The full report")).to_be_visible()
    images.last.scroll_into_view_if_needed()
    expect(images.last).to_have_js_property("complete", True)
    assert images.evaluate_all("images => images.map((image) => image.naturalWidth > 100)") == [True, True]
    page.locator(f"tr[data-key='{measured.key}'] a").click()
    expect(page.locator("[data-row=A] .bars .measured")).to_have_count(measured.devices[0])


# The whole


def test_light_dark_talk_and_keys(server: Served, finished: dict[str, Any], page: Page) -> None:
    page.emulate_media(color_scheme="dark")
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


HOLD_ANSWERS = """() => {
    const read = Response.prototype.json;
    const go = new Promise((resolve) => { window.release = resolve; });
    Response.prototype.json = async function () {
        const found = await read.call(this);
        window.arrived = true;
        await go;
        return found;
    };
}"""


def test_a_page_that_is_being_left_does_not_take_its_place_back(
    server: Served, finished: dict[str, Any], page: Page
) -> None:
    """On a busy machine the answer with the races comes between a key and the event that tells the pages of it."""
    held: list[Route] = []
    page.route("**/api/races", lambda route: held.append(route))  # noqa: PLW0108 (Playwright notes things in functions)
    with page.expect_request("**/api/races"):
        page.goto(server.url)
    page.evaluate(HOLD_ANSWERS)
    held[0].continue_()
    wait_until(lambda: page.evaluate("window.arrived"), "the races")
    page.evaluate("() => { location.hash = '#results'; window.release(); }")
    expect(page.locator("#page-results table.runs")).to_be_visible()
    expect(page).to_have_title("Results · fedcell")


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


def test_no_page_is_wider_than_the_window_and_axe_finds_nothing(
    server: Served, finished: dict[str, Any], page: Page
) -> None:
    for name, selector in SHOWN.items():
        page.set_viewport_size(WINDOW)
        page.evaluate("document.documentElement.classList.remove('talk')")
        page.goto(f"{server.url}#{places(finished).get(name, name)}")
        page.locator(selector).first.wait_for()
        check_with_axe(page)
        unreached = page.locator("main *").evaluate_all(
            """all => all.filter((one) => ["auto", "scroll"].includes(getComputedStyle(one).overflowX)
                && (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight)
                && !one.matches("[tabindex='0'][role=region][aria-label], .form-body"))
                .map((one) => one.className)"""
        )
        assert not unreached, name
        for width, talk in ((1280, False), (1024, True), (414, False), (360, True), (320, False)):
            page.set_viewport_size({"width": width, "height": 720})
            page.evaluate("talk => document.documentElement.classList.toggle('talk', talk)", talk)
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)


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


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("#race/deadbeefdeadbeef", "The race deadbeefdeadbeef is not in these files"),
        ("#cell?run=deadbeefdeadbeef", "The run deadbeefdeadbeef is not in these files"),
        ("#ranking/deadbeefdeadbeef", "No tournament is stored here yet"),
        ("#results?keys=deadbeefdeadbeef", "1 of the 1 run in this address is not in these files: deadbeef"),
    ],
)
def test_an_address_of_what_is_not_here_says_so_and_shows_nothing_else(
    server: Served, finished: dict[str, Any], page: Page, address: str, said: str
) -> None:
    assert finished["state"] == "done"
    page.goto(f"{server.url}{address}")
    expect(page.locator("main")).to_contain_text(said)
    page.wait_for_timeout(300)  # whatever it might still show has had its time
    assert page.evaluate("location.hash") == address
    expect(page.locator("[data-row=A]:visible")).to_have_count(0)
    expect(page.get_by_role("region", name="Comparison")).to_be_hidden()
    if address.startswith("#race"):
        expect(page.locator("main")).to_contain_text("Which policy learns fastest?")
        page.locator(".queue-open").first.click()
        expect(page.locator("main")).not_to_contain_text(said)


def test_results_are_sorted_by_the_server(server: Served, finished: dict[str, Any], page: Page) -> None:
    page.goto(f"{server.url}#results")
    heading = page.locator(".runs th").filter(has_text="best")
    with page.expect_response(lambda response: "sort=best" in response.url):
        heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    first = server.get("/api/runs?sort=best")["runs"][0]["key"]
    expect(page.locator(".runs tbody tr").first).to_have_attribute("data-key", first)
    assert finished["state"] == "done"
