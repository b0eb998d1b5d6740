"""What a sweep of tiny runs costs outside the simulation, and what the store costs: `python benchmarks/sweep.py`.

A tiny run is one round of one device on 400 small images. "Outside" is all wall-clock time of all workers in which none
of them is inside ``simulate``: starting processes, sending, checking, storing, waiting.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fedcell.learn.data import load_dataset
from fedcell.runs.records import encode
from fedcell.runs.store import Store
from fedcell.runs.sweep import run_sweep
from fedcell.schedule.plan import Plan
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec, parse_spec

CONSOLE = Console(width=110)


def tiny_spec(folder: Path, runs: int) -> Spec:
    d = load_dataset("mnist")
    data = folder / "small.npz"
    np.savez(data, train_x=d.train_x[:400], train_y=d.train_y[:400], test_x=d.test_x[:200], test_y=d.test_y[:200])
    task = {"data": str(data), "hidden": [8]}
    grid = {"seed": list(range(runs))}
    return parse_spec({"policy": "random:k=1", "rounds": 1, "task": task, "grid": grid}, "the benchmark")


def sweep_times(folder: Path, runs: int, workers: int) -> tuple[float, float, float]:
    """Wall seconds, seconds inside the simulation, seconds of a second sweep that finds all in the store."""
    spec = tiny_spec(folder, runs)
    with Store(folder / f"{runs}-{workers}.db") as store:
        began = time.perf_counter()
        result = run_sweep(spec, store, workers=workers)
        wall_s = time.perf_counter() - began
        assert result.done == runs
        inside_s = sum(run.duration_s for run in store.runs())
        began = time.perf_counter()
        assert run_sweep(spec, store, workers=workers).skipped == runs
        return wall_s, inside_s, time.perf_counter() - began


def store_times(folder: Path, rounds: int, devices: int) -> tuple[float, float, float]:
    """Seconds to encode, to write and to read one run; the least of several."""
    rng = np.random.default_rng(0)
    plan = Plan(np.arange(devices), rng.dirichlet(np.ones(devices)), 1.0)
    records = [RoundRecord(r, float(r), 1.0, plan, plan.devices, 0.5, 1.0) for r in range(1, rounds + 1)]
    times: list[tuple[float, float, float]] = []
    with Store(folder / f"store-{rounds}-{devices}.db") as store:
        for seed in range(10):
            spec, start = Spec(seed=seed), time.perf_counter()
            for record in records:
                encode(record)
            encoded = time.perf_counter()
            store.put(spec, records)
            stored = time.perf_counter()
            store.get(spec)
            times.append((encoded - start, stored - encoded, time.perf_counter() - stored))
    encode_s, put_s, get_s = (min(column) for column in zip(*times, strict=True))
    return encode_s, put_s, get_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = Table("workers", "wall s", "inside, ms a run", "outside, ms a run", "skipped, ms a run", title="Sweep")
        for workers in options.workers:
            wall_s, inside_s, skip_s = sweep_times(folder, options.runs, workers)
            each = [inside_s, workers * wall_s - inside_s, skip_s]
            table.add_row(str(workers), f"{wall_s:.1f}", *(f"{1e3 * value / options.runs:.2f}" for value in each))
        CONSOLE.print(table)
        table = Table("rounds", "devices", "encode ms", "put ms", "get ms", title="Store, one run")
        for rounds, devices in ((1, 1), (40, 8), (1000, 20)):
            row = [f"{1e3 * value:.2f}" for value in store_times(folder, rounds, devices)]
            table.add_row(str(rounds), str(devices), *row)
        CONSOLE.print(table)


if __name__ == "__main__":
    main()
