"""What several trials' curves say: accuracies read in three ways, and when they reach 80 %, with intervals.

The paper's "highest achievable accuracy" may be each trial's best, averaged, or the best of the averaged curve; on
non-iid data they differ by many points. The last accuracy is beside them. A first crossing hangs on single rounds, so
leaving out one trial at a time (the jackknife) would tell far too little of its spread: crossings have bootstrap
intervals over trials.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedcell import defaults
from fedcell.paper.output import jackknife
from fedcell.rng import stream
from fedcell.runs import stats
from fedcell.runs.records import Rounds
from fedcell.runs.stats import Mean
from fedcell.types import Floats

CURVE, TRIALS, LAST = "averaged curve's best", "each trial's best", "last"


def by_round(runs: Sequence[Rounds]) -> Floats:
    """(trials, rounds) accuracy, as far as every trial goes."""
    rounds = min(len(run) for run in runs)
    return np.array([run.accuracy[:rounds] for run in runs])


def band(values: Floats) -> tuple[Floats, Floats]:
    """The mean over the first axis, and half its 95 % interval (NaN for one trial)."""
    found = [stats.mean_of(column.tolist()) for column in values.T]
    return np.array([each.mean for each in found]), np.array([each.half for each in found])


def columns(values: Sequence[Mean], scale: float = 1.0) -> tuple[Floats, Floats]:
    """The means and half their intervals, as plots take them."""
    return np.array([scale * value.mean for value in values]), np.array([scale * value.half for value in values])


def readings_by_round(runs: Sequence[Rounds]) -> dict[str, Mean]:
    """Accuracy within the rounds that every trial has, read in three ways."""
    accuracy = by_round(runs)
    return {
        CURVE: jackknife(lambda trials: float(accuracy[trials].mean(axis=0).max()), len(runs)),
        TRIALS: stats.mean_of(accuracy.max(axis=1).tolist()),
        LAST: stats.mean_of(accuracy[:, -1].tolist()),
    }


def curve_best(runs: Sequence[Rounds], budget_s: float) -> Callable[[list[int]], float]:
    """Of some of the trials, the best of their averaged curve against time."""
    return lambda trials: stats.mean_curve([runs[trial] for trial in trials], budget_s).best()


def readings_by_time(runs: Sequence[Rounds], budget_s: float) -> dict[str, Mean]:
    """Accuracy within the budget, read in three ways."""
    return {
        CURVE: jackknife(curve_best(runs, budget_s), len(runs)),
        TRIALS: stats.mean_of([run.best_accuracy() for run in runs]),
        LAST: stats.mean_of([run.last_accuracy() for run in runs]),
    }


def differences(ours: Sequence[Rounds], theirs: Sequence[Rounds], budget_s: float) -> dict[str, Mean]:
    """Ours less theirs in three readings, paired by trial."""
    best, other = curve_best(ours, budget_s), curve_best(theirs, budget_s)
    return {
        CURVE: jackknife(lambda trials: best(trials) - other(trials), len(ours)),
        TRIALS: stats.paired_difference(*([run.best_accuracy() for run in runs] for runs in (ours, theirs))),
        LAST: stats.paired_difference(*([run.last_accuracy() for run in runs] for runs in (ours, theirs))),
    }


def percents(readings: dict[str, Mean]) -> tuple[tuple[str, Mean], ...]:
    """The readings in percent, for the page."""
    return tuple((name, in_percent(value)) for name, value in readings.items())


def in_percent(value: Mean) -> Mean:
    """A fraction as a percentage."""
    return Mean(100 * value.mean, 100 * value.half, value.n)


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
