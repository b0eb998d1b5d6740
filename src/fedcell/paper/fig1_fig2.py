"""How many devices a round: Fig. 1 (round time and best accuracy) and Fig. 2 (accuracy against rounds), random devices.

Fig. 1(a) is the mean round time, R = 600 and 1,000 m, between Proposition 1's bounds. 1,000 rounds are drawn for each
point, and the band is shared by Theorem 1 (``allocate``). The curves are the bounds as the paper prints them and the
upper bound without the factor |S|, which its proof does not need. Fig. 1(b) is the best accuracy in 245 s, L = 8 and
i.i.d., R = 1,000 m, 5 trials.

Fig. 2 is accuracy against rounds for K = 4, 8, 12 random devices and L = 1, 5, iid; 60 rounds, 5 trials.
"""

import math
from itertools import pairwise

import numpy as np

from fedcell.paper.output import Claim, Output, Printed, Verdict, jackknife, judge, overall, points
from fedcell.paper.readings import (
    CURVE,
    LAST,
    TRIALS,
    band,
    by_round,
    columns,
    differences,
    percents,
    readings_by_round,
    readings_by_time,
)
from fedcell.paper.settings import DEVICES, Collect, Settings, gather, partition_name
from fedcell.plots import Line, lines_figure
from fedcell.runs import stats
from fedcell.runs.records import Rounds
from fedcell.runs.stats import Mean
from fedcell.schedule.bandwidth import allocate
from fedcell.schedule.convergence import RoundTimeBounds, round_time_bounds
from fedcell.tables import Table
from fedcell.types import Floats
from fedcell.world import Cell, World, mean_upload_s

RADII_M = (600.0, 1000.0)
COLOURS = {600.0: "#0072b2", 1000.0: "#d55e00"}


def draw_rounds(radius_m: float, trials: int) -> tuple[Floats, Floats]:
    """(trials, 20) whole-band upload and compute seconds; the devices are alike, so any n of them are random ones."""
    world = World(Cell(radius_m=radius_m))
    drawn = [world.conditions(0, trial) for trial in range(trials)]
    return np.array([each.upload_s for each in drawn]), np.array([each.compute_s for each in drawn])


def round_times(radius_m: float, trials: int) -> list[stats.Mean]:
    """The mean round time of 1, 2, ..., 20 random devices, with its interval."""
    upload_s, compute_s = draw_rounds(radius_m, trials)
    allocations = [allocate(upload_s[:, :n], compute_s[:, :n]) for n in range(1, DEVICES + 1)]
    return [stats.mean_of(np.asarray(each.round_s).tolist()) for each in allocations]


def bounds_verdict(found: list[stats.Mean], bounds: RoundTimeBounds, upper_s: Floats) -> Verdict:
    """Whether the means of two devices and more lie within the bounds: not if one lies outside with its interval.

    For one device the bounds coincide with the mean itself, so there is nothing to examine.
    """
    triples = list(zip(found, bounds.lower_s, upper_s, strict=True))[1:]
    outside = [one.mean + one.half < low or one.mean - one.half > high for one, low, high in triples]
    inside = [low <= one.mean <= high for one, low, high in triples]
    return "not confirmed" if any(outside) else "confirmed" if all(inside) else "not significant"


def make_a(settings: Settings, collect: Collect) -> Output:  # noqa: ARG001  (nothing is trained)
    """Fig. 1(a): latency per round against the number of devices."""
    n = np.arange(1, DEVICES + 1)
    lines: list[Line] = []
    rows: list[list[object]] = []
    claims: list[Claim] = []
    for radius_m in RADII_M:
        found = round_times(radius_m, settings.latency_trials)
        bounds = round_time_bounds(n, mean_upload_s=mean_upload_s(Cell(radius_m=radius_m)))
        lines += _bounds_lines(radius_m, n.astype(np.float64), found, bounds)
        columns = (n, found, bounds.lower_s, bounds.upper_s, bounds.printed_upper_s)
        rows += [
            [radius_m, int(k), one.mean, one.half, low, tight, wide]
            for k, one, low, tight, wide in zip(*columns, strict=True)
        ]
        claims.append(_bounds_claim(radius_m, found, bounds))
    figure = lines_figure(
        lines,
        "number of scheduled devices",
        "averaged latency per round, s",
        x_limits=(0.5, DEVICES + 0.5),
        y_limits=(0, None),
        legend="upper left",
    )
    return Output(
        name="fig1a",
        title="Fig. 1(a): latency per round against the number of scheduled devices",
        setting=f"20 devices, R = 600 and 1,000 m, {settings.latency_trials:,} rounds drawn; bars are 95 % intervals.",
        figure=figure,
        csv=(
            ("radius_m", "devices", "mean_round_s", "half_95_s", "lower_s", "tight_upper_s", "printed_upper_s"),
            rows,
        ),
        claims=claims,
        notes=[
            "Proposition 1's upper bound has a factor |Π| that its proof does not need: the mean of the largest of "
            "n shifted exponentials is ad + (d/μ)Hₙ. Both are drawn; the one without the factor is the tight one."
        ],
    )


