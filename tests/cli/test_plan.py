"""`fedcell plan` as a user meets it: what it prints agrees with the library, and no mistake shows a traceback."""

import csv
import io
import json
import math
import os
import signal
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.plan.device_table import read_devices
from fedcell.rng import stream
from fedcell.schedule.laws import Law
from harness import COMPILING, FEDCELL, Process, fedcell

EXAMPLE = Path(__file__).parents[2] / "examples" / "devices.csv"
EFFORT_OF_ALL = {"epochs": "1", "bits": "32"}
COLUMNS = ["device", "index", "share", "bandwidth_hz", "upload_s", "compute_s", "finish_s"]


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    def json(self) -> Any:
        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is no JSON")

        assert (self.status, self.err) == (0, "")
        return json.loads(self.out, parse_constant=refuse)


Run = Callable[..., Answer]


@pytest.fixture
def run(fedcell_here: Callable[..., CompletedProcess[str]], tmp_path: Path) -> Run:
    """Call the command line in an empty folder; a dict of arguments is a file to write there first."""

    def call(*arguments: object, **files: str) -> Answer:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        done = fedcell_here("plan", *arguments, cwd=tmp_path)
        return Answer(done.returncode, done.stdout, done.stderr.removeprefix(COMPILING))

    return call


def refused(answer: Answer) -> str:
    """One sentence on standard error, nothing on standard output, exit status 2."""
    assert answer.status == 2
    assert answer.out == ""
    assert answer.err.startswith("fedcell: ")
    assert answer.err.endswith("\n")
    assert answer.err.count("\n") == 1
    return answer.err


TWO = "upload_s,compute_s\n1,1\n2,0.5\n"


# ------------------------------------------------------------------------------------------------- what is printed


def test_json_is_what_the_library_decides(run: Run) -> None:
    table = read_devices(EXAMPLE)
    plan = fc.Optimal(0).decide(fc.RoundView(table.upload_s, table.compute_s), stream(0, "policy"))
    document = run(EXAMPLE, "--policy", "optimal:theta=0", "--json").json()
    assert document["round_s"] == plan.round_s
    assert document["objective_s"] == plan.round_s / len(plan.devices)
    assert [row["index"] for row in document["devices"]] == plan.devices.tolist()
    assert [row["share"] for row in document["devices"]] == plan.shares.tolist()
    assert [row["device"] for row in document["devices"]] == [table.names[i] for i in plan.devices]
    for row in document["devices"]:
        assert row["finish_s"] == pytest.approx(document["round_s"], rel=1e-9)
        assert row["finish_s"] == pytest.approx(row["compute_s"] + row["upload_s"], rel=1e-15)
        assert row["upload_s"] == table.upload_s[row["index"]] / row["share"]
        assert row["bandwidth_hz"] == pytest.approx(3e6 * row["share"], rel=1e-15)
    assert sum(row["share"] for row in document["devices"]) == pytest.approx(1, abs=1e-12)


def test_optimal_is_the_default(run: Run) -> None:
    assert run(EXAMPLE, "--json") == run(EXAMPLE, "--policy", "optimal:theta=0", "--json")


def test_the_table_has_the_jsons_numbers(run: Run) -> None:
    document = run(EXAMPLE, "--json").json()
    answer = run(EXAMPLE)
    assert (answer.status, answer.err) == (0, "")
    lines = answer.out.splitlines()
    n = len(document["devices"])
    assert lines[0].strip() == f"optimal: {n} of 20 devices, {document['round_s']:.6g} s"
    assert [cell.strip() for cell in lines[2].split("┃")[1:-1]] == [
        "device", "share", "kHz", "compute s", "upload s", "finish s"
    ]  # fmt: skip
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines[4 : 4 + n]]
    for cells, row in zip(rows, document["devices"], strict=True):
        times = [f"{row[key]:.5g}" for key in ("compute_s", "upload_s", "finish_s")]
        assert cells == [row["device"], f"{100 * row['share']:.2f} %", f"{row['bandwidth_hz'] / 1e3:.5g}", *times]


def test_csv_is_the_json(run: Run) -> None:
    document = run(EXAMPLE, "--json").json()
    rows = list(csv.DictReader(io.StringIO(run(EXAMPLE, "--csv").out)))
    assert list(rows[0]) == COLUMNS
    assert [{key: row[key] if key == "device" else float(row[key]) for key in COLUMNS} for row in rows] == document[
        "devices"
    ]


