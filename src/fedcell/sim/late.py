"""Models that arrive after their round has ended: dropped, or used one round later with a discount.

A late device goes on with its share of the band while the next round runs, so that round has only the rest of it. Its
model is in the next round's mean if it has arrived by then, and is dropped otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcell.types import Floats, Indices, Vector
from fedcell.world import Conditions


@dataclass(frozen=True, eq=False)
class Late:
    """Models under way when their round ended.

    Attributes:
        devices: (n,) whose they are.
        models: (n, P).
        after_s: (n,) when they arrive, in seconds after the end of their round.
        shares: (n,) the part of the band that each goes on using.
    """

    devices: Indices
    models: NDArray[np.float32]
    after_s: Floats
    shares: Floats

    @classmethod
    def none(cls) -> "Late":
        """Nothing is under way."""
        return cls(np.empty(0, np.int64), np.empty((0, 0), np.float32), np.empty(0), np.empty(0))

    @property
    def band_left(self) -> float:
        """The part of the band that the next round has."""
        return 1.0 - float(self.shares.sum())

    def arrived(self, round_s: float) -> "Late":
        """Those that arrive within a round of so many seconds."""
        there = self.after_s <= round_s
        return Late(self.devices[there], self.models[there], self.after_s[there], self.shares[there])

    def narrowed(self, conditions: Conditions) -> Conditions:
        """The conditions of a round that has only the rest of the band."""
        if self.shares.size == 0:
            return conditions
        upload_s, believed_s = conditions.upload_s / self.band_left, conditions.believed_upload_s / self.band_left
        return replace(conditions, upload_s=upload_s, believed_upload_s=believed_s)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as arrays by name, to be saved."""
        return {f"late_{name}": getattr(self, name) for name in ("devices", "models", "after_s", "shares")}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Late":
        """The inverse of to_arrays."""
        return cls(*(arrays[f"late_{name}"] for name in ("devices", "models", "after_s", "shares")))


def mixed(mean: Vector | None, total: float, late: Late, weights: Floats) -> Vector:
    """Return the mean of a round's models and of late ones.

    Args:
        mean: (P,) of the round's own models; None if there are none.
        total: the sum of their weights.
        late: models that have arrived meanwhile, at least one.
        weights: (n,) of each of them.
    """
    own = 0.0 if mean is None else total * mean.astype(np.float64)
    both = own + weights @ late.models.astype(np.float64)
    return np.asarray(both / ((0.0 if mean is None else total) + weights.sum()), np.float32)
