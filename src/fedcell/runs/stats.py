"""What a set of runs says, with its uncertainty: accuracy in a budget, time and energy to it, paired differences.

A run is its Rounds, columns of numbers. Between rounds the last model stands, so accuracy is a step function of time.
Intervals are Student's t at 95 % over seeds, and so assume that the seeds' values are near normal. A run without a
round has no accuracy: it is left out of the means, which say of how many seeds they are. Who is sooner than whom is
`comparisons`'.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedcell.distributions import student_t_p, student_t_quantile
from fedcell.runs.records import Rounds, first_reached
from fedcell.types import Floats

FEWEST_IN_A_BAND = 4
"""Of fewer seeds Student's interval is wider than the axes; it is neither drawn nor printed."""
FEWEST_TO_JUDGE = 5
"""Of fewer seeds no difference is called significant."""


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with its 95 % interval, mean - half to mean + half; half is NaN for a single seed.

    Attributes:
        mean: the mean, NaN of nothing.
        half: half the interval's width.
        n: seeds it is of.
    """

    mean: float
    half: float
    n: int

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        """Such as ``87.41 ± 0.62``; of few seeds without an interval."""
        if math.isnan(self.mean):
            return "unknown" if self.n else "-"
        shown = f"{scale * self.mean:.{digits}f}"
        return shown if not self.has_interval else f"{shown} ± {scale * self.half:.{digits}f}"

    def percent_text(self, digits: int = 2) -> str:
        """Of an accuracy, in percent: as `text`, or as ``97.00 [91.20, 100.00]`` where ± would leave 0 to 100 %."""
        low, high = self.interval(0.0, 1.0)
        if not self.has_interval or (low, high) == self.interval():
            return self.text(100.0, digits)
        return f"{100 * self.mean:.{digits}f} [{100 * low:.{digits}f}, {100 * high:.{digits}f}]"

    def interval(self, lowest: float = -math.inf, highest: float = math.inf) -> tuple[float, float]:
        """The 95 % interval, cut to the values that are possible; NaN of few seeds."""
        if not self.has_interval:
            return math.nan, math.nan
        return max(lowest, self.mean - self.half), min(highest, self.mean + self.half)

    @property
    def has_interval(self) -> bool:
        """Whether it is of seeds enough for an interval that says something."""
        return self.n >= FEWEST_IN_A_BAND and math.isfinite(self.half)

    @property
    def significant(self) -> bool:
        """Whether the interval leaves out 0; never of fewer than FEWEST_TO_JUDGE seeds."""
        return self.n >= FEWEST_TO_JUDGE and not math.isnan(self.half) and abs(self.mean) > self.half


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of one value a seed, with its 95 % interval."""
    n = len(values)
    if n == 0:
        return Mean(math.nan, math.nan, 0)
    mean = float(np.mean(values))
    if n == 1:
        return Mean(mean, math.nan, 1)
    return Mean(mean, student_t_quantile(0.975, n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n), n)


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> Mean:
    """The mean of ours - theirs, seed by seed: under common random numbers far narrower than two separate means."""
    return mean_of([a - b for a, b in zip(ours, theirs, strict=True)])


@dataclass(frozen=True)
class TimeTo:
    """When runs reached a target. The median counts runs that never did as infinitely late, so nobody is left out.

    Attributes:
        median_s: over seeds; infinity if half of them or more never got there.
        reached: how many seeds did.
        n: of how many, with those that failed or have no round.
        mean_s: the restricted mean: over seeds, of the lesser of the time and the limit; NaN without a limit.
    """

    median_s: float
    reached: int
    n: int
    mean_s: float = math.nan

    def text(self) -> str:
        """Such as ``171 s``, or ``never (1/5)`` where 1 of 5 seeds reached it, and so the median seed did not."""
        return self.median_text() if self.reached == self.n else f"{self.median_text()} ({self.reached}/{self.n})"

    def median_text(self) -> str:
        """The median alone, such as ``171 s`` or ``never``."""
        return f"{self.median_s:.0f} s" if math.isfinite(self.median_s) else "never"


