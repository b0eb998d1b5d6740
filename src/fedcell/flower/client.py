"""The ClientApp's side: a device's report, mods that measure training and compress its result, answers to questions.

Nothing of the server is imported here: Flower starts a process for every message to a node.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray

from fedcell.errors import UNPRINTABLE, InputError, did_you_mean
from fedcell.flower.compat import answer_query, has_mod
from fedcell.learn.profile import MAX_PROFILE
from fedcell.quantisation import WEIGHT_BITS, pack, round_update, sums_of
from fedcell.units import MAX_S, MIN_S
from fedcell.world.device import mean_compute_s

RECORD = "fedcell"
"""The name of fedcell's ConfigRecord in a reply."""
_HAS_TRAINED = threading.Event()  # in this process
ACTION = "fedcell"
FAULT = "fault"
QUERY = f"{MessageType.QUERY}.{ACTION}"
MAX_NAME_CHARACTERS = 200
MAX_PROFILE_ENTRY = 1e6
"""The largest magnitude of a profile's entries: squares of these, and their sums, are far from overflow."""
_BOUNDS = {
    "samples": (1.0, 1e15),
    "seconds_per_sample": (0.0, 1e15),
    "samples_per_second": (1e-15, 1e300),
    "compute_s": (0.0, MAX_S),
    "snr_db": (-1000.0, 1000.0),
    "rate_bps": (1e-15, 1e18),
    "upload_s": (MIN_S, MAX_S),
}


@dataclass(frozen=True)
class Report:
    """What a device reports about its compute time, its uplink and its data; every field is optional.

    Attributes:
        name: the name of the device, which must not change when the node restarts; by default its ``partition-id``, or
            its node id.
        samples: D, the number of training samples.
        seconds_per_sample: a, the fixed part of its training time, in seconds per sample.
        samples_per_second: mu, the rate of the exponential part; it trains for a D + D / mu seconds on average.
        compute_s: seconds of local training, instead of the two above.
        snr_db: signal-to-noise ratio of its uplink, in dB.
        rate_bps: rate of its uplink with the entire band, in bit/s, instead of an SNR.
        upload_s: seconds to upload a model with the entire band, instead of either.
        profile: what its data is like, at most 4096 finite numbers from -1e6 to 1e6, as many from every node: of
            `profile_of`, label shares, or any vector in which nodes with similar data are close to each other.
        any_epochs: whether its training is as long as `epochs_of` says, so that the policy may decide it.
        any_bits: whether its app has the mod `compressed`, so that the policy may decide the size of its upload;
            `report_device` looks for itself.

    Example:
        >>> from fedcell.flower import Report
        >>> report = Report(samples=3000, seconds_per_sample=2e-3, samples_per_second=4000.0, snr_db=12.0)
        >>> report.expected_compute_s()  # 2 ms * 3000 + 3000 / 4000
        6.75
    """

    name: str = ""
    samples: float | None = None
    seconds_per_sample: float | None = None
    samples_per_second: float | None = None
    compute_s: float | None = None
    snr_db: float | None = None
    rate_bps: float | None = None
    upload_s: float | None = None
    profile: Sequence[float] | None = None
    any_epochs: bool = False
    any_bits: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or len(self.name) > MAX_NAME_CHARACTERS or UNPRINTABLE.search(self.name):
            raise InputError(
                f"name is {str(self.name)[:50]!r}; give at most {MAX_NAME_CHARACTERS} characters, all printable"
            )
        for field, (least, most) in _BOUNDS.items():
            value = getattr(self, field)
            if value is None:
                continue
            number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
            if not (number and least <= value <= most):  # NaN is in no interval
                raise InputError(f"{field} is {_brief(value)}; give a number from {least:g} to {most:g}")
            object.__setattr__(self, field, value.item() if isinstance(value, np.generic) else value)

        for field in ("any_epochs", "any_bits"):
            if not isinstance(getattr(self, field), bool):
                raise InputError(f"{field} is {_brief(getattr(self, field))}; give True or False")
        if self.profile is not None:
            object.__setattr__(self, "profile", _checked_profile(self.profile))

    def expected_compute_s(self) -> float:
        """Return the expected seconds of training according to the report; NaN if it has no compute times."""
        if self.compute_s is not None:
            return self.compute_s
        if self.samples is None or (self.seconds_per_sample is None and self.samples_per_second is None):
            return math.nan
        a = 0.0 if self.seconds_per_sample is None else self.seconds_per_sample
        mu = math.inf if self.samples_per_second is None else self.samples_per_second
        return mean_compute_s(self.samples, a, mu)


