"""Flower's deployment engine on loopback, with TLS and node keys: what happens to nodes and servers, happens here.

One SuperLink and its SuperNodes serve all tests of this file, in their order: nodes 0 to 3 from the beginning, 4 late.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest

import fedcell as fc

pytest.importorskip("flwr", reason="Flower is not installed")

from flower.deployment import LINK, Deployment
from flower.runs import APPS, EXAMPLE, assert_as_simulated, delivered_names, rounds_of, run_config, saved_model

pytestmark = pytest.mark.flower
START_S, RUN_S = 180.0, 400.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("deployment")) as deployment:
        deployment.start_superlink(START_S)
        deployment.register(*(f"node-{i}" for i in range(5)))
        for i in range(4):
            start(deployment, i)
        deployment.start_node("stranger", "partition-id=0 num-partitions=4")  # its key is not registered
        deployment.wait_for("four nodes", lambda: all(deployment.connected(f"node-{i}") for i in range(4)), START_S)
        yield deployment


def start(cluster: Deployment, i: int) -> None:
    """The scripted app of node 2 reports nothing, that of node 4 NaN; all processes of node 3 start as a user's do."""
    config = f"partition-id={i} num-partitions=4 {'snr-db=nan' if i == 4 else ''}"
    cluster.start_node(f"node-{i}", config, {"SCRIPTED_SILENT": "1"} if i == 2 else None, cold=i == 3)


def name_of(cluster: Deployment, i: int) -> str:
    """What the server calls a device: of a node whose app cannot answer it knows the id only."""
    return str(cluster.nodes["node-2"]) if i == 2 else str(i)


def test_nodes_with_registered_keys_train_the_example_as_the_simulator_does(cluster: Deployment) -> None:
    state = cluster.folder / "plain"
    values = {"policy": "random:k=2", "devices.count": 4, "rounds": 2, "task.epochs": 0.1, "seed": 1}
    cluster.submit("plain", EXAMPLE, run_config({**values, "state": str(state)}))
    cluster.wait_for("the first round", lambda: rounds_of(state), RUN_S, alive="plain")
    began_s = monotonic()
    cluster.wait_for("the second round", lambda: len(rounds_of(state)) == 2, RUN_S)
    cluster.pace_s = max(5.0, 2 * (monotonic() - began_s))  # all four will train where two did
    cluster.finish("plain", RUN_S)
    assert 3 in rounds_of(state)[1]["devices"]  # whose processes take longest to start
    assert_as_simulated(state, list(fc.simulate(fc.Spec().changed(values | {"cell.radius_m": 1400.0}))))
    assert "running on https://" in cluster.log(LINK)


def test_a_node_whose_key_is_not_registered_is_refused(cluster: Deployment) -> None:
    cluster.wait_for("the stranger's end", lambda: cluster.ended("stranger"), START_S)
    assert "Failed to activate SuperNode" in cluster.log("stranger")
    assert "SuperNode ID" not in cluster.log("stranger")
    cluster.kill("stranger")  # what it had started itself
    listed = cluster.listed()
    assert set(listed) == set(cluster.nodes.values())
    assert {node for node, status in listed.items() if status == "online"} == {
        cluster.nodes[f"node-{i}"] for i in range(4)
    }


def test_a_killed_node_is_left_out_and_a_late_one_joins(cluster: Deployment) -> None:
    """Device 3 is killed in the first round and the others go on; device 4 comes, and is in the third, which 3 is not.

    Device 2 reports nothing and 4 NaN: they are planned with the medians of the others.
    """
    state, pace_s, slack = cluster.folder / "killed", cluster.pace_s, 3.0
    policy = f"deadline:seconds={3.5 * pace_s}"  # a device as slow as the slack and the grace allow cannot keep it
    (cluster.folder / "hold-3-0").touch()
    (waiting := cluster.folder / "hold-0-1").touch()
    values: dict[str, Any] = {"folder": str(cluster.folder), "starts": "killed:3", "policy": policy}
    values |= {"train-s": pace_s, "slack": slack, "grace-s": pace_s}
    cluster.submit("killed", APPS / "scripted", run_config(values))
    cluster.wait_for("device 3 to train", (cluster.folder / "trains-3-0").exists, RUN_S, alive="killed")
    cluster.kill("node-3")
    start(cluster, 4)
    cluster.wait_for("the round to end without it", lambda: rounds_of(state), RUN_S, alive="killed")
    cluster.wait_for("device 4 to have answered", lambda: cluster.has_sent("node-4"), RUN_S, alive="killed")
    waiting.unlink()
    log = cluster.finish("killed", RUN_S)
    cluster.unregister("node-3")

    first, second, third = rounds_of(state)
    silent = name_of(cluster, 2)
    assert_planned_with_medians(first, policy, silent, pace_s)
    assert_told_their_own(cluster.folder, first, {name_of(cluster, i): i for i in range(4)})
    assert delivered_names(first) == {"0", "1", silent}
    if first["finish_s"][first["names"].index("3")] is None:
        assert first["round_s"] >= slack * max(first["planned_finish_s"]) + pace_s
    elif (
        first["devices"][first["names"].index("3")] not in first["late"]
    ):  # on a machine so slow that Flower gave the node up before it was late
        assert "the reply of device 3 is not used: its app failed: Error: Node Unavailable" in log
    # Asked once more if Flower has not noticed yet that it is gone, and then it rests.
    assert set(second["names"]) - {"3"} == delivered_names(second) == {"0", "1", silent}
    assert set(third["names"]) == delivered_names(third) == {"0", "1", silent, "4"}
    moves = [np.mean([1, 2, 4]), np.mean([1, 2, 4]), np.mean([1, 2, 4, 16])]
    np.testing.assert_allclose(saved_model(state), np.full(8, sum(moves)), rtol=1e-6)

    left_out = [line.split("; missing: ")[1].strip() for line in log.splitlines() if "; missing: " in line]
    assert set(left_out) == {"3"}
    assert len(left_out) <= 2
    assert f"the report of device {silent} cannot be used: does its app call report_device?" in log
    assert "the report of device 4 cannot be used: InputError: snr_db is nan" in log
    for name in (silent, "4"):
        for what in ("link", "speed"):
            assert f"nothing is known about the {what} of {name}; assuming the median of the others" in log