def times_to(runs: Sequence[Rounds], target: float, limit_s: float = math.inf) -> TimeTo:
    """When the runs reached the accuracy; runs that never did count with the limit in the restricted mean."""
    times = [run.time_to(target) for run in runs]
    return TimeTo(median(times), sum(map(math.isfinite, times)), len(times), restricted_mean(times, limit_s))


def restricted_mean(values: Sequence[float], limit: float) -> float:
    """The mean of the lesser of each value and the limit, which stands for "never"; NaN where that is not finite.

    Of times to a target it is the restricted mean survival time, an estimand of its own: nobody is left out of it.

    Args:
        values: what each seed needed, infinity for never.
        limit: the most that counts, such as the budget.
    """
    found = float(np.minimum(values, limit).mean()) if len(values) else math.nan
    return found if math.isfinite(found) else math.nan


@dataclass(frozen=True)
class EnergyTo:
    """What it cost to reach a target; the median counts runs that never did as infinitely dear.

    Attributes:
        median_j: joules, over seeds; infinity if half of them or more never got there, NaN if it is not known.
        reached: how many seeds did.
        n: of how many, with those that failed or have no round.
        mean_j: the restricted mean, as of times; NaN without a limit.
    """

    median_j: float
    reached: int
    n: int
    mean_j: float = math.nan

    def text(self) -> str:
        """Such as ``171 J``, ``never (1/5)`` or ``unknown``."""
        cost, known = self.median_text(), not math.isnan(self.median_j)
        return cost if self.reached == self.n or not known else f"{cost} ({self.reached}/{self.n})"

    def median_text(self) -> str:
        """The median alone, such as ``171 J``, ``never`` or ``unknown``."""
        if math.isnan(self.median_j):
            return "unknown"
        return f"{self.median_j:.4g} J" if math.isfinite(self.median_j) else "never"


def energies_to(runs: Sequence[Rounds], target: float, limit_j: float = math.inf) -> EnergyTo:
    """What it cost the runs to reach the accuracy; runs that never did count with the limit in the restricted mean."""
    joules = [run.energy_to(target) for run in runs]
    reached = sum(not math.isinf(j) for j in joules)
    return EnergyTo(median(joules), reached, len(joules), restricted_mean(joules, limit_j))


def median(values: Sequence[float]) -> float:
    """The median of values that may be infinite; NaN if one is, infinity of nothing."""
    return float(np.median(values)) if len(values) else math.inf


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """A 95 % interval of the median of which these are a sample: two of the values, infinite ones too.

    It assumes nothing of their distribution: the number of values below the true median is binomial (1/2). NaN of fewer
    than six, which cannot make one.

    Args:
        values: one for each seed, infinity for never.

    Example:
        >>> import math
        >>> from fedcell.runs.stats import median_interval
        >>> median_interval([1, 2, 3, 4, 5, 6, 7, 8, 9, math.inf]), median_interval([1, 2, math.inf])
        ((2.0, 9.0), (nan, nan))
    """
    n, below, place = len(values), 0.0, 0
    while (below := below + math.comb(n, place) / 2.0**n) <= 0.025:
        place += 1
    if place == 0:
        return math.nan, math.nan
    ordered = sorted(values)
    return float(ordered[place - 1]), float(ordered[n - place])


@dataclass(frozen=True, eq=False)
class MeanCurve:
    """Accuracy against time, or against energy, averaged over seeds.

    Attributes:
        x: (n,) seconds, or joules spent, from the first at which every run has finished a round.
        accuracy: (n,) mean.
        half: (n,) half the 95 % interval, NaN where it is of fewer than FEWEST_IN_A_BAND seeds.
    """

    x: Floats
    accuracy: Floats
    half: Floats

    def best(self) -> float:
        """The mean curve's highest point, the paper's "highest achievable accuracy" on averaged curves; NaN of none."""
        return float(self.accuracy.max()) if self.accuracy.size else math.nan

    def last(self) -> float:
        """The mean curve's end; NaN of none."""
        return float(self.accuracy[-1]) if self.accuracy.size else math.nan

    def time_to(self, target: float) -> float:
        """When the mean curve first reaches the accuracy, infinity if never."""
        return first_reached(self.x, self.accuracy, target)


