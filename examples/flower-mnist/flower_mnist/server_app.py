"""The base station: FedAvg as ever, but fedcell says who trains."""

import logging
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcell.flower import CellRadio, Scheduled, SimulatedRadio
from fedcell.rng import stream
from fedcell.sim.loop import world_of
from flower_mnist.task import spec_of, task_of, to_arrays, to_model

app = ServerApp()
MANY_ROUNDS = 100_000


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train until the budget is spent."""
    spec = spec_of(context.run_config)
    task = task_of(spec)
    world = world_of(spec, task)
    simulated = context.run_config["radio"] == "simulated"
    state = str(context.run_config["state"]) or str(Path.home() / "fedcell-runs" / str(context.run_id))
    strategy = Scheduled(
        FedAvg(fraction_evaluate=0.0),
        spec.policy,
        radio=SimulatedRadio(world, spec.seed, spec.knowledge) if simulated else CellRadio(world.cell),
        seed=spec.seed,
        nodes=spec.devices.count,
        budget_s=spec.budget_s,
        target_accuracy=spec.target_accuracy,
        state=state,
        spec=spec,
    )

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        result = task.engine.evaluate(to_model(arrays)[None])
        return MetricRecord({"accuracy": float(result.accuracy[0]), "loss": float(result.loss[0])})

    start = to_arrays(task.engine.initial(stream(spec.seed, "model")))
    strategy.start(grid, start, num_rounds=spec.rounds or MANY_ROUNDS, evaluate_fn=evaluate)
    logging.getLogger("flwr").info("See it with: fedcell flower %s", state)
