"""Planning one round for a table: which policies, and no work done twice."""

from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.plan.device_table import DeviceTable
from fedcell.plan.plans import plan_round

TABLE = DeviceTable(
    ("a", "b", "c", "d"), np.array([1.0, 2.0, 3.0, 9.0]), np.array([4.0, 1.0, 2.0, 1.0]), must_include=None, notes=()
)


def names(lines: list[str], **options: Any) -> list[str]:
    return [planned.name for planned in plan_round(TABLE, lines, fc.Cell(), 0.25, 0, **options)]


def test_the_optimum_alone_all_policies_or_those_given() -> None:
    assert names([]) == ["optimal:theta=0.25"]
    assert names(["greedy", "optimal:theta=0"], compare=True) == ["greedy:theta=0.25", "optimal"]
    compared = names([], compare=True)
    k = len(plan_round(TABLE, [], fc.Cell(), 0.25, 0)[0].plan.devices)
    assert compared[:2] == ["optimal:theta=0.25", "greedy:theta=0.25"]
    assert {f"random:k={k}", f"round_robin:k={k}", "all", "all:sharing=equal"} <= set(compared)


def test_a_comparison_solves_the_optimum_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []
    choose = fc.Optimal.choose

    def counted(self: fc.Optimal, *arguments: Any) -> Any:
        solved.append(self)
        return choose(self, *arguments)

    monkeypatch.setattr(fc.Optimal, "choose", counted)
    assert len(names([], compare=True)) == 9
    assert solved == [fc.Optimal(0.25)]


def test_ones_own_class_only_where_it_is_allowed() -> None:
    line = "fedcell.schedule.greedy:Greedy"
    assert names([line]) == ["greedy:theta=0.25"]
    with pytest.raises(fc.InputError, match="named policies only"):
        names([line], allow_import=False)
