"""Planning one round for a table: which policies, and no work done twice."""

import csv
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.errors import InputError
from fedcell.plan.device_table import DeviceTable, parse_devices
from fedcell.plan.plans import TablePlan, figure, law_of, make_plans, notes, plan_round, plans_csv, plans_json
from fedcell.rng import stream
from fedcell.schedule.laws import Law

TABLE = DeviceTable(
    ("a", "b", "c", "d"), np.array([1.0, 2.0, 3.0, 9.0]), np.array([4.0, 1.0, 2.0, 1.0]), None, None, notes=()
)
TWO_KINDS = replace(TABLE, profiles=np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))


def names(lines: list[str], **options: Any) -> list[str]:
    return [planned.name for planned in plan_round(TABLE, lines, fc.Cell(), 0.25, 0, **options)]


def test_the_optimum_alone_all_policies_or_those_given() -> None:
    assert names([]) == ["optimal:theta=0.25"]
    assert names(["greedy", "optimal:theta=0"], compare=True) == ["greedy:theta=0.25", "optimal"]
    compared = names([], compare=True)
    k = len(plan_round(TABLE, [], fc.Cell(), 0.25, 0)[0].plan.devices)
    assert compared[:2] == ["optimal:theta=0.25", "greedy:theta=0.25"]
    assert {f"random:k={k}", f"round_robin:k={k}", "all", "all:sharing=equal"} <= set(compared)


def test_without_a_theta_the_rounds_model_has_that_of_the_first_policy_with_one() -> None:
    for lines, theta in ((["all", "optimal:0.5", "greedy"], 0.5), (["greedy", "optimal:0.5"], 0.0), (["all"], 0.0)):
        plans = plan_round(TABLE, lines, fc.Cell(), None, 0)
        assert {planned.theta for planned in plans} == {theta}
        for planned in plans:
            assert planned.objective_s == (theta + 1 / planned.plan.devices.size) * planned.plan.round_s
    # What is asked for holds for all, whatever the policies go by.
    (planned,) = plan_round(TABLE, ["optimal:0.5"], fc.Cell(), 2.0, 0)
    assert (planned.name, planned.theta) == ("optimal:theta=0.5", 2.0)


def plan_of(line: str, table: DeviceTable, **options: Any) -> TablePlan:
    return plan_round(table, [line], fc.Cell(), 0.25, 0, **options)[0]


def test_diverse_uses_the_profiles_and_keeps_its_own_theta() -> None:
    planned = plan_of("diverse", TWO_KINDS)
    assert planned.policy == fc.Diverse()
    view = fc.RoundView(TABLE.upload_s, TABLE.compute_s, profiles=TWO_KINDS.profiles)
    assert planned.plan.devices.tolist() == fc.Diverse().decide(view, np.random.default_rng(0)).devices.tolist()
    assert 3 in planned.plan.devices  # the one device of its kind, far away as it is
    assert 3 not in plan_of("optimal", TWO_KINDS).plan.devices
    assert notes([planned]) == []


def test_imbalance_is_of_the_set() -> None:
    assert plan_of("all", TWO_KINDS).imbalance == pytest.approx(0.0, abs=1e-15)
    assert plan_of("deadline:seconds=6,max_devices=1", TWO_KINDS).imbalance == pytest.approx(1 / 3)
    assert plan_of("deadline:seconds=0.1", TWO_KINDS).imbalance is None
    assert plan_of("all", TABLE).imbalance is None


def test_diverse_without_profiles_is_the_optimum_and_says_so() -> None:
    alike = replace(TABLE, profiles=np.ones((4, 1)))
    for table, why in ((TABLE, "no profile columns (profile:NAME)"), (alike, "fewer than two profiles are known")):
        planned = plan_of("diverse:theta=0.25", table)
        assert planned.plan.devices.tolist() == plan_of("optimal", table).plan.devices.tolist()
        (said,) = notes([planned])
        assert said.startswith(f"diverse:theta=0.25: {why}")
        assert notes([plan_of("optimal", table)]) == []


