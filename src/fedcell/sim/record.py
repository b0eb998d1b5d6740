"""RoundRecord: what one round did."""

import math
from dataclasses import dataclass, field

import numpy as np

from fedcell.schedule.policy import Plan
from fedcell.types import Floats, Indices


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """What one round did.

    Attributes:
        round: its number, from 1.
        clock_s: the simulated time at which it ended.
        round_s: how long it took.
        plan: who was scheduled, with which share of the band.
        delivered: the devices whose models arrived.
        accuracy: of the global model on the test set after the round, a fraction.
        loss: its mean loss there, in nats; infinity where training has diverged, which ends the run.
        joules: what all devices spent in it, with that of their reports in the first round; NaN if it is not known.
        plan_joules: (n,) what each scheduled device spent on training and sending, in the plan's order; NaN if it is
            not known.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=2", rounds=1, task=fc.TaskSpec(hidden=[4]))
        >>> record = next(fc.simulate(spec))
        >>> record.round, len(record.plan.devices), record.clock_s == record.round_s
        (1, 2, True)
    """

    round: int
    clock_s: float
    round_s: float
    plan: Plan
    delivered: Indices
    accuracy: float
    loss: float
    joules: float = math.nan
    plan_joules: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.plan_joules.size == 0:
            object.__setattr__(self, "plan_joules", np.full(self.plan.devices.size, np.nan))
