"""Dedicated lines: a round lasts as long as its slowest device, whatever the policy."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcell as fc

times_s = st.floats(1e-3, 1e4)
cells = st.lists(st.tuples(times_s, times_s), min_size=1, max_size=8)
NO_DRAWS = np.random.default_rng(0)


def view_of(cell: list[tuple[float, float]], **columns: object) -> fc.RoundView:
    c, t = np.array(cell).T
    return fc.RoundView(c, t, law=fc.Dedicated(), **columns)  # type: ignore[arg-type]


def best_of_all_subsets(view: fc.RoundView, theta: float, forced: set[int]) -> float:
    ends_s = view.upload_s + view.compute_s
    sets = (s for n in range(1, len(view) + 1) for s in combinations(range(len(view)), n) if forced <= set(s))
    return min((theta + 1 / len(s)) * float(ends_s[list(s)].max()) for s in sets)


@given(cells, st.sampled_from([0.0, 0.05, 0.94, 5.0]), st.integers(0, 7))
def test_optimal_is_the_best_of_all_subsets(cell: list[tuple[float, float]], theta: float, forced: int) -> None:
    must = np.arange(len(cell)) == forced
    view = view_of(cell, must_include=must)
    plan = fc.Optimal(theta).decide(view, NO_DRAWS)
    assert set(np.flatnonzero(must)) <= set(plan.devices)
    assert (theta + 1 / plan.devices.size) * plan.round_s == best_of_all_subsets(
        view, theta, set(np.flatnonzero(must).tolist())
    )


@given(cells, st.sampled_from([0.0, 0.05, 0.94]))
def test_greedy_adds_the_soonest_until_the_objective_rises(cell: list[tuple[float, float]], theta: float) -> None:
    view = view_of(cell)
    ends_s = np.sort(view.upload_s + view.compute_s)
    values = (theta + 1 / np.arange(1, len(view) + 1)) * ends_s
    rises = np.flatnonzero(values[1:] > values[:-1] * (1 + 1e-12))
    expected = ends_s[: rises[0] + 1 if rises.size else None]
    plan = fc.Greedy(theta).decide(view, NO_DRAWS)
    np.testing.assert_allclose(np.sort((view.upload_s + view.compute_s)[plan.devices]), expected)


@given(cells, st.floats(0.01, 2e4))
def test_a_deadline_takes_all_who_keep_it(cell: list[tuple[float, float]], seconds: float) -> None:
    view = view_of(cell)
    ends_s = view.upload_s + view.compute_s
    if (np.abs(ends_s / seconds - 1) < 1e-9).any():
        return  # on the deadline but for rounding
    plan = fc.Deadline(seconds).decide(view, NO_DRAWS)
    assert plan.devices.tolist() == np.flatnonzero(ends_s <= seconds).tolist()


@given(cells)
def test_diverse_without_profiles_is_optimal_and_with_them_balanced(cell: list[tuple[float, float]]) -> None:
    view = view_of(cell)
    plan, best = fc.Diverse(0.1).decide(view, NO_DRAWS), fc.Optimal(0.1).decide(view, NO_DRAWS)
    assert plan.devices.tolist() == best.devices.tolist()


def test_diverse_takes_one_of_each_kind_by_its_end() -> None:
    labels = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    view = view_of([(1.0, 2.0), (1.0, 1.0), (3.0, 2.0), (2.0, 9.0)], profiles=labels)
    plan = fc.Diverse().decide(view, NO_DRAWS)
    assert 2 in plan.devices
    assert plan.round_s == 5.0  # devices 0 and 1 both fit below it


@pytest.mark.parametrize("policy", ["all", "random:k=2", "round_robin:k=2", "proportional_fair:k=2"])
@pytest.mark.parametrize("sharing", ["optimal", "equal"])
def test_every_device_has_its_own_line(policy: str, sharing: str) -> None:
    view = view_of([(1.0, 2.0), (3.0, 4.0), (5.0, 1.0)])
    plan = fc.parse_policy(f"{policy}{',' if ':' in policy else ':'}sharing={sharing}").decide(view, NO_DRAWS)
    assert plan.shares.tolist() == [1.0] * plan.devices.size
    assert plan.round_s == plan.finish_s(view.upload_s, view.compute_s).max()


def test_a_batch_of_sets_has_the_slowest_of_each() -> None:
    where = [[True, True], [True, False]]
    lines = fc.allocate([[1.0, 3.0]] * 2, [[2.0, 2.0]] * 2, where=where, law=fc.Dedicated())
    assert lines.shares.tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert np.asarray(lines.round_s).tolist() == [5.0, 3.0]
