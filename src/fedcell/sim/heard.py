"""What devices reported when they last delivered, and how long their rounds took: for policies that go by it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcell.schedule.plan import Timing
from fedcell.types import Floats, Indices


@dataclass(frozen=True, eq=False)
class Heard:
    """Of M devices, what their last reports said, NaN where nothing is known, and their times so far.

    Attributes:
        losses: (M,) mean training loss, in nats.
        rms_losses: (M,) root mean square of the samples' losses.
        norms: (M,) length of the update.
        heard_round: (M,) the round of the report, -1 for never.
        updates: (M, d) sketch of the update; d is 0 where nobody asks for it.
        turns: (M,) how often a device delivered.
        took_s: (M,) how long that took on average, in seconds from the start of a round.
        planned_s: (M,) how long it was planned to take.

    Example:
        >>> import numpy as np
        >>> from fedcell.sim.heard import Heard
        >>> heard = Heard.none(3).hearing(np.array([2]), 7, losses=np.array([0.5]))
        >>> heard.losses.tolist(), heard.heard_round.tolist()
        ([nan, nan, 0.5], [-1, -1, 7])
    """

    losses: Floats
    rms_losses: Floats
    norms: Floats
    heard_round: Indices
    updates: Floats
    turns: Indices
    took_s: Floats
    planned_s: Floats

    @classmethod
    def none(cls, M: int) -> "Heard":
        """Return what is known of M devices before the first round: nothing."""
        unknown, never = np.full(M, np.nan), np.full(M, -1)
        return cls(unknown, unknown, unknown, never, np.empty((M, 0)), np.zeros(M, dtype=np.int64), unknown, unknown)

    def for_devices(self, M: int) -> "Heard":
        """Return the same for M devices; nothing is known of the new ones."""
        old, new = self.turns.size, Heard.none(M)
        updates = np.full((M, self.updates.shape[1]), np.nan)
        arrays = {name: getattr(new, name).copy() for name in _NAMES} | {"updates": updates}
        for name, array in arrays.items():
            array[:old] = getattr(self, name)
        return Heard(**arrays)

    def columns(self, there: Indices) -> dict[str, Any]:
        """Return the columns of a RoundView of these devices."""
        found = {name: getattr(self, name)[there] for name in _NAMES}
        return found if self.updates.shape[1] else found | {"updates": None}

    def hearing(self, devices: Indices, round_index: int, **reports: Floats) -> "Heard":
        """Return what is known after some devices reported; see `Knowledge.hearing`."""
        changed: dict[str, NDArray[Any]] = {}
        for name, values in reports.items():
            if name == "updates" and self.updates.shape[1] != values.shape[1]:
                changed[name] = np.full((self.turns.size, values.shape[1]), np.nan)
            else:
                changed[name] = getattr(self, name).copy()
            told = np.isfinite(values) if values.ndim == 1 else np.isfinite(values).all(axis=1)
            changed[name][devices[told]] = values[told]
        heard_round = self.heard_round.copy()
        heard_round[devices] = round_index
        return replace(self, heard_round=heard_round, **changed)

    def after(self, devices: Indices, timing: Timing, planned_s: Floats) -> "Heard":
        """Return what is known after a round.

        Args:
            devices: (n,) who was scheduled.
            timing: when they finished; a device that did not deliver, or only too late, teaches nothing here.
            planned_s: (n,) when they were planned to finish.
        """
        arrived = np.isfinite(timing.finish_s)
        if timing.censored is not None:
            arrived &= ~timing.censored
        if not arrived.any():
            return self
        who = devices[arrived]
        turns = self.turns.copy()
        turns[who] += 1

        def mean(old: Floats, new: Floats) -> Floats:
            found = old.copy()
            before = np.where(np.isnan(old[who]), 0.0, old[who])
            found[who] = before + (new[arrived] - before) / turns[who]
            return found

        took_s, plan_s = mean(self.took_s, timing.finish_s), mean(self.planned_s, planned_s)
        return replace(self, turns=turns, took_s=took_s, planned_s=plan_s)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name, to be saved."""
        return {f"heard_{name}": getattr(self, name) for name in _NAMES}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Heard":
        """The inverse of to_arrays."""
        return cls(**{name: np.array(arrays[f"heard_{name}"]) for name in _NAMES})


_NAMES = tuple(field.name for field in fields(Heard))
