import numpy as np
import pytest

import fedcell as fc
from builders import view_of
from fedcell.schedule.zoo.common import counts_of_labels, equal_share_finish_s, weighted_order


def test_a_k_th_of_the_band_or_a_line_of_ones_own() -> None:
    assert equal_share_finish_s(view_of(2), 4).tolist() == [7.0, 11.0]
    assert equal_share_finish_s(view_of(2, law=fc.Dedicated()), 4).tolist() == [4.0, 5.0]
    assert equal_share_finish_s(view_of(2), 4, np.array([0.5, 0.25])).tolist() == [5.0, 4.0]


def test_draws_are_those_of_one_device_after_the_other() -> None:
    """The probability of an ordered pair is w_i / W times w_j / (W - w_i)."""
    weights, rng, n = np.array([1.0, 2.0, 5.0]), np.random.default_rng(0), 6000
    counts = np.zeros((3, 3))
    for _ in range(n):
        i, j, _last = weighted_order(weights, view_of(3), rng)
        counts[i, j] += 1
    for i in range(3):
        for j in set(range(3)) - {i}:
            p = weights[i] / 8 * weights[j] / (8 - weights[i])
            assert abs(counts[i, j] - n * p) < 5 * np.sqrt(n * p)


def test_weight_nothing_comes_last() -> None:
    for seed in range(9):
        order = weighted_order(np.array([0.0, 1e-9, 0.0, 3.0]), view_of(4), np.random.default_rng(seed))
        assert set(order[:2]) == {1, 3}


def test_label_counts_come_before_profiles_and_the_unknown_count_as_the_mean() -> None:
    view = fc.RoundView(np.ones(3), np.ones(3), label_counts=[[6, 0], [0, 0], [1, 3]], profiles=np.ones((3, 2)))
    found = counts_of_labels(view, "me")
    assert found is not None
    assert found.tolist() == [[6.0, 0.0], [3.5, 1.5], [1.0, 3.0]]
    assert counts_of_labels(fc.RoundView(np.ones(1), np.ones(1)), "me") is None
    assert counts_of_labels(fc.RoundView(np.ones(2), np.ones(2), label_counts=[[0, 0], [0, 0]]), "me") is None


def test_profiles_are_shares_of_a_devices_samples() -> None:
    profiles = np.array([[1.0, 3.0], [np.nan, np.nan], [2.0, 0.0]])
    shares = counts_of_labels(fc.RoundView(np.ones(3), np.ones(3), profiles=profiles), "me")
    assert shares is not None
    assert shares.tolist() == [[0.25, 0.75], [0.625, 0.375], [1.0, 0.0]]
    view = fc.RoundView(np.ones(3), np.ones(3), profiles=profiles, samples=[8, 5, 4])
    counts = counts_of_labels(view, "me")
    assert counts is not None
    assert counts.tolist() == [[2.0, 6.0], [3.0, 3.0], [4.0, 0.0]]


@pytest.mark.parametrize("column", ["profiles", "label_counts"])
def test_a_negative_count_names_the_device_and_the_policy(column: str) -> None:
    view = fc.RoundView(np.ones(2), np.ones(2), profiles=[[1.0, 0.0], [0.5, -0.5]])
    if column == "label_counts":
        view = fc.RoundView(np.ones(2), np.ones(2), label_counts=[[1, 0], [5, -5]])
    with pytest.raises(
        fc.InputError, match=rf"{column}\[1\] has a negative entry, but me needs label counts or shares"
    ):
        counts_of_labels(view, "me")