def mean_curve(runs: Sequence[Rounds], end_s: float | None = None, ended: Sequence[bool] | None = None) -> MeanCurve:
    """Average the runs' step functions at every step; a run that has not ``ended`` counts only as far as it has got."""
    told = [(run, over) for run, over in zip(runs, ended or [True] * len(runs), strict=True) if len(run)]
    if not told or (ended is None and len(told) < len(runs)):
        return MeanCurve(np.empty(0), np.empty(0), np.empty(0))
    steps = np.unique(np.concatenate([run.clock_s for run, _ in told]))
    clock_s = steps[steps >= max(run.clock_s[0] for run, _ in told)]
    if all(over for _, over in told) and end_s is not None and math.isfinite(end_s):
        clock_s = np.append(clock_s[clock_s < end_s], end_s)
    return _averaged(clock_s, [(run.clock_s, run.accuracy, over) for run, over in told])


def energy_curve(runs: Sequence[Rounds]) -> MeanCurve:
    """Average the runs' accuracies at every number of joules spent at which one of them steps.

    The curve ends where the first of the runs has spent all that it spends; it is empty if one has not begun, or if it
    is not known what a run has spent.

    Args:
        runs: one for each seed.
    """
    if not runs or not all(len(run) and np.isfinite(run.spent_j).all() for run in runs):
        return MeanCurve(np.empty(0), np.empty(0), np.empty(0))
    steps = np.unique(np.concatenate([run.spent_j for run in runs]))
    begin, end = max(run.spent_j[0] for run in runs), min(run.spent_j[-1] for run in runs)
    return _averaged(steps[(steps >= begin) & (steps <= end)], [(run.spent_j, run.accuracy, True) for run in runs])


def _averaged(x: Floats, runs: Sequence[tuple[Floats, Floats, bool]]) -> MeanCurve:
    """The mean at x of step functions: where each steps, its values, and whether it holds beyond its last step."""
    values = np.full((len(runs), x.size), math.nan)
    for row, (steps, accuracy, over) in enumerate(runs):
        here = x <= (math.inf if over else steps[-1])
        values[row, here] = accuracy[np.searchsorted(steps, x[here], side="right") - 1]
    count = np.isfinite(values).sum(axis=0)
    x, values, count = x[count > 0], values[:, count > 0], count[count > 0]
    half = np.full(x.size, math.nan)
    for n in np.unique(count[count >= FEWEST_IN_A_BAND]):
        at = count == n
        half[at] = student_t_quantile(0.975, int(n) - 1) * np.nanstd(values[:, at], axis=0, ddof=1) / math.sqrt(n)
    return MeanCurve(x, np.nanmean(values, axis=0), half)


@dataclass(frozen=True, eq=False)
class Summary:
    """All that a race's table says of one policy.

    Accuracies, rounds and energies are of the seeds that have a round, ``best.n`` of them. In what is said of the
    target all seeds count: one that failed, or whose budget allows no round, never reaches it.

    Attributes:
        best: each seed's best accuracy.
        last: each seed's last accuracy.
        curve: the mean curve.
        to_target: when the target was reached.
        devices: scheduled devices a round, each seed's mean.
        round_s: seconds a round, each seed's mean.
        rounds: rounds a run.
        joules: what all devices spent in a run; NaN if it is not known.
        epochs: how often a device went through its samples in a round, each seed's mean; NaN if it is not known.
        bits: the bits a weight that one uploaded, likewise.
        sent_bytes: the sizes of all uploads of a run together, likewise.
        energy_to_target: what it cost to reach the target.
        diverged: of how many seeds training diverged, which ended their runs; they count as never reaching the target.
        failed: how many seeds failed.
    """

    best: Mean
    last: Mean
    curve: MeanCurve
    to_target: TimeTo
    devices: Mean
    round_s: Mean
    rounds: Mean
    joules: Mean
    epochs: Mean
    bits: Mean
    sent_bytes: Mean
    energy_to_target: EnergyTo
    diverged: int = 0
    failed: int = 0

    @property
    def without_round(self) -> int:
        """How many seeds were run and have no round, for none fits into the budget."""
        return self.to_target.n - self.best.n - self.failed