def _brief(value: Any) -> str:
    return str(value)[:50] if isinstance(value, int | float | np.generic) else repr(value)[:50]


def _checked_profile(profile: Any) -> tuple[float, ...]:
    """Return the profile as floats, or raise an InputError that says what is wrong with it."""
    wanted = f"give 1 to {MAX_PROFILE} numbers from {-MAX_PROFILE_ENTRY:g} to {MAX_PROFILE_ENTRY:g}"
    try:
        entries = np.asarray(profile)
    except (TypeError, ValueError):  # of rows of different lengths
        entries = np.empty((0, 0))
    if entries.ndim != 1 or entries.dtype.kind not in "iuf":
        raise InputError(f"profile is {str(profile)[:50]!r}; {wanted}")
    if not 1 <= entries.size <= MAX_PROFILE:
        raise InputError(f"profile has {entries.size} numbers; {wanted}")
    outside = ~(np.abs(entries.astype(np.float64)) <= MAX_PROFILE_ENTRY)  # NaN is in no interval
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        raise InputError(f"profile[{first}] is {entries[first]}; {wanted}")
    return tuple(entries.astype(np.float64).tolist())


def parse_report(record: Mapping[str, Any]) -> Report:
    """Return the report in a node's answer; an InputError names the field that is wrong."""
    known = {field.name for field in fields(Report)}
    for key in record:
        if key not in known:
            raise InputError(f"unknown field {str(key)[:50]!r}; {did_you_mean(str(key)[:50], known)}")
    return Report(**record)


def report_device(app: ClientApp, report: Report | Callable[[Context], Report] | None = None, **values: Any) -> None:
    """Make a ClientApp answer fedcell's query; add this line after ``app = ClientApp(...)``.

    Args:
        app: a ClientApp of Flower's Message API.
        report: a Report, or a function from the Context to a Report, called whenever the server asks (for example to
            measure the current SNR).
        values: the fields of a Report, instead of ``report``.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> from fedcell.flower import Report, report_device
        >>> report_device(ClientApp(), samples=600, snr_db=12.0)
        >>> report_device(ClientApp(), lambda context: Report(name=f"pi-{context.node_id}", rate_bps=5e6))
    """
    if report is not None and values:
        raise InputError("report_device was given both a report and fields of a report; give one or the other")
    if report is not None and not isinstance(report, Report) and not callable(report):
        raise InputError(f"report is a {type(report).__name__}; give a Report, or a function that returns one")
    fixed = parse_report(values) if report is None else report

    def answer(message: Message, context: Context) -> Message:
        own_name = str(context.node_config.get("partition-id", context.node_id))
        try:
            given = fixed(context) if callable(fixed) else fixed
            if not isinstance(given, Report):
                raise InputError(f"the report function returned a {type(given).__name__}; return a Report")
        except Exception as error:  # tell the server which device failed, and how
            record = ConfigRecord({"name": own_name, FAULT: f"{type(error).__name__}: {error}"[:500]})
            return Message(RecordDict({RECORD: record}), reply_to=message)
        said = {field.name: getattr(given, field.name) for field in fields(given)} | {"name": given.name or own_name}
        said["any_bits"] = given.any_bits or has_mod(app, compressed)
        said["profile"] = None if given.profile is None else list(given.profile)  # Flower's records have no tuples
        record = ConfigRecord({name: value for name, value in said.items() if value is not None})
        return Message(RecordDict({RECORD: record}), reply_to=message)

    answer_query(app, ACTION, answer)


def timed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A Flower mod that tells the server how long training took: ``ClientApp(mods=[fedcell.flower.timed])``.

    Without it, the server counts all of a reply's delay that the link does not explain as training time.

    Args:
        message: the message from the server.
        context: the node's context.
        call_next: the next mod, or the app itself.

    Returns:
        The reply; for a training message, with the seconds of training in its record ``fedcell``, and whether it was
        the first of this process, which also loads what the app needs.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> from fedcell.flower import timed
        >>> app = ClientApp(mods=[timed])
    """
    if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
        return call_next(message, context)
    first = not _HAS_TRAINED.is_set()
    _HAS_TRAINED.set()
    began_s = time.monotonic()
    reply = call_next(message, context)
    if reply.has_content():
        reply.content[RECORD] = ConfigRecord({"train_s": time.monotonic() - began_s, "first": first})
    return reply


EPOCHS, BITS, KEY, WANTS_SUMS = "fedcell-epochs", "fedcell-bits", "fedcell-key", "fedcell-wants-sums"
"""In the config of a training message: how long to train, how many bits a weight to send, what the rounding's random
numbers are made of, and that the server wants to know how long the update was before."""
ROUNDED = "fedcell-rounded"
"""The array of bytes that replaces the model's arrays of floats in a reply."""
SUMS = "fedcell-sums"
"""The metric with the sums of the update before it was rounded."""
_START = "fedcell-start"


