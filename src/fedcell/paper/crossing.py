"""When averaged curves reach 80 %, with bootstrap intervals over trials.

A first crossing hangs on single rounds, so leaving out one trial at a time (the jackknife) would tell far too little of
its spread.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcell import defaults
from fedcell.rng import stream
from fedcell.runs.rows import Rounds
from fedcell.types import Floats

TARGET = defaults.TARGET_ACCURACY
RESAMPLES = 1000


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, each possibly infinite: never. The interval of one trial is all numbers."""

    value: float
    interval: tuple[float, float]

    def text(self) -> str:
        """Such as ``193 s [159, 260]``, ``225 s [130, never]`` or ``never``."""
        if not math.isfinite(self.value):
            return "never"
        low, high = self.interval
        if math.isinf(low):
            return f"{self.value:.0f} s"
        return f"{self.value:.0f} s [{low:.0f}, {f'{high:.0f}' if math.isfinite(high) else 'never'}]"


def time_to_target(runs: Sequence[Rounds], budget_s: float) -> Estimate:
    """When the averaged curve reaches 80 %."""
    return _estimate(_crossings(runs, budget_s, _draws(len(runs))))


def lead_s(ours: Sequence[Rounds], theirs: Sequence[Rounds], budget_s: float) -> Estimate:
    """How much sooner our averaged curve reaches 80 % than theirs, paired by trial; 0 where neither does."""
    draws = _draws(len(ours))
    us, them = _crossings(ours, budget_s, draws), _crossings(theirs, budget_s, draws)
    neither = np.isinf(us) & np.isinf(them)
    return _estimate(np.where(neither, 0.0, np.where(neither, 0.0, them) - np.where(neither, 0.0, us)))


def _draws(trials: int) -> Floats:
    """(1 + RESAMPLES, trials) how often each trial counts: first all of them once, then as drawn."""
    drawn = stream(0, "bootstrap").integers(trials, size=(RESAMPLES, trials))
    counts = (drawn[..., np.newaxis] == np.arange(trials)).sum(axis=1)
    return np.vstack([np.ones(trials), counts])


def _crossings(runs: Sequence[Rounds], budget_s: float, draws: Floats) -> Floats:
    """When the mean of each draw first reaches the target, infinity for never."""
    if not all(runs):
        return np.full(len(draws), math.inf)
    steps = np.unique(np.concatenate([run.clock_s for run in runs]))
    steps = steps[(steps >= max(run.clock_s[0] for run in runs)) & (steps <= budget_s)]
    accuracy = np.array([run.accuracy[np.searchsorted(run.clock_s, steps, side="right") - 1] for run in runs])
    reached = draws @ accuracy / len(runs) >= TARGET - 1e-12
    return np.where(reached.any(axis=1), np.append(steps, math.inf)[reached.argmax(axis=1)], math.inf)


def _estimate(values: Floats) -> Estimate:
    value, drawn = float(values[0]), np.sort(values[1:])
    if np.all(drawn == value):  # one trial, or all alike
        return Estimate(value, (-math.inf, math.inf))
    low, high = drawn[int(0.025 * len(drawn))], drawn[math.ceil(0.975 * len(drawn)) - 1]
    return Estimate(value, (float(low), float(high)))
