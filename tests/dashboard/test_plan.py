"""/api/plan: the same plans as `fedcell plan`, the true curve, and every fault in one sentence."""

import itertools
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import fedcell as fc
from fedcell.dashboard.plan import answer, answer_plan
from fedcell.dashboard.schemas import PlanAnswer, PlanAsk
from fedcell.schedule.profiles import imbalance, standardise
from harness import LIMIT_S, Served, fedcell

pytestmark = pytest.mark.processes
EXAMPLE = Path(__file__).parents[2] / "examples" / "devices.csv"
CSV = EXAMPLE.read_text()


def cli(*options: str) -> str:
    done = fedcell("plan", EXAMPLE, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(served: Served, document: Any, status: int = 422) -> str:
    answer = served.http.post("/api/plan", json=document)
    assert answer.status_code == status, answer.text
    detail = answer.json()["detail"]
    assert list(answer.json()) == ["detail"]
    assert "\n" not in detail
    return str(detail)


def told_once(plans: list[dict[str, Any]]) -> list[str]:
    """The notes of all plans, which the page shows once, taken out of the plans."""
    return list(dict.fromkeys(note for plan in plans for note in plan.pop("notes")))


def test_it_is_what_fedcell_plan_prints(served: Served) -> None:
    ask = {"devices_csv": CSV, "theta": 0.1, "cell": {"bandwidth_hz": 2e6}}
    options = ("--compare", "--theta", "0.1", "--bandwidth-hz", "2e6")
    answer = served.post("/api/plan", ask)
    PlanAnswer.model_validate(answer)
    expected = json.loads(cli(*options, "--json"))["plans"]
    assert answer["notes"] == told_once(expected)
    extra = {"n", "colour", "dash", "imbalance_other", "shared"}
    assert [{k: v for k, v in plan.items() if k not in extra} for plan in answer["plans"]] == expected
    assert [plan["n"] for plan in answer["plans"]] == [len(plan["devices"]) for plan in expected]
    for form, option in (("csv", "--csv"), ("json-file", "--json")):
        assert served.http.post("/api/plan", json=ask | {"format": form}).text == cli(*options, option)
    best = min(plan["objective_s"] for plan in expected if plan["objective_s"])
    for line, plan in zip(answer["comparison"], expected, strict=True):
        n = len(plan["devices"])
        relative = None if plan["objective_s"] is None else pytest.approx(plan["objective_s"] / best)
        assert (line["policy"], line["devices"], line["relative"]) == (plan["policy"], n, relative)
        assert line["per_device_s"] == (pytest.approx(plan["round_s"] / n) if n else None)
    assert answer["table"]["columns"] == CSV.splitlines()[0].split(",")
    assert [",".join(row) for row in answer["table"]["rows"]] == CSV.splitlines()[1:]
    assert answer["cut"] is None


@pytest.mark.parametrize("law", ["blocks:count=5", "power", "dedicated", "ingress:bits_per_s=2000000"])
def test_a_law_is_what_fedcell_plan_prints(served: Served, law: str) -> None:
    answer = served.post("/api/plan", {"devices_csv": CSV, "law": law})
    PlanAnswer.model_validate(answer)
    expected = json.loads(cli("--compare", "--law", law, "--json"))["plans"]
    assert answer["notes"] == told_once(expected)
    extra = {"n", "colour", "dash", "imbalance_other", "shared"}
    assert [{k: v for k, v in plan.items() if k not in extra} for plan in answer["plans"]] == expected
    for form, option in (("csv", "--csv"), ("json-file", "--json")):
        sent = served.http.post("/api/plan", json={"devices_csv": CSV, "law": law, "format": form})
        assert sent.text == cli("--compare", "--law", law, option)
    query = {"law": law, "format": "csv"}
    sent = served.http.post("/api/plan", params=query, content=CSV.encode(), headers={"content-type": "text/csv"})
    assert sent.text == cli("--compare", "--law", law, "--csv")
    curve = answer["curve"]
    assert curve["optimal_objective_s"] == expected[0]["objective_s"]
    assert min(curve["objective_s"]) == pytest.approx(expected[0]["objective_s"], rel=1e-9)
    if law.startswith("blocks"):
        assert max(curve["n"]) == 5


def test_one_policy_is_written_as_one(served: Served) -> None:
    ask = {"devices_csv": CSV, "policies": ["deadline:seconds=8"], "format": "csv"}
    assert served.http.post("/api/plan", json=ask).text == cli("--policy", "deadline:seconds=8", "--csv")
    sent = served.http.post("/api/plan?format=csv", content=CSV.encode(), headers={"content-type": "text/csv"})
    assert sent.text == cli("--compare", "--csv")


def test_theta_is_the_policys_unless_it_is_sent(served: Served) -> None:
    for policies in (["optimal:0.1"], ["all", "greedy:theta=0.2", "optimal"], ["diverse"]):
        ask = {"devices_csv": CSV, "policies": policies}
        lines = [word for policy in policies for word in ("--policy", policy)]
        for sent in ({}, {"theta": None}, {"theta": 0.3}):
            options = ["--theta", "0.3"] if sent.get("theta") else []
            answer = served.http.post("/api/plan", json=ask | sent | {"format": "json-file"})
            assert answer.text == cli(*lines, *options, "--json")
    answer = served.post("/api/plan", {"devices_csv": CSV, "policies": ["optimal:0.1"]})
    assert (answer["plans"][0]["theta"], answer["curve"]["theta"]) == (0.1, 0.1)
    assert answer["curve"]["optimal_n"] == answer["plans"][0]["n"]
    assert served.post("/api/plan", {"devices_csv": CSV})["curve"]["theta"] == 0.0


def test_the_epochs_of_compute_times_may_be_sent(served: Served) -> None:
    """That policies which decide work and bits are shown: test_browser_plan.py."""
    text = "upload_s,samples,seconds_per_sample,samples_per_second\n1,100,0.01,50\n"
    answer = served.post("/api/plan", {"devices_csv": text, "epochs": 3})
    assert answer["table"]["compute_s"] == [9.0]
    told = {row["policy"]: (row["epochs"], row["bits"]) for row in answer["comparison"]}
    assert told["optimal"] == ("3", "32")
    assert told["auto"] != ("3", "32")
    one = served.post("/api/plan", {"devices_csv": text, "policies": ["optimal"], "epochs": 3})["comparison"]
    assert [(row["epochs"], row["bits"]) for row in one] == [(None, None)]
    query, csv_type = {"epochs": "3"}, {"content-type": "text/csv"}
    sent = served.http.post("/api/plan", params=query, content=text.encode(), headers=csv_type).json()
    assert sent["plans"] == answer["plans"]
    refused = served.http.post("/api/plan", json={"devices_csv": text, "epochs": 1.5})
    assert (refused.status_code, refused.json()["detail"][:16]) == (422, "epochs is 1.5; g")


def test_a_list_of_devices_is_a_table_too(served: Served) -> None:
    header, *lines = [line.split(",") for line in CSV.splitlines()]
    devices = [dict(zip(header, line, strict=True)) for line in lines]
    numbers = [{k: v if k == "device" else float(v) for k, v in one.items()} for one in devices]
    by_text = served.post("/api/plan", {"devices_csv": CSV})
    assert served.post("/api/plan", {"devices": devices})["plans"] == by_text["plans"]
    assert served.post("/api/plan", {"devices": numbers})["plans"] == by_text["plans"]


def test_a_draw_is_the_csv_that_it_shows(served: Served) -> None:
    cell = {"radius_m": 700.0}
    drawn = served.post("/api/plan", {"draw": {"count": 30, "seed": 3}, "cell": cell})
    table = drawn["table"]
    text = "\n".join([",".join(table["columns"]), *(",".join(row) for row in table["rows"])])
    assert served.post("/api/plan", {"devices_csv": text, "cell": cell})["plans"] == drawn["plans"]
    conditions = fc.World(fc.Cell(radius_m=700.0), fc.Devices(30)).conditions(3)
    assert [float(row[0]) for row in table["rows"]] == conditions.distance_m.tolist()


@pytest.mark.parametrize("theta", [0.0, 0.3, -0.2])
@pytest.mark.parametrize("forced", [False, True])
def test_the_curve_is_the_best_of_all_sets(theta: float, forced: bool) -> None:
    rng = np.random.default_rng(5)
    M = 9
    c, t = rng.exponential(1.0, M), rng.exponential(2.0, M)
    rows = [
        {"upload_s": float(a), "compute_s": float(b), "must_include": forced and i in (2, 7)}
        for i, (a, b) in enumerate(zip(c, t, strict=True))
    ]
    curve = answer_plan(PlanAsk.model_validate({"devices": rows, "theta": theta})).document()["curve"]
    must = {2, 7} if forced else set()
    most = 4 if theta < 0 else M
    assert curve["n"] == list(range(max(1, len(must)), most + 1))
    for n, value in zip(curve["n"], curve["objective_s"], strict=True):
        sets = [list(s) for s in itertools.combinations(range(M), n) if must <= set(s)]
        best = min(float(fc.allocate(c[s], t[s]).round_s) for s in sets)
        assert value == pytest.approx((theta + 1 / n) * best, rel=1e-12)
    assert min(curve["objective_s"]) == pytest.approx(curve["optimal_objective_s"], rel=1e-12)
    assert curve["objective_s"][curve["n"].index(curve["optimal_n"])] == pytest.approx(curve["optimal_objective_s"])
    assert curve["greedy_objective_s"] >= curve["optimal_objective_s"] * (1 - 1e-12)


def test_drawn_labels_are_profiles_and_each_device_says_what_it_brings(served: Served) -> None:
    answer = served.post("/api/plan", {"draw": {"count": 12, "labels": 2}, "policies": ["diverse", "greedy"]})
    PlanAnswer.model_validate(answer)
    table = answer["table"]
    assert table["names"] == [str(i) for i in range(12)]
    assert len(table["upload_s"]) == len(table["compute_s"]) == 12
    place = [i for i, column in enumerate(table["columns"]) if column.startswith("profile:")]
    rows = np.array([[float(row[i]) for i in place] for row in table["rows"]])
    assert rows.shape == (12, 10)
    assert set(rows.sum(axis=1)) == {2.0}
    profiles = standardise(rows / 2)
    assert profiles is not None
    for plan in answer["plans"]:
        chosen = {device["index"] for device in plan["devices"]}
        assert plan["imbalance"] == pytest.approx(imbalance(profiles, np.array(sorted(chosen))))
        for device, other in enumerate(plan["imbalance_other"]):
            assert other == pytest.approx(imbalance(profiles, np.array(sorted(chosen ^ {device}))))
    plain = served.post("/api/plan", {"draw": {"count": 3}})
    assert [plan["imbalance_other"] for plan in plain["plans"]] == [None] * len(plain["plans"])


def test_a_large_table_is_cut_and_says_so(served: Served) -> None:
    answer = served.post("/api/plan", {"draw": {"count": 1000}})
    PlanAnswer.model_validate(answer)
    assert "of 1,000 devices only the first 50" in answer["cut"]
    assert {len(plan["devices"]) for plan in answer["plans"]} <= set(range(51))
    everyone = next(plan for plan in answer["plans"] if plan["policy"] == "all")
    assert (everyone["n"], len(everyone["devices"]), len(answer["table"]["rows"])) == (1000, 50, 50)
    curve = answer["curve"]
    assert {1, 1000, curve["optimal_n"], curve["greedy_n"]} <= set(curve["n"])
    assert len(curve["n"]) < 100
    assert min(curve["objective_s"]) == pytest.approx(curve["optimal_objective_s"], rel=1e-12)
    whole = served.http.post("/api/plan", json={"draw": {"count": 1000}, "policies": ["all"], "format": "csv"})
    assert len(whole.text.splitlines()) == 1001


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "give exactly one of devices_csv, devices and draw"),
        ({"devices_csv": CSV, "draw": {}}, "give exactly one of"),
        ({"devices_csv": ""}, "the CSV is empty"),
        ({"devices_csv": "\x00\x01\x02"}, "is not UTF-8 text"),
        ({"devices_csv": "a;b;c\n1;2;3"}, "has no upload column"),
        ({"devices_csv": 'upload_s,compute_s\n"1,2'}, "is not valid CSV"),
        ({"devices_csv": "upload_s,compute_s\nNaN,1"}, "line 2: upload_s is 'NaN'; give a number"),
        ({"devices_csv": "[1]"}, "devices_csv is JSON"),
        ({"devices": []}, "devices is empty"),
        ({"devices": [{"upload_s": None, "compute_s": 1}]}, "upload_s is missing"),
        ({"devices": [1]}, "devices.0: input should be an object"),
        ({"draw": {"count": 1_000_000}}, "draw.count: input should be less than or equal to 100000"),
        ({"draw": {"count": 0}}, "draw.count"),
        ({"draw": {}, "theta": -1}, "theta is -1.0"),
        ({"draw": {}, "cell": {"bandwidth_hz": 0}}, "bandwidth_hz"),
        ({"draw": {}, "cell": {"noise_dbm_per_mhz": 5000}}, "noise_dbm_per_mhz"),
        ({"draw": {}, "cell": {"channel": "trace:x.csv"}}, "channel is 'trace:x.csv'; over the network no files"),
        ({"draw": {}, "cell": {"rate": "mcs"}}, "unknown rate 'mcs'"),
        ({"draw": {}, "cell": {"radius_m": 0.1}}, "min_distance_m is 1, more than radius_m"),
        ({"draw": {}, "policies": ["gredy"]}, "did you mean 'greedy'"),
        ({"draw": {}, "policies": ["os:system"]}, "named policies only"),
        ({"draw": {}, "policies": ["fedcell.cli:main"]}, "named policies only"),
        ({"draw": {}, "policies": ["all"] * 13}, "policies: list should have at most 12 items"),
        ({"draw": {}, "policies": ["x" * 300]}, "at most 200 characters"),
        ({"draw": {}, "policies": []}, "at least 1 item"),
        ({"draw": {}, "law": "blocs:3"}, "unknown law 'blocs'; did you mean 'blocks'?"),
        ({"draw": {}, "law": "blocks:0"}, "count of the law blocks is 0; give a whole number of at least 1"),
        ({"draw": {}, "law": "blocks:100001"}, "resource blocks; 100,000 at most"),
        ({"draw": {}, "law": "blocks:" + "9" * 50}, "count of the law blocks is more than 1,000,000,000"),
        ({"draw": {}, "law": "blocks:count="}, "count of law 'blocks' is ''; give a whole number"),
        ({"draw": {}, "law": "ingress"}, "the law ingress needs the rate of the server's uplink"),
        ({"draw": {}, "law": "x" * 300}, "law: string should have at most 100 characters"),
        ({"draw": {}, "law": 3}, "law: input should be a valid string"),
        ({"devices_csv": "upload_s,compute_s\n1,1", "law": "power"}, "give a column snr_db, or distance_m and"),
        ({"draw": {}, "law": "blocks:2", "policies": ["random:3"]}, "k is 3, but there are 2 resource blocks"),
        ({"draw": {}, "colour": "red"}, "colour: extra inputs are not permitted"),
        ([], "should be an object"),
        (None, "valid JSON"),
    ],
)
def test_bad_requests_are_one_sentence(served: Served, document: Any, words: str) -> None:
    assert words in refused(served, document)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"draw": {"count": NaN}}', "count"),
        (b'{"theta": NaN, "draw": {}}', "theta: input should be a finite number"),
        (b'{"theta": 1e999, "draw": {}}', "theta"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"devices": [{"upload_s": NaN, "compute_s": 1}]}', "upload_s is nan; give a number"),
    ],
)
def test_bad_json_is_one_sentence(served: Served, body: bytes, words: str) -> None:
    answer = served.http.post("/api/plan", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, words in answer.json()["detail"]) == (422, True), answer.text


