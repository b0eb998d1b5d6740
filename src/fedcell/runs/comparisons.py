"""Who reaches a target sooner than whom, or for fewer joules, over all seeds: those that never reach it count too.

Policies are compared by their restricted means: the mean over seeds of the lesser of the time to the target and a
limit, the budget. Nobody is left out of it, so it can be compared where some seeds never reach the target; a mean over
the seeds in which both do would favour whoever fails. Intervals are of a bootstrap over seeds, p-values of a sign-flip
permutation test of the paired differences, and "significant" is at 5 % with Holm's correction for all pairs compared.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedcell.distributions import normal_cdf, student_t_quantile
from fedcell.rng import stream
from fedcell.runs import stats
from fedcell.runs.records import Rounds
from fedcell.runs.stats import LEVEL, Mean
from fedcell.types import Floats

Axis = Literal["time", "energy"]
"""What accuracy is shown against, and policies are compared by."""
UNITS: dict[Axis, str] = {"time": "s", "energy": "J"}
RESAMPLES = 10_000
FLIPS = 20_000
MAX_EXACT = 30
"""Of more differences that are not 0 the signs are drawn instead of enumerated."""


@dataclass(frozen=True)
class PairEstimate:
    """A number and its 95 % interval, whose ends are NaN where there are too few seeds for one."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PairComparison:
    """How one policy compares with another by what they need to reach a target, paired by seed.

    Attributes:
        policy: the one.
        other: the other.
        by: ``"time"``, in seconds, or ``"energy"``, in joules of all devices.
        limit: what a seed that never reaches the target counts with, s or J.
        mean: the policy's restricted mean: over seeds, of the lesser of what it needed and the limit.
        other_mean: the other's.
        difference: mean - other_mean; negative where the policy is ahead.
        ratio: other_mean / mean; 2 for half the time.
        p: two-sided, of the paired sign-flip test of the difference, not corrected; NaN where nothing is known.
        significant: whether it is significant at 5 %, with Holm's correction for all ``pairs``.
        seeds: how many.
        reached: with how many of them the policy reaches the target.
        other_reached: and the other.
        pairs: how many pairs of policies were compared.
    """

    policy: str
    other: str
    by: Axis
    limit: float
    mean: float
    other_mean: float
    difference: PairEstimate
    ratio: PairEstimate
    p: float
    significant: bool
    seeds: int
    reached: int
    other_reached: int
    pairs: int

    def swapped(self) -> "PairComparison":
        """The same, told of the other."""
        d, r = self.difference, self.ratio
        return replace(
            self,
            policy=self.other,
            other=self.policy,
            mean=self.other_mean,
            other_mean=self.mean,
            difference=PairEstimate(-d.value, -d.high, -d.low),
            ratio=PairEstimate(*(1.0 / value if value else math.nan for value in (r.value, r.high, r.low))),
            reached=self.other_reached,
            other_reached=self.reached,
        )

    def verdict(self) -> str:
        """``significant``, ``not significant with 12 seeds``, or that so few seeds cannot tell."""
        fewest = fewest_seeds(self.pairs)
        if math.isnan(self.p):
            return "unknown"
        if self.seeds < fewest:
            return f"{_seeds(self.seeds)} cannot tell; use at least {fewest}"
        return "significant" if self.significant else f"not significant with {_seeds(self.seeds)}"


def fewest_seeds(pairs: int) -> int:
    """How many seeds can show anything at all: with fewer no sign-flip test is significant at 5 % among so many pairs.

    Args:
        pairs: how many pairs of policies are compared.

    Example:
        >>> from fedcell.runs.comparisons import fewest_seeds
        >>> fewest_seeds(1), fewest_seeds(21)
        (6, 10)
    """
    return math.ceil(1.0 + math.log2(pairs / LEVEL))


def sign_flip_p(differences: Sequence[float]) -> float:
    """The two-sided p-value of paired differences, if the sign of each might as well have been the other.

    It is the share of all 2^n choices of signs that have a sum at least as large in size as the one found. It is exact
    up to MAX_EXACT differences that are not 0; of more, signs are drawn, always the same. NaN if a difference is, or
    there is none.

    Args:
        differences: one for each seed.

    Example:
        >>> from fedcell.runs.comparisons import sign_flip_p
        >>> sign_flip_p([1.0, 2.0, 3.0, 4.0, 5.0]), sign_flip_p([1.0, -1.0])
        (0.0625, 1.0)
    """
    if not len(differences) or not np.isfinite(differences).all():
        return math.nan
    sizes = np.abs([d for d in differences if d])
    found = abs(math.fsum(differences)) - 1e-9 * float(sizes.sum())  # sums that are equal but for rounding are equal
    if found <= 0.0:
        return 1.0
    if sizes.size > MAX_EXACT:
        signs = _drawn_signs(sizes.size).astype(np.float64)
        return float(1 + (np.abs(signs @ sizes) >= found).sum()) / (1 + FLIPS)
    half = sizes.size // 2
    one, other = _all_sums(sizes[:half]), np.sort(_all_sums(sizes[half:]))
    above = other.size - np.searchsorted(other, found - one, side="left")  # for each of one, how many get there
    return 2.0 * float(above.sum()) / 2.0**sizes.size


