"""CS-UCB and CS-UCB-Q: the devices that may be fastest, as far as their rounds so far can tell.

W. Xia, T. Q. S. Quek, K. Guo, W. Wen, H. H. Yang, H. Zhu, "Multi-Armed Bandit-Based Client Scheduling for Federated
Learning", IEEE Transactions on Wireless Communications 19(11), 2020 (arXiv:2007.02315).

The server knows neither channels nor compute times. A round in which device i took tau_i seconds is worth

    r_i = 1 - tau_i / tau_max,

y_i is its mean over the z_i rounds in which device i took part, and after t rounds the k devices with the largest

    y_i + sqrt((k + 1) ln t / z_i)                                           CS-UCB

are scheduled, each device once before that. The fair relative, for data that differs between devices, wants each device
in a fraction c of the rounds at least, and takes those with the largest

    (1 - beta) min(1, y_i + sqrt(2 ln t / z_i)) + beta D_i                   CS-UCB-Q

where the virtual queue D_i grows by c in each round and falls by 1 with each turn, but not below 0.

Where this differs from the paper:

- D_i = max(0, c t - z_i), which follows from the turns: there is no hidden state. The paper's queue forgets what a
  device did beyond its fraction; this one does not.
- tau is measured with what a device had of the band. With optimal shares all devices of a round take equally long, so a
  single round does not tell who was slow, but the mean over many does; ``sharing=equal`` is the paper's case.
- tau_max is the longest mean so far where ``longest_s`` is not given.

The bounds agree with those of a public implementation (a students' project of Schneider and Shirazi), whose CS-UCB-Q,
however, sorts all devices, available or not.
"""

from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from fedcell.errors import InputError, require_number
from fedcell.schedule.baselines import FixedNumber
from fedcell.schedule.view import RoundView
from fedcell.types import Floats, Indices


@dataclass(frozen=True)
class CsUcb(FixedNumber):
    """Schedule the k devices with the best upper confidence bound on their time: Xia et al.'s CS-UCB and CS-UCB-Q.

    Attributes:
        k: devices per round, a whole number from 1 to M.
        fair: whether each device is wanted in a fraction of the rounds: CS-UCB-Q.
        beta: what fairness counts beside time, 0 to 1, if fair.
        fraction: c, of the rounds, for each device; None for half of k / M.
        longest_s: tau_max, the longest that a round may take, in seconds; None for the longest mean so far.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(
        ...     upload_s=[1.0] * 3, compute_s=[2.0] * 3, ids=range(3), round_index=20,
        ...     turns=[10, 10, 2], took_s=[8.0, 9.0, 12.0],
        ... )
        >>> fc.CsUcb(k=1).decide(view, np.random.default_rng(0)).devices.tolist()  # it may have been bad luck
        [2]
        >>> fc.CsUcb(k=1, fair=True, beta=0.0, longest_s=99.0).decide(view, np.random.default_rng(0)).devices.tolist()
        [0]
    """

    k: int = 8
    fair: bool = field(default=False, kw_only=True)
    beta: float = field(default=0.1, kw_only=True)
    fraction: float | None = field(default=None, kw_only=True)
    longest_s: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("beta", self.beta), ("fraction", self.fraction)):
            if value is not None:
                require_number(name, value, least=0)
                if value > 1:
                    raise InputError(f"{name} is {value:g}; give a number from 0 to 1")
        if self.longest_s is not None:
            require_number("longest_s", self.longest_s, above=0)

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices by their bound, those never tried first."""
        order = view.order()
        return self._first(order[np.argsort(-self._bounds(view)[order], kind="stable")], view)

    def _bounds(self, view: RoundView) -> Floats:
        """(M,) what each device may be worth."""
        M = len(view)
        took_s: Floats = np.full(M, np.nan) if view.took_s is None else view.took_s
        turns = np.zeros(M) if view.turns is None else np.asarray(view.turns, np.float64)
        tried = np.isfinite(took_s) & (turns > 0)
        bounds = np.full(M, np.inf)
        if tried.any():
            longest_s = self.longest_s or max(float(took_s[tried].max()), 1e-9)
            worth = 1.0 - np.minimum(took_s[tried] / longest_s, 1.0)
            factor = 2.0 if self.fair else self.k + 1.0
            bounds[tried] = worth + np.sqrt(factor * np.log(max(view.round_index, 1)) / turns[tried])
        if not self.fair:
            return bounds
        fraction = 0.5 * min(self.k / M, 1.0) if self.fraction is None else self.fraction
        queues = np.maximum(fraction * view.round_index - turns, 0.0)
        weighed: Floats = (1.0 - self.beta) * np.minimum(bounds, 1.0) + self.beta * queues
        return weighed
