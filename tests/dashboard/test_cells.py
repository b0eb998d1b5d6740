from typing import Literal

import pytest

import fedcell as fc
from fedcell.dashboard.cells import RunWorld, round_document
from fedcell.sim.loop import Simulation


def test_a_round_that_ended_with_devices_late_is_shown_as_it_went() -> None:
    cell, devices = fc.Cell(csi_error_db=6.0, radius_m=1400.0), fc.Devices(availability="daynight:day_s=900")
    run = Simulation.load(fc.Spec(policy="all", rounds=2, slack=1.1, cell=cell, devices=devices))
    run_world, before_s, late = RunWorld(run.spec, run.world, len(run.task.engine.tensors)), 0.0, 0
    for record in fc.simulate(run.spec):
        shown = round_document(run_world, before_s, record, 2, "planned", None)
        rows = shown["devices"]
        assert shown["round_s"] == shown["round_s_planned"] == record.round_s
        assert [row["index"] for row in rows if row["scheduled"]] == record.plan.devices.tolist()
        for row in rows:
            missing = row["scheduled"] and not row["delivered"]
            late += missing
            assert not row["delivered"] or row["finish_s"] <= record.round_s * (1 + 1e-12)
        before_s = record.clock_s
    assert late > 0
    assert shown["round_s_optimal"] != pytest.approx(shown["round_s_planned"])


@pytest.mark.parametrize("downlink", ["multicast", "unicast"])
def test_devices_begin_when_they_have_the_model(downlink: Literal["multicast", "unicast"]) -> None:
    run = Simulation.load(fc.Spec(policy="random:k=4", rounds=2, cell=fc.Cell(downlink=downlink, downlink_hz=2e4)))
    run_world, before_s = RunWorld(run.spec, run.world, len(run.task.engine.tensors)), 0.0
    for record in fc.simulate(run.spec):
        shown = round_document(run_world, before_s, record, 2, "planned", None)
        rows = [row for row in shown["devices"] if row["scheduled"]]
        assert record.plan.starts_s is not None
        assert [row["start_s"] for row in rows] == record.plan.starts_s.tolist()
        assert min(row["start_s"] for row in rows) > 0.1
        assert max(row["finish_s"] for row in rows) == pytest.approx(record.round_s)
        assert shown["round_s_equal"] > shown["round_s_optimal"] == pytest.approx(record.round_s)
        before_s = record.clock_s


@pytest.mark.parametrize("compression", ["none", "quantise:bits=4"])
@pytest.mark.parametrize("law", ["density", "power"])
def test_a_round_whose_work_and_bits_were_decided_is_shown_as_it_went(law: str, compression: str) -> None:
    """Not as if everybody trained and sent everything, long after the round had ended."""
    task = fc.TaskSpec(epochs=2, compression=compression)
    run = Simulation.load(fc.Spec(policy="auto", rounds=3, task=task, cell=fc.Cell(radius_m=1400.0, law=law)))
    run_world, before_s = RunWorld(run.spec, run.world, len(run.task.engine.tensors)), 0.0
    for record in fc.simulate(run.spec):
        shown = round_document(run_world, before_s, record, 3, "planned", None)
        rows = [row for row in shown["devices"] if row["scheduled"]]
        assert record.plan.epochs is not None
        assert [row["epochs"] for row in rows] == record.plan.epochs.tolist()
        assert [row["finish_s"] for row in rows] == pytest.approx([record.round_s] * len(rows))
        conditions = run.world.conditions(run.spec.seed, record.round - 1, before_s)
        for row in rows:
            assert row["compute_s"] == pytest.approx(conditions.compute_s[row["index"]] * row["epochs"] / 2)
        assert shown["round_s_equal"] > shown["round_s_optimal"] == pytest.approx(record.round_s)
        before_s = record.clock_s