def test_a_comparison_solves_the_optimum_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []
    choose = fc.Optimal.choose

    def counted(self: fc.Optimal, *arguments: Any) -> Any:
        solved.append(self)
        return choose(self, *arguments)

    monkeypatch.setattr(fc.Optimal, "choose", counted)
    assert len(names([], compare=True)) == 11
    assert solved == [fc.Optimal(0.25)]


def test_ones_own_class_only_where_it_is_allowed() -> None:
    line = "fedcell.schedule.greedy:Greedy"
    assert names([line]) == ["greedy:theta=0.25"]
    with pytest.raises(fc.InputError, match="named policies only"):
        names([line], allow_import=False)


# ------------------------------------------------------------------------------------------------------------ link laws

WITH_SNR = replace(TABLE, snr=np.array([10.0, 3.0, 1.0, 0.2]))
CELL = fc.Cell(model_bits=1_000_000)
LAWS: dict[str, Law] = {
    "density": fc.Density(),
    "blocks:count=5": fc.Blocks(5),
    "power": fc.Power(WITH_SNR.snr),
    "dedicated": fc.Dedicated(),
    "ingress:bits_per_s=400000": fc.Ingress(pipe_s=2.5),
}


@pytest.mark.parametrize("line", LAWS)
def test_every_policy_of_a_comparison_plans_with_the_law(line: str) -> None:
    law = LAWS[line]
    view = fc.RoundView(TABLE.upload_s, TABLE.compute_s, law=law, ids=np.arange(4), weights=CELL.model_bits / 32)
    plans = plan_round(WITH_SNR, [], CELL, 0.25, 0, law=line, compare=True)
    assert len(plans) == 11
    for planned in plans:
        assert planned.law.name == line
        decided = planned.policy.decide(view, stream(0, "policy"))
        assert planned.plan.devices.tolist() == decided.devices.tolist()
        assert planned.plan.shares.tolist() == decided.shares.tolist()
        assert planned.plan.round_s == decided.round_s
    assert plans[0].plan.round_s == fc.Optimal(0.25).decide(view, stream(0, "policy")).round_s


@pytest.mark.parametrize("line", LAWS)
def test_rows_take_as_long_as_the_law_says(line: str) -> None:
    for planned in plan_round(WITH_SNR, ["all", "all:sharing=equal"], CELL, None, 0, law=line):
        for row in planned.rows():
            c, t, g, i = TABLE.upload_s[row["index"]], TABLE.compute_s[row["index"]], row["share"], row["index"]
            s = np.asarray(WITH_SNR.snr)[i]
            takes_s = {
                "density": c / g,
                "blocks": c / g,
                "power": c * np.log(1 + s) / (g * np.log(1 + s / g)),
                "dedicated": c,
                "ingress": max(c, 2.5 / g),
            }[line.partition(":")[0]]
            assert row["upload_s"] == pytest.approx(takes_s, rel=1e-12)
            assert row["finish_s"] == pytest.approx(t + takes_s, rel=1e-12)
            assert row["finish_s"] <= planned.plan.round_s * (1 + 1e-12)
        assert max(row["finish_s"] for row in planned.rows()) == pytest.approx(planned.plan.round_s, rel=1e-9)


def test_blocks_are_whole_and_some_may_stay_free() -> None:
    (planned,) = plan_round(TABLE, ["all:max_devices=3"], CELL, None, 0, law="blocks:5")
    rows = planned.rows()
    assert [row["share"] * 5 for row in rows] == pytest.approx([row["blocks"] for row in rows], rel=1e-12)
    assert all(isinstance(row["blocks"], int) and row["blocks"] >= 1 for row in rows)
    assert sum(row["blocks"] for row in rows) + planned.free_units == 5
    assert planned.free_units == 0
    # Three alike: whoever has one block is the last, so the other two blocks help nobody.
    alike = replace(TABLE, names=("a", "b", "c"), upload_s=np.ones(3), compute_s=np.ones(3))
    (planned,) = plan_round(alike, ["all"], CELL, None, 0, law="blocks:5")
    assert ([row["blocks"] for row in planned.rows()], planned.free_units) == ([1, 1, 1], 2)


