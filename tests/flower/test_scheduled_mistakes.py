"""Whole runs of Scheduled in this process: too few devices, too little time, wrong arguments, and nothing learnt."""

import re
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Bulyan, DifferentialPrivacyServerSideFixedClipping, FedAvg

import fedcell as fc
from fedcell.errors import InputError
from fedcell.flower import CellRadio, Device, Report, Scheduled, ScheduledRound, SimulatedRadio, report_device
from flower.local import LocalGrid
from flower.test_scheduled import Client, model, run


@pytest.mark.parametrize("policy", ["random:k=4", "round_robin:k=4", "proportional_fair:k=4"])
def test_a_policy_of_k_devices_takes_those_that_are_there(policy: str, log: pytest.LogCaptureFixture) -> None:
    """Who rests is woken if there are not enough others; who has left is done without."""
    client = Client(Report(compute_s=0.1, snr_db=10.0), fails=lambda i, count: i == 1 and count in (1, 2))
    grid = client.grid(4)

    def leave(done: ScheduledRound, _: ArrayRecord) -> None:
        if done.round == 5:
            del grid.nodes[102]

    done = run(grid, policy, rounds=7, on_round=leave)
    assert [len(r.devices) for r in done.rounds] == [4, 4, 4, 4, 4, 3, 3]
    assert "the policy wants 4 devices, but only 3 can be scheduled" in log.text


def test_privacy_of_all_nodes_leaves_out_who_joins_later() -> None:
    client = Client(Report(compute_s=0.1))
    grid = client.grid(4)
    late = grid.nodes.pop(103)
    private = DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0), 1e-9, 1.0, 3)

    def join(*_: Any) -> None:
        grid.nodes[103] = late

    done = run(grid, "all", rounds=3, strategy=private, on_round=join)
    assert [len(r.delivered) for r in done.rounds] == [3, 3, 3]


def test_the_budget_ends_a_run_whose_evaluation_takes_long() -> None:
    client = Client(Report(compute_s=0.01, upload_s=0.01))

    def evaluate(*_: Any) -> MetricRecord:
        time.sleep(0.7)
        return MetricRecord({"accuracy": 0.5})

    done = run(client.grid(2), rounds=9, budget_s=1.0, evaluate_fn=evaluate)
    assert 1 <= len(done.rounds) <= 2


def test_evaluation_waits_neither_for_nodes_that_are_not_there_nor_beyond_the_budget() -> None:
    client = Client(Report(compute_s=0.01, upload_s=0.01))
    grid = client.grid(1, lambda m: np.inf if m.metadata.message_type == "evaluate" else 0.0)
    inside = FedAvg(min_available_nodes=10)
    done = run(grid, rounds=2, strategy=inside, budget_s=1.0, grace_s=0.2)
    assert len(done.rounds) == 1
    assert inside.min_available_nodes == 10


def test_a_strategy_that_makes_no_model_has_trained_nothing() -> None:
    with pytest.raises(InputError, match="no model was trained: no node brought a model"):
        run(Client(Report()).grid(6), strategy=Bulyan(num_malicious_nodes=2, fraction_evaluate=0.0))


@pytest.mark.parametrize(
    ("policy", "settings", "reason"),
    [
        ("all", {"budget_s": 1e-6}, "no round can end within the budget of 1e-06 s"),
        ("deadline:seconds=0.001", {}, "deadline:seconds=0.001 scheduled no device in 1 rounds"),
    ],
)
def test_a_run_that_learns_nothing_says_why(policy: str, settings: dict[str, Any], reason: str) -> None:
    client = Client(Report(compute_s=0.1, upload_s=0.1))
    with pytest.raises(InputError, match=f"no model was trained: {reason}"):
        run(client.grid(2), policy, rounds=1, **settings)


def test_a_model_that_cannot_be_trained_is_refused_before_the_first_round() -> None:
    scheduled = Scheduled(FedAvg(fraction_evaluate=0.0), "all")
    bad = ArrayRecord({"w": Array(np.array([np.nan], np.float32))})
    with pytest.raises(InputError, match="initial_arrays cannot be trained: "):
        scheduled.start(Client(Report()).grid(2), bad)


def test_each_start_is_a_run_of_its_own() -> None:
    scheduled = Scheduled(FedAvg(fraction_evaluate=0.0), "all", nodes=2)
    grid = Client(Report()).grid(2)
    for _ in range(2):
        result = scheduled.start(grid, model(), num_rounds=2)
        assert result.arrays["w"].numpy().tolist() == [3.0] * 3
        assert len(scheduled.rounds) == 2


def test_a_finished_run_is_read_back_without_nodes(tmp_path: Path) -> None:
    evaluate: dict[str, Any] = {"evaluate_fn": lambda number, _: MetricRecord({"accuracy": number / 10})}
    first = run(Client(Report()).grid(2), rounds=2, state=tmp_path, **evaluate)
    done = run(LocalGrid({}), rounds=2, state=tmp_path, nodes=2, **evaluate)
    assert done.weights == [3.0] * 3
    assert done.result.evaluate_metrics_serverapp == first.result.evaluate_metrics_serverapp
    assert sorted(done.result.evaluate_metrics_serverapp) == [0, 1, 2]


