"""The same rounds, played in a simulation and with Flower's messages: equal plans, clocks and knowledge, bit for bit.

Every client trains what the simulator's device trains, and the strategy takes the mean as its engine does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

import fedcell as fc
from fedcell.flower import (
    Report,
    Scheduled,
    SimulatedRadio,
    answer_loss,
    compressed,
    epochs_of,
    report_device,
    timed,
    upload_when_asked,
)
from fedcell.learn.engine import HostUpdates, Job
from fedcell.protocol import Knowledge
from fedcell.rng import keyed, stream
from fedcell.schedule.laws import LAWS
from fedcell.sim.loop import Simulation, jobs
from flower.local import LocalGrid, node
from twins.asks import SEEN, Asks

DEVICES = 8
ROUNDS = 11  # in the tenth stale estimates earn a look
LAW_OF = {"blocks": "blocks:count=9", "ingress": "ingress:bits_per_s=3e5"}


@pytest.fixture(autouse=True)
def _task_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_run_id", "_node_id", "_task_id"):  # which Flower sets in its own processes
        monkeypatch.setattr(TaskIdentity, name, 1)


@dataclass(frozen=True)
class Decides(fc.Random):
    """Decides epochs and bits, too."""

    uses_norms: ClassVar[bool] = True
    uses_updates: ClassVar[bool] = True
    uses_sums: ClassVar[bool] = True

    def local_epochs(self, view: fc.RoundView, devices: Any) -> Any:
        return np.where(np.arange(devices.size) % 2 == 0, 1.0, 3.0)

    def upload_bits(self, view: fc.RoundView, devices: Any) -> Any:
        return np.where(np.arange(devices.size) % 3 == 0, 32, 8)


@dataclass(frozen=True)
class AsksFirst(Asks):
    """Decides bits for devices that have trained already, to answer."""

    about: Literal["norm"] = "norm"
    d: int = 5
    k: int = 2
    uses_sums: ClassVar[bool] = True

    def upload_bits(self, view: fc.RoundView, devices: Any) -> Any:
        return np.where(np.arange(devices.size) % 2 == 0, 2, 3)


def record_of(model: Any, tensors: Iterable[int]) -> ArrayRecord:
    """A model vector as an app sends it, in its tensors."""
    parts = np.split(model, np.cumsum(list(tensors))[:-1])
    return ArrayRecord({f"tensor-{k}": Array(part) for k, part in enumerate(parts)})


def vector(record: ArrayRecord) -> Any:
    return np.concatenate([array.numpy() for array in record.values()])


class Mean(FedAvg):
    """The mean as the simulator's engine takes it; Flower's own has other rounding."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        records = [reply.content.array_records["arrays"] for reply in replies]
        models, tensors = (
            np.stack([vector(record) for record in records]),
            [a.numpy().size for a in records[0].values()],
        )
        mean = HostUpdates([models[0]] * len(models), models, np.zeros(len(models))).mean()
        return record_of(mean, tensors), MetricRecord({})


def spec_of(policy: str, **fields: Any) -> fc.Spec:
    task = {"hidden": [4], "sizes": [20 + i for i in range(DEVICES)]}
    devices = {"count": DEVICES} | fields.pop("devices", {})
    document: dict[str, Any] = {"policy": policy, "rounds": 4 * ROUNDS, "devices": devices, "task": task} | fields
    return fc.Spec(**document)


def lost(spec: fc.Spec, r: int, device: int) -> bool:
    drawn = stream(spec.seed, "failure", r).random(DEVICES)
    return bool(drawn[device] < spec.devices.failure)


def client_of(run: Simulation) -> ClientApp:
    """An app whose node i is device i of the simulation."""
    app, profiles = ClientApp(mods=[timed, compressed, upload_when_asked]), run.start().knowledge.profiles

    def report(context: Context) -> Report:
        i = int(str(context.node_config["partition-id"]))
        profile = profiles[i].tolist() if profiles.shape[1] and np.isfinite(profiles[i]).all() else None
        return Report(samples=len(run.task.parts[i]), profile=profile, any_epochs=True)

    def loss(message: Message, context: Context) -> float:
        i, config = int(str(context.node_config["partition-id"])), message.content.config_records["config"]
        part = run.task.parts[i]
        if "fedcell-samples" in config:
            draw = keyed(run.spec.seed, "poll", int(str(config["fedcell-round"])))
            part = draw(i).permutation(part)[: int(str(config["fedcell-samples"]))]
        start = vector(message.content.array_records["arrays"])
        return float(run.task.engine.losses([Job(start, part[np.newaxis])])[0])

    report_device(app, report)
    answer_loss(app, loss)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        i, config = int(str(context.node_config["partition-id"])), message.content.config_records["config"]
        r = int(str(config["fedcell-round"]))
        start = vector(message.content.array_records["arrays"])
        epochs = np.array([epochs_of(message, run.spec.task.epochs)])
        updates = run.task.engine.update(jobs(run.task, start, np.array([i]), run.spec, r, rms=True, epochs=epochs))
        if lost(run.spec, r, i):
            raise RuntimeError("the model is lost")
        found = {"train_loss": float(updates.losses[0]), "train_loss_rms": float(updates.rms[0])}
        arrays = record_of(updates.models()[0], run.task.engine.tensors)
        return Message(
            RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1, **found})}), reply_to=message
        )

    return app