def test_what_a_device_gets_is_told_in_the_laws_terms() -> None:
    assert {line.partition(":")[0]: list(law_of(line, WITH_SNR, CELL).gets(1.0, 1e6)) for line in LAWS} == {
        "density": ["share", "bandwidth_hz"],
        "blocks": ["share", "blocks", "bandwidth_hz"],
        "power": ["share", "bandwidth_hz"],
        "dedicated": ["share"],
        "ingress": ["share", "bits_per_s"],
    }
    for line in LAWS:
        (planned,) = plan_round(WITH_SNR, [], CELL, None, 0, law=line)
        header, *lines = plans_csv([planned], several=False).splitlines()
        assert header == ",".join(["device", "index", *planned.law.gets(1.0, 1e6), "upload_s", "compute_s", "finish_s"])
        assert len(lines) == planned.plan.devices.size
        assert json.loads(plans_json([planned], several=False))["law"] == line
    (piped,) = plan_round(TABLE, ["all"], CELL, None, 0, law="ingress:400000")
    assert sum(row["bits_per_s"] for row in piped.rows()) == pytest.approx(400_000, rel=1e-12)


def test_the_picture_says_blocks_where_there_are_blocks() -> None:
    (planned,) = plan_round(TABLE, ["all"], CELL, None, 0, law="blocks:9")
    drawn = figure([planned])
    texts = [text.get_text().strip() for text in drawn.axes[0].texts]
    assert sorted(texts) == sorted(str(row["blocks"]) for row in planned.rows())
    assert "resource blocks, of 9" in drawn.get_supxlabel()
    (own,) = plan_round(TABLE, ["all"], CELL, None, 0, law="dedicated")
    drawn = figure([own])
    assert {text.get_text().strip() for text in drawn.axes[0].texts} == {""}
    assert "next to the bars" not in drawn.get_supxlabel()


def test_laws_that_cannot_be_get_one_sentence() -> None:
    forced = replace(TABLE, must_include=np.array([True, True, True, False]))
    for table, law, words in (
        (
            TABLE,
            "power",
            "the law power needs the SNR of every device.*give a column snr_db, or distance_m and",
        ),
        (TABLE, "blocs:3", "unknown law 'blocs'; did you mean 'blocks'"),
        (TABLE, "blocks:0", "count of the law blocks is 0; give a whole number of at least 1"),
        (TABLE, "ingress", "the law ingress needs the rate of the server's uplink; write ingress:bits_per_s=1e7"),
        (forced, "blocks:2", "must_include forces 3 devices in, but there are 2 resource blocks"),
    ):
        with pytest.raises(InputError, match=words):
            plan_round(table, [], CELL, None, 0, law=law)
    with pytest.raises(InputError, match="k is 3, but there are 2 resource blocks; give a smaller k"):
        plan_round(TABLE, ["random:3"], CELL, None, 0, law="blocks:2")


# Policies that decide work and bits


@dataclass(frozen=True)
class Effort(fc.All):
    """Everybody; slow devices train a tenth of an epoch, and bad links send 2 bits a weight."""

    whole: bool = False

    def local_epochs(self, view: fc.RoundView, devices: Any) -> Any:
        return np.where(view.compute_s[devices] > 2.0, 0.1, 1.0)

    def upload_bits(self, view: fc.RoundView, devices: Any) -> Any:
        return None if self.whole else np.where(view.upload_s[devices] > 2.5, 2, 8)


def effort_plans(*policies: fc.Policy, epochs: float = 1.0) -> list[TablePlan]:
    return make_plans(TABLE, policies, fc.Cell(), 0.0, 0, epochs=epochs)


