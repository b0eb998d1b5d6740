"""DivFL: the devices whose updates stand best for those of all, a facility-location cover by greedy maximisation.

R. Balakrishnan, T. Li, T. Zhou, N. Himayat, V. Smith, J. Bilmes, "Diverse client selection for federated learning via
submodular maximization", ICLR 2022.

With g_i the last known update of device i, the error of letting devices S stand for all is at most

    G(S) = sum_i min_{j in S} |g_i - g_j|,

and a device e0 that is farther from all than any other makes G({e0}) - G(S + {e0}) a monotone submodular function. The
greedy algorithm adds, k times, the device that lowers G most, and has at least 1 - 1/e of the best possible value.
Stochastic greedy looks at a random part of the devices only, at each step. Defaults: all devices are looked at, and
updates are stale, those of the last round in which a device took part (the paper's variant without extra messages).

The paper starts with the gradients of all devices. Here devices of which nothing is known are scheduled first, in
random order, until all have been heard. The view's updates are sketches of 256 numbers, whose distances are about those
of the updates. As in the authors' code, the round's models are averaged without the sizes of the clusters as weights.

How it is computed: as the set grows, what a device would add can only fall, so what it would have added before is a
bound. Devices are looked at in batches, the largest bounds first, until no bound exceeds the best of those looked at:
the same choice as by looking at all of them, without ever holding all M^2 distances.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from fedcell.errors import InputError
from fedcell.schedule.baselines import FixedNumber
from fedcell.schedule.view import RoundView
from fedcell.types import Floats, Indices

_BATCH = 256
"""Devices looked at together: 20 MB of distances with 10,000 devices."""


@dataclass(frozen=True)
class DivFl(FixedNumber):
    """Schedule the k devices whose updates stand best for those of all: DivFL.

    Attributes:
        k: devices per round, a whole number from 1 to M.
        subsample: which part of the devices each step looks at, above 0 and at most 1, but at least k devices; 1 for
            the greedy algorithm, less for stochastic greedy.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> updates = [[0.0, 1.0], [0.1, 1.0], [0.0, 1.1], [5.0, 0.0], [5.1, 0.0]]
        >>> view = fc.RoundView([1.0, 1.1, 1.2, 1.3, 1.4], [3.0] * 5, updates=updates)
        >>> fc.DivFl(k=2).decide(view, np.random.default_rng(0)).devices.tolist()  # one of each kind
        [1, 3]
    """

    k: int = 8
    subsample: float = 1.0
    uses_updates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.subsample <= 1.0:
            raise InputError(f"subsample is {self.subsample!r}; give a number above 0 and at most 1")

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices of which nothing is known, and then those that cover the others best."""
        order = rng.permutation(view.order())
        updates = None if view.updates is None else view.updates[order]
        told = np.zeros(len(view), np.bool_) if updates is None else np.isfinite(updates).all(axis=1)
        new, known = order[~told], order[told]
        taken = np.isin(known, view.forced)
        places = self.k - np.union1d(new, view.forced).size
        if updates is None or places <= 0:
            return self._first(order[np.argsort(told, kind="stable")], view)
        cover = greedy_cover(updates[told], places, np.flatnonzero(taken), self._looks(known.size), rng)
        return self._first(np.concatenate((new, known[cover])), view)

    def _looks(self, count: int) -> int | None:
        return None if self.subsample == 1.0 else max(self.k, int(self.subsample * count))


def greedy_cover(updates: Floats, places: int, taken: Indices, looks: int | None, rng: np.random.Generator) -> Indices:
    """Choose devices whose updates stand for all, one after the other.

    Args:
        updates: (n, d) the devices' updates.
        places: how many to choose, or all if there are fewer.
        taken: (m,) devices that are in the set already.
        looks: how many devices, drawn at random, each step looks at; None for all.
        rng: for that.

    Returns:
        (places,) the chosen devices in order, without those taken.

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.zoo.div_fl import greedy_cover
        >>> line = np.array([[0.0], [1.0], [2.0], [9.0]])
        >>> greedy_cover(line, 2, np.array([], int), None, np.random.default_rng(0)).tolist()
        [1, 3]
    """
    squares = np.einsum("id,id->i", updates, updates)
    far = 3.0 * float(np.sqrt(squares.max()))  # beyond all distances: that of e0
    nearest = np.full(len(updates), far)
    if taken.size:
        nearest = np.minimum(nearest, _distances(updates, squares, taken).min(axis=0))
    bounds = np.full(len(updates), np.inf)
    bounds[taken] = -np.inf
    chosen: list[int] = []
    for _ in range(min(places, len(updates) - taken.size)):
        open_ = np.flatnonzero(bounds > -np.inf)
        if looks is not None:
            open_ = np.sort(rng.choice(open_, min(looks, open_.size), replace=False))
        found, nearest = _best(updates, squares, nearest, bounds, open_)
        bounds[found] = -np.inf
        chosen.append(found)
    return np.array(chosen, dtype=np.int64)


def _best(updates: Floats, squares: Floats, nearest: Floats, bounds: Floats, open_: Indices) -> tuple[int, Floats]:
    """Return the device of ``open_`` that lowers G most, and all devices' distances to the set with it.

    What each device looked at would add becomes its bound.
    """
    best, best_gain, best_nearest = -1, -np.inf, nearest
    queue = open_[np.argsort(-bounds[open_], kind="stable")]
    for start in range(0, queue.size, _BATCH):
        batch = queue[start : start + _BATCH]
        if bounds[batch[0]] < best_gain:
            break
        covered = np.minimum(_distances(updates, squares, batch), nearest)
        gains = nearest.sum() - covered.sum(axis=1)
        bounds[batch] = gains
        top = int(np.argmax(gains))
        if gains[top] > best_gain:
            best, best_gain, best_nearest = int(batch[top]), gains[top], covered[top]
    return best, best_nearest


def _distances(updates: Floats, squares: Floats, devices: Indices) -> Floats:
    """(m, n) the distances of m devices to all."""
    found = squares[devices, np.newaxis] + squares - 2.0 * (updates[devices] @ updates.T)
    np.maximum(found, 0.0, out=found)
    found[np.arange(devices.size), devices] = 0.0
    return np.sqrt(found, out=found)
