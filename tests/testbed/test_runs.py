"""What is emulated: specs as they are scaled, what is refused, and faults."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcell.errors import InputError
from fedcell.sim.loop import simulate
from fedcell.testbed.runs import Fault, build_runs, on_the_wire, parse_fault


def test_faults_are_read() -> None:
    assert parse_fault("cut:device=2,round=3", 4) == Fault("cut", 2, 3)
    assert parse_fault("kill: round=1, device=0", 4) == Fault("kill", 0, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ct:device=1,round=1", "did you mean 'cut'"),
        ("cut", "fault 'cut' needs device and round; write cut:device=...,round=..."),
        ("cut:device=1", "fault 'cut' needs round; write cut:device=...,round=..."),
        ("cut:device=one,round=1", "device of fault 'cut' is 'one'; give a whole number"),
        ("cut:kind=kill,device=1,round=1", "fault 'cut' has no setting 'kind'; choose from device, round"),
        ("cut:device=1,round=-1", "a round of at least 1"),
        ("cut:device=-1,round=1", "give a device from 0 to 3"),
        ("cut:device=4,round=1", "give a device from 0 to 3"),
        ("cut:device=1,round=0", "a round of at least 1"),
    ],
)
def test_a_bad_fault_gets_one_sentence(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_fault(text, 4)


def test_runs_are_every_policy_with_every_seed() -> None:
    runs = build_runs(policy="greedy", compare=["equal", "random:k=2"], seeds=2, seed=3, devices=6)
    assert [(run.policy, run.seed) for run in runs] == [
        ("greedy", 3),
        ("greedy:sharing=equal", 3),
        ("random:k=2", 3),
        ("greedy", 4),
        ("greedy:sharing=equal", 4),
        ("random:k=2", 4),
    ]
    assert runs[0].task.sizes == [3000] * 6


@pytest.mark.parametrize("law", ["density", "blocks:count=9", "dedicated"])
def test_scaling_keeps_the_plans(law: str) -> None:
    spec = build_runs(rounds=3)[0].changed({"cell.law": law})
    slow, fast = (list(simulate(on_the_wire(spec, scale), threads=1)) for scale in (1.0, 0.1))
    for one, other in zip(slow, fast, strict=True):
        assert np.array_equal(one.plan.devices, other.plan.devices)
        assert np.allclose(one.plan.shares, other.plan.shares)
        assert other.round_s == pytest.approx(0.1 * one.round_s)


def test_a_target_replaces_the_rounds_and_a_grid_is_refused(tmp_path: Path) -> None:
    [run] = build_runs(target_accuracy=0.8)
    assert (run.rounds, run.target_accuracy) == (1000, 0.8)
    assert build_runs(target_accuracy=0.8, rounds=7)[0].rounds == 7
    (tmp_path / "grid.toml").write_text("rounds = 3\n[grid]\nseed = [1, 2]\n")
    with pytest.raises(InputError, match="has a grid"):
        build_runs(tmp_path / "grid.toml")
    with pytest.raises(InputError, match="--seeds is 0"):
        build_runs(seeds=0)


@pytest.mark.parametrize(
    ("changes", "scale", "said"),
    [
        ({}, 0.001, "scale is 0.001"),
        ({"devices.failure": 0.1}, 1.0, "failure is not emulated"),
        ({"policy": "diverse", "profiles": "updates"}, 1.0, "profiles = 'updates' is not emulated"),
        ({"devices.mobility": "waypoint"}, 0.5, "only with a scale of 1"),
        ({"cell.model_bits": 1000}, 1.0, "model's actual size"),
        ({"cell.law": "power"}, 1.0, "cell.law is 'power', which is not emulated; use density, blocks or dedicated"),
        ({"cell.law": "ingress:1e6"}, 1.0, "cell.law is 'ingress:bits_per_s=1000000', which is not emulated"),
        ({"devices.availability": "daynight"}, 1.0, "availability is not emulated"),
        ({"slack": 2.0}, 1.0, "give it as --slack"),
        ({"policy": "twins.asks:Asks"}, 1.0, "Asks asks devices before it decides, which is not emulated"),
        ({"task.server": "adam"}, 1.0, "server optimizers are not emulated"),
    ],
)
def test_what_cannot_be_emulated_is_refused(changes: dict[str, Any], scale: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        on_the_wire(build_runs()[0].changed(changes), scale)
