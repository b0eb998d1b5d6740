"""Which replies may be used: whatever a client sends, the run goes on as if it had not been there."""

import io
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedXgbBagging,
    FedXgbCyclic,
    Krum,
    QFedAvg,
    Strategy,
)

import fedcell as fc
from fedcell.flower import Report, Scheduled, replies, report_device
from fedcell.flower.client import ROUNDED, SUMS
from fedcell.flower.replies import evaluate_requirements, faults, invalid_reason, train_requirements
from fedcell.learn.engine import HostUpdates
from fedcell.protocol.signals import SKETCH
from flower.local import LocalGrid, Nodes, node

NAN, INF = math.nan, math.inf
W, BIAS, COUNT = np.array([[1, 2], [3, 4]], np.float32), np.array([0.5, 0.5], np.float32), np.int64(7)
MODEL = ArrayRecord({"w": Array(W), "b": Array(BIAS), "count": Array(np.asarray(COUNT))})
Change = Callable[[RecordDict], None]


def content(by: float = 0.0, **metrics: Any) -> RecordDict:
    arrays = ArrayRecord({"w": Array(W + np.float32(by)), "b": Array(BIAS), "count": Array(np.asarray(COUNT))})
    return RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10, "loss": 0.5, **metrics})})


def message(content: RecordDict | Error, node: int = 1) -> Message:
    asked = Message(RecordDict({"arrays": MODEL}), node, "train")
    return Message(content, reply_to=asked)


def header(shape: str) -> bytes:
    return npy(BIAS, header=f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}")


def raw(data: bytes, dtype: str = "float32", shape: tuple[int, ...] = (2,), stype: str = "numpy.ndarray") -> Array:
    return Array(dtype=dtype, shape=shape, stype=stype, data=data)


def npy(array: Any, version: int = 1, header: str | None = None) -> bytes:
    """A .npy file, its header as given."""
    values = np.asarray(array)
    text = header or f"{{'descr': '{values.dtype.str}', 'fortran_order': False, 'shape': {values.shape}}}\n"
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode("latin1") + values.tobytes()


def arrays(**changed: Array | None) -> Change:
    def change(content: RecordDict) -> None:
        record = content.array_records["arrays"]
        for name, array in changed.items():
            if array is None:
                del record[name]
            else:
                record[name] = array

    return change


def metrics(**changed: Any) -> Change:
    def change(content: RecordDict) -> None:
        record = content.metric_records["metrics"]
        for name, value in changed.items():
            key = name.replace("_", "-")
            if value is None:
                del record[key]
            else:
                record[key] = value

    return change


def records(**changed: Any) -> Change:
    def change(content: RecordDict) -> None:
        for name, value in changed.items():
            if value is None:
                del content[name]
            else:
                content[name] = value

    return change


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("unpickled",))


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Evil(), Evil()], dtype=object), allow_pickle=True)
    return file.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    np.savez(file, b=BIAS)
    return file.getvalue()


