"""Ranks of several contenders over many blocks: Friedman's test and Nemenyi's critical difference.

A block is one contest that all of them enter on equal terms, such as one seed of one scenario. As in Demsar,
*Statistical Comparisons of Classifiers over Multiple Data Sets* (JMLR 7, 2006); ties share their ranks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcell.distributions import chi_square_p, normal_range_quantile
from fedcell.errors import InputError
from fedcell.runs.stats import LEVEL
from fedcell.types import Floats


@dataclass(frozen=True, eq=False)
class Ranking:
    """The mean ranks of k contenders over some blocks, and what they show.

    Attributes:
        names: the contenders, in the order given.
        mean: (k,) mean ranks; 1 is the best possible.
        blocks: over how many blocks.
        chi_square: Friedman's statistic, corrected for ties, with k - 1 degrees of freedom.
        p: the chance of such a value or a larger one if all contenders were alike.
        critical: Nemenyi's critical difference: two whose mean ranks differ by less are not told apart.

    Example:
        >>> import numpy as np
        >>> from fedcell.runs.ranks import ranking
        >>> seconds = np.array([[58.0, 158.0, 300.0], [61.0, 140.0, 300.0], [70.0, 170.0, 290.0], [50.0, 90.0, 200.0]])
        >>> found = ranking(["diverse", "greedy", "random"], seconds)
        >>> found.mean.tolist(), round(found.chi_square, 3), round(found.p, 4), round(found.critical, 3)
        ([1.0, 2.0, 3.0], 8.0, 0.0183, 1.657)
        >>> found.groups()
        [['diverse', 'greedy'], ['greedy', 'random']]
    """

    names: list[str]
    mean: Floats
    blocks: int
    chi_square: float
    p: float
    critical: float

    def order(self) -> list[int]:
        """The places of the contenders in ``names``, the best first."""
        return [int(i) for i in np.argsort(self.mean, kind="stable")]

    def groups(self) -> list[list[str]]:
        """The largest groups of contenders, best first, none of which can be told from another; only those of several.

        Where Friedman's test shows no difference at all, that is one group of everybody.
        """
        order = self.order()
        if not self.p <= LEVEL:
            return [[self.names[i] for i in order]]
        found, end = list[list[str]](), 0
        for start, best in enumerate(order):
            reach = sum(bool(self.mean[i] - self.mean[best] < self.critical) for i in order[start:])
            if reach > 1 and start + reach > end:
                end = start + reach
                found.append([self.names[i] for i in order[start:end]])
        return found

    def text(self) -> str:
        """What the test says, in a sentence."""
        p = f"p = {self.p:.2g}" if self.p >= 1e-4 else "p < 0.0001"
        said = "the policies differ" if self.p <= LEVEL else "no difference is shown"
        return (
            f"Friedman's test over {self.blocks} blocks: chi-square {self.chi_square:.1f} with {len(self.names) - 1} "
            f"degrees of freedom, {p}: {said}; Nemenyi's critical difference at 5 % is {self.critical:.2f} ranks"
        )


def block_ranks(scores: Floats) -> Floats:
    """Rank the contenders of each block; the smallest score has rank 1, ties share the mean of their ranks.

    Args:
        scores: (B, k), one row a block; infinity for whoever failed.

    Returns:
        (B, k) ranks from 1 to k.

    Example:
        >>> import numpy as np
        >>> from fedcell.runs.ranks import block_ranks
        >>> block_ranks(np.array([[3.0, 1.0, 3.0, np.inf]])).tolist()
        [[2.5, 1.0, 2.5, 4.0]]
    """
    one, other = scores[:, :, np.newaxis], scores[:, np.newaxis, :]
    ranks: Floats = (other < one).sum(axis=2) + 0.5 * ((other == one).sum(axis=2) + 1)
    return ranks


def ranking(names: Sequence[str], scores: Floats) -> Ranking:
    """Rank contenders over blocks.

    Args:
        names: k contenders, two at least.
        scores: (B, k), the smaller the better, one row a block; infinity for whoever failed.
    """
    blocks, k = scores.shape
    if k < 2:
        raise InputError(f"there is nobody to compare {names[0] if names else 'nobody'} with; give two policies")
    ranks = block_ranks(scores)
    mean: Floats = ranks.mean(axis=0)
    spread = float((ranks**2).sum()) - blocks * k * (k + 1) ** 2 / 4
    apart = blocks**2 * float(((mean - (k + 1) / 2) ** 2).sum())
    chi_square = (k - 1) * apart / spread if spread > 0.0 else 0.0  # nothing but ties
    return Ranking(
        list(names), mean, blocks, chi_square, chi_square_p(chi_square, k - 1), critical_difference(k, blocks)
    )


def critical_difference(k: int, blocks: int, level: float = LEVEL) -> float:
    """Return Nemenyi's critical difference of mean ranks: q sqrt(k (k + 1) / (12 blocks)).

    q is the quantile of the range of k standard normal values. Ties make the true spread smaller, so it is safe.

    Args:
        k: contenders.
        blocks: how many blocks the ranks are means of.
        level: the chance of any false difference that is accepted.
    """
    return normal_range_quantile(1.0 - level, k) * math.sqrt(k * (k + 1) / (12.0 * blocks))
