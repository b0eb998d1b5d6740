"""The paper's law: its compiled functions against exact arithmetic, root finding and brute force."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq

import fedcell as fc
from fedcell.schedule.laws import density
from fedcell.schedule.laws.density import SUMS, band_needed, density_time, longer_by_sums, slack_after_slowest
from fedcell.schedule.laws.solver import GROUP_ROWS
from fedcell.types import Floats

LAW = density.DensityNeeds()
KINDS = ("paper", "alike", "wide", "tiny", "opposed")


def cell(kind: str, n: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Upload and training times."""
    rng = np.random.default_rng(seed)
    c, t = rng.lognormal(-2, 1, n), 6.0 + rng.exponential(0.75, n)
    return {
        "paper": (c, t),
        "alike": (c, np.full(n, 3.0)),
        "wide": (rng.lognormal(0, 5, n), rng.lognormal(0, 5, n)),
        "tiny": (1e-9 * c, 1e3 * t),
        "opposed": (np.linspace(1.0, 0.01, n), np.linspace(0.0, 60.0, n)),
    }[kind]


@pytest.mark.parametrize("n", [1, 7, density.BLOCK, 2 * density.BLOCK + 3])
def test_the_band_that_is_needed_and_its_slope_are_sums(n: int) -> None:
    c, t = cell("paper", n)
    d, x = t.max() - t, 0.3
    needed, slope = band_needed(c, d, x)
    assert needed == pytest.approx(math.fsum(c / (x + d)), rel=1e-14)
    assert slope == pytest.approx(math.fsum(c * x / (x + d) ** 2), rel=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 40])
def test_the_lower_bound_is_jensens_or_that_of_the_slowest(kind: str, n: int) -> None:
    c, t = cell(kind, n)
    d = t.max() - t
    low, high = density._lower_bound(c, d)
    assert high == pytest.approx(c.sum(), rel=1e-14)
    assert low == pytest.approx(max(c.sum() - (c * d).sum() / c.sum(), c[d == 0.0].sum()), rel=1e-9)
    x = slack_after_slowest(c, d, 0.0)
    assert low * (1 - 1e-14) <= x <= high * (1 + 1e-14)


