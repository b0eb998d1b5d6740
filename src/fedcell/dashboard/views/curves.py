"""Accuracy against time of races that may still be running, and their tables; the statistics are runs.stats'."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcell.dashboard.races.race import LiveRace
from fedcell.dashboard.views.colours import styles
from fedcell.runs import stats
from fedcell.runs.rows import Rounds
from fedcell.runs.stats import Mean, MeanCurve, Summary, TimeTo

MOST_POINTS = 2000


def race_curves(race: LiveRace, runs: Mapping[tuple[str, int], tuple[Rounds, bool]]) -> dict[str, Any]:
    """The answer of /api/races/{id}/curves; ``runs`` has each run's rounds so far, and whether it has ended."""
    named = {policy: [runs[policy, seed] for seed in race.seeds] for policy in race.policies}
    whole = [seed for seed in race.seeds if all(runs[policy, seed][1] for policy in race.policies)]
    ended = {policy: [runs[policy, seed][0] for seed in whole] for policy in race.policies}
    said = stats.verdicts(ended) if whole and len(race.policies) > 1 else []
    return curves_document(named, race.target, race.spec.budget_s, said)


def curves_document(
    groups: Mapping[str, Sequence[tuple[Rounds, bool]]], target: float, end_s: float, said: list[str]
) -> dict[str, Any]:
    """Curves and table of groups of runs, each run with whether it has ended."""
    looks = styles(groups)
    curves, table = [], []
    for name, runs in groups.items():
        curve = stats.mean_curve([run for run, _ in runs], end_s, [ended for _, ended in runs])
        begun = [run for run, ended in runs if len(run) or ended]
        summary = stats.summarise(begun, target, end_s)
        curves.append(_curve_document(name, looks[name], curve, sum(ended for _, ended in runs)))
        table.append(_table_row(name, looks[name], summary, curve))
    return {"policies": curves, "table": table, "verdicts": said, "target": target, "end_s": end_s}


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
