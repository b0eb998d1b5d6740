"""A sweep on a Dask cluster against the same on this machine's own processes: python benchmarks/cluster.py [--runs N].

A scheduler and 1, 2 and 4 workers of one thread each, all on this machine, as `fedcell sweep --cluster` finds them; and
as many worker processes as `--workers` starts. Both have begun before, and take turns. A small run is the paper's cell
with random devices for five rounds; a tiny one is benchmarks/sweep.py's, so small that it shows what a run costs
besides its work.
"""

import argparse
import logging
import sys
import tempfile
import time
from concurrent.futures import Executor
from importlib import import_module
from pathlib import Path
from typing import Any

from fedcell.runs.processes import Processes
from fedcell.runs.store import Store
from fedcell.runs.sweep import run_sweep
from fedcell.sim.spec import Spec, parse_spec

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.sweep import tiny_spec

TURNS = 3


def small_spec(runs: int) -> Spec:
    return parse_spec({"policy": "random:k=5", "rounds": 5, "grid": {"seed": list(range(runs))}}, "the benchmark")


def runs_per_s(specs: list[Spec], folder: Path, executor: Executor, workers: int) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as place, Store(Path(place) / "results.db") as store:
        began = time.perf_counter()
        result = run_sweep(specs, store, executor, workers)
        assert result.done == len(specs)
        return len(specs) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    chosen = parser.parse_args()
    distributed: Any = import_module("distributed")  # it has no types
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        specs = {"tiny": tiny_spec(folder, chosen.runs).runs(), "small": small_spec(chosen.runs).runs()}
        for workers in chosen.workers:
            with (
                distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
                distributed.Client(cluster) as client,
                Processes(workers) as own,
            ):
                sides: dict[str, Executor] = {"cluster": client.get_executor(), "workers": own}
                for kind, runs in specs.items():
                    found: dict[str, list[float]] = {side: [] for side in sides}
                    for turn in range(1 + TURNS):
                        for side, executor in sides.items():
                            rate = runs_per_s(runs[: 4 * workers] if turn == 0 else runs, folder, executor, workers)
                            found[side] += [rate] if turn else []
                    best = {side: max(rates) for side, rates in found.items()}
                    print(
                        f"{workers} workers, {kind:5} runs: --cluster {best['cluster']:7.1f} runs a second   "
                        f"--workers {best['workers']:7.1f}   ratio {best['cluster'] / best['workers']:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
