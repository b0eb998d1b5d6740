"""Fed-CBS: devices are drawn one after the other so that their labels together are balanced.

J. Zhang, A. Li, M. Tang, J. Sun, X. Chen, F. Zhang, C. Chen, Y. Chen, H. Li, "Fed-CBS: A heterogeneity-aware client
sampling mechanism for federated learning via class-imbalance reduction", ICML 2023.

With a_b(S) the share of label b of B in the data that the devices S hold together, their quadratic class imbalance is

    QCID(S) = sum_b (a_b(S) - 1/B)^2.

In round r, counted from 1, the first device c is drawn with a probability proportional to

    1 / QCID({c})^beta_1 + lambda sqrt(3 ln r / (2 T_c)),

where T_c is how often c has been drawn, and the m-th, given those before it, S, with one proportional to
1 / QCID(S + {c})^beta_m. (The paper divides this by what S alone is worth, which is the same for all c.) A set is then
drawn with a probability that falls with its QCID, and none is left out. beta_m = m and lambda = 10 are what two public
implementations have; we could not check them against the paper's full text.

T_c is 1 more here than the number of models that c has delivered: with T_c = 0 the sum has no value, and the public
implementations that we found count so too. The paper's server gets inner products of the label counts under homomorphic
encryption; ours has the counts.
"""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from fedcell.errors import require_number
from fedcell.schedule.baselines import FixedNumber
from fedcell.schedule.view import RoundView
from fedcell.schedule.zoo.common import counts_of_labels
from fedcell.types import Floats, Indices

LEAST = 1e-12
"""A smaller QCID is one of rounding."""


@dataclass(frozen=True)
class FedCbs(FixedNumber):
    """Draw k devices whose labels together are balanced, with some exploration: Fed-CBS.

    The view should have label_counts, or profiles that are shares of labels. A device of which neither is known counts
    as balanced.

    Attributes:
        k: devices per round, a whole number from 1 to M.
        explore: lambda, at least 0: how much devices that seldom took part are preferred as the first.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> labels = [[9, 0, 0], [9, 0, 0], [0, 9, 0], [0, 0, 9]]
        >>> view = fc.RoundView([1.0, 1.1, 1.2, 1.3], [3.0, 3.0, 3.0, 3.0], label_counts=labels)
        >>> plan = fc.FedCbs(k=3).decide(view, np.random.default_rng(0))
        >>> np.take(labels, plan.devices, axis=0).sum(axis=0).tolist()
        [9, 9, 9]
    """

    k: int = 8
    explore: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("explore", self.explore, least=0)

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Draw one device after the other."""
        order = view.order()
        self._first(order, view)  # says what is wrong with k
        counts = counts_of_labels(view, "fed_cbs")
        if counts is None:
            counts = np.ones((len(view), 1))
        counts = counts[order]
        places = np.argsort(order)
        drawn, together = list(places[view.forced]), counts[places[view.forced]].sum(axis=0)
        left = np.ones(len(view), dtype=np.bool_)
        left[drawn] = False
        bonus = self._bonus(view)[order]
        for m in range(len(drawn) + 1, self.k + 1):
            score = -m * np.log(np.maximum(imbalances(counts, together), LEAST))
            if m == 1:
                score = np.logaddexp(score, bonus)
            found = _draw(np.where(left, score, -np.inf), rng)
            drawn.append(found)
            together, left[found] = together + counts[found], False
        return order[np.array(drawn, dtype=np.int64)]

    def _bonus(self, view: RoundView) -> Floats:
        """(M,) the logarithm of the exploring term."""
        turns = np.zeros(len(view)) if view.turns is None else np.asarray(view.turns)
        with np.errstate(divide="ignore"):
            bonus: Floats = np.log(self.explore * np.sqrt(1.5 * np.log(view.round_index + 1.0) / (turns + 1.0)))
        return bonus


def imbalances(counts: Floats, together: Floats) -> Floats:
    """Return the QCID of some devices with one more.

    Args:
        counts: (M, B) of each device that may be added.
        together: (B,) of those that are there.

    Returns:
        (M,) the QCID with each of the M.

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.zoo.fed_cbs import imbalances
        >>> imbalances(np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([2.0, 0.0])).tolist()
        [0.5, 0.0]
    """
    # |x + y|^2 / n^2 - 1/B would be faster, and lose the digits of a small QCID.
    sums = counts + together
    shares = sums / sums.sum(axis=1, keepdims=True)
    shares -= 1.0 / counts.shape[1]
    found: Floats = np.einsum("ib,ib->i", shares, shares)
    return found


def _draw(score: Floats, rng: np.random.Generator) -> int:
    """Draw an index with a probability proportional to exp(score)."""
    edges = np.cumsum(np.exp(score - score.max()))
    return int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
