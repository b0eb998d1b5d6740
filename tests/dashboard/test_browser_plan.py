"""The plan page in a real browser, over a real server; any error or warning in its console is a failure."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

pytest.importorskip("dashboard.browser")  # which says why where there is no browser

from playwright.sync_api import Page, Route, expect

from dashboard.browser import ROOT, Visitor, check_with_axe, digits, drop
from harness import Served

pytestmark = pytest.mark.browser
CSV = (ROOT / "examples" / "devices.csv").read_text()


def numbers(page: Page, selector: str) -> list[str]:
    return [text.replace("\xa0", " ").strip() for text in page.locator(selector).all_inner_texts()]


@pytest.fixture
def planned(fedcell_here: Callable[..., CompletedProcess[str]]) -> Callable[..., str]:
    """What the command line prints of the example."""

    def call(*options: str) -> str:
        done = fedcell_here("plan", "examples/devices.csv", *options, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_a_dropped_csv_gives_the_plans_of_the_command_line(
    server: Served, page: Page, planned: Callable[..., str]
) -> None:
    page.goto(f"{server.url}#plan")
    drop(page, ".devices", "devices.csv", CSV)
    expect(page.locator(".editor-caption")).to_have_text("20 devices, devices.csv")
    expect(page.locator(".editor tbody tr").first.locator("input").first).to_have_value("phone-01")
    expect(page.locator("input[name=radius]")).to_be_disabled()
    plans = json.loads(planned("--compare", "--json"))["plans"]
    expect(page.locator(".compare tbody tr")).to_have_count(len(plans))
    for plan in plans:
        row = numbers(page, f".compare tr[data-policy='{plan['policy']}'] td")
        assert [row[0], row[3]] == [str(len(plan["devices"])), digits(plan["round_s"], 5)]
        decided = plan["devices"][0] if plan["policy"] == "auto" else {"epochs": 1, "bits": 32}
        assert row[1:3] == [f"{decided[name]:.4g}" for name in ("epochs", "bits")]
        assert row[-1] == f"{plan['imbalance']:.3f}"
        expect(page.locator(f"figure[data-policy='{plan['policy']}'] figcaption")).to_contain_text(plan["policy"])
    for kind in ("csv", "json"):
        with page.expect_download() as caught:
            page.locator(f"[data-export={kind}]").click()
        assert caught.value.suggested_filename == f"plan.{kind}"
        printed = planned("--compare", f"--{kind}")
        assert Path(caught.value.path()).read_text() == printed


def test_work_and_bits_are_shown_where_a_policy_decides_them(
    server: Served, page: Page, planned: Callable[..., str]
) -> None:
    page.goto(f"{server.url}#plan")
    drop(page, ".devices", "devices.csv", CSV)
    expect(page.locator(".editor-caption")).to_have_text("20 devices, devices.csv")
    plan = json.loads(planned("--policy", "auto", "--json"))
    device = plan["devices"][0]
    caption = f"{device['epochs']:.4g} local epochs, {device['bits']} bits a weight"
    expect(page.locator("figure[data-policy=auto] figcaption")).to_contain_text(caption)
    expect(page.locator("figure[data-policy=optimal] figcaption")).not_to_contain_text("epochs")
    listed = page.get_by_role("region", name="Scheduled devices", exact=True)
    expect(listed.locator("thead")).not_to_contain_text("epochs")
    page.get_by_label("Policy whose devices are listed").select_option("auto")
    heads = numbers(page, ".listed thead th")
    assert heads[3:] == ["local epochs", "bits a weight", "trains, s", "uploads, s", "finish, s"]
    row = numbers(page, f".listed tr[data-device='{device['device']}'] td")
    assert row[2:4] == [digits(device["epochs"], 4), str(device["bits"])]
    page.get_by_label("link law").select_option("dedicated")  # own lines: nothing else is to tell
    expect(page.locator(".listed thead th")).to_have_text(["device", *heads[3:]])


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


def test_sliders_and_edits_plan_again(server: Served, page: Page, planned: Callable[..., str]) -> None:
    page.goto(f"{server.url}#plan")
    drop(page, ".devices", "devices.csv", CSV)
    expect(page.locator(".editor-caption")).to_have_text("20 devices, devices.csv")
    page.get_by_label("bandwidth, MHz, as a number").fill("6")
    wide = json.loads(planned("--json", "--bandwidth-hz", "6e6"))
    round_s = page.locator(".compare tr[data-policy=optimal] td").nth(3)
    expect(round_s).to_have_text(digits(wide["round_s"], 5))
    page.get_by_label("theta, as a number").fill("0.1")
    patient = json.loads(planned("--json", "--bandwidth-hz", "6e6", "--theta", "0.1"))
    expect(page.locator(f".compare tr[data-policy='{patient['policy']}'] td").first).to_have_text(
        str(len(patient["devices"]))
    )
    drop(page, ".devices", "three.csv", "".join(CSV.splitlines(keepends=True)[:4]))
    expect(page.locator(".compare tr[data-policy=all] td").first).to_have_text("3")
    for _ in range(2):
        page.locator(".off button").first.click()
    expect(page.locator(".compare tr[data-policy=all] td").first).to_have_text("1")
    page.get_by_role("button", name="Add a device").click()
    expect(page.locator(".compare tr[data-policy=all] td").first).to_have_text("2")


def test_a_law_is_chosen_and_kept(server: Served, page: Page, planned: Callable[..., str]) -> None:
    page.goto(f"{server.url}#plan")
    drop(page, ".devices", "devices.csv", CSV)
    expect(page.locator(".editor-caption")).to_have_text("20 devices, devices.csv")
    page.get_by_label("link law").select_option("blocks")
    page.get_by_label("resource blocks", exact=True).fill("6")
    plan = json.loads(planned("--json", "--law", "blocks:6"))
    round_s = page.locator(".compare tr[data-policy=optimal] td").nth(3)
    expect(round_s).to_have_text(digits(plan["round_s"], 5))
    expect(page.locator(".compare caption")).to_contain_text("Law blocks:count=6")
    expect(page.locator(".listed thead")).to_contain_text("blocks")
    assert numbers(page, ".listed tbody tr td:nth-of-type(1)") == [str(row["blocks"]) for row in plan["devices"]]
    page.wait_for_timeout(700)  # the page keeps what it shows once that has rested for half a second
    page.reload()
    expect(page.get_by_label("resource blocks", exact=True)).to_have_value("6")
    expect(round_s).to_have_text(digits(plan["round_s"], 5))
    page.get_by_label("link law").select_option("ingress")
    expect(page.get_by_label(re.compile("uplink, Mbit/s$"))).to_have_value("10")
    piped = json.loads(planned("--json", "--law", "ingress:1e7"))
    expect(round_s).to_have_text(digits(piped["round_s"], 5))
    expect(page.locator(".listed thead")).to_contain_text("of the uplink")
    page.get_by_label("link law").select_option("dedicated")
    expect(page.locator(".listed thead")).not_to_contain_text("share")


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


def test_devices_are_dragged_on_a_map_and_say_what_they_bring(server: Served, page: Page) -> None:
    page.goto(f"{server.url}#plan")
    page.get_by_label("each with two of ten labels").check()
    card = page.get_by_role("region", name="Map")
    expect(card.get_by_label("Policy on the map")).to_have_value("diverse")
    body = {"draw": {"count": 20, "seed": 0, "labels": 2}, "cell": {"radius_m": 1400.0}, "theta": 0}
    answer = server.post("/api/plan", body)
    plan = next(plan for plan in answer["plans"] if plan["policy"] == "diverse")
    expect(card.locator(".device")).to_have_count(20)
    expect(card.locator(".device.scheduled")).to_have_count(plan["n"])
    chosen = plan["devices"][0]["index"]
    card.locator(f".device[data-device='{chosen}'] .body").hover()
    other = plan["imbalance_other"][chosen]
    expect(card.locator("[data-fact=imbalance]")).to_contain_text(
        f"imbalance {plan['imbalance']:.3f} with it, {other:.3f} without"
    )
    assert sorted(card.locator(".profile li b").all_inner_texts()) == ["0 %"] * 8 + ["50 %"] * 2
    # Dragged to the mast its upload takes next to no time; the table, the plans and a reload follow.
    before = float(card.locator("[data-fact='uploads, entire band'] dd").inner_text().split()[0])
    mast, device = (card.locator(part).bounding_box() for part in (".mast", f"[data-device='{chosen}'] .body"))
    assert mast is not None
    assert device is not None
    page.mouse.move(device["x"] + device["width"] / 2, device["y"] + device["height"] / 2)
    page.mouse.down()
    page.mouse.move(mast["x"] + mast["width"] / 2 + 12, mast["y"] + 8, steps=4)
    page.mouse.up()
    cell = page.locator(f".editor input[data-row='{chosen}'][data-column='0']")
    expect(cell).to_have_value(re.compile(r"^1\d\d(\.\d)?$"))  # metres: some pixels from the mast
    expect(page.locator(".editor-caption")).to_contain_text("edited by hand")
    fact = card.locator("[data-fact='uploads, entire band'] dd")
    expect(fact).not_to_have_text(f"{digits(before, 4)} s")
    assert float(fact.inner_text().split()[0]) < before
    # With the keyboard: the next device, and further out.
    was = float(cell.input_value())
    card.locator(".map").press("ArrowRight")
    card.locator(".map").press("ArrowLeft")
    card.locator(".map").press("ArrowDown")
    expect(cell).not_to_have_value(str(was))
    assert float(cell.input_value()) > was
    check_with_axe(page, "[aria-label=Map]")
