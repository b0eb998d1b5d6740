"""Checks of clients' replies: whatever they send, the strategy gets only what it can aggregate.

What a reply must be depends on what the wrapped strategy does with it:

- Flower's own strategies average models (or take their median, or choose one): exactly one ArrayRecord with the names
  and shapes of the global model, floats where it has floats, and exactly one MetricRecord with the weight.
- FedXgbBagging and FedXgbCyclic collect trees: one array of bytes, of any length, under the model's name.
- A strategy with an ``aggregate_train`` of its own may take anything. Its replies are compared with each other, and
  what it makes of them with the global model (see `invalid_reason`).

What replies tell beside, for policies that go by it (losses, how far the models moved), is read here too.

Nothing is unpacked: the values are the end of the .npy file in ``Array.data``, once its header has been checked.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    FedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    QFedAvg,
    Strategy,
)
from flwr.serverapp.strategy.strategy_utils import aggregate_bagging, aggregate_metricrecords
from flwr.supercore.differential_privacy import KEY_NORM_BIT
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.flower.client import ROUNDED, SUMS, floats_of, update_of
from fedcell.flower.wrapped import records_of, unwrap
from fedcell.learn.engine import HostUpdates
from fedcell.protocol import SIGNALS, read_signals, uses_signal
from fedcell.quantisation import restore, unpack
from fedcell.schedule.policy import Policy
from fedcell.types import Floats

Replies = dict[int, tuple[Message, float]]
"""By node, its reply and when it arrived, in seconds since the messages were sent."""
MAX_VALUE = 1e15
"""The largest magnitude of a model's values: squares of these, and their sums, are far from overflow in float32."""
_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 4096
_MAX_AXES = 32
_MAX_AXIS = 2**31


def header_of(data: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int] | None:
    """Return the type and the shape of a .npy file, and where its values start; None if it is not one of numbers."""
    if data[:6] != _MAGIC or len(data) < 12 or data[7] != 0 or data[6] not in (1, 2, 3):
        return None
    start = 10 if data[6] == 1 else 12
    length = int.from_bytes(data[8:start], "little")
    if length > min(_MAX_HEADER_BYTES, len(data) - start):
        return None
    found = _parsed_header(data[start : start + length])
    return None if found is None else (*found, start + length)