def test_compare_has_every_policy_that_needs_no_rounds_before(run: Run) -> None:
    plans = run(EXAMPLE, "--compare", "--json").json()["plans"]
    zoo = {name for name, kind in fc.POLICIES.items() if kind.__module__.startswith("fedcell.schedule.zoo.")}
    assert {plan["policy"].split(":")[0] for plan in plans} == set(fc.POLICIES) - zoo
    best = min(plan["objective_s"] for plan in plans if plan["policy"] != "auto")
    assert plans[0]["policy"] == "optimal"
    assert plans[0]["objective_s"] == best
    table = run(EXAMPLE, "--compare").out
    for plan in plans:
        (line,) = (line for line in table.splitlines() if line.startswith(f"│ {plan['policy']} "))
        cells = [cell.strip() for cell in line.split("│")[2:-1]]
        n = len(plan["devices"])
        auto = plan["policy"] == "auto"  # which the rounds model says nothing of
        ratio = "-" if auto else f"{plan['objective_s'] / best:.3f} x"
        work, bits = (f"{plan['devices'][0][name]:.4g}" if auto else usual for name, usual in EFFORT_OF_ALL.items())
        times = [f"{plan['round_s'] / m:.5g}" for m in (1, n)]
        assert cells == [str(n), work, bits, *times, ratio, f"{plan['imbalance']:.3f}"]
    lines = list(csv.DictReader(io.StringIO(run(EXAMPLE, "--compare", "--csv").out)))
    assert [line["policy"] for line in lines] == [plan["policy"] for plan in plans for _ in plan["devices"]]
    assert [float(line["share"]) for line in lines] == [row["share"] for plan in plans for row in plan["devices"]]


def test_diverse_reads_profile_columns(run: Run) -> None:
    text = "device,upload_s,compute_s,profile:cat,profile:dog\na,1,1,90,10\nb,1,1,9,1\nc,9,1,0,7\nd,1,2,,\n"
    arguments = ("d.csv", "--policy", "diverse", "--theta", "9", "--json")
    profiles = np.array([[0.9, 0.1], [0.9, 0.1], [0.0, 1.0], [np.nan, np.nan]])
    view = fc.RoundView(np.array([1.0, 1.0, 9.0, 1.0]), np.array([1.0, 1.0, 1.0, 2.0]), profiles=profiles)
    plan = fc.Diverse().decide(view, stream(0, "policy"))
    document = run(*arguments, **{"d.csv": text}).json()
    assert document["policy"] == "diverse"
    assert [row["index"] for row in document["devices"]] == plan.devices.tolist()
    assert document["imbalance"] < 1


def test_diverse_without_profiles_says_what_it_is(run: Run) -> None:
    answer = run("d.csv", "--policy", "diverse", "--json", **{"d.csv": TWO})
    assert json.loads(answer.out)["imbalance"] is None
    assert answer.err.startswith("note: diverse: no profile columns (profile:NAME), so it chooses")
    assert "imbalance" not in run("d.csv", "--compare").out


def test_the_policies_named_are_compared(run: Run) -> None:
    plans = run(EXAMPLE, "--policy", "random:k=3", "--policy", "all", "--json").json()["plans"]
    assert [(plan["policy"], len(plan["devices"])) for plan in plans] == [("random:k=3", 3), ("all", 20)]


def test_theta_reaches_the_policies_that_do_not_name_their_own(run: Run) -> None:
    arguments = ["--policy", "greedy", "--policy", "greedy:theta=0", "--policy", "optimal", "--theta", "5", "--json"]
    greedy, own, optimal = run(EXAMPLE, *arguments).json()["plans"]
    assert [plan["policy"] for plan in (greedy, own, optimal)] == ["greedy:theta=5", "greedy", "optimal:theta=5"]
    assert len(own["devices"]) > len(greedy["devices"])
    for plan in (greedy, own, optimal):  # one yardstick for all
        assert plan["theta"] == 5
        assert plan["objective_s"] == (5 + 1 / len(plan["devices"])) * plan["round_s"]


def test_the_seed_draws_the_lots(run: Run) -> None:
    first, again, other = (run(EXAMPLE, "--policy", "random:k=9", "--json", "--seed", seed) for seed in (1, 1, 2))
    assert first == again != other


