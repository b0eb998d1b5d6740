"""Flower's simulation engine: the example trains as the simulator says it would, and a strategy's memory is kept."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import fedcell as fc

pytest.importorskip("flwr", reason="Flower is not installed")

from fedcell.cli.flower import write_app
from flower.deployment import Deployment
from flower.runs import APPS, EXAMPLE, assert_as_simulated, rounds_of, run_config
from harness import Process

pytestmark = [  # found, not imported: every worker collects this file
    pytest.mark.flower,
    pytest.mark.skipif(find_spec("ray") is None, reason="Flower's simulation engine is not installed"),
]
RUN_S = 600.0


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("simulation"), simulation=True) as deployment:
        deployment.start_superlink()
        yield deployment


def run_example(engine: Deployment, name: str, values: dict[str, Any]) -> str:
    engine.submit(name, EXAMPLE, run_config(values), "--federation-config", "num-supernodes=20")
    return engine.finish(name, RUN_S)


def test_the_example_trains_as_the_simulator_does_until_the_budget_is_spent_then_until_the_target(
    engine: Deployment,
) -> None:
    """With profiles that travel in reports, balanced weights, and a part of an epoch.

    Node ids are drawn anew for each run: the lots and what was observed must hang on the devices when it is resumed.
    """
    values = {"policy": "random:k=8", "knowledge": "observed", "seed": 1, "budget_s": 45.0}
    values |= {"task.aggregator": "balanced", "task.epochs": 0.5}
    state = {"state": str(engine.folder / "lots")}
    log = run_example(engine, "lots", values | state)
    assert "round 3 would end after the budget of 45 s" in log
    first = (engine.folder / "lots" / "rounds.jsonl").read_bytes()
    assert len(first.splitlines()) == 2

    values |= {"budget_s": 1000.0, "target_accuracy": 0.64}
    log = run_example(engine, "lots-again", values | state)
    expected = list(fc.simulate(fc.Spec().changed(values | {"cell.radius_m": 1400.0})))
    assert len(expected) == 3
    assert_as_simulated(engine.folder / "lots", expected)
    assert (engine.folder / "lots" / "rounds.jsonl").read_bytes().startswith(first)
    assert "resuming after round 2" in log
    assert "stopping: accuracy is" in log


@pytest.fixture(scope="module")
def scripted(engine: Deployment) -> str:
    """The log of one run of the scripted app that is several, one after the other: Ray takes seconds to start."""
    values = {
        "folder": str(engine.folder),
        "starts": "whole:4 parts:2 parts:4 asks:3",
        "strategy": "FedAdam",
        "policy": "random:k=3",
        "radio": "simulated",
        "nodes": 6,
        "evaluate": True,
    }
    engine.submit("scripted", APPS / "scripted", run_config(values), "--federation-config", "num-supernodes=6")
    return engine.finish("scripted", RUN_S)


def test_a_resumed_run_has_the_inner_strategys_memory_bit_for_bit(engine: Deployment, scripted: str) -> None:
    """FedAdam has moments; without them the third round would step elsewhere. Evaluation asks all nodes, as ever."""
    assert "resuming after round 2" in scripted
    whole, parts = engine.folder / "whole", engine.folder / "parts"
    with np.load(whole / "fedcell-4.npz") as one, np.load(parts / "fedcell-4.npz") as other:
        assert any("m_t" in name for name in one.files)
        assert set(one.files) == set(other.files)
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name])
        assert one["model/0"].all()
    assert rounds_of(whole) == rounds_of(parts)
    for r in rounds_of(whole):
        assert len(r["devices"]) == 3
        assert r["metrics"]["evaluate"]["device"] == pytest.approx(np.mean(range(6)))


def test_nodes_answer_before_they_train_and_keep_models_between_two_messages(engine: Deployment, scripted: str) -> None:
    """Their contexts travel through Flower's own processes. Losses and updates are largest on devices 4 and 5."""
    assert "asked 6 of 6 devices for the lengths of their updates; 6 answered" in scripted
    for r in rounds_of(engine.folder / "asks"):
        assert r["answered"] == [0, 1, 2, 3, 4, 5]
        assert r["delivered"] == [4, 5]
        assert 0.0 < r["waited_s"] < r["round_s"]
    with np.load(engine.folder / "asks" / "fedcell-3.npz") as found:
        assert found["model/0"].tolist() == [3 * 24.0] * 4  # each round adds the mean of 16 and 32


def test_the_new_app_trains_as_it_is_written_and_ten_equal_nodes_stay_equal(engine: Deployment) -> None:
    """They train one after another, on a machine that gets other work to do for a while: the queue is nobody's link.

    In version 0.2 greedy had 5, 5, 2 and 3 nodes in the last rounds. Every tenth round is a look at stale estimates.
    The same app in a simulated cell, in this process: test_new_app.py.
    """
    pytest.importorskip("torch", reason="PyTorch is not installed")
    app, state = engine.folder / "equal", engine.folder / "equal-state"
    write_app(app)
    values = {"state": str(state), "policy": "greedy", "num-server-rounds": 12}
    engine.submit("equal", app, run_config(values), "--federation-config", "num-supernodes=10")
    engine.wait_for("three rounds", lambda: len(rounds_of(state)) >= 3, RUN_S, alive="equal")
    with busy(2):
        engine.wait_for("three more", lambda: len(rounds_of(state)) >= 6, RUN_S, alive="equal")
    engine.finish("equal", RUN_S)
    rounds = rounds_of(state)
    assert [r["delivered"] for r in rounds] == [list(range(10))] * 12
    assert rounds[-1]["metrics"]["server"]["accuracy"] > 0.9
    assert (state / "final_model.pt").exists()


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that need a processor each."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(Process(sys.executable, "-c", "while True: pass"))
        yield
