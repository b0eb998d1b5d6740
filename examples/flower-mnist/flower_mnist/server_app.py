"""The base station: FedAvg as ever, but fedcell says who trains."""

import logging
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcell import parse_law
from fedcell.flower import CellRadio, Scheduled, SimulatedRadio
from flower_mnist.task import run_of, to_arrays, to_model

app = ServerApp()
MANY_ROUNDS = 100_000


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train until the budget is spent."""
    run = run_of(context.run_config)
    spec, task, world, start = run.spec, run.task, run.world, run.start()
    simulated = context.run_config["radio"] == "simulated"
    reported = CellRadio(world.cell, parse_law(spec.cell.law))
    state = str(context.run_config["state"]) or str(Path.home() / "fedcell-runs" / str(context.run_id))
    strategy = Scheduled(
        FedAvg(fraction_evaluate=0.0),
        spec.policy,
        radio=SimulatedRadio(world, spec.seed, spec.knowledge, spec.cell.law) if simulated else reported,
        seed=spec.seed,
        nodes=spec.devices.count,
        budget_s=spec.budget_s,
        target_accuracy=spec.target_accuracy,
        averaging="balanced" if spec.task.aggregator == "balanced" else "strategy",
        epsilon=spec.epsilon,
        explore=spec.explore,
        start_s=start.clock_s if simulated else 0.0,
        state=state,
        spec=spec,
    )

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        result = task.engine.evaluate(to_model(arrays)[None])
        return MetricRecord({"accuracy": float(result.accuracy[0]), "loss": float(result.loss[0])})

    strategy.start(grid, to_arrays(start.model, task), num_rounds=spec.rounds or MANY_ROUNDS, evaluate_fn=evaluate)
    logging.getLogger("flwr").info("See it with: fedcell flower %s", state)