def test_physical_columns_by_hand(run: Run) -> None:
    text = "distance_m,power_dbm_per_mhz,samples,seconds_per_sample,samples_per_second\n700,10,500,0.004,1000\n"
    options = {"--bandwidth-hz": 5e6, "--model-bits": 10**6, "--noise-dbm-per-mhz": -110, "--path-loss-1km-db": 120}
    arguments = [part for option in (*options.items(), ("--path-loss-exponent", 3)) for part in option]
    (row,) = run("d.csv", "--json", *arguments, **{"d.csv": text}).json()["devices"]
    snr = 10 ** ((10 + 110 - 120 - 30 * math.log10(0.7)) / 10)
    assert row["upload_s"] == pytest.approx(1e6 / (5e6 * math.log2(1 + snr)), rel=1e-12)
    assert row["compute_s"] == pytest.approx(500 * 0.004 + 500 / 1000, rel=1e-12)
    assert (row["share"], row["bandwidth_hz"], row["device"]) == (1.0, 5e6, "0")


LAWS = ("blocks:count=6", "power", "dedicated", "ingress:bits_per_s=1000000")


NARROW, BAND = fc.Cell(bandwidth_hz=6 * 180e3), ("--bandwidth-hz", "1080000")
"""Six resource blocks of LTE; blocks of another width are noted."""


def table_law(line: str) -> Law:
    """The law of the example's devices, by hand."""
    laws: dict[str, Law] = {
        "power": fc.Power(read_devices(EXAMPLE, NARROW).snr),
        "dedicated": fc.Dedicated(),
        "blocks": fc.Blocks(6),
        "ingress": fc.Ingress(pipe_s=fc.Cell().model_bits / 1e6),
    }
    return laws[line.partition(":")[0]]


@pytest.mark.parametrize("line", LAWS)
def test_a_law_is_the_librarys_and_the_heading_names_it(run: Run, line: str) -> None:
    table = read_devices(EXAMPLE, NARROW)
    view = fc.RoundView(table.upload_s, table.compute_s, law=table_law(line))
    plan = fc.Optimal(0).decide(view, stream(0, "policy"))
    document = run(EXAMPLE, *BAND, "--law", line, "--json").json()
    assert (document["law"], document["round_s"]) == (line, plan.round_s)
    assert [row["index"] for row in document["devices"]] == plan.devices.tolist()
    assert [row["share"] for row in document["devices"]] == plan.shares.tolist()
    finish_s = plan.finish_s(table.upload_s, table.compute_s, view.law)
    assert [row["finish_s"] for row in document["devices"]] == finish_s.tolist()
    rows = list(csv.DictReader(io.StringIO(run(EXAMPLE, *BAND, "--law", line, "--csv").out)))
    assert [float(row["upload_s"]) for row in rows] == [row["upload_s"] for row in document["devices"]]
    lines = run(EXAMPLE, *BAND, "--law", line).out.splitlines()
    assert lines[1].strip() == f"law {line}"
    compared = run(EXAMPLE, *BAND, "--law", line, "--compare").out.splitlines()
    assert compared[1].strip() == f"law {line}"
    assert sum(text.startswith("│") for text in compared) == 11


