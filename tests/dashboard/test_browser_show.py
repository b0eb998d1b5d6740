"""What one shows in a talk, in a real browser: the race replayed, the leader board, curves hidden, zoomed, smoothed."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedcell.runs.store import Store

pytest.importorskip("dashboard.browser")  # which says why where there is no browser

from playwright.sync_api import Browser, Page, expect

from dashboard.browser import Visitor, check_with_axe
from dashboard.shown import BANDS_HZ, END_S, RACE, RADII_M, RUNS, fill
from harness import Served, serve

pytestmark = pytest.mark.browser
NONE = "\N{EN DASH}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("shown") / "results.db"
    with Store(path) as store:
        fill(store)
    with serve(path) as server:
        yield server


def board(page: Page) -> list[str]:
    """The policies on the leader board, in their order."""
    return [
        str(name) for name in page.locator(".board-list li").evaluate_all("rows => rows.map((r) => r.dataset.policy)")
    ]


def seek(page: Page, clock_s: float) -> None:
    page.get_by_role("slider", name="Simulated time").fill(str(clock_s))


def test_a_stored_race_is_replayed_with_its_finish_line_and_leader_board(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#race/{RACE}")
    headline = page.locator(".headline strong")
    lead = server.get(f"/api/races/{RACE}/curves")["lead"]
    assert lead["policy"] == "diverse"
    assert lead["over"][0]["ratio"] == pytest.approx(2.5)
    expect(headline).to_have_text(re.compile("^diverse reaches 50 % 2.5 . sooner than greedy$"))
    expect(page.locator(".headline small")).to_have_text(re.compile("^restricted mean time 41 s against 103 s, "))
    expect(page.locator(".finish-label")).to_have_text("target 50 %")
    assert board(page) == ["diverse", "greedy", "random:k=2"]
    marks, heads = page.locator(".crossing"), page.locator(".race-card .head")
    assert [marks.nth(i).is_visible() for i in range(2)] == [True, True]  # random never gets there
    assert not heads.first.is_visible()
    # At 45 s diverse has crossed the line, greedy is at 20 %, random at 10 %.
    seek(page, 45)
    expect(headline).to_have_text("diverse reaches 50 % first, after 41 s")
    expect(page.locator(".board-list li b")).to_have_text(["52.1 %", "20.0 %", "10.0 %"])
    expect(page.locator(".finish-time")).to_have_text(["41 s", "", ""])
    shown = {mark.get_attribute("data-line"): mark.is_visible() for mark in marks.all()}
    assert shown == {"diverse": True, "greedy": False}
    axis = page.locator(".race-card .axis").first
    left, right = (float(axis.get_attribute(name) or 0) for name in ("x1", "x2"))
    cover = page.locator(".race-card clipPath rect")
    assert float(cover.get_attribute("width") or 0) == pytest.approx(45 / END_S * (right - left), abs=0.5)
    assert all(head.is_visible() for head in heads.all())
    seek(page, 0.5)
    expect(headline).to_be_hidden()
    expect(page.locator(".board-list li b")).to_have_text([NONE] * 3)
    # It plays to the end and stops there; Space does the same as the button.
    page.get_by_label("Simulated seconds per second").select_option("1000")
    page.locator("main").press("Space")
    expect(headline).to_be_visible()
    expect(page.get_by_role("button", name="Replay")).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".replay .place")).to_have_text("160 s of 160 s")


def test_curves_are_hidden_zoomed_and_smoothed_and_axe_finds_nothing(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#race/{RACE}")
    card = page.locator(".race-card")
    lines = card.locator("path.line[d^=M]")
    expect(lines).to_have_count(3)
    key = card.get_by_role("button", name="greedy")
    key.click()
    expect(lines).to_have_count(2)
    expect(key).to_have_attribute("aria-pressed", "false")
    assert card.locator(".crossing").count() == 1
    key.press("Enter")
    expect(lines).to_have_count(3)
    card.get_by_role("slider", name="Smoothing").fill("80")
    expect(card.locator("path.raw[d^=M]")).to_have_count(3)
    chart = card.locator("svg.chart")
    ticks = "[...svg.querySelectorAll('.tick[text-anchor=middle]')].map((tick) => Number(tick.textContent))"
    last_tick = f"svg => Math.max(...{ticks})"
    assert chart.evaluate(last_tick) == 150
    chart.focus()
    chart.press("+")
    assert chart.evaluate(last_tick) < 150
    show_all = card.get_by_role("button", name="Show all")
    check_with_axe(page, ".race-card")
    show_all.click()
    expect(show_all).to_be_hidden()
    box = chart.bounding_box()
    assert box is not None
    x, y = box["x"], box["y"]
    page.mouse.move(x + 0.4 * box["width"], y + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(x + 0.5 * box["width"], y + 0.6 * box["height"], steps=3)
    page.mouse.up()
    assert chart.evaluate(last_tick) < 100
    chart.dblclick(position={"x": 0.5 * box["width"], "y": 0.5 * box["height"]})
    expect(show_all).to_be_hidden()
    assert chart.evaluate(last_tick) == 150


def test_a_race_is_named_cloned_told_as_a_command_and_deleted(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#race/{RACE}")
    page.get_by_role("button", name="Name and note").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("name").fill("The talk's race")
    dialog.get_by_label("note").fill("Shown on slide 7")
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator(".race-card h1")).to_have_text("The talk's race")
    expect(page.locator(".race-note")).to_have_text("Shown on slide 7")
    page.reload()
    expect(page.locator(f"[data-race='{RACE}'] strong")).to_contain_text("The talk's race")
    page.get_by_role("button", name="As command line").click()
    expect(dialog.locator("pre").first).to_have_text(server.get(f"/api/races/{RACE}/command")["command"])
    expect(dialog.locator("pre").last).to_contain_text("hidden = [4]")
    check_with_axe(page, "dialog[open]")
    dialog.get_by_role("button", name="Close").click()
    # A clone is the same race in all that the form does not show, too: it comes from the store.
    page.get_by_role("button", name="Clone").click()
    expect(page.get_by_label("budget, s")).to_have_value("160")
    page.get_by_label("target, %").fill("60")
    page.get_by_role("button", name="Start race").click()
    expect(page.locator(".finish-label")).to_have_text("target 60 %")
    page.locator(".board-list li").first.wait_for()
    clone = server.get("/api/races")["races"][0]
    assert {run["key"] for run in clone["runs"]} == {run["key"] for run in server.get(f"/api/races/{RACE}")["runs"]}
    page.locator(".race-more").get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Cancel").click()
    assert page.locator(f"[data-race='{clone['id']}']").count() == 1
    page.locator(".race-more").get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete race and runs").click()
    expect(page.locator(f"[data-race='{clone['id']}']")).to_have_count(0)
    assert server.get("/api/runs")["total"] == RUNS  # the first race's too


def test_a_round_fills_by_its_own_clock_unless_motion_is_unwanted(server: Served, page: Page) -> None:
    key = next(run["key"] for run in server.get(f"/api/races/{RACE}")["runs"] if run["policy"] == "greedy")
    page.goto(f"{server.url}#cell?run={key}")
    page.locator("[data-row=A] .bar").first.wait_for()
    moving = page.locator("[data-row=A] .now, .ring")
    assert moving.count() == 0  # all of the round, until it is played
    page.get_by_label("Speed").select_option("0.5")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".place")).to_have_text(re.compile("round 2 of"))
    now, ring = page.locator("[data-row=A] .now"), page.locator("[data-row=A] .ring").first
    before = float(now.get_attribute("x1") or 0), str(ring.get_attribute("stroke-dasharray"))
    expect(ring).not_to_have_attribute("stroke-dasharray", before[1])
    expect(page.locator("[data-fact=clock]").first).to_have_text("under way")
    expect(page.locator("[data-fact=accuracy]").first).to_have_text("5.00 % after round 1")
    assert float(now.get_attribute("x1") or 0) > before[0]
    page.locator("main").press("Space")  # held, the round is shown as it went
    expect(moving).to_have_count(0)
    expect(page.locator("[data-fact=accuracy]").first).to_have_text(re.compile(r"^\d+\.00 %$"))
    page.emulate_media(reduced_motion="reduce")
    held = str(page.locator(".place").text_content())
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".place")).not_to_have_text(held)
    assert moving.count() == 0


def test_a_race_in_one_file_plays_without_a_server(server: Served, browser: Browser, tmp_path: Path) -> None:
    note = "</script><script>window.stolen = 1</script> $& {data}"
    words = {"name": "{data} {title}", "note": note}
    server.http.patch(f"/api/races/{RACE}", json=words).raise_for_status()
    answer = server.http.get(f"/api/races/{RACE}/page.html")
    assert answer.headers["content-disposition"] == f'attachment; filename="race-{RACE}.html"'
    file = tmp_path / "race.html"
    file.write_bytes(answer.content)
    with Visitor(browser, offline=True) as visitor:
        page = visitor.page
        asked: list[str] = []
        visitor.context.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        expect(page.locator("path.line[d^=M]")).to_have_count(3)
        expect(page.locator(".headline strong")).to_contain_text("sooner than greedy")
        expect(page.locator(".race-note")).to_have_text(note)
        expect(page).to_have_title("{data} {title} \N{MIDDLE DOT} fedcell")
        assert page.evaluate("window.stolen") is None
        seek(page, 45)
        expect(page.locator(".finish-time")).to_have_text(["41 s", "", ""])
        page.get_by_label("Simulated seconds per second").select_option("1000")
        page.get_by_role("button", name="Replay").click()
        expect(page.locator(".replay .place")).to_have_text("160 s of 160 s")
        page.get_by_role("button", name="energy").click()
        expect(page.locator(".axis-label").first).to_have_text("energy spent by all devices, J")
        assert all(url.startswith(("file:", "data:")) for url in asked), asked
        check_with_axe(page)
        page.get_by_role("button", name="Light or dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_words_are_explained_and_a_presenter_sees_no_controls(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#race/{RACE}")
    page.locator(".board-list li").first.wait_for()
    dialog = page.get_by_role("dialog")
    for name, words in {
        "law": "share",
        "partition": "dealt",
        "profiles": "vector",
        "knowledge": "training times",
    }.items():
        page.locator(f"#page-race [data-what={name}]").click()
        expect(dialog).to_contain_text(words)
        expect(dialog).to_contain_text("documentation")
        dialog.get_by_role("button", name="Close").click()
    page.keyboard.press("p")
    root, bar = page.locator("html"), page.locator(".top")
    expect(page.locator(".race-form")).to_be_hidden()
    expect(root).to_have_class(re.compile("idle"))  # after a while
    expect(bar).to_have_css("opacity", "0")
    expect(page.locator(".board-list")).to_be_visible()
    page.mouse.move(300, 300)
    page.mouse.move(310, 310)
    expect(bar).to_have_css("opacity", "1")
    page.emulate_media(reduced_motion="reduce")  # or the bar may be half gone when axe reads its contrast
    check_with_axe(page)
    page.keyboard.press("p")
    expect(page.locator(".race-form")).to_be_visible()
    page.keyboard.press("3")
    page.locator("#page-plan [data-what=theta]").click()
    expect(dialog).to_contain_text("theta + 1/n")


def test_a_sweep_is_shown_against_any_field_and_as_a_heat_map(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#results")
    page.get_by_label("Filter by policy").select_option("random:k=3")
    card = page.get_by_role("region", name="Fields")
    expect(card).to_contain_text("12 runs; means over seeds")
    card.get_by_label("Field across").select_option("cell.radius_m")
    expect(card.locator("path.line[d^=M]")).to_have_count(1)
    expect(card.locator("circle.dot")).to_have_count(3)
    card.get_by_label("Field down").select_option("cell.bandwidth_hz")
    expect(card.locator("path.line[d^=M]")).to_have_count(2)
    card.get_by_role("button", name="heat map").click()
    expect(card.locator(".heat thead th")).to_have_text(["bandwidth_hz", "600", "900", "1200"])
    shown = [
        [f"{10 * (1 + 2 * RADII_M.index(m) + i) + 1:.2f} %" for m in sorted(RADII_M)] for i in range(len(BANDS_HZ))
    ]
    expect(card.locator(".heat td")).to_have_text([text for row in shown for text in row])
    check_with_axe(page, "[aria-label=Fields]")


def test_a_tournament_is_ranked_and_its_fields_lead_to_their_runs(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#ranking")
    expect(page.locator("#page-ranking h1")).to_have_text("3 policies, 2 scenarios, 7 seeds")
    headline = page.get_by_role("region", name="Mean ranks", exact=True).locator(".headline")
    # With 14 blocks.
    expect(headline.locator("strong")).to_have_text("diverse is not significantly different from greedy")
    expect(headline.locator("small")).to_have_text(
        "mean rank 1.50; wins 1 of 2 scenarios, is not significantly different from the best in 1"
    )
    rows = page.locator(".ranking-table tbody tr")
    assert [row.get_attribute("data-policy") for row in rows.all()] == ["diverse", "greedy", "random:k=2"]
    expect(rows.nth(0).locator("td")).to_have_text(
        ["1.50", "1 + 1", "41 s, wins", "52 s, is not significantly different from the best"]
    )
    expect(rows.nth(2).locator("td")).to_have_text(
        ["2.50", "0 + 1", "never (0/7)", "52 s, is not significantly different from the best"]
    )
    assert page.locator(".ranks .ranked").count() == 3
    page.get_by_role("button", name="last accuracy").click()
    expect(rows.nth(2).locator("td").nth(2)).to_have_text("35.7 ± 1.7")
    page.get_by_role("button", name="time to target").click()
    page.get_by_label("Target of all scenarios").fill("20")
    page.get_by_label("Target of all scenarios").press("Enter")
    expect(rows.nth(0).locator("td").nth(2)).to_have_text("16 s, wins")
    rows.nth(1).locator("td button").first.click()
    runs = page.get_by_role("region", name="The runs of a field")
    expect(runs.locator("h2")).to_have_text("greedy beside diverse in race")
    expect(runs.locator("path.line[d^=M]")).to_have_count(2)
    expect(runs.locator(".finish-label")).to_have_text("target 20 %")
    expect(runs.locator(".headline strong")).to_have_text(re.compile("^diverse reaches 20 % 2.5 . sooner than greedy$"))
    check_with_axe(page, "#page-ranking")
    for width in (1280, 320):
        page.set_viewport_size({"width": width, "height": 720})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    runs.locator(".run-links a").first.click()
    expect(page.locator("[data-row=A] h2")).to_contain_text("greedy")
    expect(page.locator("[data-row=B] h2")).to_contain_text("diverse")


@pytest.mark.parametrize(
    ("docs", "link"),
    [
        (None, None),
        ("https://docs.example.org/fedcell/", "https://docs.example.org/fedcell/choosing.html#choosing-a-link-law"),
        (
            "https://example.org/x/blob/v1/docs/index.md",
            "https://example.org/x/blob/v1/docs/choosing.md#choosing-a-link-law",
        ),
    ],
)
def test_what_is_this_leads_to_the_documentation_the_package_names(
    docs: str | None, link: str | None, server: Served, page: Page
) -> None:
    info = server.get("/api/info")
    page.route("**/api/info", lambda route: route.fulfill(json=info | {"docs": docs}))
    page.goto(f"{server.url}#plan")
    page.locator("[data-what=law]").click()
    dialog = page.get_by_role("dialog", name="Link law")
    expect(dialog).to_contain_text("More in the documentation")
    if link is None:
        expect(dialog).to_contain_text("docs/choosing.md")
    else:
        expect(dialog.get_by_role("link")).to_have_attribute("href", link)
