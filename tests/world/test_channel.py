import math
import re

import numpy as np
import pytest
from scipy import stats

from fedcell import units
from fedcell.errors import InputError
from fedcell.rng import stream
from fedcell.types import Floats
from fedcell.world import (
    Cell,
    Mcs64,
    SnrTrace,
    link_snr,
    mean_upload_s,
    outage_possible,
    path_loss_db,
    whole_band_upload_s,
)
from fedcell.world.cell import uniform_in_disc
from fedcell.world.channel import fading_power, shadowing_db
from fedcell.world.rates import spectral_efficiency

POWER = units.dbm_per_mhz(7.0)


def upload_at(cell: Cell, distance_m: Floats, extra_loss_db: Floats | float = 0.0) -> Floats:
    return whole_band_upload_s(
        cell, spectral_efficiency(link_snr(cell, POWER, path_loss_db(cell, distance_m) + extra_loss_db))
    )


def test_path_loss_follows_the_line() -> None:
    loss = path_loss_db(Cell(), np.array([1000.0, 100.0, 10.0, 500.0]))
    np.testing.assert_allclose(loss, [128.1, 90.5, 52.9, 128.1 - 37.6 * math.log10(2)], rtol=1e-14)
    free_space = Cell(path_loss_1km_db=100.0, path_loss_exponent=2.0)
    np.testing.assert_allclose(path_loss_db(free_space, np.array([10.0])), [60.0])


def test_nearer_than_the_minimum_counts_as_the_minimum() -> None:
    loss = path_loss_db(Cell(min_distance_m=10.0), np.array([0.0, 3.0, 10.0, 11.0]))
    np.testing.assert_array_equal(loss[:3], loss[2])
    assert loss[3] > loss[2]


def test_snr_and_upload_time_at_1_km_by_hand() -> None:
    snr = link_snr(Cell(), POWER, np.array([128.1]))
    np.testing.assert_allclose(10 * np.log10(snr), [7 + 114 - 128.1], rtol=1e-12)
    # 10^-0.71 = 0.1949844600; log2(1.1949844600) = 0.2569918570; 1,628,480 / (3e6 * 0.2569918570) = 2.112233
    np.testing.assert_allclose(spectral_efficiency(snr), [math.log(1.19498446) / math.log(2)], rtol=1e-8)
    np.testing.assert_allclose(upload_at(Cell(), np.array([1000.0])), [2.11223], rtol=1e-5)


def test_upload_time_scales_with_bits_and_band() -> None:
    distance = np.array([50.0, 900.0])
    base = upload_at(Cell(), distance)
    np.testing.assert_allclose(upload_at(Cell(bandwidth_hz=6e6), distance), base / 2)
    np.testing.assert_allclose(upload_at(Cell(model_bits=3 * 1_628_480), distance), base * 3)
    assert base[1] > base[0]


def test_tiny_ratios_keep_their_digits() -> None:
    np.testing.assert_allclose(spectral_efficiency(np.array([1e-18, 1.0])), [1e-18 / math.log(2), 1.0], rtol=1e-15)


@pytest.mark.parametrize(
    ("loss_db", "sentence"),
    [
        (1e5, "upload_s of device 1 is inf at a rate of 0 bit/s/Hz; change its distance"),
        (-1e5, "upload_s of device 1 is 0 at a rate of inf bit/s/Hz; change its distance"),
    ],
)
def test_a_rate_beyond_floats_names_the_device(loss_db: float, sentence: str) -> None:
    snr = link_snr(Cell(), POWER, np.array([100.0, loss_db]))
    with pytest.raises(InputError, match=re.escape(sentence)):
        whole_band_upload_s(Cell(), spectral_efficiency(snr))


def test_rayleigh_power_is_exponential() -> None:
    power = fading_power(Cell(fading="rayleigh"), 20_000, np.random.default_rng(2))
    assert stats.kstest(power, "expon").pvalue > 1e-3


@pytest.mark.parametrize("k", [0.5, 4.0, 30.0])
def test_rician_power_is_a_scaled_noncentral_chi_square(k: float) -> None:
    power = fading_power(Cell(fading="rician", rician_k=k), 20_000, np.random.default_rng(3))
    assert stats.kstest(power * 2 * (k + 1), stats.ncx2(df=2, nc=2 * k).cdf).pvalue > 1e-3
    assert abs(power.mean() - 1) < 0.03


def test_rician_goes_from_rayleigh_to_none() -> None:
    rayleigh = fading_power(Cell(fading="rayleigh"), 100, np.random.default_rng(4))
    scattered = fading_power(Cell(fading="rician", rician_k=0.0), 100, np.random.default_rng(4))
    direct = fading_power(Cell(fading="rician", rician_k=1e14), 100, np.random.default_rng(4))
    none = fading_power(Cell(), 100, np.random.default_rng(4))
    np.testing.assert_array_equal(scattered, rayleigh)
    np.testing.assert_allclose(direct, none, rtol=1e-6)
    assert rayleigh.std() > 0.5


