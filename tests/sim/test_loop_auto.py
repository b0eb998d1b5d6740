"""Auto in whole runs: it is resumed bit for bit, decides under every law and limit, and reaches what it is for."""

from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.sim import Simulation, State


def spec_of(policy: str = "auto", rounds: int = 4, task: dict[str, Any] | None = None, **fields: Any) -> fc.Spec:
    document: dict[str, Any] = {"policy": policy, "rounds": rounds, "devices": {"count": 8}, "seed": 3} | fields
    document["task"] = {"hidden": [8], "sizes": [120] * 8} | (task or {})
    return fc.Spec(**document)


def played(spec: fc.Spec) -> list[fc.RoundRecord]:
    return list(fc.simulate(spec, threads=1))


def told(records: list[fc.RoundRecord]) -> list[Any]:
    return [(r.clock_s, r.accuracy, r.epochs, r.bits, r.sent_bytes, r.plan.devices.tolist()) for r in records]


def test_a_resumed_run_is_the_same_run() -> None:
    spec = spec_of(rounds=6)
    run = Simulation.load(spec, threads=1)
    state, records = run.start(), []
    while (step := run.step(State.from_bytes(state.to_bytes()))) is not None:
        record, state = step
        records.append(record)
    assert told(records) == told(played(spec))
    assert state.knowledge.learnt.size
    assert np.isfinite(state.knowledge.heard_epochs).any()


def test_what_it_decides_is_done() -> None:
    records = played(spec_of())
    assert all(record.plan.epochs is not None and record.plan.bits is not None for record in records)
    assert {record.bits for record in records} <= {2.0, 3.0, 4.0, 8.0, 32.0}
    assert all(record.epochs < 1.0 for record in records)
    fixed = played(spec_of("auto:epochs=1,bits=32"))
    assert {(record.epochs, record.bits) for record in fixed} == {(1.0, 32.0)}
    assert fixed[-1].clock_s > records[-1].clock_s


def test_the_servers_momentum() -> None:
    """Auto's is that of the aggregator fedavgm, unless the task has a server optimizer of its own."""
    own, by_task = played(spec_of()), played(spec_of("auto:momentum=0", task={"aggregator": "fedavgm:beta=0.5"}))
    assert told(own) == told(by_task)
    assert told(own) != told(played(spec_of("auto:momentum=0")))
    adam = {"aggregator": "fedadam:rate=0.01"}
    assert told(played(spec_of(task=adam))) == told(played(spec_of("auto:momentum=0", task=adam)))


@pytest.mark.parametrize("law", ["blocks:count=6", "power", "dedicated", "ingress:bits_per_s=2e7"])
def test_every_law(law: str) -> None:
    records = played(spec_of(rounds=3, cell={"law": law}))
    assert len(records) == 3
    assert all(record.plan.round_s == pytest.approx(record.round_s) for record in records)


@pytest.mark.parametrize("downlink", ["multicast", "unicast"])
def test_a_downlink(downlink: str) -> None:
    """What a round takes besides training counts: with a downlink devices train for longer."""
    slow = {"bandwidth_hz": 1e5}
    with_it, without = played(spec_of(cell={"downlink": downlink} | slow)), played(spec_of(cell=slow))
    assert with_it[0].epochs > without[0].epochs


@pytest.mark.parametrize(
    "fields",
    [
        {"profiles": "none"},
        {"profiles": "updates"},
        {"profiles": "labels", "task": {"partition": "iid"}},
        {"knowledge": "observed", "slack": 1.1},
        {"devices": {"count": 8, "availability": "daynight"}},
        {"devices": {"count": 8, "battery_j": 3.0}},
        {"devices": {"count": 8, "failure": 0.4}},
        {"task": {"compression": "topk:part=0.01"}},
        {"task": {"compression": "quantise:bits=8"}},
        {"task": {"epochs": 2}},
        {"policy": "auto:max_devices=1"},
        {"policy": "auto:max_joules=2"},
        {"policy": "auto:overcommit=1.5", "knowledge": "observed"},
        {"policy": "auto:who=paper"},
        {"cell": {"rate": "mcs64", "radius_m": 2500.0}},
    ],
    ids=str,
)
def test_wherever_it_runs(fields: dict[str, Any]) -> None:
    records = played(spec_of(**fields))
    assert records
    assert all(np.isfinite(record.loss) for record in records)


def test_residuals_leave_the_bits_to_the_task() -> None:
    records = played(spec_of(task={"compression": "sign"}))
    assert all(record.plan.bits is None and record.plan.epochs is not None for record in records)


def test_it_is_several_times_as_fast_as_the_paper() -> None:
    """One seed of the paper's race; docs/auto.md has thirty."""
    times = {}
    for policy in ("auto", "greedy"):
        spec = fc.Spec(policy=policy, seed=7, budget_s=120.0, target_accuracy=0.7)
        times[policy] = played(spec)[-1].clock_s
    assert times["auto"] < times["greedy"] / 4