def test_a_policy_that_decides_work_and_bits_is_planned_with_their_times() -> None:
    """By hand: a tenth of 4 s of training; the part of an upload that 8 and 2 of 32 bits are, with header and scale."""
    (planned,) = effort_plans(Effort())
    weights, rows = fc.Cell().model_bits / 32, planned.rows()
    parts = [(96 + bits * weights) / (32 * weights) for bits in (8, 8, 2, 2)]
    assert [(row["epochs"], row["bits"]) for row in rows] == [(0.1, 8), (1, 8), (1, 2), (1, 2)]
    assert [row["compute_s"] for row in rows] == pytest.approx([0.4, 1.0, 2.0, 1.0])
    upload_s = [part * c / row["share"] for part, c, row in zip(parts, TABLE.upload_s, rows, strict=True)]
    assert [row["upload_s"] for row in rows] == pytest.approx(upload_s)
    assert [row["finish_s"] for row in rows] == pytest.approx([planned.plan.round_s] * 4)
    assert planned.decides == ["epochs", "bits"]
    assert (planned.effort_text("epochs"), planned.effort_text("bits")) == ("0.1 to 1", "2 to 8")
    # The rounds model is of one amount of work, and of whole models.
    assert planned.objective_s is None
    assert json.loads(plans_json([planned], several=False))["objective_s"] is None


def test_epochs_are_those_of_the_compute_times() -> None:
    (planned,) = effort_plans(Effort(whole=True), epochs=2.0)
    assert [row["compute_s"] for row in planned.rows()] == pytest.approx([0.2, 0.5, 1.0, 0.5])
    assert [list(row)[3:5] for row in planned.rows()] == [["bandwidth_hz", "epochs"]] * 4  # bits are nobody's
    table = parse_devices(
        b"upload_s,samples,seconds_per_sample,samples_per_second\n1,100,0.01,50\n", "d.csv", None, 3.0
    )
    assert table.compute_s.tolist() == [9.0]  # of each epoch 1 s, and 2 s on average
    assert table.samples is not None
    assert table.samples.tolist() == [100.0]
    for epochs, said in ((1.5, "1.5"), (0.0, "0"), (-1.0, "-1"), (np.inf, "inf"), (np.nan, "nan")):
        with pytest.raises(InputError, match=f"^epochs is {said}; give a whole number, at most 1,000,000, or a posit"):
            effort_plans(fc.All(), epochs=epochs)
        with pytest.raises(InputError, match=f"^epochs is {said}; "):
            parse_devices(b"upload_s,compute_s\n1,1\n", "d.csv", None, epochs)


def test_what_decides_the_same_as_all_others_has_a_time_to_train() -> None:
    @dataclass(frozen=True)
    class Usual(fc.All):
        def local_epochs(self, view: fc.RoundView, devices: Any) -> Any:
            return np.full(devices.size, view.epochs)

        def upload_bits(self, view: fc.RoundView, devices: Any) -> Any:
            return np.full(devices.size, view.bits)

    usual, everybody = effort_plans(Usual(), fc.All(), epochs=3.0)
    assert usual.objective_s == everybody.objective_s
    assert (usual.effort_text("epochs"), usual.effort_text("bits")) == ("3", "32")


def test_a_csv_of_several_plans_has_the_work_and_bits_of_all_if_somebody_decides_them() -> None:
    plans = effort_plans(Effort(), fc.All())
    rows = list(csv.DictReader(plans_csv(plans, several=True).splitlines()))
    assert [row["epochs"] for row in rows] == ["0.1", *["1"] * 7]
    assert [row["bits"] for row in rows] == ["8", "8", "2", "2", *["32"] * 4]
    documents = json.loads(plans_json(plans, several=True))["plans"]
    assert ["bits" in document["devices"][0] for document in documents] == [True, False]
    assert "epochs" not in plans_csv(plans[1:], several=False)


def test_the_picture_says_work_and_bits_where_they_are_decided() -> None:
    picture = figure(effort_plans(Effort(), fc.All()))
    first, second = ([text.get_text() for text in ax.texts] for ax in picture.axes[:2])
    assert all("ep. · " in text for text in first)
    assert first[-1].endswith("0.1 ep. · 8 bit") or first[0].endswith("0.1 ep. · 8 bit")
    assert not any("bit" in text for text in second)
    assert picture.get_supxlabel().endswith("(next to the bars: the share of the band, epochs of work, bits a weight)")
    assert "bits" not in figure(effort_plans(fc.All())).get_supxlabel()
    bar: Any = picture.axes[0].patches[0]
    assert bar.get_width() == pytest.approx(0.4)  # the quickest training stands first
