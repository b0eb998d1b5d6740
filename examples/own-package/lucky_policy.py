"""A policy in a package of its own; pyproject.toml registers it under the name ``lucky``."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import fedcell as fc


@dataclass(frozen=True)
class Lucky(fc.Policy):
    """k devices that are drawn at random, a better channel having more luck.

    Attributes:
        k: devices per round, at most as many as there are.
    """

    k: int = 8

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw without replacement, in proportion to 1 / upload_s."""
        luck = 1.0 / view.upload_s
        return rng.choice(len(view), size=min(self.k, len(view)), replace=False, p=luck / luck.sum())
