"""How fast fedcell decides, beside the alternatives, in one process: `make bench-schedule`.

Prints tables of times (the least of several repetitions: the machines are shared) and ratios, and checks that every
alternative gives the same answer.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import brentq

import fedcell as fc

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from twins import auto as twin
from twins.diverse import best_of_all, draw_view, values_of
from twins.paper import algorithm_1, algorithm_2, all_subsets

RNG = np.random.default_rng(0)
CONSOLE = Console(width=110)


def seconds(
    call: Callable[[], object],
    budget_s: float = 0.5,
    repeats: int = 5,
    now: Callable[[], float] = time.perf_counter,
) -> float:
    """The least time of one call by a clock, over a few repetitions that together take about the budget."""
    start = now()
    call()
    once = max(now() - start, 1e-7)
    number = max(1, int(budget_s / repeats / once))
    best = once if number == 1 else np.inf
    for _ in range(repeats if once < budget_s else 1):
        start = now()
        for _ in range(number):
            call()
        best = min(best, (now() - start) / number)
    return best


def shown(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def cell(M: int, seed: int = 0) -> fc.RoundView:
    """The paper's cell with M devices."""
    conditions = fc.World(devices=fc.Devices(M)).conditions(seed)
    return fc.RoundView(conditions.upload_s, conditions.compute_s)


def table(title: str, *headings: str) -> Table:
    made = Table(title=title, title_justify="left")
    made.add_column(headings[0])
    for heading in headings[1:]:
        made.add_column(heading, justify="right")
    return made


def by_brentq(c: Any, t: Any) -> float:
    d = t.max() - t
    return float(t.max() + brentq(lambda x: (c / (x + d)).sum() - 1.0, 1e-12, c.sum(), xtol=1e-12))


def by_cvxpy(c: Any, t: Any) -> float:
    import cvxpy

    cp: Any = cvxpy  # untyped in parts
    shares, end = cp.Variable(len(c)), cp.Variable()
    limits = [t[i] + c[i] * cp.inv_pos(shares[i]) <= end for i in range(len(c))]
    cp.Problem(cp.Minimize(end), [*limits, cp.sum(shares) <= 1]).solve()
    return float(end.value)


def allocation() -> Table:
    view = cell(20)
    c, t = view.upload_s, view.compute_s
    ours_s = seconds(lambda: fc.allocate(c, t))
    expected = float(fc.allocate(c, t).round_s)
    rows = table("(P2), 20 devices: one call", "solver", "time", "fedcell is faster by", "answer differs by")
    rows.add_row("fedcell.allocate", shown(ours_s), "", "")
    others: dict[str, Callable[[], float]] = {
        "Algorithm 1, literal Python": lambda: algorithm_1(c.tolist(), t.tolist()),
        "SciPy brentq over NumPy": lambda: by_brentq(c, t),
        "CVXPY": lambda: by_cvxpy(c, t),
    }
    for name, call in others.items():
        try:
            found = call()
        except ImportError:
            rows.add_row(name, "not installed", "", "")
            continue
        took = seconds(call)
        rows.add_row(name, shown(took), f"{took / ours_s:.0f} x", f"{abs(found / expected - 1):.0e}")
    many = [cell(20, seed) for seed in range(10_000)]
    batch = np.array([v.upload_s for v in many]), np.array([v.compute_s for v in many])
    each_s = seconds(partial(fc.allocate, *batch)) / 10_000
    rows.add_row("fedcell.allocate, a set of a batch of 10,000", shown(each_s), "", "")
    for M in (1_000, 1_000_000):
        large = cell(M)
        took = seconds(partial(fc.allocate, large.upload_s, large.compute_s))
        rows.add_row(f"fedcell.allocate, {M:,} devices", shown(took), "", "")
    return rows


def greedy(quick: bool) -> Table:
    rows = table(
        "Greedy (Algorithm 2), theta = 0, with its allocation",
        "devices",
        "fedcell",
        "literal Python",
        "ratio",
        "scheduled",
    )
    policy = fc.Greedy(0.0)
    for M in (20, 100, 1_000, 10_000, 100_000):
        view = cell(M)
        ours_s = seconds(partial(policy.decide, view, RNG))
        plan = policy.decide(view, RNG)
        literal = ratio = ""
        if (20 if quick else 100) >= M:
            c, t = view.upload_s.tolist(), view.compute_s.tolist()
            start = time.perf_counter()
            found = algorithm_2(c, t, 0.0, epsilon=1e-9)
            took = time.perf_counter() - start
            assert sorted(found) == plan.devices.tolist()
            literal, ratio = shown(took), f"{took / ours_s:,.0f} x"
        rows.add_row(f"{M:,}", shown(ours_s), literal, ratio, str(len(plan.devices)))
    return rows


