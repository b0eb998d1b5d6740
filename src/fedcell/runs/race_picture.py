"""A race as a picture: its mean curves, the target, and who gets there how much sooner."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcell.plots import Curve, Finish, race_figure
from fedcell.runs import stats
from fedcell.runs.race import Axis, RaceResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_race(result: RaceResult, by: Axis = "time", looks: Mapping[str, tuple[str, str]] | None = None) -> "Figure":
    """The picture, as RaceResult.figure gives it.

    Args:
        result: the race.
        by: what accuracy is drawn against, ``"time"`` or ``"energy"``.
        looks: colour and dash by policy; those of plots.STYLES by default.
    """
    end = result.spec.budget_s if by == "time" else result.spec.budget_j
    return race_figure(
        curves(result, by), title(result), math.inf if end is None else end, looks, by, finish(result, by)
    )


def curves(result: RaceResult, by: Axis = "time") -> list[Curve]:
    """The mean curves against time or energy, as plots.race_figure draws them; with few seeds they have no bands."""
    if by == "energy":
        found = {policy: stats.energy_curve(runs) for policy, runs in result.rounds.items()}
    else:
        found = {policy: summary.curve for policy, summary in result.summaries().items()}
    known = 1.0 if len(result.seeds) >= stats.FEWEST_IN_A_BAND else math.nan
    return [Curve(policy, curve.x, curve.accuracy, known * curve.half) for policy, curve in found.items()]


def title(result: RaceResult) -> str:
    """What the race was of, for its picture."""
    spec, seeds = result.spec, len(result.seeds)
    odd = [name for name in (spec.cell.channel, spec.cell.rate) if name not in ("paper", "shannon")]
    return (
        f"{spec.task.data}, {spec.task.partition}, {spec.devices.count} devices, radius {spec.cell.radius_m:g} m, "
        f"{''.join(f'{name}, ' for name in odd)}"
        f"{seeds} seed{'s' * (seeds != 1)}" + (", 95 % bands" if seeds >= stats.FEWEST_IN_A_BAND else "")
    )


def finish(result: RaceResult, by: Axis = "time") -> Finish:
    """The target, and when each policy reaches it, as the tables of a race say."""
    reached = {
        policy: (summary.to_target if by == "time" else summary.energy_to_target).text()
        for policy, summary in result.summaries().items()
    }
    found = ahead(result) if by == "time" else None
    if found is None or not found[2].significant:
        return Finish(result.target, reached)
    first, other, sooner = found
    return Finish(result.target, reached, first, other, f"{sooner.ratio:.1f} x sooner")


def ahead(result: RaceResult) -> tuple[str, str, stats.Sooner] | None:
    """Who reaches the target first, the policy it is compared with, and how many times sooner it is.

    The other is greedy, the paper's policy, or else the next. None if nobody gets there, or if the first is no sooner.
    """
    found = stats.lead(result.rounds, result.target)
    if found is None or not found[1]:
        return None
    first, others = found
    other = next((name for name in others if name.split(":")[0] == "greedy"), None)
    other = other or min(others, key=lambda name: others[name].ratio)
    return (first, other, others[other]) if others[other].ratio >= 1.05 else None


def headline(result: RaceResult) -> str:
    """Who reaches the target how many times sooner, in a sentence; empty if that cannot be said."""
    found = ahead(result)
    if found is None:
        return ""
    first, other, sooner = found
    seeds = f"{sooner.n} seed{'s' * (sooner.n != 1)} in which both do"
    interval = f", 95 % interval {sooner.low:.2f} to {sooner.high:.2f}" if math.isfinite(sooner.low) else ""
    sure = "" if sooner.significant else ": not significant"
    said = f"{first} reaches {100 * result.target:g} % {sooner.ratio:.2f} x sooner than {other}"
    return f"{said} ({seeds}, paired{interval}){sure}"