@lru_cache(2)
def _drawn_signs(count: int) -> NDArray[np.int8]:
    """(FLIPS, count) signs; all pairs of a tournament have the same."""
    return stream(0, "sign flips").choice([-1.0, 1.0], size=(FLIPS, count)).astype(np.int8)


def _all_sums(sizes: Floats) -> Floats:
    """(2^n,) the sums for all choices of signs."""
    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate([sums - size, sums + size])
    return sums


def needs(runs: Sequence[Rounds], target: float, by: Axis = "time") -> list[float]:
    """What each run needed to the target, s or J: infinity if it never reached it, NaN if that is not known."""
    return [run.time_to(target) if by == "time" else run.energy_to(target) for run in runs]


def limit_of(runs: Mapping[str, Sequence[Rounds]], by: Axis, budget: float | None) -> float:
    """What "never" counts with: the budget, or without one the most that any run took; NaN if that is not known."""
    if budget is not None and math.isfinite(budget):
        return budget
    ends = [(run.clock_s if by == "time" else run.spent_j)[-1] for some in runs.values() for run in some if len(run)]
    return float(max(ends)) if ends and np.isfinite(ends).all() else math.nan


def compare_pairs(
    runs: Mapping[str, Sequence[Rounds]], target: float, limit: float, by: Axis = "time", *, among: int = 0
) -> dict[tuple[str, str], PairComparison]:
    """Compare every policy with every other by what they need to reach a target.

    Args:
        runs: by policy, one run for each seed, in the same order of seeds; one without a round for a seed that failed.
        target: the accuracy.
        limit: what a seed that never reaches it counts with, s or J; see `limit_of`.
        by: time or energy.
        among: of how many policies these were picked, if of more: the correction is for all pairs of those.

    Returns:
        By pair, in both directions; a policy without any round is compared with nobody.

    Example:
        >>> import numpy as np
        >>> from fedcell.runs.comparisons import compare_pairs
        >>> from fedcell.runs.records import Rounds
        >>> def after(*seconds):
        ...     return [Rounds(*(np.array([value]) for value in (one, one, 4.0, 0.9))) for one in seconds]
        >>> never = Rounds(*(np.array([value]) for value in (50.0, 50.0, 4.0, 0.3)))
        >>> found = compare_pairs({"a": [*after(40.0), never], "b": after(20.0, 30.0)}, 0.8, limit=60.0)["b", "a"]
        >>> found.mean, found.other_mean, found.ratio.value, found.reached, found.other_reached
        (25.0, 50.0, 2.0, 2, 1)
    """
    told = {policy: needs(some, target, by) for policy, some in runs.items() if any(map(len, some))}
    names = list(told)
    if len(names) < 2:
        return {}
    values = np.minimum(np.array(list(told.values())), limit)  # (policies, seeds)
    means, drawn = values.mean(axis=1), _resampled(values)
    pairs = list(combinations(range(len(names)), 2))
    p = [sign_flip_p((values[a] - values[b]).tolist()) for a, b in pairs]
    of = math.comb(max(among, len(names)), 2)
    found: dict[tuple[str, str], PairComparison] = {}
    for (a, b), chance, holds in zip(pairs, p, stats.holm(p, of=of), strict=True):
        reached = [sum(not math.isinf(need) for need in told[names[i]]) for i in (a, b)]
        one = PairComparison(
            names[a],
            names[b],
            by,
            limit,
            float(means[a]),
            float(means[b]),
            _estimate(float(means[a] - means[b]), drawn[:, a] - drawn[:, b], values.shape[1]),
            _estimate(_ratio(means[b], means[a]), drawn[:, b] / np.maximum(drawn[:, a], 1e-300), values.shape[1]),
            chance,
            holds,
            values.shape[1],
            reached[0],
            reached[1],
            of,
        )
        found |= {(one.policy, one.other): one, (one.other, one.policy): one.swapped()}
    return found


def _ratio(over: float, under: float) -> float:
    return float(over / under) if under > 0.0 else math.nan


