"""Fig. 2: accuracy against rounds for K = 4, 8, 12 random devices and L = 1, 5, iid; 60 rounds, 5 trials."""

from itertools import pairwise

import numpy as np

from fedcell.paper.output import Claim, Output, Printed, jackknife, judge, overall, points
from fedcell.paper.readings import CURVE, LAST, TRIALS, band, by_round, percents, readings_by_round
from fedcell.paper.settings import Collect, Settings, gather, partition_name
from fedcell.plots import Line, lines_figure
from fedcell.runs.records import Rounds
from fedcell.runs.stats import Mean
from fedcell.tables import Table

PARTITIONS = ("L=1", "L=5", "iid")
PRINTED = {("L=1", 4): "68.2", ("L=1", 8): "77.6", ("L=1", 12): "82.7", ("L=5", 4): "90.4", ("iid", 4): "97.4"}
COLOURS = {"L=1": "#0072b2", "L=5": "#009e73", "iid": "#d55e00"}
DASHES = {4: ":", 8: "--", 12: "-"}
WHY = (
    "The paper does not say how digits are assigned, how pixels are scaled, or which accuracy of a curve it prints; on "
    "non-iid data a curve fluctuates by many points from round to round."
)

Runs = dict[tuple[str, int], list[Rounds]]


def gather_runs(settings: Settings, collect: Collect) -> Runs:
    """The figure's runs, which Table I shares."""
    wanted = {(p, k): settings.without_budget(f"random:k={k}", p) for p in PARTITIONS for k in settings.fig2_ks}
    return gather(collect, wanted, settings.seeds)


def make(settings: Settings, collect: Collect) -> Output:
    """Make the figure."""
    runs = gather_runs(settings, collect)
    bands = {label: band(by_round(trials)) for label, trials in runs.items()}
    lines = [
        Line(
            f"{partition_name(p)}, K = {k}",
            np.arange(1.0, len(mean) + 1),
            100 * mean,
            100 * half,
            COLOURS[p],
            DASHES.get(k, "-"),
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
        tables=[_table(readings, settings)],
        printed=[
            Printed(
                "Fig. 2",
                f"accuracy after {settings.rounds} rounds, {partition_name(p)}, K = {k}",
                text,
                percents(readings[p, k]),
                "%",
                1,
                WHY,
            )
            for (p, k), text in PRINTED.items()
        ],
        claims=[_claim(runs, min(settings.fig2_ks), max(settings.fig2_ks))],
    )


def _table(readings: dict[tuple[str, int], dict[str, Mean]], settings: Settings) -> Table:
    rows = [
        [partition_name(p), str(k), *(value.text(100, 1) for value in found.values())]
        for (p, k), found in readings.items()
    ]
    return Table(f"Accuracy within {settings.rounds} rounds, %", ("data", "K", CURVE, TRIALS, LAST), rows)


def _claim(runs: Runs, few: int, many: int) -> Claim:
    """More devices help more on less iid data."""
    accuracy = {label: by_round(trials) for label, trials in runs.items()}
    trials = len(next(iter(runs.values())))

    def gain(partition: str, chosen: list[int]) -> float:
        best = {k: float(accuracy[partition, k][chosen].mean(axis=0).max()) for k in (few, many)}
        return best[many] - best[few]

    gains = {p: jackknife(lambda chosen, p=p: gain(p, chosen), trials) for p in PARTITIONS}  # type: ignore[misc]
    steps = [
        jackknife(lambda chosen, a=a, b=b: gain(a, chosen) - gain(b, chosen), trials)  # type: ignore[misc]
        for a, b in pairwise(PARTITIONS)
    ]
    said = ", ".join(f"{partition_name(p)} {points(value)}" for p, value in gains.items())
    more = ", ".join(
        f"{partition_name(a)} minus {partition_name(b)} {points(step)}"
        for a, b, step in zip(PARTITIONS, PARTITIONS[1:], steps, strict=False)
    )
    return Claim(
        "More devices help more on less iid data (Fig. 2)",
        overall([judge(step) for step in steps]),
        f"From K = {few} to K = {many} the averaged curve's best gains: {said}. Differences of these gains: {more}.",
    )