@pytest.mark.parametrize("start", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_the_slack_is_the_root_to_full_precision_wherever_the_search_begins(kind: str, n: int, start: float) -> None:
    """A step of Newton's in exact arithmetic would move it by a few units in the last place at most."""
    for seed in range(3):
        c, t = cell(kind, n, seed)
        d = t.max() - t
        x = slack_after_slowest(c, d, start * slack_after_slowest(c, d, 0.0))
        exact = Fraction(float(x))
        needs = [Fraction(float(one)) / (exact + Fraction(float(gap))) for one, gap in zip(c, d, strict=True)]
        slope = sum((need / (exact + Fraction(float(gap))) for need, gap in zip(needs, d, strict=True)), Fraction(0))
        assert abs(float((sum(needs) - 1) / slope / exact)) < 4e-15
        if kind not in ("wide", "tiny"):
            root = brentq(lambda y, c=c, d=d: float((c / (y + d)).sum()) - 1.0, 1e-12, c.sum() + 1.0, xtol=1e-14)
            assert x == pytest.approx(root, rel=1e-9)
        assert density_time(c, t, np.empty(n), 0.0) == t.max() + x


@pytest.mark.parametrize("kind", KINDS)
def test_shares_of_many_sets_are_those_of_each(kind: str) -> None:
    c, t = (np.stack(rows) for rows in zip(*(cell(kind, 9, seed) for seed in range(5)), strict=True))
    used = np.random.default_rng(1).random((5, 9)) < 0.6
    used[:, 3] = True
    for some in (used, np.zeros((0, 0), np.bool_)):
        shares, round_s = np.full((5, 9), np.nan), np.empty(5)
        assert density._share_all(LAW, c, t, c, some, shares, round_s)
        for row in range(5):
            of = some[row] if some.size else np.ones(9, np.bool_)
            d = t[row, of].max() - t[row, of]
            x = slack_after_slowest(c[row, of], d, 0.0)
            wanted = c[row, of] / (x + d)
            np.testing.assert_allclose(shares[row, of], wanted / wanted.sum(), rtol=1e-12)
            assert (shares[row, ~of] == 0.0).all()
            assert round_s[row] == t[row, of].max() + x


def test_the_cheapest_device_is_the_one_with_the_least_share_and_of_equals_the_first() -> None:
    rate, t = np.array([1.0, 2.0, 4.0, 2.0, 1.0]), np.array([1.0, 5.0, 5.5, 5.0, 1.0])
    index = np.array([7, 9, 3, 4, 2])
    for T, position in ((6.0, 4), (7.0, 4), (5.75, 4), (9.0, 2)):
        shares = [1.0 / ((T - t[i]) * rate[i]) for i in range(5)]
        wanted = min(range(5), key=lambda i: (round(shares[i], 12), index[i]))
        assert density._cheapest(rate, t, index, T) == wanted == position
    alike = np.ones(3)
    assert density._cheapest(alike, alike, np.array([5, 2, 8]), 3.0) == 1
    assert density._cheapest(alike, alike, np.array([2, 5, 8]), 3.0) == 0


def test_what_the_law_says_of_a_device_and_of_a_set() -> None:
    """c = 2 and t = 3: done alone after 5 s, and with half of the band after 7 s."""
    device = (LAW, 2.0, 3.0, 0.0)
    assert [density._need(*device, T) for T in (7.0, 3.0)] == [0.5, math.inf]
    assert density.linear_inverse_share(*device, 7.0) == 2.0
    assert density.linear(LAW)
    assert [density.density_tangent(*device, T) for T in (7.0, 3.0)] == [(0.5, 0.125), (math.inf, 0.0)]
    assert density.density_finish_s(*device) == 5.0
    assert [density._exceeds(*device, T, 0.5) for T in (3.0, 6.99, 7.0, 8.0)] == [True, True, False, False]
    group = np.array([[2.0, 1.0], [3.0, 5.0], [0.0, 0.0], [0.0, 0.0]])
    assert [density._needed(LAW, group, n, 7.0) for n in (1, 2)] == [0.5, 1.0]
    assert [density._needed(LAW, group, n, 5.0) for n in (1, 2)] == [1.0, math.inf]
    assert [density._fits(LAW, total) for total in (0.999, 1.0, 1.001)] == [True, False, False]
    assert density._round_time(LAW, group, 2, 0.0) == pytest.approx(7.0, rel=1e-15)
    assert density._round_time(LAW, group, 1, 0.0) == 5.0
    for many in (1, 2):
        series = np.zeros(SUMS)
        assert density._grown_round_time(LAW, group, 2, 5.0, series, many) == pytest.approx(7.0, rel=1e-15)
        assert (series[2] > 0.0) == (many < 2)
    near = np.array([[1.0, 0.5], [3.0, 5.0], [0.0, 0.0], [1.0, 2.0]])
    assert [density._smallest_need(LAW, near, np.arange(2), n, 6.5) for n in (1, 2)] == [0, 0]
    assert density._smallest_need(LAW, near, np.arange(2), 2, 8.0) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_growing_groups_series_has_the_round_time_of_the_solver(seed: int) -> None:
    """Devices join one by one, at first with ends that a new series is needed for, then close to each other."""
    rng = np.random.default_rng(seed)
    count = 60
    group, sums = np.zeros((GROUP_ROWS, count)), np.zeros(SUMS)
    group[0], group[1] = rng.lognormal(-3, 1, count), 3.0 + rng.exponential(0.1, count)
    T = 0.0
    for n in range(1, count + 1):
        c, t = group[0, :n], group[1, :n]
        alone = float(fc.allocate(c, t).round_s)
        T = alone if n == 1 else longer_by_sums(group, n, T, sums)
        assert pytest.approx(alone, rel=1e-12) == T


def test_a_series_is_used_as_far_as_it_reaches_and_then_begun_again() -> None:
    """The first device's gap is 1, so the series around 5 reaches from 4.9 to 5.1; a new one is about where it ends."""
    group, sums = np.zeros((GROUP_ROWS, 4)), np.zeros(SUMS)
    group[0], group[1] = [1.0, 0.001, 3.0, 0.001], [4.0, 3.0, 3.0, 3.0]
    T = longer_by_sums(group, 2, 5.0, sums)
    assert pytest.approx(float(fc.allocate(group[0, :2], group[1, :2]).round_s), rel=1e-14) == T
    assert (sums[0], sums[1], sums[2]) == (5.0, 1.0, 1.0)
    np.testing.assert_allclose(sums[3:], 1.0)  # c r^k / (T - t)^(k + 1) of the only device
    T = longer_by_sums(group, 3, T, sums)  # far beyond: by the solver
    assert pytest.approx(float(fc.allocate(group[0, :3], group[1, :3]).round_s), rel=1e-14) == T
    T = longer_by_sums(group, 4, T, sums)
    assert pytest.approx(float(fc.allocate(group[0], group[1]).round_s), rel=1e-14) == T
    assert sums[0] > 6.0
    assert sums[1] == sums[0] - 4.0
    assert sums[2] == 3.0
    k = np.arange(SUMS - 3)
    gaps = sums[0] - group[1, :3]
    wanted = (group[0, :3] * sums[1] ** k[:, None] / gaps ** (k[:, None] + 1)).sum(axis=1)
    np.testing.assert_allclose(sums[3:], wanted, rtol=1e-13)