def in_flower(spec: fc.Spec) -> Scheduled:
    run = Simulation.load(spec, threads=1)
    radio = SimulatedRadio(run.world, spec.seed, spec.knowledge, spec.cell.law, deadlines=spec.slack is not None)
    scheduled = Scheduled(
        Mean(fraction_evaluate=0.0),
        spec.policy,
        radio=radio,
        seed=spec.seed,
        nodes=DEVICES,
        slack=1.0 if spec.slack is None else spec.slack,
        explore=spec.explores,
        poll_s=0.001,
        spec=spec,
    )
    app = client_of(run)
    grid = LocalGrid({100 + (3 * i) % DEVICES: node(app, i) for i in range(DEVICES)})
    scheduled.start(grid, record_of(run.start().model, run.task.engine.tensors), ROUNDS)
    return scheduled


def in_simulation(spec: fc.Spec) -> tuple[list[fc.RoundRecord], Knowledge]:
    run, records = Simulation.load(spec, threads=1), list[fc.RoundRecord]()
    state = run.start()
    while sum(record.delivered.size > 0 for record in records) < ROUNDS:  # in Flower others do not count
        played = run.step(state)
        assert played is not None
        record, state = played
        records.append(record)
    return records, state.knowledge


def assert_equal(spec: fc.Spec) -> list[fc.RoundRecord]:
    SEEN.clear()
    records, knowledge = in_simulation(spec)
    scheduled = in_flower(spec)
    assert len(scheduled.rounds) == len(records) >= ROUNDS
    for got, want in zip(scheduled.rounds, records, strict=True):
        assert got.devices == want.plan.devices.tolist()
        assert got.shares == want.plan.shares.tolist()
        assert got.delivered == want.delivered.tolist()
        assert (got.clock_s, got.round_s, got.planned_s) == (want.clock_s, want.round_s, want.plan.round_s)
    known, expected = scheduled._planner.roster.knowledge.to_arrays(), knowledge.to_arrays()
    assert set(known) == set(expected)
    for name, column in expected.items():
        sums = name in ("heard_peaks", "heard_absolutes", "heard_squares", "learnt")  # a client adds in another order
        np.testing.assert_allclose(known[name], column, rtol=1e-9 if sums else 0.0, err_msg=name)
    return records


ASKS = (
    "power_of_choice:k=2,d=4",
    "best_norm:k=2",
    "twins.asks:Asks:about=loss,samples=7,d=5,k=2",
    "twins.asks:Asks:about=norm,d=5,k=2",
)
USES = ("oort:k=3", "div_fl:k=3", "random:k=3", "greedy:theta=0.3", "round_robin:k=3", f"{__name__}:Decides:k=3")
ROUNDS_WHAT_WAS_KEPT = f"{__name__}:AsksFirst"


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("policy", [ASKS[0], ASKS[3], "oort:k=3", f"{__name__}:Decides:k=3"])
def test_every_law(law: str, policy: str) -> None:
    assert_equal(spec_of(policy, cell={"law": LAW_OF.get(law, law)}, knowledge="observed", slack=1.1))


@pytest.mark.parametrize("policy", [*ASKS, *USES, ROUNDS_WHAT_WAS_KEPT])
@pytest.mark.parametrize("knowledge", ["perfect", "observed"])
def test_every_question_and_every_signal(policy: str, knowledge: str) -> None:
    assert_equal(spec_of(policy, knowledge=knowledge, slack=1.05))


def test_slack_leaves_out_the_late() -> None:
    records = assert_equal(spec_of("random:k=4", knowledge="expected", slack=1.02))
    assert any(record.delivered.size < record.plan.devices.size for record in records)


@pytest.mark.parametrize("knowledge", ["perfect", "expected", "observed"])
@pytest.mark.parametrize("slack", [None, 1.05])
def test_overcommitment(knowledge: str, slack: float | None) -> None:
    records = assert_equal(spec_of("random:k=3,overcommit=1.7", knowledge=knowledge, slack=slack))
    assert any(record.delivered.size < record.plan.devices.size for record in records) or knowledge == "perfect"


@pytest.mark.parametrize("policy", ["random:k=4", "random:k=3,overcommit=1.7", "oort:k=3"])
def test_models_that_are_lost(policy: str) -> None:
    records = assert_equal(spec_of(policy, devices={"failure": 0.3}, knowledge="observed", slack=1.1))
    assert any(record.delivered.size < record.plan.devices.size for record in records)


def test_profiles() -> None:
    assert_equal(spec_of("diverse", profiles="labels", knowledge="observed"))


@pytest.mark.parametrize("profiles", ["labels", "none"])
@pytest.mark.parametrize("knowledge", ["perfect", "observed"])
def test_what_a_policy_learns(knowledge: str, profiles: str) -> None:
    records = assert_equal(spec_of("auto:momentum=0", profiles=profiles, knowledge=knowledge, slack=1.05))
    assert records[-1].epochs < 1.0
