"""Diverse against all subsets, and what it promises beyond the contract of policies."""

import itertools
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.schedule import diverse
from twins.diverse import best_of_all, draw_view, values_of

NAN = float("nan")


def value_of(view: fc.RoundView, devices: np.ndarray, theta: float, memory: float) -> float:
    return float(values_of(view, np.isin(np.arange(len(view)), devices)[np.newaxis], theta, memory)[0])


@pytest.mark.parametrize("seed", range(60))
def test_against_all_subsets(seed: int) -> None:
    """Exact in nearly all small cells, and close in these. benchmarks/schedule.py has thousands."""
    rng = np.random.default_rng(seed)
    view = draw_view(
        int(rng.integers(1, 9)), seed, unknown=rng.choice([0.0, 0.3]), forced=seed % 2, past=bool(seed % 3)
    )
    theta, memory = float(rng.choice([0.02, 0.05, 0.5])), float(rng.choice([0.0, 0.5, 1.0]))
    most = len(view) if seed % 5 else max(1, len(view) // 2)
    policy = fc.Diverse(theta=theta, memory=memory, max_devices=most)
    plan = policy.decide(view, rng)
    found = value_of(view, plan.devices, theta, memory)
    best = best_of_all(view, theta, memory, most)
    assert best * (1 - 1e-9) <= found <= 1.1 * best


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_devices_are_chosen_than_allowed_also_before_anybody_checks(most: int) -> None:
    for seed in range(10):
        view = draw_view(8, seed)
        assert len(fc.Diverse(theta=1e-3, max_devices=most).choose(view, np.random.default_rng(0))) <= most
        assert len(fc.Diverse(theta=1e-3).choose(view, np.random.default_rng(0))) > most


def test_most_small_cells_are_solved_exactly() -> None:
    exact = 0
    for seed in range(100, 150):
        view = draw_view(8, seed, past=True)
        plan = fc.Diverse().decide(view, np.random.default_rng(0))
        exact += value_of(view, plan.devices, 0.05, 0.5) <= best_of_all(view, 0.05, 0.5, 8) * (1 + 1e-9)
    assert exact >= 48


@pytest.mark.parametrize("M", [1, 2, 20])
def test_without_profiles_it_is_optimal(M: int) -> None:
    view = draw_view(M, 7)
    rng = np.random.default_rng(0)
    for profiles in (None, np.full((M, 3), NAN), np.ones((M, 3))):
        bare = fc.RoundView(view.upload_s, view.compute_s, profiles=profiles)
        plan, twin = fc.Diverse(theta=0.2).decide(bare, rng), fc.Optimal(theta=0.2).decide(bare, rng)
        assert plan.devices.tolist() == twin.devices.tolist()


def test_what_was_missing_comes_next() -> None:
    """Two kinds of devices; the far kind was left out so far, and its turn comes."""
    profiles = np.repeat(np.eye(2), 4, axis=0)
    upload_s, compute_s = np.repeat([1.0, 10.0], 4), np.ones(8)
    policy = fc.Diverse(theta=0.5, memory=1.0)  # so large a theta prefers a short round
    fresh = fc.RoundView(upload_s, compute_s, profiles=profiles)
    assert policy.decide(fresh, np.random.default_rng(0)).devices.max() < 4
    starved = fc.RoundView(upload_s, compute_s, profiles=profiles, recent=np.repeat([0.25, 0.0], 4))
    assert policy.decide(starved, np.random.default_rng(0)).devices.max() >= 4
    forgetful = fc.Diverse(theta=0.5, memory=0.0)
    assert forgetful.decide(starved, np.random.default_rng(0)).devices.max() < 4


def test_noise_that_drowns_the_profiles_leaves_the_papers_objective() -> None:
    view = draw_view(20, 3)
    assert view.profiles is not None
    noisy = fc.RoundView(view.upload_s, view.compute_s, profiles=view.profiles, profile_noise=100.0)
    rng = np.random.default_rng(0)
    assert (
        fc.Diverse().decide(noisy, rng).devices.tolist() == fc.Optimal(theta=0.05).decide(noisy, rng).devices.tolist()
    )
    assert fc.Diverse().decide(view, rng).devices.tolist() != fc.Diverse().decide(noisy, rng).devices.tolist()


def test_a_large_cell_ends_at_a_local_optimum() -> None:
    """No addition, removal or exchange improves it, by the slow formula."""
    view = draw_view(300, 5, unknown=0.1, past=True)
    found = fc.Diverse().decide(view, np.random.default_rng(0)).devices
    value = value_of(view, found, 0.05, 0.5)
    others = np.setdiff1d(np.arange(len(view)), found)
    inside = np.isin(np.arange(len(view)), found)
    neighbours = [inside ^ (np.arange(len(view)) == k) for k in range(len(view))]
    neighbours += [inside ^ np.isin(np.arange(len(view)), (i, k)) for i in found for k in others]
    assert values_of(view, np.array([one for one in neighbours if one.any()]), 0.05, 0.5).min() >= value * (1 - 1e-9)
    assert value <= value_of(view, fc.Optimal(theta=0.05).decide(view, np.random.default_rng(0)).devices, 0.05, 0.5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"theta": 0.0}, "theta is 0.0; give a number above 0"),
        ({"theta": NAN}, "theta is nan"),
        ({"memory": 1.5}, "memory is 1.5; give a number from 0 to 1"),
        ({"memory": NAN}, "memory is nan"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(fc.InputError, match=said):
        fc.Diverse(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"profiles": [[1.0, NAN], [0.0, 1.0]]}, r"profiles\[0\] is \[1.0, nan\]; give finite numbers, or NaN"),
        ({"profiles": [[1.0], [np.inf]]}, r"profiles\[1\] is \[inf\]"),
        ({"profiles": [1.0, 2.0]}, r"profiles has shape \(2,\)"),
        ({"recent": [1.0, NAN]}, r"recent\[1\] is nan; give finite numbers"),
    ],
)
def test_bad_columns_are_refused(columns: dict[str, object], said: str) -> None:
    with pytest.raises(fc.InputError, match=said):
        fc.RoundView(np.ones(2), np.ones(2), **columns)