def _resampled(values: Floats) -> Floats:
    """(RESAMPLES, policies) means of seeds drawn with replacement, the same seeds for all policies."""
    n = values.shape[1]
    counts = stream(0, "bootstrap of seeds").multinomial(n, [1.0 / n] * n, size=RESAMPLES)
    drawn: Floats = counts @ values.T / n
    return drawn


def _estimate(value: float, drawn: Floats, n: int) -> PairEstimate:
    """With the bootstrap's interval: its quantiles are moved out as Student's t asks for n values (Hesterberg 2015)."""
    if n < stats.FEWEST_IN_A_BAND or not math.isfinite(value):
        return PairEstimate(value, math.nan, math.nan)
    tail = normal_cdf(-math.sqrt(n / (n - 1)) * student_t_quantile(0.975, n - 1))
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return PairEstimate(value, float(low), float(high))


def median_ratio(ours: Sequence[float], theirs: Sequence[float], limit: float) -> PairEstimate:
    """What part of their median time ours is, with a bootstrap interval over seeds, which are paired.

    A median beyond the limit counts as the limit. Where theirs is, the ratio is an upper bound.

    Args:
        ours: one for each seed, infinity for never.
        theirs: of the same seeds.
        limit: the most that counts, such as the budget.

    Example:
        >>> import math
        >>> from fedcell.runs.comparisons import median_ratio
        >>> median_ratio([10.0, 20.0, 30.0], [40.0, math.inf, math.inf], limit=100.0).value
        0.2
    """
    both = np.minimum(np.array([ours, theirs], dtype=np.float64), limit)
    n = both.shape[1]
    picked = stream(0, "bootstrap of medians").integers(n, size=(RESAMPLES, n))
    over, under = np.median(both[:, picked], axis=2)
    value = _ratio(float(np.median(both[0])), float(np.median(both[1])))
    return _estimate(value, over / np.maximum(under, 1e-300), n)


# --- in words ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Headline:
    """What is said above all else of who reaches the target first.

    Attributes:
        text: the sentence.
        small: what it rests on: means, interval, seeds, correction; empty where there is nothing to add.
        found: the comparison that it tells of; None where nobody leads.
        over: by other policy, the leader's comparisons; empty where nobody leads.
    """

    text: str
    small: str
    found: PairComparison | None
    over: dict[str, PairComparison]

    @property
    def sure(self) -> bool:
        """Whether somebody leads, significantly."""
        return self.found is not None and self.found.significant

    def line(self) -> str:
        """All of it in a line."""
        return f"{self.text} ({self.small})" if self.small else self.text


def headline(runs: Mapping[str, Sequence[Rounds]], target: float, limit_s: float, *, among: int = 0) -> Headline | None:
    """Who reaches the target how many times sooner than greedy, the paper's policy, or else than the next.

    The leader has the least restricted mean time. There is none if he does not reach the target with more than half of
    the seeds, or if he is worse than another policy by every other measure: in how many seeds it is reached, best and
    last accuracy.

    Args:
        runs: by policy, one run for each seed, in the same order of seeds.
        target: the accuracy.
        limit_s: what a seed that never reaches it counts with, in seconds.
        among: as for `compare_pairs`.

    Returns:
        The headline; None if there is nothing to say: of one policy that reaches the target, or of policies alike.
    """
    summaries = {name: stats.summarise(some, target, limit_s=limit_s) for name, some in runs.items()}
    ran = {name: one for name, one in summaries.items() if one.best.n}
    percent = f"{100 * target:g} %"
    if not ran:
        return None
    if not any(one.to_target.reached for one in ran.values()):
        most = max(ran, key=lambda name: max(map(Rounds.best_accuracy, filter(len, runs[name]))))
        best = max(map(Rounds.best_accuracy, filter(len, runs[most])))
        said = f"No policy reaches {percent} with any seed; the highest accuracy is {100 * best:.2f} % ({most})"
        return Headline(f"{said}. A larger budget or a lower target would tell more", "", None, {})
    found = compare_pairs(runs, target, limit_s, among=among)
    if not found or math.isnan(limit_s):
        return None
    first = min(ran, key=lambda name: ran[name].to_target.mean_s)
    to, over = ran[first].to_target, {other: found[first, other] for other in ran if other != first}
    if not math.isfinite(to.median_s):
        few = f"{to.reached} of {_seeds(to.n)}"
        said = f"No policy leads: {first} has the least mean time to {percent}, but reaches it with only {few}"
        return Headline(said, "", None, {})
    better = next((name for name, one in ran.items() if _worse_otherwise(ran[first], one)), None)
    if better is not None:
        said = (
            f"No policy leads: {first} has the least mean time to {percent}, but reaches it with {to.reached} of "
            f"{_seeds(to.n)}, {better} with {ran[better].to_target.reached}, and has lower best and last accuracies"
        )
        return Headline(said, "", None, {})
    other = next((name for name in over if name.split(":")[0] == "greedy"), None)
    one = over[other or min(over, key=lambda name: over[name].ratio.value)]
    return Headline(*_told(one, percent), one, over) if one.ratio.value >= 1.05 else None