@lru_cache(maxsize=1024)
def _parsed_header(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return the type and the shape in a header, a Python dict as text; the replies of a round share a few headers."""
    try:
        said = ast.literal_eval(header.decode("ascii").strip())
        descr, shape = said["descr"], said["shape"]
        if said.keys() != {"descr", "fortran_order", "shape"} or not isinstance(said["fortran_order"], bool):
            return None
        if not isinstance(shape, tuple) or len(shape) > _MAX_AXES:
            return None
        if not all(type(axis) is int and 0 <= axis < _MAX_AXIS for axis in shape):
            return None
        if not (isinstance(descr, str) and re.fullmatch(r"[<>|=]?[fiubc]\d{1,2}", descr)):
            return None
        return np.dtype(descr), shape
    except Exception:  # text that is not a dict, nested too deeply, or a type that NumPy does not have
        return None


@lru_cache(maxsize=1024)
def dtype_of(name: str) -> np.dtype[Any] | None:
    """Return the type of this name; None if NumPy has none."""
    try:
        return np.dtype(name) if re.fullmatch(r"[<>|=]?[a-z]{1,10}\d{0,3}", name) else None
    except Exception:
        return None


def is_finite_and_bounded(data: bytes, dtype: np.dtype[Any], start: int) -> bool:
    """Whether all floats after ``start`` are finite and not too large."""
    if dtype.kind not in "fc" or len(data) == start:
        return True
    real = np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    values = np.frombuffer(data, real, offset=start)
    with np.errstate(invalid="ignore"):  # of signalling NaN
        least, most = float(values.min()), float(values.max())  # of values with NaN, both are NaN
    return least >= -MAX_VALUE and most <= MAX_VALUE


MAX_WEIGHT = 1e15
MAX_METRIC = 1e100
ModelSchema = dict[str, tuple[tuple[int, ...] | None, str]]
"""By name, the shape of an array (None for any) and what its numbers are: floats ``f``, complex ``c``, bytes ``B`` (of
trees), or ``i``: integers, whose mean is a float."""


@dataclass(frozen=True)
class ReplyRequirements:
    """What a strategy needs of every reply of a round.

    Attributes:
        model: the arrays of the global model; None if replies have none (evaluation).
        strict: whether Flower's own strategy aggregates the replies, so that the names and shapes must be the model's.
        weight: the metric that weights the replies; None if the strategy has none.
        numbers: metrics that must be single numbers, each with its least value.
        lists: whether lists among the metrics must be equally long, because their mean is taken.
        equal: whether all weights must be equal, because a privacy accountant assumes it.
        trees: whether the arrays are boosted trees that are joined.
    """

    model: ModelSchema | None
    strict: bool
    weight: str | None
    numbers: dict[str, float] = field(default_factory=dict)
    lists: bool = False
    equal: bool = False
    trees: bool = False


def train_requirements(strategy: Strategy, model: ArrayRecord) -> ReplyRequirements:
    """Return what the strategy needs of replies with models like the initial one (the mean of integers is a float)."""
    parts = unwrap(strategy)
    last, strict = parts[-1], _by_flower(parts, "aggregate_train")
    numbers = {}
    if isinstance(last, QFedAvg):
        numbers[last.train_loss_key] = 0.0
    if any(isinstance(part, DifferentialPrivacyClientSideAdaptiveClipping) for part in parts):
        numbers[KEY_NORM_BIT] = -math.inf
    return ReplyRequirements(
        model=schema_of(model, strict=strict, trees=isinstance(last, FedXgbBagging | FedXgbCyclic)),
        strict=strict,
        weight=getattr(last, "weighted_by_key", None),
        numbers=numbers,
        lists=getattr(last, "train_metrics_aggr_fn", None) is aggregate_metricrecords,
        equal=any(getattr(part, "accountant", None) is not None for part in parts),
        trees=isinstance(last, FedXgbBagging),
    )


def evaluate_requirements(strategy: Strategy) -> ReplyRequirements:
    """Return what the strategy needs of replies with the metrics of an evaluation."""
    parts = unwrap(strategy)
    return ReplyRequirements(
        model=None,
        strict=_by_flower(parts, "aggregate_evaluate"),
        weight=getattr(parts[-1], "weighted_by_key", None),
        lists=getattr(parts[-1], "evaluate_metrics_aggr_fn", None) is aggregate_metricrecords,
    )


def _by_flower(parts: list[Strategy], method: str) -> bool:
    own = all(getattr(type(part), method).__module__.startswith("flwr.") for part in parts)
    return own and isinstance(parts[-1], FedAvg)


def schema_of(model: ArrayRecord, *, strict: bool = True, trees: bool = False) -> ModelSchema:
    """Return the names, shapes and kinds of a model's arrays.

    Args:
        model: the model.
        strict: False if only the shapes of its float arrays are fixed.
        trees: whether it is of boosted trees, as bytes: then no shape is.
    """
    found: ModelSchema = {}
    for name, array in model.items():
        dtype = dtype_of(array.dtype)
        kind = "B" if trees else dtype.kind if dtype is not None and dtype.kind in "fc" else "i"
        fixed = not trees and (strict or kind != "i")
        found[name] = (tuple(array.shape) if fixed else None, kind)
    return found


def faults(
    replies: dict[int, Message], required: ReplyRequirements, starts: Mapping[int, ArrayRecord] | None = None
) -> dict[int, str]:
    """Return, by node, why its reply cannot be used: one such reply would ruin the model or end Flower's run.

    A rounded update (of the mod ``compressed``) is replaced by the model that it stands for. The arrays of a good reply
    are put in the order of the model's: some strategies go by it.

    Args:
        replies: by node.
        required: what the strategy needs of them.
        starts: by node, the model that it was sent.
    """
    found, signatures = {}, {}
    for node, reply in replies.items():
        try:
            fault = _unusable(reply) or (None if starts is None else restore_model(reply.content, starts[node]))
            fault = fault or _fault(reply, required)
            if fault is None:
                signatures[node] = _signature(reply.content, required)
        except Exception as error:  # whatever the bytes were, they end no run
            fault = f"it cannot be read ({type(error).__name__})"
        if fault is not None:
            found[node] = fault
    if signatures:
        votes = Counter(signatures.values())
        # Of two equally frequent signatures, the one with the model's arrays counts.
        usual = max(votes, key=lambda one: (votes[one], one[0] == _arrays_of_model(required)))
        unlike = "its arrays or metrics differ from the others'"
        found |= {node: unlike for node, signature in signatures.items() if signature != usual}
    return found


def enough_usable(
    replies: Replies, required: ReplyRequirements, needed: int, starts: Mapping[int, ArrayRecord]
) -> bool:
    """Whether as many as needed of the replies so far, by node with their arrival times, may be used; see `faults`."""
    if len(replies) < needed:
        return False
    found = faults({node: reply for node, (reply, _) in replies.items()}, required, starts)
    return len(replies) - len(found) >= needed


def invalid_reason(model: ArrayRecord, required: ReplyRequirements) -> str | None:
    """Return why the model that a strategy made of the replies is not valid; None if it is."""
    return _model_fault(model, required.model or {}, strict=required.strict)


def _unusable(reply: Message) -> str | None:
    if reply.has_error():
        return f"its app failed: {' '.join(str(reply.error.reason).split())[:200]}"
    return None if reply.has_content() else "it is empty"


def sends_whole(reply: Message) -> bool:
    """Whether a reply has a model, and neither has nor had a rounded update instead."""
    if not reply.has_content() or ROUNDED in reply.content:
        return False
    arrays = [record for _, record in records_of(reply.content, ArrayRecord)]
    return bool(arrays) and not any(ROUNDED in record for record in arrays)


def restore_model(content: RecordDict, start: ArrayRecord) -> str | None:
    """Put the model in place of a rounded update in a reply, the start and what arrived of the update; or say why not.

    What the device tells of its update beside goes from the metrics, which are the strategy's, to a record of its own,
    as does that the update was rounded; `forget_update` removes it.
    """
    told: list[float] = []
    for _, metrics in records_of(content, MetricRecord):
        sums = metrics.pop(SUMS, [])
        told = list(map(float, sums)) if isinstance(sums, list) and len(sums) == 3 else []
    for key, record in list(records_of(content, ArrayRecord)):
        if ROUNDED not in record:
            continue
        try:
            arrays = _restored(record, start)
        except InputError as error:
            return f"its update cannot be restored: {error}"
        content[key] = arrays
        content[ROUNDED] = ConfigRecord({SUMS: told})
    return None


def _restored(record: ArrayRecord, start: ArrayRecord) -> ArrayRecord:
    floats = {name: values for name, values in floats_of(start) if name not in record}
    tensors = [values.size for values in floats.values()]
    levels, scales, bits = unpack(record.pop(ROUNDED).data, tensors)
    parts = np.split(restore(levels, scales, tensors, bits), np.cumsum(tensors)[:-1])
    arrays = dict(record)
    for (name, values), part in zip(floats.items(), parts, strict=True):
        with np.errstate(over="ignore"):  # a model that is not finite is refused as any other
            arrays[name] = Array((values + part.reshape(values.shape)).astype(start[name].dtype))
    return ArrayRecord({**{name: arrays.pop(name) for name in start if name in arrays}, **arrays})


def forget_update(reply: Message) -> None:
    """Remove what `restore_model` put into a reply: a strategy may reject a record that it does not know."""
    if reply.has_content() and ROUNDED in reply.content:
        del reply.content[ROUNDED]


def _fault(reply: Message, required: ReplyRequirements) -> str | None:
    found = _arrays_fault(reply.content, required) if required.model is not None else None
    return found or _metrics_fault(reply.content, required)


def _arrays_fault(content: RecordDict, required: ReplyRequirements) -> str | None:
    arrays = [record for _, record in records_of(content, ArrayRecord)]
    if not required.strict:
        every = (_array_fault(n, a, None, "", strict=False) for record in arrays for n, a in record.items())
        return next((fault for fault in every if fault), None)
    if len(arrays) != 1:
        return f"it has {len(arrays)} ArrayRecords, not one"
    model = required.model or {}
    fault = _model_fault(arrays[0], model, strict=True)
    if fault is None and required.trees:
        fault = next((fault for array in arrays[0].values() if (fault := _trees_fault(array))), None)
    if fault is None and list(arrays[0]) != list(model):
        for name in model:
            arrays[0][name] = arrays[0].pop(name)
    return fault


def _model_fault(arrays: ArrayRecord, model: ModelSchema, *, strict: bool) -> str | None:
    if arrays.keys() != model.keys():
        odd = min(arrays.keys() ^ model.keys())
        return f"its array {quoted(odd)} is {'not in the model' if odd in arrays else 'missing'}"
    every = (_array_fault(name, arrays[name], *wanted, strict=strict) for name, wanted in model.items())
    return next((fault for fault in every if fault), None)


def _array_fault(name: str, array: Array, shape: tuple[int, ...] | None, kind: str, *, strict: bool) -> str | None:
    """Return what is wrong with an array; shape None and kind "" are any."""
    if array.stype != "numpy.ndarray":
        return f"its array {quoted(name)} is a {quoted(array.stype)}, not a NumPy array" if strict else None
    found = header_of(array.data)
    if found is None:
        return f"its array {quoted(name)} is not a .npy file of numbers"
    dtype, saved, start = found
    if tuple(array.shape) != saved or (str(dtype) != array.dtype and dtype_of(array.dtype) != dtype):
        return f"its array {quoted(name)} is not of the shape and type that it claims"
    if math.prod(saved) * dtype.itemsize != len(array.data) - start:
        return f"its array {quoted(name)} has {len(array.data) - start} bytes, which do not fit its shape"
    if shape is not None and saved != shape:
        return f"its array {quoted(name)} has the shape {quoted(saved)}, the model's has {shape}"
    kinds = {"f": "f", "c": "c", "i": "iubf", "B": "u"}.get(kind, "iubfc")
    if dtype.kind not in kinds or (kind == "B" and dtype.itemsize != 1):
        return f"its array {quoted(name)} is of {dtype}, unlike the model's"
    if not is_finite_and_bounded(array.data, dtype, start):
        return f"its array {quoted(name)} has values that are not finite or larger than {MAX_VALUE:g}"
    return None


def _trees_fault(array: Array) -> str | None:
    """Return why a booster cannot be joined to others: Flower would end the run, or hand it on as the model."""
    booster = array.numpy().tobytes()
    if not booster:
        return "it has no trees"
    try:
        aggregate_bagging(booster, booster)
    except Exception as error:
        return f"its trees cannot be joined ({type(error).__name__})"
    return None


def _metrics_fault(content: RecordDict, required: ReplyRequirements) -> str | None:
    metrics = [record for _, record in records_of(content, MetricRecord)]
    if required.strict and len(metrics) != 1:
        return f"it has {len(metrics)} MetricRecords, not one"
    for record in metrics:
        for name, value in record.items():
            for number in value if isinstance(value, list) else (value,):
                if not -MAX_METRIC <= number <= MAX_METRIC and name != required.weight:
                    return f"its metric {quoted(name)} is {quoted(number)}"
        fault = _weight_fault(record, required)
        if fault:
            return fault
    return None


def _weight_fault(record: MetricRecord, required: ReplyRequirements) -> str | None:
    """Return what is wrong with the weight and the other numbers that the strategy reads."""
    weight = None if required.weight is None else record.get(required.weight)
    if weight is None and required.weight is not None and required.strict:
        return f"its metrics have no {required.weight!r}"
    if weight is not None and (isinstance(weight, list) or not 0 < weight <= MAX_WEIGHT):
        return f"its {required.weight!r} is {quoted(weight)}, not a number above 0 and up to {MAX_WEIGHT:g}"
    for name, least in required.numbers.items():
        value = record.get(name)
        if value is None or isinstance(value, list) or value < least:
            return f"its metric {name!r} is {quoted(value)}"
    return None


def _signature(content: RecordDict, required: ReplyRequirements) -> tuple[Any, ...]:
    """Return what must be the same in all replies of a round."""
    metrics = tuple(
        (key, tuple(sorted((name, _length(value) if required.lists else 0) for name, value in record.items())))
        for key, record in sorted(records_of(content, MetricRecord), key=lambda item: item[0])
    )
    keys = tuple(sorted(key for key, _ in records_of(content, ArrayRecord))) if required.model is not None else ()
    weight = required.weight if required.equal else None
    weights = tuple(record.get(weight) for _, record in records_of(content, MetricRecord)) if weight else ()
    if required.strict or required.model is None:
        return None, keys, metrics, weights
    shapes = (
        (name, tuple(array.shape) if (dtype := dtype_of(array.dtype)) and dtype.kind in "fc" else None)
        for _, record in records_of(content, ArrayRecord)
        for name, array in record.items()
    )
    return frozenset(shapes), keys, metrics, weights


def _arrays_of_model(required: ReplyRequirements) -> Any:
    return (
        None if required.strict or required.model is None else frozenset((n, s) for n, (s, _) in required.model.items())
    )


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else -1


def quoted(value: object) -> str:
    """Return something that a client sent, shortened for a line of the log."""
    text = repr(value) if not isinstance(value, float) else f"{value:g}"
    return text if len(text) <= 60 else f"{text[:57]}..."


RMS = "_rms"
"""What follows the name of the loss in that of the root mean square of the samples' losses."""


def read_metric(record: MetricRecord | None, name: str) -> tuple[float, str | None]:
    """Return a number that a client tells, NaN if it does not, and what is wrong with it if it is no such number."""
    value: Any = None if record is None else record.get(name)
    if value is None:
        return math.nan, None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= MAX_VALUE:
        return float(value), None
    return math.nan, f"its {name!r} is {quoted(value)}, not a number from 0 to {MAX_VALUE:g}"


def reports_of(
    replies: Sequence[Message], model: ArrayRecord, policy: Policy, loss_metric: str
) -> tuple[dict[str, Floats], list[tuple[int, str]]]:
    """Return what the replies of a round tell, NaN where they tell nothing.

    Args:
        replies: n replies that may be used.
        model: the model with which the round began.
        policy: what it does not use is not computed.
        loss_metric: the metric that has the loss.

    Returns:
        By column, as far as they are wanted, what `fedcell.protocol.signals` has; and what is wrong with which reply.
    """
    odd: list[tuple[int, str]] = []
    if not replies:
        return {}, odd
    losses, rms = _metrics(replies, loss_metric, odd), np.full(len(replies), np.nan)
    if policy.uses_rms:
        rms = _metrics(replies, loss_metric + RMS, odd)
    needed = any(uses_signal(policy, one) for one in SIGNALS if one.flag not in (None, "uses_rms"))
    changes = [_change(model, reply, number, odd) if needed else None for number, reply in enumerate(replies)]
    sizes = Counter(change.size for change in changes if change is not None)
    size = max(sizes, key=sizes.__getitem__, default=1)
    rows = np.full((len(replies), size), np.nan, np.float32)
    for row, change in zip(rows, changes, strict=True):
        if change is not None and change.size == size:
            row[:] = change
    zeros = np.zeros(size, np.float32)
    tensors = tuple(values.size for _, values in floats_of(model)) if needed else ()
    tensors = tensors if sum(tensors) == size else ()  # the mean of integers is of floats, and an update has none
    sums = np.array([_told_sums(reply) for reply in replies])
    updates = HostUpdates([zeros] * len(replies), rows, losses, rms, tensors, sums)
    with np.errstate(over="ignore", invalid="ignore"):
        return read_signals(policy, updates), odd


def _told_sums(reply: Message) -> list[float]:
    """Return what a device tells of its update before it was rounded; NaN if its reply does not have it."""
    record = reply.content.get(ROUNDED)
    told = record.get(SUMS) if isinstance(record, ConfigRecord) else None
    sums = list(map(float, told)) if isinstance(told, list) else []
    return sums if len(sums) == 3 and all(0.0 <= one <= MAX_METRIC for one in sums) else [math.nan] * 3


def _change(model: ArrayRecord, reply: Message, number: int, odd: list[tuple[int, str]]) -> NDArray[np.float32] | None:
    arrays = next((record for _, record in records_of(reply.content, ArrayRecord)), None)
    change = update_of(model, arrays)
    if change is None:
        odd.append((number, "its arrays of floats are not the model's, so that the update has no length"))
    return change


def _metrics(replies: Sequence[Message], name: str, odd: list[tuple[int, str]]) -> Floats:
    values = np.full(len(replies), np.nan)
    for number, reply in enumerate(replies):
        told = (read_metric(record, name) for _, record in records_of(reply.content, MetricRecord))
        for value, fault in told:
            if fault is not None:
                odd.append((number, fault))
            elif not math.isnan(value):
                values[number] = value
    return values
