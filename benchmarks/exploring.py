"""What trying forgotten devices again costs and gains: `python benchmarks/exploring.py`, two minutes of one core.

20 devices with compute times of their own, which a server only knows from earlier rounds, are scheduled for 300 rounds
in four worlds. A run is judged by its seconds per unit of progress, the sum of T over the sum of 1 / (theta + 1/n)
with the n models that arrived, beside an oracle that knows every device's mean time in each round. `--tune` tries other
constants of protocol/estimates.py, on other seeds than those of the table.
"""

import argparse
import itertools
from concurrent.futures import ProcessPoolExecutor
from typing import Literal, NamedTuple, get_args

import numpy as np
from rich.console import Console
from rich.table import Table

import fedcell as fc
from fedcell.protocol import Knowledge, estimates
from fedcell.runs.stats import mean_of, paired_difference
from fedcell.runtime import cores
from fedcell.schedule.plan import Links, Timing
from fedcell.types import Floats

M, ROUNDS, SLACK = 20, 300, 2.0
MEAN_S = 6.75
"""The paper's compute time of a device with 3000 samples: at least 6 s, and 0.75 s of exponential noise on average."""

Kind = Literal["stationary", "one-off slow", "recovering", "drifting"]
Server = Literal["oracle", "exploring", "not exploring"]
POLICIES: dict[str, fc.Greedy | fc.Optimal] = {
    "optimal, theta 0": fc.Optimal(0.0),
    "optimal, theta 0.5": fc.Optimal(0.5),
    "greedy, theta 0": fc.Greedy(0.0),
    "greedy, theta 0.5": fc.Greedy(0.5),
}


class World(NamedTuple):
    """Times in seconds: upload_s (M,) with the entire band, the means and the draws of compute times (ROUNDS, M)."""

    upload_s: Floats
    mean_s: Floats
    compute_s: Floats


def world(kind: Kind, seed: int) -> World:
    """The devices differ by a factor of 4 from fastest to slowest; all servers of a seed meet the same draws."""
    rng = np.random.default_rng([13, seed])
    factor = np.tile(2.0 ** rng.uniform(-1.0, 1.0, M), (ROUNDS, 1))
    once = np.ones((ROUNDS, M))
    if kind == "one-off slow":
        once = np.where(rng.random((ROUNDS, M)) < 0.05, 5.0, 1.0)
    elif kind == "recovering":  # 4 times slower for 50 rounds on average, then well for 150
        for device in range(M):
            begin, slow = 0, bool(rng.random() < 0.25)
            while begin < ROUNDS:
                end = begin + 1 + int(rng.exponential(50.0 if slow else 150.0))
                factor[begin:end, device] *= 4.0 if slow else 1.0
                begin, slow = end, not slow
    elif kind == "drifting":
        factor *= np.exp(np.cumsum(rng.normal(0.0, 0.05, (ROUNDS, M)), axis=0))
    noise = (6.0 + 0.75 * rng.exponential(size=(ROUNDS, M))) / MEAN_S
    upload_s = fc.World(devices=fc.Devices(M)).conditions(seed).upload_s
    return World(upload_s, MEAN_S * factor, MEAN_S * factor * once * noise)


def seconds_per_progress(
    seed: int, kind: Kind, policy: fc.Greedy | fc.Optimal, server: Server, deadlines: bool
) -> float:
    """One run. With deadlines, a device later than SLACK times its planned finish is dropped, as in Flower."""
    cell, known, clock_s, progress = world(kind, seed), Knowledge.empty(M), 0.0, 0.0
    rng, unknown_s = np.random.default_rng(0), np.full(M, np.nan)
    for r in range(ROUNDS):
        links = Links(cell.upload_s, cell.mean_s[r] if server == "oracle" else unknown_s)
        view = known.view(links, r, clock_s=clock_s, explore=server == "exploring")
        plan = policy.decide(view, rng)
        upload_s, compute_s = cell.upload_s[plan.devices] / plan.shares, cell.compute_s[r, plan.devices]
        allowed_s = np.full(plan.devices.size, np.inf)
        if deadlines:
            timed = (known.compute.weight[plan.devices] > 0) | (server == "oracle")
            allowed_s[timed] = SLACK * plan.finish_s(view.upload_s, view.compute_s)[timed]
        late = compute_s + upload_s > allowed_s
        finish_s = np.minimum(compute_s + upload_s, allowed_s)
        clock_s += float(finish_s.max())
        arrived = int((~late).sum())
        progress += 1.0 / (policy.theta + 1.0 / arrived) if arrived else 0.0
        known = known.with_round(view, plan, links, Timing(finish_s - upload_s, finish_s, late), clock_s)
    return clock_s / progress


