"""Profiles that devices report, and their noise."""

import numpy as np
import pytest
from scipy import stats

from fedcell.errors import InputError
from fedcell.learn.profile import noise_of, normalised, private


def test_normalised_has_an_l1_norm_of_1() -> None:
    changes = np.random.default_rng(0).normal(size=(50, 7))
    np.testing.assert_allclose(np.abs(normalised(changes)).sum(axis=1), 1.0)
    np.testing.assert_allclose(normalised(3.0 * changes), normalised(changes))
    assert normalised(np.zeros(4)).tolist() == [0.0] * 4


def test_the_noise_is_laplace_of_scale_2_by_epsilon() -> None:
    epsilon, d = 5.0, 10
    clean = np.tile(normalised(np.arange(d)), (20_000, 1))
    noise = private(clean, epsilon, np.random.default_rng(1)) - clean
    assert stats.kstest(noise.ravel(), stats.laplace(scale=2 / epsilon).cdf).pvalue > 0.01
    assert np.square(noise).sum(axis=1).mean() == pytest.approx(noise_of(epsilon, d), rel=0.02)


def test_no_two_profiles_can_be_told_apart_by_more_than_e_to_the_epsilon() -> None:
    """The definition, with the two profiles that differ most; log densities differ by at most epsilon anywhere."""
    epsilon = 1.7
    one, other = np.array([1.0, 0.0]), np.array([0.0, -1.0])
    density = stats.laplace(scale=2 / epsilon).logpdf
    points = np.random.default_rng(2).uniform(-9, 9, (10_000, 2))
    ratio = density(points - one).sum(axis=1) - density(points - other).sum(axis=1)
    assert np.abs(ratio).max() <= epsilon + 1e-9
    assert np.abs(ratio).max() > 0.9 * epsilon  # no more noise than needed


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.inf, np.nan])
def test_a_bad_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon is"):
        private([1.0], epsilon, np.random.default_rng(0))
    with pytest.raises(InputError, match="epsilon is"):
        noise_of(epsilon, 3)


def test_a_profile_for_which_the_noise_would_be_too_small_is_refused() -> None:
    with pytest.raises(InputError, match="L1 norm above 1"):
        private([1.0, 1.0], 1.0, np.random.default_rng(0))
