import numpy as np

import fedcell as fc
from builders import view_of
from fedcell.schedule.zoo.common import equal_share_finish_s, weighted_order


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