def optimal(quick: bool) -> Table:
    rows = table(
        "Optimal (P1), with its allocation", "devices", "theta = 0", "scheduled", "theta = 0.139", "scheduled", "growth"
    )
    last = 0.0
    for M in (20, 100, 1_000, 10_000, 100_000, 1_000_000):
        view = cell(M)
        cells, took = [], [seconds(partial(fc.Optimal(theta).decide, view, RNG), 1.0) for theta in (0.0, 0.139)]
        for theta, one in zip((0.0, 0.139), took, strict=True):
            cells += [shown(one), str(len(fc.Optimal(theta).decide(view, RNG).devices))]
        rows.add_row(f"{M:,}", *cells, f"{took[0] / last:.1f} x" if last else "")
        last = took[0]
    M = 9 if quick else 14
    small = cell(M)
    plan = fc.Optimal(0.0).decide(small, RNG)
    start = time.perf_counter()
    least = all_subsets(small.upload_s.tolist(), small.compute_s.tolist(), 0.0)
    brute_s = time.perf_counter() - start
    assert abs(plan.round_s / len(plan.devices) / least - 1) < 1e-11
    ours_s = seconds(lambda: fc.Optimal(0.0).decide(small, RNG))
    rows.caption = (
        f"all {2**M - 1:,} subsets of {M} devices, literal Python: {shown(brute_s)}, "
        f"{brute_s / ours_s:,.0f} x fedcell's {shown(ours_s)}"
    )
    return rows


def diverse(quick: bool) -> Table:
    rows = table("Diverse, 2 of 10 labels each, with its allocation", "devices", "time", "x Optimal's", "scheduled")
    for M in (20, 100, 1_000, 10_000, 100_000):
        plain, draw = cell(M), np.random.default_rng(M)
        profiles = np.zeros((M, 10))
        np.put_along_axis(profiles, draw.random((M, 10)).argsort(axis=1)[:, :2], 0.5, axis=1)
        view = fc.RoundView(
            plain.upload_s, plain.compute_s, ids=np.arange(M), profiles=profiles, recent=draw.dirichlet(np.ones(M))
        )
        took, papers_s = (
            seconds(partial(policy.decide, view, RNG), 1.0) for policy in (fc.Diverse(), fc.Optimal(0.05))
        )
        n = len(fc.Diverse().decide(view, RNG).devices)
        rows.add_row(f"{M:,}", shown(took), f"{took / papers_s:.0f}", str(n))
    cells, gaps = 100 if quick else 3000, []
    for seed in range(cells):
        draw = np.random.default_rng(seed)
        view = draw_view(int(draw.integers(2, 15)), seed, unknown=draw.choice([0.0, 0.0, 0.3]), past=bool(seed % 2))
        found = np.isin(np.arange(len(view)), fc.Diverse().decide(view, RNG).devices)
        ours = values_of(view, found[np.newaxis], 0.05, 0.5)[0]
        gaps.append(ours / best_of_all(view, 0.05, 0.5, len(view)) - 1.0)
    exact = np.mean(np.array(gaps) < 1e-9)
    rows.caption = (
        f"{cells} random cells of 2 to 14 devices against all subsets: exact in {100 * exact:.1f} %, gap median "
        f"{100 * np.median(gaps):.2g} %, mean {100 * np.mean(gaps):.2g} %, 99th percentile "
        f"{100 * np.quantile(gaps, 0.99):.2g} %, worst {100 * np.max(gaps):.2g} %"
    )
    return rows


