"""Best channel, best norm, and both in two steps: BC, BN2 and BC-BN2.

M. M. Amiri, D. Gunduz, S. R. Kulkarni, H. V. Poor, "Convergence of update aware device scheduling for federated
learning at the wireless edge", IEEE Transactions on Wireless Communications 20(6), 2021.

With h_m the channel of device m and d_m = theta_m - theta the update that it has trained from the global model theta:

    BC       the k devices with the largest |h_m|^2
    BN2      all devices train and report |d_m|_2; the k largest upload
    BC-BN2   the K_c devices with the largest |h_m|^2 train and report |d_m|_2; the k largest of them upload

A better channel is here a shorter upload with the entire band. The paper's devices report at no cost; here a report is
a message of 32 bits, and nobody uploads before the last report is in. The paper leaves k and K_c free.
"""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from fedcell.schedule.baselines import FixedNumber
from fedcell.schedule.plan import Question
from fedcell.schedule.policy import at_least_one
from fedcell.schedule.view import RoundView
from fedcell.types import Floats, Indices


@dataclass(frozen=True)
class BestChannel(FixedNumber):
    """Schedule the k devices with the best channel: BC of Amiri et al.

    Attributes:
        k: devices per round, a whole number from 1 to M.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 9.0, 1.5], compute_s=[3.0, 2.0, 5.0, 8.0])
        >>> fc.BestChannel(k=2).decide(view, np.random.default_rng(0)).devices.tolist()
        [0, 3]
    """

    k: int = 8

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices with the shortest uploads."""
        return self._first(_by_channel(view), view)


@dataclass(frozen=True)
class BestNorm(FixedNumber):
    """Let all devices train and schedule the k with the longest updates: BN2 of Amiri et al.

    It asks all devices for their norm first. On a view without norms, every device counts as most wanted, and k of them
    are drawn at random.

    Attributes:
        k: devices per round that upload, a whole number from 1 to M.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 9.0, 1.5], compute_s=[3.0, 2.0, 5.0, 8.0])
        >>> policy, rng = fc.BestNorm(k=2), np.random.default_rng(0)
        >>> policy.ask(view, rng).devices.tolist()
        [0, 1, 2, 3]
        >>> told = view.with_answers(np.arange(4), waited_s=8.5, norms=np.array([0.3, 0.9, 0.7, 0.1]))
        >>> policy.decide(told, rng).devices.tolist()
        [1, 2]
    """

    k: int = 8

    @override
    def ask(self, view: RoundView, rng: np.random.Generator) -> Question | None:
        """Ask all devices for the norms of their updates."""
        return Question(np.arange(len(view)), "norm")

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices with the longest updates."""
        order = rng.permutation(view.order())
        return self._first(order[np.argsort(-_norms(view)[order], kind="stable")], view)


@dataclass(frozen=True)
class ChannelThenNorm(FixedNumber):
    """Let the devices with the best channels train, and schedule the k of them with the longest updates: BC-BN2.

    On a view without norms, the best channels are scheduled.

    Attributes:
        k: devices per round that upload, a whole number from 1 to M.
        candidates: K_c, how many devices train, at least k; None for 2 k. With fewer devices than that, all train.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 9.0, 1.5], compute_s=[3.0, 2.0, 5.0, 8.0])
        >>> policy, rng = fc.ChannelThenNorm(k=1, candidates=3), np.random.default_rng(0)
        >>> asked = np.sort(policy.ask(view, rng).devices)
        >>> asked.tolist()
        [0, 1, 3]
        >>> told = view.with_answers(asked, waited_s=8.5, norms=np.array([0.3, 0.9, 0.1]))
        >>> asked[policy.decide(told, rng).devices].tolist()
        [1]
    """

    k: int = 8
    candidates: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.candidates is not None:
            at_least_one("candidates", self.candidates)

    @override
    def ask(self, view: RoundView, rng: np.random.Generator) -> Question | None:
        """Ask the devices with the best channels for the norms of their updates."""
        return Question(self._candidates(view), "norm")

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the candidates with the longest updates."""
        found = self._candidates(view)
        return self._first(found[np.argsort(-_norms(view)[found], kind="stable")], view)

    def _candidates(self, view: RoundView) -> Indices:
        wanted = 2 * self.k if self.candidates is None else max(self.k, self.candidates)
        return _by_channel(view)[: max(wanted, view.forced.size)]


def _by_channel(view: RoundView) -> Indices:
    """(M,) the devices, the best channel first."""
    order = view.order()
    return order[np.argsort(view.upload_s[order], kind="stable")]


def _norms(view: RoundView) -> Floats:
    """(M,) the norms, infinite where nothing is known."""
    if view.norms is None:
        return np.full(len(view), np.inf)
    return np.where(np.isnan(view.norms), np.inf, view.norms)
