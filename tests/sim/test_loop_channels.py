"""Runs in cells with other channels and rates than the paper's."""

from pathlib import Path

import numpy as np
import pytest

import fedcell as fc
from fedcell.runs.race import race_policies
from fedcell.world import write_trace

SMALL = {"task.hidden": [4], "task.partition": "iid", "rounds": 3}


def spec_of(**changes: object) -> fc.Spec:
    return fc.Spec(rounds=3).changed(SMALL | {name.replace("__", "."): value for name, value in changes.items()})


@pytest.mark.parametrize("policy", race_policies())
def test_who_has_no_rate_is_not_scheduled(policy: str) -> None:
    spec = spec_of(policy=policy, cell__radius_m=1400.0, cell__rate="mcs64", devices__count=12)
    missed = 0
    clock_s = 0.0 if policy != "diverse" else None
    for r, record in enumerate(fc.simulate(spec)):
        start_s = record.clock_s - record.round_s if clock_s is None else clock_s
        conditions = spec.world([3000] * 12, 100).conditions(spec.seed, r, start_s)
        assert conditions.available is not None
        assert conditions.available[record.plan.devices].all()
        assert record.round_s < np.inf
        missed += int((~conditions.available).sum())
        clock_s = record.clock_s if clock_s is not None else None
    assert missed > 0


@pytest.mark.parametrize("channel", ["uma", "umi:carrier_hz=28e9", "rma:los=never"])
def test_policies_of_one_seed_meet_the_same_corners(channel: str) -> None:
    base = spec_of(cell__channel=channel, cell__radius_m=300.0, devices__mobility="static", devices__count=6)
    ends = {policy: list(fc.simulate(base.changed({"policy": policy}))) for policy in ("all", "random:k=2")}
    assert ends["all"][0].round_s != ends["random:k=2"][0].round_s
    world = base.world([3000] * 6, 100)
    np.testing.assert_array_equal(
        world.conditions(0, 1, ends["all"][0].clock_s).upload_s,
        world.conditions(0, 1, ends["random:k=2"][0].clock_s).upload_s,
    )


def test_a_trace_says_who_can_be_reached(tmp_path: Path) -> None:
    # Device 1 has no link before 10 s, and nobody from 20 s to 100 s; a round of both takes longer than 5 s.
    gone = np.nan
    write_trace(
        tmp_path / "links.csv", [0.0, 10.0, 20.0, 100.0], [[10.0, gone], [10.0, 10.0], [gone, gone], [10.0, 10.0]]
    )
    spec = spec_of(cell__channel=f"trace:{tmp_path / 'links.csv'}", devices__count=2, policy="all", rounds=6)
    plans = [(record.clock_s - record.round_s, record.plan.devices.tolist()) for record in fc.simulate(spec)]
    for began_s, devices in plans:
        expected = [0] if began_s < 10 else [0, 1] if began_s < 20 or began_s >= 100 else []
        assert devices == expected
    assert {tuple(devices) for _, devices in plans} == {(0,), (0, 1), ()}


def test_where_nobody_ever_has_a_rate_the_clock_goes_on() -> None:
    spec = spec_of(cell__rate="mcs64", devices__power_w_per_hz=1e-15, rounds=None, budget_s=200.0)
    records = list(fc.simulate(spec))
    assert [record.clock_s for record in records] == [60.0, 120.0, 180.0]
    assert all(record.plan.devices.size == 0 for record in records)
