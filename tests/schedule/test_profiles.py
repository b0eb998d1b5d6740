"""Standardised profiles, the imbalance of a round, and balanced weights against scipy's solver."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import fedcell as fc
from fedcell.schedule.profiles import Profiles, balanced_weights, imbalance, imbalances_without, standardise

NAN = float("nan")


def standard(profiles: object, noise: float = 0.0) -> Profiles:
    found = standardise(profiles, noise)  # type: ignore[arg-type]
    assert found is not None
    return found


def draw(M: int, d: int, seed: int, unknown: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    profiles = rng.dirichlet(np.full(d, 0.3), M)
    profiles[rng.random(M) < unknown] = NAN
    return profiles


def test_standardised_profiles_have_mean_0_and_mean_square_1() -> None:
    profiles = standard(draw(30, 5, 0))
    np.testing.assert_allclose(profiles.z.mean(axis=0), 0.0, atol=1e-14)
    assert np.square(profiles.z).sum(axis=1).mean() == pytest.approx(1.0)
    assert not profiles.unknown.any()


def test_profiles_that_tell_nothing_are_none() -> None:
    assert standardise(np.full((4, 3), NAN)) is None
    assert standardise([[NAN], [1.0], [NAN]]) is None
    assert standardise(np.tile([0.1, 0.3, 0.6], (5, 1))) is None
    assert standardise([[1.0, 0.0], [0.0, 1.0]], noise=0.5) is None  # all of it may be noise


def test_random_sets_of_a_known_cell_have_the_mean_that_table_i_suggests() -> None:
    """(1/n - 1/M) / (1 - 1/M): a theta of about -1/M."""
    M, n = 20, 6
    profiles, rng = standard(draw(M, 10, 1)), np.random.default_rng(2)
    found = np.mean([imbalance(profiles, rng.permutation(M)[:n]) for _ in range(20_000)])
    assert found == pytest.approx((1 / n - 1 / M) / (1 - 1 / M), rel=0.02)


def test_d_of_partly_known_cells_is_what_is_expected() -> None:
    """Of M true profiles, k random ones are told. On average over who is known and who is in S, D is the truth."""
    M, k, rng = 12, 5, np.random.default_rng(3)
    truth = rng.normal(size=(M, 3))
    told, real = [], []
    for _ in range(30_000):
        order = rng.permutation(M)
        e = truth[order]
        shown = e.copy()
        shown[k:] = NAN
        # Known and unknown devices in one set; the scale of the cell is given, to look at the mean alone.
        devices = np.array([0, 1, 2, 5, 6])
        profiles = standard(shown)
        v = np.square(e[:k] - e[:k].mean(axis=0)).sum(axis=1).mean()
        told.append(imbalance(profiles, devices) * v)
        real.append(np.square(e[devices].mean(axis=0) - e.mean(axis=0)).sum())
    assert np.mean(told) == pytest.approx(np.mean(real), rel=0.12)


@pytest.mark.parametrize("known", [6, 4])
def test_what_a_device_does_to_a_round_is_the_imbalance_of_the_other_set(known: int) -> None:
    rows = np.random.default_rng(known).random((6, 3))
    rows[known:] = np.nan
    cell = standardise(rows)
    assert cell is not None
    for chosen in ([0, 2, 5], [1]):
        found = imbalances_without(cell, np.array(chosen))
        for device in range(6):
            other = sorted(set(chosen) ^ {device})
            wanted = imbalance(cell, np.array(other)) if other else np.nan
            assert found[device] == pytest.approx(wanted, nan_ok=True)


def test_noise_makes_profiles_partly_unknown() -> None:
    """With the shrunk profiles and their unknown part, D is expected to be that of the profiles without noise."""
    rng, M, d, scale = np.random.default_rng(4), 4000, 6, 0.15
    clean = rng.dirichlet(np.full(d, 0.3), M)
    noise = d * scale**2
    noisy = standard(clean + rng.normal(0.0, scale, clean.shape), noise)
    assert 0.1 < noisy.unknown[0] < 0.9
    exact = standard(clean)
    sets = [rng.permutation(M)[:8] for _ in range(3000)]
    told, real = ([imbalance(profiles, s) for s in sets] for profiles in (noisy, exact))
    assert np.mean(told) == pytest.approx(np.mean(real), rel=0.03)
    assert np.corrcoef(told, real)[0, 1] > 0.5


@given(
    n=st.integers(1, 12), d=st.integers(1, 6), seed=st.integers(0, 10**6), strength=st.sampled_from([0.01, 0.1, 2.0])
)
def test_balanced_weights_are_the_minimum(n: int, d: int, seed: int, strength: float) -> None:
    profiles = standardise(draw(n + 4, d, seed, unknown=0.3))
    devices = np.arange(n)
    weights = balanced_weights(profiles, devices, strength)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    if profiles is None:
        np.testing.assert_allclose(weights, 1 / n)
        return

    def cost(w: np.ndarray) -> float:
        return imbalance(profiles, devices, w) + strength * float(np.square(w - 1 / n).sum())

    start = np.full(n, 1 / n)
    slow = minimize(
        cost, start, bounds=[(0, 1)] * n, constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, tol=1e-13
    )
    assert cost(weights) <= min(cost(start), slow.fun) + 1e-9


def test_bad_strength_is_refused() -> None:
    for strength in (0.0, -1.0, NAN):
        with pytest.raises(fc.InputError, match="strength is"):
            balanced_weights(None, np.array([0]), strength)
