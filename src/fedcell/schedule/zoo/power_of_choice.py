"""Power-of-Choice: of d candidates, the k with the largest loss.

Y. J. Cho, J. Wang, G. Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
Selection Strategies", arXiv:2010.01243, 2020 (AISTATS 2022: "Towards Understanding Biased Client Selection in Federated
Learning").

With p_i the fraction of all samples that device i has, and F_i(w) the mean loss of the model w on them,

1. d candidates are drawn without replacement, with odds by p_i;
2. they evaluate F_i of the current model and report it;
3. the k of them with the largest F_i train.

pow-d evaluates all samples of a candidate, cpow-d a mini-batch of them, and rpow-d asks nobody: it goes by the mean
training loss that each device last reported, infinity for one that never did. All three are in the paper.

What asking costs is on the clock: the model goes down, a third of the time that training on these samples takes, and
one number up; see `fedcell.protocol.round`. A trap in public code: FLGo takes the places of the largest losses among
the candidates for device numbers; the tests have a case that tells the two apart.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from typing_extensions import override

from fedcell.schedule.baselines import FixedNumber
from fedcell.schedule.plan import Question
from fedcell.schedule.policy import at_least_one
from fedcell.schedule.view import RoundView
from fedcell.schedule.zoo.common import weighted_order
from fedcell.types import Floats, Indices


@dataclass(frozen=True)
class PowerOfChoice(FixedNumber):
    """Schedule the k devices with the largest loss among d candidates: Cho, Wang and Joshi's Power-of-Choice.

    Attributes:
        k: devices per round, a whole number from 1 to M.
        d: candidates, at least k of which are always drawn; None for 2 k.
        variant: ``"pow-d"`` asks the candidates for their loss, ``"cpow-d"`` for that of a mini-batch, ``"rpow-d"``
            goes by what they last reported.
        samples: of the mini-batch of cpow-d.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> policy, rng = fc.PowerOfChoice(k=1, d=2), np.random.default_rng(0)
        >>> view = fc.RoundView(upload_s=[1.0] * 4, compute_s=[2.0] * 4, ids=range(4), samples=[600, 1, 600, 1])
        >>> sorted(policy.ask(view, rng).devices.tolist())
        [0, 2]
        >>> answered = view.with_answers(np.array([0, 2]), waited_s=0.7, losses=np.array([0.3, 1.1]))
        >>> policy.decide(answered, rng).devices.tolist()  # of the two that answered
        [1]
    """

    k: int = 8
    d: int | None = field(default=None, kw_only=True)
    variant: Literal["pow-d", "cpow-d", "rpow-d"] = field(default="pow-d", kw_only=True)
    samples: int = field(default=64, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d is not None:
            at_least_one("d", self.d)
        at_least_one("samples", self.samples)

    @override
    def ask(self, view: RoundView, rng: np.random.Generator) -> Question | None:
        """Ask d candidates for their loss, unless the last known ones have to do."""
        if self.variant == "rpow-d":
            return None
        return Question(self._candidates(view, rng), "loss", self.samples if self.variant == "cpow-d" else None)

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the candidates by their loss, the largest first."""
        answered = view.heard_round is not None and (view.heard_round == view.round_index).all()
        candidates = rng.permutation(view.order()) if answered else self._candidates(view, rng)
        losses: Floats = np.full(len(view), np.nan) if view.losses is None else view.losses
        unknown_first = np.where(np.isnan(losses), np.inf, losses)[candidates]
        return self._first(candidates[np.argsort(-unknown_first, kind="stable")], view)

    def _candidates(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """D devices, drawn by the fraction of the data that they have."""
        weights = np.ones(len(view)) if view.samples is None else view.samples.astype(np.float64)
        wanted = 2 * self.k if self.d is None else max(self.d, self.k)
        return weighted_order(weights, view, rng)[:wanted]
