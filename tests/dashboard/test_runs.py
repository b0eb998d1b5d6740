"""/api/info, /api/runs, /api/results and /api/paper: what is in the results files, and nothing else."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.dashboard.schemas import Curves, FieldAnswer, Info, PaperAnswer, RoundAnswer, RunAnswer, RunList
from fedcell.plots import STYLES, Looks, group_styles, plan_styles, styles
from fedcell.runs.race import default_race, race_policies
from fedcell.runs.records import Rounds
from fedcell.runs.stats import summarise
from fedcell.runs.store import Measured, Store
from fedcell.schedule.laws import LAWS
from fedcell.schedule.plan import Plan
from fedcell.sim.loop import simulate
from fedcell.sim.record import ROUND_COLUMNS, RoundRecord
from fedcell.sim.spec import Spec, parse_spec
from fedcell.sim.task import load_task
from harness import Served, run, serve

pytestmark = pytest.mark.processes
TINY: dict[str, Any] = {
    "rounds": 3,
    "devices": {"count": 6, "mobility": "waypoint", "failure": 0.3},
    "cell": {"shadowing_db": 6.0, "fading": "rayleigh"},
    "task": {"hidden": [4]},
}


def tiny(policy: str, seed: int, **changes: Any) -> Spec:
    return parse_spec(TINY | {"policy": policy, "seed": seed} | changes, "a test")


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, int], list[RoundRecord]]:
    specs = [tiny(policy, seed) for policy in ("greedy", "all:sharing=equal") for seed in (0, 1)]
    return {(spec.policy, spec.seed): list(simulate(spec)) for spec in specs}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, runs: dict[Any, list[RoundRecord]]) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("runs")
    with Store(folder / "results.db") as store:
        for (policy, seed), records in runs.items():
            store.put(tiny(policy, seed), records, 1.0)
        store.fail(tiny("greedy", 9), "it was too slow")
    with Store(folder / "real.db") as store:
        records = runs["greedy", 0]
        measured = [
            Measured(r.plan.devices, np.full(r.plan.devices.size, r.round_s), np.ones(r.plan.devices.size), _late(r))
            for r in records
        ]
        store.put_measured(tiny("greedy", 0), records, measured, source="testbed", duration_s=3.0)
    paper = folder / "paper"
    paper.mkdir()
    for name in ("index.html", "fig2.svg", "fig2.csv", "secret.txt"):
        (paper / name).write_text(f"<p>{name}</p><h2 id=fig2>Fig. 2: &lt;accuracy&gt;</h2>")
    with serve(folder / "results.db", "--read", "real.db", "--paper", "paper") as served:
        yield served


def _late(record: RoundRecord) -> Any:
    times = np.full(record.plan.devices.size, record.round_s + 0.5)
    times[0] = math.nan
    return times


def key(policy: str, seed: int) -> str:
    return tiny(policy, seed).key()


def test_info_tells_what_there_is(served: Served) -> None:
    info = served.get("/api/info")
    Info.model_validate(info)
    assert [Path(store["name"]).name for store in info["stores"]] == ["results.db", "real.db"]
    assert [store["writable"] for store in info["stores"]] == [True, False]
    assert info["paper"] is True
    assert info["policies"] == race_policies()
    assert [law["name"] for law in info["laws"]] == list(LAWS)
    assert info["laws"][1]["settings"] == [
        {
            "name": "count",
            "default": None,
            "required": True,
            "kind": "whole",
            "label": "resource blocks",
            "usual": 15,
            "scale": 1,
        }
    ]
    assert {policy["name"] for policy in info["all_policies"]} == set(fc.POLICIES)
    k = next(policy for policy in info["all_policies"] if policy["name"] == "random")["settings"][-1]
    diverse = next(policy for policy in info["all_policies"] if policy["name"] == "diverse")["settings"]
    assert [(one["name"], one["default"]) for one in diverse][-2:] == [("theta", 0.05), ("memory", 0.5)]
    assert info["choices"] == {"sharing": ["optimal", "equal"]}
    fields = {one["path"]: one for one in info["fields"]}
    assert fields["profiles"]["choices"] == ["labels", "gradients", "updates", "none"]
    assert fields["task.aggregator"]["choices"][:3] == ["mean", "samples", "balanced"]
    assert (fields["profiles"]["others"], fields["task.aggregator"]["others"]) == (False, True)
    assert fields["cell.channel"]["choices"] == ["paper", "uma", "umi", "rma"]
    band = {name: fields["cell.bandwidth_hz"][name] for name in ("label", "unit", "scale", "least", "required")}
    assert band == {"label": "bandwidth", "unit": "MHz", "scale": 1e6, "least": 0.0, "required": True}
    assert k == {"name": "k", "default": None, "required": True, "kind": "whole"}
    assert [info["colours"][line]["colour"] for line in race_policies()] == [
        colour for colour, _ in (STYLES[10], *STYLES[:7])
    ]
    assert parse_spec(info["defaults"], "info") == default_race().changed({}, {})
    assert info["defaults"]["cell"]["radius_m"] == 1400.0
    assert (info["seeds"], info["target"]) == (5, 0.8)
    assert info["plan_cell"] == {
        "radius_m": 1400.0,
        "bandwidth_hz": 3e6,
        "model_bits": 1_628_480,
        "noise_dbm_per_mhz": -114.0,
        "path_loss_1km_db": 128.1,
        "path_loss_exponent": 3.76,
        "channel": "paper",
        "rate": "shannon",
    }


def test_runs_are_listed_and_filtered(served: Served) -> None:
    found = served.get("/api/runs")
    RunList.model_validate(found)
    assert found["total"] == len(found["runs"]) == 6
    assert {run["source"] for run in found["runs"]} == {"simulation", "testbed"}
    failed = [run for run in found["runs"] if run["status"] == "failed"]
    assert [(run["reason"], run["best_accuracy"]) for run in failed] == [("it was too slow", None)]
    assert served.get("/api/runs?source=testbed")["total"] == 1
    assert served.get("/api/runs?policy=greedy")["total"] == 4
    assert served.get("/api/runs?store=real.db")["total"] == 1
    some = served.get("/api/runs?limit=2&offset=3")
    assert (len(some["runs"]), some["total"]) == (2, 6)
    assert some["runs"] == found["runs"][3:5]
    for query in ("limit=0", "limit=1001", "offset=-1", "source=dream", "store=other.db"):
        assert served.http.get(f"/api/runs?{query}").status_code in (404, 422)


def test_what_differs_is_told(served: Served, tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        for radius_m in (500.0, 600.0):
            store.put(parse_spec({"cell": {"radius_m": radius_m}, "rounds": 1}, "x"), [])
        store.put(parse_spec({"budget_s": 3.0}, "x"), [])
    with serve(tmp_path / "results.db") as other:
        found = other.get("/api/runs")["runs"]
        assert {run["differs"]["cell.radius_m"] for run in found} == {500.0, 600.0, 1400.0}
        assert all(set(run["differs"]) == {"cell.radius_m", "budget_s", "rounds"} for run in found)


def test_a_run_is_its_rounds(served: Served, runs: dict[Any, list[RoundRecord]]) -> None:
    found = served.get(f"/api/runs/{key('greedy', 1)}")
    RunAnswer.model_validate(found)
    assert found["columns"] == list(ROUND_COLUMNS)
    assert found["rows"] == [list(record.numbers()) for record in runs["greedy", 1]]
    assert parse_spec(found["spec"], "x") == tiny("greedy", 1)
    assert served.get(f"/api/runs/{key('greedy', 1)[:12]}") == found
    for bad, status in (("0" * 64, 404), ("xyz", 422), ("abc", 422), ("%2e%2e", 422)):
        assert served.http.get(f"/api/runs/{bad}").status_code == status


@pytest.mark.parametrize("sharing", ["planned", "optimal", "equal"])
def test_a_round_is_drawn_as_it_was(served: Served, runs: dict[Any, list[RoundRecord]], sharing: str) -> None:
    """The conditions of a moving, fading, shadowed cell are found again from seed, round and clock."""
    for policy in ("greedy", "all:sharing=equal"):
        for number in (1, 3):
            record = runs[policy, 0][number - 1]
            found = served.get(f"/api/runs/{key(policy, 0)}/rounds/{number}?sharing={sharing}")
            RoundAnswer.model_validate(found)
            assert found["round_s_planned"] == pytest.approx(record.round_s, rel=1e-12)
            scheduled = [one for one in found["devices"] if one["scheduled"]]
            assert [one["index"] for one in scheduled] == record.plan.devices.tolist()
            assert [one["index"] for one in scheduled if one["delivered"]] == record.delivered.tolist()
            c, t = ([one[name] for one in scheduled] for name in ("upload_s", "compute_s"))
            shares = [one["share"] for one in scheduled]
            band = fc.allocate(c, t, sharing="equal" if sharing == "equal" else "optimal")
            wanted = record.plan.shares if sharing == "planned" else band.shares
            np.testing.assert_allclose(shares, wanted)
            assert found["round_s"] == pytest.approx(max(one["finish_s"] for one in scheduled))
            assert found["round_s_equal"] >= found["round_s_optimal"] * (1 - 1e-12)
            assert sum(one["bandwidth_hz"] for one in scheduled) == pytest.approx(3e6)
            assert found["joules"] == record.joules
            assert [one["joules"] for one in scheduled] == record.plan_joules.tolist()
            assert len(found["devices"]) == 6
            assert all(
                one["share"] is None and one["joules"] is None for one in found["devices"] if not one["scheduled"]
            )


@pytest.mark.parametrize("law", ["blocks:count=5", "power", "dedicated", "ingress:bits_per_s=500000"])
def test_a_round_under_another_law_is_drawn_as_it_was(law: str, tmp_path: Path) -> None:
    spec = tiny("all:max_devices=3", 0, cell=TINY["cell"] | {"law": law})
    records = list(simulate(spec))
    with Store(tmp_path / "results.db") as store:
        store.put(spec, records)
    with serve(tmp_path / "results.db") as served:
        for sharing in ("planned", "optimal", "equal"):
            found = served.get(f"/api/runs/{spec.key()}/rounds/1?sharing={sharing}")
            RoundAnswer.model_validate(found)
            assert (found["law"], found["blocks"]) == (law, 5 if law.startswith("blocks") else None)
            assert found["round_s_planned"] == pytest.approx(records[0].round_s, rel=1e-12)
            assert found["round_s_optimal"] == pytest.approx(records[0].round_s, rel=1e-9)
            scheduled = [one for one in found["devices"] if one["scheduled"]]
            assert found["round_s"] == pytest.approx(max(one["finish_s"] for one in scheduled))
            if law.startswith("blocks"):
                assert [one["blocks"] for one in scheduled] == [round(5 * one["share"]) for one in scheduled]
                assert sum(one["blocks"] for one in scheduled) <= 5
            elif law == "dedicated":
                assert [one["upload_with_share_s"] for one in scheduled] == [one["upload_s"] for one in scheduled]
                assert {one["bandwidth_hz"] for one in scheduled} == {3e6}
            assert {one["blocks"] for one in found["devices"] if not one["scheduled"]} == {None}


def test_a_first_round_after_reports_is_drawn_as_it_was(tmp_path: Path) -> None:
    """The devices have walked on while they reported what their data is like."""
    devices = TINY["devices"] | {"mobility": "waypoint:speed_mps=30"}
    spec = tiny("diverse", 0, devices=devices, profiles="gradients")
    records = list(simulate(spec))
    assert records[0].clock_s > records[0].round_s
    with Store(tmp_path / "results.db") as store:
        store.put(spec, records)
    with serve(tmp_path / "results.db") as served:
        for record in records:
            found = served.get(f"/api/runs/{spec.key()}/rounds/{record.round}")
            assert found["round_s_planned"] == pytest.approx(record.round_s, rel=1e-12)
            assert found["clock_s"] == record.clock_s


def test_rounds_that_are_not_there(served: Served) -> None:
    answer = served.http.get(f"/api/runs/{key('greedy', 0)}/rounds/4?store=results.db")
    assert answer.status_code in (404, 422)
    name = served.get("/api/info")["stores"][0]["name"]
    answer = served.http.get(f"/api/runs/{key('greedy', 0)}/rounds/4", params={"store": name})
    assert (answer.status_code, answer.json()["detail"]) == (404, "the run has 3 rounds, no round 4")
    assert served.http.get(f"/api/runs/{key('greedy', 0)}/rounds/0").status_code == 422
    assert served.http.get(f"/api/runs/{key('greedy', 9)}/rounds/1").status_code == 404


def test_measured_times_are_shown(served: Served) -> None:
    run = served.get("/api/runs?source=testbed")["runs"][0]
    found = served.get(f"/api/runs/{run['key']}/rounds/2")
    scheduled = [one for one in found["devices"] if one["scheduled"]]
    assert scheduled[0]["measured_finish_s"] is None
    times = [one["measured_finish_s"] for one in scheduled[1:]]
    assert times == pytest.approx([found["round_s_planned"] + 0.5] * len(times))
    assert {one["upload_began_s"] for one in scheduled} == {1.0}
    assert [one["predicted_finish_s"] for one in scheduled] == pytest.approx(
        [found["round_s_planned"]] * len(scheduled)
    )
    simulated = served.get(f"/api/runs/{key('greedy', 0)}/rounds/2")["devices"]
    assert {one["predicted_finish_s"] for one in simulated} == {None}


def test_the_field_is_the_mean_snr(served: Served) -> None:
    found = served.get(f"/api/runs/{key('greedy', 0)}/field?size=41")
    FieldAnswer.model_validate(found)
    spec = tiny("greedy", 0)
    task = load_task(spec.task, 6, 0, 1)
    world = spec.world(task.samples.tolist(), task.engine.parameters)
    x, y = found["x_m"][30], found["y_m"][12]
    from fedcell.world import link_snr, path_loss_db
    from fedcell.world.channel import shadowing_db

    loss = path_loss_db(world.cell, np.array([math.hypot(x, y)])) + shadowing_db(world.cell, np.array([[x, y]]), 0)
    snr = link_snr(world.cell, float(world.devices.power_w_per_hz[0]), loss)
    assert found["snr_db"][12][30] == pytest.approx(10 * math.log10(snr[0]), abs=0.006)
    assert found["snr_db"][0][0] is None
    assert served.http.get(f"/api/runs/{key('greedy', 0)}/field?size=201").status_code == 422


def test_runs_are_compared_with_the_statistics_of_a_race(served: Served, runs: dict[Any, list[RoundRecord]]) -> None:
    keys = ",".join(key(policy, seed) for policy, seed in runs)
    found = served.get(f"/api/results/compare?keys={keys}&target=0.2")
    Curves.model_validate(found)
    assert [line["line"] for line in found["policies"]] == ["greedy", "all:sharing=equal"]
    for policy, row in zip(("greedy", "all:sharing=equal"), found["table"], strict=True):
        summary = summarise([Rounds.of_records(runs[policy, seed]) for seed in (0, 1)], 0.2, math.inf)
        assert row["last"] == {"mean": summary.last.mean, "half": None, "low": None, "high": None}  # two seeds
        assert row["time_to_target"]["reached"] == summary.to_target.reached
    assert len(found["verdicts"]) == 1
    assert "use at least 6" in found["verdicts"][0]
    among = served.get(f"/api/results/compare?keys={keys}&target=0.2&among=7")["verdicts"][0]
    assert "use at least 10" in among  # corrected for the pairs of all that they were picked from
    lines = served.http.get(f"/api/results/data.csv?keys={keys}").text.splitlines()
    assert len(lines) == 1 + sum(len(run) for run in runs.values())
    rows = served.get(f"/api/results/data.json?keys={keys}")
    assert [row["accuracy"] for row in rows[:3]] == [r.accuracy for r in runs["greedy", 0]]
    for ending, start in (("svg", b"<?xml"), ("png", b"\x89PNG")):
        assert served.http.get(f"/api/results/figure.{ending}?keys={keys}").content.startswith(start)
    real = served.get("/api/runs?source=testbed")["runs"][0]["key"]
    mixed = served.get(f"/api/results/compare?keys={key('greedy', 0)},{real}")
    assert [line["line"] for line in mixed["policies"]] == ["greedy", "greedy testbed"]
    for bad, status in (
        ("", 422),
        ("abc", 422),
        ("zz" * 8, 422),
        ("0" * 64, 404),
        (",".join(f"{i:064x}" for i in range(65)), 422),
    ):
        answer = served.http.get(f"/api/results/compare?keys={bad}")
        assert (answer.status_code, list(answer.json())) == (status, ["detail"]), bad


def test_the_paper_is_what_its_folder_lists(served: Served) -> None:
    found = served.get("/api/paper")
    PaperAnswer.model_validate(found)
    wanted = {"name": "fig2", "title": "Fig. 2: <accuracy>", "files": ["fig2.svg", "fig2.csv"]}
    assert found["figures"] == [wanted]
    assert found["page"] == "index.html"
    page = served.http.get("/api/paper/index.html")
    assert page.text.startswith("<p>index.html</p>")
    assert "sandbox" in page.headers["content-security-policy"]
    for name in ("secret.txt", "fig3a.svg", "..", "%2e%2e%2fresults.db"):
        assert served.http.get(f"/api/paper/{name}").status_code == 404


def test_the_openapi_document_is_whole(served: Served) -> None:
    document = served.get("/api/openapi.json")
    assert {"/api/plan", "/api/races", "/api/races/{id}/events", "/api/runs", "/api/info"} <= set(document["paths"])
    assert "http://" not in json.dumps(document)
    assert served.http.get("/docs").status_code == served.http.get("/redoc").status_code == 404


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_documented_requests_are_answered(served: Served) -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs" / "dashboard.md").read_text().partition("## HTTP API")[2]
    lines = [line for line in text.partition("```bash")[2].partition("```")[0].splitlines() if line.startswith("curl")]
    assert len(lines) >= 6
    for line in lines:
        limit_s = 3 if "/api/events" in line else 60  # a stream goes on until curl ends it
        command = line.replace("localhost:8420", f"127.0.0.1:{served.port}")
        command = command.replace("curl", f"curl --max-time {limit_s}", 1)
        said = run("sh", "-c", command, cwd=root).stdout
        assert said.startswith("event: race") if "/api/events" in line else "detail" not in json.loads(said), line
        for race in served.get("/api/races")["races"]:  # or it would train for as long as the stream goes on
            served.http.post(f"/api/races/{race['id']}/stop")  # one that has ended already refuses


def test_one_look_a_policy_whatever_is_beside_it() -> None:
    assert styles(["random:k=8", "greedy"])["greedy"] == STYLES[1]
    lines = [f"random:k={k}" for k in range(1, 13)]
    alone = {line: styles([line])[line] for line in lines}
    assert len(set(alone.values())) == 12
    assert styles([*reversed(lines), *fc.POLICIES]).items() >= alone.items()
    assert not {*alone.values()} - {alone["random:k=8"]} & set(STYLES)
    fresh = Looks()
    assert [fresh.of(line)[0] for line in ("random:k=3", "random:k=8", "random")] == [STYLES[6][0]] * 3
    assert fresh.of("random:k=3") == fresh.of("random:k=3") != fresh.of("random:k=8")
    drawn = [plan_styles([f"random:k={k}", "deadline:seconds=8"]) for k in (5, 6)]  # as a slider is dragged
    assert list(drawn[0].values()) == list(drawn[1].values()) == [STYLES[6], STYLES[3]]


def test_groups_of_a_policy_share_its_colour() -> None:
    names = {f"greedy radius_m={metres}": "greedy" for metres in (500, 600, 700, 800, 900)} | {"all": "all"}
    looks = group_styles(names)
    assert [colour for colour, _ in looks.values()][:4] == [STYLES[1][0]] * 4
    assert looks["greedy radius_m=500"] == STYLES[1]
    assert looks["all"] == STYLES[7]
    assert len(set(looks.values())) == len(names)


def test_a_plan_that_schedules_nobody_is_drawn(tmp_path: Path) -> None:
    nobody = Plan(np.empty(0, np.int64), np.empty(0), 8.0)
    with Store(tmp_path / "results.db") as store:
        spec = tiny("deadline:seconds=8", 0)
        store.put(spec, [RoundRecord(1, 8.0, 8.0, nobody, nobody.devices, 0.1, math.nan)])
    with serve(tmp_path / "results.db") as served:
        found = served.get(f"/api/runs/{spec.key()}/rounds/1?sharing=equal")
        RoundAnswer.model_validate(found)
        assert (found["round_s"], found["round_s_equal"]) == (8.0, 8.0)
        assert not any(one["scheduled"] for one in found["devices"])
        assert served.get(f"/api/runs/{spec.key()}")["rows"][0][-1] is None
