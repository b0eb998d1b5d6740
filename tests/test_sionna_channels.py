"""Path gains as Sionna gives them. Sionna itself is not installed for the tests; where it is, it runs."""

import doctest
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcell.errors import InputError
from fedcell.types import Floats
from fedcell.world import Cell, Devices, RMa, SnrTrace, UMa, UMi, World, write_trace
from fedcell.world.tr38901 import Outdoor38901

SOURCE = Path(__file__).parents[1] / "examples" / "sionna_channels.py"
_loaded = importlib.util.spec_from_file_location("sionna_channels", SOURCE)
assert _loaded is not None
assert _loaded.loader is not None
sionna_channels: Any = importlib.util.module_from_spec(_loaded)
_loaded.loader.exec_module(sionna_channels)
gains_to_snr_db, sample_snr_db = sionna_channels.gains_to_snr_db, sionna_channels.sample_snr_db
sionna_model = sionna_channels.sionna_model
NO_SIONNA = importlib.util.find_spec("sionna") is None


def gains(rng: np.random.Generator) -> Any:
    shape = (1, 1, 2, 3, 2, 4, 5)  # batch, base station, antennas, devices, antennas, paths, times
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64) * 1e-5


def test_its_own_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sionna_channels", sionna_channels)
    assert doctest.testmod(sionna_channels) == doctest.TestResults(failed=0, attempted=9)


def test_the_gain_of_a_link_is_the_sum_over_its_paths() -> None:
    a, power = gains(np.random.default_rng(1)), np.array([1e-9, 2e-9, 3e-9])
    found = gains_to_snr_db(a, power, 1e-20)
    assert found.shape == (5, 3)
    for t in range(5):
        for i in range(3):
            gain = (
                sum(abs(complex(a[0, 0, r, i, s, k, t])) ** 2 for r in range(2) for s in range(2) for k in range(4)) / 2
            )
            assert found[t, i] == pytest.approx(10 * np.log10(power[i] / 1e-20 * gain), abs=1e-5)
    np.testing.assert_array_equal(gains_to_snr_db(a[0], power, 1e-20), found)


def test_tensors_are_arrays_too() -> None:
    torch = pytest.importorskip("torch")
    a = gains(np.random.default_rng(2))
    np.testing.assert_array_equal(gains_to_snr_db(torch.tensor(a), 1e-9, 1e-20), gains_to_snr_db(a, 1e-9, 1e-20))


def test_where_no_path_arrives_there_is_no_link(tmp_path: Path) -> None:
    a = gains(np.random.default_rng(3))
    a[:, :, :, 1, :, :, 2] = 0
    asked = []

    def model(times: int, sampling_frequency: float) -> tuple[Any, Any]:
        asked.append((times, sampling_frequency))
        return a, np.zeros((1, 1, 3, 4))

    time_s, snr_db = sample_snr_db(model, 5, 20.0, 1e-9, 1e-20)
    assert asked == [(5, 0.05)]
    write_trace(tmp_path / "links.csv", time_s, snr_db)
    world = World(Cell(channel=SnrTrace(str(tmp_path / "links.csv"))), Devices(3))
    there = world.conditions(1, 0, clock_s=40.0).available
    assert there is not None
    assert there.tolist() == [True, False, True]
    assert world.conditions(1, 0, clock_s=60.0).available is None


@pytest.mark.parametrize("shape", [(2, 1, 1, 3, 1, 4, 5), (1, 2, 1, 3, 1, 4, 5), (3, 4, 5), (1, 1, 1, 0, 1, 4, 5)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    sentence = re.escape(f"the path gains have the shape {shape}; give (1, 1, antennas, devices,")
    with pytest.raises(InputError, match=sentence):
        gains_to_snr_db(np.zeros(shape, complex), 1e-9, 1e-20)


@pytest.mark.skipif(not NO_SIONNA, reason="Sionna is installed")
def test_without_sionna_one_sentence_says_so() -> None:
    with pytest.raises(InputError, match=r"Sionna cannot be imported .*; install it: pip install sionna"):
        sionna_model(UMa(), [[100.0, 0.0]])


@pytest.mark.skipif(NO_SIONNA, reason="Sionna is not installed")
@pytest.mark.parametrize("los", ["always", "never"])
@pytest.mark.parametrize("kind", [UMa, UMi, RMa])
def test_sionnas_rays_carry_our_path_loss(kind: type[Outdoor38901], los: Any) -> None:
    channel = kind(los=los, shadowing=False)
    rng = np.random.default_rng(1)
    distance_m: Floats = np.repeat([50.0, 200.0, 1000.0], 60)
    angle = rng.uniform(0, 2 * np.pi, 180)
    places = np.column_stack((distance_m * np.cos(angle), distance_m * np.sin(angle)))
    _, snr_db = sample_snr_db(sionna_model(channel, places, speed_mps=3.0), 5, 1.0, 1.0, 1.0)
    mean_db = -10 * np.log10((10 ** (snr_db / 10)).mean(axis=0).reshape(3, 60).mean(axis=1))
    np.testing.assert_allclose(mean_db, channel.likely_loss_db(np.array([50.0, 200.0, 1000.0])), atol=0.5)
