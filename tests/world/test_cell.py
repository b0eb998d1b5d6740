import pickle
import re
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcell.errors import InputError
from fedcell.world import Cell, Devices
from fedcell.world.cell import uniform_in_disc


def test_cell_defaults_are_the_papers() -> None:
    cell = Cell()
    assert (cell.radius_m, cell.bandwidth_hz, cell.model_bits) == (1400.0, 3e6, 1_628_480)
    assert cell.noise_w_per_hz == pytest.approx(10**-11.4 * 1e-9, rel=1e-14)
    assert (cell.path_loss_1km_db, cell.path_loss_exponent) == (128.1, 3.76)
    assert (cell.shadowing_db, cell.fading) == (0.0, "none")


def test_a_cell_is_a_frozen_value() -> None:
    assert Cell(radius_m=1400) == replace(Cell(), radius_m=1400.0)
    assert len({Cell(), Cell(), Cell(fading="rayleigh")}) == 2
    with pytest.raises(FrozenInstanceError):
        Cell().radius_m = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("radius_m", 0.0, "radius_m is 0.0; give a finite number above 0"),
        ("radius_m", np.float64(-3.0), "radius_m is -3.0; give a finite number above 0"),
        ("radius_m", 10**400, "0; give a finite number above 0"),
        ("bandwidth_hz", float("nan"), "bandwidth_hz is nan; give a finite number above 0"),
        ("noise_w_per_hz", float("inf"), "noise_w_per_hz is inf; give a finite number above 0"),
        ("path_loss_1km_db", float("-inf"), "path_loss_1km_db is -inf; give a finite number"),
        ("path_loss_exponent", "3.76", "path_loss_exponent is '3.76'; give one number"),
        ("min_distance_m", True, "min_distance_m is True; give one number"),
        ("min_distance_m", 1401.0, "min_distance_m is 1401, more than radius_m, 1400; lower it"),
        ("shadowing_db", -1, "shadowing_db is -1; give a finite number of at least 0"),
        ("shadowing_distance_m", 0, "shadowing_distance_m is 0; give a finite number above 0"),
        ("rician_k", -0.1, "rician_k is -0.1; give a finite number of at least 0"),
        ("model_bits", 0, "model_bits is 0; give a whole number of at least 1"),
        ("model_bits", 1.5, "model_bits is 1.5; give a whole number of at least 1"),
        ("model_bits", 10**400, "0; give a finite number"),
        ("fading", "raleigh", "fading is 'raleigh'; did you mean 'rayleigh'?"),
        ("fading", "xyz", "fading is 'xyz'; choose from none, rayleigh, rician"),
        ("fading", None, "fading is None; "),
    ],
)
def test_a_bad_cell_gets_one_sentence(field: str, value: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        Cell(**{field: value})


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


def test_points_are_uniform_in_the_disc() -> None:
    points = uniform_in_disc(700.0, np.random.default_rng(1).random((20_000, 2)))
    radius, angle = np.hypot(*points.T), np.arctan2(points[:, 1], points[:, 0])
    assert radius.max() <= 700.0 * (1 + 1e-15)
    assert stats.kstest((radius / 700.0) ** 2, "uniform").pvalue > 1e-3
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    # Uniform in the plane means that the squared radius tells nothing of the angle.
    assert abs(np.corrcoef(radius**2, np.cos(angle))[0, 1]) < 0.03
