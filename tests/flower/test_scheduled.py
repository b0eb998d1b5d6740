"""Whole runs of Scheduled in this process: what happens to devices that are slow, fail, lie, or say nothing."""

import inspect
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    FedAvg,
    Result,
)
from flwr.supercore.inflatable.inflatable_object import UnexpectedObjectContentError

import fedcell as fc
from fedcell.errors import InputError
from fedcell.flower import CellRadio, DedicatedRadio, Report, Scheduled, ScheduledRound, report_device, timed
from fedcell.flower import scheduled as scheduling
from fedcell.flower.scheduled import GIVE_UP_AFTER
from flower.local import LocalGrid, node
from harness import python

Reports = Callable[[Context], Report]


class Client:
    """An app whose device i adds 2^i to the model, and fails in the given trainings (from 0)."""

    def __init__(
        self,
        report: Report | Reports | None = None,
        fails: Callable[[int, int], bool] = lambda *_: False,
        **kwargs: Any,
    ) -> None:
        self.app, self.fails = ClientApp(**({"mods": [timed]} | kwargs)), fails
        self.trained: list[tuple[int, dict[str, Any]]] = []
        self.times: dict[int, int] = {}
        if report is not None:
            report_device(self.app, report)
        self.app.train()(self.train)
        self.app.evaluate()(lambda message, _: Message(message.content, reply_to=message))

    def train(self, message: Message, context: Context) -> Message:
        i = int(str(context.node_config["partition-id"]))
        config = next(iter(message.content.config_records.values()))
        self.trained.append((i, dict(config)))
        time = self.times[i] = self.times.get(i, -1) + 1
        if self.fails(i, time):
            raise RuntimeError("the sensor is gone")
        old = next(iter(message.content.array_records.values()))
        new = ArrayRecord({name: Array(array.numpy() + np.float32(2**i)) for name, array in old.items()})
        records: dict[str, Any] = {"arrays": new, "metrics": MetricRecord({"num-examples": 1, "loss": 0.5})}
        return Message(RecordDict(records), reply_to=message)

    def grid(self, count: int, delay_s: Callable[[Message], float] = lambda _: 0.0) -> LocalGrid:
        """Devices 0 to count - 1; their node ids are 100, 101, ..."""
        return LocalGrid({100 + i: node(self.app, i) for i in range(count)}, delay_s)


def model() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(3, np.float32))})


class Done(NamedTuple):
    """A run that has ended."""

    scheduled: Scheduled
    result: Result

    @property
    def rounds(self) -> list[ScheduledRound]:
        return self.scheduled.rounds

    @property
    def weights(self) -> list[float]:
        return [float(value) for value in self.result.arrays["w"].numpy()]


def run(grid: LocalGrid, policy: str = "all", rounds: int = 3, **settings: Any) -> Done:
    """A run of FedAvg, with settings of Scheduled and of its start."""
    given: dict[str, Any] = {"strategy": FedAvg(fraction_evaluate=0.0), "nodes": len(grid.nodes), "poll_s": 0.01}
    given |= settings
    start = {name: given.pop(name) for name in ("train_config", "evaluate_fn", "timeout") if name in given}
    scheduled = Scheduled(given.pop("strategy"), policy, **given)
    return Done(scheduled, scheduled.start(grid, model(), num_rounds=rounds, **start))


def training_takes(seconds: Callable[[int], float]) -> Callable[[Message], float]:
    """Delays of training messages by device; queries are answered at once."""
    return lambda m: seconds(m.metadata.dst_node_id - 100) if m.metadata.message_type == "train" else 0.0


# --- nothing fails silently ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [Report(samples=600, snr_db=12.0), None])
def test_a_device_whose_time_is_unknown_has_no_deadline(report: Report | None) -> None:
    """Training takes many times what the grace would allow for; the first round finds out."""
    client = Client(report)
    done = run(client.grid(2, training_takes(lambda _: 0.5)), grace_s=0.05, slack=1.5)
    assert [r.delivered for r in done.rounds] == [[0, 1]] * 3
    assert done.weights == [3 * 1.5] * 3


def test_a_device_of_unknown_time_is_waited_for_until_flowers_timeout(log: pytest.LogCaptureFixture) -> None:
    client = Client()
    delay_s = training_takes(lambda i: np.inf if i == 1 else 0.0)
    done = run(client.grid(2, delay_s), rounds=1, timeout=0.3)
    assert done.rounds[0].delivered == [0]
    assert done.rounds[0].round_s >= 0.3
    assert "missing: 1" in log.text


