import re
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcell.errors import InputError
from fedcell.world import Cell, Devices, Mcs64, Shannon, UMa, World
from fedcell.world.cell import PaperChannel, uniform_in_disc


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


def test_points_are_uniform_in_the_disc() -> None:
    points = uniform_in_disc(700.0, np.random.default_rng(1).random((20_000, 2)))
    radius, angle = np.hypot(*points.T), np.arctan2(points[:, 1], points[:, 0])
    assert radius.max() <= 700.0 * (1 + 1e-15)
    assert stats.kstest((radius / 700.0) ** 2, "uniform").pvalue > 1e-3
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    # Uniform in the plane means that the squared radius tells nothing of the angle.
    assert abs(np.corrcoef(radius**2, np.cos(angle))[0, 1]) < 0.03


def test_every_default_is_the_documented_one() -> None:
    cell = Cell()
    assert (cell.min_distance_m, cell.shadowing_distance_m, cell.rician_k, cell.csi_error_db) == (1.0, 50.0, 4.0, 0.0)
    assert (cell.law, cell.downlink, cell.downlink_hz) == ("density", "free", None)
    assert cell.downlink_w_per_hz == pytest.approx(10**3.6 * 1e-3 / 1e6)
    assert (type(cell.channel), type(cell.rate)) == (PaperChannel, Shannon)
    assert PaperChannel.by_place


def test_the_size_of_an_upload_is_the_papers_until_a_task_or_a_user_says_another() -> None:
    assert Cell().given_model_bits is None
    assert Cell(model_bits=None).model_bits == 1_628_480  # type: ignore[arg-type]
    assert Cell(model_bits=1_628_480).given_model_bits == 1_628_480
    assert Cell(min_distance_m=1400.0).min_distance_m == 1400.0  # all devices at the edge


def test_channels_rates_and_laws_are_lines_or_values() -> None:
    assert Cell(channel="uma:carrier_hz=2e9").channel == UMa(carrier_hz=2e9)  # type: ignore[arg-type]
    assert Cell(rate="mcs64").rate == Mcs64()  # type: ignore[arg-type]
    document = Cell(channel=UMa(carrier_hz=2e9), rate=Mcs64()).document()
    assert (document["channel"], document["rate"], document["model_bits"]) == (
        "uma:carrier_hz=2000000000",
        "mcs64",
        None,
    )
    with pytest.raises(InputError, match="unknown channel 'umaa'; did you mean 'uma'"):
        Cell(channel="umaa")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"channel is 5; give a channel, such as fedcell\.UMa\(\)"):
        Cell(channel=5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"rate is 5; give a law from SNR to rate, such as fedcell\.Mcs64\(\)"):
        Cell(rate=5)  # type: ignore[arg-type]


def test_a_channel_of_the_standard_ignores_nothing_that_was_given() -> None:
    for name, value in (("shadowing_db", 4.0), ("path_loss_exponent", 3.0)):
        with pytest.raises(InputError, match=f"{name} is {value:g}, but the channel UMa has its own; leave it at"):
            Cell(channel=UMa(), **{name: value})  # type: ignore[arg-type]
    assert Cell(channel=UMa(), radius_m=UMa().farthest_m).radius_m == 5000.0
    with pytest.raises(InputError, match="radius_m is 5001, but the tables of UMa end at 5000 m"):
        Cell(channel=UMa(), radius_m=5001.0)


def test_who_is_there_and_what_a_server_foresees() -> None:
    conditions = World(Cell(), Devices(4)).conditions(seed=1)
    assert conditions.there.tolist() == [0, 1, 2, 3]
    some = conditions.among(np.array([True, False, True, True]))
    assert some.there.tolist() == [0, 2, 3]
    assert some.among(np.array([False, True, True, True])).there.tolist() == [2, 3]
    assert conditions.foreseen_compute_s("perfect") is conditions.compute_s
    assert conditions.foreseen_compute_s("expected") is conditions.expected_compute_s
    assert np.isnan(conditions.foreseen_compute_s("observed")).tolist() == [True] * 4
