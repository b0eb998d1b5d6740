"""Accuracy against time of races that may still be running, and their tables; the statistics are experiment.stats'."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcell.dashboard.races.race import Light, Race
from fedcell.dashboard.views.colours import styles
from fedcell.intervals import student_t_quantile
from fedcell.runs import stats
from fedcell.runs.race import RaceResult, verdicts
from fedcell.runs.stats import Mean, MeanCurve, Run, Summary, TimeTo
from fedcell.schedule.policy import Plan
from fedcell.sim.loop import RoundRecord

MOST_POINTS = 2000
_INDICES, _SHARES = np.arange(1_000_000), np.ones(1)


def as_records(rows: Sequence[Light]) -> list[RoundRecord]:
    """Rounds for the statistics, which look at the number of scheduled devices only, not at which they are."""
    return [
        RoundRecord(number, clock_s, round_s, Plan(_INDICES[:n], _SHARES, round_s), _INDICES[:d], accuracy, loss)
        for number, clock_s, round_s, n, d, accuracy, loss in rows
    ]


def race_curves(race: Race, runs: Mapping[tuple[str, int], tuple[Sequence[Light], bool]]) -> dict[str, Any]:
    """The answer of /api/races/{id}/curves; ``runs`` has each run's rounds so far, and whether it has ended."""
    records = {at: as_records(rows) for at, (rows, _) in runs.items()}
    named: dict[str, list[tuple[Run, bool]]] = {
        policy: [(records[policy, seed], runs[policy, seed][1]) for seed in race.seeds] for policy in race.policies
    }
    whole = [seed for seed in race.seeds if all(runs[policy, seed][1] for policy in race.policies)]
    result = RaceResult(
        race.spec,
        race.policies,
        whole,
        {policy: [records[policy, seed] for seed in whole] for policy in race.policies},
        len(whole) == len(race.seeds),
        race.target,
    )
    said = verdicts(result) if whole and len(race.policies) > 1 else []
    return curves_document(named, race.target, race.spec.budget_s, said)


def curves_document(
    groups: Mapping[str, Sequence[tuple[Run, bool]]], target: float, end_s: float, said: list[str]
) -> dict[str, Any]:
    """Curves and table of groups of runs, each run with whether it has ended."""
    looks = styles(groups)
    curves, table = [], []
    for name, runs in groups.items():
        curve = growing_curve(runs, end_s)
        begun = [run for run, ended in runs if run or ended]
        summary = stats.summarise(begun, target, end_s)
        curves.append(_curve_document(name, looks[name], curve, sum(ended for _, ended in runs)))
        table.append(_table_row(name, looks[name], summary, curve))
    return {"policies": curves, "table": table, "verdicts": said, "target": target, "end_s": end_s}


def growing_curve(runs: Sequence[tuple[Run, bool]], end_s: float | None = None) -> MeanCurve:
    """As stats.mean_curve, of runs that may not have ended: a run counts at a time only if it has got there."""
    told = [(run, ended) for run, ended in runs if run]
    if all(ended for _, ended in told):
        return stats.mean_curve([run for run, _ in told], end_s)
    steps = np.unique(np.concatenate([[record.clock_s for record in run] for run, _ in told]))
    clock_s = steps[steps >= max(run[0].clock_s for run, _ in told)]
    values = np.full((len(told), clock_s.size), math.nan)
    for row, (run, ended) in enumerate(told):
        times = np.array([record.clock_s for record in run])
        here = clock_s <= (math.inf if ended else times[-1])
        at = np.searchsorted(times, clock_s[here], side="right") - 1
        values[row, here] = np.array([record.accuracy for record in run])[at]
    count = np.isfinite(values).sum(axis=0)
    clock_s, values, count = clock_s[count > 0], values[:, count > 0], count[count > 0]
    half = np.full(clock_s.size, math.nan)
    for n in np.unique(count[count > 1]):
        at = count == n
        half[at] = student_t_quantile(0.975, int(n) - 1) * np.nanstd(values[:, at], axis=0, ddof=1) / math.sqrt(n)
    return MeanCurve(clock_s, np.nanmean(values, axis=0), half)


def _curve_document(name: str, look: tuple[str, str], curve: MeanCurve, done: int) -> dict[str, Any]:
    at = np.arange(curve.clock_s.size)
    if at.size > MOST_POINTS:  # a screen has no more points
        at = np.unique(np.linspace(0, at.size - 1, MOST_POINTS).astype(np.int64))
    mean, half = curve.accuracy[at], curve.half[at]
    band = bool(np.isfinite(half).any())
    return {
        "line": name,
        "colour": look[0],
        "dash": look[1],
        "clock_s": curve.clock_s[at].tolist(),
        "mean": mean.tolist(),
        "low": np.maximum(mean - half, 0.0).tolist() if band else None,
        "high": np.minimum(mean + half, 1.0).tolist() if band else None,
        "seeds_done": done,
    }


def _table_row(name: str, look: tuple[str, str], summary: Summary, curve: MeanCurve) -> dict[str, Any]:
    means = {part: _mean(getattr(summary, part)) for part in ("best", "last", "devices", "round_s", "rounds")}
    return {
        "policy": name,
        "colour": look[0],
        "dash": look[1],
        "seeds": summary.best.n,
        **means,
        "curve_best": curve.best() if curve.accuracy.size else None,
        "curve_last": curve.last() if curve.accuracy.size else None,
        "time_to_target": _time(summary.to_target),
    }


def _mean(mean: Mean) -> dict[str, Any]:
    return {"mean": mean.mean, "half": mean.half}


def _time(time: TimeTo) -> dict[str, Any]:
    return {"median_s": time.median_s, "reached": time.reached, "n": time.n}
