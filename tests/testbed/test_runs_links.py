"""The emulated cell: predicted against measured, and faults. Each test starts Flower's own processes once."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcell.runs.store import Measured, Store
from fedcell.sim.loop import simulate
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec
from fedcell.testbed.wire import upload_bytes
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


FEW = """
from dataclasses import dataclass
import numpy as np
import fedcell as fc

@dataclass(frozen=True)
class Few(fc.Optimal):
    bits: float = 8.0

    def upload_bits(self, view, devices):
        return np.full(devices.size, self.bits)

    def local_epochs(self, view, devices):
        return np.full(devices.size, 0.5)
"""


@pytest.mark.links
@needs_network
def test_rounded_uploads_have_the_planned_bytes_on_the_wire_and_what_arrives_is_learnt_from(tmp_path: Path) -> None:
    (tmp_path / "few.py").write_text(FEW)
    policies = [f"few:Few:bits={bits}" for bits in (32, 8, 2)]
    compare = [option for policy in policies[1:] for option in ("--compare", policy)]
    printed, runs = testbed(tmp_path, "--policy", policies[0], *compare, "--rounds", "3", "--slack", "5")
    said = re.findall(r"(\d+)\s+uploads\s+had\s+([\d.,]+)\s+kB\s+on\s+the\s+wire\s+\(planned:\s+([\d.,]+)", printed)
    assert len(said) == 3
    weights = 50_890
    for (uploads, measured, planned), bits in zip(said, (32, 8, 2), strict=True):
        payload = 4 * weights if bits == 32 else 8 + 4 + bits * weights / 8  # the header, one scale and the levels
        sizes = [float(text.replace(",", "")) * 1000 / int(uploads) for text in (measured, planned)]
        assert sizes[1] == pytest.approx(upload_bytes(int(np.ceil(payload))), abs=51)
        assert sizes[0] == pytest.approx(sizes[1], rel=0.04)
    told = [{bits for record in records for bits in np.asarray(record.plan.bits)} for _, records, _ in runs.values()]
    assert sorted(told, key=max) == [{2.0}, {8.0}, {32.0}]
    for _, records, measured_s in runs.values():
        assert all(record.delivered.size == record.plan.devices.size for record in records)
        assert records[-1].loss < records[0].loss
        assert all(m.measured_s.max() > 0.9 * m.predicted_s.max() for m in measured_s)


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
