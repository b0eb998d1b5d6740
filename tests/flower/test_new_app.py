"""The app that `fedcell flower new` writes trains: its own ServerApp and ClientApps, in this process."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

import torch

from fedcell.cli.flower import write_app
from flower.local import node, run_app
from flower.runs import rounds_of


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """The app sets their number for its own process; here other tests follow."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_new_app_trains_in_a_simulated_cell_and_keeps_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_app(tmp_path / "digits-simulated")
    state = tmp_path / "state"
    values = {"state": str(state), "policy": "random:k=5", "radio": "simulated", "fraction-evaluate": 1.0}
    run_app(
        tmp_path / "digits-simulated", values | {"num-server-rounds": 3, "learning-rate": 0.05}, monkeypatch, nodes=20
    )
    rounds = rounds_of(state)
    assert len(rounds) == 3
    assert rounds[-1]["metrics"]["server"]["accuracy"] > 0.5
    assert rounds[-1]["metrics"]["evaluate"]["accuracy"] > 0.5
    assert rounds[-1]["metrics"]["train"]["train_loss"] < rounds[0]["metrics"]["train"]["train_loss"]
    model = torch.load(state / "final_model.pt", weights_only=True)
    assert sum(array.numel() for array in model.values()) == 50_890


def test_the_new_app_trains_with_what_its_nodes_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_app(tmp_path / "digits-reported")
    values = {"state": str(tmp_path / "state"), "policy": "diverse", "num-server-rounds": 2, "batch-size": 256}
    run_app(tmp_path / "digits-reported", values, monkeypatch, nodes=20)
    assert len(rounds_of(tmp_path / "state")) == 2

    client = importlib.import_module("digits_reported.client_app")
    nodes = (
        node(client.app, 0, {"batch-size": 32}, **{"num-partitions": 20, "snr-db": 12.5}),
        node(client.app, 1, {"batch-size": 32}, **{"num-partitions": 20}),
    )
    first, second = (client.describe(context) for _, context in nodes)
    assert (first.samples, first.snr_db, second.snr_db) == (2_400, 12.5, None)
    assert [value > 0 for value in first.profile] != [value > 0 for value in second.profile]  # of other digits
