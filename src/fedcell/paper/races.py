"""The race of Fig. 3: its policies under the paper's names, at one or several radii, and the claims about it.

Proposed is greedy with theta = 0, which schedules the 8.3 devices in 12.1 s that the paper prints; greedy with Table
I's theta for L = 2 (-0.0367) and the exact solution of (P1) with both stand beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcell.paper.output import Claim, Verdict, close, jackknife, judge, judge_all, overall, points
from fedcell.paper.readings import CURVE, TARGET, curve_best, differences, lead_s, time_to_target
from fedcell.paper.settings import DEVICES, PAPER_THETA, Collect, Settings, gather
from fedcell.runs import stats
from fedcell.runs.records import Rounds
from fedcell.runs.stats import Mean
from fedcell.sim.spec import Spec

PROPOSED = "Proposed"
BASELINES = ("Random-opt", "CL-low", "CL-high", "PF")
FIXED = {
    PROPOSED: "greedy:theta=0",
    f"Greedy, θ = {PAPER_THETA}": f"greedy:theta={PAPER_THETA}",
    "Optimal, θ = 0": "optimal:theta=0",
    f"Optimal, θ = {PAPER_THETA}": f"optimal:theta={PAPER_THETA}",
    "CL-low": "deadline:seconds=8",
    "CL-high": "deadline:seconds=25",
}
ORDER = (PROPOSED, *BASELINES, *list(FIXED)[1:4])
STYLES = dict(
    zip(
        ORDER,
        (
            ("#d55e00", "-", "o"),
            ("#000000", ":", "v"),
            ("#009e73", "--", "s"),
            ("#0072b2", "--", "^"),
            ("#e69f00", "-.", "D"),
            ("#cc79a7", "-", ""),
            ("#56b4e9", "-", ""),
            ("#7f7f7f", "-.", ""),
        ),
        strict=True,
    )
)

ALIKE = 0.01
"""Policies whose accuracies differ by less, with the entire interval, are alike."""


@dataclass(frozen=True, eq=False)
class Race:
    """The runs of one radius.

    Attributes:
        runs: by the paper's names, in ORDER, one run a trial.
        search: Random with each K that was tried.
        k_opt: Random-opt's K, below 20.
        budget_s: the time budget.
    """

    runs: dict[str, list[Rounds]]
    search: dict[int, list[Rounds]]
    k_opt: int
    budget_s: float


def races(
    settings: Settings, collect: Collect, radii_m: tuple[float, ...], budget_s: float, ks: tuple[int, ...]
) -> dict[float, Race]:
    """Run the policies at each radius: first all but PF, whose K is the K that the search over ``ks`` finds."""

    def spec(policy: str, radius_m: float) -> Spec:
        return settings.in_cell(policy, "L=2", radius_m, budget_s)

    wanted = {(r, name): spec(policy, r) for r in radii_m for name, policy in FIXED.items()}
    wanted |= {(r, f"K={k}"): spec(f"random:k={k}", r) for r in radii_m for k in ks}
    found = gather(collect, wanted, settings.seeds)
    search = {r: {k: found[r, f"K={k}"] for k in ks} for r in radii_m}
    k_opt = {r: best_k(search[r], budget_s) for r in radii_m}
    fair = gather(collect, {r: spec(f"proportional_fair:k={k_opt[r]}", r) for r in radii_m}, settings.seeds)
    return {r: _race({name: found[r, name] for name in FIXED}, search[r], k_opt[r], fair[r], budget_s) for r in radii_m}


def _race(
    fixed: dict[str, list[Rounds]], search: dict[int, list[Rounds]], k_opt: int, fair: list[Rounds], budget_s: float
) -> Race:
    runs = fixed | {"Random-opt": search[k_opt], "PF": fair}
    return Race({name: runs[name] for name in ORDER}, search, k_opt, budget_s)


def best_k(search: dict[int, list[Rounds]], budget_s: float) -> int:
    """The K below 20 whose averaged curve has the highest best accuracy within the budget.

    With K = 20 nothing is random, and PF would be the very same policy; the paper's two differ, so its K was smaller.
    """
    proper = [k for k in search if k < DEVICES]
    return max(proper, key=lambda k: curve_best(search[k], budget_s)(list(range(len(search[k])))))


def race_claims(race: Race) -> list[Claim]:
    """Those of Fig. 3(a)."""
    return [*_leads(race), _sooner(race)]


def _leads(race: Race) -> list[Claim]:
    """Proposed against each baseline; each reading is corrected for the number of them."""
    found = {name: differences(race.runs[PROPOSED], race.runs[name], race.budget_s) for name in BASELINES}
    readings = list(found[BASELINES[0]])
    judged = {reading: judge_all([found[name][reading] for name in BASELINES]) for reading in readings}
    claims = []
    for place, name in enumerate(BASELINES):
        said = "; ".join(f"{reading} {points(found[name][reading])} ({judged[reading][place]})" for reading in readings)
        evidence = f"Proposed minus {name}: {said}, corrected for {len(BASELINES)} baselines by Holm's method."
        if name == "Random-opt" and DEVICES in race.search:
            everyone = differences(race.runs[PROPOSED], race.search[DEVICES], race.budget_s)[CURVE]
            said = f"averaged curve's best {points(everyone)} ({judge(everyone)})"
            evidence += f" Against everyone, K = {DEVICES}: {said}."
        claims.append(Claim(f"Proposed beats {name} at {race.budget_s:g} s", judged[CURVE][place], evidence))
    return claims


def _sooner(race: Race) -> Claim:
    """80 % after 171 s (Proposed) against 224 s (CL-high)."""
    ours, theirs = race.runs[PROPOSED], race.runs["CL-high"]
    lead = lead_s(ours, theirs, race.budget_s)
    low, high = lead.interval
    verdict: Verdict = "confirmed" if low > 0.0 else "not confirmed" if high < 0.0 else "not significant"
    times = [time_to_target(runs, race.budget_s).text() for runs in (ours, theirs)]
    medians = [stats.times_to(runs, TARGET).text() for runs in (ours, theirs)]
    return Claim(
        "Proposed reaches 80 % sooner than CL-high (171 s against 224 s)",
        verdict,
        f"On the averaged curves Proposed needs {times[0]}, CL-high {times[1]}; sooner by {lead.text()}. Median trial: "
        f"{medians[0]} against {medians[1]}.",
    )


def devices_claim(devices: Mean, round_s: Mean) -> Claim:
    """8.31 devices in 12.07 s per round."""
    agrees = close(8.31, devices) and close(12.07, round_s)
    return Claim(
        "Proposed schedules 8.31 devices in 12.07 s per round",
        "confirmed" if agrees else "not confirmed",
        f"Ours, with θ = 0: {devices.text()} devices in {round_s.text()} s. Confirmed means that the difference is "
        "within the spread of two such means.",
    )


def radius_claims(races: Mapping[float, Race]) -> list[Claim]:
    """Those of Fig. 3(d)."""
    return [_always_ahead(races), _shrinks(races), _alike_in_small_cells(races), _ahead_in_large_cells(races)]


def _always_ahead(races: Mapping[float, Race]) -> Claim:
    leads = {
        f"{name} at {radius_m:g} m": differences(race.runs[PROPOSED], race.runs[name], race.budget_s)[CURVE]
        for radius_m, race in races.items()
        for name in BASELINES
    }
    verdicts = judge_all(list(leads.values()))
    found = list(zip(leads.items(), verdicts, strict=True))
    behind = [f"{pair} {points(lead)}" for (pair, lead), verdict in found if verdict == "not confirmed"]
    said = (
        f"Of {len(verdicts)} pairs of radius and baseline, corrected for their number by Holm's method, Proposed is "
        f"significantly ahead in {verdicts.count('confirmed')}"
    )
    said += f", behind in {len(behind)} ({'; '.join(behind)})" if behind else ", behind in none"
    said += f", and the difference is not significant in {verdicts.count('not significant')}"
    return Claim("Proposed is ahead of every baseline at every radius (Fig. 3(d))", overall(verdicts), f"{said}.")


def _shrinks(races: Mapping[float, Race]) -> Claim:
    """The lead over the baselines' mean, as a slope over the radius."""
    radii = np.array(list(races))

    def slope(trials: list[int]) -> float:
        leads = [
            curve_best(race.runs[PROPOSED], race.budget_s)(trials)
            - float(np.mean([curve_best(race.runs[name], race.budget_s)(trials) for name in BASELINES]))
            for race in races.values()
        ]
        return float(np.polyfit(radii / 1000.0, leads, 1)[0])

    found = jackknife(slope, len(next(iter(races.values())).runs[PROPOSED]))
    ends = []
    for radius_m in (radii.min(), radii.max()):
        race = races[radius_m]
        leads = [differences(race.runs[PROPOSED], race.runs[name], race.budget_s) for name in BASELINES]
        mean = float(np.mean([lead[CURVE].mean for lead in leads]))
        ends.append(f"{100 * mean:+.2f} points at {radius_m:g} m")
    return Claim(
        "The advantage of Proposed shrinks with the radius (Fig. 3(d))",
        judge(found),
        f"Its lead over the mean of the four baselines is {' and '.join(ends)}; over all radii it changes by "
        f"{points(found)} per kilometre.",
    )


