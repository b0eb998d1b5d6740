"""my-app: the server. The lines marked "fedcell" are all that differs from another Flower app."""

from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcell import Cell, Devices, World  # fedcell
from fedcell.flower import Scheduled, SimulatedRadio  # fedcell
from my_app import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, evaluate after each round and save the final model."""
    config = context.run_config
    seed = int(config["seed"])
    torch.manual_seed(seed)
    arrays = ArrayRecord(task.Net().state_dict())
    strategy = FedAvg(fraction_evaluate=float(config["fraction-evaluate"]))

    # fedcell: where links come from (add yours, such as Cell(bandwidth_hz=10e6) for a band that all nodes share).
    model_bits = 8 * sum(len(array.data) for array in arrays.values())
    drawn = World(Cell(model_bits=model_bits), Devices(count=100))  # with room for 100 nodes
    radios = {"reported": None, "simulated": SimulatedRadio(drawn, seed)}

    # fedcell: the policy decides who trains in each round, and the strategy does the rest.
    policy, radio = str(config["policy"]), radios.get(str(config["radio"]), str(config["radio"]))
    state = Path(str(config["state"]) or f"~/fedcell-runs/{context.run_id}").expanduser()
    epochs = float(config["local-epochs"])  # where the policy does not decide it
    strategy = Scheduled(
        strategy, policy, radio=radio, seed=seed, nodes=int(config["nodes"]), epochs=epochs, state=state
    )

    result = strategy.start(
        grid,
        arrays,
        num_rounds=int(config["num-server-rounds"]),
        train_config=ConfigRecord({"learning-rate": float(config["learning-rate"])}),
        evaluate_fn=evaluate,
    )
    torch.save(result.arrays.to_torch_state_dict(), state / "final_model.pt")


def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the model on the server's test data."""
    net = task.Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    loss, accuracy = task.test(net, task.load_test_data(batch_size=512), device)
    return MetricRecord({"loss": loss, "accuracy": accuracy})
