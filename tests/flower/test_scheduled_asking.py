"""Policies that ask before they decide, hear what devices tell, or invite more than they need: whole runs here."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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
from fedcell.flower.client import ANSWER
from fedcell.flower.state import load_arrays, load_run
from fedcell.protocol import Knowledge
from fedcell.schedule.zoo.oort import relaxed
from fedcell.sim.loop import Simulation
from flower.local import LocalGrid, node, run_example
from flower.runs import assert_as_simulated
from twins.asks import SEEN, Asks

REPORTS = ("losses", "rms_losses", "norms", "updates", "heard_round")
HEARD = [f"heard_{name}" for name in (*REPORTS, "turns", "took_s", "planned_s")]


# --- as in the simulator ----------------------------------------------------------------------------------------------


def simulated(values: dict[str, Any]) -> tuple[list[fc.RoundRecord], Knowledge]:
    """The simulator's rounds, and what its server knows in the end."""
    run = Simulation.load(fc.Spec().changed(values | {"cell.radius_m": 1400.0}))
    state, records = run.start(), []
    while (played := run.step(state)) is not None:
        records.append(played[0])
        state = played[1]
    return records, state.knowledge


@pytest.mark.parametrize(
    "values",
    [
        {"policy": "twins.asks:Asks:about=loss"},
        {"policy": "twins.asks:Asks:about=loss,samples=50", "task.epochs": 0.1, "knowledge": "expected"},
        {"policy": "twins.asks:Asks:about=norm", "knowledge": "observed"},
        {"policy": "twins.asks:Asks:about=norm,overcommit=2", "task.epochs": 0.1, "cell.law": "blocks:count=15"},
        {"policy": "twins.asks:Asks:about=nothing", "task.aggregator": "samples", "task.sizes": "lognormal:0.5"},
        {"policy": "random:k=4,overcommit=1.5", "task.epochs": 0.1, "knowledge": "expected"},
        {"policy": "power_of_choice", "task.epochs": 0.1},
        {"policy": "best_norm", "task.epochs": 0.1, "seed": 1},
        {"policy": "oort", "task.epochs": 0.1, "budget_s": 500.0},
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
        got, want = roster.knowledge.to_arrays()[name], expected.to_arrays()[name]
        if not got.size:  # a policy that does not use it
            continue
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-7, err_msg=name)
    assert np.isfinite(roster.knowledge.to_arrays()["heard_losses"]).any()
    np.testing.assert_allclose(roster.knowledge.round_losses, expected.round_losses, rtol=1e-4)
    if "overcommit" in values["policy"]:
        assert all(record.delivered.size < record.plan.devices.size for record in records)


def test_oorts_pacer_relaxes_as_in_the_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In version 0.2 no round's loss was booked here, so that it never did."""
    values = {"policy": "oort:k=3,window=2", "rounds": 9, "task.epochs": 0.1}
    run_example(values | {"state": str(tmp_path / "run")}, monkeypatch)
    records, expected = simulated(values)
    assert_as_simulated(tmp_path / "run", records)
    roster, _, _ = load_arrays(tmp_path / "run", load_run(tmp_path / "run"))
    steps = relaxed(expected.round_losses, window=2)
    assert relaxed(roster.knowledge.round_losses, window=2) == steps > 0


# --- with clients of our own ------------------------------------------------------------------------------------------


class Client:
    """An app whose device i adds 2^i to the model and has the loss i; ``knows`` are the questions that it answers."""

    def __init__(self, *knows: str, metrics: dict[str, Any] | None = None, answers: Any = None) -> None:
        mods: list[Any] = [timed, upload_when_asked] if "norm" in knows else [timed]
        self.app, self.metrics, self.answers = ClientApp(mods=mods), metrics or {}, answers
        self.trained: list[tuple[int, dict[str, Any]]] = []
        report_device(self.app, Report(samples=100, compute_s=0.01, upload_s=0.01))
        self.app.train()(self.train)
        if "loss" in knows:
            answer_loss(self.app, self.loss)

    def loss(self, message: Message, context: Context) -> float:
        i = int(str(context.node_config["partition-id"]))
        self.asked = dict(message.content["config"])
        return float(i) if self.answers is None else self.answers(i)

    def train(self, message: Message, context: Context) -> Message:
        i = int(str(context.node_config["partition-id"]))
        self.trained.append((i, dict(message.content["config"])))
        old = message.content.array_records["arrays"]
        arrays = {name: Array(array.numpy() + np.float32(2**i)) for name, array in old.items()}
        metrics = MetricRecord({"num-examples": 1, "train_loss": i / 10, **self.metrics})
        return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)

    def grid(self, count: int, delay_s: Callable[[Message], float] = lambda _: 0.0) -> LocalGrid:
        return LocalGrid({100 + i: node(self.app, i) for i in range(count)}, delay_s)


