"""Auto taken apart: each of its decisions alone, every pair and all; and against the best fixed ones in hindsight."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedcell.paper.auto import (
    BASELINE,
    DIVERSE,
    LOOKS,
    MOMENTUM,
    OURS,
    PLAIN,
    AutoCell,
    Time,
    chosen_cells,
    dots_of,
    gather_ours,
    setting,
    time_specs,
    times_of,
    to_target,
)
from fedcell.paper.output import Claim, Output, verdict_of
from fedcell.paper.settings import Collect, Settings
from fedcell.plots import Dots, dots_figure
from fedcell.quantisation import WEIGHT_BITS
from fedcell.sim.spec import Spec
from fedcell.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECISIONS = {"who": "who=paper", "work": "epochs=1", "bits": "bits=32"}
"""Auto's decisions, and how each is fixed to what the paper has."""
DECISION_CELLS = ("race", "static", "iid", "dirichlet-0.1", "speeds-10", "fashion", "wisdm", "audio")
GRID_CELL, GRID_MEAN = 1.3, 1.15
"""The most that Auto may take of the best of hindsight's time: in each cell, and on average."""

# --- ablation ------------------------------------------------------------------------------------------------------


def decision_specs(settings: Settings, cells: Mapping[str, AutoCell]) -> dict[tuple[str, float, tuple[str, ...]], Spec]:
    """Auto taken apart, by cell, momentum and the decisions that it makes; the others are as in the paper."""
    return {
        (name, momentum, made): to_target(settings, cell).changed({"policy": _deciding(made, momentum)})
        for name, cell in cells.items()
        for momentum in (0.0, MOMENTUM)
        for n in range(len(DECISIONS) + 1)
        for made in combinations(DECISIONS, n)
    }


def _deciding(made: Sequence[str], momentum: float) -> str:
    """Auto with the other decisions fixed, as a spec names it."""
    fixed = [setting for decision, setting in DECISIONS.items() if decision not in made]
    settings = [*fixed, *([] if momentum == MOMENTUM else [f"momentum={momentum:g}"])]
    return "auto" + (f":{','.join(settings)}" if settings else "")


def _runs_of(who: str, settings: Settings, cells: Mapping[str, AutoCell]) -> dict[tuple[str, str], Spec]:
    """One contender's runs until the target."""
    return {key: spec for key, spec in time_specs(settings, cells).items() if key[1] == who}


def make_decisions(settings: Settings, collect: Collect) -> Output:
    """Each decision of Auto alone, every pair, and all, with its momentum and without."""
    cells, missing = chosen_cells(settings, DECISION_CELLS)
    specs, greedy = decision_specs(settings, cells), _runs_of(BASELINE, settings, cells)
    found = gather_ours(collect, {**specs, **greedy}, settings)  # at once, for its progress
    times = {key: Time.of(found[key], cells[key[0]].target) for key in specs}
    subsets = list(dict.fromkeys(made for _, _, made in times))

    def rows(momentum: float) -> list[list[str]]:
        return [[_named(made), *(times[name, momentum, made].text() for name in cells)] for made in subsets]

    headings = ("Auto decides", *(f"{cell.title}, to {100 * cell.target:g} %" for cell in cells.values()))
    pairs = {name: zip(found[name, 0.0, ()], found[name, BASELINE], strict=True) for name in cells}
    same = [name for name, runs in pairs.items() if all(a.accuracy.tolist() == b.accuracy.tolist() for a, b in runs)]
    others = ", ".join(cell.title for name, cell in cells.items() if name not in same)
    budget_s = settings.race_budget_s
    return Output(
        name="auto-decisions",
        title="Beyond the paper: which of Auto's decisions brings what",
        setting=f"{setting(settings, budget_s)} What Auto does not decide is as in the paper: who by the paper's "
        f"objective, one epoch, {WEIGHT_BITS} bits a weight.",
        figure=_decisions_figure(times, cells, subsets, budget_s),
        csv=(
            ("cell", "momentum", "decides", "median_s", "low_s", "high_s", "reached", "seeds"),
            [
                [name, momentum, _named(made), one.median_s, one.low, one.high, one.reached, len(one.values)]
                for (name, momentum, made), one in times.items()
            ],
        ),
        tables=[
            Table(f"Median seconds to the target, server momentum {momentum:g}", headings, rows(momentum))
            for momentum in (0.0, MOMENTUM)
        ],
        notes=[
            f"Deciding nothing, without momentum, is the paper's Greedy, round by round, in {len(same)} of {len(cells)}"
            f" cells, but for the time of the reports of profiles{f'; not in: {others}' if others else ''}.",
            *missing,
        ],
        left_out=missing,
    )


