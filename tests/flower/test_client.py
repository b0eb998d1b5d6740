"""The ClientApp's side: reports and their checks, answers, and what the mods do with each kind of message."""

import math
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcell.errors import InputError
from fedcell.flower import answer_loss, client, compressed, epochs_of, report_device, timed, upload_when_asked
from fedcell.flower.client import Report, parse_report, update_norm, update_of
from fedcell.quantisation import upload_bits
from flower.local import node

Node = tuple[ClientApp, Context]


def answered(reply: Message, name: str = client.RECORD) -> dict[str, Any]:
    found: Any = reply.content[name]
    return dict(found)


@pytest.mark.parametrize(
    ("values", "compute_s"),
    [
        ({"samples": 3000, "seconds_per_sample": 2e-3, "samples_per_second": 4000}, 6.75),
        ({"samples": 3000, "samples_per_second": 1000}, 3.0),
        ({"samples": 3000, "seconds_per_sample": 2e-3}, 6.0),
        ({"samples": 3000, "samples_per_second": 1000, "compute_s": 1.5}, 1.5),
        ({"samples": 3000}, math.nan),
        ({"samples_per_second": 1000}, math.nan),
        ({}, math.nan),
    ],
)
def test_the_expected_training_time_of_a_report(values: dict[str, float], compute_s: float) -> None:
    assert Report(**values).expected_compute_s() == pytest.approx(compute_s, nan_ok=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", client._BOUNDS)
def test_a_reported_number_is_within_its_bounds(field: str) -> None:
    least, most = client._BOUNDS[field]
    good: list[Any] = [least, most, np.float64(most)]
    for value in good:
        kept = getattr(parse_report({field: value}), field)
        assert (kept, type(kept)) == (value, float)
    bad: list[Any] = [least - 1.0 if least <= 0.0 else least / 1.01, most * 1.01, math.nan, True, "5", [1.0]]
    for value in bad:
        with pytest.raises(InputError, match=rf"{field} is .*; give a number from {re.escape(f'{least:g}')} to "):
            parse_report({field: value})


def test_the_bounds_of_reports() -> None:
    assert client._BOUNDS["samples_per_second"] == (1e-15, 1e300)
    assert client._BOUNDS["samples"] == (1.0, 1e15)
    assert client._BOUNDS["seconds_per_sample"] == (0.0, 1e15)
    assert client._BOUNDS["compute_s"][0] == 0.0
    assert client._BOUNDS["snr_db"] == (-1000.0, 1000.0)
    assert client._BOUNDS["rate_bps"] == (1e-15, 1e18)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "x" * 201}, "name is 'x{50}'; give at most 200 characters, all printable"),
        ({"name": "a\nb"}, "give at most 200 characters, all printable"),
        ({"name": 7}, "name is '7'; give at most"),
        ({"any_epochs": 1}, "any_epochs is 1; give True or False"),
        ({"any_bits": "yes"}, "any_bits is 'yes'; give True or False"),
        ({"profile": []}, "profile has 0 numbers; give 1 to 4096 numbers from -1e[+]06 to 1e[+]06"),
        ({"profile": [0.0] * 4097}, "profile has 4097 numbers"),
        ({"profile": [[1.0]]}, r"profile is '\[\[1.0\]\]'; give 1 to"),
        ({"profile": [[1.0], [1.0, 2.0]]}, r"profile is '\[\[1.0\], \[1.0, 2.0\]\]'"),
        ({"profile": ["a"]}, "profile is .*; give 1 to"),
        ({"profile": [0.0, -1.1e6, math.nan]}, r"profile\[1\] is -1100000.0"),
        ({"profile": [0.0, 1.0, math.nan]}, r"profile\[2\] is nan"),
        ({"snr": 3.0}, "unknown field 'snr'; did you mean 'snr_db'"),
    ],
)
def test_a_bad_report_is_one_sentence(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_report(values)


def test_a_good_report_is_kept_as_it_is() -> None:
    report = Report(name="x" * 200, profile=np.array([1, -(10**6)]), any_epochs=True)  # type: ignore[arg-type]
    assert (report.name, report.profile, report.any_epochs, report.any_bits) == ("x" * 200, (1.0, -1e6), True, False)
    assert len(Report(profile=[0.5] * 4096).profile or ()) == 4096


def query(app: ClientApp, **node_config: Any) -> dict[str, Any]:
    """What a node answers to fedcell's question."""
    context = Context(1, 42, node_config, RecordDict(), {})
    reply = app(Message(RecordDict(), 42, client.QUERY), context)
    return answered(reply)


def test_a_device_reports_what_it_was_given_under_its_own_name() -> None:
    app = ClientApp(mods=[timed])
    report_device(app, samples=600, snr_db=12.0, profile=(0.5, -0.5))
    said = {"samples": 600, "snr_db": 12.0, "profile": [0.5, -0.5], "any_epochs": False, "any_bits": False}
    assert query(app, **{"partition-id": 3}) == {"name": "3", **said}
    assert query(app) == {"name": "42", **said}
    other = ClientApp(mods=[compressed])
    report_device(other, lambda context: Report(name=f"pi-{context.node_id}"))
    assert query(other) == {"name": "pi-42", "any_epochs": False, "any_bits": True}
    fixed = ClientApp()
    report_device(fixed, Report(name="mine", any_bits=True))
    assert query(fixed) == {"name": "mine", "any_epochs": False, "any_bits": True}


def test_a_report_that_fails_is_told_to_the_server_in_500_characters() -> None:
    app = ClientApp()

    def fails(_: Context) -> Report:
        raise RuntimeError("x" * 600)

    report_device(app, fails)
    assert query(app) == {"name": "42", client.FAULT: "RuntimeError: " + "x" * (500 - len("RuntimeError: "))}
    wrong = ClientApp()
    report_device(wrong, lambda _: {"samples": 1})  # type: ignore[arg-type, return-value]
    assert query(wrong)[client.FAULT] == "InputError: the report function returned a dict; return a Report"
    with pytest.raises(InputError, match="was given both a report and fields of a report"):
        report_device(ClientApp(), Report(), samples=1)
    with pytest.raises(InputError, match="report is a int; give a Report, or a function that returns one"):
        report_device(ClientApp(), 7)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="loss is a float; give a function of a Message and a Context"):
        answer_loss(ClientApp(), 0.5)  # type: ignore[arg-type]


