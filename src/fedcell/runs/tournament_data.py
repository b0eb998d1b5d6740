"""A tournament for machines: CSV and JSON."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcell import __version__
from fedcell.errors import without_nan
from fedcell.runs.stats import Measure
from fedcell.runs.tournament import MEASURES, TournamentResult


def rows_of(result: TournamentResult) -> list[dict[str, Any]]:
    """A row for each scenario and policy; NaN and infinity where there is no number."""
    ranks = {measure: result.mean_ranks(measure) for measure in MEASURES}
    rows = []
    for s, one in enumerate(result.tournament.scenarios):
        for p, policy in enumerate(result.tournament.policies):
            found = result.summaries[one.name, policy]
            row = {
                "scenario": one.name,
                "policy": policy,
                "target": one.target,
                "budget_s": one.spec.budget_s,
                "seeds": len(result.tournament.seeds),
                "failed": sum(entry[:2] == (one.name, policy) for entry in result.failures),
                "median_s_to_target": found.to_target.median_s,
                "reached": found.to_target.reached,
                "mean_s_to_target": found.to_target.mean_s,
                "with_round": found.best.n,
                "best": found.best.mean,
                "best_half": found.best.half if found.best.has_interval else math.nan,
                "last": found.last.mean,
                "last_half": found.last.half if found.last.has_interval else math.nan,
                "devices": found.devices.mean,
                "round_s": found.round_s.mean,
                "rounds": found.rounds.mean,
                **{f"rank_{measure}": float(ranks[measure][s, p]) for measure in MEASURES},
                "deciding_s": result.deciding_s.get((policy, one.spec.devices.count), math.nan),
            }
            rows.append(row)
    return rows


def table_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV; empty where there is no number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([["" if value is None else value for value in without_nan(dict(row)).values()] for row in rows])
    return text.getvalue()


_RUN_COLUMNS: dict[Measure, str] = {"time": "s_to_target_or_budget", "best": "best", "last": "last"}


def runs_of(result: TournamentResult) -> list[dict[str, Any]]:
    """A row for each run: what statistics of one's own need."""
    rows = []
    for one in result.tournament.scenarios:
        values = {measure: result.values(one.name, measure) for measure in MEASURES}
        for i, seed in enumerate(result.tournament.seeds):
            for p, policy in enumerate(result.tournament.policies):
                entry = (one.name, policy, seed)
                numbers = {_RUN_COLUMNS[measure]: float(values[measure][i, p]) for measure in MEASURES}
                named = {"scenario": one.name, "policy": policy, "seed": seed}
                rows.append(named | numbers | {"failed": result.failures.get(entry, "")})
    return rows


def tournament_json(result: TournamentResult, command: str) -> str:
    """The whole tournament for machines."""
    rankings = {
        f"{measure}{'' if seeds else ', scenarios as blocks'}": result.ranking(measure, seeds=seeds)
        for measure in MEASURES
        for seeds in (True, False)
    }
    document = {
        "fedcell": __version__,
        "command": command,
        "seeds": result.tournament.seeds,
        "policies": result.tournament.policies,
        "scenarios": [
            {"name": one.name, "about": one.about, "target": one.target, "spec": one.spec.model_dump(exclude_none=True)}
            for one in result.tournament.scenarios
        ],
        "rankings": {
            name: {
                "blocks": ranks.blocks,
                "mean_ranks": dict(zip(ranks.names, ranks.mean.tolist(), strict=True)),
                "friedman": {"chi_square": ranks.chi_square, "freedom": len(ranks.names) - 1, "p": ranks.p},
                "critical_difference": ranks.critical,
                "groups": ranks.groups(),
            }
            for name, ranks in rankings.items()
        },
        "winners": [
            {"scenario": scenario, "by": measure, "best": winner.best, "tied": winner.tied, "untold": winner.untold}
            for (scenario, measure), winner in result.winners.items()
        ],
        "results": rows_of(result),
        "failures": [
            {"scenario": scenario, "policy": policy, "seed": seed, "reason": reason}
            for (scenario, policy, seed), reason in result.failures.items()
        ],
    }
    return json.dumps(without_nan(document), indent=1, allow_nan=False)
