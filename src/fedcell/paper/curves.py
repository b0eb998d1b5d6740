"""Accuracies of several trials read in three ways, with intervals.

The paper's "highest achievable accuracy" may be each trial's best, averaged, or the best of the averaged curve; on
non-iid data they differ by many points. The last accuracy is beside them.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fedcell.paper.output import jackknife
from fedcell.runs import stats
from fedcell.runs.rows import Rounds
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
        TRIALS: stats.mean_of([stats.best_accuracy(run) for run in runs]),
        LAST: stats.mean_of([stats.last_accuracy(run) for run in runs]),
    }


def differences(ours: Sequence[Rounds], theirs: Sequence[Rounds], budget_s: float) -> dict[str, Mean]:
    """Ours less theirs in three readings, paired by trial."""
    best, other = curve_best(ours, budget_s), curve_best(theirs, budget_s)
    return {
        CURVE: jackknife(lambda trials: best(trials) - other(trials), len(ours)),
        TRIALS: stats.paired_difference(*([stats.best_accuracy(run) for run in runs] for runs in (ours, theirs))),
        LAST: stats.paired_difference(*([stats.last_accuracy(run) for run in runs] for runs in (ours, theirs))),
    }


def percents(readings: dict[str, Mean]) -> tuple[tuple[str, Mean], ...]:
    """The readings in percent, for the page."""
    return tuple((name, in_percent(value)) for name, value in readings.items())


def in_percent(value: Mean) -> Mean:
    """A fraction as a percentage."""
    return Mean(100 * value.mean, 100 * value.half, value.n)
