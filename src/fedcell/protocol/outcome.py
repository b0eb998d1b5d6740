"""Who delivered in time, when the round ended, and what its times teach: judged once, simulated or over real links."""

from dataclasses import dataclass

import numpy as np

from fedcell.schedule.plan import Timing
from fedcell.types import Bools, Floats


@dataclass(frozen=True, eq=False)
class Observed:
    """What came of a plan. Arrays are of its n devices, in its order; times are seconds from the start of the round.

    Attributes:
        timing: when each started to upload and finished, or would have if the server had waited.
        late_s: (n,) after how many seconds each is late; see `deadlines`.
        leaves_s: (n,) after how many seconds each leaves; None if nobody does.
        arrived: (n,) booleans: what came until the wait was over; None if all would come in their time.
        unusable: (n,) booleans: what came in time, but cannot be used; None if all can.
        ended_s: when the wait was over; None if it is over as soon as there is nothing to wait for.
        starts_s: (n,) when each really had the model; None if the downlink takes no time.
        kept: booleans of the devices of the plan: those that it was carried out for; None for all of them.
        own: the devices' own times, where those of the server say nothing of them; None if they do.
    """

    timing: Timing
    late_s: Floats
    leaves_s: Floats | None = None
    arrived: Bools | None = None
    unusable: Bools | None = None
    ended_s: float | None = None
    starts_s: Floats | None = None
    kept: Bools | None = None
    own: Timing | None = None

    @property
    def nothing_is_amiss(self) -> bool:
        """Whether all have delivered, and nobody could be late."""
        given = (self.leaves_s, self.arrived, self.unusable, self.ended_s, self.own)
        return all(one is None for one in given) and self.late_s.min() == np.inf and self.timing.finish_s.max() < np.inf


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a round went. Arrays are of the n scheduled devices, in the plan's order.

    Attributes:
        delivered: (n,) booleans: the devices whose models arrived in time and are used.
        round_s: how long the round took, in seconds.
        learnt: the times as the server can know them; see `judge`.
        late: (n,) booleans: the devices whose models came, or will come, too late to be used.
        failed: (n,) booleans: the devices that brought nothing, or nothing that can be used.
        active: until when each device trained and sent: until it had delivered, left or was waited for no more.
        pending: (n,) booleans: the devices whose models arrive after the round, if they are still wanted then.
        after_s: (n,) how long after the end of the round a model arrives, in seconds; 0 for those that arrived in it.
        cut_s: when as many as were needed had delivered and the round ended; infinity if it did not end so.
    """

    delivered: Bools
    round_s: float
    learnt: Timing
    late: Bools
    failed: Bools
    active: Timing
    pending: Bools
    after_s: Floats
    cut_s: float = np.inf

    @classmethod
    def empty(cls, round_s: float) -> "Outcome":
        """A round in which nobody was scheduled."""
        nothing, nobody = Timing(np.empty(0), np.empty(0)), np.empty(0, np.bool_)
        return cls(nobody, round_s, nothing, nobody, nobody, nothing, nobody, np.empty(0))


def deadlines(planned_s: Floats, slack: float, known: Bools, grace_s: float = 0.0) -> Floats:
    """Return after how many seconds each scheduled device is late: slack times its planned time.

    Args:
        planned_s: (n,) when each is planned to finish, in seconds from the start of the round.
        slack: at least 1; infinity if nobody is ever late.
        known: (n,) booleans: whether enough is known about a device to plan with. If not, it is never late.
        grace_s: seconds that every device has in addition.

    Returns:
        (n,) seconds.

    Example:
        >>> import numpy as np
        >>> from fedcell.protocol.outcome import deadlines
        >>> deadlines(np.array([4.0, 5.0]), 2.0, np.array([True, False])).tolist()
        [8.0, inf]
    """
    return np.where(known, slack * planned_s + grace_s, np.inf)


def enough_s(arrive_s: Floats, needed: int) -> float:
    """Return when as many models as are needed have arrived, infinity if never.

    Args:
        arrive_s: (n,) when each model that may be used arrives, in seconds from the start of the round.
        needed: how many end the round; at least one does.

    Example:
        >>> import numpy as np
        >>> from fedcell.protocol.outcome import enough_s
        >>> round(enough_s(np.array([4.0, 9.0, 5.0]), 2), 6), enough_s(np.array([4.0]), 2)
        (5.0, inf)
    """
    if arrive_s.size < max(needed, 1):
        return np.inf
    # Devices that were planned to finish together do, but for rounding.
    return float(np.sort(arrive_s)[max(needed, 1) - 1]) * (1.0 + 1e-9)


def judge(observed: Observed, upload_s: Floats, *, needed: int | None = None, late_count: bool = False) -> Outcome:
    """Judge a round, or the question before it.

    The round ends when all devices have delivered or left, or as many have delivered as are needed, at the latest when
    the last of them is late.

    =============================================== ======== =======================================================
    the model of a device                           is used  its times teach
    =============================================== ======== =======================================================
    came in time, and before enough others had      yes      what was measured
    came too late, but before the round ended       no       what was measured
    had not come when the round ended               no       that it takes at least so long (``censored``); its
                                                             upload would have begun as long before as was planned
    was waited for in vain (real clients only)      no       nothing: the wait was the server's; it counts as failed
    came in time, but cannot be used                no       nothing; it counts as failed
    was that of a device that left before           no       nothing
    =============================================== ======== =======================================================

    Args:
        observed: what came.
        upload_s: (n,) how long each upload was planned to take, in seconds.
        needed: how many models end the round; all by default.
        late_count: whether late models are still wanted after the round: then their devices go on.

    Returns:
        Outcome: who delivered, the length of the round, and what it taught.

    Example:
        >>> import numpy as np
        >>> from fedcell.protocol.outcome import Observed, judge
        >>> from fedcell.schedule.plan import Timing
        >>> timing = Timing(began_s=np.array([2.0, 3.0, 2.0]), finish_s=np.array([6.0, 20.0, 7.0]))
        >>> observed = Observed(timing, late_s=np.full(3, 12.0), leaves_s=np.array([np.inf, np.inf, 5.0]))
        >>> outcome = judge(observed, np.full(3, 4.0))
        >>> outcome.delivered.tolist(), outcome.round_s
        ([True, False, False], 12.0)
        >>> outcome.learnt.began_s.tolist(), outcome.learnt.finish_s.tolist()
        ([2.0, 8.0, nan], [6.0, 12.0, nan])
        >>> outcome.active.finish_s.tolist()
        [6.0, 12.0, 5.0]
    """
    timing, late_s, arrived = observed.timing, observed.late_s, observed.arrived
    all_are_needed = needed is None or needed >= timing.finish_s.size
    if all_are_needed and observed.nothing_is_amiss:
        return _all_delivered(timing)
    finish_s = timing.finish_s if arrived is None else np.where(arrived, timing.finish_s, np.inf)
    leaves_s = np.full(finish_s.size, np.inf) if observed.leaves_s is None else observed.leaves_s
    left = leaves_s < finish_s
    out = left if observed.unusable is None else left | observed.unusable
    gone_s, came = np.minimum(finish_s, leaves_s), ~out if arrived is None else ~out & arrived

    round_s = float(min(gone_s.max(), late_s.max())) if observed.ended_s is None else observed.ended_s
    cut_s = np.inf
    if needed is not None and needed < finish_s.size:
        cut_s = enough_s(finish_s[came & (finish_s <= late_s)], needed)
        round_s, late_s = min(round_s, cut_s), np.minimum(late_s, cut_s)
    delivered = came & (finish_s <= late_s)
    missing, nothing = ~out & (finish_s > round_s), out
    failed = np.zeros(finish_s.size, np.bool_) if observed.unusable is None else observed.unusable
    if arrived is not None and not np.isfinite(cut_s):
        missing, nothing, failed = missing & arrived, nothing | ~arrived, failed | ~arrived

    end_s = np.where(missing, np.minimum(late_s, round_s), finish_s)
    began_s = np.where(missing, np.maximum(end_s - upload_s, 0.0), timing.began_s)
    learnt = Timing(np.where(nothing, np.nan, began_s), np.where(nothing, np.nan, end_s), missing)
    if observed.own is not None:
        learnt = Timing(np.where(nothing, np.nan, observed.own.began_s), observed.own.finish_s)

    pending = ~out & ~delivered & late_count
    stopped_s = np.where(pending, finish_s, np.minimum(gone_s, round_s))
    active = Timing(np.minimum(timing.began_s, stopped_s), stopped_s)
    after_s = np.where(pending, np.maximum(finish_s - round_s, 0.0), 0.0)
    late = ~(delivered | failed | left)
    return Outcome(delivered, round_s, learnt, late, failed, active, pending, after_s, cut_s)


def _all_delivered(timing: Timing) -> Outcome:
    """The outcome of a round in which all delivered, and nobody could be late: most rounds are so."""
    n = timing.finish_s.size
    yes, no = np.ones(n, np.bool_), np.zeros(n, np.bool_)
    learnt = Timing(timing.began_s, timing.finish_s, no)
    active = Timing(np.minimum(timing.began_s, timing.finish_s), timing.finish_s)
    return Outcome(yes, float(timing.finish_s.max()), learnt, no, no, active, no, np.zeros(n))