def _named(made: Sequence[str]) -> str:
    return "all" if len(made) == len(DECISIONS) else " + ".join(made) or "nothing"


def _decisions_figure(
    times: Mapping[tuple[str, float, tuple[str, ...]], Time],
    cells: Mapping[str, AutoCell],
    subsets: Sequence[tuple[str, ...]],
    limit_s: float,
) -> "Figure":
    """The medians of the first cell with momentum and without."""
    dots = []
    for momentum, who in ((0.0, PLAIN), (MOMENTUM, OURS)):
        here = [times[name, momentum, made] for name in list(cells)[:1] for made in subsets]
        numbers = np.array([(one.median_s, one.low, one.high) for one in here], dtype=np.float64).reshape(-1, 3)
        colour, marker, _ = LOOKS[who]
        dots.append(Dots(f"server momentum {momentum:g}", numbers[:, 0], numbers[:, 1], numbers[:, 2], colour, marker))
    title = next((cell.title for cell in cells.values()), "")
    label = f"median simulated time to the target, s ({title}; arrows: never)"
    return dots_figure([_named(made) for made in subsets] if cells else [], dots, label, limit_s)


# --- the best in hindsight -----------------------------------------------------------------------------------------

GridKey = tuple[str, str, float, int]
"""Cell, policy, epochs and bits."""


def grid_specs(settings: Settings, cells: Mapping[str, AutoCell]) -> dict[GridKey, Spec]:
    """The paper's policy and Diverse with fixed work and bits, and Auto's momentum."""
    policies = {
        BASELINE: {"policy": "greedy", "task.aggregator": f"fedavgm:beta={MOMENTUM:g}"},
        DIVERSE: {"policy": "diverse", "task.aggregator": f"fedavgm:beta={MOMENTUM:g},weights=balanced"},
    }
    return {
        (name, who, epochs, bits): to_target(settings, cell).changed(
            fields
            | {
                "budget_s": min(cell.grid_s, settings.race_budget_s),
                "task.epochs": epochs,
                "task.compression": "none" if bits == WEIGHT_BITS else f"quantise:bits={bits}",
            }
        )
        for name, cell in cells.items()
        for who, fields in policies.items()
        for epochs in settings.grid_epochs
        for bits in settings.grid_bits
    }


class Best(NamedTuple):
    """The best fixed work and bits in a cell.

    Attributes:
        who: with which policy.
        epochs: of work.
        bits: a weight.
        time: to the target.
    """

    who: str
    epochs: float
    bits: int
    time: Time

    def text(self) -> str:
        """Such as ``5.9 s [5.1, 6.4]: 0.03 epochs, 2 bits``."""
        return f"{self.time.text()}: {self.epochs:g} epochs, {self.bits} bits"


def best_of(times: Mapping[GridKey, Time], name: str, who: Sequence[str]) -> Best:
    """The one of a cell with the least median; of equal ones that which most seeds reach, soonest."""

    def rank(key: GridKey) -> tuple[float, int, float]:
        one = times[key]
        return one.median_s, -one.reached, sum(min(value, 1e9) for value in one.values)

    key = min((key for key in times if key[0] == name and key[1] in who), key=rank)
    return Best(*key[1:], times[key])


