"""Oort: devices whose data still teaches most, unless they are slow.

F. Lai, X. Zhu, H. V. Madhyastha, M. Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection",
OSDI 2021 (arXiv:2010.06081), Algorithm 1.

In round R = 1, 2, ... the utility of a device i that was heard in round L_i, with |B_i| samples and losses l, is

    U_i    = |B_i| sqrt(mean of l^2)                                  statistical utility
    Util_i = (U_i - min U) / (max U - min U) + sqrt(0.1 ln R / L_i)   with a bonus for what is long ago
    Util_i = Util_i (T / D_i)^alpha   where D_i > T                   less for a device slower than T

where D_i is its duration and T the preferred one. (1 - e) k devices are drawn by Util from all that have at least 95 %
of the (1 - e) k-th largest; e k devices are drawn from those never heard, the faster the likelier. e = 0.9 at first and
0.98 times the last in each round, but never below 0.2. The pacer: whenever the utility achieved in the last W rounds is
below that of the W rounds before, T grows by a step.

Where this differs from the printed algorithm:

- U is clipped at its 95th percentile and scaled to [0, 1] before the bonus is added, as in the authors' code
  (FedScale); as printed, the bonus would vanish beside it.
- T is a quantile of the devices' durations, at first 0.3, and a step is 0.05 of it, once in W rounds, as in that code.
  The paper's step in seconds, which covers the next W k devices, would cover any small cell at once.
- D_i is what device i would take with a k-th of the band; see `equal_share_finish_s`.
- The pacer has the rounds' mean training losses (`RoundView.round_losses`) for the utility achieved.
- The paper drops a device after 10 turns. That code does not, and in a small cell soon nobody would be left, so this is
  off unless ``most_turns`` is set; and it stops where fewer than k would be left.
- If fewer than e k devices were never heard, the others fill the round. FedScale schedules fewer devices then; it also
  takes U from the last mini-batch, and reads past the end of its list where few devices were heard. Not so here.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from typing_extensions import override

from fedcell.errors import InputError, require_number, require_whole
from fedcell.schedule.baselines import FixedNumber
from fedcell.schedule.policy import at_least_one
from fedcell.schedule.view import RoundView
from fedcell.schedule.zoo.common import equal_share_finish_s, weighted_order
from fedcell.types import Floats, Indices

CLIP = 0.95
"""Utilities beyond this quantile count as much as it."""


@dataclass(frozen=True)
class Oort(FixedNumber):
    """Schedule k devices by statistical utility and speed, with exploration: Lai et al.'s Oort.

    Attributes:
        k: devices per round, a whole number from 1 to M.
        alpha: how much slower devices count less, at least 0.
        cutoff: devices with this part of the k-th utility are still drawn from, 0 to 1.
        explore: the part of a round for devices never heard, at first.
        decay: what it is multiplied by in every round.
        explore_least: its least value.
        quantile: the preferred duration is this quantile of the devices' durations, at first.
        step: by how much the quantile grows when the pacer relaxes it; 0 for no pacer.
        window: W, the rounds that the pacer compares with as many before.
        most_turns: a device that has delivered more often is not chosen for its utility any more; None for no limit.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(
        ...     upload_s=[0.1] * 4, compute_s=[5.0, 5.0, 5.0, 90.0], ids=range(4), round_index=9,
        ...     rms_losses=[0.1, 2.0, 1.9, 2.0], heard_round=[8, 8, 8, 8], samples=[600] * 4,
        ... )
        >>> fc.Oort(k=2).decide(view, np.random.default_rng(0)).devices.tolist()  # 3 would teach as much as 1
        [1, 2]
    """

    k: int = 8
    alpha: float = field(default=2.0, kw_only=True)
    cutoff: float = field(default=0.95, kw_only=True)
    explore: float = field(default=0.9, kw_only=True)
    decay: float = field(default=0.98, kw_only=True)
    explore_least: float = field(default=0.2, kw_only=True)
    quantile: float = field(default=0.3, kw_only=True)
    step: float = field(default=0.05, kw_only=True)
    window: int = field(default=20, kw_only=True)
    most_turns: int | None = field(default=None, kw_only=True)
    uses_rms: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("alpha", self.alpha, least=0)
        for name in ("cutoff", "explore", "decay", "explore_least", "quantile", "step"):
            require_number(name, getattr(self, name), least=0)
            if getattr(self, name) > 1:
                raise InputError(f"{name} is {getattr(self, name):g}; give a number from 0 to 1")
        at_least_one("window", self.window)
        if self.most_turns is not None:
            require_whole("most_turns", self.most_turns, 1)

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Draw by speed from the devices never heard, then by utility from the others."""
        durations_s = equal_share_finish_s(view, self.k)
        rms: Floats = np.full(len(view), np.nan) if view.rms_losses is None else view.rms_losses
        heard = np.isfinite(rms)
        part = max(self.explore * self.decay ** (view.round_index + 1), self.explore_least)
        known = np.flatnonzero(heard)
        exploring = max(min(int(part * self.k), len(view) - known.size), self.k - known.size)
        exploiting = self.k - exploring
        first = weighted_order(np.where(heard, 0.0, 1.0 / np.maximum(durations_s, 1e-9)), view, rng)[:exploring]
        if exploiting <= 0:
            return self._first(first, view)
        utility = self._utility(view, rms, durations_s)
        threshold = self.cutoff * np.partition(utility[known], -exploiting)[-exploiting]
        weights = np.where(heard & (utility >= threshold), np.maximum(utility, 1e-12), 0.0)
        return self._first(np.concatenate((first, weighted_order(weights, view, rng)[:exploiting])), view)

    def _utility(self, view: RoundView, rms: Floats, durations_s: Floats) -> Floats:
        """(M,) Util, above 0 where a device was heard."""
        samples = np.ones(len(view)) if view.samples is None else view.samples
        heard, utility = np.isfinite(rms), np.zeros(len(view))
        value = samples[heard] * rms[heard]
        low, high = value.min(), value.max()
        spread = high - 0.999 * low  # as in FedScale: the least has a little utility left
        clipped = np.minimum(value, np.quantile(value, CLIP, method="inverted_cdf"))
        last = np.zeros(len(view)) if view.heard_round is None else view.heard_round
        bonus = np.sqrt(0.1 * np.log(view.round_index + 1) / (np.maximum(last[heard], 0) + 1.0))
        utility[heard] = (clipped - 0.999 * low) / max(spread, 1e-12) + bonus
        slow = durations_s > (preferred_s := self._preferred_s(view, durations_s))
        utility[slow] *= (preferred_s / durations_s[slow]) ** self.alpha
        if self.most_turns is not None and view.turns is not None:
            often = heard & (view.turns > self.most_turns)
            if np.count_nonzero(heard & ~often) >= self.k:
                utility[often] = 0.0
        return utility

    def _preferred_s(self, view: RoundView, durations_s: Floats) -> float:
        """T, after what the pacer has seen so far."""
        quantile = self.quantile + self.step * relaxed(view.round_losses, self.window)
        return float("inf") if quantile >= 1.0 else float(np.quantile(durations_s, quantile, method="inverted_cdf"))


def relaxed(utilities: Floats | None, window: int) -> int:
    """Return how often the pacer has relaxed the preferred duration: once for each window below the one before it.

    Args:
        utilities: (R,) what each earlier round achieved; NaN counts as nothing.
        window: W, in rounds.

    Returns:
        The number of times.

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.zoo.oort import relaxed
        >>> relaxed(np.array([5.0, 5.0, 4.0, 4.0, 6.0, 6.0, 1.0]), window=2)
        1
    """
    if utilities is None or utilities.size < 2 * window:
        return 0
    whole = utilities.size // window * window
    sums = np.nansum(utilities[:whole].reshape(-1, window), axis=1)
    return int(np.count_nonzero(sums[:-1] > sums[1:]))
