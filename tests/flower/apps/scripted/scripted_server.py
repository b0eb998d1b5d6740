"""The server of the scripted app: one or several starts of a strategy, one after the other."""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg

from fedcell.flower import Scheduled, SimulatedRadio
from fedcell.world import Cell, Devices, Redrawn, World

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    nodes, seed = int(str(config["nodes"])), int(str(config["seed"]))
    strategies = {"FedAvg": FedAvg, "FedAdam": FedAdam}
    world = World(Cell(), Devices(samples=[3000] * nodes), Redrawn())
    for start in str(config["starts"]).split():
        state, rounds = start.rsplit(":", 1)
        strategy = Scheduled(
            strategies[str(config["strategy"])](fraction_evaluate=1.0 if config["evaluate"] else 0.0),
            str(config["policy"]),
            radio=SimulatedRadio(world, seed, "observed") if config["radio"] == "simulated" else Cell(),
            nodes=nodes,
            seed=seed,
            slack=float(str(config["slack"])),
            grace_s=float(str(config["grace-s"])),
            answer_s=float(str(config["answer-s"])),
            poll_s=0.5,  # a poll is milliseconds of the SuperLink's, for each node
            state=Path(str(config["folder"])) / state,
        )
        model = ArrayRecord({"weights": Array(np.zeros(4, np.float32)), "bias": Array(np.zeros((2, 2), np.float32))})
        strategy.start(grid, model, num_rounds=int(rounds))
