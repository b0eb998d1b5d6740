"""TiFL: devices of one speed at a time.

Z. Chai, A. Ali, S. Zawad, S. Truex, A. Anwar, N. Baracaldo, Y. Zhou, H. Ludwig, F. Yan, Y. Cheng, "TiFL: A Tier-based
Federated Learning System", HPDC 2020 (arXiv:2001.09249), Algorithm 2 (adaptive tier selection).

The devices are sorted by response time and cut into tiers of equal size. In each round one tier is drawn, and k of its
devices at random, without replacement. At first all tiers are equally likely; from round I on, a tier is the likelier
the worse the model is on its data: with n tiers that have credits left, the one that is j-th worst (j = 0, 1, ...) has

    p_j = (n - j) / (n (n + 1) / 2).

A tier that has been used as often as it has credits is not drawn any more.

Where this differs from the paper:

- How good the model is on a tier is the mean training loss that its devices last reported, not a test accuracy, which
  would take another exchange with all devices. A tier of which nothing is known counts as the worst.
- The probabilities follow the losses in every round from round I on. The paper changes them in every I-th round, if the
  accuracy of the current tier has not risen since the last change: that needs a memory of its own.
- How often a tier was used is counted by the turns of its devices, divided by k. When all credits are spent, the
  paper's loop would not end; here all tiers are drawn from again. Their number is open in the paper; by default there
  is no limit.
- There are fewer tiers than asked for where a tier would have fewer than k devices: 2 of 10 devices for 20 and k = 8.
- The response time is that with a k-th of the band, at a device's average channel; see `equal_share_finish_s`.

The probabilities and the use of credits agree with those of fltk (bacox/fltk), the only public code found that has the
credits; FLGo's draws the devices of a tier with replacement.
"""

from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from fedcell.errors import require_whole
from fedcell.schedule.baselines import FixedNumber
from fedcell.schedule.policy import at_least_one
from fedcell.schedule.view import RoundView
from fedcell.schedule.zoo.common import equal_share_finish_s
from fedcell.types import Floats, Indices


@dataclass(frozen=True)
class TiFL(FixedNumber):
    """Schedule k devices of one tier of speed, the tiers with larger losses more often: Chai et al.'s TiFL.

    Attributes:
        k: devices per round, a whole number from 1 to M.
        tiers: how many tiers there are at most.
        interval: I, the round from which on the losses of the tiers count.
        credits: in how many rounds each tier may be used; None for no limit.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[0.1] * 4, compute_s=[5.0, 90.0, 6.0, 80.0], ids=range(4))
        >>> sets = {tuple(fc.TiFL(k=2).decide(view, np.random.default_rng(s)).devices.tolist()) for s in range(20)}
        >>> sorted(sets)  # the fast ones, or the slow ones
        [(0, 2), (1, 3)]
    """

    k: int = 8
    tiers: int = field(default=5, kw_only=True)
    interval: int = field(default=10, kw_only=True)
    credits: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("tiers", self.tiers, 1)
        require_whole("interval", self.interval, 0)
        if self.credits is not None:
            at_least_one("credits", self.credits)

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Draw a tier, then its devices in random order."""
        tiers = self._tiers(view)
        tier = tiers[rng.choice(len(tiers), p=self._probabilities(view, tiers))]
        return self._first(rng.permutation(tier), view)

    def _tiers(self, view: RoundView) -> list[Indices]:
        """The devices by response time, cut into tiers of at least k."""
        order = view.order()
        response_s = equal_share_finish_s(view, self.k, view.mean_upload_s)
        by_speed = order[np.argsort(response_s[order], kind="stable")]
        return np.array_split(by_speed, max(1, min(self.tiers, len(view) // self.k)))

    def _probabilities(self, view: RoundView, tiers: list[Indices]) -> Floats:
        """(tiers,) how likely each tier is."""
        allowed = np.ones(len(tiers), np.bool_)
        if self.credits is not None and view.turns is not None:
            used = np.array([view.turns[tier].sum() / self.k for tier in tiers])
            allowed = used < self.credits if (used < self.credits).any() else allowed
        if view.round_index < self.interval or view.losses is None:
            return np.where(allowed, 1.0 / allowed.sum(), 0.0)
        n, losses = int(allowed.sum()), np.array([_mean_loss(view.losses[tier]) for tier in tiers])
        worst_first = np.flatnonzero(allowed)[np.argsort(-losses[allowed], kind="stable")]
        probabilities = np.zeros(len(tiers))
        probabilities[worst_first] = (n - np.arange(n)) / (n * (n + 1) / 2)
        return probabilities


def _mean_loss(losses: Floats) -> float:
    known = losses[np.isfinite(losses)]
    return float(known.mean()) if known.size else np.inf