def run(grid: LocalGrid, policy: fc.Policy | str, rounds: int = 2, **settings: Any) -> Scheduled:
    SEEN.clear()
    given: dict[str, Any] = {"strategy": FedAvg(fraction_evaluate=0.0), "nodes": len(grid.nodes), "poll_s": 0.01}
    given |= settings
    scheduled = Scheduled(given.pop("strategy"), policy, **given)
    scheduled.start(grid, ArrayRecord({"w": Array(np.zeros(3, np.float32))}), rounds)
    return scheduled


def heard(scheduled: Scheduled) -> Any:
    """What the devices have reported, by column."""
    arrays = scheduled._planner.roster.knowledge.to_arrays()
    return SimpleNamespace(**{name: arrays[f"heard_{name}"] for name in REPORTS})


def test_losses_are_asked_for_with_the_model_and_the_config_of_training() -> None:
    client = Client("loss")
    done = run(client.grid(5), Asks("loss", d=4, k=2, samples=7), 1)
    [view], [round_1] = SEEN, done.rounds
    assert client.asked == {"fedcell-samples": 7, "fedcell-round": 0}
    assert len(round_1.asked) == 4
    assert round_1.answered == round_1.asked
    assert round_1.delivered == round_1.answered[2:]
    assert view.losses is not None
    assert view.losses.tolist() == [float(i) for i in round_1.answered]
    assert round_1.waited_s <= min(s for s in round_1.began_s if s is not None)
    assert round_1.round_s >= round_1.waited_s
    # Those that delivered told their training losses then; the others are known by their answers.
    want = [i / 10 if i in round_1.delivered else float(i) for i in round_1.answered]
    assert heard(done).losses[round_1.answered].tolist() == want


def test_models_are_kept_until_they_are_asked_for_and_only_the_chosen_send_theirs() -> None:
    client = Client("norm")
    grid = client.grid(4)
    done = run(grid, Asks("norm", d=4, k=2))
    for r in done.rounds:
        assert (r.answered, r.delivered) == ([0, 1, 2, 3], [2, 3])
    assert sorted(i for i, _ in client.trained) == [0, 0, 1, 1, 2, 2, 3, 3]  # training is not repeated
    assert client.trained[0][1] == {"server-round": 1, "fedcell-round": 0, "fedcell-hold": True}
    np.testing.assert_allclose(heard(done).norms, math.sqrt(3) * 2.0 ** np.arange(4), rtol=1e-6)
    held = [any(key.startswith("fedcell-held") for key in grid.nodes[100 + i][1].state) for i in range(4)]
    assert held == [True, True, False, False]  # what was sent is forgotten
    # Of the times of those that only trained nothing is learnt; compute times are those of the first stage.
    assert done._planner.roster.knowledge.compute.weight.tolist() == [0, 0, 2, 2]


def message(node_id: int = 1, **config: Any) -> Message:
    arrays = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
    return Message(RecordDict({"arrays": arrays, "config": ConfigRecord(config)}), node_id, "train")