def test_a_reply_that_comes_after_its_round_is_learnt_and_its_device_is_planned_with_it() -> None:
    """Device 1 says 0.01 s and takes 1.5: its round is over long before. Nobody waits, but the reply is taken."""
    client = Client(lambda c: Report(compute_s=0.01 if c.node_config["partition-id"] else 0.5, upload_s=0.01))
    delay_s = training_takes(lambda i: 1.5 if i else 0.5)
    done = run(client.grid(2, delay_s), rounds=12, grace_s=0.3, slack=4.0, radio="dedicated")
    assert done.rounds[0].delivered == [0]
    assert done.rounds[0].round_s < 1.5
    assert [0, 1] in [r.delivered for r in done.rounds]
    knowledge = done.scheduled._planner.roster.knowledge
    assert knowledge.compute.mean_s[1] >= 1.4
    assert knowledge.failures.tolist() == [0, 0]


def test_or_until_the_budget_is_spent() -> None:
    client = Client()
    done = run(client.grid(2, training_takes(lambda i: np.inf if i else 0.0)), rounds=1, budget_s=1.2)
    assert done.rounds[0].delivered == [0]
    assert done.rounds[0].round_s >= 1.2


def test_a_round_without_a_model_does_not_count(log: pytest.LogCaptureFixture) -> None:
    client = Client(Report(), fails=lambda _, time: time < 2)
    done = run(client.grid(1), rounds=2)
    assert [r.delivered for r in done.rounds] == [[], [], [0], [0]]
    assert done.weights == [2.0] * 3
    assert [line for line in log.messages if line.startswith("[ROUND")] == [
        "[ROUND 1/2]",
        "[ROUND 2/3]",
        "[ROUND 3/4]",
        "[ROUND 4/4]",
    ]


def test_a_run_that_learns_nothing_is_an_error(log: pytest.LogCaptureFixture) -> None:
    client = Client(Report(), fails=lambda *_: True)
    with pytest.raises(InputError, match=f"no node brought a model that could be used in {GIVE_UP_AFTER} rounds"):
        run(client.grid(2), rounds=3)
    assert "the sensor is gone" in log.text


def test_a_run_whose_devices_all_fail_later_keeps_its_model(log: pytest.LogCaptureFixture) -> None:
    client = Client(Report(), fails=lambda _, time: time > 0)
    done = run(client.grid(1), rounds=3)
    assert done.weights == [1.0] * 3
    assert len(done.rounds) == 1 + GIVE_UP_AFTER
    assert "no node has brought a model in the last 10 rounds" in log.text


def test_a_run_that_stopped_for_failures_can_be_resumed(tmp_path: Path) -> None:
    broken = Client(Report(), fails=lambda _, time: time > 0)
    assert run(broken.grid(1), state=tmp_path).weights == [1.0] * 3
    repaired = Client(Report())
    done = run(repaired.grid(1), state=tmp_path)
    assert done.weights == [3.0] * 3
    assert len(done.rounds) == 3 + GIVE_UP_AFTER