def test_a_plan_in_whole_blocks(run: Run) -> None:
    document = run(EXAMPLE, *BAND, "--law", "blocks:6", "--json").json()
    blocks = [row["blocks"] for row in document["devices"]]
    assert all(isinstance(count, int) and count >= 1 for count in blocks)
    assert sum(blocks) <= 6
    assert [row["share"] for row in document["devices"]] == [count / 6 for count in blocks]
    rows = list(csv.DictReader(io.StringIO(run(EXAMPLE, *BAND, "--law", "blocks:6", "--csv").out)))
    assert [row["blocks"] for row in rows] == [str(count) for count in blocks]
    lines = run(EXAMPLE, *BAND, "--law", "blocks:6").out.splitlines()
    assert [cell.strip() for cell in lines[3].split("┃")[1:-1]] == [
        "device", "share", "blocks", "kHz", "compute s", "upload s", "finish s"
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80
    alike = "upload_s,compute_s\n1,1\n1,1\n1,1\n"
    shown = run("d.csv", "--law", "blocks:5", "--policy", "all", **{"d.csv": alike}).out
    assert "2 blocks stay free: they would not shorten the round" in shown


def test_what_a_law_makes_of_a_total_power_and_of_the_band_is_noted(run: Run) -> None:
    file = {"d.csv": "distance_m,power_dbm,compute_s\n100,23,5\n800,23,6\n"}
    spread = "power_dbm: the law {} spreads a device's total power over the whole band of {} MHz"
    width = "blocks:count=15 divides 3 MHz into blocks of 200 kHz, not of 180 kHz as in LTE and NR; set the band to 2.7"
    for law, band, expected in (
        ("density", "3e6", [spread.format("density", 3)]),
        ("blocks:15", "3e6", [width, spread.format("blocks:count=15", 3)]),
        ("blocks:15", "2.7e6", [spread.format("blocks:count=15", 2.7)]),
        ("power", "3e6", []),
        ("dedicated", "3e6", []),
    ):
        done = run("d.csv", "--law", law, "--bandwidth-hz", band, "--json", **file)
        noted = json.loads(done.out)["notes"]
        assert len(noted) == len(expected)
        assert all(note.startswith(start) for note, start in zip(noted, expected, strict=True))
        assert done.err.splitlines() == [f"note: {note}" for note in noted]
    density = run("d.csv", **{"d.csv": "distance_m,power_dbm_per_mhz,compute_s\n100,7,5\n"})
    assert "power_dbm" not in density.err


def test_own_lines_and_rates(run: Run) -> None:
    text = "rate_bps,compute_s\n1e6,2\n5e5,1\n"
    options = ["--model-bits", "1000000", "--policy", "all", "--json"]
    for law, upload_s, round_s in (
        ("dedicated", [1.0, 2.0], 3.0),
        ("ingress:1e7", [1.0, 2.0], 3.0),
        ("density", None, pytest.approx(3 + math.sqrt(2), rel=1e-12)),  # 1 / (T - 2) + 2 / (T - 1) = 1
    ):
        document = run("d.csv", "--law", law, *options, **{"d.csv": text}).json()
        assert document["round_s"] == round_s
        if upload_s:
            assert [row["upload_s"] for row in document["devices"]] == upload_s
            assert "bandwidth_hz" not in document["devices"][0]


def test_distances_in_a_street_canyon_and_coding_schemes_by_hand(run: Run) -> None:
    text = "distance_m,power_dbm_per_mhz,compute_s\n100,7,1\n30,7,1\n"
    devices = run(
        "d.csv", "--json", "--policy", "all", "--channel", "umi:carrier_hz=5e9", "--rate", "mcs256", **{"d.csv": text}
    ).json()["devices"]
    # NLOS at 100 m, where P(LOS) = 0.231: 107.94 dB (ns-3), so 7 + 114 - 107.94 = 13.06 dB: 16QAM 658/1024 is too
    # little for 12.24 dB, 64QAM 466/1024. LOS at 30 m: 32.4 + 21 log10 31.18 + 20 log10 5 = 77.75 dB, 43 dB: the best.
    alone_s = [row["upload_s"] * row["share"] for row in devices]
    assert alone_s == pytest.approx([1_628_480 / (3e6 * 6 * 466 / 1024), 1_628_480 / (3e6 * 8 * 948 / 1024)], rel=1e-9)


def test_uploads_keep_their_digits_beside_long_training(run: Run) -> None:
    (row,) = run("d.csv", "--json", **{"d.csv": "upload_s,compute_s\n1e-12,1e6\n"}).json()["devices"]
    assert row["upload_s"] == 1e-12


def test_must_include_forces_a_device_in(run: Run) -> None:
    text = EXAMPLE.read_text().replace("device,", "device,must_include,", 1).replace("phone-14,", "phone-14,yes,")
    text = "\n".join(
        line if "yes" in line or "must" in line else line.replace(",", ",,", 1) for line in text.splitlines()
    )
    assert "phone-14" not in run(EXAMPLE).out
    assert "phone-14" in run("d.csv", **{"d.csv": text}).out


def test_notes_go_to_standard_error(run: Run) -> None:
    answer = run("d.csv", "--json", **{"d.csv": "distance_m,compute_s,colour\n500,1,red\n"})
    assert json.loads(answer.out)["devices"]
    assert [line.split(":")[0] for line in answer.err.splitlines()] == ["note", "note"]
    assert "colour" in answer.err
    assert "7 dBm/MHz" in answer.err


@pytest.mark.parametrize("form", ["--json", "--csv", None])
def test_nobody_can_make_the_deadline(run: Run, form: str | None) -> None:
    answer = run(EXAMPLE, "--policy", "deadline:seconds=0.001", *([form] if form else []))
    assert answer.status == 0
    assert answer.err == "note: deadline:seconds=0.001: no device is chosen, so none trains and 0.001 s pass\n"
    if form == "--json":
        assert json.loads(answer.out)["objective_s"] is None
        assert json.loads(answer.out)["devices"] == []


@pytest.mark.parametrize(
    "row", ["1e-300,1e-300", "1e300,1e300", "1e300,0\n1e300,1e300", "1e-300,0\n1e300,0", "1,5e-324", "1e-5,1e300"]
)
def test_extremes_solve_in_strict_json(run: Run, row: str) -> None:
    document = run("d.csv", "--json", **{"d.csv": f"upload_s,compute_s\n{row}\n"}).json()
    assert 0 < document["round_s"] < math.inf
    assert all(math.isfinite(value) for row in document["devices"] for value in list(row.values())[1:])


def test_names_are_shown_as_they_stand(run: Run) -> None:
    names = ["[bold]x[/]", "[/]", ":smile:", "$x^2$", "=1+1", "+1", "-1", "@a", "日本語", 'a "b", c', "twin", "twin"]
    devices = json.dumps([{"device": name, "upload_s": 1, "compute_s": 1} for name in names])
    out = run("d.json", "--policy", "all", **{"d.json": devices}).out
    assert [line.split("│")[1].strip() for line in out.splitlines() if "│" in line] == names
    rows = csv.DictReader(io.StringIO(run("d.json", "--policy", "all", "--csv").out))
    assert [row["device"] for row in rows] == names
    assert [row["device"] for row in run("d.json", "--policy", "all", "--json").json()["devices"]] == names


def test_a_long_name_costs_no_number(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = run("d.csv", **{"d.csv": f"device,upload_s,compute_s\n{'long ' * 150},1,1\n"})
    (line,) = (line for line in answer.out.splitlines() if "long" in line)
    assert "…" in line
    assert [cell.strip() for cell in line.split("│")[2:-1]] == ["100.00 %", "3000", "1", "1", "2"]


def test_a_hundred_thousand_devices_print_a_hundred(run: Run) -> None:
    rng = np.random.default_rng(0)
    rows = [f"d{i},{c:.6g},{t:.6g}" for i, (c, t) in enumerate(1e-3 + rng.random((100_000, 2)))]
    answer = run("d.csv", "--policy", "all", **{"d.csv": "\n".join(["device,upload_s,compute_s", *rows, ""])})
    lines = answer.out.splitlines()
    assert len(lines) < 110
    assert lines[-1].strip() == "the first 100 of 100,000; --csv and --json list all"
    assert "0.00 %" not in answer.out
    assert run("d.csv", "--policy", "all", "--csv").out.count("\n") == 100_001


# ------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.csv"], "cannot read 'missing.csv': No such file or directory"),
        (["."], "cannot read '.': Is a directory"),
        (["two.csv", "--json", "--csv"], "--json and --csv were both given; choose one"),
        (["two.csv", "--policy", "random:k=3"], "k is 3, but the cell has 2 devices; give a k of at most 2"),
        (["two.csv", "--policy", "random:k=9" + "9" * 30], "but the cell has 2 devices"),
        (["two.csv", "--policy", "random"], "policy 'random' needs k; write random:k=..."),
        (["two.csv", "--policy", "random:k=x"], "k of policy 'random' is 'x'; give a whole number"),
        (["two.csv", "--policy", "gredy"], "unknown policy 'gredy'; did you mean 'greedy'?"),
        (["two.csv", "--policy", ""], "unknown policy ''"),
        (["two.csv", "--policy", ".x:y"], "policy '.x:y' is not understood; write package.module:Class"),
        (["two.csv", "--policy", "os:path"], "path is not a fedcell Policy"),
        (["two.csv", "--policy", "nowhere.to:Be"], "policy 'nowhere.to:Be': cannot import 'nowhere.to'"),
        (["two.csv", "--policy", "fedcell:Policy"], "policy 'fedcell:Policy' failed with TypeError: Can't instantiate"),
        (["two.csv", "--policy", "deadline:seconds=nan"], "seconds is nan; give the deadline"),
        (["two.csv", "--theta=-1"], "theta is -1.0: the rounds model beta (theta + 1/n) predicts no rounds for n = 1"),
        (["two.csv", "--theta=-1", "--policy", "all"], "theta is -1.0: the rounds model"),
        (["two.csv", "--theta=-1e300", "--compare"], "theta is -1e+300: the rounds model"),
        (["two.csv", "--theta=nan"], "theta is nan; give a finite number above -1"),
        (["two.csv", "--theta=nan", "--policy", "all"], "theta is nan; give a finite number above -1"),
        (["two.csv", "--theta=inf"], "theta is inf; give a finite number above -1"),
        (["two.csv", "--policy", "optimal:theta=-1"], "theta is -1.0: the rounds model"),
        (["two.csv", "--seed=-1"], "seed is -1; give a nonnegative integer"),
        (["two.csv", "--bandwidth-hz=0"], "bandwidth_hz is 0.0; give a finite number above 0"),
        (["two.csv", "--bandwidth-hz=-1"], "bandwidth_hz is -1.0; give a finite number above 0"),
        (["two.csv", "--bandwidth-hz=nan"], "bandwidth_hz is nan; give a finite number above 0"),
        (["two.csv", "--bandwidth-hz=inf"], "bandwidth_hz is inf; give a finite number above 0"),
        (["two.csv", "--model-bits=0"], "model_bits is 0; give a whole number of at least 1"),
        (["two.csv", "--noise-dbm-per-mhz=1e9"], "--noise-dbm-per-mhz is 1e+09; give a number between -1000 and 1000"),
        (["two.csv", "--noise-dbm-per-mhz=nan"], "--noise-dbm-per-mhz is nan"),
        (["two.csv", "--path-loss-exponent=nan"], "path_loss_exponent is nan"),
        (["two.csv", "--law", "blocs"], "unknown law 'blocs'; did you mean 'blocks'?"),
        (["two.csv", "--law", "blocks:0"], "count of the law blocks is 0; give a whole number of at least 1"),
        (["two.csv", "--law", "ingress"], "needs the rate of the server's uplink; write ingress:bits_per_s=1e7"),
        (["two.csv", "--law", "power"], "give a column snr_db, or distance_m and power_dbm, instead of upload_s"),
        (
            ["two.csv", "--law", "power", "--rate", "mcs64"],
            "the law power holds for Shannon's rate; leave out the other",
        ),
        (["two.csv", "--law", "dedicated:3"], "law 'dedicated' takes no settings, but '3' was given; leave it out"),
        (["two.csv", "--law", "blocks:1", "--policy", "random:2"], "k is 2, but there are 1 resource blocks"),
        (["two.csv", "--channel", "umx:los=never"], "unknown channel 'umx'; did you mean 'umi'?"),
        (
            ["two.csv", "--channel=uma", "--path-loss-1km-db=120"],
            "path_loss_1km_db is 120, but the channel UMa has",
        ),
        (["two.csv", "--rate", "mcs1024"], "unknown rate 'mcs1024'; did you mean"),
        (["far.csv", "--channel=rma"], "distance_m[1] is 6000; the channel's tables end at 5000 m"),
        (["far.csv", "--channel=trace:x.csv"], "the channel is the file x.csv, which knows no distances; give another"),
        (["far.csv", "--rate=mcs64"], "distance_m is '6000', which gives upload_s = inf"),
        (["two.csv", "--plot", "out.gif"], "out.gif is not a figure's name; it must end in .png, .svg or .pdf"),
        (["two.csv", "--plot", "out"], "out is not a figure's name"),
        (["two.csv", "--plot", "no/out.png"], "cannot write no/out.png: no is not a directory; create it first"),
        (["two.csv", "--plot", "folder.png"], "cannot write folder.png: it is a directory; give the name of a file"),
        (["two.csv", "--plot", f"{'x' * 300}.png"], "File name too long; give another place"),
        (["bad.csv", "--plot", "out.png"], "bad.csv line 2: upload_s is 'nan'; give a number"),
        (["wide.csv", "--policy", "all"], "too small for double precision"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    run: Run, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "folder.png").mkdir()
    files = {
        "two.csv": TWO,
        "bad.csv": "upload_s,compute_s\nnan,1\n",
        "far.csv": "distance_m,compute_s\n300,1\n6000,1\n",
        "wide.csv": "upload_s,compute_s\n1e300,0\n1e-300,0",
    }
    before = {*files, "folder.png"}
    assert words in refused(run(*arguments, **files))
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "missing argument"),
        (["two.csv", "--seed", "x"], "invalid value for '--seed'"),
        (["two.csv", "--theta", "x"], "invalid value for '--theta'"),
        (["two.csv", "--polcy", "all"], "no such option: --polcy"),
    ],
)
def test_options_of_a_wrong_kind(run: Run, arguments: list[str], words: str) -> None:
    answer = run(*arguments)
    assert (answer.status, answer.out) == (2, "")
    assert words in answer.err
    assert "Traceback" not in answer.err


