import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import fedcell as fc
from fedcell.world import Devices, compute_j, round_j, transmit_j
from fedcell.world.device import cmos_j, draw_compute_s, expected_compute_s


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


def test_a_cycle_costs_kappa_f_squared() -> None:
    # 0.1 nJ a cycle at 1 GHz, so 0.1 W; at twice the frequency the same cycles cost four times as much.
    assert float(cmos_j(1e-28, 1e9, 1e9)) == pytest.approx(0.1)
    assert float(cmos_j(1e-28, 2e9, 1e9)) == pytest.approx(0.4)


def test_the_papers_devices_spend_six_tenths_of_a_joule_on_training() -> None:
    # 3,000 samples of 2 ms at 1 GHz are 6e9 cycles, whatever the training time turns out to be.
    for compute_s in (0.0, 6.0, 60.0):
        np.testing.assert_allclose(compute_j(Devices(), np.full(20, compute_s)), 0.6)


def test_cycles_follow_the_training_time_unless_they_are_given() -> None:
    devices = Devices(seconds_per_sample=[1e-3, 4e-3], cpu_hz=2e9)
    assert devices.cycles_per_sample.tolist() == [2e6, 8e6]
    given = Devices(count=2, cycles_per_sample=[1e4, 3e4], cpu_hz=2e9, samples=500)
    np.testing.assert_allclose(compute_j(given, np.zeros(2)), [1e-28 * 4e18 * 5e6, 1e-28 * 4e18 * 1.5e7])


def test_watts_times_seconds_take_the_place_of_cycles() -> None:
    devices = Devices(compute_w=[0.5, 2.0], kappa=1.0)
    np.testing.assert_allclose(compute_j(devices, np.array([10.0, 3.0])), [5.0, 6.0])


@given(st.floats(1e-12, 1e-6), st.floats(1e5, 1e8), st.floats(1e-3, 1e3), st.lists(st.floats(1e-6, 1.0), min_size=1))
def test_with_a_fixed_density_the_share_does_not_change_the_energy(
    power_w_per_hz: float, bandwidth_hz: float, upload_s: float, shares: list[float]
) -> None:
    on_air_s = [upload_s / share for share in shares]
    found = transmit_j(power_w_per_hz, bandwidth_hz, shares, on_air_s)
    np.testing.assert_allclose(found, power_w_per_hz * bandwidth_hz * upload_s, rtol=1e-12)


def test_a_total_power_costs_power_times_seconds_whatever_the_band() -> None:
    total_w, shares, on_air_s = 0.2, np.array([0.1, 0.5, 1.0]), np.array([9.0, 4.0, 3.0])
    found = transmit_j(total_w / (shares * 3e6), 3e6, shares, on_air_s)
    np.testing.assert_allclose(found, total_w * on_air_s)


def test_a_round_costs_training_and_sending() -> None:
    cell, devices = fc.Cell(bandwidth_hz=2e6), Devices(power_w_per_hz=[1e-8, 5e-8], compute_w=1.0)
    found = round_j(cell, devices, np.array([3.0, 4.0]), np.array([0.5, 2.0]))
    np.testing.assert_allclose(found, [3.0 + 1e-8 * 2e6 * 0.5, 4.0 + 5e-8 * 2e6 * 2.0])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kappa": -1e-28}, "kappa is -1e-28; give a finite number of at least 0"),
        ({"cpu_hz": 0.0}, "cpu_hz is 0; give a finite number above 0"),
        ({"cycles_per_sample": [1.0, -2.0]}, "cycles_per_sample[1] is -2; give a finite number of at least 0"),
        ({"compute_w": -1.0}, "compute_w is -1; give a finite number of at least 0"),
        ({"count": 3, "compute_w": [1.0, 2.0]}, "count is 3 but the length of compute_w is 2; give one number for"),
        ({"kappa": 1e300}, "a round's training costs device 0 infinitely many joules; lower its kappa"),
    ],
)
def test_bad_values_get_a_sentence(fields: dict[str, object], said: str) -> None:
    with pytest.raises(fc.InputError) as error:
        Devices(**fields)  # type: ignore[arg-type]
    assert str(error.value).startswith(said)