def make_hindsight(settings: Settings, collect: Collect) -> Output:
    """Auto against the best fixed work and bits that each cell turns out to have."""
    cells, missing = chosen_cells(settings)
    grid, ours = grid_specs(settings, cells), _runs_of(OURS, settings, cells)
    found = gather_ours(collect, {**grid, **ours}, settings)
    auto = times_of({key: found[key] for key in ours}, cells)
    times = {key: Time.of(found[key], cells[key[0]].target) for key in grid}
    best = {name: best_of(times, name, (BASELINE, DIVERSE)) for name in cells}
    by_policy = {(name, who): best_of(times, name, (who,)) for name in cells for who in (BASELINE, DIVERSE)}
    ratios = {name: _ratio(auto[name, OURS].median_s, best[name].time.median_s) for name in cells}
    one_for_all = _one_for_all(times, best, cells, settings)
    limits_s = {name: min(cell.grid_s, settings.race_budget_s) for name, cell in cells.items()}
    drawn = auto | {key: one.time for key, one in by_policy.items()}
    return Output(
        name="auto-hindsight",
        title="Beyond the paper: Auto against the best fixed work and bits in hindsight",
        setting=f"{setting(settings, settings.race_budget_s)} Greedy and Diverse with every combination of "
        f"{_listed(settings.grid_epochs)} epochs and {_listed(settings.grid_bits)} bits a weight, and Auto's server "
        f"momentum, {MOMENTUM:g}; the best of each cell is known only afterwards. Their runs end at the target or at "
        "the limit of the cell.",
        figure=dots_of(drawn, cells, [BASELINE, DIVERSE, OURS], settings.race_budget_s),
        csv=(
            ("cell", "policy", "epochs", "bits", "median_s", "reached", "seeds", "limit_s"),
            [
                [name, who, epochs, bits, one.median_s, one.reached, len(one.values), limits_s[name]]
                for (name, who, epochs, bits), one in times.items()
            ]
            + [
                [name, OURS, "", "", one.median_s, one.reached, len(one.values), settings.race_budget_s]
                for (name, _), one in auto.items()
            ],
        ),
        tables=[
            Table(
                "Median seconds to the target: Auto, and the best of the grid",
                ("cell", "limit, s", OURS, f"best {BASELINE}", f"best {DIVERSE}", f"{OURS} / best"),
                [
                    [
                        cell.title,
                        f"{limits_s[name]:g}",
                        auto[name, OURS].text(),
                        *(by_policy[name, who].text() for who in (BASELINE, DIVERSE)),
                        "-" if math.isnan(ratios[name]) else f"{ratios[name]:.2f}",
                    ]
                    for name, cell in cells.items()
                ],
            ),
            Table(
                "The same setting for all cells: the five with the least mean of (median / best of the cell)",
                ("policy", "epochs", "bits", "mean ratio", "largest ratio", "in"),
                one_for_all,
            ),
        ],
        claims=_grid_claims(ratios, cells),
        notes=[
            f"The least of {len(settings.grid_epochs) * len(settings.grid_bits) * 2} medians of {settings.seeds} seeds "
            "is lower than the true best: the comparison favours the grid.",
            *missing,
        ],
        left_out=missing,
    )


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _ratio(ours: float, theirs: float) -> float:
    """Of medians: infinity where only theirs is finite, NaN where neither is."""
    return ours / theirs if math.isfinite(theirs) else math.nan if math.isinf(ours) else 0.0


def _one_for_all(
    times: Mapping[GridKey, Time], best: Mapping[str, Best], cells: Mapping[str, AutoCell], settings: Settings
) -> list[list[str]]:
    """The settings that come nearest to the best of every cell, with how near; a median counts at most as the limit."""
    found = []
    for who in (BASELINE, DIVERSE):
        for epochs in settings.grid_epochs:
            for bits in settings.grid_bits:
                ratios = {
                    name: min(times[name, who, epochs, bits].median_s, cell.grid_s) / best[name].time.median_s
                    for name, cell in cells.items()
                    if math.isfinite(best[name].time.median_s)
                }
                if ratios:
                    worst = max(ratios, key=lambda name: ratios[name])
                    mean = sum(ratios.values()) / len(ratios)
                    found.append((mean, ratios[worst], who, epochs, bits, cells[worst].title))
    return [
        [who, f"{epochs:g}", str(bits), f"{mean:.2f}", f"{largest:.2f}", where]
        for mean, largest, who, epochs, bits, where in sorted(found)[:5]
    ]


def _grid_claims(ratios: Mapping[str, float], cells: Mapping[str, AutoCell]) -> list[Claim]:
    known = {name: ratio for name, ratio in ratios.items() if not math.isnan(ratio)}
    if not known:
        return []
    beyond = [f"{cells[name].title} ({ratio:.2f})" for name, ratio in known.items() if ratio > GRID_CELL]
    mean = sum(known.values()) / len(known)
    neither = [cells[name].title for name in ratios if name not in known]
    said = f" Neither reaches the target in: {', '.join(neither)}." if neither else ""
    return [
        Claim(
            f"{OURS} is within {GRID_CELL:g} times of the best of the grid in each cell",
            verdict_of(not beyond),
            f"Beyond it in: {', '.join(beyond) or 'none'}, of {len(known)} cells.{said}",
        ),
        Claim(
            f"{OURS} is within {GRID_MEAN:g} times of the best of the grid on average",
            verdict_of(mean <= GRID_MEAN),
            f"{mean:.2f} times, the mean over {len(known)} cells.",
        ),
    ]