def epochs_of(message: Message, otherwise: float) -> float:
    """Return how often the training that a message asks for is to go through the node's samples.

    An app that trains as long as this says so in its report, with ``any_epochs=True``.

    Args:
        message: a training message.
        otherwise: the app's own number of epochs, which holds unless the policy decides it.

    Returns:
        A fraction of an epoch, of which an app trains on at least one batch, or a whole number of epochs.

    Example:
        >>> from fedcell.flower import epochs_of
        >>> def train(message, context):
        ...     batches = max(1, round(300 * epochs_of(message, otherwise=1.0)))  # of 300 in an epoch
    """
    return float(str(_config_of(message).get(EPOCHS, otherwise)))


def compressed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A Flower mod that sends as many bits a weight as the policy decides: ``ClientApp(mods=[timed, compressed])``.

    The update, what training added to the model, is rounded as `fedcell.quantisation` says; the server adds what
    arrives to the model that it sent, so that the strategy gets an ordinary model. Arrays that are not of floats are
    sent as they are. Put the mod before ``upload_when_asked``, and both before mods that change the model.

    Args:
        message: the message from the server.
        context: the node's context.
        call_next: the next mod, or the app itself.

    Returns:
        The reply; with its arrays of floats rounded, if the message says so.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> from fedcell.flower import compressed, timed
        >>> app = ClientApp(mods=[timed, compressed])
    """
    config, start = _config_of(message), arrays_of(message)
    if HOLD in config and start is not None:  # it is not sent again with the wish to have the model
        context.state[_START] = start
    elif SEND in config and _START in context.state:
        start = context.state.array_records[_START]
        del context.state[_START]
    reply = call_next(message, context)
    bits = int(float(str(config.get(BITS, WEIGHT_BITS))))
    arrays = arrays_of(reply) if reply.has_content() else None
    update = update_of(start, arrays)
    if bits >= WEIGHT_BITS or start is None or arrays is None or update is None:
        return reply
    floats = dict(floats_of(arrays))
    tensors = [values.size for name, values in floats_of(start) if name in floats]
    key = [int(part) for part in str(config[KEY]).split()]
    data = pack(*round_update(update, tensors, bits, key), bits)
    others = {name: array for name, array in arrays.items() if name not in floats or name not in start}
    place = next(name for name, record in reply.content.items() if record is arrays)
    reply.content[place] = ArrayRecord({ROUNDED: Array("uint8", (len(data),), ROUNDED, data), **others})
    metrics = next((record for record in reply.content.values() if isinstance(record, MetricRecord)), None)
    if WANTS_SUMS in config and metrics is not None:
        metrics[SUMS] = list(sums_of(update, tensors))
    return reply


ANSWER = "fedcell-answer"
"""The name of the MetricRecord with the answer, under ``loss`` or ``norm``."""
LOSS_ACTION = "fedcell_loss"
LOSS_QUERY = f"{MessageType.QUERY}.{LOSS_ACTION}"
ROUND, SAMPLES = "fedcell-round", "fedcell-samples"
HOLD, SEND = "fedcell-hold", "fedcell-send"
"""In the config of a training message: train, but keep the model; and: send the model that you kept."""
_HELD = "fedcell-held"


def answer_loss(app: ClientApp, loss: Callable[[Message, Context], float]) -> None:
    """Make a ClientApp answer policies that ask for the loss of the current model before they choose.

    Args:
        app: a ClientApp of Flower's Message API.
        loss: from the message and the Context to the mean loss of the message's model on the node's training data. The
            message has the ArrayRecord ``arrays`` and the ConfigRecord ``config``, which is that of training with
            ``fedcell-round`` (from 0) and, if the policy asks about some of the samples only, ``fedcell-samples``, how
            many are to be drawn.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> from fedcell.flower import answer_loss
        >>> def loss(message, context):
        ...     weights = message.content["arrays"]["weights"].numpy()
        ...     return float((weights**2).mean())  # yours: the model's mean loss on this node's data
        >>> answer_loss(ClientApp(), loss)
    """
    if not callable(loss):
        raise InputError(f"loss is a {type(loss).__name__}; give a function of a Message and a Context")

    def answer(message: Message, context: Context) -> Message:
        return _answer(message, loss=float(loss(message, context)))

    answer_query(app, LOSS_ACTION, answer)


def upload_when_asked(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A Flower mod for policies that choose after training: ``ClientApp(mods=[timed, upload_when_asked])``.

    When asked, the node trains, keeps its model in the Context's state and answers with the length of its update; it
    uploads the model if it is chosen. Other messages pass. Mods after it in the list, such as one that clips, see the
    model before it is kept.

    Args:
        message: the message from the server.
        context: the node's context.
        call_next: the next mod, or the app itself.

    Returns:
        The reply: the app's own, the length of the update, or the model that was kept.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> from fedcell.flower import timed, upload_when_asked
        >>> app = ClientApp(mods=[timed, upload_when_asked])
    """
    config = _config_of(message)
    if SEND in config:
        return _kept_model(message, context, int(str(config[ROUND])))
    reply = call_next(message, context)
    if HOLD not in config or not reply.has_content():
        return reply
    norm = update_norm(arrays_of(message), arrays_of(reply))
    if math.isnan(norm):
        raise InputError("the reply's arrays are not those of the model, so that the update has no length")
    _forget(context)
    context.state[_HELD] = ConfigRecord({"round": int(str(config[ROUND]))})
    for key, record in reply.content.items():
        context.state[f"{_HELD}.{key}"] = record
    return _answer(message, norm=norm)


