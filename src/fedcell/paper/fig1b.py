"""Fig. 1(b): best accuracy in 245 s against the number of random devices, L = 8 and iid, R = 1,000 m, 5 trials."""

import numpy as np

from fedcell.paper import curves
from fedcell.paper.output import Claim, Output, Verdict, judge, overall, points
from fedcell.paper.settings import Collect, Settings, gather, shown
from fedcell.plots import Line, lines_figure
from fedcell.runs.rows import Rounds

RADIUS_M = 1000.0
STYLES = {"L=8": ("#0072b2", "-", "o"), "iid": ("#d55e00", "--", "s")}


def make(settings: Settings, collect: Collect) -> Output:
    """Make the figure."""
    budget_s, ks = settings.devices_budget_s, (1, *settings.search_ks)
    runs = gather(
        collect,
        {(p, k): settings.in_cell(f"random:k={k}", p, RADIUS_M, budget_s) for p in STYLES for k in ks},
        settings.seeds,
    )
    found = {label: curves.readings_by_time(trials, budget_s) for label, trials in runs.items()}
    lines = [
        Line(
            shown(p),
            np.array(ks, dtype=np.float64),
            *curves.columns([found[p, k][curves.CURVE] for k in ks], 100),
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
        claims=[_claim({k: runs[p, k] for k in ks}, p, budget_s) for p in STYLES],
    )


def _claim(runs: dict[int, list[Rounds]], partition: str, budget_s: float) -> Claim:
    """A trade-off: neither the fewest nor the most devices are best."""
    best = max(runs, key=lambda k: curves.readings_by_time(runs[k], budget_s)[curves.CURVE].mean)
    verdicts: list[Verdict] = []
    said = []
    for end in (min(runs), max(runs)):
        lead = curves.differences(runs[best], runs[end], budget_s)[curves.CURVE]
        verdicts.append("not confirmed" if end == best else judge(lead))
        said.append("it is the best of all" if end == best else f"minus K = {end} {points(lead)}")
    return Claim(
        f"There is a trade-off on {shown(partition)} data: an intermediate number of devices is best (Fig. 1(b))",
        overall(verdicts),
        f"K = {best}: {', '.join(said)}. The best K is chosen on the same trials, which favours it.",
    )
