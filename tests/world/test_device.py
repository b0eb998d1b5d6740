import pickle
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import fedcell as fc
from fedcell.errors import InputError
from fedcell.world import Devices, compute_j, round_j, transmit_j
from fedcell.world.device import draw_compute_s, expected_compute_s
from fedcell.world.energy import cmos_j


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


def test_device_defaults_are_the_papers() -> None:
    devices = Devices()
    assert len(devices) == devices.count == 20
    assert devices.samples.dtype == np.int64
    np.testing.assert_array_equal(devices.samples, [3000] * 20)
    np.testing.assert_array_equal(devices.seconds_per_sample, [0.002] * 20)
    np.testing.assert_array_equal(devices.samples_per_second, [4000.0] * 20)
    np.testing.assert_allclose(devices.power_w_per_hz, [10**0.7 * 1e-9] * 20, rtol=1e-14)


def test_devices_take_their_number_from_the_lists() -> None:
    devices = Devices(samples=[10, 20, 30], power_w_per_hz=np.array([1e-9, 2e-9, 3e-9]))
    assert len(devices) == 3
    np.testing.assert_array_equal(devices.samples, [10, 20, 30])
    np.testing.assert_array_equal(devices.seconds_per_sample, [0.002] * 3)
    assert len(Devices(7)) == 7
    assert len(Devices(samples=[5.0])) == 1
    assert len(replace(devices, samples=np.array([1, 2, 3]))) == 3


def test_device_arrays_are_read_only_copies() -> None:
    mine = np.array([1.0, 2.0])
    devices = Devices(samples=mine)
    mine[0] = 9
    assert devices.samples[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        devices.power_w_per_hz[0] = 1.0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(devices)).samples, [1, 2])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"count": 0}, "count is 0; give a whole number of at least 1"),
        ({"count": 2.0}, "count is 2.0; give a whole number of at least 1"),
        ({"samples": []}, "the length of samples is 0; a cell needs at least one device"),
        ({"samples": 0}, "samples is 0; give a finite number of at least 1"),
        ({"samples": [5, 5, 2.5]}, "samples[2] is 2.5; give a whole number up to 2^53"),
        ({"samples": [5, 2**60]}, "samples[1] is 1.15292150460685e+18; give a whole number up to 2^53"),
        ({"samples": "many"}, "samples is 'many'; give one number or a list of numbers"),
        ({"samples": [[1, 2], [3]]}, "samples is [[1, 2], [3]]; give one number or a list of numbers"),
        ({"samples": [[1, 2]]}, "samples is [[1, 2]]; give one number or a list of numbers"),
        (
            {"samples": [1] * 3, "power_w_per_hz": [1e-9] * 4},
            "the length of samples is 3 but the length of power_w_per_hz",
        ),
        ({"count": 20, "samples": [1]}, "count is 20 but the length of samples is 1; give one number for all"),
        ({"seconds_per_sample": [0.0, -1e-3]}, "seconds_per_sample[1] is -0.001; give a finite number of at least 0"),
        ({"samples_per_second": [1, 0, -1]}, "samples_per_second[1] is 0; give a finite number above 0"),
        ({"power_w_per_hz": float("nan")}, "power_w_per_hz is nan; give a finite number above 0"),
        ({"power_w_per_hz": [1.0, float("inf")]}, "power_w_per_hz[1] is inf; give a finite number above 0"),
        ({"seconds_per_sample": [1, 1e308]}, "the expected compute time of device 1 is infinite; lower its samples"),
    ],
)
def test_bad_devices_get_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        Devices(**arguments)