def update_norm(before: ArrayRecord | None, after: ArrayRecord | None) -> float:
    """Return the Euclidean length of an update; NaN if the two models do not have the same arrays of floats."""
    change = update_of(before, after)
    return math.nan if change is None else float(np.linalg.norm(change))


def update_of(before: ArrayRecord | None, after: ArrayRecord | None) -> NDArray[np.float32] | None:
    """Return an update (P,), all arrays of floats one after the other; None if they differ in shape or there is none.

    An array counts if it is of floats in both: of integers, such as a count of batches, the mean that the server sends
    is a float, and an app's reply is an integer again.
    """
    if before is None or after is None:
        return None
    new = dict(floats_of(after))
    pairs = [(old, new[name]) for name, old in floats_of(before) if name in new]
    if not pairs or any(one.shape != other.shape for one, other in pairs):
        return None
    return np.concatenate([(other - one).ravel() for one, other in pairs])


def floats_of(arrays: ArrayRecord) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Return the arrays of floats by name, as float32."""
    found = ((name, array.numpy()) for name, array in arrays.items())
    return ((name, array.astype(np.float32, copy=False)) for name, array in found if array.dtype.kind == "f")


def _config_of(message: Message) -> ConfigRecord:
    """Return the config of a training message of fedcell; empty for other messages."""
    if message.metadata.message_type != MessageType.TRAIN or not message.has_content():
        return ConfigRecord()
    configs = (record for record in message.content.values() if isinstance(record, ConfigRecord))
    return next((record for record in configs if ROUND in record), ConfigRecord())


def arrays_of(message: Message) -> ArrayRecord | None:
    """Return the model in a message, None if there is none."""
    return next((record for record in message.content.values() if isinstance(record, ArrayRecord)), None)


def _answer(message: Message, **answer: float) -> Message:
    return Message(RecordDict({ANSWER: MetricRecord(dict(answer))}), reply_to=message)


def _kept_model(message: Message, context: Context, wanted: int) -> Message:
    """Reply with the model that was kept, and forget it; a model of another round is never sent."""
    kept = context.state.get(_HELD)
    found = kept.get("round") if isinstance(kept, ConfigRecord) else None
    content = {key.removeprefix(f"{_HELD}."): r for key, r in context.state.items() if key.startswith(f"{_HELD}.")}
    _forget(context)
    if found != wanted:
        has = "none" if found is None else f"that of round {int(str(found)) + 1}"
        raise InputError(f"the server asks for the model of round {wanted + 1}, and this node has {has}")
    return Message(RecordDict(content), reply_to=message)


def _forget(context: Context) -> None:
    for key in [key for key in context.state if key == _HELD or key.startswith(f"{_HELD}.")]:
        del context.state[key]
