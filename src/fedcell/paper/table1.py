"""Table I: beta and theta of N(n) = beta (theta + 1/n) for L = 1, 2, 5, 8 and iid data.

The paper says neither its target accuracy nor its numbers of devices. Here n = 2, 4, 8, 12, 16, 20 random devices train
for 60 rounds, and a partition's target is the highest multiple of 5 % that every n reaches on the averaged curve. How
theta depends on that choice is shown beside it.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedcell.errors import InputError
from fedcell.paper.output import Claim, Output, Printed, Verdict, overall
from fedcell.paper.settings import PARTITIONS, Collect, Settings, gather, partition_name
from fedcell.plots import Line, lines_figure
from fedcell.runs import fit, stats
from fedcell.runs.stats import Mean
from fedcell.schedule.convergence import TABLE_I
from fedcell.tables import Table
from fedcell.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP = 0.05
COMPARISONS = len(PARTITIONS)
"""Of the claim: neighbouring partitions, and the first with the last."""
OUTSIDE = stats.LEVEL / COMPARISONS
"""What intervals leave out that all together cover the truth with 95 % (Bonferroni), so that they may be compared."""
COLOURS = {"L=1": "#0072b2", "L=2": "#009e73", "L=5": "#cc79a7", "L=8": "#e69f00", "iid": "#d55e00"}
MARKERS = {"L=1": "o", "L=2": "s", "L=5": "^", "L=8": "D", "iid": "v"}
WHY = (
    "The paper gives neither the target accuracy nor the numbers of devices of its fit, and theta depends strongly on "
    "the target (see the table below)."
)


def make(settings: Settings, collect: Collect) -> Output:
    """Make the table."""
    ks = settings.fit_ks
    runs = gather(
        collect,
        {(p, k): settings.without_budget(f"random:k={k}", p) for p in PARTITIONS for k in ks},
        settings.seeds,
    )
    accuracy = {p: fit.accuracies({k: runs[p, k] for k in ks}) for p in PARTITIONS}
    targets = {p: highest_target(accuracy[p]) for p in PARTITIONS}
    fits = {p: {r: try_fit(accuracy[p], ks, targets[p], r) for r in ("curve", "trials")} for p in PARTITIONS}
    rows = [row for p in PARTITIONS for row in _csv_rows(p, accuracy[p], ks, targets[p])]
    return Output(
        name="table1",
        title="Table I: the rounds model N = β(θ + 1/n)",
        setting=f"n = {', '.join(map(str, ks))} random devices, {settings.rounds} rounds, {settings.seeds} trials. The "
        "target of a partition is the highest multiple of 5 % that every n reaches on the averaged curve. Intervals "
        "are bootstrapped over trials.",
        figure=_figure(accuracy, ks, targets, {p: found["curve"] for p, found in fits.items()}),
        csv=(("partition", "target", "devices", "rounds_on_curve", "rounds_median", "censored_trials"), rows),
        tables=[_fits_table(fits, targets), _targets_table(accuracy, ks)],
        printed=[line for p in PARTITIONS for line in _printed(p, targets[p], fits[p], settings.seeds)],
        claims=[_claim({p: try_fit(accuracy[p], ks, targets[p], "curve", OUTSIDE) for p in PARTITIONS})],
        notes=_notes(accuracy, ks, targets),
    )


def highest_target(accuracy: Floats) -> float:
    """The highest multiple of 5 % that the averaged curve of every n reaches; 5 % at least."""
    reached = float(accuracy.mean(axis=1).max(axis=1).min())
    return max(1, math.floor(reached / STEP + 1e-9)) * STEP


def try_fit(
    accuracy: Floats, ks: Sequence[int], target: float, reading: fit.Reading, outside: float = stats.LEVEL
) -> fit.Fit | None:
    """The fit, or None where the data do not give one."""
    try:
        return fit.fit(accuracy, ks, target, reading, outside)
    except InputError:
        return None


def _interval_text(interval: tuple[float, float], digits: int) -> str:
    low, high = interval
    return f"[{low:.{digits}f}, {high:.{digits}f}]" if math.isfinite(low) else "[unbounded]"


def _fit_texts(found: fit.Fit | None) -> list[str]:
    if found is None:
        return ["no fit", "", "no fit", ""]
    beta, theta = _interval_text(found.beta_interval, 1), _interval_text(found.theta_interval, 4)
    return [f"{found.beta:.3f}", beta, f"{found.theta:.4f}", theta]


def _fits_table(fits: dict[str, dict[str, fit.Fit | None]], targets: dict[str, float]) -> Table:
    rows = []
    for p, found in fits.items():
        for reading, one in found.items():
            name = "averaged curve" if reading == "curve" else "median trial"
            rows.append([partition_name(p), f"{100 * targets[p]:.0f} %", name, *_fit_texts(one)])
    headings = ("data", "target", "reading", "β", "95 % interval", "θ", "95 % interval")
    return Table("Fits of both readings", headings, rows)


def _targets_table(accuracy: dict[str, Floats], ks: Sequence[int]) -> Table:
    """Theta for several targets, on the averaged curve."""
    rows = []
    for p, values in accuracy.items():
        top = highest_target(values)
        step = STEP if top < 0.9 else STEP / 5  # near the top a point takes as many rounds as five do below
        for target in [top + move * step for move in (-3, -2, -1, 0, 1, 2)]:
            if 0.1 < target < 1.0:
                found = try_fit(values, ks, target, "curve")
                rounds = fit.rounds_needed_in(values, ks, target).on_curve
                left = ", ".join(str(k) for k, has in zip(ks, np.isfinite(rounds), strict=True) if not has)
                rows.append([partition_name(p), f"{100 * target:.0f} %", *_fit_texts(found), left or "-"])
    headings = ("data", "target", "β", "95 % interval", "θ", "95 % interval", "n that never reach it")
    return Table("How the fit depends on the target accuracy (averaged curve)", headings, rows)


def _printed(p: str, target: float, fits: dict[str, fit.Fit | None], trials: int) -> list[Printed]:
    names = {"curve": f"averaged curve, target {100 * target:.0f} %", "trials": "median trial"}
    curve = fits["curve"]
    beta_interval, theta_interval = (curve.beta_interval, curve.theta_interval) if curve else (None, None)
    lines = []
    for what, printed, interval, digits in (
        ("β", f"{TABLE_I[p].beta:g}", beta_interval, 2),
        ("θ", f"{TABLE_I[p].theta:g}", theta_interval, 4),
    ):
        values = {r: math.nan if one is None else (one.beta if what == "β" else one.theta) for r, one in fits.items()}
        readings = tuple((names[r], Mean(value, math.nan, trials)) for r, value in values.items())
        lines.append(Printed("Table I", f"{what}, {partition_name(p)}", printed, readings, "", digits, WHY, interval))
    return lines


def _csv_rows(p: str, accuracy: Floats, ks: Sequence[int], target: float) -> list[list[object]]:
    needed = fit.rounds_needed_in(accuracy, ks, target)
    censored = needed.censored()
    return [
        [p, round(target, 2), k, _finite(curve), _finite(median), censored.get(k, 0)]
        for k, curve, median in zip(ks, needed.on_curve, needed.medians(), strict=True)
    ]


def _finite(value: float) -> object:
    return float(value) if math.isfinite(value) else ""


def _figure(
    accuracy: dict[str, Floats], ks: Sequence[int], targets: dict[str, float], fits: dict[str, fit.Fit | None]
) -> "Figure":
    n = np.array(ks, dtype=np.float64)
    fine = np.linspace(n.min(), n.max(), 200)
    lines = []
    for p, values in accuracy.items():
        needed = fit.rounds_needed_in(values, ks, targets[p]).on_curve
        reached, name = np.isfinite(needed), f"{partition_name(p)}, {100 * targets[p]:.0f} %"
        lines.append(Line(name, n[reached], needed[reached], None, COLOURS[p], "", MARKERS[p]))
        found = fits[p]
        if found is not None:
            lines.append(Line("", fine, found.beta * (found.theta + 1 / fine), None, COLOURS[p], "-"))
    return lines_figure(
        lines, "number of scheduled devices n", "rounds to the target", y_limits=(0, None), legend="upper right"
    )


def _claim(fits: dict[str, fit.Fit | None]) -> Claim:
    """Table I's order: the less iid the data, the larger beta and the smaller theta (intervals: see OUTSIDE)."""
    found = {p: one for p, one in fits.items() if one is not None}
    said = ", ".join(f"{partition_name(p)}: θ = {one.theta:.4f}" for p, one in found.items())
    first, last = fits["L=1"], fits["iid"]
    apart = first is not None and last is not None and first.theta_interval[1] < last.theta_interval[0]
    verdicts = [_grows(a, b) for a, b in pairwise(found.values())]
    return Claim(
        "θ grows from L = 1 to iid data: more devices save fewer of the rounds (Table I)",
        overall(verdicts) if len(found) == len(fits) else "not significant",
        f"{said}. Of the {len(fits) - 1} pairs of neighbouring intervals {verdicts.count('confirmed')} are disjoint in "
        f"this order and {verdicts.count('not confirmed')} in the opposite one; L = 1 and iid "
        f"{'do not overlap' if apart else 'overlap'}. These intervals are of {100 - 100 * OUTSIDE:g} %, corrected for "
        f"{COMPARISONS} comparisons by Bonferroni's method.",
    )


def _grows(less: fit.Fit, more: fit.Fit) -> Verdict:
    """Whether theta grows from the first to the second, by their intervals."""
    if less.theta_interval[1] < more.theta_interval[0]:
        return "confirmed"
    return "not confirmed" if more.theta_interval[1] < less.theta_interval[0] else "not significant"


def _notes(accuracy: dict[str, Floats], ks: Sequence[int], targets: dict[str, float]) -> list[str]:
    said = []
    for p, values in accuracy.items():
        censored = fit.rounds_needed_in(values, ks, targets[p]).censored()
        said += [f"{partition_name(p)}, n = {k}: {count} of {values.shape[1]}" for k, count in censored.items()]
    if not said:
        return ["Every trial reached its target within the limit, so none is censored."]
    return [
        "Trials that never reached their target (censored; the median counts them as later than all others): "
        + "; ".join(said)
        + "."
    ]