def test_a_resumed_run_does_not_wait_for_nodes_that_are_gone(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    run(Client(Report()).grid(3), rounds=1, state=tmp_path, nodes=3)
    done = run(Client(Report()).grid(2), rounds=2, state=tmp_path, nodes=3)
    assert [r.names for r in done.rounds] == [["0", "1", "2"], ["0", "1"]]
    assert "nodes are connected; waiting" not in log.text


def test_a_node_that_no_longer_answers_is_asked_and_waited_for_once() -> None:
    """Device 1 answers its first query only; with query_every the other one is asked again in each round."""
    client, asked = Client(Report(compute_s=0.1)), Counter[int]()

    def delay_s(message: Message) -> float:
        query = message.metadata.message_type.startswith("query")
        asked[message.metadata.dst_node_id] += query
        return np.inf if query and message.metadata.dst_node_id == 101 and asked[101] > 1 else 0.0

    done = run(client.grid(2, delay_s), rounds=5, query_every=1, answer_s=1.0)
    assert asked == {100: 5, 101: 2}
    waits_s = [later.clock_s - later.round_s - earlier.clock_s for earlier, later in pairwise(done.rounds)]
    assert sum(wait_s >= 1.0 for wait_s in waits_s) == 1


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"budget_s": "60"}, "budget_s is '60'; give a positive number"),
        ({"target_accuracy": "0.9"}, "target_accuracy is '0.9'"),
        ({"radio": 3}, "radio is 3; give a Cell"),
        ({"law": "blocs"}, "unknown law 'blocs'; did you mean 'blocks'"),
        ({"law": "blocks:0"}, "count of the law blocks is 0"),
        ({"law": "ingress"}, "the law ingress needs the rate of the server's uplink"),
        ({"law": 3}, "law is 3; give a law such as fedcell.Blocks"),
        ({"law": "blocks:2", "radio": "dedicated"}, "radio is 'dedicated', but the law blocks:count=2 shares a band"),
        (
            {"law": "power", "radio": CellRadio(fc.Cell())},
            "law is 'power', but CellRadio has its own; give the law",
        ),
        ({"radio": fc.Cell}, "radio is <class"),
        ({"policy": fc.Optimal}, "policy is <class"),
        ({"state": ""}, "state is ''; give the path"),
        ({"on_round": 3}, "on_round is 3; give a function"),
        ({"explore": "no"}, "explore is 'no'"),
        ({"num_rounds": 2.5}, "num_rounds is 2.5; give a whole number"),
        ({"timeout": 0}, "timeout is 0; give a finite number"),
        ({"initial_arrays": [1.0]}, "initial_arrays is a list; give an ArrayRecord"),
        ({"evaluate_fn": lambda *_: 0.5}, "evaluate_fn returned a float; return a MetricRecord"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_sentence(settings: dict[str, Any], complaint: str) -> None:
    names = ("num_rounds", "timeout", "evaluate_fn", "initial_arrays")
    start: dict[str, Any] = {"initial_arrays": model()} | {n: settings[n] for n in names if n in settings}
    given: dict[str, Any] = {"policy": "all"} | {n: v for n, v in settings.items() if n not in names}
    with pytest.raises(InputError, match=re.escape(complaint)) as caught:
        Scheduled(FedAvg(fraction_evaluate=0.0), **given).start(Client(Report()).grid(2), **start)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("describe", "reason"),
    [
        (lambda _: {"samples": 3}, "the report function returned a dict; return a Report"),
        (lambda _: None, "the report function returned a NoneType; return a Report"),
    ],
)
def test_a_report_function_must_return_a_report(describe: Any, reason: str, log: pytest.LogCaptureFixture) -> None:
    run(Client(describe).grid(1), rounds=1)
    assert f"the report of device 0 cannot be used: InputError: {reason}" in log.text


def test_reports_take_numpys_numbers_and_say_what_is_misspelt() -> None:
    numpys: dict[str, Any] = {"samples": np.int64(300), "snr_db": np.float32(2.5)}
    assert repr(Report(**numpys)) == repr(Report(samples=300, snr_db=2.5))
    with pytest.raises(InputError, match="unknown field 'sampels'; did you mean 'samples'"):
        report_device(ClientApp(), sampels=3)
    wrong: Any = {"samples": 3}
    with pytest.raises(InputError, match="report is a dict; give a Report"):
        report_device(ClientApp(), wrong)


def test_a_node_without_a_rate_is_named() -> None:
    radio = SimulatedRadio(fc.World(fc.Cell(rate=fc.Mcs64()), fc.Devices(2, power_w_per_hz=[1e-6, 1e-15])), seed=1)
    with pytest.raises(InputError, match=r"device 1 has no rate in this round \(-.* dB\), but its node is there"):
        radio.look([Device("0", Report()), Device("1", Report())], 0, 0.0)