def _bounds_lines(radius_m: float, n: Floats, found: list[stats.Mean], bounds: RoundTimeBounds) -> list[Line]:
    colour, name = COLOURS[radius_m], f"R = {radius_m:,.0f} m"
    means, halves = np.array([one.mean for one in found]), np.array([one.half for one in found])
    return [
        Line(f"{name}: mean of Algorithm 1", n, means, halves, colour, "", "o" if radius_m == RADII_M[0] else "s"),
        Line(f"{name}: lower bound", n, bounds.lower_s, None, colour, "-"),
        Line(f"{name}: upper bound, tight", n, bounds.upper_s, None, colour, "--"),
        Line(f"{name}: upper bound, as printed", n, bounds.printed_upper_s, None, colour, ":"),
    ]


def _bounds_claim(radius_m: float, found: list[stats.Mean], bounds: RoundTimeBounds) -> Claim:
    means = np.array([one.mean for one in found])
    below = float((means - bounds.lower_s)[1:].min())
    above = float((bounds.upper_s - means)[1:].min())
    printed = bounds_verdict(found, bounds, bounds.printed_upper_s)
    half = max(one.half for one in found)
    return Claim(
        f"The latency bounds of Proposition 1 hold at R = {radius_m:,.0f} m",
        printed,
        f"For 2 to {DEVICES} devices the mean lies at least {below:.3f} s above the lower bound and {above:.3f} s "
        f"below the tight upper one (95 % intervals of at most ± {0.0 if math.isnan(half) else half:.3f} s; for one "
        f"device the three coincide); the same test of the tight bound: "
        f"{bounds_verdict(found, bounds, bounds.upper_s)}.",
    )


RADIUS_B_M = 1000.0
STYLES = {"L=8": ("#0072b2", "-", "o"), "iid": ("#d55e00", "--", "s")}


def make_b(settings: Settings, collect: Collect) -> Output:
    """Fig. 1(b): accuracy against the number of devices."""
    budget_s, ks = settings.devices_budget_s, (1, *settings.search_ks)
    runs = gather(
        collect,
        {(p, k): settings.in_cell(f"random:k={k}", p, RADIUS_B_M, budget_s) for p in STYLES for k in ks},
        settings.seeds,
    )
    found = {label: readings_by_time(trials, budget_s) for label, trials in runs.items()}
    lines = [
        Line(
            partition_name(p),
            np.array(ks, dtype=np.float64),
            *columns([found[p, k][CURVE] for k in ks], 100),
            *STYLES[p],
        )
        for p in STYLES
    ]
    figure = lines_figure(
        lines, "number of scheduled devices", f"best accuracy in {budget_s:g} s, %", legend="lower center"
    )
    headings = ("partition", "devices", "reading", "accuracy_percent", "half_95_percent")
    rows = [
        [p, k, reading, 100 * value.mean, 100 * value.half]
        for (p, k), readings in found.items()
        for reading, value in readings.items()
    ]
    return Output(
        name="fig1b",
        title=f"Fig. 1(b): best accuracy in {budget_s:g} s against the number of scheduled devices",
        setting=f"Random devices, R = 1,000 m, L = 8 and iid, {settings.seeds} trials; the averaged curve's best is "
        "shown, bars are 95 % intervals.",
        figure=figure,
        csv=(headings, rows),
        claims=[_trade_off({k: runs[p, k] for k in ks}, p, budget_s) for p in STYLES],
    )


def _trade_off(runs: dict[int, list[Rounds]], partition: str, budget_s: float) -> Claim:
    """A trade-off: neither the fewest nor the most devices are best."""
    best = max(runs, key=lambda k: readings_by_time(runs[k], budget_s)[CURVE].mean)
    verdicts: list[Verdict] = []
    said = []
    for end in (min(runs), max(runs)):
        lead = differences(runs[best], runs[end], budget_s)[CURVE]
        verdicts.append("not confirmed" if end == best else judge(lead))
        said.append("it is the best of all" if end == best else f"minus K = {end} {points(lead)}")
    return Claim(
        f"There is a trade-off on {partition_name(partition)} data: "
        "an intermediate number of devices is best (Fig. 1(b))",
        overall(verdicts),
        f"K = {best}: {', '.join(said)}. The best K is chosen on the same trials, which favours it.",
    )