START: dict[str, Any] = {"w": np.array([1.0, 2.0, 2.0], np.float32), "steps": np.array(5, np.int64), "b": np.zeros(2)}


def record(arrays: dict[str, Any]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def train_message(kind: Any = "train", arrays: Any = None, **config: Any) -> Message:
    content: Any = {"arrays": record(START if arrays is None else arrays), "config": ConfigRecord(config)}
    return Message(RecordDict(content), 42, kind)


def trains(*mods: Any, add: float = 3.0, drop: tuple[str, ...] = ()) -> Node:
    """A node whose training adds a number to all arrays, and sends them all but some."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = message.content.array_records["arrays"]
        new = {k: (a.numpy() + add).astype(a.numpy().dtype) for k, a in arrays.items() if k not in drop}
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": record(new), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return node(app, 0)


def test_training_is_timed_and_the_first_of_a_process_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    client._HAS_TRAINED.clear()
    seconds = iter([10.0, 12.5, 20.0, 20.5])
    monkeypatch.setattr("fedcell.flower.client.time.monotonic", lambda: next(seconds))
    app, context = trains(timed)
    said = [answered(app(train_message(), context)) for _ in range(2)]
    assert said == [{"train_s": 2.5, "first": True}, {"train_s": 0.5, "first": False}]
    assert client.RECORD not in app(train_message("evaluate"), context).content


def test_epochs_are_those_of_the_message_or_the_apps_own() -> None:
    assert epochs_of(train_message(**{"fedcell-round": 0, "fedcell-epochs": 0.25}), otherwise=2.0) == 0.25
    assert epochs_of(train_message(**{"fedcell-round": 0}), otherwise=2.0) == 2.0
    assert epochs_of(train_message(**{"fedcell-epochs": 0.25}), otherwise=2.0) == 2.0  # not fedcell's
    assert epochs_of(train_message("evaluate", **{"fedcell-round": 0, "fedcell-epochs": 0.25}), otherwise=2.0) == 2.0


def test_updates_are_of_the_arrays_that_are_of_floats_in_both() -> None:
    before, after = record(START), record({"w": START["w"] + 2.0, "steps": np.array(9), "b": np.array([3.0, 4.0])})
    update = update_of(before, after)
    assert update is not None
    assert update.tolist() == [2.0, 2.0, 2.0, 3.0, 4.0]
    assert update_norm(before, after) == pytest.approx(math.sqrt(3 * 4 + 9 + 16))
    averaged = record({**START, "steps": np.array(5.0)})  # what the server makes of a count
    assert update_norm(averaged, after) == update_norm(before, after)
    for pair in (
        (None, after),
        (before, None),
        (before, record({"w": np.ones(4)})),
        (before, record({"v": np.ones(3)})),
    ):
        assert update_of(*pair) is None
        assert math.isnan(update_norm(*pair))


HOLD: dict[str, Any] = {"fedcell-round": 4, "fedcell-hold": True}
SEND: dict[str, Any] = {"fedcell-round": 4, "fedcell-send": True}


def sent(reply: Message) -> dict[str, Any]:
    arrays = reply.content.array_records["arrays"]
    return {name: None if name == client.ROUNDED else array.numpy().tolist() for name, array in arrays.items()}


TRAINED = {"w": [4.0, 5.0, 5.0], "steps": 8, "b": [3.0, 3.0]}


def test_a_model_is_kept_until_it_is_asked_for() -> None:
    app, context = trains(upload_when_asked)
    reply = app(train_message(**HOLD), context)
    assert answered(reply, "fedcell-answer") == {"norm": pytest.approx(math.sqrt(5 * 9))}
    assert "arrays" not in reply.content
    kept = app(train_message(**SEND), context)
    assert sent(kept) == TRAINED
    assert dict(kept.content.metric_records["metrics"]) == {"num-examples": 1}
    assert not list(context.state)
    with pytest.raises(InputError, match="asks for the model of round 5, and this node has none"):
        app(train_message(**SEND), context)
    assert sent(app(train_message(**{"fedcell-round": 4}), context)) == TRAINED
    assert not list(context.state)


def test_what_was_kept_before_is_forgotten_with_all_its_records() -> None:
    app, context = trains(upload_when_asked)
    app(train_message(**HOLD), context)
    context.state["fedcell-held.more"] = MetricRecord({"x": 1})
    app(train_message(**{**HOLD, "fedcell-round": 6}), context)
    assert set(context.state) == {"fedcell-held", "fedcell-held.arrays", "fedcell-held.metrics"}
    with pytest.raises(InputError, match="asks for the model of round 5, and this node has that of round 7"):
        app(train_message(**SEND), context)
    assert not list(context.state)  # a model of another round is of no use
    odd, context = trains(upload_when_asked, drop=("w", "b"))
    with pytest.raises(InputError, match="are not those of the model, so that the update has no length"):
        odd(train_message(**HOLD), context)


BITS: dict[str, Any] = {"fedcell-round": 4, "fedcell-bits": 4.0, "fedcell-key": "7 3 0"}


def rounded_bytes(reply: Message) -> int:
    return len(reply.content.array_records["arrays"][client.ROUNDED].data)


def test_an_upload_is_rounded_if_the_message_says_so() -> None:
    app, context = trains(compressed)
    reply = app(train_message(**BITS), context)
    assert set(sent(reply)) == {client.ROUNDED, "steps"}
    assert rounded_bytes(reply) == math.ceil(float(upload_bits(5, 2, 4)) / 8)
    assert client.SUMS not in reply.content.metric_records["metrics"]
    wants = app(train_message(**BITS, **{"fedcell-wants-sums": True}), context)
    assert len(wants.content.metric_records["metrics"][client.SUMS]) == 3  # type: ignore[arg-type]
    for config in ({"fedcell-round": 4}, {**BITS, "fedcell-bits": 32.0}):
        assert sent(app(train_message(**config), context)) == TRAINED
    assert not list(context.state)
    other, context = trains(compressed, drop=("w", "b"))  # nothing to round
    assert sent(other(train_message(**BITS), context)) == {"steps": 8}
    part, context = trains(compressed, drop=("w",))
    reply = part(train_message(**BITS), context)
    assert rounded_bytes(reply) == math.ceil(float(upload_bits(2, 1, 4)) / 8)


def test_a_model_that_was_kept_is_rounded_from_where_its_training_began() -> None:
    """The message that asks for it does not bring the model again."""
    app, context = trains(compressed, upload_when_asked)
    app(train_message(**HOLD), context)
    assert "fedcell-start" in context.state
    reply = app(train_message(arrays={}, **{**BITS, **SEND}), context)
    assert set(sent(reply)) == {client.ROUNDED, "steps"}
    assert not list(context.state)


@pytest.mark.parametrize("loss", [2, np.float32(0.5)])
def test_a_loss_is_answered_with_the_number_of_the_apps_own_function(loss: Any) -> None:
    app = ClientApp()
    answer_loss(app, lambda *_: loss)
    reply = app(Message(RecordDict(), 42, client.LOSS_QUERY), node(app, 0)[1])
    assert answered(reply, "fedcell-answer") == {"loss": float(loss)}