def weights(reply: Message) -> list[float]:
    return [float(value) for value in reply.content.array_records["arrays"]["w"].numpy()]


def test_a_model_of_another_round_is_never_sent() -> None:
    app, context = node(Client("norm").app, 0)
    for wanted, complaint in ((4, "of round 5, and this node has none"), (4, None), (5, "has that of round 5")):
        if complaint is None or wanted == 5:
            app(message(**{"fedcell-round": 4, "fedcell-hold": True}), context)
        ask = message(**{"fedcell-round": wanted, "fedcell-send": True})
        if complaint is None:
            assert weights(app(ask, context)) == [1.0] * 3
        else:
            with pytest.raises(InputError, match=complaint):
                app(ask, context)
    # It is forgotten then, and an ordinary message is an ordinary message.
    with pytest.raises(InputError, match="this node has none"):
        app(message(**{"fedcell-round": 4, "fedcell-send": True}), context)
    assert weights(app(message(**{"fedcell-round": 6}), context)) == [1.0] * 3


@pytest.mark.parametrize(
    ("about", "advice"),
    [("loss", "needs fedcell.flower.answer_loss"), ("norm", "needs the mod fedcell.flower.upload_when_asked")],
)
def test_clients_that_do_not_know_the_question_are_told_what_to_add(
    about: Any, advice: str, log: pytest.LogCaptureFixture
) -> None:
    """One line for all; rounds without an answer do not count, and ten of them end the run."""
    with pytest.raises(InputError, match="no model was trained: no node answered in 10 rounds"):
        run(Client().grid(3), Asks(about, d=3, k=2), radio=instant(), poll_s=0.0)
    lines = [line for line in log.messages if advice in line]
    assert 1 <= len(lines) <= 10
    assert lines[0].startswith("fedcell: no answer of 0, 1, 2: ")
    assert "Traceback" not in log.text


def instant() -> Any:
    """Simulated time: nobody waits for anything."""
    from fedcell.flower import SimulatedRadio

    return SimulatedRadio(fc.World(devices=fc.Devices(count=5)), seed=0)


@pytest.mark.parametrize("lie", [math.nan, math.inf, -1.0, 1e300, "high", None, [1.0, 2.0]])
def test_whoever_lies_has_not_answered(lie: Any, log: pytest.LogCaptureFixture) -> None:
    client = Client("loss")
    app = ClientApp()
    report_device(app, Report(samples=100))
    app.train()(client.train)

    def lies(m: Message, _: Context) -> Message:
        record = (
            ConfigRecord({"loss": lie}) if isinstance(lie, str) else MetricRecord({} if lie is None else {"loss": lie})
        )
        return Message(RecordDict({ANSWER: record}), reply_to=m)

    app.query("fedcell_loss")(lies)
    grid = client.grid(3)
    grid.nodes[101] = node(app, 1)
    done = run(grid, Asks("loss", d=3, k=2), 1, radio=instant())
    assert (done.rounds[0].asked, done.rounds[0].answered, done.rounds[0].delivered) == ([0, 1, 2], [0, 2], [0, 2])
    assert len([line for line in log.messages if line.startswith("fedcell: no answer of 1: ")]) == 1
    assert done._planner.roster.knowledge.failures.tolist() == [0, 1, 0]


@pytest.mark.parametrize("lie", [-1.0, 1e20, [0.5, 0.5]])
def test_a_loss_that_cannot_be_is_not_heard_and_said_once(lie: Any, log: pytest.LogCaptureFixture) -> None:
    done = run(Client(metrics={"train_loss": lie}).grid(2), "all", 3, radio=instant())
    assert all(r.delivered == [0, 1] for r in done.rounds)
    assert np.isnan(heard(done).losses).all()
    assert heard(done).heard_round.tolist() == [-1, -1]
    assert len([line for line in log.messages if "reports nothing that can be used: its 'train_loss' is" in line]) == 2


