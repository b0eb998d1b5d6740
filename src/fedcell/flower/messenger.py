"""Send the messages of a round, or of the question before it, and wait for the replies as long as the plan allows."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedcell.flower.collect import Replies, collect
from fedcell.flower.radio import Radio
from fedcell.flower.round import PlannedRound
from fedcell.schedule.needs import Floats
from fedcell.sim.heard import Timing


@dataclass(frozen=True, eq=False)
class Came:
    """What came of the messages. Times are in seconds from the start of the round.

    Attributes:
        replies: by node, its reply and when it arrived.
        measured: the times that the radio measured, if it did.
        allowed_s: (n,) after which a device is late, in the plan's order.
        waited_s: when the wait was over.
        began_s: the start of the round, by the monotonic clock.
    """

    replies: Replies
    measured: Timing | None
    allowed_s: Floats
    waited_s: float
    began_s: float


@dataclass(frozen=True, eq=False)
class Messenger:
    """How long replies are waited for.

    Attributes:
        grid: Flower's.
        radio: applies the shares, and may measure.
        slack: a device is late after so many times its planned time,
        grace_s: and so many seconds.
        timeout_s: the longest wait.
        poll_s: seconds between two looks for replies.
        left_s: seconds from the start of the round to the end of the budget.
    """

    grid: Grid
    radio: Radio
    slack: float
    grace_s: float
    timeout_s: float
    poll_s: float
    left_s: float

    def send(
        self,
        planned: PlannedRound,
        messages: list[Message],
        *,
        began_s: float | None = None,
        enough: Callable[[Replies], bool] = lambda _: False,
    ) -> Came:
        """Send the messages of a plan and wait.

        Args:
            planned: the plan.
            messages: one for each scheduled device.
            began_s: the start of the round by the monotonic clock, if a question came before; now by default.
            enough: whether these replies, of those in time, are all that are needed; asked only in real time.
        """
        radio = self.radio
        radio.grant(planned.grant)
        sent_s = time.monotonic()
        began_s = sent_s if began_s is None else began_s
        allowed_s = planned.allowed_s(self.slack, self.grace_s)
        # Of a node whose times are unknown nothing is demanded, but that it comes before the budget is spent.
        latest_s = float(np.where(np.isfinite(allowed_s), allowed_s, self.left_s).max(initial=0.0))
        if radio.real_time:
            past_s = sent_s - began_s
            deadline_s = min(self.timeout_s, max(latest_s - past_s, 0.0))
            until_s = dict(zip(planned.chosen, allowed_s - past_s, strict=True))

            def enough_in_time(replies: Replies) -> bool:
                return enough({node: found for node, found in replies.items() if found[1] <= until_s[node]})

            found = collect(self.grid, messages, deadline_s, self.poll_s, enough_in_time)
            replies = {node: (reply, past_s + came_s) for node, (reply, came_s) in found.items()}
        else:
            replies = collect(self.grid, messages, self.timeout_s, self.poll_s)
        waited_s = time.monotonic() - began_s
        # An answer is too small to be told from other traffic: only the simulator measures it.
        measures = bool(messages) and (planned.grant.bits is None or not radio.real_time)
        measured = radio.measure(planned.grant) if measures else None
        if measured is not None:  # the simulator has no deadlines; what a radio measures needs no grace
            allowed_s = planned.allowed_s(self.slack if radio.real_time else math.inf, 0.0)
        return Came(replies, measured, allowed_s, waited_s, began_s)
