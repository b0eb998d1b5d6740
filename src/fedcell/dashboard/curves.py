"""Accuracy against time or energy of races that may still run, and their tables; the statistics are runs.stats'."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcell.dashboard.queue import LiveRace
from fedcell.plots import LineStyle, styles
from fedcell.runs import comparisons, stats
from fedcell.runs.comparisons import Axis
from fedcell.runs.race import comparable
from fedcell.runs.records import Rounds
from fedcell.runs.stats import Mean

MAX_POINTS = 2000

RunSoFar = tuple[Rounds, bool]
"""The rounds of a run so far, and whether it has ended."""


def race_curves(
    race: LiveRace, runs: Mapping[tuple[str, int], RunSoFar], failed: Collection[tuple[str, int]], by: Axis = "time"
) -> dict[str, Any]:
    """The answer of /api/races/{id}/curves; runs by policy and seed, as far as they are and whether they have ended."""
    ended = {run for run, (_, over) in runs.items() if over}
    known = {run: (Rounds.of([]), True) if run in failed else found for run, found in runs.items()}
    named = {policy: [runs[policy, seed] for seed in race.seeds] for policy in race.policies}
    names, whole = comparable(race.spec, ended, failed)
    begun = [seed for seed in race.seeds if all(len(runs[policy, seed][0]) for policy in names)]
    alike = {policy: [known[policy, seed] for seed in whole or begun if policy in names] for policy in race.policies}
    lost = Counter(policy for policy, _ in failed)
    drawn = curves_document(
        named, alike, styles(named), race.target, race.spec.budget_s, lost, by, end_j=race.spec.budget_j
    )
    return drawn | said_document({name: [known[name, seed][0] for seed in whole] for name in names}, race.target, drawn)


def equally_far(groups: Mapping[str, Sequence[RunSoFar]]) -> tuple[dict[str, list[Rounds]], float | None]:
    """Runs to be averaged and compared, by name: those that have ended (and None), or all up to the same second."""
    finished = {name: [run for run, ended in runs if ended] for name, runs in groups.items()}
    if all(finished[name] or not runs for name, runs in groups.items()):
        return finished, None
    begun = [(run, ended) for runs in groups.values() for run, ended in runs if len(run)]
    until_s = min((float(run.clock_s[-1]) for run, ended in begun if not ended), default=0.0)
    return {name: [run.until(until_s) for run, _ in runs] for name, runs in groups.items()}, until_s


def curves_document(
    groups: Mapping[str, Sequence[RunSoFar]],
    alike: Mapping[str, Sequence[RunSoFar]],
    looks: Mapping[str, LineStyle],
    target: float,
    end_s: float,
    failed: Mapping[str, int],
    by: Axis = "time",
    *,
    end_j: float | None = None,
) -> dict[str, Any]:
    """Curves of groups of runs, each run with whether it has ended; ``alike`` are those that the table averages.

    ``failed`` says how many runs of each group failed, ``end_j`` is the budget of energy.
    """
    compared, so_far_s = equally_far(alike)
    # While runs are under way, when they will have reached the target is open: their mean has no limit.
    limits = (math.inf, math.inf)
    if so_far_s is None:
        limits = (comparisons.limit_of(compared, "time", end_s), comparisons.limit_of(compared, "energy", end_j))
    curves, table = [], []
    for name, runs in groups.items():
        curve = stats.mean_curve([run for run, _ in runs], end_s, [ended for _, ended in runs])
        summary = stats.summarise(compared[name], target, end_s, limit_s=limits[0], limit_j=limits[1])
        shown = curve if by == "time" else stats.energy_curve([run for run, _ in runs if len(run)])
        drawn = _curve_document(name, looks[name], shown, _seed_curves(runs, end_s, by), by)
        curves.append(drawn | {"seeds_done": sum(end for _, end in runs)})
        table.append(_table_row(name, looks[name], summary, curve) | {"failed": failed.get(name, 0)})
    return {
        "policies": curves,
        "table": table,
        "verdicts": [],
        "verdicts_on": "",
        "target": target,
        "end_s": end_s,
        "limit_s": limits[0],
        "limit_j": limits[1],
        "so_far_s": so_far_s,
        "lead": None,
    }


def said_document(
    runs: Mapping[str, Sequence[Rounds]], target: float, drawn: Mapping[str, Any], among: int = 0
) -> dict[str, Any]:
    """What is said of curves: ``verdicts`` and ``lead``; nothing while there is no seed that can be compared.

    Args:
        runs: by policy, one run for each seed, in the same order of seeds; one without a round where it failed.
        target: the accuracy.
        drawn: the curves' document.
        among: as for `comparisons.compare_pairs`.
    """
    if not any(map(len, runs.values())):
        return {}
    limit_s = comparisons.limit_of(runs, "time", drawn["end_s"])
    title, lines = comparisons.verdicts(runs, target, limit_s, among=among) if len(runs) > 1 else ("", [])
    said = comparisons.headline(runs, target, limit_s, among=among)
    lead = said and {
        "text": said.text,
        "small": said.small,
        "significant": said.sure,
        "policy": None if said.found is None else said.found.policy,
        "other": None if said.found is None else said.found.other,
        "over": [
            {"policy": other, "ratio": one.ratio.value, "low": one.ratio.low, "high": one.ratio.high}
            | {"n": one.seeds, "significant": one.significant}
            for other, one in said.over.items()
        ],
    }
    return {"verdicts": lines, "verdicts_on": title, "lead": lead}


def _some(count: int) -> NDArray[np.int64]:
    """Evenly chosen places of so many; a screen has no more points."""
    if count <= MAX_POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, MAX_POINTS).astype(np.int64))


def _seed_curves(runs: Sequence[RunSoFar], end_s: float, by: Axis) -> list[dict[str, Any]] | None:
    """Each run's own steps, where there are too few for an interval that says something."""
    begun = [(run, ended) for run, ended in runs if len(run)]
    if not 1 < len(begun) < stats.FEWEST_IN_A_BAND:
        return None
    curves = [
        stats.mean_curve([run], end_s, [ended]) if by == "time" else stats.energy_curve([run]) for run, ended in begun
    ]
    return [
        _x(curve.x[at], by) | {"accuracy": curve.accuracy[at].tolist()}
        for curve in curves
        for at in (_some(curve.x.size),)
    ]


