"""What a set of runs says, with its uncertainty: accuracy in a budget, time and energy to it, paired differences.

A run is its Rounds, columns of numbers. Between rounds the last model stands, so accuracy is a step function of time.
Intervals are Student's t at 95 % over seeds, and so assume that the seeds' values are near normal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedcell.intervals import student_t_p, student_t_quantile
from fedcell.runs.rows import Rounds

Floats = NDArray[np.float64]
Measure = Literal["time", "best", "last"]
"""What runs are compared by: seconds to the target, best accuracy, last accuracy."""
FEWEST_IN_A_BAND = 4
"""Of fewer seeds Student's interval is wider than the axes, and is not drawn."""


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
        """Such as ``87.41 ± 0.62``."""
        if math.isnan(self.mean):
            return "unknown" if self.n else "-"
        shown = f"{scale * self.mean:.{digits}f}"
        return shown if math.isnan(self.half) else f"{shown} ± {scale * self.half:.{digits}f}"

    @property
    def significant(self) -> bool:
        """Whether the interval leaves out 0."""
        return not math.isnan(self.half) and abs(self.mean) > self.half


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


def best_accuracy(run: Rounds) -> float:
    """The highest accuracy of the run, 0 if it has no round."""
    return float(run.accuracy.max(initial=0.0))


def last_accuracy(run: Rounds) -> float:
    """The accuracy of the run's last model, 0 if it has no round."""
    return float(run.accuracy[-1]) if len(run) else 0.0


def time_to(run: "Rounds | MeanCurve", target: float) -> float:
    """Seconds until the run, or a mean curve, first reached the accuracy; infinity if it never did, or diverged."""
    return _first(run.clock_s if isinstance(run, Rounds) else run.x, run, target)


def energy_to(run: Rounds, target: float) -> float:
    """Joules spent until the run first reached the accuracy; infinity if it never did, or diverged; NaN if unknown."""
    return _first(run.spent_j, run, target)


def _first(x: Floats, run: "Rounds | MeanCurve", target: float) -> float:
    """Where accuracy against x first reaches the target, infinity if it never does."""
    if isinstance(run, Rounds) and run.diverged:  # what it had reached, it did not keep
        return math.inf
    reached = np.flatnonzero(run.accuracy >= target)
    return float(x[reached[0]]) if reached.size else math.inf


def value_of(run: Rounds, measure: Measure, target: float, budget_s: float) -> float:
    """One run's seconds to the target (the budget if never), or its best or last accuracy."""
    if measure == "time":
        return min(time_to(run, target), budget_s)
    return best_accuracy(run) if measure == "best" else last_accuracy(run)


@dataclass(frozen=True)
class TimeTo:
    """When runs reached a target. The median counts runs that never did as infinitely late, so nobody is left out.

    Attributes:
        median_s: over seeds; infinity if half of them or more never got there.
        reached: how many seeds did.
        n: of how many.
    """

    median_s: float
    reached: int
    n: int

    def text(self) -> str:
        """Such as ``171 s`` or ``never (1/5)``."""
        when = f"{self.median_s:.0f} s" if math.isfinite(self.median_s) else "never"
        return when if self.reached == self.n else f"{when} ({self.reached}/{self.n})"


def times_to(runs: Sequence[Rounds], target: float) -> TimeTo:
    """When the runs reached the accuracy."""
    times = [time_to(run, target) for run in runs]
    return TimeTo(_median(times), sum(math.isfinite(t) for t in times), len(times))


@dataclass(frozen=True)
class EnergyTo:
    """What it cost to reach a target; the median counts runs that never did as infinitely dear.

    Attributes:
        median_j: joules, over seeds; infinity if half of them or more never got there, NaN if it is not known.
        reached: how many seeds did.
        n: of how many.
    """

    median_j: float
    reached: int
    n: int

    def text(self) -> str:
        """Such as ``171 J``, ``never (1/5)`` or ``unknown``."""
        if math.isnan(self.median_j):
            return "unknown"
        cost = f"{self.median_j:.4g} J" if math.isfinite(self.median_j) else "never"
        return cost if self.reached == self.n else f"{cost} ({self.reached}/{self.n})"


def energies_to(runs: Sequence[Rounds], target: float) -> EnergyTo:
    """What it cost the runs to reach the accuracy."""
    joules = [energy_to(run, target) for run in runs]
    return EnergyTo(_median(joules), sum(not math.isinf(j) for j in joules), len(joules))


