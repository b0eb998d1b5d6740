"""Ranks, Friedman's test and Nemenyi's critical difference, against SciPy and published tables."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from fedcell.distributions import chi_square_p, normal_range_quantile
from fedcell.errors import InputError
from fedcell.runs.tournament import block_ranks, critical_difference, ranking


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 21, 40])
@pytest.mark.parametrize("x", [0.0, 1e-3, 0.7, 3.84, 20.0, 400.0, 5000.0])
def test_chi_square_is_scipys(x: float, freedom: int) -> None:
    assert chi_square_p(x, freedom) == pytest.approx(scipy_stats.chi2.sf(x, freedom), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("count", [2, 3, 5, 10, 22, 40])
def test_range_quantile_is_scipys(count: int) -> None:
    q = normal_range_quantile(0.95, count)
    assert scipy_stats.studentized_range.cdf(q, count, np.inf) == pytest.approx(0.95, abs=1e-7)


def test_range_quantiles_are_those_of_demsars_table_5() -> None:
    printed = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]
    ours = [normal_range_quantile(0.95, k) / math.sqrt(2) for k in range(2, 11)]
    assert ours == pytest.approx(printed, abs=1e-3)


def test_demsars_example() -> None:
    """Four classifiers on 14 data sets: his critical difference is 1.25 (section 3.2.4)."""
    assert critical_difference(4, 14) == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 14)), abs=1e-3)
    assert round(critical_difference(4, 14), 2) == 1.25


def test_ranks_are_scipys_with_ties_and_failures() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, (30, 6)).astype(float)
    scores[3, 2] = scores[4, 1] = scores[4, 5] = np.inf
    expected = np.array([scipy_stats.rankdata(row) for row in scores])
    np.testing.assert_array_equal(block_ranks(scores), expected)
    assert block_ranks(scores)[3, 2] == 6.0


@pytest.mark.parametrize("ties", [False, True])
def test_friedman_is_scipys(ties: bool) -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(12, 5)) + np.arange(5) * 0.4
    if ties:
        scores = np.asarray(np.round(scores), np.float64)
    statistic, p = scipy_stats.friedmanchisquare(*scores.T)
    found = ranking(list("abcde"), scores)
    assert (found.chi_square, found.p) == pytest.approx((statistic, p), rel=1e-9)


def test_nothing_but_ties_shows_nothing() -> None:
    found = ranking(["a", "b", "c"], np.ones((8, 3)))
    assert (found.chi_square, found.p) == (0.0, 1.0)
    assert found.groups() == [["a", "b", "c"]]
    assert "no difference is shown" in found.text()


def test_groups_are_the_largest_ones_and_leave_out_who_stands_alone() -> None:
    """Mean ranks 1, 2.5, 2.5, 4 with a critical difference of about 0.66: only the two in the middle are alike."""
    scores = np.tile([1.0, 2.0, 3.0, 4.0], (50, 1))
    scores[::2, [1, 2]] = scores[::2, [2, 1]]
    found = ranking(["first", "b", "c", "last"], scores)
    assert found.mean.tolist() == [1.0, 2.5, 2.5, 4.0]
    assert found.groups() == [["b", "c"]]
    assert [found.names[i] for i in found.order()] == ["first", "b", "c", "last"]


def test_overlapping_groups_are_each_shown_and_none_inside_another() -> None:
    scores = np.array([[1.0, 2.0, 3.0]] * 4)  # differences of 1 and 2 ranks; 1.66 is critical
    assert ranking(["a", "b", "c"], scores).groups() == [["a", "b"], ["b", "c"]]


def test_one_contender_has_nobody_to_be_compared_with() -> None:
    with pytest.raises(InputError, match="there is no policy to compare all with; give two policies"):
        ranking(["all"], np.ones((3, 1)))
