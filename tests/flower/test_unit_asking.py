"""Policies that ask before they decide, hear what devices tell, or invite more than they need: whole runs here."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

import fedcell as fc
from fedcell.errors import InputError
from fedcell.flower import Report, Scheduled, answer_loss, report_device, timed, upload_when_asked
from fedcell.flower.answers import ANSWER
from fedcell.flower.state import load_arrays, load_run
from fedcell.sim.heard import Heard
from fedcell.sim.loop import Simulation
from flower.asks import SEEN, Asks
from flower.local import LocalGrid, node, run_example
from flower.runs import assert_as_simulated

HEARD = ("losses", "rms_losses", "norms", "heard_round", "updates", "turns", "took_s", "planned_s")


# --- as in the simulator ----------------------------------------------------------------------------------------------


def simulated(values: dict[str, Any]) -> tuple[list[fc.RoundRecord], Heard]:
    """The simulator's rounds, and what its server has heard in the end."""
    run = Simulation.load(fc.Spec().changed(values | {"cell.radius_m": 1400.0}))
    state, records = run.start(), []
    while (played := run.step(state)) is not None:
        records.append(played[0])
        state = played[1]
    return records, state.knowledge.heard


@pytest.mark.parametrize(
    "values",
    [
        {"policy": "flower.asks:Asks:about=loss"},
        {"policy": "flower.asks:Asks:about=loss,samples=50", "task.epochs": 0.1, "knowledge": "expected"},
        {"policy": "flower.asks:Asks:about=norm", "knowledge": "observed"},
        {"policy": "flower.asks:Asks:about=norm,overcommit=2", "task.epochs": 0.1, "cell.law": "blocks:count=15"},
        {"policy": "flower.asks:Asks:about=nothing", "task.averaging": "samples", "task.sizes": "lognormal:0.5"},
        {"policy": "random:k=4,overcommit=1.5", "task.epochs": 0.1, "knowledge": "expected"},
    ],
    ids=lambda values: ",".join(f"{name}={value}" for name, value in values.items()),
)
def test_schedule_clock_and_what_is_heard_are_the_simulators(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is taken up after its second round: all that was heard is in the state directory."""
    for rounds in (2, 3):
        run_example(values | {"rounds": rounds, "state": str(tmp_path / "run")}, monkeypatch)
    records, expected = simulated(values | {"rounds": 3})
    assert_as_simulated(tmp_path / "run", records)
    roster, _, _ = load_arrays(tmp_path / "run", load_run(tmp_path / "run"))
    for name in HEARD:
        got, want = getattr(roster.knowledge.heard, name), getattr(expected, name)
        if not got.size:  # a policy that does not use it
            continue
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-7, err_msg=name)
    assert np.isfinite(roster.knowledge.heard.losses).any()
