"""A small policy that asks before it decides."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

import fedcell as fc

SEEN: list[fc.RoundView] = []


@dataclass(frozen=True)
class Asks(fc.Policy):
    """Asks d devices, drawn at random, and takes the k with the largest answers; it collects all that can be heard."""

    about: Literal["loss", "norm", "nothing"] = "loss"
    d: int = 8
    samples: int | None = None
    k: int = 3
    uses_norms: ClassVar[bool] = True
    uses_rms: ClassVar[bool] = True
    uses_updates: ClassVar[bool] = True

    def ask(self, view: fc.RoundView, rng: np.random.Generator) -> fc.Question | None:
        if self.about == "nothing":
            return None
        return fc.Question(rng.permutation(view.order())[: self.d], self.about, self.samples)

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> Any:
        SEEN.append(view)
        if self.about == "nothing":
            return rng.permutation(view.order())[: self.k]
        return np.argsort(-(view.losses if self.about == "loss" else view.norms))[: self.k]  # type: ignore[operator]
