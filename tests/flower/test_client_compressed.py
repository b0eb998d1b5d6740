"""Rounded uploads of real ClientApps: what the mod sends, what the server makes of it, and who cannot do it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg

import fedcell as fc
from fedcell.cli.flower import _times_table
from fedcell.errors import InputError
from fedcell.flower import Report, Scheduled, compressed, epochs_of, report_device, timed
from fedcell.flower.client import ROUNDED, SUMS, parse_report
from fedcell.flower.replies import faults, restore_model, train_requirements
from fedcell.flower.state import Run
from fedcell.quantisation import levels_of, sums_of, upload_bits
from flower.local import LocalGrid, node

RNG = np.random.default_rng(0)
START: dict[str, Any] = {
    "w": RNG.normal(size=(30, 7)).astype(np.float32),
    "steps": np.array(5, np.int64),
    "b": np.zeros(9, np.float64),
}
UPDATE = {"w": RNG.normal(size=(30, 7)), "steps": np.array(1), "b": np.linspace(-3.0, 1.0, 9)}


@dataclass(frozen=True)
class Decides(fc.All):
    """Everybody, for so many epochs, with so many bits a weight."""

    epochs: float = 0.5
    bits: float = 4.0
    uses_sums: ClassVar[bool] = True

    def local_epochs(self, view: fc.RoundView, devices: Any) -> Any:
        return np.full(devices.size, self.epochs)

    def upload_bits(self, view: fc.RoundView, devices: Any) -> Any:
        return np.full(devices.size, self.bits)


def model(arrays: dict[str, Any]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def train(message: Message, _: Context) -> Message:
    """Add the update."""
    old = message.content.array_records["arrays"]
    arrays = {name: (old[name].numpy() + UPDATE[name]).astype(START[name].dtype) for name in old}
    told = MetricRecord({"num-examples": 1, "epochs": epochs_of(message, otherwise=1.0)})
    return Message(RecordDict({"arrays": model(arrays), "metrics": told}), reply_to=message)


def sent(bits: float, **config: Any) -> Message:
    """The reply of a node with the mod."""
    app = ClientApp(mods=[timed, compressed])
    app.train()(train)
    told = ConfigRecord({"fedcell-round": 3, "fedcell-bits": bits, "fedcell-key": "7 3 0", **config})
    message = Message(RecordDict({"arrays": model(START), "config": told}), 1, "train")
    return app(message, node(app, 0)[1])


@pytest.mark.parametrize("bits", [2, 3, 8, 16])
def test_what_is_sent_has_the_planned_size_and_becomes_an_ordinary_model(bits: int) -> None:
    reply = sent(bits)
    arrays = reply.content.array_records["arrays"]
    assert set(arrays) == {ROUNDED, "steps"}
    assert len(arrays[ROUNDED].data) == np.ceil(upload_bits(219, 2, bits) / 8)
    assert restore_model(reply.content, model(START)) is None
    restored = reply.content.array_records["arrays"]
    assert list(restored) == list(START)
    assert restored["steps"].numpy() == 6
    for name in ("w", "b"):
        got, step = restored[name].numpy(), np.abs(UPDATE[name]).max() / levels_of(bits)
        assert got.dtype == START[name].dtype
        assert np.abs(got - START[name] - UPDATE[name]).max() <= step * 1.001
        assert bits == 16 or np.abs(got - START[name] - UPDATE[name]).max() > step / 10


def test_with_32_bits_and_without_a_plan_the_reply_is_the_apps_own() -> None:
    for reply in (sent(32.0), sent(4.0, **{"fedcell-bits": 32.0, "fedcell-wants-sums": True})):
        assert list(reply.content.array_records["arrays"]) == list(START)
        assert SUMS not in reply.content.metric_records["metrics"]


def test_the_sums_of_the_update_before_it_was_rounded_come_with_it_if_they_are_wanted() -> None:
    floats = np.concatenate([UPDATE["w"].ravel(), UPDATE["b"]]).astype(np.float32)
    reply = sent(2, **{"fedcell-wants-sums": True})
    assert reply.content.metric_records["metrics"][SUMS] == pytest.approx(list(sums_of(floats, [210, 9])), rel=1e-5)
    restore_model(reply.content, model(START))
    assert SUMS not in reply.content.metric_records["metrics"]  # which the strategy averages
    assert SUMS not in sent(2).content.metric_records["metrics"]


def faulty(change: Callable[[bytes], bytes], extra: dict[str, Any] | None = None) -> str | None:
    """Why the server refuses a reply whose bytes were changed."""
    reply = sent(3)
    arrays = reply.content.array_records["arrays"]
    data = change(arrays[ROUNDED].data)
    others = {name: array for name, array in arrays.items() if name != ROUNDED}
    changed = {ROUNDED: Array("uint8", (len(data),), "x", data), **others, **model(extra or {})}
    reply.content["arrays"] = ArrayRecord(changed)
    required = train_requirements(FedAvg(), model(START))
    return faults({1: reply}, required, {1: model(START)}).get(1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:0], "not a rounded update"),
        (lambda data: b"XX" + data[2:], "not a rounded update"),
        (lambda data: data[:2] + b"\x02" + data[3:], "version 2 and 3 bits"),
        (lambda data: data[:3] + b"\x01" + data[4:], "version 1 and 1 bits"),
        (lambda data: data[:3] + b"\x11" + data[4:], "version 1 and 17 bits"),
        (lambda data: data[:4] + b"\xff\xff\xff\xff" + data[8:], "4294967295 tensors"),
        (lambda data: data[:-1], "unlike the model's 2"),
        (lambda data: data + b"\x00", "unlike the model's 2"),
        (lambda data: data[:8] + np.float32(np.nan).tobytes() + data[12:], "negative or not finite"),
        (lambda data: data[:8] + np.float32(-1.0).tobytes() + data[12:], "negative or not finite"),
        (lambda data: data[:8] + np.float32(3e38).tobytes() + data[12:], "not finite or larger than 1e\\+15"),
        (lambda data: data[:16] + b"\xff" * (len(data) - 17) + b"\x00", "a level above 3"),
        (lambda data: data[:-1] + bytes([data[-1] | 1]), "does not end in zeros"),
    ],
)
def test_bytes_that_are_no_such_update_are_refused(change: Any, reason: str) -> None:
    assert faulty(lambda data: data) is None
    fault = faulty(change)
    assert fault is not None
    assert re.search(reason, fault)


def test_arrays_beside_the_update_are_refused() -> None:
    assert "unlike the model's 1" in str(faulty(lambda data: data, {"w": START["w"]}))
    assert faulty(lambda data: data, {"other": np.zeros(2)}) == "its array 'other' is not in the model"


def _instead(data: bytes, _: bytes) -> bytes:
    return data


def test_any_bytes_at_all_end_no_run() -> None:
    """Whatever is not refused becomes a model that the strategy can take."""
    rng, good = np.random.default_rng(1), bytes(sent(3).content.array_records["arrays"][ROUNDED].data)
    refused = 0
    for _ in range(300):
        data = bytearray(good)
        for place in rng.integers(len(good), size=rng.integers(1, 4)):
            data[place] = rng.integers(256)
        cut = bytes(data[: rng.integers(len(data))]) if rng.random() < 0.2 else bytes(data)
        refused += faulty(partial(_instead, cut)) is not None
    assert 50 < refused < 300


# --- whole runs -------------------------------------------------------------------------------------------------------


def run(policy: fc.Policy, *mods: Any, strategy: Any = None, rounds: int = 3, **report: Any) -> Scheduled:
    app = ClientApp(mods=list(mods))
    report_device(app, Report(samples=10, compute_s=0.01, upload_s=0.01, **report))
    app.train()(train)
    scheduled = Scheduled(strategy or FedAvg(fraction_evaluate=0.0), policy, nodes=3, poll_s=0.001)
    scheduled.start(LocalGrid({100 + i: node(app, i) for i in range(3)}), model(START), num_rounds=rounds)
    return scheduled


def test_a_policy_decides_work_and_bits_of_clients_that_can(log: pytest.LogCaptureFixture) -> None:
    done = run(Decides(), timed, compressed, any_epochs=True)
    for one in done.rounds:
        assert (one.epochs, one.bits) == ([0.5] * 3, [4.0] * 3)
        assert one.delivered == [0, 1, 2]
        assert one.metrics["train"]["epochs"] == 0.5
        assert (one.record().plan.bits == 4.0).all()  # type: ignore[union-attr]
    reports = done._planner.roster.knowledge.reports
    assert np.isfinite(reports.peaks).all()  # type: ignore[attr-defined]
    assert "does not decide" not in log.text
    assert ", 0.5 epochs, 4 bits a weight: 0, 1, 2" in log.text


def test_what_devices_were_told_is_in_the_table_of_the_rounds() -> None:
    done = [run(Decides(), timed, compressed, any_epochs=True), run(fc.All(), timed)]
    runs = [Run(str(i), 0, "FedAvg", one.rounds, ["0", "1", "2"], None, None) for i, one in enumerate(done)]
    table = _times_table(runs)
    told = {str(column.header): list(column.cells) for column in table.columns[-2:]}
    assert told == {"epochs": ["0.5", "-"], "bits a weight": ["4", "-"]}
    assert str(_times_table(runs[1:]).columns[-1].header) == "missing"


def test_what_clients_cannot_do_is_said_once_and_the_rest_decided(log: pytest.LogCaptureFixture) -> None:
    done = run(Decides(), timed)
    assert [(one.epochs, one.bits) for one in done.rounds] == [([1.0] * 3, [32.0] * 3)] * 3
    assert log.text.count("3 of 3 devices (0, 1, 2) send whole models, so the policy does not decide the size") == 1
    assert log.text.count("always train as long as they do, so the policy does not decide that") == 1
    assert [one.delivered for one in done.rounds] == [[0, 1, 2]] * 3


def test_a_client_that_says_it_can_and_sends_a_whole_model_is_found_out(log: pytest.LogCaptureFixture) -> None:
    done = run(Decides(), timed, any_epochs=True, any_bits=True)
    assert [one.bits for one in done.rounds] == [[4.0] * 3, [32.0] * 3, [32.0] * 3]
    assert log.text.count("send whole models, so the policy does not decide") == 1
    assert done.rounds[0].delivered == [0, 1, 2]  # a model is a model


def test_a_policy_without_such_settings_goes_on_deciding(log: pytest.LogCaptureFixture) -> None:
    @dataclass(frozen=True)
    class Own(fc.All):
        def upload_bits(self, view: fc.RoundView, devices: Any) -> Any:
            return np.full(devices.size, 8.0)

    done = run(Own(), timed)
    assert [one.bits for one in done.rounds] == [[8.0] * 3] * 3
    assert log.text.count("send whole models") == 1


def test_clipping_on_the_clients_side_and_rounding_do_not_go_together() -> None:
    strategy = DifferentialPrivacyClientSideFixedClipping(FedAvg(fraction_evaluate=0.0), 0.1, 1.0, 3)
    with pytest.raises(InputError, match="which may make an update longer than DifferentialPrivacyClientSide"):
        run(Decides(), timed, compressed, strategy=strategy)


@pytest.mark.parametrize("field", ["any_epochs", "any_bits"])
def test_a_report_says_yes_or_no(field: str) -> None:
    with pytest.raises(InputError, match=f"{field} is 1; give True or False"):
        parse_report({field: 1})