def _worse_otherwise(one: stats.Summary, other: stats.Summary) -> bool:
    return (
        one.to_target.reached < other.to_target.reached
        and one.best.mean < other.best.mean
        and one.last.mean < other.last.mean
    )


def _told(one: PairComparison, percent: str) -> tuple[str, str]:
    few = one.seeds < fewest_seeds(one.pairs)
    times = f"{one.ratio.value:.1f} x"
    if one.significant:
        text = f"{one.policy} reaches {percent} {times} sooner than {one.other}"
    else:
        cannot = f"{_seeds(one.seeds)} cannot tell" if few else f"not significant with {_seeds(one.seeds)}"
        text = f"{one.policy} leads {one.other} by {times} to {percent}; {cannot}"
    means = f"restricted mean time {one.mean:.0f} s against {one.other_mean:.0f} s, never counts as {one.limit:.4g} s"
    low, high = one.ratio.low, one.ratio.high
    parts = [means]
    if math.isfinite(low):
        parts.append(f"95 % interval {low:.2f} x to {high:.2f} x")
    parts.append(f"reached by {one.reached} of {_seeds(one.seeds)}, {one.other} {one.other_reached} of {one.seeds}")
    parts.append(_corrected(one.pairs))
    if few:
        parts.append(f"use at least {fewest_seeds(one.pairs)} seeds")
    return text, "; ".join(part for part in parts if part)


def _corrected(pairs: int) -> str:
    return f"Holm's correction for {pairs} pairs" if pairs > 1 else ""


def verdicts(
    runs: Mapping[str, Sequence[Rounds]], target: float, limit: float, by: Axis = "time", *, among: int = 0
) -> tuple[str, list[str]]:
    """What the comparisons of the first policy with each other one show, with the last accuracy beside it.

    Args:
        runs: by policy, one run for each seed, in the same order of seeds.
        target: the accuracy.
        limit: what a seed that never reaches it counts with, s or J.
        by: time or energy.
        among: as for `compare_pairs`.

    Returns:
        What is compared, and a sentence for each other policy.
    """
    (first, ours), *others = runs.items()
    found, unit = compare_pairs(runs, target, limit, by, among=among), UNITS[by]
    many = f"; {corrected}" if (corrected := _corrected(max((one.pairs for one in found.values()), default=0))) else ""
    what = "Time" if by == "time" else "Energy"
    never = f" (never counts as {limit:.4g} {unit})" if math.isfinite(limit) else ""
    means = f"difference of restricted means{never} over {_seeds(len(ours))}"
    title = f"{what} to {100 * target:g} %, paired by seed: {means}{many}"
    said = []
    for other, theirs in others:
        empty = next((name for name, some in ((first, ours), (other, theirs)) if not any(map(len, some))), None)
        if empty is not None:
            said.append(f"{first} - {other}: no verdict, {empty} has no round: none fits into the budget")
            continue
        last = stats.paired_difference(*_both(ours, theirs))
        said.append(f"{first} - {other}: {_need_text(found[first, other], target)}; last accuracy {points_text(last)}")
    return title, said


def _both(ours: Sequence[Rounds], theirs: Sequence[Rounds]) -> tuple[list[float], list[float]]:
    """The last accuracies of both, of the seeds in which both have a round."""
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if len(a) and len(b)]
    return [a.last_accuracy() for a, _ in pairs], [b.last_accuracy() for _, b in pairs]


def _need_text(one: PairComparison, target: float) -> str:
    if one.reached == one.other_reached == 0:
        return f"neither reaches {100 * target:g} %"
    value, low, high = one.difference.value, one.difference.low, one.difference.high
    if math.isnan(value):
        return "unknown"
    unit = UNITS[one.by]
    interval = f", 95 % interval [{low:+.4g}, {high:+.4g}]" if math.isfinite(low) else ""
    return f"{value:+.4g} {unit}{interval}: {one.verdict()}"


def points_text(difference: Mean) -> str:
    """A paired difference of accuracies, such as ``+2.31 points [+1.29, +3.33]``; of few seeds without an interval."""
    if not difference.n:
        return "unknown"
    low, high = (100 * value for value in difference.interval(-1.0, 1.0))
    interval = f" [{low:+.2f}, {high:+.2f}]" if math.isfinite(low) else f" with {_seeds(difference.n)}"
    return f"{100 * difference.mean:+.2f} points{interval}"


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"