POISON: dict[str, tuple[Change, str]] = {
    "weight NaN": (metrics(num_examples=NAN), "its 'num-examples' is nan"),
    "weight inf": (metrics(num_examples=INF), "its 'num-examples' is inf"),
    "weight zero": (metrics(num_examples=0), "its 'num-examples' is 0,"),
    "weight negative": (metrics(num_examples=-3), "its 'num-examples' is -3"),
    "weight missing": (metrics(num_examples=None), "its metrics have no 'num-examples'"),
    "weight a list": (metrics(num_examples=[10]), "its 'num-examples' is [10]"),
    "weight absurd": (metrics(num_examples=1e308), "its 'num-examples' is 1e+308"),
    "weight beyond floats": (metrics(num_examples=10**400), "its 'num-examples' is 1000"),
    "metric NaN": (metrics(loss=NAN), "its metric 'loss' is nan"),
    "metric inf": (metrics(loss=-INF), "its metric 'loss' is -inf"),
    "metric list with NaN": (metrics(curve=[0.1, NAN]), "its metric 'curve' is nan"),
    "metric beyond floats": (metrics(loss=10**400), "its metric 'loss' is 1000"),
    "metric missing": (metrics(loss=None), "its arrays or metrics differ from the others'"),
    "metric more": (metrics(more=1.0), "its arrays or metrics differ from the others'"),
    "metric a list": (metrics(loss=[0.5]), "its arrays or metrics differ from the others'"),
    "no metrics": (records(metrics=None), "it has 0 MetricRecords, not one"),
    "two MetricRecords": (records(also=MetricRecord({"num-examples": 1})), "it has 2 MetricRecords, not one"),
    "no arrays": (records(arrays=None), "it has 0 ArrayRecords, not one"),
    "two ArrayRecords": (records(also=MODEL), "it has 2 ArrayRecords, not one"),
    "nothing": (records(arrays=None, metrics=None), "it has 0 ArrayRecords, not one"),
    "array NaN": (arrays(b=Array(np.array([NAN, 1], np.float32))), "its array 'b' has values that are not finite"),
    "array inf": (arrays(b=Array(np.array([INF, 1], np.float32))), "its array 'b' has values that are not finite"),
    "array huge": (arrays(b=Array(np.array([3e38, 1], np.float32))), "or larger than 1e+15"),
    "array signalling NaN": (
        arrays(b=raw(npy(np.array([0x7FA00000, 0], np.uint32), header=npy(BIAS)[10:-9].decode() + "\n"))),
        "its array 'b' has values that are not finite",
    ),
    "float16 NaN": (arrays(b=Array(np.array([NAN, 1], np.float16))), "its array 'b' has values that are not finite"),
    "dtype unknown": (arrays(b=raw(npy(BIAS), "flaot32")), "is not of the shape and type that it claims"),
    "dtype nonsense": (arrays(b=raw(npy(BIAS), "f4," * 9999)), "is not of the shape and type that it claims"),
    "dtype empty": (arrays(b=raw(npy(BIAS), "")), "is not of the shape and type that it claims"),
    "dtype object": (arrays(b=raw(npy(BIAS), "object")), "is not of the shape and type that it claims"),
    "dtype other": (arrays(b=raw(npy(BIAS), "float64")), "is not of the shape and type that it claims"),
    "three bytes": (arrays(b=raw(b"abc")), "its array 'b' is not a .npy file of numbers"),
    "no bytes": (arrays(b=raw(b"")), "its array 'b' is not a .npy file of numbers"),
    "garbage": (arrays(b=raw(bytes(range(256)) * 4)), "its array 'b' is not a .npy file of numbers"),
    "magic only": (arrays(b=raw(b"\x93NUMPY\x01\x00")), "its array 'b' is not a .npy file of numbers"),
    "long header": (arrays(b=raw(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{")), "is not a .npy file of numbers"),
    "nested header": (arrays(b=raw(npy(BIAS, header="(" * 4000))), "is not a .npy file of numbers"),
    "header no dict": (arrays(b=raw(npy(BIAS, header="[1]"))), "is not a .npy file of numbers"),
    "header calls": (arrays(b=raw(npy(BIAS, header="exit()"))), "is not a .npy file of numbers"),
    "cut off": (arrays(b=raw(npy(BIAS)[:-1])), "its array 'b' has 7 bytes, which do not fit its shape"),
    "too long": (arrays(b=raw(npy(BIAS) + b"\0")), "its array 'b' has 9 bytes, which do not fit its shape"),
    "pickle": (arrays(b=raw(pickled(), "object")), "is not a .npy file of numbers"),
    "npz": (arrays(b=raw(zipped())), "is not a .npy file of numbers"),
    "text": (arrays(b=Array(np.array(["ab", "cd"]))), "is not a .npy file of numbers"),
    "dates": (arrays(b=Array(np.array([1, 2], dtype="M8[s]"))), "is not a .npy file of numbers"),
    "stype": (arrays(b=raw(npy(BIAS), stype="pickle")), "its array 'b' is a 'pickle', not a NumPy array"),
    "shape claimed": (arrays(b=raw(npy(BIAS), shape=(3,))), "is not of the shape and type that it claims"),
    "shape huge": (
        arrays(b=raw(header("(1000000000,)"), shape=(10**9,))),
        "its array 'b' has 8 bytes, which do not fit its shape",
    ),
    "shape beyond": (
        arrays(b=raw(header(f"(0, {10**30})"), shape=(0, 10**30))),
        "is not a .npy file of numbers",
    ),
    "shape negative": (
        arrays(b=raw(header("(-1, -2)"), shape=(-1, -2))),
        "is not a .npy file of numbers",
    ),
    "shape not the model's": (
        arrays(b=Array(np.array([1, 2, 3], np.float32))),
        "its array 'b' has the shape (3,), the model's has (2,)",
    ),
    "one that broadcasts": (arrays(b=Array(np.array([1], np.float32))), "has the shape (1,), the model's has (2,)"),
    "axes swapped": (arrays(w=Array(W.reshape(4))), "its array 'w' has the shape (4,)"),
    "int for float": (arrays(b=Array(np.array([1, 2], np.int64))), "its array 'b' is of int64, unlike the model's"),
    "complex": (arrays(b=Array(np.array([1, 2], np.complex64))), "its array 'b' is of complex64, unlike the model's"),
    "complex for int": (arrays(count=Array(np.asarray(np.complex64(1)))), "'count' is of complex64"),
    "array missing": (arrays(b=None), "its array 'b' is missing"),
    "array more": (arrays(x=Array(BIAS)), "its array 'x' is not in the model"),
}  # fmt: skip


def judged(change: Change, strategy: Strategy | None = None, others: int = 3) -> dict[int, str]:
    bad = content()
    change(bad)
    replies = {n: message(content(n), n) for n in range(1, 1 + others)} | {99: message(bad, 99)}
    return faults(replies, train_requirements(strategy or FedAvg(), MODEL))


@pytest.mark.parametrize("name", POISON)
def test_poison_is_named_and_the_good_replies_are_used(name: str) -> None:
    change, reason = POISON[name]
    found = judged(change)
    assert list(found) == [99]
    assert reason in found[99]
    assert "\n" not in found[99]
    assert len(found[99]) < 250


@pytest.mark.parametrize("name", [n for n, (_, reason) in POISON.items() if "the others'" not in reason])
def test_poison_is_noticed_even_if_nobody_else_answers(name: str) -> None:
    change, reason = POISON[name]
    assert reason in judged(change, others=0)[99]


def test_an_app_that_failed_is_named_in_one_line() -> None:
    replies = {1: message(Error(1, "Zero\nDivision" + "x" * 999)), 2: message(content(), 2)}
    found = faults(replies, train_requirements(FedAvg(), MODEL))
    assert found[1].startswith("its app failed: Zero Division")
    assert len(found[1]) < 250
    assert list(found) == [1]


GOOD: dict[str, Change] = {
    "as it is": metrics(),
    "other order": lambda content: content.array_records["arrays"].__setitem__(
        "w", content.array_records["arrays"].pop("w")
    ),
    "float64": arrays(b=Array(np.array([1, 2], np.float64))),
    "float16": arrays(b=Array(np.array([1, 2], np.float16))),
    "big-endian": arrays(b=Array(np.array([1, 2], dtype=">f4"))),
    "Fortran order": arrays(w=Array(np.asfortranarray(W))),
    "the mean of integers": arrays(count=Array(np.asarray(7.5))),
    "an int where bool or int": arrays(count=Array(np.asarray(np.int8(3)))),
    "header of version 2": arrays(b=raw(npy(BIAS, version=2))),
    "header of version 3": arrays(b=raw(npy(BIAS, version=3))),
    "largest weight": metrics(num_examples=1e15),
    "small weight": metrics(num_examples=1e-9),
    "large metric": metrics(loss=-1e99),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_reply_is_used_whatever_its_float_type_or_order(name: str) -> None:
    good = content()
    GOOD[name](good)
    replies = {1: message(content(1), 1), 2: message(good, 2)}
    assert faults(replies, train_requirements(FedAvg(), MODEL)) == {}
    assert list(replies[2].content.array_records["arrays"]) == list(MODEL)
    new, _ = FedAvg().aggregate_train(1, replies.values())
    assert new is not None
    assert invalid_reason(new, train_requirements(FedAvg(), MODEL)) is None


def test_after_a_round_the_mean_of_integers_is_a_float_and_clients_still_send_integers() -> None:
    new, _ = FedAvg().aggregate_train(1, [message(content(1), 1), message(content(2), 2)])
    assert new is not None
    assert new["count"].dtype == "float64"
    assert faults({1: message(content())}, train_requirements(FedAvg(), MODEL)) == {}


def test_empty_arrays_and_scalars_are_good() -> None:
    model = ArrayRecord({"none": Array(np.zeros((0, 3), dtype=np.float32)), "one": Array(np.asarray(np.float32(1)))})
    reply = RecordDict({"arrays": model.copy(), "metrics": MetricRecord({"num-examples": 1})})
    assert faults({1: message(reply)}, train_requirements(FedAvg(), model)) == {}


def test_complex_models_are_checked_too() -> None:
    model = ArrayRecord({"fourier": Array(np.array([1, 2j], np.complex64))})
    for value, fault in ((2j, None), (complex(0, NAN), "values that are not finite")):
        reply = ArrayRecord({"fourier": Array(np.array([1, value], np.complex64))})
        records = RecordDict({"arrays": reply, "metrics": MetricRecord({"num-examples": 1})})
        found = faults({1: message(records)}, train_requirements(FedAvg(), model))
        assert (fault or "") in found.get(1, "")
        assert bool(found) == bool(fault)


# --- by what the strategy aggregates ----------------------------------------------------------------------------------


def trees(trees: int) -> bytes:
    model = {
        "gbtree_model_param": {"num_trees": str(trees), "num_parallel_tree": "1"},
        "iteration_indptr": list(range(trees + 1)),
        "trees": [{"id": i} for i in range(trees)],
        "tree_info": [0] * trees,
    }
    return json.dumps({"learner": {"gradient_booster": {"model": model}}}).encode()


def boosted(data: bytes, dtype: Any = np.uint8) -> Message:
    record = ArrayRecord([np.frombuffer(data, dtype=dtype)])
    return message(RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 1})}))


@pytest.mark.parametrize("strategy", [FedXgbBagging, FedXgbCyclic])
def test_trees_may_have_any_length_but_must_be_bytes(strategy: type[FedAvg]) -> None:
    empty = ArrayRecord([np.frombuffer(b"", dtype=np.uint8)])
    demands = train_requirements(strategy(), empty)
    replies = {1: boosted(trees(1)), 2: boosted(trees(30)), 3: boosted(b"\0" * 64, np.float32), 4: message(content())}
    assert list(faults(replies, demands)) == [3, 4]
    assert invalid_reason(boosted(trees(9)).content.array_records["arrays"], demands) is None


def test_trees_that_cannot_be_joined_are_left_out_of_the_bag() -> None:
    empty = ArrayRecord([np.frombuffer(b"", dtype=np.uint8)])
    strategy = FedXgbBagging()
    bad = [b"", b"\0\1", b"{}", b"[" * 99999, trees(0).replace(b'"num_trees"', b'"x"'), trees(1).replace(b'"id"', b"1")]
    replies = {n: boosted(data) for n, data in enumerate([*bad, trees(2), trees(3)])}
    found = faults(replies, train_requirements(strategy, empty))
    assert list(found) == list(range(len(bad)))
    assert "its trees cannot be joined" in found[2]
    strategy.current_bst = b""
    new, _ = strategy.aggregate_train(1, [reply for n, reply in replies.items() if n not in found])
    assert new is not None


@pytest.mark.parametrize("loss", [None, -1.0, [1.0], NAN])
def test_q_fedavg_needs_the_loss_that_it_weights_by(loss: Any) -> None:
    strategy = QFedAvg(0.1, train_loss_key="loss")
    found = judged(metrics(loss=loss), strategy, others=0)
    assert "its metric 'loss' is" in found[99]
    assert judged(metrics(loss=0.0), strategy) == {}


def test_adaptive_clipping_by_the_clients_needs_their_bit() -> None:
    strategy = DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(), 0.0, 2)
    assert "its metric 'norm_bit' is None" in judged(metrics(), strategy, others=0)[99]
    reply = message(content(norm_bit=1))
    assert faults({1: reply}, train_requirements(strategy, MODEL)) == {}