def _alike_in_small_cells(races: Mapping[float, Race]) -> Claim:
    small = sorted(races)[: max(1, len(races) // 3)]
    found = [_fair_lead(races[r]) for r in small]
    verdicts: list[Verdict] = []
    for lead in found:
        if abs(lead.mean) + lead.half <= ALIKE:
            verdicts.append("confirmed")
        else:
            verdicts.append("not confirmed" if abs(lead.mean) - lead.half > ALIKE else "not significant")
    said = "; ".join(f"{points(lead)} at {r:g} m (K = {races[r].k_opt})" for r, lead in zip(small, found, strict=True))
    return Claim(
        "PF resembles Random-opt in small cells (Fig. 3(d))",
        overall(verdicts),
        f"PF minus Random-opt: {said}. Similar means within ± {100 * ALIKE:g} point with the entire interval; not "
        "significant means that the interval is too wide to say.",
    )


def _ahead_in_large_cells(races: Mapping[float, Race]) -> Claim:
    largest = max(races)
    lead = _fair_lead(races[largest])
    return Claim(
        "PF outperforms Random-opt in large cells (Fig. 3(d))",
        judge(lead),
        f"PF minus Random-opt at {largest:g} m: {points(lead)} (K = {races[largest].k_opt}).",
    )


def _fair_lead(race: Race) -> Mean:
    return differences(race.runs["PF"], race.runs["Random-opt"], race.budget_s)[CURVE]
