"""What a node reports about itself, and how the report reaches the server."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fedcell.errors import UNPRINTABLE, InputError, did_you_mean
from fedcell.flower.flwr_api import answer_query
from fedcell.units import LARGEST_S, SMALLEST_S
from fedcell.world.device import mean_compute_s

RECORD = "fedcell"
"""The name of our ConfigRecord in a reply."""
_HAS_TRAINED = threading.Event()  # in this process
ACTION = "fedcell"
FAULT = "fault"
QUERY = f"{MessageType.QUERY}.{ACTION}"
MAX_NAME_CHARACTERS = 200
MAX_PROFILE = 4096
"""Numbers in a profile; with more, a report would be as long as a model."""
LARGEST_ENTRY = 1e6
"""Of a profile, up or down: squares of these, and their sums, are far from overflow."""
_BOUNDS = {
    "samples": (1.0, 1e15),
    "seconds_per_sample": (0.0, 1e15),
    "samples_per_second": (1e-15, 1e300),
    "compute_s": (0.0, LARGEST_S),
    "snr_db": (-1000.0, 1000.0),
    "rate_bps": (1e-15, 1e18),
    "upload_s": (SMALLEST_S, LARGEST_S),
}


@dataclass(frozen=True)
class Report:
    """What a node knows about itself; every field is optional.

    Attributes:
        name: the name of the device, which must not change when the node restarts; by default its ``partition-id``, or
            its node id.
        samples: D, the number of its training samples.
        seconds_per_sample: a, the fixed part of its training time, in seconds per sample.
        samples_per_second: mu, the rate of the exponential part; it trains for a D + D / mu seconds on average.
        compute_s: seconds of local training, instead of the two above.
        snr_db: signal-to-noise ratio of its uplink, in dB.
        rate_bps: rate of its uplink with the entire band, in bit/s, instead of an SNR.
        upload_s: seconds to upload a model with the entire band, instead of either.
        profile: what its data is like, at most 4096 finite numbers from -1e6 to 1e6, as many from every node: of
            `profile_of`, label shares, or any vector in which nodes with alike data are close to each other.

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
        return min(mean_compute_s(self.samples, a, mu), LARGEST_S)


def _brief(value: Any) -> str:
    return str(value)[:50] if isinstance(value, int | float | np.generic) else repr(value)[:50]


def _checked_profile(profile: Any) -> tuple[float, ...]:
    """Return the profile as floats, or raise an InputError that says what is wrong with it."""
    wanted = f"give 1 to {MAX_PROFILE} numbers from {-LARGEST_ENTRY:g} to {LARGEST_ENTRY:g}"
    try:
        entries = np.asarray(profile)
    except (TypeError, ValueError):  # of rows of different lengths
        entries = np.empty((0, 0))
    if entries.ndim != 1 or entries.dtype.kind not in "iuf":
        raise InputError(f"profile is {str(profile)[:50]!r}; {wanted}")
    if not 1 <= entries.size <= MAX_PROFILE:
        raise InputError(f"profile has {entries.size} numbers; {wanted}")
    outside = ~(np.abs(entries.astype(np.float64)) <= LARGEST_ENTRY)  # NaN is in no interval
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
