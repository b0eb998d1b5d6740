"""Send the messages of a round, or of the question before it, and wait for the replies as long as the plan allows."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedcell.flower.collect import Later, Replies, collect
from fedcell.flower.compat import in_simulation
from fedcell.flower.radio import Radio
from fedcell.flower.round import Came, PlannedRound
from fedcell.types import Floats


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
        later: watches for replies after their round.
    """

    grid: Grid
    radio: Radio
    slack: float
    grace_s: float
    timeout_s: float
    poll_s: float
    left_s: float
    later: Later | None = None

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
        # Nodes that take turns cannot be late, and of what a radio simulates the wall clock knows nothing.
        in_turn = in_simulation(self.grid)
        deadlines = radio.real_time and not in_turn
        past_s, allowed_s = sent_s - began_s, np.full(len(planned.chosen), math.inf)

        def limits_s(replies: Replies) -> Floats:
            came_s = np.array([past_s + replies[n][1] if n in replies else np.nan for n in planned.chosen])
            return planned.limits_s(came_s, self.slack, self.grace_s)

        def until_s(replies: Replies) -> float:
            """The wait is over when everybody who is still out is past his own limit; see PlannedRound.limits_s."""
            out = np.array([node not in replies for node in planned.chosen], dtype=bool)
            limit_s = limits_s(replies)[out] if deadlines else allowed_s[out]
            # Of those without a limit nothing is demanded, but that they come before the budget is spent.
            latest_s = float(np.where(np.isfinite(limit_s), limit_s, self.left_s).max(initial=0.0))
            return min(self.timeout_s, max(latest_s - past_s, 0.0))

        def enough_in_time(replies: Replies) -> bool:
            until = dict(zip(planned.chosen, limits_s(replies) if deadlines else allowed_s, strict=True))
            return enough({node: found for node, found in replies.items() if past_s + found[1] <= until[node]})

        if self.later is not None:
            self.later.round = planned
        if radio.real_time:
            found = collect(self.grid, messages, until_s, self.poll_s, enough_in_time, self.later)
        else:
            found = collect(self.grid, messages, self.timeout_s, self.poll_s)
        replies = {node: (reply, past_s + came_s) for node, (reply, came_s) in found.items()}
        allowed_s = limits_s(found) if deadlines else allowed_s
        waited_s = time.monotonic() - began_s
        # An answer is too small to be told from other traffic: only the simulator measures it.
        measures = bool(messages) and (not planned.grant.answers or not radio.real_time)
        measured = radio.measure(planned.grant) if measures else None
        if measured is not None:  # which needs no grace
            held = radio.real_time or getattr(radio, "deadlines", False)
            allowed_s = planned.allowed_s(self.slack if held else math.inf, 0.0)
        simulated = measured is not None and not radio.real_time
        ended_s = None if simulated else waited_s
        return Came(replies, measured, allowed_s, ended_s, began_s, in_turn and measured is None)