def runs(
    seeds: range,
    kind: Kind,
    policy: fc.Greedy | fc.Optimal,
    deadlines: bool,
    server: Server,
    constants: tuple[float, int] = (estimates.EXPLORATION_HALF_LIFE, estimates.EXPLORE_EVERY),
) -> Floats:
    """The seconds per unit of progress of each seed."""
    estimates.EXPLORATION_HALF_LIFE, estimates.EXPLORE_EVERY = constants
    return np.array([seconds_per_progress(seed, kind, policy, server, deadlines) for seed in seeds])


def report(seeds: range, pool: ProcessPoolExecutor, console: Console) -> None:
    """Print what both servers take above the oracle, and the paired difference."""
    table = Table(title=f"time above the oracle's, %; {len(seeds)} seeds, 95 % intervals", title_justify="left")
    for heading in ("world", "deadlines", "policy", "exploring", "not exploring", "difference"):
        table.add_column(heading, justify="left" if heading in ("world", "deadlines", "policy") else "right")
    rows = list(itertools.product(get_args(Kind), (False, True), POLICIES))
    jobs = [
        [pool.submit(runs, seeds, kind, POLICIES[name], deadlines, server) for server in get_args(Server)]
        for kind, deadlines, name in rows
    ]
    for (kind, deadlines, name), row in zip(rows, jobs, strict=True):
        oracle, on, off = (job.result() for job in row)
        on_above, off_above = (100.0 * (on / oracle - 1.0)).tolist(), (100.0 * (off / oracle - 1.0)).tolist()
        means = (mean_of(on_above), mean_of(off_above), paired_difference(on_above, off_above))
        table.add_row(kind, "yes" if deadlines else "no", name, *(mean.text(digits=1) for mean in means))
    console.print(table)


def tune(seeds: range, pool: ProcessPoolExecutor, console: Console) -> None:
    """Print exploring minus not exploring for other constants."""
    table = Table(
        title=f"exploring minus not exploring, % of the oracle's time: optimal, theta 0.5, with and without deadlines, "
        f"seeds {seeds[0]} to {seeds[-1]}"
    )
    for heading in ("EXPLORATION_HALF_LIFE", "EXPLORE_EVERY", *get_args(Kind)):
        table.add_column(heading, justify="right")
    cells, policy = list(itertools.product(get_args(Kind), (False, True))), fc.Optimal(0.5)

    def all_cells(server: Server, *constants: tuple[float, int]) -> Floats:
        jobs = [pool.submit(runs, seeds, *(kind, policy, deadlines, server), *constants) for kind, deadlines in cells]
        return np.array([job.result() for job in jobs])

    oracle, off = all_cells("oracle"), all_cells("not exploring")
    for constants in itertools.product((4.0, 8.0, 16.0, 32.0), (1, 5, 10, 20)):
        gained = 100.0 * ((all_cells("exploring", constants) - off) / oracle).reshape(len(get_args(Kind)), -1)
        table.add_row(*(f"{c:g}" for c in constants), *(f"{np.mean(cell):+.1f}" for cell in gained))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds")
    parser.add_argument("--tune", action="store_true", help="try other constants, on seeds 100 and up; slow")
    asked = parser.parse_args()
    console = Console(width=120)
    with ProcessPoolExecutor(cores()) as pool:
        if asked.tune:
            tune(range(100, 100 + asked.seeds), pool, console)
        else:
            report(range(asked.seeds), pool, console)


if __name__ == "__main__":
    main()
