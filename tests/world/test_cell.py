import re
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcell.errors import InputError
from fedcell.world import Cell
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


def test_points_are_uniform_in_the_disc() -> None:
    points = uniform_in_disc(700.0, np.random.default_rng(1).random((20_000, 2)))
    radius, angle = np.hypot(*points.T), np.arctan2(points[:, 1], points[:, 0])
    assert radius.max() <= 700.0 * (1 + 1e-15)
    assert stats.kstest((radius / 700.0) ** 2, "uniform").pvalue > 1e-3
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    # Uniform in the plane means that the squared radius tells nothing of the angle.
    assert abs(np.corrcoef(radius**2, np.cos(angle))[0, 1]) < 0.03
