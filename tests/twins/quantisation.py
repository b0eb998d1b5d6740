"""How far a rounded update is from what it was, exactly, where the product estimates it by three sums."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from fedcell.quantisation import levels_of
from fedcell.types import Vector


def expected_noise(update: Vector, tensors: Sequence[int], bits: int) -> float:
    """Return the mean of |Q(u) - u|^2, with Q(u) what arrives of an update u.

    An entry a part f of a step above a level is rounded up with the probability f: f (1 - f) times the step squared.
    """
    total = 0.0
    for first, last in pairwise(accumulate(tensors, initial=0)):
        u = np.abs(update[first:last].astype(np.float64))
        step = u.max(initial=0.0) / levels_of(bits)
        if step > 0.0:
            f = u / step % 1.0
            total += float(step**2 * (f * (1.0 - f)).sum())
    return total