def auto(quick: bool) -> Table:
    """Auto after some rounds of the paper's cell; and against all sets and bits."""
    rows = table(
        "Auto, 2 of 10 labels each, with its allocation", "devices", "time", "x Diverse's", "scheduled", "bits"
    )
    sizes = (20, 100, 1_000, 10_000) if quick else (20, 100, 1_000, 10_000, 100_000)
    sums = (60.0, -3.0, 6.0, 30.0, 4.0, 30.0, 1.0, 40.0, 48.0, 40.0, float(np.log(0.04)), 18.0, 9.0, 5.0, 4.0)
    for M in sizes:
        plain, draw = cell(M), np.random.default_rng(M)
        profiles = np.zeros((M, 10))
        np.put_along_axis(profiles, draw.random((M, 10)).argsort(axis=1)[:, :2], 0.5, axis=1)
        known = np.full(M, np.nan)
        known[draw.permutation(M)[: min(M - 2, 500)]] = 1e-4
        view = fc.RoundView(
            plain.upload_s, plain.compute_s, ids=np.arange(M), profiles=profiles, recent=draw.dirichlet(np.ones(M)),
            weights=50_890, tensors=4, samples=np.full(M, 3000), peaks=500 * known, absolutes=20 * known, squares=known,
            heard_epochs=known * 400, learnt=sums,
        )  # fmt: skip

        def decide(policy: fc.Policy, view: fc.RoundView = view) -> fc.Plan:
            vars(view).pop("_computed", None)  # a view keeps what is computed of it
            return policy.decide(view, RNG)

        took, others_s = seconds(partial(decide, fc.Auto()), 1.0), seconds(partial(decide, fc.Diverse()), 1.0)
        plan = decide(fc.Auto())
        assert plan.bits is not None
        rows.add_row(f"{M:,}", shown(took), f"{took / others_s:.2f}", str(len(plan.devices)), f"{plan.bits[0]:g}")
    cells, gaps = 40 if quick else 300, []
    for seed in range(cells):
        view = twin.draw_view(1 + seed % 8, 1000 + seed)
        plan = fc.Auto().decide(view, RNG)
        assert plan.bits is not None
        assert plan.epochs is not None
        best = twin.best_of_all(view, plan.epochs[0], len(view))[0]
        ours = twin.value_of(view, plan.devices.tolist(), int(plan.bits[0]), plan.epochs[0])
        gaps.append(ours / best - 1.0)
    rows.caption = (
        f"{cells} random cells of 1 to 8 devices against all sets and bits: exact in "
        f"{100 * np.mean(np.array(gaps) < 1e-9):.1f} %, gap mean {100 * np.mean(gaps):.2g} %, worst "
        f"{100 * np.max(gaps):.2g} %"
    )
    return rows


def heard(M: int) -> fc.RoundView:
    """The paper's cell after 50 rounds in which every device has been heard: whatever a policy may look at is there."""
    plain, draw = cell(M), np.random.default_rng(M)
    counts = np.zeros((M, 10))
    np.put_along_axis(counts, draw.random((M, 10)).argsort(axis=1)[:, :2], 1500.0, axis=1)
    took_s, losses = plain.upload_s + plain.compute_s, draw.lognormal(-1.0, 0.5, M)
    return fc.RoundView(
        plain.upload_s,
        plain.compute_s,
        round_index=50,
        ids=np.arange(M),
        last_round=draw.integers(0, 50, M),
        heard_round=draw.integers(0, 50, M),
        mean_upload_s=plain.upload_s * draw.lognormal(0.0, 0.3, M),
        samples=np.full(M, 3000),
        label_counts=counts,
        profiles=counts / 3000.0,
        recent=draw.dirichlet(np.ones(M)),
        losses=losses,
        rms_losses=1.2 * losses,
        norms=draw.random(M),
        updates=draw.normal(size=(M, 256)),
        turns=draw.integers(1, 20, M),
        took_s=took_s,
        planned_s=took_s,
        presence=np.ones(M),
        round_losses=np.linspace(2.0, 0.5, 50),
    )


LIMITS_S = {20: 1e-3, 1_000: np.inf, 10_000: 0.1}
"""Within which time every policy decides, by the number of devices."""
FORBIDDEN = {"div_fl": "its cover needs the distances of all pairs of updates: M^2 of 256 numbers each"}
"""Policies whose paper does not allow that, and why."""