# --------------------------------------------------------------------------------------------- policies of one's own

POLICY = """
from dataclasses import dataclass
import numpy as np
import fedcell as fc

@dataclass(frozen=True)
class Mine(fc.Policy):
    k: int = 3
    word: str = ""
    def choose(self, view, rng):
        {body}
"""


def test_a_policy_from_this_folder(run: Run) -> None:
    source = POLICY.format(body="return np.argsort(view.upload_s)[: self.k]")
    document = run(EXAMPLE, "--json", "--policy", "mypol_good:Mine:k=2", **{"mypol_good.py": source}).json()
    nearest = np.argsort(read_devices(EXAMPLE).upload_s)[:2]
    assert [row["index"] for row in document["devices"]] == sorted(nearest.tolist())
    assert document["policy"] == "mypol_good:Mine:k=2"


EFFORT = """
from dataclasses import dataclass
import numpy as np
import fedcell as fc
@dataclass(frozen=True)
class Brief(fc.Greedy):
    def local_epochs(self, view, devices):
        return np.where(np.arange(devices.size) % 2, 0.5 * min(view.epochs, 1.0), 0.1)
    def upload_bits(self, view, devices):
        return np.full(devices.size, 2)
"""


def test_work_and_bits_are_shown_where_a_policy_decides_them(run: Run) -> None:
    one = run(EXAMPLE, "--policy", "mypol_effort:Brief", **{"mypol_effort.py": EFFORT})
    assert one.err == ""
    heading, said, *table = one.out.splitlines()
    assert heading.startswith("mypol_effort:Brief: ")
    assert said.strip() == "0.1 to 0.5 local epochs, 2 bits a weight"
    assert [word.strip() for word in table[1].strip("┃").split("┃")][3:6] == ["epochs", "bits", "compute s"]
    assert [word.strip() for word in table[4].strip("│").split("│")][3:5] == ["0.5", "2"]

    both = run(EXAMPLE, "--policy", "mypol_effort:Brief", "--policy", "all", "--epochs", "3")
    lines = both.out.splitlines()
    names, brief, everybody = ([word.strip() for word in lines[i][1:-1].split(lines[i][0])] for i in (2, 4, 5))
    assert names[:5] == ["policy", "devices", "epochs", "bits", "round s"]
    assert (brief[2:4], everybody[2:4]) == (["0.1 to 0.5", "2"], ["3", "32"])
    assert (brief[6], everybody[6]) == ("-", "1.000 x")
    assert "- where a policy decides work or bits, of which that says nothing: race it instead" in both.out
    document = run(EXAMPLE, "--policy", "mypol_effort:Brief", "--epochs", "3", "--json").json()
    device = document["devices"][1]
    assert (device["epochs"], device["bits"]) == (0.5, 2)
    assert device["compute_s"] == pytest.approx(read_devices(EXAMPLE).compute_s[device["index"]] * 0.5)  # by samples
    assert refused(run(EXAMPLE, "--epochs", "1.5")).startswith("fedcell: epochs is 1.5; give a whole number")


