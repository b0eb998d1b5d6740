"""Specs that can be run and may not say what is meant, and the total power of a phone."""

import warnings
from pathlib import Path
from typing import Any

import pytest

import fedcell as fc
from fedcell.schedule.laws import Blocks, Density
from fedcell.sim.spec import parse_spec
from fedcell.sim.spec_warnings import warnings_of
from harness import fedcell

SMALL: dict[str, Any] = {"policy": "all", "rounds": 1, "task": {"hidden": [4], "sizes": [60] * 3}}
THREE = {"count": 3}


def spec_of(**fields: Any) -> fc.Spec:
    return fc.Spec(**SMALL | {"devices": THREE} | fields)


def test_a_total_power_stays_when_the_band_changes() -> None:
    for bandwidth_hz in (1e6, 20e6):
        spec = spec_of(cell={"law": "power", "bandwidth_hz": bandwidth_hz}, devices=THREE | {"power_dbm": 23})
        density = spec.world([1] * 3, 1).devices.power_w_per_hz
        assert density * bandwidth_hz == pytest.approx([10**2.3 * 1e-3] * 3)
    each = spec_of(devices=THREE | {"power_dbm": [10.0, 20.0, 30.0]})
    assert each.world([1] * 3, 1).devices.power_w_per_hz * 3e6 == pytest.approx([0.01, 0.1, 1.0])


def test_the_density_and_the_total_that_it_is_are_the_same_phone() -> None:
    total = spec_of(cell={"law": "power"}, devices=THREE | {"power_dbm": 20.0})
    density = spec_of(cell={"law": "power"}, devices=THREE | {"power_w_per_hz": 0.1 / 3e6})
    assert [record.round_s for record in fc.simulate(total)] == [record.round_s for record in fc.simulate(density)]
    assert total.key() != density.key()


def test_a_total_power_is_written_and_read_back_alone(tmp_path: Path) -> None:
    spec = spec_of(devices=THREE | {"power_dbm": 23.0})
    assert spec.devices.document()["power_w_per_hz"] is None
    assert "power_w_per_hz" not in spec.to_toml()
    (tmp_path / "spec.toml").write_text(spec.to_toml())
    assert fc.load_spec(tmp_path / "spec.toml") == spec
    assert parse_spec(spec.model_dump(), "test") == spec
    swept = spec_of(grid={"devices.power_dbm": [10.0, 23.0]}).runs()
    assert [one.devices.document()["power_dbm"] for one in swept] == [10.0, 23.0]
    back = spec.changed({"devices.power_dbm": None})
    assert (back, back.key()) == (spec_of(), spec_of().key())
    with pytest.raises(fc.InputError, match=r"power_dbm, a device's total power, and power_w_per_hz, its density, are"):
        spec.changed({"devices.power_w_per_hz": 1e-9})
    with pytest.raises(fc.InputError, match=r"devices.power_dbm is 2300; give at most 1000"):
        spec_of(devices=THREE | {"power_dbm": 2300})


def test_sweeping_the_band_sweeps_a_density_under_the_law_power() -> None:
    grid: dict[str, Any] = {"grid": {"cell.bandwidth_hz": [0.36e6, 20e6]}}
    (said,) = warnings_of(spec_of(cell={"law": "power"}, **grid).runs())
    assert "cell.bandwidth_hz varies under the law power" in said
    assert "from 2.6 to 20.0 dBm; give devices.power_dbm to keep it" in said
    assert not warnings_of(spec_of(cell={"law": "power"}, devices=THREE | {"power_dbm": 23.0}, **grid).runs())
    assert not warnings_of(spec_of(**grid).runs())
    assert not warnings_of(spec_of(cell={"law": "power"}).runs())


def test_uploads_that_are_smaller_than_the_models_warn_once_that_nothing_is_quantised(tmp_path: Path) -> None:
    weights = 784 * 4 + 4 + 4 * 10 + 10
    less, enough = (spec_of(cell={"model_bits": 32 * weights - 1}), spec_of(cell={"model_bits": 32 * weights}))
    with pytest.warns(fc.SpecWarning, match=rf"less than 32 bits for each of the model's {weights:,} weights, but not"):
        list(fc.simulate(less))
    with pytest.warns(fc.SpecWarning) as caught:
        fc.run_race(less.changed({}, {"seed": [0, 1, 2]}))
    assert len(caught) == 1
    with fc.Store(tmp_path / "results.db") as store, pytest.warns(fc.SpecWarning) as caught:
        fc.run_sweep(less.changed({}, {"seed": [0, 1]}), store, workers=1)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(fc.simulate(enough))
        list(fc.simulate(less.changed({"task.compression": "quantise:bits=2"})))


@pytest.mark.processes
@pytest.mark.parametrize("command", ["race", "sweep"])
def test_a_command_says_it_in_one_line(tmp_path: Path, command: str) -> None:
    cell = {"model_bits": 1000, "law": "blocks:count=15"}
    (tmp_path / "spec.toml").write_text(spec_of(cell=cell).changed({}, {"seed": [0, 1]}).to_toml())
    options = ["--plot", "none"] if command == "race" else []
    done = fedcell(command, "spec.toml", "-q", *options, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("nothing is quantised") == 1
    assert done.stderr.count("blocks of 200 kHz, not of 180 kHz as in LTE and NR; set the band to 2.7 MHz") == 1
    assert "Warning" not in done.stderr


def test_blocks_have_the_width_of_lte_or_nr_or_it_is_said() -> None:
    assert "blocks of 200 kHz, not of 180 kHz" in Blocks(15).notes(3e6)[0]
    assert "blocks of 400 kHz, not of 360 kHz" in Blocks(51).notes(51 * 400e3)[0]
    for width_hz in (180e3, 360e3, 720e3, 1440e3):
        assert Blocks(51).notes(51 * width_hz) == []
    assert Density().notes(3e6) == []
