"""The rounds model N(n) = beta (theta + 1/n) fitted to experiments: `fedcell fit` and the paper's Table I.

Runs with n random devices a round say how many rounds a target accuracy takes. It can be read in two ways: trial by
trial (the median over trials), or on the curve averaged over trials. A trial that has not reached the target within the
limit is censored: all that is known is that it needs more. The median counts it as later than all others, so nobody is
left out; an n whose median, or whose averaged curve, never gets there has no number, and is left out of the fit and
named. Intervals are bootstrapped over trials. All n of one trial share its seed, so they are drawn together.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcell.errors import InputError, require_target
from fedcell.rng import stream
from fedcell.runs.records import Rounds
from fedcell.runs.stats import LEVEL
from fedcell.schedule.convergence import Interval, fit_rounds
from fedcell.sim.spec import Spec
from fedcell.types import Floats

Reading = Literal["curve", "trials"]
RESAMPLES = 1000
READINGS: dict[Reading, str] = {"curve": "on the averaged curve", "trials": "median over trials"}


@dataclass(frozen=True, eq=False)
class RoundsNeeded:
    """Rounds until the target, in both readings; infinity where it was not reached.

    Attributes:
        target: the accuracy.
        limit: rounds after which the runs ended.
        ks: devices a round.
        by_trial: (K, trials).
        on_curve: (K,).
    """

    target: float
    limit: int
    ks: tuple[int, ...]
    by_trial: Floats
    on_curve: Floats

    def medians(self) -> Floats:
        """(K,) the median over trials, infinity if half of them or more never got there."""
        medians: Floats = np.median(self.by_trial, axis=-1)
        return medians

    def reading(self, reading: Reading) -> Floats:
        """(K,) rounds in one of the readings."""
        return self.on_curve if reading == "curve" else self.medians()

    def censored(self) -> dict[int, int]:
        """By devices a round, how many trials never reached the target; those where any did not."""
        counts = np.isinf(self.by_trial).sum(axis=1)
        return {k: int(count) for k, count in zip(self.ks, counts, strict=True) if count}


@dataclass(frozen=True)
class Fit:
    """A fit of one reading.

    Attributes:
        reading: which.
        beta: of the rounds model.
        theta: of the rounds model.
        beta_interval: over trials, 95 % unless another share was asked for; infinite for one trial, or where more
            resamples had no fit than the interval leaves out at one end.
        theta_interval: likewise.
        used: the ks in the fit.
        left_out: those without a number.
    """

    reading: Reading
    beta: float
    theta: float
    beta_interval: Interval
    theta_interval: Interval
    used: tuple[int, ...]
    left_out: tuple[int, ...]

    @property
    def policy(self) -> str:
        """The policy to use, as the command line and specs name it."""
        return f"optimal:theta={self.theta:.4g}"


def fit_runs(
    partition: str, ks: Sequence[int], limit: int, scaling: Literal["standard", "unit"] = "standard"
) -> dict[int, Spec]:
    """The runs of a fit by devices a round, of seed 0.

    They do not stop at the target: the averaged curve needs every trial to its end, and so they serve any target.
    """
    runs = {k: Spec(policy=f"random:k={k}", rounds=limit) for k in ks}
    return {k: run.changed({"task.partition": partition, "task.scaling": scaling}) for k, run in runs.items()}


def rounds_to(accuracy: Floats, target: float) -> Floats:
    """The first round, from 1, whose accuracy reaches the target, along the last axis; infinity if there is none."""
    reached = accuracy >= target
    return np.where(reached.any(axis=-1), reached.argmax(axis=-1) + 1.0, math.inf)


def accuracies(runs: Mapping[int, Sequence[Rounds]]) -> Floats:
    """(K, trials, rounds) test accuracy; all runs have to have as many rounds."""
    diverged = sum(run.diverged for trials in runs.values() for run in trials)
    if diverged:
        raise InputError(f"training diverged in {diverged} runs of the fit; lower task.learning_rate")
    lengths = {len(run) for trials in runs.values() for run in trials}
    if len(lengths) != 1:
        raise InputError(f"the runs of a fit have {min(lengths)} to {max(lengths)} rounds; give them one limit")
    return np.array([[run.accuracy for run in trials] for trials in runs.values()])


def rounds_needed_in(accuracy: Floats, ks: Sequence[int], target: float) -> RoundsNeeded:
    """Read the rounds off accuracies (K, trials, rounds)."""
    require_target("the target", target)
    return RoundsNeeded(
        target, accuracy.shape[2], tuple(ks), rounds_to(accuracy, target), rounds_to(accuracy.mean(axis=1), target)
    )


def fit(accuracy: Floats, ks: Sequence[int], target: float, reading: Reading, outside: float = LEVEL) -> Fit:
    """Fit beta and theta to accuracies (K, trials, rounds), with bootstrap intervals over trials.

    Args:
        accuracy: (K, trials, rounds), of each number of devices.
        ks: (K,) the numbers of devices.
        target: the accuracy to reach.
        reading: of which rounds.
        outside: the share of the resamples that the intervals leave out, 0.05 for 95 % intervals.

    Raises:
        InputError: if fewer than two n reach the target, or more devices needed more rounds.
    """
    needed = rounds_needed_in(accuracy, ks, target)
    rounds = needed.reading(reading)
    reached = np.isfinite(rounds)
    if reached.sum() < 2:
        raise InputError(
            f"{100 * target:g} % was reached with {reached.sum()} of {len(ks)} numbers of devices within "
            f"{needed.limit} rounds ({READINGS[reading]}), and a fit takes two; lower the target or raise the limit"
        )
    counts = np.array(ks, dtype=np.float64)
    beta, theta = fit_rounds(counts[reached], rounds[reached])
    betas, thetas = _bootstrap(accuracy, counts, needed, reading)
    used, left_out = (tuple(k for k, has in zip(ks, reached, strict=True) if has == wanted) for wanted in (True, False))
    return Fit(reading, beta, theta, _interval(betas, outside), _interval(thetas, outside), used, left_out)


def _bootstrap(accuracy: Floats, counts: Floats, needed: RoundsNeeded, reading: Reading) -> tuple[Floats, Floats]:
    """(RESAMPLES,) betas and thetas of trials drawn with replacement; NaN where a draw has no fit."""
    trials = accuracy.shape[1]
    if trials == 1:
        return np.full(RESAMPLES, math.nan), np.full(RESAMPLES, math.nan)
    drawn = stream(0, "bootstrap").integers(trials, size=(RESAMPLES, trials))
    if reading == "curve":
        times_drawn = (drawn[..., np.newaxis] == np.arange(trials)).sum(axis=1)  # (RESAMPLES, trials)
        rounds = rounds_to(times_drawn @ accuracy / trials, needed.target)  # (K, RESAMPLES)
    else:
        rounds = np.median(needed.by_trial[:, drawn], axis=-1)
    return _fits(1.0 / counts, rounds)


def _fits(x: Floats, rounds: Floats) -> tuple[Floats, Floats]:
    """Least squares as in fit_rounds, for each column of rounds (K, S), over the n that have a number there."""
    has = np.isfinite(rounds)
    y, many = np.where(has, rounds, 0.0), np.maximum(has.sum(axis=0), 1)
    mean_x, mean_y = (has * x[:, np.newaxis]).sum(axis=0) / many, y.sum(axis=0) / many
    off = has * (x[:, np.newaxis] - mean_x)
    spread = (off**2).sum(axis=0)
    beta = (off * y).sum(axis=0) / np.where(spread > 0.0, spread, 1.0)
    good = (has.sum(axis=0) >= 2) & (beta > 0.0)
    beta = np.where(good, beta, math.nan)
    return beta, mean_y / beta - mean_x


def _interval(values: Floats, outside: float) -> Interval:
    tail = outside / 2.0
    if np.isnan(values).mean() > tail:
        return (-math.inf, math.inf)
    low, high = np.nanpercentile(values, [100 * tail, 100 * (1.0 - tail)])
    return (float(low), float(high))