def test_a_policy_may_have_markup_in_its_settings(run: Run) -> None:
    arguments = [EXAMPLE, "--policy", "mypol_word:Mine:word=[/]$a", "--plot", "out.png"]
    answer = run(*arguments, **{"mypol_word.py": POLICY.format(body="return [0]")})
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.startswith("mypol_word:Mine:word=[/]$a: 1 of 20 devices")


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("raises", POLICY.format(body="raise KeyError('oh\\nno')"), r"failed with KeyError: 'oh\nno' ("),
        ("lines", POLICY.format(body="raise RuntimeError('oh\\nno')"), "failed with RuntimeError: oh no ("),
        ("line_number", POLICY.format(body="1 / 0"), "mypol_line_number.py, line 11); correct it"),
        ("endless", POLICY.format(body="return self.choose(view, rng)"), "failed with RecursionError"),
        ("no_indices", POLICY.format(body="return [0.5]"), "Mine.choose returned float64 of shape (1,)"),
        ("beyond", POLICY.format(body="return [99]"), "Mine.choose returned device 99, but the devices are 0 to 19"),
        ("cost", POLICY.format(body="return []") + "    def empty_round_s(self): return float('nan')", "of nan s"),
        ("plan", POLICY.format(body="") + "    def decide(self, view, rng): return 1 / 0", "failed with"),
        ("imports", "import nothing_like_it", "cannot import 'mypol_imports' (No module named 'nothing_like_it')"),
        ("dies", "raise ValueError('early')", "policy 'mypol_dies:Mine' failed with ValueError: early ("),
        ("syntax", "def broken(:", "policy 'mypol_syntax:Mine' failed with SyntaxError"),
        ("lacks", "", "module 'mypol_lacks' has no 'Mine'"),
    ],
)
def test_a_faulty_policy_is_blamed(run: Run, name: str, source: str, words: str) -> None:
    said = refused(run(EXAMPLE, "--policy", f"mypol_{name}:Mine", **{f"mypol_{name}.py": source}))
    assert f"mypol_{name}" in said or "Mine" in said
    assert words in said