def test_a_reply_that_is_no_message_fails_its_node_only(log: pytest.LogCaptureFixture) -> None:
    client = Client(Report(compute_s=0.1))

    class Garbled(LocalGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            replies = super().pull_messages(message_ids)
            if any(r.metadata.src_node_id == 101 and "arrays" in r.content for r in replies if r.has_content()):
                for reply in replies:  # one of them cannot be inflated: the pull ends, and nothing was confirmed
                    self._answers[reply.metadata.reply_to_message_id] = 0.0, reply
                if len(replies) == 1:
                    del self._answers[replies[0].metadata.reply_to_message_id]
                raise UnexpectedObjectContentError("abc", "It has no type.")
            return replies

    done = run(Garbled(client.grid(3).nodes), rounds=2)
    assert [r.delivered for r in done.rounds] == [[0, 2], [0, 2]]
    assert "the reply of device 1 is not used: its app failed: its reply cannot be read" in log.text


def test_a_device_that_always_fails_is_backed_off(log: pytest.LogCaptureFixture) -> None:
    client = Client(Report(upload_s=0.01, compute_s=0.01), fails=lambda i, _: i == 0)
    done = run(client.grid(3), rounds=20)
    chosen = [r.round for r in done.rounds if 0 in r.devices]
    assert chosen == [1, 2, 4, 8, 16]
    assert all(set(r.delivered) == {1, 2} for r in done.rounds)
    assert "device 0 has failed 3 times in a row and is left out for 3 rounds" in log.text


def test_an_absurd_report_does_not_end_a_run_with_a_budget(log: pytest.LogCaptureFixture) -> None:
    client = Client(lambda c: Report(compute_s=0.1, snr_db=-1000.0 if c.node_config["partition-id"] == 1 else 30.0))
    done = run(client.grid(3), "all", budget_s=30.0)
    assert [r.devices for r in done.rounds] == [[0, 2]] * 3
    assert "device 1 would need longer than the budget" in log.text


def test_replies_that_are_not_there_yet_are_asked_for_now_and_then() -> None:
    """Each pull costs the SuperLink something. Two devices need 0.6 s, at a look each 0.2 s."""
    client, pulls = Client(Report(compute_s=0.1)), list[float]()

    class Counting(LocalGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            pulls.append(time.monotonic())
            return super().pull_messages(message_ids)

    done = run(Counting(client.grid(2).nodes, training_takes(lambda _: 0.6)), rounds=1, poll_s=0.2)
    assert done.rounds[0].delivered == [0, 1]
    # 0.6 s and the looks at the reports: far from one at every turn of a loop, however busy the machine.
    assert len(pulls) <= 2 * (2 + math.ceil(done.rounds[0].round_s / 0.2)) + 4


# --- dedicated links -----------------------------------------------------------------------------------------------


def test_without_a_reported_band_every_device_has_its_own_line(log: pytest.LogCaptureFixture) -> None:
    """All train in the first round, which shows who is slow; the fast ones from then on."""
    client = Client()
    delay_s = training_takes(lambda i: 2.0 if i >= 2 else 0.3)
    done = run(client.grid(4, delay_s), "optimal", explore=False)
    assert [r.devices for r in done.rounds] == [[0, 1, 2, 3], [0, 1], [0, 1]]
    assert all(config["fedcell-share"] == 1.0 for _, config in client.trained)
    assert 'assuming that each has a dedicated link (radio="dedicated")' in log.text


def test_nodes_are_told_of_their_whole_blocks() -> None:
    client = Client(lambda c: Report(compute_s=0.1, upload_s=0.01 * (1 + int(str(c.node_config["partition-id"])))))
    done = run(client.grid(3), "all", law="blocks:count=7")
    for i, config in client.trained:
        assert config["fedcell-share"] == config["fedcell-blocks"] / 7
        upload_s = 0.01 * (1 + i) * 7 / config["fedcell-blocks"]
        assert config["fedcell-finish-s"] >= upload_s
    first = [config for _, config in client.trained[:3]]
    assert sum(config["fedcell-blocks"] for config in first) <= 7
    band = fc.allocate([0.01, 0.02, 0.03], [0.1] * 3, law=fc.Blocks(7))
    assert done.rounds[0].shares == band.shares.tolist()
    assert done.rounds[0].planned_s == band.round_s


def test_a_pipe_of_the_server_is_shared() -> None:
    """Three nodes with quick lines into a pipe that takes three times 0.2 s for their models together."""
    client = Client(Report(compute_s=0.0, rate_bps=1e9))
    bits = 8 * sum(len(array.data) for array in model().values())
    done = run(client.grid(3), "all", law=fc.Ingress(bits / 0.2))
    assert done.rounds[0].shares == pytest.approx([1 / 3] * 3)
    assert done.rounds[0].planned_s == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("report", "given", "radio"),
    [
        (Report(snr_db=10.0), None, CellRadio),
        (Report(rate_bps=1e6), None, CellRadio),
        (Report(samples=10, compute_s=1.0), None, DedicatedRadio),
        (Report(rate_bps=1e6), "dedicated", DedicatedRadio),
        (Report(), fc.Cell(), CellRadio),
    ],
)
def test_the_reports_choose_the_radio_unless_it_is_given(report: Report, given: Any, radio: type) -> None:
    client = Client(report)
    done = run(client.grid(2), rounds=1, radio=given)
    assert type(done.scheduled._planner.resolved_radio) is radio


def test_rates_of_dedicated_lines_are_used() -> None:
    client = Client(lambda c: Report(compute_s=0.1, rate_bps=1e6 if c.node_config["partition-id"] else 10.0))
    done = run(client.grid(3), "optimal", radio="dedicated", rounds=1)
    assert done.rounds[0].devices == [1, 2]
    bits = 8 * sum(len(array.data) for array in model().values())
    assert done.rounds[0].planned_s == pytest.approx(0.1 + bits / 1e6)


# --- fitting into Flower -------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_clientapp_does_not_load_the_scheduler() -> None:
    """Flower starts a process for each message to a node; Numba alone would double what it imports."""
    names = "Report, answer_loss, report_device, timed, upload_when_asked"
    code = f"import sys; from fedcell.flower import {names}; print('numba' in sys.modules)"
    assert python(code, cold=True).strip() == "False"


@pytest.mark.parametrize("mod", [fixedclipping_mod, adaptiveclipping_mod])
def test_mods_do_not_meet_the_query(mod: Any) -> None:
    client = Client(Report(samples=600, compute_s=0.1, upload_s=0.2), mods=[mod, timed])
    scheduled = Scheduled(FedAvg(), "all")
    (found,) = scheduled._planner.nodes.discover_nodes(client.grid(1))
    assert scheduled._planner.nodes.devices[found].report == Report(name="0", samples=600, compute_s=0.1, upload_s=0.2)
    assert client.app._mods == [mod, timed]


def test_client_side_clipping_trains_through_its_mod() -> None:
    client = Client(Report(compute_s=0.1), mods=[timed, fixedclipping_mod])
    private = DifferentialPrivacyClientSideFixedClipping(FedAvg(fraction_evaluate=0.0), 1e-9, 1.0, 2)
    done = run(client.grid(2), "random:k=2", strategy=private, rounds=1)
    assert done.rounds[0].delivered == [0, 1]
    assert np.linalg.norm(done.weights) == pytest.approx(1.0, abs=1e-3)


def test_a_strategy_with_a_start_of_its_own_is_refused() -> None:
    class Saving(FedAvg):
        def start(self, *args: Any, **kwargs: Any) -> Result:
            return super().start(*args, **kwargs)

    with pytest.raises(InputError, match=r"Saving has a start\(\) of its own, .* on_round"):
        Scheduled(Saving(), "all")


def test_on_round_is_called_with_the_record_and_the_model_after_each_round() -> None:
    calls: list[tuple[ScheduledRound, float]] = []
    client = Client(Report())
    done = run(
        client.grid(2),
        on_round=lambda record, arrays: calls.append((record, float(arrays["w"].numpy()[0]))),
        evaluate_fn=lambda number, _: MetricRecord({"accuracy": number / 10}),
    )
    assert calls == list(zip(done.rounds, [1.5, 3.0, 4.5], strict=True))
    assert [record.metrics["server"]["accuracy"] for record, _ in calls] == [0.1, 0.2, 0.3]


def test_the_train_config_is_one_object_throughout_the_run() -> None:
    class Decaying(FedAvg):
        def configure_train(self, server_round: int, arrays: Any, config: ConfigRecord, grid: Any) -> Any:
            config["lr"] = float(str(config["lr"])) / 2
            return super().configure_train(server_round, arrays, config, grid)

    client = Client(Report())
    given = ConfigRecord({"lr": 1.0})
    run(client.grid(1), strategy=Decaying(fraction_evaluate=0.0), train_config=given)
    assert [config["lr"] for _, config in client.trained] == [0.5, 0.25, 0.125]
    assert given["lr"] == 0.125


def test_a_query_that_failed_is_asked_again() -> None:
    asked: list[int] = []

    def describe(context: Context) -> Report:
        asked.append(int(str(context.node_config["partition-id"])))
        if asked.count(asked[-1]) == 1:
            raise OSError("the modem is busy")
        return Report(compute_s=0.125, upload_s=0.25)

    client = Client(describe)
    done = run(client.grid(2))
    assert sorted(asked) == [0, 0, 1, 1]
    reports = {device.report for device in done.scheduled._planner.nodes.devices.values()}
    assert {(report.compute_s, report.upload_s) for report in reports} == {(0.125, 0.25)}


def test_a_node_that_cannot_be_reached_is_no_device_until_it_answers() -> None:
    """Flower answers for it; its name is not known, and nothing is known to plan with."""
    client, asked = Client(Report(compute_s=0.1)), []

    class Away(LocalGrid):
        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            sent = super().push_messages(messages := list(messages))
            for message_id, message in zip(sent, messages, strict=True):
                if message.metadata.dst_node_id == 101 and message.metadata.message_type.startswith("query"):
                    asked.append(message_id)
                    if len(asked) == 1:
                        lost = Message(Error(5, "Node Unavailable"), reply_to=message)
                        self._answers[message_id] = 0.0, lost
            return sent

    done = run(Away(client.grid(2).nodes))
    assert [r.names for r in done.rounds] == [["0"], ["0", "1"], ["0", "1"]]
    assert len(asked) == 2


def test_a_node_that_cannot_answer_is_not_asked_for_ever() -> None:
    asked: list[int] = []

    def describe(_: Context) -> Report:
        asked.append(0)
        raise OSError("no modem")

    client = Client(describe)
    run(client.grid(1), rounds=9)
    assert len(asked) == 5


def test_a_metric_that_never_appears_is_said_once(log: pytest.LogCaptureFixture) -> None:
    client = Client(Report())
    evaluate = lambda *_: MetricRecord({"accuracy": 0.9})  # noqa: E731
    done = run(client.grid(1), target_accuracy=0.5, metric="acuracy", evaluate_fn=evaluate)
    assert len(done.rounds) == 3
    (said,) = [line for line in log.messages if "there is no metric" in line]
    assert "'acuracy'" in said
    assert "did you mean 'accuracy'" in said


def test_settings_that_the_policy_overrides_are_said(log: pytest.LogCaptureFixture) -> None:
    client = Client(Report())
    run(client.grid(2), strategy=FedAvg(fraction_train=0.5, min_train_nodes=7, fraction_evaluate=0.0), rounds=1)
    assert "FedAvg's fraction_train = 0.5 is not used: the policy chooses who trains" in log.text
    assert "FedAvg's min_train_nodes = 7 is not used" in log.text
    assert "min_available_nodes =" not in log.text


def test_the_log_looks_like_flowers(log: pytest.LogCaptureFixture) -> None:
    client = Client(Report(compute_s=0.1), fails=lambda i, _: i == 1)
    evaluate = lambda *_: MetricRecord({"accuracy": 0.25})  # noqa: E731
    run(client.grid(2), rounds=1, evaluate_fn=evaluate)
    wanted = iter(
        [
            "Starting Scheduled(FedAvg) strategy:",
            "├── Number of rounds: 1",
            "Initial global evaluation results: {'accuracy': 0.25}",
            "[ROUND 1/1]",
            "configure_train: Sampled 2 nodes (out of 2)",
            "fedcell: scheduled 2 of 2 devices, some of them of unknown times: 0, 1",
            "the reply of device 1 is not used: its app failed: RuntimeError: the sensor is gone",
            "aggregate_train: Received 1 results and 0 failures",
            "; missing: 1",
            "planned/took in s: 0 1.1/",
            "└──> Aggregated MetricRecord: {'loss': 0.5}",
            "Global evaluation",
            "└──> MetricRecord: {'accuracy': 0.25}",
            "Strategy execution finished in",
            "fedcell: rounds trained: 1; clock",
            "Final results:",
            "Aggregated ClientApp-side Train Metrics:",
        ]
    )
    next_wanted: str | None = next(wanted)
    for line in log.messages:
        if next_wanted is not None and next_wanted in line:
            next_wanted = next(wanted, None)
    assert next_wanted is None, log.text


def test_the_clock_starts_with_training_not_with_the_reports() -> None:
    client = Client(Report(compute_s=0.1))
    grid = client.grid(2, lambda m: 1.0 if m.metadata.message_type.startswith("query") else 0.0)
    done = run(grid, rounds=1)
    assert done.rounds[0].clock_s < done.rounds[0].round_s + 1.0


def test_the_reported_radio_must_be_one() -> None:
    with pytest.raises(InputError, match=r"radio is 'dedicatd'; give a Cell, a Radio or 'dedicated'"):
        Scheduled(FedAvg(), "all", radio="dedicatd")  # type: ignore[arg-type]


def test_the_summary_says_what_is_scheduled_what_is_not_used_and_the_strategys_own(
    log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    Scheduled(FedAvg(), "auto", nodes=4, seed=3, state=tmp_path / "state").summary()
    said = [record.getMessage().strip("\t├─> ") for record in log.records]
    assert said[0].startswith("fedcell schedules: auto, seed 3")
    assert said[1] == f"fedcell saves every round in {tmp_path / 'state'}"
    assert said[2].startswith("fedcell: the policy's momentum is not used")
    assert any("FedAvg" in line or "Fraction" in line or "Sampling" in line for line in said[3:])
    log.clear()
    Scheduled(FedAvg(fraction_train=0.5), "all", nodes=4).summary()
    said = [record.getMessage() for record in log.records]
    assert "all, seed 0" in said[0]
    assert "fraction_train" in said[1]
    assert not any("saves" in line or "momentum" in line for line in said)


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    given = {name: one.default for name, one in inspect.signature(Scheduled.__init__).parameters.items()}
    told = {
        "seed": 0, "nodes": 2, "wait_s": 300.0, "answer_s": 60.0, "query_every": 0, "grace_s": 10.0, "explore": True,
        "start_s": 0.0,
    }  # fmt: skip
    assert {name: given[name] for name in told} == told
    start = inspect.signature(Scheduled.start).parameters
    assert (start["num_rounds"].default, start["timeout"].default) == (3, 3600)
    assert scheduling.GIVE_UP_AFTER == 10
