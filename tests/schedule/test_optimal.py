"""Greedy is Algorithm 2, and Optimal is optimal."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcell as fc
from fedcell.schedule.greedy import grow
from fedcell.schedule.optimal import _best_set, _best_set_by, _bounds, _most_by, best_set
from twins.paper import algorithm_1, algorithm_2, all_subsets

Cells = list[tuple[float, float]]
small_cells = st.lists(st.tuples(st.floats(0.01, 10.0), st.floats(0.0, 30.0)), min_size=1, max_size=8)
# Equal and whole-number times: ties everywhere.
tied_cells = st.lists(
    st.tuples(st.sampled_from([1.0, 2.0, 3.0]), st.sampled_from([0.0, 1.0, 2.0])), min_size=1, max_size=8
)
thetas = st.sampled_from([-0.0448, -0.0367, 0.0, 0.00934, 0.139, 0.941, 10.0])
RNG = np.random.default_rng(0)


def value(view: fc.RoundView, devices: np.ndarray, theta: float) -> float:
    T = algorithm_1(view.upload_s[devices].tolist(), view.compute_s[devices].tolist())
    return (theta + 1.0 / len(devices)) * T


def paper_cell(M: int, seed: int, radius_m: float = 1000.0) -> fc.RoundView:
    conditions = fc.World(fc.Cell(radius_m=radius_m), fc.Devices(M)).conditions(seed)
    return fc.RoundView(conditions.upload_s, conditions.compute_s)


@given(small_cells, thetas)
def test_greedy_is_algorithm_2(cell: Cells, theta: float) -> None:
    view = fc.RoundView(*np.array(cell).T)
    literal = algorithm_2(view.upload_s.tolist(), view.compute_s.tolist(), theta)
    ours = grow(view, len(view), theta)
    # Where rounding decides between sets of the same value, either is Algorithm 2's.
    assert sorted(ours) == sorted(literal) or value(view, ours, theta) == pytest.approx(
        value(view, np.array(literal), theta), rel=1e-9
    )


@pytest.mark.parametrize("theta", [-0.0367, 0.0, 0.139])
@pytest.mark.parametrize("seed", range(10))
def test_greedy_adds_in_algorithm_2s_order_in_the_papers_cell(theta: float, seed: int) -> None:
    view = paper_cell(20, seed, 1400.0)
    assert grow(view, 20, theta).tolist() == algorithm_2(view.upload_s.tolist(), view.compute_s.tolist(), theta)


@given(tied_cells, thetas)
def test_greedy_breaks_exact_ties_as_the_literal_algorithm_does(cell: Cells, theta: float) -> None:
    view = fc.RoundView(*np.array(cell).T)
    first_literal = int(np.argmin(view.upload_s + view.compute_s))
    assert grow(view, 1, theta).tolist() == [first_literal]


@given(small_cells, thetas, st.data())
def test_optimal_equals_all_subsets(cell: Cells, theta: float, data: st.DataObject) -> None:
    M = len(cell)
    forced = data.draw(st.lists(st.integers(0, M - 1), unique=True, max_size=2))
    most = data.draw(st.integers(max(1, len(forced)), M))
    view = fc.RoundView(*np.array(cell).T, must_include=np.isin(np.arange(M), forced))
    found = best_set(view, theta, most)
    assert set(forced) <= set(found.tolist())
    assert len(found) <= most
    least = all_subsets(view.upload_s.tolist(), view.compute_s.tolist(), theta, forced, most)
    assert value(view, found, theta) == pytest.approx(least, rel=1e-11)


@given(tied_cells, thetas)
def test_optimal_equals_all_subsets_with_ties(cell: Cells, theta: float) -> None:
    view = fc.RoundView(*np.array(cell).T)
    found = best_set(view, theta, len(cell))
    least = all_subsets(view.upload_s.tolist(), view.compute_s.tolist(), theta)
    assert value(view, found, theta) == pytest.approx(least, rel=1e-11)


def shortest_rounds(view: fc.RoundView) -> list[float]:
    """T_n for every n, by bisection on "the n smallest shares sum to at most 1"."""
    c, t = view.upload_s, view.compute_s
    found = []
    for n in range(1, len(view) + 1):
        low, high = 0.0, t.max() + c.sum()
        while high - low > 1e-13 * high:
            T = (low + high) / 2
            late = t >= T
            shares = np.sort(np.where(late, np.inf, c / np.where(late, 1.0, T - t)))
            low, high = (low, T) if shares[:n].sum() <= 1.0 else (T, high)
        found.append(high)
    return found


@pytest.mark.parametrize("theta", [-0.001, 0.0, 0.01, 0.139])
@pytest.mark.parametrize("kind", ["paper", "lognormal", "opposed"])
def test_optimal_equals_a_full_search_over_n_in_larger_cells(kind: str, theta: float) -> None:
    rng = np.random.default_rng(4)
    M = 150
    view = {
        "paper": paper_cell(M, 3),
        "lognormal": fc.RoundView(rng.lognormal(0, 2, M), rng.lognormal(2, 1, M)),
        "opposed": fc.RoundView(np.linspace(0.1, 1.0, M), np.linspace(60.0, 0.0, M)),
    }[kind]
    least = min((theta + 1.0 / n) * T for n, T in enumerate(shortest_rounds(view), 1))
    plan = fc.Optimal(theta).decide(view, RNG)
    assert (theta + 1.0 / len(plan.devices)) * plan.round_s == pytest.approx(least, rel=1e-10)


@pytest.mark.parametrize("theta", [0.0, 0.139])
def test_optimal_is_never_worse_than_greedy_in_large_cells(theta: float) -> None:
    view = paper_cell(3000, 5)
    values = []
    for policy in (fc.Optimal(theta), fc.Greedy(theta)):
        plan = policy.decide(view, RNG)
        values.append(fc.objective(len(plan.devices), plan.round_s, theta))
    assert values[0] <= values[1] * (1 + 1e-14)


def test_greedy_can_be_worse_than_optimal() -> None:
    gaps = []
    for seed in range(40):
        view = paper_cell(9, seed)
        greedy, optimal = (
            fc.objective(len(plan.devices), plan.round_s, 0.0)
            for plan in (fc.Greedy(0.0).decide(view, RNG), fc.Optimal(0.0).decide(view, RNG))
        )
        gaps.append(greedy / optimal - 1.0)
    assert max(gaps) > 1e-6
    assert min(gaps) >= -1e-14


@given(small_cells, thetas, st.data())
def test_greedy_from_forced_devices_is_algorithm_2_from_there(cell: Cells, theta: float, data: st.DataObject) -> None:
    M = len(cell)
    forced = data.draw(st.lists(st.integers(0, M - 1), unique=True, min_size=1, max_size=3))
    most = data.draw(st.integers(len(forced), M))
    view = fc.RoundView(*np.array(cell).T, must_include=np.isin(np.arange(M), forced))
    ours = grow(view, most, theta)
    assert set(ours[: len(forced)].tolist()) == set(forced)
    chosen = sorted(forced)
    while len(chosen) < most:
        options = {k: value(view, np.array([*chosen, k]), theta) for k in range(M) if k not in chosen}
        k = min(options, key=lambda k: options[k])
        if options[k] > value(view, np.array(chosen), theta) * (1 + 1e-12):
            break
        chosen.append(k)
    assert value(view, ours, theta) == pytest.approx(value(view, np.array(chosen), theta), rel=1e-9)


def test_a_negative_theta_caps_the_set_where_the_rounds_model_ends() -> None:
    view = paper_cell(60, 0, 200.0)
    for policy in (fc.Greedy(-0.0367), fc.Optimal(-0.0367)):
        assert len(policy.decide(view, RNG).devices) == 27
    forced = fc.RoundView(view.upload_s, view.compute_s, must_include=np.arange(60) < 40)
    with pytest.raises(fc.InputError, match=r"must_include forces 40 devices in, but with theta = -0.0367"):
        fc.Optimal(-0.0367).decide(forced, RNG)


@pytest.mark.parametrize("theta", [-1.0, -7.0, float("nan"), float("inf")])
def test_a_meaningless_theta_is_refused(theta: float) -> None:
    for policy in (fc.Greedy, fc.Optimal):
        with pytest.raises(fc.InputError, match="theta is"):
            policy(theta)


@pytest.mark.parametrize("seed", range(8))
def test_the_bounds_on_a_sets_size_hold_at_all_three_times(seed: int) -> None:
    """At T the devices with the smallest needs c / (T - t) fit, as long as these sum to at most 1."""
    view = paper_cell(60, seed)
    law, c, t, e = view.needs

    def fitting(T: float) -> np.ndarray:
        needs = np.where(t < T, c / np.maximum(T - t, 1e-12), np.inf)
        order = np.argsort(needs)
        return order[np.cumsum(needs[order]) <= 1.0]

    start_s = float(np.quantile(t, 0.3))
    for width_s in (0.05, 0.5, 3.0):
        times = (start_s + 0.5, start_s + 0.5 + width_s, start_s + 0.5 + 2.0 * width_s)
        bounds = _most_by(law, c, t, e, 0, fitting(times[1]), times)
        assert all(bound >= fitting(T).size - 1e-9 for bound, T in zip(bounds, times, strict=True))
        assert bounds[1] <= fitting(times[1]).size + 2.0  # and is of use


@pytest.mark.parametrize(("theta", "most", "most_by"), [(0.0, 60, 95), (0.01, 51, 88), (0.139, 48, 61)])
def test_the_shortest_round_is_solved_for_few_of_the_900_sizes_of_three_cells(
    theta: float, most: int, most_by: int
) -> None:
    solved = np.zeros(2)
    for seed in range(3):
        view = paper_cell(300, seed)
        best, times = _best_set(*view.needs, np.sort(view.upload_s), 0, 300, theta)
        best_by, times_by = _best_set_by(*view.needs, 0, 300, theta)
        assert sorted(best) == sorted(best_by)
        solved += times, times_by
    assert (solved <= (most, most_by)).all()


def test_one_device_is_solved_for_once() -> None:
    view = fc.RoundView([1.0], [2.0])
    for best, solved in (
        _best_set(*view.needs, np.sort(view.upload_s), 0, 1, 0.0),
        _best_set_by(*view.needs, 0, 1, 0.0),
    ):
        assert (best.tolist(), solved) == ([0], 1)


@pytest.mark.parametrize("low", [1, 7])
def test_bounds_of_many_devices_are_sums_to_the_last_digits_and_never_above_the_truth(low: int) -> None:
    M, theta = 100_000, 0.01
    cheapest, t = np.sort(np.random.default_rng(2).lognormal(-9, 3, M)), np.linspace(9.0, 6.0, M)
    bounds = _bounds(cheapest, t, low, M, theta)
    assert bounds.size == M - low + 1
    for n in (low, 10, 999, 54_321, M):
        exact = (theta + 1.0 / n) * (6.0 + math.fsum(cheapest[:n]))
        assert exact * (1.0 - 2e-15) <= bounds[n - low] <= exact