def assert_planned_with_medians(first: dict[str, Any], policy: str, silent: str, train_s: float) -> None:
    """Devices 0, 1 and 3 upload and train as long as they said; the silent one is taken to do as their medians."""
    order = sorted(["0", "1", "3", silent], key=int)
    upload_s = {"0": 0.01, "1": 0.02, "3": 0.04, silent: 0.02}
    compute_s = {"0": train_s, "1": train_s + 0.1, "3": train_s + 0.3, silent: train_s + 0.1}
    view = fc.RoundView(np.array([upload_s[name] for name in order]), np.array([compute_s[name] for name in order]))
    plan = fc.parse_policy(policy).decide(view, np.random.default_rng(0))
    assert sorted(plan.devices) == [0, 1, 2, 3]
    assert first["names"] == [order[i] for i in plan.devices]
    assert first["shares"] == plan.shares.tolist()


def assert_told_their_own(folder: Path, first: dict[str, Any], numbers: dict[str, int]) -> None:
    """Each node's message had its own share and finish time."""
    assert len(set(first["shares"])) > 1
    for name, share, finish_s in zip(first["names"], first["shares"], first["planned_finish_s"], strict=True):
        told = json.loads((folder / f"trains-{numbers[name]}-0").read_text())
        assert (told["fedcell-share"], told["fedcell-finish-s"], told["fedcell-round"]) == (share, finish_s, 0)


def test_a_killed_superlink_loses_nothing(cluster: Deployment) -> None:
    """It dies in the second round, with its ServerApp; started again, the run goes on after the first."""
    state = cluster.folder / "resumed"
    held = [cluster.folder / f"hold-{i}-1" for i in (0, 1, 2, 4)]  # whoever is drawn
    for trace in cluster.folder.glob("trains-*"):
        trace.unlink()
    for file in held:
        file.touch()
    values = {"folder": str(cluster.folder), "starts": "resumed:2", "slack": 100.0, "policy": "random:k=2"}
    cluster.submit("before", APPS / "scripted", run_config(values))
    cluster.wait_for("the second round", lambda: [*cluster.folder.glob("trains-?-1")], RUN_S, alive="before")
    cluster.kill(LINK)
    cluster.kill("before")
    before = (state / "rounds.jsonl").read_bytes()
    assert len(before.splitlines()) == 1
    for file in held:
        file.unlink()

    cluster.start_superlink(START_S, cold=True)  # and so its ServerApp's process: all is imported there as a user's is
    began_s = monotonic()
    cluster.submit("after", APPS / "scripted", run_config(values))
    log = cluster.finish("after", RUN_S)
    took_s = monotonic() - began_s
    assert "resuming after round 1" in log
    assert (state / "rounds.jsonl").read_bytes().startswith(before)
    rounds = rounds_of(state)
    assert [r["round"] for r in rounds] == [1, 2]
    adds = {name_of(cluster, i): 2.0**i for i in (0, 1, 2, 4)}
    moves = [[adds[name] for name in delivered_names(r)] for r in rounds]
    assert [len(two) for two in moves] == [2, 2]
    np.testing.assert_allclose(saved_model(state), np.full(8, sum(map(np.mean, moves))), rtol=1e-6)
    for earlier, later in pairwise(rounds):
        assert later["clock_s"] >= earlier["clock_s"] + later["round_s"]
    assert rounds[1]["clock_s"] - rounds[0]["clock_s"] < took_s  # the time without a server is not the federation's
