"""The server of the scripted app: one or several starts of a strategy, one after the other.

A start is the name of its state and a number of rounds: "whole:4"; one named "asks" is Asks' with Flower's FedAvg.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg

from fedcell import Policy, Question, RoundView
from fedcell.flower import Scheduled, SimulatedRadio
from fedcell.world import Cell, Devices, Redrawn, World

app = ServerApp()


@dataclass(frozen=True)
class Asks(Policy):
    """Asks all devices, for their losses or the lengths of their updates in turn, and takes the k largest."""

    k: int = 2

    def ask(self, view: RoundView, rng: np.random.Generator) -> Question:
        about: Literal["loss", "norm"] = "norm" if view.round_index % 2 else "loss"
        return Question(np.arange(len(view)), about)

    def choose(self, view: RoundView, rng: np.random.Generator) -> Any:
        return np.argsort(-(view.norms if view.round_index % 2 else view.losses))[: self.k]  # type: ignore[operator]


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    nodes, seed = int(str(config["nodes"])), int(str(config["seed"]))
    strategies = {"FedAvg": FedAvg, "FedAdam": FedAdam}
    world = World(Cell(), Devices(samples=[3000] * nodes), Redrawn())
    for start in str(config["starts"]).split():
        state, rounds = start.rsplit(":", 1)
        asks = state == "asks"
        inner = strategies["FedAvg" if asks else str(config["strategy"])]
        strategy = Scheduled(
            inner(fraction_evaluate=1.0 if config["evaluate"] else 0.0),
            Asks() if asks else str(config["policy"]),
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
