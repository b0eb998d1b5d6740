"""Fig. 3(d): best accuracy in 300 s against the radius, 200 to 1,400 m, L = 2, 5 trials; the policies of Fig. 3(a).

At 1,400 m the runs are the first 300 s of Fig. 3(a)'s. Random-opt's K is searched at every radius and PF takes it.
"""

import numpy as np

from fedcell.pages import Grid
from fedcell.paper import curves
from fedcell.paper.claims import radius_claims
from fedcell.paper.output import Output
from fedcell.paper.races import ORDER, STYLES, Race, best_k, races
from fedcell.paper.settings import DEVICES, Collect, Settings, gather, within
from fedcell.plots import Line, lines_figure


def gather_races(settings: Settings, collect: Collect) -> dict[float, Race]:
    """The races by radius."""
    budget_s, longest, at = settings.radius_budget_s, settings.race_budget_s, settings.race_radius_m
    others = tuple(radius_m for radius_m in settings.radii_m if radius_m != at)
    ks = tuple(k for k in settings.search_ks if k < DEVICES)
    found = races(settings, collect, others, budget_s, ks)
    if at in settings.radii_m:
        whole = races(settings, collect, (at,), longest, settings.search_ks)[at]
        search = {k: within(runs, budget_s) for k, runs in whole.search.items()}
        k = best_k(search, budget_s)
        runs = {name: within(trials, budget_s) for name, trials in whole.runs.items()} | {"Random-opt": search[k]}
        if k != whole.k_opt:  # another K is best in the shorter time
            fair = settings.in_cell(f"proportional_fair:k={k}", "L=2", at, budget_s)
            runs["PF"] = gather(collect, {"PF": fair}, settings.seeds)["PF"]
        found[at] = Race({name: runs[name] for name in ORDER}, search, k, budget_s)
    return {radius_m: found[radius_m] for radius_m in settings.radii_m}


def make(settings: Settings, collect: Collect) -> Output:
    """Make the figure."""
    found = gather_races(settings, collect)
    readings = {
        (name, r): curves.readings_by_time(race.runs[name], race.budget_s)
        for r, race in found.items()
        for name in ORDER
    }
    radii = np.array(list(found))
    lines = []
    for place, name in enumerate(ORDER):
        y, half = curves.columns([readings[name, r][curves.CURVE] for r in found], 100)
        colour, dash, marker = STYLES[name]
        main = bool(marker)  # the paper's policies; their bars stand a little apart, so that all can be seen
        x = radii + 12.0 * (place - 2) if main else radii
        lines.append(Line(name, x, y, half if main else None, colour, dash, marker, width=1.5 if main else 0.9))
    budget_s = settings.radius_budget_s
    figure = lines_figure(
        lines, "cell radius, m", f"highest accuracy in {budget_s:g} s, %", legend="lower left", columns=2
    )
    rows = [
        [name, r, found[r].k_opt, reading, 100 * value.mean, 100 * value.half]
        for (name, r), three in readings.items()
        for reading, value in three.items()
    ]
    chosen = ", ".join(f"{race.k_opt} at {r:g} m" for r, race in found.items())
    return Output(
        name="fig3d",
        title="Fig. 3(d): highest accuracy against the cell radius",
        setting=f"L = 2, {budget_s:g} s, {settings.seeds} trials; the averaged curve's best is shown, bars, slightly "
        f"offset, are 95 % intervals. Random-opt's and PF's K, searched at every radius: {chosen}.",
        figure=figure,
        csv=(("policy", "radius_m", "random_opt_k", "reading", "accuracy_percent", "half_95_percent"), rows),
        tables=[
            Grid(
                f"Highest accuracy in {budget_s:g} s, %, {reading}",
                ("policy", *(f"{r:g} m" for r in found)),
                [[name, *(readings[name, r][reading].text(100, 1) for r in found)] for name in ORDER],
            )
            for reading in (curves.CURVE, curves.TRIALS, curves.LAST)
        ],
        claims=radius_claims(found),
        notes=["The paper does not say whether Random-opt's K was searched at every radius; here it was."],
    )