def test_the_set_does_not_depend_on_the_scale_of_profiles() -> None:
    view = draw_view(30, 9)
    assert view.profiles is not None
    rng = np.random.default_rng(0)
    scaled = fc.RoundView(view.upload_s, view.compute_s, ids=view.ids, profiles=1e-3 * view.profiles + 5.0)
    same = fc.Diverse().decide(fc.RoundView(view.upload_s, view.compute_s, ids=view.ids, profiles=view.profiles), rng)
    assert fc.Diverse().decide(scaled, rng).devices.tolist() == same.devices.tolist()


@pytest.mark.parametrize("law", [fc.Density(), fc.Blocks(25)])
@pytest.mark.parametrize("forced", [False, True])
def test_sorting_out_slow_devices_changes_no_search(law: fc.Law, forced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same search as Python runs it, where it looks at all devices, has the same end."""
    rng, M = np.random.default_rng(5), diverse.MANY + 200
    compiled: Any = diverse._search
    c, t, z = rng.uniform(0.05, 9.0, M), rng.uniform(5.0, 9.0, M), rng.normal(size=(M, 3))
    must = np.zeros(M, np.bool_)
    must[7] = forced
    for start, price in ((np.flatnonzero(must), 0.0), (np.arange(12), 0.0), (np.arange(12), 0.01)):
        sets: Any = (z, np.zeros(M), np.zeros(M), np.zeros(3), must, start, np.arange(3), 20, 0.05, price, False)
        found, value = compiled(*law.needs(c, t), *sets)
        monkeypatch.setattr(diverse, "MANY", 10**9)
        expected, least = compiled.py_func(*law.needs(c, t), *sets)
        monkeypatch.undo()
        assert found.tolist() == expected.tolist()
        assert value == least


def test_the_least_values_are_the_first_of_a_stable_sort() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 5, diverse.MANY, diverse.MANY + 1, 5000):
        values = rng.integers(0, 50, size).astype(float)
        for count in (1, 12, 300):
            expected = np.argsort(values, kind="stable")[:count]
            assert diverse.least_of(values, count).tolist() == expected.tolist()


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    policy = fc.Diverse()
    assert (policy.theta, policy.memory, policy.uses_profiles, diverse.USUAL_THETA) == (0.05, 0.5, True, 0.1)


def drawn_search(seed: int, M: int, price: float, linear: bool) -> tuple[fc.RoundView, dict[str, Any], np.ndarray]:
    rng = np.random.default_rng(seed)
    view = draw_view(M, seed, forced=seed % 2)
    z, past = np.ascontiguousarray(rng.normal(size=(M, 3))), 0.3 * rng.normal(size=3)
    given = {"z": z, "past": past, "order": np.arange(M), "price": price}
    return view, given | {"linear": rng.random(M) if linear else None}, rng.random(M)


@pytest.mark.parametrize(("price", "linear"), [(0.0, False), (0.0, True), (0.2, True)])
@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("seed", range(6))
def test_a_search_finds_the_set_that_is_worth_most_of_all(seed: int, most: int, price: float, linear: bool) -> None:
    """For a part of the upload and another amount of work, too; a second search begins where the first ended."""
    M, theta = 6, 0.05
    view, given, unknown = drawn_search(seed, M, price, linear)
    search, before = diverse.SetSearch(view, most=most, **given), None
    for part, work in ((1.0, 1.0), (0.25, 3.0)):
        costs = given["linear"] if linear else np.zeros(M)
        values = {}
        for chosen in itertools.chain(*(itertools.combinations(range(M), n) for n in range(1, most + 1))):
            some = np.array(chosen)
            if not set(view.forced) <= set(chosen):
                continue
            factor = theta + np.square(given["z"][some].mean(axis=0) + given["past"]).sum()
            factor += unknown[some].sum() / some.size**2 + costs[some].mean()
            round_s = float(fc.allocate(part * view.upload_s[some], work * view.compute_s[some]).round_s)
            values[chosen] = factor * round_s if price == 0.0 else factor + price * round_s
        devices, value = search.best(theta, unknown, part, work)
        assert value == pytest.approx(values[tuple(sorted(devices))], rel=1e-9)
        before = tuple(sorted(devices)) if before is None else before
        assert value <= (1.02 * min(values.values()) if part == 1.0 else values[before] * (1 + 1e-12))
