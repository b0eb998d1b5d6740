"""Link laws in Flower: what the radios make of reports, what nodes are told, and what is learnt of unknown lines."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

import fedcell as fc
import fedcell.flower
from fedcell.errors import InputError
from fedcell.flower.client import Report
from fedcell.flower.radio import CellRadio, DedicatedRadio, Device, Grant, SimulatedRadio, radio_of
from fedcell.flower.round import _units
from fedcell.protocol import Knowledge
from fedcell.schedule.laws import Law
from fedcell.schedule.plan import Links, Plan, Timing
from fedcell.world import Devices, World

NAN = math.nan
REPORTS = (Report(snr_db=10.0), Report(rate_bps=3e6), Report(upload_s=0.5), Report())
DEVICES = [Device(str(i), report) for i, report in enumerate(REPORTS)]
CELL = fc.Cell(model_bits=3_000_000)


def look(radio: Any) -> Links:
    found: Links = radio.look(DEVICES, round_index=0, clock_s=0.0)
    return found


def test_power_has_the_snr_that_is_reported_or_that_the_rate_tells() -> None:
    law = look(CellRadio(CELL, law=fc.Power())).law
    assert isinstance(law, fc.Power)
    # 10 dB; 1 bit/s/Hz, so 2^1 - 1; 2 bit/s/Hz, so 2^2 - 1; and the median of the three.
    np.testing.assert_allclose(np.asarray(law.snr), [10.0, 1.0, 3.0, 3.0], rtol=1e-12)
    silent = CellRadio(CELL, law=fc.Power()).look([DEVICES[3]], 0, 0.0).law
    assert np.asarray(silent.snr).tolist() == [1.0]  # type: ignore[attr-defined]


def test_laws_of_reports_are_bound_to_the_size_of_the_model() -> None:
    assert look(CellRadio(CELL)).law == fc.Density()
    assert look(CellRadio(CELL, law=fc.Blocks(15))).law == fc.Blocks(15)
    assert look(CellRadio(CELL, law=fc.Ingress(1.5e6))).law == fc.Ingress(pipe_s=2.0)
    lines = look(DedicatedRadio(3_000_000, law=fc.Ingress(6e6)))
    assert lines.law == fc.Ingress(pipe_s=0.5)
    np.testing.assert_array_equal(lines.upload_s, [NAN, 1.0, 0.5, NAN])


def test_what_scheduled_is_given_becomes_a_radio() -> None:
    assert radio_of(None, None, 8) == CellRadio(replace(fc.Cell(), model_bits=8))
    assert radio_of(None, fc.Blocks(3), 8) == CellRadio(replace(fc.Cell(), model_bits=8), fc.Blocks(3))
    assert radio_of(None, fc.Ingress(1e6), 8) == DedicatedRadio(8, fc.Ingress(1e6))
    assert radio_of(None, fc.Dedicated(), 8) == radio_of("dedicated", None, 8) == DedicatedRadio(8)
    assert radio_of(CELL, fc.Dedicated(), 8) == CellRadio(replace(CELL, model_bits=8), fc.Dedicated())
    with pytest.raises(InputError, match="law is 'power', which holds for Shannon's rate"):
        CellRadio(replace(CELL, rate=fc.world.RATES.parse("mcs64")), fc.Power())
    with pytest.raises(InputError, match="unknown law 'blocs'"):
        SimulatedRadio(World(devices=Devices(count=2)), seed=0, law="blocs")


def test_nodes_are_told_of_whole_blocks() -> None:
    assert _units(fc.Blocks(15), 4 / 15) == {"fedcell-blocks": 4}
    assert _units(fc.Density(), 0.5) == _units(fc.Dedicated(), 1.0) == {}


@pytest.mark.parametrize(
    ("law", "learnt_s"),
    [
        (fc.Density(), 0.8),
        (fc.Blocks(5), 0.8),
        (fc.Dedicated(), 0.8),  # which has a share of 1 outside this test
        (fc.Power(np.array([3.0])), 4.0 * 0.2 * math.log(1 + 3.0 / 0.2) / math.log(1 + 3.0)),
        (fc.Ingress(pipe_s=0.1), 4.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_unknown_line_is_learnt_through_the_law(law: Law, learnt_s: float) -> None:
    """Four seconds with a fifth of the band; the law's own time for what was learnt is again those four seconds."""
    nothing = Links(np.array([NAN]), np.array([NAN]), law)
    knowledge = Knowledge.empty(1)
    view = knowledge.view(nothing, 0)
    plan = Plan(np.array([0]), np.array([0.2]), 5.0)
    after = knowledge.with_round(view, plan, nothing, Timing(np.array([1.0]), np.array([5.0])), clock_s=5.0)
    upload_s, _ = after.known(nothing, np.arange(1))
    np.testing.assert_allclose(upload_s, [learnt_s], rtol=1e-12)
    np.testing.assert_allclose(law.upload_s(upload_s, plan.shares), [4.0], rtol=1e-12)


