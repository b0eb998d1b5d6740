"""Age of update: devices that have not been heard for long, where the channel makes that cheap.

H. H. Yang, A. Arafa, T. Q. S. Quek, H. V. Poor, "Age-based Scheduling Policy for Federated Learning in Mobile Edge
Networks", ICASSP 2020 (arXiv:1910.14648).

The age of update T_i counts the rounds since device i was last scheduled, S_i = 1 if it is scheduled:

    T_i[r + 1] = (T_i[r] + 1) (1 - S_i[r]).

The policy keeps the ages' sum of f_alpha low, under a limited band and the channels of the round:

    minimise sum_i f_alpha(T_i[r + 1]),   f_alpha(x) = x^(1 - alpha) / (1 - alpha),  or ln(1 + x) for alpha = 1.

Scheduling device i saves f_alpha(T_i + 1) and takes a part of the band in proportion to its upload time c_i, so the
devices with the largest f_alpha(T_i + 1) / c_i come first.

Where this differs from the paper: there a device gets as many whole subchannels as its rate requires, and devices are
added while subchannels are left; here k devices are scheduled and the band is shared among them as with all policies,
and the ratio of what a device saves to the band that it needs is our reading of how age and channel are weighed.
The default, alpha = 0, is the sum of the ages; with a larger one the channel counts more and devices far away wait
longer.

The public implementation that we found (xxyen/age-based-multi-center-fed-learning) goes by the age alone; with equal
channels the order here is the same.
"""

from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from fedcell.errors import InputError, require_number
from fedcell.schedule.baselines import FixedNumber
from fedcell.schedule.view import RoundView
from fedcell.types import Floats, Indices


@dataclass(frozen=True)
class AgeOfUpdate(FixedNumber):
    """Schedule the k devices with the most age of update for the band: after Yang, Arafa, Quek and Poor.

    Attributes:
        k: devices per round, a whole number from 1 to M.
        alpha: how little a greater age counts more, from 0 (in proportion) to 1 (by its logarithm).

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(
        ...     upload_s=[1.0, 1.0, 1.0, 9.0], compute_s=[2.0] * 4, ids=range(4), round_index=5, last_round=[4, 2, 3, 0]
        ... )
        >>> fc.AgeOfUpdate(k=2).decide(view, np.random.default_rng(0)).devices.tolist()  # 3 is oldest, but dear
        [1, 2]
    """

    k: int = 8
    alpha: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("alpha", self.alpha, least=0)
        if self.alpha > 1:
            raise InputError(f"alpha is {self.alpha:g}; give a number from 0 to 1")

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices by what they save for their part of the band."""
        last = np.full(len(view), -1) if view.last_round is None else view.last_round
        age: Floats = np.maximum(view.round_index - last, 1).astype(np.float64)  # T + 1
        saved: Floats = np.log1p(age) if self.alpha == 1.0 else age ** (1.0 - self.alpha) / (1.0 - self.alpha)
        order = view.order()
        return self._first(order[np.argsort(-(saved / view.upload_s)[order], kind="stable")], view)
