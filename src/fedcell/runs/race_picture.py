"""A race as a picture: its mean curves, the target, and who gets there how much sooner."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedcell.plots import Curve, Finish, race_figure
from fedcell.runs import stats
from fedcell.runs.comparisons import UNITS, Axis
from fedcell.runs.race import RaceResult

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
        found = {policy: stats.energy_curve(list(filter(len, runs))) for policy, runs in result.rounds.items()}
    else:
        found = {policy: summary.curve for policy, summary in result.summaries().items()}
    return [Curve(policy, curve.x, curve.accuracy, curve.half) for policy, curve in found.items()]


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
    """The target, and when each policy reaches it: one number for each, the restricted mean, wherever it is shown."""
    unit, limit = UNITS[by], result.limit(by)
    reached, places = dict[str, str](), dict[str, float]()
    for policy, summary in result.summaries().items():
        to = summary.to_target if by == "time" else summary.energy_to_target
        mean = to.mean_s if isinstance(to, stats.TimeTo) else to.mean_j
        median = to.median_s if isinstance(to, stats.TimeTo) else to.median_j
        if not summary.best.n:
            reached[policy] = "no round"
        elif not to.reached:
            reached[policy] = "never"
        elif math.isfinite(mean):
            reached[policy] = f"{mean:.0f} {unit}" if by == "time" else f"{mean:.4g} {unit}"
            reached[policy] += f" ({to.reached}/{to.n})" if to.reached < to.n else ""
            if math.isfinite(median):
                places[policy] = mean
        else:
            reached[policy] = "unknown"
    some_never = any(math.isfinite(limit) and "/" in text for text in reached.values())
    words = f"mean {'time' if by == 'time' else 'energy'} to {100 * result.target:g} %"
    words += f"\n(never counts as {limit:.4g} {unit}):" if some_never else ":"
    found = result.headline() if by == "time" else None
    if found is None or found.found is None or not found.sure:
        return Finish(result.target, reached, places, words)
    one = found.found
    return Finish(result.target, reached, places, words, one.policy, one.other, f"{one.ratio.value:.1f} x sooner")