def summarise(
    runs: Sequence[Rounds],
    target: float,
    end_s: float | None = None,
    *,
    limit_s: float | None = None,
    limit_j: float = math.inf,
    failed: int = 0,
) -> Summary:
    """Summarise the runs of one policy, one for each seed.

    Args:
        runs: one for each seed; of a seed that failed one without a round.
        target: the accuracy.
        end_s: where the mean curve ends, if all runs have ended.
        limit_s: what a seed that never reaches the target counts with in the mean time to it; ``end_s`` by default.
        limit_j: likewise in the mean energy to it.
        failed: how many of the seeds failed.
    """
    told = [run for run in runs if len(run)]
    limit = end_s if limit_s is None else limit_s
    return Summary(
        best=mean_of([run.best_accuracy() for run in told]),
        last=mean_of([run.last_accuracy() for run in told]),
        curve=mean_curve(told, end_s),
        to_target=times_to(runs, target, math.inf if limit is None else limit),
        devices=mean_of([float(run.devices.mean()) for run in told]),
        round_s=mean_of([float(run.round_s.mean()) for run in told]),
        rounds=mean_of([float(len(run)) for run in told]),
        joules=mean_of([float(run.spent_j[-1]) for run in told]),
        epochs=mean_of([_mean_of_known(run.epochs) for run in told]),
        bits=mean_of([_mean_of_known(run.bits) for run in told]),
        sent_bytes=mean_of([float(run.sent_bytes.sum()) for run in told]),
        energy_to_target=energies_to(runs, target, limit_j),
        diverged=sum(run.diverged for run in runs),
        failed=failed,
    )


def _mean_of_known(values: Floats) -> float:
    """The mean over the rounds in which somebody trained."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def effort_differs(summaries: Iterable[Summary]) -> bool:
    """Whether policies differ in how long devices train or in what they upload: then tables say it."""
    found = {(s.epochs.mean, s.bits.mean) for s in summaries if math.isfinite(s.epochs.mean)}
    return len(found) > 1


LEVEL = 0.05
"""The chance that is accepted of any false verdict among several."""


def p_value(difference: Mean) -> float:
    """Two-sided, that the true mean is 0; NaN of fewer than FEWEST_TO_JUDGE seeds."""
    if math.isnan(difference.half) or difference.n < FEWEST_TO_JUDGE:
        return math.nan
    if difference.half == 0.0:
        return 1.0 if difference.mean == 0.0 else 0.0
    return student_t_p(difference.mean, difference.half, difference.n)


def holm(p: Sequence[float], level: float = LEVEL, of: int = 0) -> list[bool]:
    """Which hypotheses Holm's method rejects; NaN never.

    Args:
        p: the p-values.
        level: the chance of any false rejection that is accepted.
        of: how many hypotheses there are, where these are the ones that are looked at of more.

    Example:
        >>> from fedcell.runs.stats import holm
        >>> holm([0.01, 0.04, 0.03, 0.005])
        [True, False, False, True]
    """
    rejected = [False] * len(p)
    for place, i in enumerate(sorted(range(len(p)), key=lambda i: (math.isnan(p[i]), p[i]))):
        if not p[i] <= level / (max(of, len(p)) - place):
            break
        rejected[i] = True
    return rejected


def significant_among(differences: Sequence[Mean]) -> list[bool]:
    """Which of several differences are significant at 5 %, corrected for their number by Holm's method.

    A single one is significant where its 95 % interval leaves out 0.
    """
    if len(differences) == 1:
        return [differences[0].significant]
    return holm([p_value(difference) for difference in differences])
