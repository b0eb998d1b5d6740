"""How many can be asked, who arrives in time, and when a round ends: rules that the simulator and Flower share."""

from dataclasses import dataclass

import numpy as np

from fedcell.schedule.plan import Timing
from fedcell.types import Bools, Floats


def allowed_s(planned_s: Floats, slack: float, known: Bools, grace_s: float = 0.0) -> Floats:
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
        >>> from fedcell.protocol.outcome import allowed_s
        >>> allowed_s(np.array([4.0, 5.0]), 2.0, np.array([True, False])).tolist()
        [8.0, inf]
    """
    return np.where(known, slack * planned_s + grace_s, np.inf)


@dataclass(frozen=True, eq=False)
class Turnout:
    """How a planned round went. Arrays are of the n scheduled devices, in the plan's order.

    Attributes:
        delivered: (n,) booleans: the devices whose models arrived in time.
        round_s: how long the round took, in seconds.
        taught: the times as the server can know them: a device that had not delivered when the round ended took at
            least so long, and one that left teaches nothing (NaN).
        worked: until when each device really trained and sent: until it had delivered, left or was waited for no more.
        coming: (n,) booleans: the devices whose models arrive after the round, if they are still wanted then.
        after_s: (n,) how long after the end of the round a model arrives, in seconds; 0 for those that arrived in it.
        starts_s: (n,) when each really had the model; None if the downlink takes no time.
    """

    delivered: Bools
    round_s: float
    taught: Timing
    worked: Timing
    coming: Bools
    after_s: Floats
    starts_s: Floats | None = None

    @classmethod
    def of_nobody(cls, round_s: float) -> "Turnout":
        """A round in which nobody was scheduled."""
        nothing, nobody = Timing(np.empty(0), np.empty(0)), np.empty(0, np.bool_)
        return cls(nobody, round_s, nothing, nothing, nobody, np.empty(0))


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


def turnout(
    timing: Timing,
    planned_upload_s: Floats,
    late_s: Floats,
    leaves_s: Floats,
    *,
    needed: int | None = None,
    late_count: bool = False,
) -> Turnout:
    """Play a planned round.

    A device that leaves before it has delivered brings nothing, and the server, which notices it, does not wait for
    it any longer. The round ends when all others have delivered, or as many as are needed, at the latest when the last
    of them is late.

    Args:
        timing: when each device would start to upload and finish, if the server waited and nobody left.
        planned_upload_s: (n,) how long each upload was planned to take, in seconds.
        late_s: (n,) after how many seconds each is late; see `allowed_s`.
        leaves_s: (n,) after how many seconds each leaves; infinity for never.
        needed: how many models end the round; all by default.
        late_count: whether late models are still wanted after the round: then their devices go on.

    Returns:
        Turnout: who delivered, the length of the round, and what it taught.

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.plan import Timing
        >>> from fedcell.protocol.outcome import turnout
        >>> timing = Timing(began_s=np.array([2.0, 3.0, 2.0]), finish_s=np.array([6.0, 20.0, 7.0]))
        >>> round = turnout(timing, np.full(3, 4.0), late_s=np.full(3, 12.0), leaves_s=np.array([np.inf, np.inf, 5.0]))
        >>> round.delivered.tolist(), round.round_s
        ([True, False, False], 12.0)
        >>> round.taught.began_s.tolist(), round.taught.finish_s.tolist()
        ([2.0, 8.0, nan], [6.0, 12.0, nan])
        >>> round.worked.finish_s.tolist()
        [6.0, 12.0, 5.0]
    """
    left = leaves_s < timing.finish_s
    round_s = float(min(np.minimum(timing.finish_s, leaves_s).max(), late_s.max()))
    if needed is not None and needed < timing.finish_s.size:
        cut_s = enough_s(timing.finish_s[~left & (timing.finish_s <= late_s)], needed)
        round_s, late_s = min(round_s, cut_s), np.minimum(late_s, cut_s)
    missing = ~left & (timing.finish_s > round_s)
    finish_s = np.where(missing, np.minimum(late_s, round_s), timing.finish_s)
    began_s = np.where(missing, np.maximum(finish_s - planned_upload_s, 0.0), timing.began_s)
    taught = Timing(np.where(left, np.nan, began_s), np.where(left, np.nan, finish_s), missing)
    delivered = ~left & (timing.finish_s <= late_s)
    coming = ~left & ~delivered & late_count
    stopped_s = np.where(coming, timing.finish_s, np.minimum(np.minimum(timing.finish_s, leaves_s), round_s))
    worked = Timing(np.minimum(timing.began_s, stopped_s), stopped_s)
    after_s = np.where(coming, np.maximum(timing.finish_s - round_s, 0.0), 0.0)
    return Turnout(delivered, round_s, taught, worked, coming, after_s)
