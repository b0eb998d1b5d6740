"""The apps that tests run, how they are configured, and what their state folders say afterwards."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc

APPS = Path(__file__).parent / "apps"
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-mnist"


def run_config(values: dict[str, Any]) -> str:
    """The values as `flwr run --run-config` takes them."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())


def rounds_of(state: Path) -> list[dict[str, Any]]:
    """The lines of a run's rounds.jsonl that are there now."""
    path = state / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def assert_as_simulated(state: Path, expected: list[fc.RoundRecord]) -> None:
    """The same devices with the same shares at the same times, bit for bit; models that differ by rounding only."""
    rounds = rounds_of(state)
    assert [r["round"] for r in rounds] == [e.round for e in expected]
    for got, want in zip(rounds, expected, strict=True):
        assert got["devices"] == want.plan.devices.tolist()
        assert got["names"] == [str(device) for device in want.plan.devices]
        assert got["shares"] == want.plan.shares.tolist()
        assert got["delivered"] == want.delivered.tolist()
        assert (got["clock_s"], got["round_s"], got["planned_s"]) == (want.clock_s, want.round_s, want.plan.round_s)
        assert got["metrics"]["server"]["accuracy"] == pytest.approx(want.accuracy, abs=5e-4)
        assert got["metrics"]["server"]["loss"] == pytest.approx(want.loss, rel=1e-4)


def delivered_names(r: dict[str, Any]) -> set[str]:
    """Whose models counted in a round."""
    names = dict(zip(r["devices"], r["names"], strict=True))
    return {names[device] for device in r["delivered"]}


def saved_model(state: Path) -> np.ndarray[Any, Any]:
    """All weights after the last round."""
    [path] = state.glob("fedcell-*.npz")
    with np.load(path) as arrays:
        return np.concatenate([arrays[name].ravel() for name in arrays.files if name.startswith("model/")])
