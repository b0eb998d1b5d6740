import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from fedcell.errors import InputError
from fedcell.rng import stream
from fedcell.world import Cell, Conditions, DayNight, Devices, RandomWaypoint, Static, World, mean_upload_s
from fedcell.world.channel import fading_power, shadowing_db
from fedcell.world.device import draw_compute_s, expected_compute_s


def same(one: Conditions, other: Conditions) -> bool:
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Conditions))


def test_conditions_hang_together() -> None:
    world = World()
    conditions = world.conditions(seed=1, round_index=4)
    assert conditions.positions_m.shape == (20, 2)
    np.testing.assert_allclose(conditions.distance_m, np.linalg.norm(conditions.positions_m, axis=1))
    snr_db = 7 + 114 - 128.1 - 37.6 * np.log10(conditions.distance_m / 1000)
    np.testing.assert_allclose(10 * np.log10(conditions.snr), snr_db, rtol=1e-9)
    np.testing.assert_allclose(conditions.spectral_efficiency, np.log2(1 + conditions.snr))
    np.testing.assert_allclose(conditions.upload_s, 1_628_480 / (3e6 * np.log2(1 + conditions.snr)))
    np.testing.assert_array_equal(conditions.expected_compute_s, expected_compute_s(world.devices))
    assert (conditions.compute_s >= 6.0).all()


@pytest.mark.parametrize("fading", ["none", "rayleigh", "rician"])
def test_one_seed_is_one_world_and_rounds_differ(fading: Any) -> None:
    world = World(Cell(fading=fading, shadowing_db=6.0))
    first = world.conditions(5, 2)
    assert same(first, World(Cell(fading=fading, shadowing_db=6.0)).conditions(5, 2, clock_s=99.0))
    for other in (world.conditions(5, 3), world.conditions(6, 2)):
        for name in ("positions_m", "snr", "upload_s", "compute_s"):
            assert not np.isclose(getattr(first, name), getattr(other, name)).any()


def test_a_standing_device_meets_new_fading_and_compute_times_but_the_same_shadow() -> None:
    world = World(Cell(shadowing_db=8.0), mobility=Static())
    one, other = world.conditions(1, 0), world.conditions(1, 1)
    np.testing.assert_array_equal(one.upload_s, other.upload_s)
    assert not np.isclose(one.compute_s, other.compute_s).any()
    faded = replace(world, cell=Cell(shadowing_db=8.0, fading="rayleigh"))
    assert not np.isclose(faded.conditions(1, 0).snr, faded.conditions(1, 1).snr).any()


def test_each_effect_has_its_own_stream() -> None:
    plain = World().conditions(3, 7)
    shadowed = World(Cell(shadowing_db=8.0)).conditions(3, 7)
    faded = World(Cell(fading="rayleigh")).conditions(3, 7)
    for other in (shadowed, faded):
        np.testing.assert_array_equal(plain.positions_m, other.positions_m)
        np.testing.assert_array_equal(plain.compute_s, other.compute_s)
    np.testing.assert_array_equal(plain.compute_s, draw_compute_s(Devices(), stream(3, "compute", 7)))
    loss_db = shadowing_db(Cell(shadowing_db=8.0), plain.positions_m, 3)
    np.testing.assert_allclose(10 * np.log10(plain.snr / shadowed.snr), loss_db, rtol=1e-9)
    power = fading_power(Cell(fading="rayleigh"), 20, stream(3, "fading", 7))
    np.testing.assert_allclose(faded.snr / plain.snr, power, rtol=1e-12)


def test_a_walker_meets_a_correlated_shadow() -> None:
    cell = Cell(shadowing_db=8.0, shadowing_distance_m=50.0, path_loss_exponent=1e-12)
    world = World(cell, Devices(2000), RandomWaypoint((1.0, 1.0), (0.0, 0.0)))
    db = [10 * np.log10(world.conditions(4, 0, clock_s).snr) for clock_s in (0.0, 10.0, 1000.0)]
    assert np.corrcoef(db[0], db[1])[0, 1] == pytest.approx(np.exp(-10 / 50), abs=0.08)
    assert abs(np.corrcoef(db[0], db[2])[0, 1]) < 0.15


@pytest.mark.parametrize("fading", ["none", "rayleigh"])
def test_more_devices_leave_the_first_ones_as_they_were(fading: Any) -> None:
    cell = Cell(fading=fading, shadowing_db=4.0)
    few, many = (World(cell, Devices(n), availability=DayNight()).conditions(2, 1) for n in (5, 40))
    for field in fields(Conditions):
        if field.name != "available":
            np.testing.assert_allclose(getattr(few, field.name), getattr(many, field.name)[:5], rtol=1e-11)


def test_unlike_devices() -> None:
    power = np.array([1e-9, 2e-9, 4e-9])
    devices = Devices(samples=[10, 20, 40], seconds_per_sample=[1, 2, 3], samples_per_second=1e12, power_w_per_hz=power)
    unlike = World(devices=devices).conditions(1)
    like = World(devices=Devices(3, power_w_per_hz=1e-9)).conditions(1)
    np.testing.assert_allclose(unlike.snr / like.snr, [1, 2, 4])
    np.testing.assert_allclose(unlike.compute_s, [10, 40, 120], rtol=1e-9)


def test_mean_of_many_rounds_is_the_mean_upload_time() -> None:
    world = World(Cell(radius_m=1400.0))
    upload_s = np.concatenate([world.conditions(8, index).upload_s for index in range(2000)])
    expected = mean_upload_s(world.cell, float(world.devices.power_w_per_hz[0]))
    assert abs(upload_s.mean() - expected) < 4 * upload_s.std() / np.sqrt(len(upload_s))


def test_one_device_and_a_hundred_thousand() -> None:
    for count in (1, 100_000):
        conditions = World(devices=Devices(count)).conditions(1)
        assert conditions.upload_s.shape == (count,)
        assert np.isfinite(conditions.upload_s).all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"seed": -1}, "seed is -1; give a nonnegative integer"),
        ({"seed": 1, "round_index": -1}, "round_index is -1; give a whole number of at least 0"),
        ({"seed": 1, "clock_s": float("nan")}, "clock_s is nan; give a finite number of at least 0"),
        ({"seed": 1, "clock_s": -2.0}, "clock_s is -2.0; give a finite number of at least 0"),
    ],
)
def test_bad_arguments_get_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        World().conditions(**arguments)


def test_a_device_out_of_reach_is_named() -> None:
    world = World(devices=Devices(power_w_per_hz=[1e-9, 5e-324, 1e-9]))
    with pytest.raises(InputError, match="upload_s of device 1 is inf at a rate of"):
        world.conditions(1)


def test_a_total_power_is_spread_over_the_band_of_the_cell() -> None:
    narrow = World(Cell(bandwidth_hz=1e6), Devices(3, power_dbm=20.0))
    np.testing.assert_allclose(narrow.devices.power_w_per_hz, 0.1 / 1e6)
    wide = World(Cell(bandwidth_hz=4e6), Devices(3, power_dbm=20.0))
    np.testing.assert_allclose(narrow.conditions(seed=1).snr, 4.0 * wide.conditions(seed=1).snr)