def deciding(quick: bool) -> Table:
    """Every registered policy with its defaults, and k = 8 or 8 s where it has none; both stages of those that ask."""
    sizes = (20, 1_000) if quick else (20, 1_000, 10_000)
    rows = table("Deciding, processor time", "policy", *(f"{M:,} devices" for M in sizes), "asks for")
    views = {M: heard(M) for M in sizes}
    usual = {"random": ":8", "round_robin": ":8", "proportional_fair": ":8", "deadline": ":8"}
    for name in fc.POLICIES:
        policy, cells, about = fc.parse_policy(name + usual.get(name, "")), [], ""
        for M, view in views.items():
            question, told = policy.checked_question(view, RNG), view
            if question is not None:
                who, about = question.devices, question.about
                name_of = "losses" if about == "loss" else "norms"
                told = view.with_answers(who, 1.0, **{name_of: getattr(view, name_of)[who]})
            took = seconds(partial(_both_stages, policy, view, told), 0.2, 3, time.process_time)
            over = took > LIMITS_S[M]
            cells.append(shown(took) + (" *" if over and name in FORBIDDEN else " !" if over else ""))
        rows.add_row(name, *cells, about)
    forbidden = "; ".join(f"{name}: {why}" for name, why in FORBIDDEN.items())
    rows.caption = f"over 1 ms with 20 devices or 100 ms with 10,000: ! ; where the paper forbids less: * ({forbidden})"
    return rows


def _both_stages(policy: fc.Policy, view: fc.RoundView, told: fc.RoundView) -> None:
    policy.checked_question(view, RNG)
    policy.decide(told, RNG)


def laws(quick: bool) -> Table:
    rows = table(
        "Link laws, CPU time, x the paper's law in brackets; the sets differ in size",
        "law, devices",
        "allocate, all",
        "Greedy, theta = 0.139",
        "Optimal, theta = 0.139",
        "scheduled",
        "Diverse",
    )
    for M in (20, 1_000) if quick else (20, 1_000, 100_000):
        drawn = fc.World(devices=fc.Devices(M)).conditions(0)
        profiles = np.zeros((M, 10))
        np.put_along_axis(profiles, np.random.default_rng(M).random((M, 10)).argsort(axis=1)[:, :2], 0.5, axis=1)
        papers: list[float] = []
        kinds: dict[str, fc.Law] = {
            "density": fc.Density(),
            "blocks, 10 a device": fc.Blocks(10 * M),
            "power": fc.Power(drawn.snr),
            "dedicated": fc.Dedicated(),
            "ingress": fc.Ingress(pipe_s=0.1),
        }
        for name, law in kinds.items():
            view = fc.RoundView(drawn.upload_s, drawn.compute_s, law=law, ids=np.arange(M), profiles=profiles)
            calls: list[Callable[[], Any]] = [
                partial(fc.allocate, drawn.upload_s, drawn.compute_s, law=law),
                partial(fc.Greedy(0.139).decide, view, RNG),
                partial(fc.Optimal(0.139).decide, view, RNG),
                *([partial(fc.Diverse().decide, view, RNG)] if M <= 1_000 else []),
            ]
            took = [seconds(call, 1.0, now=time.process_time) for call in calls]
            papers = papers or took
            cells = [f"{shown(one)} ({one / first:.1f} x)" for one, first in zip(took, papers, strict=True)]
            n = len(fc.Optimal(0.139).decide(view, RNG).devices)
            rows.add_row(f"{name}, {M:,}", *cells[:3], str(n), *cells[3:])
    return rows


def start_up() -> Table:
    rows = table("Start-up, a process each (the least of 5)", "command", "time")
    example = str(Path(__file__).parents[1] / "examples" / "devices.csv")
    for line in (["--help"], ["plan", example]):
        command = [sys.executable, "-m", "fedcell", *line]
        took = seconds(partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL), 0.1)
        rows.add_row(" ".join(["fedcell", *line[:1], *(Path(p).name for p in line[1:])]), shown(took))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes for the slow alternatives")
    parser.add_argument("--auto", action="store_true", help="only the table of Auto")
    parser.add_argument("--laws", action="store_true", help="only the table of link laws")
    options = parser.parse_args()
    quick = options.quick
    CONSOLE.print(
        f"fedcell {fc.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, {processor()}"
    )
    parts: list[Callable[[], Table]] = [
        allocation,
        lambda: greedy(quick),
        lambda: optimal(quick),
        lambda: diverse(quick),
        lambda: auto(quick),
        lambda: deciding(quick),
        lambda: laws(quick),
        start_up,
    ]
    for part in parts[4:5] if options.auto else parts[6:7] if options.laws else parts:
        CONSOLE.print(part())


def processor() -> str:
    """The processor's name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
