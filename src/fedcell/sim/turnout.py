"""How many can be asked, who arrives in time, and when a round ends: rules that the simulator and Flower share."""

from dataclasses import dataclass, replace

import numpy as np

from fedcell.schedule.bandwidth import Bools
from fedcell.schedule.needs import Floats
from fedcell.schedule.policy import Policy
from fedcell.sim.knowledge import Timing


def limited(policy: Policy, count: int) -> Policy:
    """Return the policy, with a smaller number of devices per round if it wants more than there are.

    Args:
        policy: any policy; one that schedules a fixed number of devices has it in its field ``k``.
        count: how many devices can be scheduled.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.sim.turnout import limited
        >>> limited(fc.Random(k=8), 5).k, limited(fc.Random(k=8), 20).k, limited(fc.All(), 5)
        (5, 8, All(max_devices=None, sharing='optimal'))
    """
    return replace(policy, k=count) if getattr(policy, "k", 0) > count else policy  # type: ignore[call-arg]


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
        >>> from fedcell.sim.turnout import allowed_s
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
        starts_s: (n,) when each really had the model; None if the downlink takes no time.
    """

    delivered: Bools
    round_s: float
    taught: Timing
    worked: Timing
    starts_s: Floats | None = None


def turnout(timing: Timing, planned_upload_s: Floats, late_s: Floats, leaves_s: Floats) -> Turnout:
    """Play a planned round.

    A device that leaves before it has delivered brings nothing, and the server, which notices it, does not wait for
    it any longer. The round ends when all others have delivered, at the latest when the last of them is late.

    Args:
        timing: when each device would start to upload and finish, if the server waited and nobody left.
        planned_upload_s: (n,) how long each upload was planned to take, in seconds.
        late_s: (n,) after how many seconds each is late; see `allowed_s`.
        leaves_s: (n,) after how many seconds each leaves; infinity for never.

    Returns:
        Turnout: who delivered, the length of the round, and what it taught.

    Example:
        >>> import numpy as np
        >>> from fedcell.sim.knowledge import Timing
        >>> from fedcell.sim.turnout import turnout
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
    missing = ~left & (timing.finish_s > round_s)
    finish_s = np.where(missing, np.minimum(late_s, round_s), timing.finish_s)
    began_s = np.where(missing, np.maximum(finish_s - planned_upload_s, 0.0), timing.began_s)
    taught = Timing(np.where(left, np.nan, began_s), np.where(left, np.nan, finish_s), missing)
    stopped_s = np.minimum(np.minimum(timing.finish_s, leaves_s), round_s)
    worked = Timing(np.minimum(timing.began_s, stopped_s), stopped_s)
    return Turnout(~left & (timing.finish_s <= late_s), round_s, taught, worked)