def test_another_name_for_the_loss() -> None:
    metrics = {"nll": 2.5, "nll_rms": 3.5}
    done = run(Client(metrics=metrics).grid(2), Asks("nothing", k=2), 1, loss_metric="nll", budget_s=100.0)
    assert heard(done).losses.tolist() == [2.5, 2.5]
    assert heard(done).rms_losses.tolist() == [3.5, 3.5]
    [view] = SEEN
    assert (view.left_s, view.clock_s) == (100.0, 0.0)


def test_late_answers_do_not_count_and_waiting_for_them_is_part_of_the_round(log: pytest.LogCaptureFixture) -> None:
    """Device 2 does not answer by the first stage's deadline; the second stage's is from the start of the round."""

    def delay_s(m: Message) -> float:
        slow = m.metadata.dst_node_id == 102
        return {"query.fedcell_loss": math.inf if slow else 0.0, "train": 0.1}.get(m.metadata.message_type, 0.0)

    done = run(Client("loss").grid(3, delay_s), Asks("loss", d=3, k=2), 1, slack=1.0, grace_s=2.0, radio=fc.Cell())
    [round_1] = done.rounds
    assert (round_1.answered, round_1.delivered) == ([0, 1], [0, 1])
    assert "fedcell: no answer of 2: too late" in log.text
    assert round_1.waited_s >= 2.0
    assert round_1.planned_s > round_1.waited_s
    assert round_1.round_s > round_1.waited_s + 0.1
    assert all(s is not None and s > round_1.waited_s for s in round_1.finish_s)
    assert round_1.clock_s >= round_1.round_s


def test_a_round_ends_when_enough_usable_models_are_there() -> None:
    """Three of five are needed; device 0 fails at once, device 4 never comes. Who is late has not failed."""

    def delay_s(m: Message) -> float:
        delays = {101: 1.0, 102: 1.0, 103: 1.0, 104: math.inf}
        return delays.get(m.metadata.dst_node_id, 0.0) if m.metadata.message_type == "train" else 0.0

    client = Client()

    def train(m: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 0:
            raise RuntimeError("the sensor is gone")
        return client.train(m, context)

    app = ClientApp()
    report_device(app, Report(samples=100))
    app.train()(train)
    grid = LocalGrid({100 + i: node(app, i) for i in range(5)}, delay_s)
    done = run(grid, "random:k=3,overcommit=1.6", 1)
    [round_1] = done.rounds
    assert round_1.devices == [0, 1, 2, 3, 4]
    assert round_1.delivered == [1, 2, 3]
    assert round_1.late == [4]
    assert done._planner.roster.knowledge.failures.tolist() == [1, 0, 0, 0, 0]


def test_a_model_that_is_late_is_not_one_of_those_that_are_enough() -> None:
    """Two of three are needed. Device 0 is planned to take no time and comes after 1.5 s, the others after 2 s."""
    client = Client()
    app = ClientApp()
    planned_s = {0: 0.01, 1: 30.0, 2: 30.0}
    report_device(app, lambda c: Report(compute_s=planned_s[int(str(c.node_config["partition-id"]))], upload_s=0.01))
    app.train()(client.train)

    def delay_s(m: Message) -> float:
        late = m.metadata.dst_node_id == 100
        return (1.5 if late else 2.0) if m.metadata.message_type == "train" else 0.0

    grid = LocalGrid({100 + i: node(app, i) for i in range(3)}, delay_s)
    done = run(grid, "random:k=2,overcommit=1.5", 1, grace_s=0.1, radio="dedicated")
    assert (done.rounds[0].delivered, done.rounds[0].late) == ([1, 2], [0])


def test_a_question_and_differential_privacy_do_not_go_together() -> None:
    private = DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0), 0.1, 1.0, 2)
    with pytest.raises(InputError, match="DifferentialPrivacyServerSideFixedClipping does not hide their answers"):
        run(Client("loss").grid(2), Asks("loss", d=2, k=2), strategy=private)
