"""The policies of Fig. 3 raced at one or several radii, under the paper's names; Random-opt's K found by search.

Proposed is greedy with theta = 0, which schedules the 8.3 devices in 12.1 s that the paper prints; greedy with Table
I's theta for L = 2 (-0.0367) and the exact solution of (P1) with both stand beside it.
"""

from dataclasses import dataclass

from fedcell.paper.readings import curve_best
from fedcell.paper.settings import DEVICES, PAPER_THETA, Collect, Settings, gather
from fedcell.runs.records import Rounds
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