def _median(values: Sequence[float]) -> float:
    """The median of values that may be infinite; NaN if one is, infinity of nothing."""
    if any(map(math.isnan, values)):
        return math.nan
    order = sorted(values)
    middle = (order[(len(order) - 1) // 2], order[len(order) // 2]) if order else (math.inf, math.inf)
    return math.inf if math.inf in middle else sum(middle) / 2


@dataclass(frozen=True, eq=False)
class MeanCurve:
    """Accuracy against time, or against energy, averaged over seeds.

    Attributes:
        x: (n,) seconds, or joules spent, from the first at which every run has finished a round.
        accuracy: (n,) mean.
        half: (n,) half the 95 % interval, NaN for one seed.
    """

    x: Floats
    accuracy: Floats
    half: Floats

    def best(self) -> float:
        """The mean curve's highest point: the paper's "highest achievable accuracy", read on averaged curves."""
        return float(self.accuracy.max(initial=0.0))

    def last(self) -> float:
        """The mean curve's end."""
        return float(self.accuracy[-1]) if self.accuracy.size else 0.0

    def time_to(self, target: float) -> float:
        """When the mean curve first reaches the accuracy, infinity if never."""
        return time_to(self, target)


def mean_curve(runs: Sequence[Rounds], end_s: float | None = None, ended: Sequence[bool] | None = None) -> MeanCurve:
    """Average the runs' step functions at every time at which one of them steps.

    Args:
        runs: one for each seed.
        end_s: where the curve ends, if all runs have ended.
        ended: whether each run has ended; one that has not counts only as far as it has got. All have by default.
    """
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
    for n in np.unique(count[count > 1]):
        at = count == n
        half[at] = student_t_quantile(0.975, int(n) - 1) * np.nanstd(values[:, at], axis=0, ddof=1) / math.sqrt(n)
    return MeanCurve(x, np.nanmean(values, axis=0), half)


@dataclass(frozen=True, eq=False)
class Summary:
    """All that a race's table says of one policy.

    Attributes:
        best: each seed's best accuracy.
        last: each seed's last accuracy.
        curve: the mean curve.
        to_target: when the target was reached.
        devices: scheduled devices a round, each seed's mean.
        round_s: seconds a round, each seed's mean.
        rounds: rounds a run.
        joules: what all devices spent in a run; NaN if it is not known.
        energy_to_target: what it cost to reach the target.
        diverged: of how many seeds training diverged, which ended their runs; they count as never reaching the target.
    """

    best: Mean
    last: Mean
    curve: MeanCurve
    to_target: TimeTo
    devices: Mean
    round_s: Mean
    rounds: Mean
    joules: Mean
    energy_to_target: EnergyTo
    diverged: int = 0


def summarise(runs: Sequence[Rounds], target: float, end_s: float | None = None) -> Summary:
    """Summarise the runs of one policy, one for each seed."""
    told = [run for run in runs if len(run)]
    return Summary(
        best=mean_of([best_accuracy(run) for run in runs]),
        last=mean_of([last_accuracy(run) for run in runs]),
        curve=mean_curve(told, end_s),
        to_target=times_to(runs, target),
        devices=mean_of([float(run.devices.mean()) for run in told]),
        round_s=mean_of([float(run.round_s.mean()) for run in told]),
        rounds=mean_of([float(len(run)) for run in runs]),
        joules=mean_of([float(run.spent_j[-1]) if len(run) else 0.0 for run in runs]),
        energy_to_target=energies_to(runs, target),
        diverged=sum(run.diverged for run in runs),
    )


LEVEL = 0.05
"""The chance that is accepted of any false verdict among several."""


def p_value(difference: Mean) -> float:
    """Two-sided, that the true mean is 0; NaN for a single seed."""
    if math.isnan(difference.half) or difference.n < 2:
        return math.nan
    if difference.half == 0.0:
        return 1.0 if difference.mean == 0.0 else 0.0
    return student_t_p(difference.mean, difference.half, difference.n)


def holm(p: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which hypotheses Holm's method rejects; NaN never.

    Args:
        p: the p-values.
        level: the chance of any false rejection that is accepted.

    Example:
        >>> from fedcell.runs.stats import holm
        >>> holm([0.01, 0.04, 0.03, 0.005])
        [True, False, False, True]
    """
    rejected = [False] * len(p)
    for place, i in enumerate(sorted(range(len(p)), key=lambda i: (math.isnan(p[i]), p[i]))):
        if not p[i] <= level / (len(p) - place):
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


@dataclass(frozen=True)
class Sooner:
    """How many times sooner one policy reaches a target than another, over the seeds in which both do.

    Attributes:
        ratio: the geometric mean of the other's time over the policy's, 2 for half the time.
        low: where its 95 % interval begins, NaN for a single seed.
        high: where it ends.
        n: the seeds in which both reach the target.
        significant: whether it differs from 1, corrected for all pairs of policies.
    """

    ratio: float
    low: float
    high: float
    n: int
    significant: bool


def lead(runs: Mapping[str, Sequence[Rounds]], target: float) -> tuple[str, dict[str, Sooner]] | None:
    """The policy that reaches the target first, and how many times sooner than each other that ever does.

    The leader is found in the same seeds that it is tested on, so a difference must hold against all pairs of policies
    (Bonferroni), not only against the others of the leader. Ratios are averaged as logarithms.

    Args:
        runs: by policy, one run for each seed, in the same order of seeds.
        target: the accuracy.

    Returns:
        The policy with the least median time, and by other policy the comparison; None if no policy's median seed
        reaches the target.

    Example:
        >>> import numpy as np
        >>> from fedcell.runs.rows import Rounds
        >>> from fedcell.runs.stats import lead
        >>> def after(seconds):
        ...     return Rounds(*(np.array([value]) for value in (seconds, seconds, 4.0, 0.9)))
        >>> leader, others = lead({"a": [after(40.0), after(60.0)], "b": [after(20.0), after(30.0)]}, 0.8)
        >>> leader, round(others["a"].ratio, 6), others["a"].n
        ('b', 2.0, 2)
    """
    times = {policy: [time_to(run, target) for run in found] for policy, found in runs.items()}
    medians = {policy: _median(found) for policy, found in times.items()}
    first = min(medians, key=lambda policy: medians[policy], default=None)
    if first is None or math.isinf(medians[first]):
        return None
    pairs = len(times) * (len(times) - 1) // 2
    found = {policy: _sooner(times[first], theirs, pairs) for policy, theirs in times.items() if policy != first}
    return first, {policy: one for policy, one in found.items() if one is not None}


def _sooner(ours: Sequence[float], theirs: Sequence[float], pairs: int) -> Sooner | None:
    logs = [math.log(b / a) for a, b in zip(ours, theirs, strict=True) if math.isfinite(a) and math.isfinite(b)]
    if not logs:
        return None
    found = mean_of(logs)
    low, high = math.exp(found.mean - found.half), math.exp(found.mean + found.half)
    return Sooner(math.exp(found.mean), low, high, found.n, p_value(found) <= LEVEL / pairs)


def verdicts(runs: Mapping[str, Sequence[Rounds]]) -> list[str]:
    """What the paired differences of best accuracy to the first policy show, a sentence for each other policy.

    Args:
        runs: by policy, one run for each seed, in the same order of seeds.
    """
    (first, ours), *others = runs.items()
    best = [best_accuracy(run) for run in ours]
    differences = {other: paired_difference(best, [best_accuracy(run) for run in theirs]) for other, theirs in others}
    return verdicts_on(first, differences)


def energy_differences(runs: Mapping[str, Sequence[Rounds]], target: float) -> dict[str, Mean]:
    """The joules that the first policy needs to the target less those of each other, of the seeds where both reach it.

    Args:
        runs: by policy, one run for each seed, in the same order of seeds.
        target: the accuracy.
    """
    (_, ours), *others = runs.items()
    spent = [energy_to(run, target) for run in ours]
    pairs = {
        other: [(a, b) for a, b in zip(spent, (energy_to(run, target) for run in theirs), strict=True)]
        for other, theirs in others
    }
    both = {other: [pair for pair in found if not math.isinf(max(pair))] for other, found in pairs.items()}
    return {other: mean_of([a - b for a, b in found]) for other, found in both.items()}


def energy_verdicts(runs: Mapping[str, Sequence[Rounds]], target: float) -> list[str]:
    """What those differences show, a sentence for each other policy."""
    differences = energy_differences(runs, target)
    first, significant = next(iter(runs)), significant_among(list(differences.values()))
    said = []
    for (other, difference), holds in zip(differences.items(), significant, strict=True):
        n, of = difference.n, len(runs[first])
        seeds = f" of the {n} of {of} seeds in which both reach it" if n < of else ""
        joules = f"{difference.mean:+.4g} J{seeds}"
        if n == 0 or math.isnan(difference.mean):
            shown = "no seed in which both reach it" if n == 0 else "unknown"
        elif math.isnan(difference.half):
            shown = f"{joules}, on one seed, which shows nothing about others"
        else:
            low, high = difference.mean - difference.half, difference.mean + difference.half
            shown = f"{joules}, 95 % interval [{low:+.4g}, {high:+.4g}]: {'' if holds else 'not '}significant"
        said.append(f"{first} - {other}: {shown}")
    return said


def verdicts_on(first: str, differences: Mapping[str, Mean]) -> list[str]:
    """Say in a plain sentence each what paired differences of accuracies show, corrected for their number.

    Args:
        first: the policy that is compared.
        differences: its accuracy less that of each other policy, by the other's name.
    """
    significant = significant_among(list(differences.values()))
    many = f" (Holm's correction for {len(differences)} comparisons)" if len(differences) > 1 else ""
    return [
        _verdict(difference, f"{first} - {other}", holds, many)
        for (other, difference), holds in zip(differences.items(), significant, strict=True)
    ]


def _verdict(difference: Mean, pair: str, significant: bool, many: str) -> str:
    points = f"{100 * difference.mean:+.2f} points"
    if math.isnan(difference.half):
        return f"{pair}: {points} on one seed, which shows nothing about others"
    low, high = 100 * (difference.mean - difference.half), 100 * (difference.mean + difference.half)
    said = "significant" if significant else f"not significant with {difference.n} seeds"
    return f"{pair}: {points}, 95 % interval [{low:+.2f}, {high:+.2f}]: {said}{many}"