def test_shadowing_is_normal_at_a_place() -> None:
    cell = Cell(shadowing_db=8.0)
    place = np.array([[300.0, -40.0]])
    draws = np.array([shadowing_db(cell, place, seed)[0] for seed in range(3000)])
    assert stats.kstest(draws, stats.norm(0, 8.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize("direction", [0.0, 0.7, math.pi / 2])
def test_shadowing_correlation_is_exponential_in_every_direction(direction: float) -> None:
    cell = Cell(shadowing_db=8.0, shadowing_distance_m=50.0)
    lags_m = np.array([0.0, 5.0, 25.0, 50.0, 100.0, 400.0])
    step = np.array([math.cos(direction), math.sin(direction)])
    covariance = np.zeros(len(lags_m))
    seeds = 80
    for seed in range(seeds):
        base = uniform_in_disc(1000.0, np.random.default_rng(seed).random((300, 2)))
        at = [shadowing_db(cell, base + lag * step, seed) for lag in lags_m]
        covariance += np.array([np.mean(at[0] * other) for other in at]) / seeds
    # Standard error: about 0.005 from the waves of 80 seeds, 0.006 from their places.
    np.testing.assert_allclose(covariance / 64.0, np.exp(-lags_m / 50.0), atol=0.04)


def test_shadowing_is_a_function_of_the_place_alone() -> None:
    cell = Cell(shadowing_db=6.0)
    places = uniform_in_disc(1000.0, np.random.default_rng(5).random((700, 2)))
    together = shadowing_db(cell, places, 9)
    alone = np.array([shadowing_db(cell, place[np.newaxis], 9)[0] for place in places[::70]])
    np.testing.assert_allclose(alone, together[::70], rtol=1e-12)
    np.testing.assert_allclose(shadowing_db(Cell(shadowing_db=3.0), places, 9), together / 2)
    assert not np.allclose(shadowing_db(cell, places, 10), together)


@pytest.mark.parametrize("radius_m", [100.0, 1000.0, 1400.0])
@pytest.mark.parametrize("min_distance_m", [1.0, 60.0])
def test_mean_upload_time_equals_the_mean_over_equal_areas(radius_m: float, min_distance_m: float) -> None:
    cell = Cell(radius_m=radius_m, min_distance_m=min_distance_m)
    rings = (np.arange(200_000) + 0.5) / 200_000
    expected = upload_at(cell, radius_m * np.sqrt(rings)).mean()
    assert mean_upload_s(cell, POWER) == pytest.approx(expected, rel=1e-6)


def test_mean_upload_time_when_all_are_equally_far() -> None:
    cell = Cell(radius_m=500.0, min_distance_m=500.0)
    assert mean_upload_s(cell, POWER) == pytest.approx(float(upload_at(cell, np.array([500.0]))[0]), rel=1e-12)


@pytest.mark.parametrize("sigma_db", [0.0, 4.0, 8.0])
def test_mean_upload_time_against_monte_carlo(sigma_db: float) -> None:
    cell = Cell(radius_m=1400.0, shadowing_db=sigma_db)
    rng = np.random.default_rng(6)
    distance = 1400.0 * np.sqrt(rng.random(1_000_000))
    draws = upload_at(cell, distance, sigma_db * rng.standard_normal(len(distance)))
    error = draws.std() / math.sqrt(len(draws))
    assert error < 0.01 * draws.mean()
    assert abs(mean_upload_s(cell, POWER) - draws.mean()) < 4 * error


def test_mean_upload_time_over_the_fields_of_many_seeds() -> None:
    cell = Cell(radius_m=600.0, shadowing_db=4.0)
    means = []
    for seed in range(60):
        places = uniform_in_disc(600.0, stream(seed, "placement").random((300, 2)))
        means.append(upload_at(cell, np.hypot(*places.T), shadowing_db(cell, places, seed)).mean())
    assert abs(np.mean(means) - mean_upload_s(cell, POWER)) < 4 * np.std(means) / math.sqrt(60)


def test_mean_upload_time_says_why_there_is_none() -> None:
    with pytest.raises(InputError, match="fading is 'rayleigh', for which the mean upload time is infinite"):
        mean_upload_s(Cell(fading="rayleigh"), POWER)
    with pytest.raises(InputError, match="fading is 'rician'"):
        mean_upload_s(Cell(fading="rician"), POWER)
    with pytest.raises(InputError, match=re.escape("power_w_per_hz is 0.0; give a finite number above 0")):
        mean_upload_s(Cell(), 0.0)
    with pytest.raises(InputError, match=re.escape("s in a cell of radius_m 1e+300 at power_w_per_hz 5.01187e-09")):
        mean_upload_s(Cell(radius_m=1e300), POWER)


def test_a_device_may_lack_a_rate_below_the_lowest_mcs_or_without_a_link_in_a_file() -> None:
    assert not outage_possible(Cell())
    assert outage_possible(Cell(rate=Mcs64()))
    assert outage_possible(Cell(channel=SnrTrace("links.csv")))
    assert outage_possible(Cell(rate=Mcs64(), channel=SnrTrace("links.csv")))


def test_a_device_without_a_link_uploads_for_ever_and_one_with_a_link_must_not() -> None:
    cell, efficiency = Cell(bandwidth_hz=1e6, model_bits=1_000_000), np.array([1.0, 0.0, 2.0])
    upload_s = whole_band_upload_s(cell, efficiency, np.array([True, False, True]))
    assert upload_s.tolist() == [1.0, math.inf, 0.5]
    with pytest.raises(InputError, match="upload_s of device 1 is inf at a rate of 0"):
        whole_band_upload_s(cell, efficiency, np.array([False, True, True]))