# ------------------------------------------------------------------------------------------------------- pictures


def png_size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert content[-8:-4] == b"IEND"
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


NASTY = json.dumps(
    [
        {"device": name, "upload_s": 1, "compute_s": 1}
        for name in ["$x^2$", r"$\frac{1$", "$", "a_b", "日本語", "👩‍👩‍👧", "long " * 150, "%s", "{}", "<&>"]
    ]
)


def test_pictures_are_valid(run: Run, tmp_path: Path) -> None:
    for name in ("out.png", "out.svg", "out.pdf", "OUT.PNG"):
        answer = run("d.json", "--policy", "all", "--plot", name, **{"d.json": NASTY})
        assert (answer.status, answer.err) == (0, "")  # no warning about glyphs either
    width, height = png_size(tmp_path / "out.png")
    assert width == 1400
    assert 300 < height < 1000
    png_size(tmp_path / "OUT.PNG")
    assert ET.parse(tmp_path / "out.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert (tmp_path / "out.pdf").read_bytes().startswith(b"%PDF")
    assert {path.name for path in tmp_path.iterdir()} == {"d.json", "out.png", "out.svg", "out.pdf", "OUT.PNG"}


@pytest.mark.parametrize(
    ("rows", "policy"),
    [(1, "optimal"), (500, "all"), (2, "deadline:seconds=0.001"), (2, "mypol_nobody:Mine")],
    ids=["one", "many", "nobody", "nobody in no time"],
)
def test_pictures_of_any_size(run: Run, tmp_path: Path, rows: int, policy: str) -> None:
    files = {"d.csv": "upload_s,compute_s\n" + "1,1\n" * rows, "mypol_nobody.py": POLICY.format(body="return []")}
    answer = run("d.csv", "--policy", policy, "--plot", "out.png", **files)
    assert answer.status == 0
    assert "arning" not in answer.err
    width, height = png_size(tmp_path / "out.png")
    assert width == 1400
    assert height < 3000


# ---------------------------------------------------------------------------------------------------- real processes


def plan(*arguments: str | Path, **options: Any) -> Process:
    return Process(*FEDCELL, "plan", *arguments, **options)


@pytest.mark.processes
def test_a_process_reads_standard_input() -> None:
    done = fedcell("plan", "-", "--json", typed=TWO)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["policy"] == "optimal"


@pytest.mark.processes
def test_a_process_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with (tmp_path / "bytes").open("rb") as typed, plan("-", stdin=typed) as running:
        done = running.finish()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fedcell: standard input line 1 is not UTF-8 text (byte 0xff); save it as UTF-8\n"


@pytest.mark.processes
@pytest.mark.parametrize("form", [[], ["--csv"]], ids=["table", "csv"])
def test_a_reader_that_leaves_early(form: list[str]) -> None:
    with plan("-", "--policy", "all", *form, stdin=PIPE, stdout=PIPE) as running:
        pipe, reader = running.popen.stdin, running.popen.stdout
        assert pipe is not None
        assert reader is not None
        reader.close()  # before anything is written
        pipe.write(b"upload_s,compute_s\n" + b"1,1\n" * 20_000)
        pipe.close()
        done = running.finish()
    assert done.stderr == ""
    assert done.returncode in (0, 1)


@pytest.mark.processes
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disc() -> None:
    with open("/dev/full", "wb") as full, plan(EXAMPLE, stdout=full) as running:
        done = running.finish()
    assert done.returncode == 2
    assert (
        done.stderr
        == "fedcell: standard output: No space left on device; write it elsewhere, or make room, and try again\n"
    )


@pytest.mark.processes
def test_a_terminal_that_knows_only_ascii() -> None:
    rows = "device,upload_s,compute_s\nJosé,1,1\n"
    done = fedcell("plan", "-", env={**os.environ, "PYTHONIOENCODING": "ascii"}, typed=rows)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"| Jos\xe9 " in done.stdout


@pytest.mark.processes
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_control_c() -> None:
    with plan("-", stdin=PIPE) as running:
        pipe = running.popen.stdin
        assert pipe is not None
        pipe.write(b"upload_s,compute_s\n" + b"1,1\n" * 100_000)  # more than a pipe holds: done when it reads
        pipe.flush()
        running.interrupt()
        pipe.close()
        done = running.finish()
    assert done.returncode in (130, -signal.SIGINT)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
