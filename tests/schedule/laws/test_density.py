import numpy as np
import pytest

import fedcell as fc
from fedcell.schedule.laws.density import SUMS, longer_by_sums
from fedcell.schedule.laws.solver import GROUP_ROWS


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
