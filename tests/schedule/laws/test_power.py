"""The compiled arithmetic of the law `power`, against logarithms and bisection."""

import math

import numpy as np
import pytest

import fedcell as fc
from fedcell.schedule.laws.power import (
    _log,
    power_inverse_share,
    power_inverse_shares,
    power_needs,
    power_solo_finish_s,
    power_tangent,
    power_time,
    without_limits,
)
from fedcell.schedule.laws.solver import GROUP_ROWS
from twins.laws import round_seconds


def test_the_logarithm_is_that_of_the_standard_library() -> None:
    for x in np.concatenate((np.geomspace(1e-300, 1e300, 4001), 1.0 + np.geomspace(1e-16, 1.0, 1001))):
        assert _log(x) == pytest.approx(math.log(x), rel=3e-16, abs=0.0)


def test_an_upload_with_a_share_has_the_rate_of_all_the_power_in_it() -> None:
    """g B log2(1 + s / g) bit/s instead of B log2(1 + s)."""
    shares, snr = np.array([1.0, 0.5, 0.01]), np.array([3.0, 3.0, 0.2])
    rates = shares * np.log2(1.0 + snr / shares) / np.log2(1.0 + snr)
    np.testing.assert_allclose(fc.Power(snr).upload_s(np.full(3, 6.0), shares), 6.0 / rates, rtol=1e-12)


@pytest.mark.parametrize("s", [1e-9, 0.3, 1.0, 1e12])
def test_a_pace_is_the_inverse_of_the_time_of_an_upload(s: float) -> None:
    """c u / ln(1 + u) seconds with the share s / u, over all that a double can hold."""
    for u in np.geomspace(1e-6, 1e280, 3001):
        x = u / math.log1p(u)
        # x itself is rounded, and near 1 all of u is in its last digits.
        assert power_inverse_share(2.0, 0.0, s, 2.0 * x) * s == pytest.approx(u, rel=4e-15 * (1.0 + x / (x - 1.0)))


def test_before_the_least_time_no_share_is_enough() -> None:
    assert power_inverse_share(2.0, 3.0, 1.0, 4.0) == -1.0
    assert power_inverse_share(2.0, 3.0, 1.0, 5.0) == 0.0
    assert power_inverse_share(2.0, 3.0, 1.0, 1.0) < power_inverse_share(2.0, 3.0, 1.0, 2.0) < 0.0
    assert power_inverse_share(2.0, 3.0, 1.0, math.inf) == math.inf


def test_many_paces_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    c, t, s = rng.lognormal(-20, 20, 500), rng.exponential(5.0, 500), rng.lognormal(2, 3, 500)
    found, needs = np.empty(500), np.empty(500)
    for T in (1.0, 6.0, 1e3, 1e20):
        power_inverse_shares(c, t, s, T, found)
        one_by_one = [power_inverse_share(c[i], t[i], s[i], T) for i in range(500)]
        np.testing.assert_allclose(found, one_by_one, rtol=1e-14)
        power_needs(c, t, s, T, needs)
        np.testing.assert_allclose(needs, [1.0 / p if p > 0.0 else math.inf for p in one_by_one], rtol=1e-14)


@pytest.mark.parametrize("seed", range(12))
def test_rounds_are_those_of_a_bisection_even_with_extreme_devices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    spread = [0.5, 3.0, 8.0][seed % 3]
    upload_s, t, s = rng.lognormal(0, spread, n), rng.lognormal(0, spread, n), rng.lognormal(2, spread, n)
    group = np.empty((GROUP_ROWS, n))
    group[:3] = without_limits(upload_s, s), t, s
    T = power_time(group, n)
    expected = round_seconds(fc.Power(s), upload_s.tolist(), t.tolist(), s.tolist())
    assert pytest.approx(expected, rel=1e-12) == T
    assert power_solo_finish_s(group[0, 0], t[0], s[0]) == pytest.approx(upload_s[0] + t[0], rel=1e-14)


def test_a_round_of_a_million_devices_uses_the_whole_band() -> None:
    rng, M = np.random.default_rng(0), 1_000_000
    group = np.empty((GROUP_ROWS, M))
    group[:3] = rng.lognormal(-8, 1, M), rng.exponential(3.0, M), rng.lognormal(2, 2, M)
    T = power_time(group, M)
    needs = np.empty(M)
    power_needs(group[0], group[1], group[2], T, needs)
    assert math.fsum(needs) == pytest.approx(1.0, rel=1e-12)


def test_needs_are_convex_and_their_tangents_are_tangents() -> None:
    """What the bounds of Optimal take for granted."""
    for s in (1e-3, 1.0, 1e6):
        at_s = 3.0 + 2.0 * np.geomspace(1.01, 1e12, 400)
        needs, slopes = np.array([power_tangent(2.0, 3.0, s, T) for T in at_s]).T
        assert (np.diff(slopes) < 0.0).all()
        for T, g, slope in zip(at_s[::40], needs[::40], slopes[::40], strict=True):
            assert (needs >= (g - slope * (at_s - T)) * (1 - 1e-12) - 1e-300).all()
            near = 1e-5 * (T - 5.0)
            rise = 1.0 / power_inverse_share(2.0, 3.0, s, T - near) - 1.0 / power_inverse_share(2.0, 3.0, s, T + near)
            assert rise / (2.0 * near) == pytest.approx(slope, rel=1e-5)
    assert power_tangent(2.0, 3.0, 1.0, 5.0) == (math.inf, 0.0)
