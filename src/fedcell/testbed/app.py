"""The Flower app that the emulated cell runs: the simulator's own task, trained for real.

A device trains what it would train in ``fedcell.simulate`` with the same spec: the same samples in the same order.
"""

import gc
import json
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcell.files import replace_file
from fedcell.flower import Report, Scheduled, compressed, epochs_of, report_device
from fedcell.learn.engine import Job
from fedcell.rng import keyed, stream
from fedcell.sim.loop import Simulation, visits, world_of
from fedcell.sim.spec import Spec
from fedcell.testbed.federation import SERVER_PORT
from fedcell.testbed.network import Links
from fedcell.testbed.radio import TestbedRadio, read_round
from fedcell.testbed.runs import Fault, task_of
from fedcell.testbed.wire import Tap

HANDOVER_S = 0.015
"""From the app's return to the first byte on the wire: its process hands the reply to the SuperNode's. It counts as
computing, so an app returns so much before its time."""
ALL_ROUNDS = 1_000_000


@dataclass(frozen=True)
class Emulation:
    """The settings of the emulation, set before the processes of the apps are forked.

    Attributes:
        runs: the specs; Flower's run configuration has the number of the one to run.
        links: the network.
        folder: in which each run has its own folder.
        faults: to inject into every run.
        slack: see `Scheduled`.
        grace_s: see `Scheduled`.
        poll_s: see `Scheduled`.
    """

    runs: Sequence[Spec]
    links: Links
    folder: Path
    faults: Sequence[Fault]
    slack: float
    grace_s: float
    poll_s: float

    def run_folder(self, run: int) -> Path:
        """Return the folder of a run's state and its outcome."""
        return self.folder / f"run-{run}"


_setting: Emulation | None = None


def prepare(setting: Emulation) -> None:
    """Load data and compiled code, so that every process forked from this one has them."""
    global _setting  # noqa: PLW0603
    _setting = setting
    spec = setting.runs[0]
    task = task_of(spec)
    start = task.engine.initial(stream(spec.seed, "model"))
    task.engine.train([Job(start, task.parts[0][:1].reshape(1, 1))])
    task.engine.evaluate(start[np.newaxis])
    gc.freeze()  # or every fork would copy all that its collector visits


def _of(context: Context) -> tuple[Emulation, int, Spec]:
    assert _setting is not None  # prepare was called before the fork
    run = int(context.run_config["run"])
    return _setting, run, _setting.runs[run]


def _report(context: Context) -> Report:
    """Return the report of the simulator's device."""
    _, _, spec = _of(context)
    profile = Simulation.load(spec, threads=1).report(int(context.node_config["partition-id"]))
    return Report(profile=profile, any_epochs=True)


client_app = ClientApp(mods=[compressed])
report_device(client_app, _report)


@client_app.train()
def train_device(message: Message, context: Context) -> Message:
    """Train for real, then wait until the compute time that was drawn for this device has passed."""
    setting, run, spec = _of(context)
    device = int(context.node_config["partition-id"])
    content: Any = message.content
    round_index = int(content["config"]["fedcell-round"])
    task = task_of(spec)
    epochs = epochs_of(message, spec.task.epochs)
    order = visits(task.parts[device], epochs, keyed(spec.seed, "batches", round_index)(device))
    model = task.engine.train([Job(content["arrays"]["model"].numpy(), order)])[0]
    start = read_round(setting.run_folder(run))
    # Where the round is over the reply is late in any case.
    ready_s = start.began_s + start.compute_s[device] - HANDOVER_S if start.round_index == round_index else 0.0
    spare_s = ready_s - time.time()
    time.sleep(max(0.0, spare_s))
    # Spare seconds also make the record one of a kind: Flower would not upload one that the server has from another.
    weight = float(task.samples[device]) if spec.task.aggregator == "samples" else 1.0
    metrics = MetricRecord({"num-examples": weight, "spare-s": spare_s})
    reply = RecordDict({"arrays": ArrayRecord({"model": Array(model)}), "metrics": metrics})
    return Message(reply, reply_to=message)


server_app = ServerApp()


@server_app.main()
def serve_rounds(grid: Grid, context: Context) -> None:
    """Train as the run's spec says; write the outcome, and the error if there is one, into the run's folder."""
    setting, run, spec = _of(context)
    folder = setting.run_folder(run)
    error = None
    try:
        _serve(grid, setting, spec, folder)
    except Exception as fault:
        error = f"{type(fault).__name__}: {fault}"
        traceback.print_exc()
    text = json.dumps({"error": error})
    replace_file(folder / "outcome.json", lambda file: file.write(text.encode()))


def _serve(grid: Grid, setting: Emulation, spec: Spec, folder: Path) -> None:
    task = task_of(spec)
    P = task.engine.parameters
    setting.links.mend(range(setting.links.count))  # what a fault of an earlier run has cut
    tap = Tap(setting.links.count, SERVER_PORT)
    radio = TestbedRadio(spec, world_of(spec, task), setting.links, tap, P, folder, setting.faults)

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        result = task.engine.evaluate(arrays["model"].numpy()[np.newaxis])
        return MetricRecord({"accuracy": float(result.accuracy[0]), "loss": float(result.loss[0])})

    strategy = Scheduled(
        FedAvg(fraction_evaluate=0.0),
        spec.policy,
        radio=radio,
        seed=spec.seed,
        nodes=spec.devices.count,
        slack=setting.slack,
        grace_s=setting.grace_s,
        poll_s=setting.poll_s,
        budget_s=spec.budget_s,
        target_accuracy=spec.target_accuracy,
        averaging="balanced" if spec.task.aggregator == "balanced" else "strategy",
        epsilon=spec.epsilon,
        explore=spec.explore,
        state=folder / "state",
    )
    start = task.engine.initial(stream(spec.seed, "model"))
    rounds = ALL_ROUNDS if spec.rounds is None else spec.rounds
    strategy.start(grid, ArrayRecord({"model": Array(start)}), rounds, evaluate_fn=evaluate)
