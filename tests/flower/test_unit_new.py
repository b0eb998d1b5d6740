"""The app that `fedcell flower new` writes trains: its own ServerApp and ClientApps, in this process."""

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

import torch

from fedcell.cli.flower_new import write_app
from flower.local import run_app
from flower.runs import rounds_of


def test_the_new_app_trains_in_a_simulated_cell_and_keeps_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_app(tmp_path / "digits-simulated")
    state = tmp_path / "state"
    values = {"state": str(state), "radio": "simulated", "num-server-rounds": 3, "fraction-evaluate": 1.0}
    run_app(tmp_path / "digits-simulated", values, monkeypatch, nodes=5)
    rounds = rounds_of(state)
    assert len(rounds) == 3
    assert rounds[-1]["metrics"]["server"]["accuracy"] > 0.6
    assert rounds[-1]["metrics"]["evaluate"]["accuracy"] > 0.6
    assert rounds[-1]["metrics"]["train"]["train_loss"] < rounds[0]["metrics"]["train"]["train_loss"]
    model = torch.load(state / "final_model.pt", weights_only=True)
    assert sum(array.numel() for array in model.values()) == 50_890


def test_the_new_app_reports_what_policies_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is written, with the policy that uses the profiles; every node answers for itself."""
    write_app(tmp_path / "digits-reported")
    values = {"state": str(tmp_path / "state"), "policy": "diverse", "num-server-rounds": 2}
    run_app(tmp_path / "digits-reported", values, monkeypatch, nodes=3)
    assert len(rounds_of(tmp_path / "state")) == 2
    document = json.loads((tmp_path / "state" / "state.json").read_text())
    assert sorted(document["names"]) == ["0", "1", "2"]
