"""Settings that the paper does not give: partition and scaling, chosen on Fig. 2's printed numbers.

The distance of a setting is the root mean square of ours minus the paper's five numbers of Fig. 2. The choice is by the
averaged curve's best; what the other readings would choose is shown too. Fig. 3, with two thetas, is not used for it.
"""

import math

import numpy as np

from fedcell.defaults import TARGET_ACCURACY
from fedcell.paper import fig2
from fedcell.paper.output import Output
from fedcell.paper.readings import CURVE, LAST, TRIALS, differences, readings_by_round, readings_by_time, time_to_target
from fedcell.paper.settings import PAPER_THETA, Collect, Scaling, Settings, gather, shown
from fedcell.runs import stats
from fedcell.runs.records import Rounds
from fedcell.runs.stats import Mean
from fedcell.sim.spec import Spec
from fedcell.tables import Table

CANDIDATES: tuple[tuple[bool, Scaling], ...] = (
    (False, "standard"),
    (True, "standard"),
    (False, "unit"),
    (True, "unit"),
)
POLICIES = {theta: f"greedy:theta={theta:g}" for theta in (0.0, PAPER_THETA)}
CL_HIGH = "deadline:seconds=25"


def name(free: bool, scaling: str) -> str:
    """Such as ``balanced, standard``."""
    return f"{'free' if free else 'balanced'}, {scaling}"


def distance(readings: dict[tuple[str, int], Mean]) -> float:
    """Root mean square of ours less Fig. 2's printed numbers, in points."""
    errors = [100 * readings[label].mean - float(text) for label, text in fig2.PRINTED.items()]
    return math.sqrt(float(np.mean(np.square(errors))))


def make(settings: Settings, collect: Collect) -> Output:
    """Make the calibration's tables."""
    chosen = {name(free, scaling): settings.learning(free=free, scaling=scaling) for free, scaling in CANDIDATES}
    runs = gather(collect, _wanted(chosen), settings.seeds)
    accuracy: dict[str, dict[tuple[str, int], Mean]] = {}
    distances: dict[str, dict[str, float]] = {reading: {} for reading in (CURVE, TRIALS, LAST)}
    rows3, rows = [], []
    for candidate in chosen:
        three = {label: readings_by_round(runs[candidate, *label]) for label in fig2.PRINTED}
        accuracy[candidate] = {label: reading[CURVE] for label, reading in three.items()}
        for reading, by_candidate in distances.items():
            by_candidate[candidate] = distance({label: found[reading] for label, found in three.items()})
        rows += [
            [candidate, p, k, reading, 100 * value.mean, 100 * value.half]
            for (p, k), readings in three.items()
            for reading, value in readings.items()
        ]
        high = runs[candidate, CL_HIGH, 0]
        rows3 += [
            [candidate, f"{theta:g}", *_race_texts(runs[candidate, policy, 0], high, settings.race_budget_s)]
            for theta, policy in POLICIES.items()
        ]
    return Output(
        name="calibration",
        title="Settings that the paper does not give: a calibration",
        setting=f"Balanced or free partition, standard or unit scaling, chosen on Fig. 2; {settings.seeds} trials. "
        "Then, with two θ, shown on Fig. 3, which is not used for the choice.",
        figure=None,
        csv=(("setting", "partition", "devices", "reading", "accuracy_percent", "half_95_percent"), rows),
        tables=[_fig2_table(accuracy, distances), _fig3_table(rows3, settings)],
        notes=[_note(name(settings.free, settings.scaling), distances)],
    )


def _note(default: str, distances: dict[str, dict[str, float]]) -> str:
    said = []
    for reading, found in distances.items():
        closest = min(found, key=lambda candidate: found[candidate])
        said.append(f"{closest} by {reading} ({found[closest]:.2f} points root mean square)")
    ours = distances[CURVE]
    favoured = min(ours, key=lambda candidate: ours[candidate]) == default
    return (
        f"Closest to Fig. 2: {'; '.join(said)}. The other figures use {default}"
        f"{'' if favoured else ', which these trials do not favour'}."
    )


def _fig2_table(accuracy: dict[str, dict[tuple[str, int], Mean]], distances: dict[str, dict[str, float]]) -> Table:
    labels = list(fig2.PRINTED)
    rows = [["the paper", *(fig2.PRINTED[label] for label in labels), *("0" for _ in distances)]]
    rows += [
        [
            candidate,
            *(found[label].text(100, 1) for label in labels),
            *(f"{one[candidate]:.2f}" for one in distances.values()),
        ]
        for candidate, found in accuracy.items()
    ]
    return Table(
        "Fig. 2, averaged curve's best within the rounds, %",
        ("partition, scaling", *(f"{shown(p)}, K = {k}" for p, k in labels), *(f"distance, {r}" for r in distances)),
        rows,
    )


def _wanted(chosen: dict[str, Settings]) -> dict[tuple[str, str, int], Spec]:
    """The runs by candidate, partition and K for Fig. 2, and by candidate, policy and 0 for Fig. 3."""
    wanted: dict[tuple[str, str, int], Spec] = {}
    for candidate, settings in chosen.items():
        budget_s, radius_m = settings.race_budget_s, settings.race_radius_m
        wanted |= {(candidate, p, k): settings.without_budget(f"random:k={k}", p) for p, k in fig2.PRINTED}
        for policy in (*POLICIES.values(), CL_HIGH):
            wanted[candidate, policy, 0] = settings.in_cell(policy, "L=2", radius_m, budget_s)
    return wanted


def _race_texts(runs: list[Rounds], high: list[Rounds], budget_s: float) -> list[str]:
    summary = stats.summarise(runs, TARGET_ACCURACY, budget_s)
    best = readings_by_time(runs, budget_s)[CURVE]
    lead = differences(runs, high, budget_s)[CURVE]
    return [
        summary.devices.text(),
        summary.round_s.text(),
        best.text(100, 1),
        time_to_target(runs, budget_s).text(),
        time_to_target(high, budget_s).text(),
        lead.text(100, 1),
    ]


def _fig3_table(rows: list[list[str]], settings: Settings) -> Table:
    headings = (
        "partition, scaling",
        "θ of greedy",
        "devices",
        "seconds per round",
        f"best in {settings.race_budget_s:g} s, %",
        "to 80 %",
        "CL-high to 80 %",
        "lead over CL-high",
    )
    paper = ["the paper", "?", "8.31", "12.07", "89.85", "171 s", "224 s", "2.35"]
    return Table("Fig. 3 under the same settings (averaged curves)", headings, [paper, *rows])