FIG2_PARTITIONS = ("L=1", "L=5", "iid")
FIG2_PRINTED = {("L=1", 4): "68.2", ("L=1", 8): "77.6", ("L=1", 12): "82.7", ("L=5", 4): "90.4", ("iid", 4): "97.4"}
FIG2_COLOURS = {"L=1": "#0072b2", "L=5": "#009e73", "iid": "#d55e00"}
FIG2_DASHES = {4: ":", 8: "--", 12: "-"}
FIG2_WHY = (
    "The paper does not say how digits are assigned, how pixels are scaled, or which accuracy of a curve it prints; on "
    "non-iid data a curve fluctuates by many points from round to round."
)

Fig2Runs = dict[tuple[str, int], list[Rounds]]


def gather_fig2(settings: Settings, collect: Collect) -> Fig2Runs:
    """The figure's runs, which Table I shares."""
    wanted = {(p, k): settings.without_budget(f"random:k={k}", p) for p in FIG2_PARTITIONS for k in settings.fig2_ks}
    return gather(collect, wanted, settings.seeds)


def make_2(settings: Settings, collect: Collect) -> Output:
    """Make the figure."""
    runs = gather_fig2(settings, collect)
    bands = {label: band(by_round(trials)) for label, trials in runs.items()}
    lines = [
        Line(
            f"{partition_name(p)}, K = {k}",
            np.arange(1.0, len(mean) + 1),
            100 * mean,
            100 * half,
            FIG2_COLOURS[p],
            FIG2_DASHES.get(k, "-"),
        )
        for (p, k), (mean, half) in bands.items()
    ]
    figure = lines_figure(
        lines, "rounds", "test accuracy, %", x_limits=(0, settings.rounds), y_limits=(0, 100), columns=3
    )
    rows = [
        [p, k, number + 1, 100 * mean[number], 100 * half[number]]
        for (p, k), (mean, half) in bands.items()
        for number in range(len(mean))
    ]
    readings = {label: readings_by_round(trials) for label, trials in runs.items()}
    return Output(
        name="fig2",
        title="Fig. 2: test accuracy against rounds",
        setting=f"K = {', '.join(map(str, settings.fig2_ks))} random devices of 20, {settings.rounds} rounds, "
        f"{settings.seeds} trials; bands are 95 % intervals of the mean.",
        figure=figure,
        csv=(("partition", "devices", "round", "accuracy_percent", "half_95_percent"), rows),
        tables=[_fig2_table(readings, settings)],
        printed=[
            Printed(
                "Fig. 2",
                f"accuracy after {settings.rounds} rounds, {partition_name(p)}, K = {k}",
                text,
                percents(readings[p, k]),
                "%",
                1,
                FIG2_WHY,
            )
            for (p, k), text in FIG2_PRINTED.items()
        ],
        claims=[_fig2_claim(runs, min(settings.fig2_ks), max(settings.fig2_ks))],
    )


def _fig2_table(readings: dict[tuple[str, int], dict[str, Mean]], settings: Settings) -> Table:
    rows = [
        [partition_name(p), str(k), *(value.text(100, 1) for value in found.values())]
        for (p, k), found in readings.items()
    ]
    return Table(f"Accuracy within {settings.rounds} rounds, %", ("data", "K", CURVE, TRIALS, LAST), rows)


def _fig2_claim(runs: Fig2Runs, few: int, many: int) -> Claim:
    """More devices help more on less iid data."""
    accuracy = {label: by_round(trials) for label, trials in runs.items()}
    trials = len(next(iter(runs.values())))

    def gain(partition: str, chosen: list[int]) -> float:
        best = {k: float(accuracy[partition, k][chosen].mean(axis=0).max()) for k in (few, many)}
        return best[many] - best[few]

    gains = {p: jackknife(lambda chosen, p=p: gain(p, chosen), trials) for p in FIG2_PARTITIONS}  # type: ignore[misc]
    steps = [
        jackknife(lambda chosen, a=a, b=b: gain(a, chosen) - gain(b, chosen), trials)  # type: ignore[misc]
        for a, b in pairwise(FIG2_PARTITIONS)
    ]
    said = ", ".join(f"{partition_name(p)} {points(value)}" for p, value in gains.items())
    more = ", ".join(
        f"{partition_name(a)} minus {partition_name(b)} {points(step)}"
        for a, b, step in zip(FIG2_PARTITIONS, FIG2_PARTITIONS[1:], steps, strict=False)
    )
    return Claim(
        "More devices help more on less iid data (Fig. 2)",
        overall([judge(step) for step in steps]),
        f"From K = {few} to K = {many} the averaged curve's best gains: {said}. Differences of these gains: {more}.",
    )
