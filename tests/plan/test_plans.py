"""Planning one round for a table: which policies, and no work done twice."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.plan.device_table import DeviceTable
from fedcell.plan.plans import TablePlan, notes, plan_round

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
    assert len(names([], compare=True)) == 10
    assert solved == [fc.Optimal(0.25)]


def test_ones_own_class_only_where_it_is_allowed() -> None:
    line = "fedcell.schedule.greedy:Greedy"
    assert names([line]) == ["greedy:theta=0.25"]
    with pytest.raises(fc.InputError, match="named policies only"):
        names([line], allow_import=False)