def test_a_grant_is_for_the_same_work_and_size_as_links_unless_it_says_otherwise() -> None:
    usual = {one.name: one.default for one in fields(Grant)}
    links = {one.name: one.default for one in fields(Links)}
    assert all(usual[name] == links[name] for name in ("epochs", "weights", "tensors", "bits", "overhead_bits"))
    assert links["tensors"] == 1


def test_a_simulated_radio_is_shown_by_its_settings() -> None:
    radio = SimulatedRadio(World(devices=Devices(count=4)), seed=3)
    assert (radio.knowledge, radio.law, radio.deadlines, radio.real_time) == ("perfect", "density", False, False)
    look(radio)
    assert "_now" not in repr(radio)
    usual = {one.name: one.default for one in fields(Grant)}
    assert (usual["epochs"], usual["tensors"], usual["overhead_bits"], usual["answers"]) == (1.0, 1, 0.0, False)


@pytest.mark.parametrize("name", ["4", "-1", "x", "\u0661", ""])
def test_a_device_of_a_simulated_cell_has_a_number(name: str) -> None:
    radio = SimulatedRadio(World(devices=Devices(count=4)), seed=3)
    with pytest.raises(InputError, match="in a simulated cell of 4 devices, give each node a partition-id from 0 to 3"):
        radio.look([Device(name, Report())], 0, 0.0)


def test_a_simulated_round_takes_what_the_plan_does_under_the_true_conditions() -> None:
    world = World(devices=Devices(count=4))
    radio, there = SimulatedRadio(world, seed=3, knowledge="expected"), [Device(n, Report()) for n in ("3", "1")]
    seen = radio.look(there, 2, 5.0)
    conditions = world.conditions(3, 2, 5.0)
    np.testing.assert_array_equal(seen.upload_s, conditions.upload_s[[3, 1]])
    np.testing.assert_array_equal(seen.compute_s, conditions.expected_compute_s[[3, 1]])
    plan = Plan(np.arange(2), np.array([0.25, 0.75]), 1.0)
    timing = radio.measure(Grant(2, there, plan, np.ones(2)))
    assert timing is not None
    np.testing.assert_allclose(timing.began_s, conditions.compute_s[[3, 1]])
    uploads = conditions.upload_s[[3, 1]] / plan.shares
    np.testing.assert_allclose(timing.finish_s, conditions.compute_s[[3, 1]] + uploads)
    half = Plan(plan.devices, plan.shares, 1.0, epochs=np.full(2, 0.5))
    halved = radio.measure(Grant(2, there, half, np.ones(2)))
    assert halved is not None
    np.testing.assert_allclose(halved.began_s, 0.5 * conditions.compute_s[[3, 1]])


def test_the_former_name_of_links_still_works() -> None:
    with pytest.warns(DeprecationWarning, match=r"fedcell\.flower\.Look is called Links; write that"):
        assert getattr(fedcell.flower, "Look") is Links  # noqa: B009