def test_a_million_devices_are_refused(served: Served) -> None:
    text = "upload_s,compute_s\n" + "1,1\n" * 1_000_000
    assert "there are more than 100,000 devices" in refused(served, {"devices_csv": text})
    devices = [{"upload_s": 1, "compute_s": 1}] * 100_001
    assert "there are more than 100,000 devices" in refused(served, {"devices": devices})


HEAD = "upload_s,compute_s\r"
ROW = '{"upload_s":1,"compute_s":1}'


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("text/csv", HEAD + "1,1\r" * 1_000_000, "more than 100,000 devices"),
        ("text/csv", HEAD + "\r" * 1_000_000, "more than 100,000 devices"),
        ("text/csv", HEAD + '"\r",' * 1_000_000, "more than 100,000 devices"),
        ("", json.dumps({"devices_csv": HEAD + "1,1\r" * 1_000_000}), "more than 100,000 devices"),
        ("", '{"devices":[' + "{}," * 2_000_000 + "{}]}", "more than 101,000 objects and lists"),
        ("", '{"devices":[{"a":[' + "[]," * 2_000_000 + "[]]}]}", "more than 101,000 objects and lists"),
        (
            "",
            '{"devices":[' + f"{ROW}," * 20_000 + "{" + ",".join(f'"profile:{i}":1' for i in range(1000)) + "}]}",
            "1,000 profile columns for 20,001 devices",
        ),
        ("", '{"devices":[{' + ",".join(f'"{i}":1' for i in range(300_000)) + "}]}", "at most 1200 items"),
    ],
    ids=("cr", "blank", "quoted", "cr-in-json", "objects", "lists", "profiles", "keys"),
)
def test_what_is_too_much_is_refused_before_it_is_taken_apart(kind: str, body: str, words: str) -> None:
    """Each of these took seconds and up to 600 MB before it was refused, or was planned."""
    content = body.encode()
    tracemalloc.start()
    try:
        with pytest.raises(fc.InputError, match=words):
            answer(content, kind, {})
        assert tracemalloc.get_traced_memory()[1] < 2 * len(content) + 20 * 2**20
    finally:
        tracemalloc.stop()


def test_a_hundred_thousand_devices_are_planned(served: Served) -> None:
    answer = served.post("/api/plan", {"draw": {"count": 100_000}, "policies": ["optimal"]})
    assert answer["plans"][0]["n"] == answer["curve"]["optimal_n"] > 100


def test_a_body_too_large_is_refused_before_it_is_read(served: Served) -> None:
    head = {"content-type": "application/json"}
    answer = served.http.post("/api/plan", content=b" " * (8 * 2**20 + 1), headers=head)
    assert (answer.status_code, "larger than 8 MiB" in answer.json()["detail"]) == (413, True)

    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 2**20

    try:
        counted = httpx.post(f"{served.url}api/plan", content=chunks(), headers=head, timeout=LIMIT_S)
        assert counted.status_code == 413
    except httpx.TransportError:
        pass  # the server closed the connection while we were still sending
    assert served.http.get("/api/info").status_code == 200
