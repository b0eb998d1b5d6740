"""DivFL: the greedy cover against a literal one and against all sets, and who is tried first."""

from itertools import combinations
from math import e
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import rng, view_of
from fedcell.schedule.zoo import div_fl
from fedcell.schedule.zoo.div_fl import greedy_cover

NOBODY = np.empty(0, np.int64)


def error(updates: Any, devices: Any) -> float:
    """G(S), literally."""
    return sum(min(float(np.linalg.norm(g - updates[j])) for j in devices) for g in updates)


def literal(updates: Any, places: int, taken: tuple[int, ...] = ()) -> list[int]:
    """Greedy, looking at everybody at every step."""
    chosen: list[int] = []
    for _ in range(places):
        left = [i for i in range(len(updates)) if i not in (*taken, *chosen)]
        chosen.append(min(left, key=lambda i: error(updates, [*taken, *chosen, i])))
    return chosen


@pytest.mark.parametrize("seed", range(6))
def test_the_cover_is_the_literal_greedy_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(div_fl, "_BATCH", 4)  # so that bounds decide who is looked at
    draw = np.random.default_rng(seed)
    updates = draw.normal(size=(25, 5)) + 4 * draw.integers(0, 3, (25, 1))
    for places, taken in ((6, ()), (4, (3, 9))):
        ours = greedy_cover(updates, places, np.array(taken, np.int64), None, rng(3)).tolist()
        # Each step is as good; two devices next to each other are as good as one another.
        for n in range(places):
            expected = error(updates, [*taken, *ours[:n], *literal(updates, 1, (*taken, *ours[:n]))])
            assert error(updates, [*taken, *ours[: n + 1]]) == pytest.approx(expected, rel=1e-12)


def test_bounds_save_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(div_fl, "_BATCH", 4)
    looked: list[int] = []
    distances = div_fl._distances

    def counted(updates: Any, squares: Any, devices: Any) -> Any:
        looked.append(devices.size)
        return distances(updates, squares, devices)

    monkeypatch.setattr(div_fl, "_distances", counted)
    updates = np.repeat(np.eye(10), 10, axis=0) * 5 + np.random.default_rng(0).normal(size=(100, 10)) * 0.1
    greedy_cover(updates, 8, NOBODY, None, rng(3))
    assert 100 < sum(looked) < 500  # of 772


@pytest.mark.parametrize("seed", range(5))
def test_greedy_has_its_part_of_the_best_of_all_sets(seed: int) -> None:
    draw = np.random.default_rng(seed)
    updates = draw.normal(size=(10, 3))
    best = min(error(updates, devices) for devices in combinations(range(10), 3))
    ours = error(updates, greedy_cover(updates, 3, NOBODY, None, rng(3)))
    e0 = 10 * 3 * np.linalg.norm(updates, axis=1).max()  # G({e0})
    assert best <= ours
    assert e0 - ours >= (1 - 1 / e) * (e0 - best)
    assert ours <= 1.3 * best  # far better than the bound


def test_one_of_each_kind_by_hand() -> None:
    # On a line: 0, 1, 2 and 9. Alone, 1 or 2 stand best for all (11 and 11 away: 1+0+1+8 = 10, 2+1+0+7 = 10);
    # then 9, which is 8 or 7 away from its stand-in.
    line = np.array([[0.0], [1.0], [2.1], [9.0]])
    assert greedy_cover(line, 2, NOBODY, None, rng(3)).tolist() == [1, 3]
    assert greedy_cover(line, 9, np.array([1]), None, rng(3)).tolist() == [3, 2, 0]


def test_stochastic_greedy_looks_at_few_and_is_nearly_as_good() -> None:
    draw = np.random.default_rng(1)
    updates = draw.normal(size=(200, 4)) + 6 * draw.integers(0, 4, (200, 1))
    full = error(updates, greedy_cover(updates, 8, NOBODY, None, rng(3)))
    few = error(updates, greedy_cover(updates, 8, NOBODY, 40, rng(3)))
    random = error(updates, rng(3).choice(200, 8, replace=False))
    assert few < random
    assert few < 1.2 * full
    assert len(set(greedy_cover(updates, 8, NOBODY, 8, rng(3)).tolist())) == 8


def updated(updates: Any, **more: Any) -> fc.RoundView:
    M = len(updates)
    return view_of(1.0 + np.arange(M), np.full(M, 3.0), updates=updates, **more)


def test_devices_never_heard_come_first_in_random_order() -> None:
    updates = np.random.default_rng(0).normal(size=(8, 3))
    updates[[2, 5, 6]] = np.nan
    known = np.array([0, 1, 3, 4, 7])
    plan = fc.DivFl(5).decide(updated(updates), rng(3))
    assert plan.devices.tolist() == sorted([2, 5, 6, *known[literal(updates[known], 2)]])
    few = {tuple(fc.DivFl(2).decide(updated(updates), np.random.default_rng(s)).devices) for s in range(30)}
    assert few == {(2, 5), (2, 6), (5, 6)}
    bare = view_of(1.0 + np.arange(8), np.full(8, 3.0))
    assert fc.DivFl(5).decide(bare, rng(3)).devices.size == 5


def test_those_that_must_be_there_cover_too() -> None:
    updates = np.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
    plan = fc.DivFl(2).decide(updated(updates, must_include=np.arange(5) == 4), rng(3))
    assert plan.devices.tolist() == [1, 4]


def test_relabelling_devices_relabels_the_cover() -> None:
    draw = np.random.default_rng(2)
    view = updated(np.repeat(draw.normal(size=(10, 3)), 2, axis=0), ids=np.arange(20))  # with ties
    order = draw.permutation(20)
    for policy in (fc.DivFl(6), fc.DivFl(6, subsample=0.5)):
        plan, other = policy.decide(view, rng(3)), policy.decide(view.only(order), rng(3))
        assert sorted(order[other.devices]) == plan.devices.tolist()


def test_a_part_must_be_a_part() -> None:
    with pytest.raises(fc.InputError, match=r"subsample is 1\.5; give a number above 0 and at most 1"):
        fc.DivFl(2, 1.5)


def test_in_a_run_everybody_is_heard_and_then_covers_are_sent() -> None:
    task = {"hidden": [4], "sizes": [60] * 6}
    spec = fc.Spec(policy="div_fl:k=2", rounds=5, devices={"count": 6}, task=task)  # type: ignore[arg-type]
    plans = [record.plan.devices.tolist() for record in fc.simulate(spec)]
    assert sorted(plans[0] + plans[1] + plans[2]) == list(range(6))
    assert all(len(plan) == 2 for plan in plans)


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    policy = vars(fc.POLICIES["div_fl"]())
    told = {"k": 8, "subsample": 1.0}
    assert {name: policy[name] for name in told} == told
