"""What replies tell about training, for policies that go by it: losses, and how far the models moved."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from numpy.typing import NDArray

from fedcell.flower.client import update_of
from fedcell.flower.replies import MAX_VALUE, quoted
from fedcell.flower.wrapped import records_of
from fedcell.learn.engine import HostUpdates
from fedcell.protocol.signals import SIGNALS, read_signals, uses
from fedcell.schedule.policy import Policy
from fedcell.types import Floats

RMS = "_rms"
"""What follows the name of the loss in that of the root mean square of the samples' losses."""


def told_number(record: MetricRecord | None, name: str) -> tuple[float, str | None]:
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
        policy: norms and sketches of updates are computed only if it uses them.
        loss_metric: the metric that has the loss.

    Returns:
        (n,) ``losses``, ``rms_losses`` and ``norms`` and (n, d) ``updates``, as far as they are wanted; and what is
        wrong with which reply.
    """
    odd: list[tuple[int, str]] = []
    if not replies:
        return {}, odd
    losses, rms = _metrics(replies, loss_metric, odd), np.full(len(replies), np.nan)
    if policy.uses_rms:
        rms = _metrics(replies, loss_metric + RMS, odd)
    needed = any(uses(policy, one) for one in SIGNALS if one.name in ("norms", "updates"))
    changes = [_change(model, reply, number, odd) if needed else None for number, reply in enumerate(replies)]
    size = max((change.size for change in changes if change is not None), default=1)
    rows = np.array([np.full(size, np.nan, np.float32) if change is None else change for change in changes])
    zeros = np.zeros(size, np.float32)
    updates = HostUpdates([zeros] * len(replies), rows.reshape(len(replies), size), losses, rms)
    with np.errstate(over="ignore"):
        return read_signals(policy, updates), odd


def _change(model: ArrayRecord, reply: Message, number: int, odd: list[tuple[int, str]]) -> NDArray[np.float32] | None:
    arrays = next((record for _, record in records_of(reply.content, ArrayRecord)), None)
    change = update_of(model, arrays)
    if change is None:
        odd.append((number, "its arrays of floats are not the model's, so that the update has no length"))
    return change


def _metrics(replies: Sequence[Message], name: str, odd: list[tuple[int, str]]) -> Floats:
    values = np.full(len(replies), np.nan)
    for number, reply in enumerate(replies):
        told = (told_number(record, name) for _, record in records_of(reply.content, MetricRecord))
        for value, fault in told:
            if fault is not None:
                odd.append((number, fault))
            elif not math.isnan(value):
                values[number] = value
    return values
