"""Runs with compressed uploads: times, bytes, what arrives, and residuals that are part of a run's state."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import simulation_of
from fedcell.learn.compression import COMPRESSIONS, Residuals, fed_back
from fedcell.quantisation import restore, round_update
from fedcell.schedule.plan import Links
from fedcell.sim.loop import Simulation
from fedcell.sim.state import State

LINES = ("quantise:bits=8", "quantise:bits=2", "topk:part=0.05", "sign")


def run_of(compression: str, policy: str = "random:k=3", **fields: Any) -> Simulation:
    task = {"sizes": [60, 61, 62, 63, 64, 65], "compression": compression}
    return simulation_of(policy, **{"rounds": 4, "devices": {"count": 6}, "task": task} | fields)


def played(run: Simulation) -> tuple[list[fc.RoundRecord], list[State]]:
    records, states = [], [run.start()]
    while (one := run.step(states[-1])) is not None:
        records.append(one[0])
        states.append(one[1])
    return records, states


@pytest.mark.parametrize("law", ["density", "blocks:count=20", "power", "dedicated", "ingress:bits_per_s=3e4"])
@pytest.mark.parametrize("line", LINES)
def test_uploads_take_as_long_as_what_is_sent(line: str, law: str) -> None:
    run, plain = run_of(line, cell={"law": law}), run_of("none", cell={"law": law})
    (record, *_), _ = played(run)
    P, tensors = run.task.engine.parameters, 4
    part = COMPRESSIONS.parse(line).upload_bits(P, tensors) / (32 * P)
    conditions = plain.world.conditions(0, 0, 0.0)
    links = plain.true_links(conditions)
    scaled = Links(part * links.upload_s, links.compute_s, links.law.scaled(np.full(6, part)))
    np.testing.assert_allclose(record.clock_s, record.plan.timing(scaled).finish_s.max(), rtol=1e-12)
    np.testing.assert_allclose(record.plan.round_s, record.clock_s, rtol=1e-9)
    assert record.sent_bytes == 3 * np.ceil(part * 32 * P / 8)
    assert record.bits == pytest.approx(COMPRESSIONS.parse(line).bits if "quantise" in line else 32 * part)
    assert record.epochs == 1.0


def test_rounded_models_are_what_arrives() -> None:
    run, plain = run_of("quantise:bits=4"), run_of("none")
    (record, *_), (before, after, *_) = played(run)
    engine, devices = run.task.engine, record.plan.devices
    trained = engine.train(plain.jobs(before, devices))
    arrived = [
        before.model
        + restore(*round_update(model - before.model, engine.tensors, 4, key=(0, 0, i)), engine.tensors, bits=4)
        for i, model in zip(devices.tolist(), trained, strict=True)
    ]
    np.testing.assert_array_equal(after.model, np.mean(arrived, axis=0, dtype=np.float32))


@pytest.mark.parametrize("line", ["topk:part=0.05", "sign"])
def test_residuals_are_a_runs_state_and_wait_for_their_device(line: str) -> None:
    run = run_of(line, devices={"count": 6, "failure": 0.2}, rounds=6)
    records, states = played(run)
    plain, waited = run_of("none"), 0
    kept: Residuals = {}
    for record, before, after in zip(records, states, states[1:], strict=False):
        devices, engine = record.delivered, run.task.engine
        waited += len(kept.keys() - set(devices.tolist()))
        updates = engine.update(plain.jobs(before, devices))
        found, kept = fed_back(run.compression, updates, before.model, devices, kept, engine.tensors, sums=False)
        np.testing.assert_array_equal(after.model, found.mean())
        assert kept.keys() == after.residuals.keys()
        assert all(np.array_equal(kept[i], after.residuals[i]) for i in kept)
    assert waited > 3
    state = State.from_bytes(states[3].to_bytes())
    for record, expected in zip(records[3:], states[4:], strict=True):
        again = run.step(state)
        assert again is not None
        assert (again[0].accuracy, again[0].clock_s) == (record.accuracy, record.clock_s)
        state = State.from_bytes(again[1].to_bytes())
        assert np.array_equal(state.model, expected.model)


@dataclass(frozen=True)
class Decides(fc.Policy):
    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> Any:
        return [1, 3]

    def upload_bits(self, view: fc.RoundView, devices: Any) -> Any:
        return [2.0, 32.0]


def test_a_policy_may_decide_other_bits_than_the_tasks() -> None:
    run, plain = (replace(run_of(line, rounds=1), policy=Decides()) for line in ("quantise:bits=8", "none"))
    (record,), states = played(run)
    (other,), others = played(plain)
    assert record.clock_s == pytest.approx(other.clock_s, rel=1e-9)
    assert (record.bits, record.sent_bytes) == (other.bits, other.sent_bytes) == (17.0, record.sent_bytes)
    P = run.task.engine.parameters
    assert record.sent_bytes == np.ceil((64 + 128 + 2 * P) / 8) + 4 * P
    assert np.array_equal(states[-1].model, others[-1].model)
    for line in ("topk", "sign"):
        refused = replace(run_of(line), policy=Decides())
        with pytest.raises(fc.InputError, match=r"task\.compression is topk or sign nobody decides the bits"):
            played(refused)


def test_devices_that_trained_for_their_answers_are_compressed_once() -> None:
    asked = run_of("quantise:bits=4", "twins.asks:Asks:about=norm,d=5,k=2", rounds=1)
    (record,), (before, after) = played(asked)
    arrived = asked.task.engine.train(asked.jobs(before, record.plan.devices))
    np.testing.assert_array_equal(after.model, np.mean(arrived, axis=0, dtype=np.float32))


def test_nobody_there_sends_nothing() -> None:
    records, _ = played(run_of("none", devices={"count": 6, "availability": "daynight:there=0.1,day_s=60,spread=0"}))
    assert records[0].plan.devices.size == 0
    assert [record.sent_bytes > 0 for record in records] == [record.delivered.size > 0 for record in records]


def test_keys_know_the_compression_however_it_is_written() -> None:
    def key(line: Any) -> str:
        return fc.Spec(task=fc.TaskSpec(compression=line)).key()

    assert key("none") == fc.Spec().key()
    assert key("quantise") == key("quantise:bits=8") == key(COMPRESSIONS.parse("quantise")) == key("quantise: bits=8")
    assert len({key(line) for line in ("none", *LINES)}) == 5
    with pytest.raises(fc.InputError, match=r"compression: quantise has 1\.0 bits a weight"):
        key("quantise:bits=1")


def test_a_download_and_a_report_stay_whole() -> None:
    run, plain = (run_of(line, cell={"downlink": "unicast"}, profiles="gradients", policy="diverse")
                  for line in ("quantise:bits=2", "none"))  # fmt: skip
    assert run.start().clock_s == pytest.approx(plain.start().clock_s, rel=1e-12)
    np.testing.assert_allclose(run.start().spent_j, plain.start().spent_j, rtol=1e-12)
    there, snr = np.arange(6), np.full(6, 10.0)
    ours, theirs = run.downlink(there, snr), plain.downlink(there, snr)
    assert ours is not None
    assert theirs is not None
    np.testing.assert_array_equal(ours.seconds, theirs.seconds)