def _x(values: NDArray[np.float64], by: Axis) -> dict[str, Any]:
    """What a curve is drawn against, under the name that has its unit; the other is None."""
    return {
        name: values.tolist() if axis == by else None for axis, name in (("time", "clock_s"), ("energy", "spent_j"))
    }


def _curve_document(
    name: str, look: LineStyle, curve: stats.MeanCurve, seeds: list[dict[str, Any]] | None, by: Axis
) -> dict[str, Any]:
    at = _some(curve.x.size)
    mean, half = curve.accuracy[at], curve.half[at]
    band = seeds is None and bool(np.isfinite(half).any())
    return {
        "line": name,
        "colour": look[0],
        "dash": look[1],
        **_x(curve.x[at], by),
        "mean": mean.tolist(),
        "low": np.maximum(mean - half, 0.0).tolist() if band else None,
        "high": np.minimum(mean + half, 1.0).tolist() if band else None,
        "seeds": seeds,
    }


_MEANS = ("devices", "round_s", "rounds", "joules", "epochs", "bits", "sent_bytes")


def _table_row(name: str, look: LineStyle, summary: stats.Summary, curve: stats.MeanCurve) -> dict[str, Any]:
    means = {part: _mean(getattr(summary, part)) for part in _MEANS}
    to, cost = summary.to_target, summary.energy_to_target
    return {
        "policy": name,
        "colour": look[0],
        "dash": look[1],
        "seeds": summary.best.n,
        "of_seeds": to.n,
        "best": _mean(summary.best, 0.0, 1.0),
        "last": _mean(summary.last, 0.0, 1.0),
        **means,
        "curve_best": curve.best() if curve.accuracy.size else None,
        "curve_last": curve.last() if curve.accuracy.size else None,
        "time_to_target": {"median_s": to.median_s, "mean_s": to.mean_s, "reached": to.reached, "n": to.n},
        "energy_to_target": {"median_j": cost.median_j, "mean_j": cost.mean_j, "reached": cost.reached, "n": cost.n},
        "diverged": summary.diverged,
    }


def _mean(mean: Mean, lowest: float = -math.inf, highest: float = math.inf) -> dict[str, Any]:
    low, high = mean.interval(lowest, highest)
    cut = mean.has_interval and (low, high) != mean.interval()
    return {
        "mean": mean.mean,
        "half": mean.half if mean.has_interval else None,
        "low": low if cut else None,
        "high": high if cut else None,
    }
