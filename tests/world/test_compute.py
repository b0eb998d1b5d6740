import numpy as np
from scipy import stats

from fedcell.world import Devices, draw_compute_s, expected_compute_s


def test_the_papers_device_trains_6_s_at_least_and_6_75_s_on_average() -> None:
    devices = Devices(20_000)
    drawn = draw_compute_s(devices, np.random.default_rng(1))
    np.testing.assert_allclose(expected_compute_s(devices), 6.75)
    assert stats.kstest(drawn, stats.expon(loc=6.0, scale=0.75).cdf).pvalue > 1e-3
    assert abs(drawn.mean() - 6.75) < 0.03
    assert abs(drawn.std() - 0.75) < 0.03
    assert drawn.min() >= 6.0


def test_each_device_has_its_own_law() -> None:
    devices = Devices(samples=[100, 200, 300], seconds_per_sample=[0.0, 1e-2, 1e-3], samples_per_second=[50, 100, 1e12])
    np.testing.assert_allclose(expected_compute_s(devices), [2.0, 4.0, 0.3], rtol=1e-6)
    rng = np.random.default_rng(2)
    drawn = np.array([draw_compute_s(devices, rng) for _ in range(5000)])
    assert stats.kstest(drawn[:, 0], stats.expon(scale=2.0).cdf).pvalue > 1e-3
    assert stats.kstest(drawn[:, 1], stats.expon(loc=2.0, scale=2.0).cdf).pvalue > 1e-3
    np.testing.assert_allclose(drawn[:, 2], 0.3, rtol=1e-7)
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.06
