"""Flower: its simulation runtime (Ray, an actor a core) with its FedAvg and evaluation at the server."""

import logging
import os
import sys
from importlib.metadata import version
from typing import Any

import torch
from benchmarks.peers.common import Stopwatch, load, report
from benchmarks.peers.flower_client import app as client_app
from benchmarks.peers.torch_common import evaluate, make_model, set_weights
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

CORES = len(os.sched_getaffinity(0))


def main(path: str, poll_s: float | None) -> None:
    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    work = load(path)
    model = make_model(work.start)
    test = torch.as_tensor(work.test_x), torch.as_tensor(work.test_y)
    watch, accuracies = Stopwatch(work), []
    server_app = ServerApp()

    @server_app.main()  # type: ignore[untyped-decorator, unused-ignore]
    def serve(grid: Grid, _: Context) -> None:
        if poll_s is not None:
            vars(grid)["pull_interval"] = poll_s  # the simulation's own grid has it

        def evaluate_fn(_: int, arrays: Any) -> MetricRecord:
            set_weights(model, arrays.to_numpy_ndarrays())
            accuracy, loss = evaluate(model, *test)
            accuracies.append(accuracy)
            watch.lap()
            return MetricRecord({"accuracy": accuracy, "loss": loss})

        strategy = FedAvg(
            fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=work.clients, min_available_nodes=work.clients
        )
        config = ConfigRecord({"path": path})
        strategy.start(grid, ArrayRecord(work.start), work.rounds, train_config=config, evaluate_fn=evaluate_fn)

    resources = {"num_cpus": 1, "num_gpus": 0.0}
    config: Any = {"client_resources": resources, "init_args": {"num_cpus": CORES, "logging_level": "error"}}
    run_simulation(server_app, client_app, work.clients, backend_config=config)
    polled = "" if poll_s is None else f"; looks for results every {1e3 * poll_s:g} ms, not 100"
    report(version("flwr"), watch, accuracies[-1], f"Ray, {CORES} actors, PyTorch, a thread each{polled}")


if __name__ == "__main__":
    main(sys.argv[-1], float(sys.argv[1]) if len(sys.argv) > 2 else None)
