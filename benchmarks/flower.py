"""What Scheduled adds to a round of Flower: `python benchmarks/flower.py [--nodes 100] [--rounds 10]`.

Both strategies run in one process and one simulation, over the same nodes with the paper's model: FedAvg bare, and the
same inside Scheduled with the policy All, so that both send as many messages. A round's time at the server is all but
the waiting for replies: configuring, sending, aggregating, and for Scheduled looking, deciding, judging and learning.
"""

import argparse
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Ray's actors import the client from here.
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"

from benchmarks.flower_echo import app as client_app  # noqa: E402
from flwr.app import ArrayRecord, Context  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg, Strategy  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

import fedcell as fc  # noqa: E402
from fedcell import machine  # noqa: E402
from fedcell.flower import Scheduled  # noqa: E402

PARAMETERS = 50_890


class Clock:
    """Seconds of a strategy's start outside the waiting, a round each."""

    def __init__(self) -> None:
        self.waited_s, self._thread = 0.0, threading.get_ident()

    def waiting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, its time counted as waiting."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                if threading.get_ident() == self._thread:  # other threads of Flower's sleep too
                    self.waited_s += time.perf_counter() - began

        return timed


def server_s(strategy: Strategy, grid: Grid, rounds: int) -> float:
    """Seconds a round that the server itself works, and not waits."""
    clock = Clock()
    sleep, pull = time.sleep, grid.pull_messages
    time.sleep = clock.waiting(sleep)
    grid.pull_messages = clock.waiting(pull)  # type: ignore[method-assign]
    try:
        model = ArrayRecord([np.zeros(PARAMETERS, dtype=np.float32)])
        began = time.perf_counter()
        strategy.start(grid, model, num_rounds=rounds)
        return (time.perf_counter() - began - clock.waited_s) / rounds
    finally:
        time.sleep, grid.pull_messages = sleep, pull  # type: ignore[method-assign]


def main(nodes: int, rounds: int, repeats: int) -> None:
    found: dict[str, list[float]] = {}
    app = ServerApp()

    @app.main()
    def serve(grid: Grid, _: Context) -> None:
        while len(list(grid.get_node_ids())) < nodes:
            time.sleep(0.1)
        bare = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
        server_s(bare, grid, 1)
        server_s(Scheduled(FedAvg(fraction_evaluate=0.0), fc.All(), nodes=nodes), grid, 1)  # compiled code is loaded
        for _repeat in range(repeats):
            found.setdefault("FedAvg", []).append(server_s(bare, grid, rounds))
            inner = FedAvg(fraction_evaluate=0.0)
            plain = Scheduled(inner, fc.All(), nodes=nodes)
            found.setdefault("Scheduled(FedAvg, All)", []).append(server_s(plain, grid, rounds))
            with tempfile.TemporaryDirectory() as folder:
                kept = Scheduled(inner, fc.All(), nodes=nodes, state=folder)
                found.setdefault("the same, state saved", []).append(server_s(kept, grid, rounds))

    logging.getLogger("flwr").setLevel(logging.ERROR)
    cores = machine.cores()
    resources = {"num_cpus": 1, "num_gpus": 0.0}
    config: Any = {"client_resources": resources, "init_args": {"num_cpus": cores, "logging_level": "error"}}
    run_simulation(app, client_app, nodes, backend_config=config)
    least = {name: min(times) for name, times in found.items()}
    base = least["FedAvg"]
    print(f"{nodes} nodes, {PARAMETERS:,} weights, {rounds} rounds, least of {repeats} repeats; target: 20 ms more")
    print(f"{'strategy':26} {'ms a round':>10} {'more, ms':>9} {'ratio':>6}")
    for name, value in least.items():
        print(f"{name:26} {1e3 * value:10.1f} {1e3 * (value - base):9.1f} {value / base:6.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    main(options.nodes, options.rounds, options.repeats)