def test_equal_weights_are_needed_only_with_a_privacy_accountant() -> None:
    strategy = FedAvg()
    assert judged(metrics(num_examples=11), strategy) == {}
    strategy.accountant = object()  # type: ignore[attr-defined]
    assert list(judged(metrics(num_examples=11), strategy)) == [99]


class Own(FedAvg):
    """A strategy that aggregates what it likes."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        return super().aggregate_train(server_round, replies)


def sparse(values: int, weight: float = 1.0) -> Message:
    record = ArrayRecord(
        {"packed": Array(np.zeros(values, dtype=np.uint8)), "scale": Array(np.array([1.0], np.float32))}
    )
    metrics = MetricRecord({"num-examples": weight})
    return message(RecordDict({"a": record, "b": ArrayRecord({"c": Array(BIAS)}), "metrics": metrics}))


def test_a_strategy_of_ones_own_may_take_anything_that_most_send_and_its_model_is_checked() -> None:
    demands = train_requirements(Own(), MODEL)
    odd = content()
    odd["arrays"] = ArrayRecord({"w": Array(W.reshape(4))})
    assert faults({1: sparse(3), 2: sparse(8), 3: message(content()), 4: sparse(2, NAN)}, demands).keys() == {3, 4}
    assert faults({1: message(odd, 1), 2: message(content(), 2)}, demands).keys() == {1}  # as many: the model decides
    assert faults({1: message(odd)}, demands) == {}
    new, _ = Own().aggregate_train(1, [message(odd)])
    assert new is not None
    assert invalid_reason(new, demands) == "its array 'b' is missing"
    bad = content()
    arrays(b=Array(np.array([NAN, 0], np.float32)))(bad)
    assert faults({1: message(bad)}, demands).keys() == {1}


def test_lists_of_metrics_may_differ_in_length_if_the_app_has_its_own_mean() -> None:
    def longest(contents: list[RecordDict], _: str) -> MetricRecord:
        return MetricRecord({"n": max(len(c["metrics"]["curve"]) for c in contents)})  # type: ignore[arg-type]

    replies = {
        1: message(content(curve=[1.0])),
        2: message(content(curve=[1.0])),
        3: message(content(curve=[1.0, 2.0])),
    }
    assert faults(replies, train_requirements(FedAvg(), MODEL)).keys() == {3}
    assert faults(replies, train_requirements(FedAvg(train_metrics_aggr_fn=longest), MODEL)) == {}


@pytest.mark.parametrize("name", [n for n, (change, r) in POISON.items() if "metric" in n.lower() or "weight" in n])
def test_evaluations_are_judged_as_well(name: str) -> None:
    change, reason = POISON[name]
    bad = content()
    change(bad)
    replies = {n: message(RecordDict({"metrics": content().metric_records["metrics"]}), n) for n in (1, 2, 3)}
    replies[99] = message(RecordDict({key: r for key, r in bad.items() if isinstance(r, MetricRecord)}), 99)
    found = faults(replies, evaluate_requirements(FedAvg()))
    assert list(found) == [99]
    assert reason in found[99]


# --- fuzzed -----------------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.floats(), st.integers(), st.just(10**400))
METRICS = st.one_of(NUMBERS, st.lists(st.floats(), max_size=3), st.lists(st.integers(), max_size=3))
DTYPES = st.one_of(
    st.sampled_from(["float32", "<f4", "int64", "float16", "complex64", "object", "U3", ">f8"]), st.text()
)
SHAPES = st.lists(st.integers(-2, 2**65), max_size=4).map(tuple)
HEADERS = st.one_of(
    st.text(max_size=60).map(lambda text: npy(BIAS, header=ascii(text)[1:-1])),
    st.tuples(DTYPES, SHAPES).map(
        lambda given: npy(BIAS, header=ascii({"descr": given[0], "fortran_order": True, "shape": given[1]}))
    ),
)  # fmt: skip
DATA = st.one_of(
    st.binary(max_size=200),
    st.binary(max_size=60).map(lambda tail: npy(BIAS)[:-8] + tail),
    st.tuples(st.integers(0, 140), st.integers(0, 255)).map(
        lambda at: (good := npy(BIAS))[: at[0] % len(good)] + bytes([at[1]]) + good[at[0] % len(good) + 1 :]
    ),
    HEADERS,
)
ARRAYS = st.one_of(
    st.builds(raw, DATA, DTYPES, SHAPES, st.sampled_from(["numpy.ndarray", "numpy.ndarray", "pickle"])),
    st.builds(raw, DATA),
    st.lists(st.floats(width=32), min_size=2, max_size=2).map(lambda values: Array(np.array(values, np.float32))),
)
RECORDS = st.one_of(
    st.dictionaries(st.sampled_from(["w", "b", "count", "x"]), ARRAYS, max_size=4).map(ArrayRecord),
    st.dictionaries(st.sampled_from(["num-examples", "loss", "x"]), METRICS, max_size=3).map(MetricRecord),
)


@st.composite
def contents(draw: st.DrawFn) -> RecordDict:
    """A good reply with a part that is not, or something else altogether."""
    drawn: Any = draw(st.dictionaries(st.sampled_from(["arrays", "metrics", "x"]), RECORDS, max_size=3))
    found = RecordDict(drawn)
    if draw(st.booleans()):
        return found
    good = content()
    for name, array in draw(st.dictionaries(st.sampled_from(["w", "b", "count"]), ARRAYS, max_size=2)).items():
        good.array_records["arrays"][name] = array
    for name, value in draw(st.dictionaries(st.sampled_from(["num-examples", "loss"]), METRICS, max_size=2)).items():
        good.metric_records["metrics"][name] = value
    return good


AGGREGATING = [FedAvg, FedAdam, FedMedian, lambda: Krum(num_malicious_nodes=1)]


@settings(max_examples=150, deadline=None)
@given(st.lists(contents(), min_size=1, max_size=3), st.sampled_from(AGGREGATING))
def test_whatever_comes_the_strategy_makes_a_sound_model_of_the_rest(poison: Any, make: Callable[[], FedAvg]) -> None:
    strategy = make()
    good = {n: message(content(n), n) for n in (1, 2, 3, 4)}
    replies = good | {10 + n: message(bad, 10 + n) for n, bad in enumerate(poison)}
    demands = train_requirements(strategy, MODEL)
    found = faults(replies, demands)
    assert not found.keys() & good.keys()
    if isinstance(strategy, FedAdam):
        strategy.current_arrays = {name: array.numpy() for name, array in MODEL.items()}
    new, _ = strategy.aggregate_train(1, [reply for n, reply in replies.items() if n not in found])
    assert new is not None
    assert invalid_reason(new, demands) is None
    assert faults({n: r for n, r in replies.items() if n not in good}, evaluate_requirements(strategy)) is not None


# --- the whole run ----------------------------------------------------------------------------------------------------


def client(moves: float, poison: Change | None = None, from_round: int = 0, report: Report | None = None) -> ClientApp:
    """A client that adds ``moves`` to each weight, and changes what it replies."""
    app = ClientApp()
    report_device(app, report or Report(upload_s=1.0, compute_s=0.1))

    def answer(asked: Message, records: RecordDict) -> Message:
        config = asked.content.config_records["config"]
        if poison is not None and int(config["server-round"]) > from_round:  # type: ignore[arg-type]
            poison(records)
        return Message(records, reply_to=asked)

    @app.train()
    def train(asked: Message, _: Context) -> Message:
        model = asked.content.array_records["arrays"]
        new = {name: Array(np.asarray(model[name].numpy() + np.float32(moves), model[name].dtype)) for name in model}
        new["count"] = Array(np.asarray(np.int64(7)))
        metrics = MetricRecord({"num-examples": 10, "loss": 0.5})
        return answer(asked, RecordDict({"arrays": ArrayRecord(new), "metrics": metrics}))

    @app.evaluate()
    def evaluate(asked: Message, _: Context) -> Message:
        records = content()
        records.metric_records["metrics"]["loss"] = moves if poison is None else NAN
        return answer(asked, records)

    return app


def trained(nodes: Nodes, strategy: Strategy) -> tuple[Scheduled, Any]:
    scheduled = Scheduled(strategy, "all", nodes=len(nodes), grace_s=1000.0)
    model = ArrayRecord(dict(MODEL.items()))
    return scheduled, scheduled.start(LocalGrid(nodes), model, num_rounds=3)


HONEST = {n: 0.5**n for n in range(4)}


@pytest.mark.parametrize("make", AGGREGATING)
def test_a_run_with_poisoned_clients_is_the_run_of_the_honest_ones(
    make: Callable[[], FedAvg], log: pytest.LogCaptureFixture
) -> None:
    honest = {n: node(client(moves), n) for n, moves in HONEST.items()}
    _, expected = trained(honest, make())
    log.clear()
    names = ["weight NaN", "weight inf", "weight a list", "dtype unknown", "three bytes", "shape not the model's"]
    names += ["metric NaN", "array NaN", "int for float", "two ArrayRecords", "nothing", "pickle", "array missing"]
    liars = {100 + n: node(client(9.0, POISON[name][0]), 100 + n) for n, name in enumerate(names)}
    scheduled, found = trained(honest | liars, make())
    for name in expected.arrays:
        assert found.arrays[name].numpy().tolist() == expected.arrays[name].numpy().tolist()
    assert found.train_metrics_clientapp == expected.train_metrics_clientapp
    assert found.evaluate_metrics_clientapp == expected.evaluate_metrics_clientapp
    assert {len(done.delivered) for done in scheduled.rounds} == {4}
    for n in liars:
        assert any(f"the reply of device {n} is not used: " in line for line in log.messages)
    assert any("the evaluation of device 103 is not used: its metric 'loss' is nan" in line for line in log.messages)


def test_a_lone_wrong_reply_does_not_replace_the_model(log: pytest.LogCaptureFixture) -> None:
    wrong = arrays(b=Array(np.array([1, 2, 3], np.float32)))
    _, found = trained({1: node(client(1.0, wrong, 1), 1)}, FedAvg(min_available_nodes=1, fraction_evaluate=0.0))
    assert found.arrays["b"].numpy().tolist() == [1.5, 1.5]  # of round 1; later ones are not used
    _, found = trained({1: node(client(1.0, wrong, 1), 1)}, Own(min_available_nodes=1, fraction_evaluate=0.0))
    assert found.arrays["b"].numpy().tolist() == [1.5, 1.5]
    assert any("the model of round 2 is not used: its array 'b' has the shape (3,)" in line for line in log.messages)


def test_evaluations_that_are_all_bad_leave_no_metric() -> None:
    _, found = trained({n: node(client(1.0, metrics()), n) for n in (1, 2)}, FedAvg())
    assert found.evaluate_metrics_clientapp == {}
    assert found.arrays["b"].numpy().tolist() == [3.5, 3.5]


@pytest.mark.parametrize("policy", ["all", "random:k=2", "round_robin:k=2"])
def test_an_absurd_report_does_not_end_a_run_with_a_budget(policy: str, log: pytest.LogCaptureFixture) -> None:
    nodes = {n: node(client(1.0), n) for n in (1, 2)} | {3: node(client(1.0, report=Report(snr_db=-1000.0)), 3)}
    scheduled = Scheduled(FedAvg(fraction_evaluate=0.0), policy, nodes=3, grace_s=1000.0, budget_s=3600.0)
    scheduled.start(LocalGrid(nodes), ArrayRecord(dict(MODEL.items())), num_rounds=3)
    assert [done.names for done in scheduled.rounds] == [["1", "2"]] * 3
    assert sum("device 3 would need longer than the budget" in line for line in log.messages) == 1


class OneOfThem(FedAvg):
    """A strategy that trains on one of the nodes only."""

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        made = list(super().configure_train(server_round, arrays, config, grid))
        return sorted(made, key=lambda message: message.metadata.dst_node_id)[:1]


def test_devices_that_the_strategy_left_out_are_neither_missing_nor_slow() -> None:
    nodes = {n: node(client(1.0), n) for n in (1, 2, 3)}
    scheduled, _ = trained(nodes, OneOfThem(fraction_evaluate=0.0))
    assert [done.names for done in scheduled.rounds] == [["1"]] * 3
    assert [done.missing for done in scheduled.rounds] == [[]] * 3
    assert scheduled._planner.roster.knowledge.compute.weight.tolist() == [3, 0, 0]
    assert scheduled._planner.roster.knowledge.last_round.tolist() == [2, -1, -1]


def test_no_array_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Array, "numpy", lambda _: pytest.fail("it was unpacked"))
    replies = {n: message(content(n), n) for n in (1, 2, 3)}
    assert faults(replies, train_requirements(FedAvg(), MODEL)) == {}


def test_a_header_is_of_numbers_and_within_its_limits() -> None:
    assert replies.header_of(npy(BIAS)) == (np.dtype("<f4"), (2,), len(npy(BIAS)) - 8)
    assert replies.header_of(npy(BIAS, version=2)) == (np.dtype("<f4"), (2,), len(npy(BIAS, version=2)) - 8)
    data = npy(BIAS)
    for bad in (data[:11], b"\x93NUMPX" + data[6:], data[:6] + b"\x04" + data[7:], data[:7] + b"\x01" + data[8:]):
        assert replies.header_of(bad) is None
    for shape, good in (
        (f"(0, {2**31 - 1})", True), (f"(0, {2**31})", False), ("(" + "1," * 32 + ")", True),
        ("(" + "1," * 33 + ")", False), ("(True,)", False), ("[2]", False),
    ):  # fmt: skip
        assert (replies.header_of(header(shape)) is not None) == good, shape
    text = npy(BIAS)[10:-8].decode().rstrip()
    assert replies.header_of(npy(BIAS, header=text.ljust(4096))) is not None
    assert replies.header_of(npy(BIAS, header=text.ljust(4097))) is None
    assert replies.header_of(npy(BIAS, header=text.replace("False", "0"))) is None
    assert replies.header_of(npy(BIAS, header=text.replace("'shape'", "'more': 1, 'shape'"))) is None


def test_values_are_finite_and_at_most_the_largest() -> None:
    for dtype in (np.float64, np.complex128):
        for value, good in ((1e15, True), (-1e15, True), (1.01e15, False), (-1.01e15, False), (NAN, False)):
            data = np.array([0.0, value], dtype).tobytes()
            assert replies.is_finite_and_bounded(b"ab" + data, np.dtype(dtype), 2) == good
    assert replies.is_finite_and_bounded(np.array([0.0 + 2e15j]).tobytes(), np.dtype(complex), 0) is False
    assert replies.is_finite_and_bounded(b"", np.dtype(float), 0)
    assert replies.is_finite_and_bounded(b"\xff" * 8, np.dtype(np.int64), 0)


def test_the_limits_of_what_clients_send() -> None:
    assert (replies.MAX_VALUE, replies.MAX_WEIGHT, replies.MAX_METRIC) == (1e15, 1e15, 1e100)
    assert "weight" not in str(judged(metrics(num_examples=1e15)))
    assert "its 'num-examples' is 1.1e+15" in judged(metrics(num_examples=1.1e15))[99]
    assert judged(metrics(loss=1e100)) == {}
    assert "its metric 'loss' is 1.1e+100" in judged(metrics(loss=1.1e100))[99]


@pytest.mark.parametrize(
    ("value", "told", "fault"),
    [
        (0.25, 0.25, None),
        (0, 0.0, None),
        (1e15, 1e15, None),
        (None, NAN, None),
        (-0.5, NAN, "its 'loss' is -0.5, not a number from 0 to 1e+15"),
        (1.1e15, NAN, "its 'loss' is 1.1e+15, not a number from 0 to 1e+15"),
        (NAN, NAN, "its 'loss' is nan, not a number from 0 to 1e+15"),
        ([0.5], NAN, "its 'loss' is [0.5], not a number from 0 to 1e+15"),
    ],
)
def test_a_number_that_a_client_tells(value: Any, told: float, fault: str | None) -> None:
    record = MetricRecord({} if value is None else {"loss": value})
    found, wrong = replies.read_metric(record, "loss")
    assert found == pytest.approx(told, nan_ok=True)
    assert wrong == fault
    assert replies.read_metric(None, "loss")[1] is None


def test_what_is_quoted_is_short() -> None:
    assert (replies.quoted(0.1 + 0.2), replies.quoted("a")) == ("0.3", "'a'")
    assert replies.quoted("x" * 58) == repr("x" * 58)
    assert replies.quoted("x" * 59) == repr("x" * 59)[:57] + "..."


def test_a_model_says_whether_it_is_whole() -> None:
    assert replies.sends_whole(message(content()))
    assert not replies.sends_whole(message(Error(1, "failed")))
    rounded = RecordDict({"arrays": ArrayRecord({ROUNDED: raw(b"", "uint8", (0,), ROUNDED)})})
    assert not replies.sends_whole(message(rounded))
    restored = content()
    restored[ROUNDED] = ConfigRecord({})
    assert not replies.sends_whole(message(restored))
    assert not replies.sends_whole(message(RecordDict({"metrics": MetricRecord({"num-examples": 1})})))
    forgets = message(restored)
    replies.forget_update(forgets)
    assert replies.sends_whole(forgets)
    replies.forget_update(message(Error(1, "failed")))


def test_enough_replies_are_usable_ones() -> None:
    required, starts = train_requirements(FedAvg(), MODEL), dict.fromkeys(range(4), MODEL)
    good: replies.Replies = {n: (message(content(n), n), 1.0) for n in range(3)}
    assert [replies.enough_usable(good, required, needed, starts) for needed in (2, 3, 4)] == [True, True, False]
    bad = content()
    metrics(loss=NAN)(bad)
    some = {**good, 3: (message(bad, 3), 1.0)}
    assert [replies.enough_usable(some, required, needed, starts) for needed in (3, 4)] == [True, False]


def using(*flags: str) -> fc.Policy:
    """A policy that uses what it is told to."""
    made: fc.Policy = type("Uses", (fc.All,), dict.fromkeys(flags, True))()
    return made


def told(policy: fc.Policy, *sent: Message) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    found, odd = replies.reports_of(sent, MODEL, policy, "loss")
    return {name: np.asarray(column).tolist() for name, column in found.items()}, odd


def test_what_replies_tell_is_what_the_policy_uses() -> None:
    replied = [message(content(by, **{"loss_rms": by}), int(by)) for by in (1.0, 2.0)]
    assert told(using()) == ({}, [])
    losses, odd = told(using(), *replied)
    assert losses == {"losses": [0.5, 0.5]}
    assert told(using("uses_rms"), *replied)[0] == {"losses": [0.5, 0.5], "rms_losses": [1.0, 2.0]}
    norms, odd = told(using("uses_norms"), *replied)
    assert norms["norms"] == pytest.approx([2.0, 4.0])  # four entries of w are moved, the count is no float
    updates, odd = told(using("uses_updates"), *replied)
    moved = np.array([[1, 1, 1, 1, 0, 0], [2, 2, 2, 2, 0, 0]], np.float32)
    sent = HostUpdates([np.zeros(6, np.float32)] * 2, moved, np.full(2, 0.5))
    np.testing.assert_allclose(updates["updates"], sent.sketch(SKETCH))
    sums, odd = told(using("uses_sums"), *replied)
    assert sums["squares"] == pytest.approx([4.0, 16.0])
    parts = HostUpdates([np.zeros(6, np.float32)] * 2, moved, np.full(2, 0.5), tensors=(4, 2)).sums()
    np.testing.assert_allclose(np.column_stack([sums[n] for n in ("peaks", "absolutes", "squares")]), parts)
    assert odd == []


def test_a_reply_that_tells_something_odd_is_named_and_the_others_count() -> None:
    short = content()
    short["arrays"] = ArrayRecord({"w": Array(W[:1]), "b": Array(BIAS)})
    replied = [message(content(1.0), 1), message(content(loss=-1.0), 2), message(short, 3)]
    found, odd = told(using("uses_norms"), *replied)
    assert found["losses"] == pytest.approx([0.5, NAN, 0.5], nan_ok=True)
    assert found["norms"] == pytest.approx([2.0, 0.0, NAN], nan_ok=True)
    assert odd == [
        (1, "its 'loss' is -1, not a number from 0 to 1e+15"),
        (2, "its arrays of floats are not the model's, so that the update has no length"),
    ]
    assert told(using(), message(short, 3))[1] == []  # nobody wants it


@pytest.mark.parametrize(
    ("sums", "kept"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        ([0.0, 0.0, 1e100], [0.0, 0.0, 1e100]),
        ([1.0, 2.0], [NAN] * 3),
        ([1.0, -2.0, 3.0], [NAN] * 3),
        ([1.0, NAN, 3.0], [NAN] * 3),
        ([1.0, 2.0, 1.1e100], [NAN] * 3),
        (None, [NAN] * 3),
    ],
)
def test_sums_of_an_update_are_three_numbers_from_0(sums: list[float] | None, kept: list[float]) -> None:
    reply = content()
    if sums is not None:
        reply[ROUNDED] = ConfigRecord({SUMS: sums})
    assert replies._told_sums(message(reply)) == pytest.approx(kept, nan_ok=True)
