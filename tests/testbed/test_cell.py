"""The emulated cell: predicted against measured, and faults. Each test starts Flower's own processes once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcell.errors import InputError
from fedcell.runs.store import Measured, Store
from fedcell.sim.loop import simulate
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec
from fedcell.testbed.runs import build_runs, on_the_wire
from harness import LIMIT_S, Process
from testbed.needs import TESTBED, namespaces, needs_network

# The paper's devices, a few of them; the models of a round weighted by profiles, and half an epoch of training.
CELL = """
policy = "optimal"
devices = { count = 4 }
task = { sizes = [3000, 3000, 3000, 3000], aggregator = "balanced", epochs = 0.5 }
"""
Runs = dict[str, tuple[Spec, list[RoundRecord], list[Measured]]]


def testbed(folder: Path, *arguments: str) -> tuple[str, Runs]:
    """Run the command; what it printed, and by policy what it stored."""
    with Process(*TESTBED, "--store", "results.db", *arguments, cwd=folder) as process:
        done = process.finish(2 * LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert namespaces(f"fedcell-{process.pid}-") == []
    with Store(folder / "results.db", "read") as store:
        return done.stdout, {
            run.policy: (run.spec, store.get(run.key), store.measured(run.key)) for run in store.runs()
        }


testbed.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.links
@needs_network
def test_rounds_take_at_least_what_the_plan_says_and_train_what_the_simulator_does(tmp_path: Path) -> None:
    (tmp_path / "cell.toml").write_text(CELL)
    options = (
        "--rounds",
        "2",
        "--compare",
        "equal",
        "--compare",
        "diverse:max_devices=2",
        "--plot",
        "cell.png",
        "--logs",
        "logs",
    )
    printed, runs = testbed(tmp_path, "cell.toml", *options)
    assert "running on https://" in (tmp_path / "logs" / "superlink.log").read_text()
    total_s = {}
    for policy, (spec, records, measured) in runs.items():
        assert len(records) == len(measured) == 2
        # Nobody was missing, so that the devices trained what the simulator trains, from the same plans.
        simulated = list(simulate(spec, threads=1))
        for real, ideal, m in zip(records, simulated, measured, strict=True):
            assert np.array_equal(real.delivered, ideal.delivered)
            assert np.allclose(real.plan.shares, ideal.plan.shares)
            assert real.accuracy == pytest.approx(ideal.accuracy, abs=0.002)
            assert m.predicted_s.max() == pytest.approx(ideal.round_s)
            # A busy machine may be slower than the plan, never quicker. How well a quiet one keeps it: docs/testbed.md.
            assert real.round_s > 0.95 * m.predicted_s.max()
        assert f"{policy}, seed 0, scale 0.2" in printed
        total_s[policy] = sum(m.predicted_s.max() for m in measured)
    assert total_s["optimal"] < total_s["optimal:sharing=equal"]
    assert (tmp_path / "cell.png").stat().st_size > 10_000


@pytest.mark.links
@needs_network
def test_a_round_with_a_fault_ends_and_says_who_was_missing(tmp_path: Path) -> None:
    faults = ["cut:device=1,round=1", "degrade:device=2,round=2", "kill:device=3,round=3"]
    options = [option for fault in faults for option in ("--fault", fault)]
    # Slow enough that a fault in the middle of an upload comes in time on a busy machine too.
    slow = ("--scale", "0.6", "--slack", "1.5")
    printed, runs = testbed(tmp_path, "--policy", "all", "--rounds", "4", *slow, *options)
    _, records, measured = runs["all"]
    delivered = [set(record.delivered.tolist()) for record in records]
    assert delivered[0] == {0, 2, 3}
    assert np.isnan(measured[0].measured_s[1])
    assert 2 not in delivered[1]
    assert 3 in delivered[1]
    assert 3 not in delivered[2]
    assert 3 not in delivered[3]
    assert all({0} <= names for names in delivered)
    assert records[-1].accuracy > records[0].accuracy
    assert "missing" in printed


def test_a_kill_with_several_runs_is_refused_before_anything_starts(tmp_path: Path, fedcell_here: Any) -> None:
    options = ["--compare", "equal", "--fault", "kill:device=1,round=1", "--store", "results.db", "--logs", "logs"]
    done = fedcell_here("testbed", *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "a killed device is missing in the next run" in done.stderr
    assert list(tmp_path.iterdir()) == []


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
