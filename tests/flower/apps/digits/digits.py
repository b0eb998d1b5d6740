"""Softmax regression on a few digits, in NumPy: an app of a federation that is slow, fails and lies when told to.

The folder has ``test.npz`` and for each device ``part-I.npz`` with ``x`` and ``y``. While there is a file ``slow-I``,
device I needs the seconds in it for training; while there is ``lie-I``, it sends the nonsense that the file names.
"""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedcell.flower import Report, report_device, timed

CLASSES, PIXELS, BATCH, RATE = 10, 784, 10, 0.05
server = ServerApp()
client = ClientApp(mods=[timed])


def scores(arrays: dict[str, Any], x: Any) -> Any:
    return x @ arrays["w"] + arrays["b"]


@server.main()
def main(grid: Grid, context: Context) -> None:
    from flwr.serverapp.strategy import FedAvg

    from fedcell.flower import Scheduled

    config = context.run_config
    folder, target = Path(str(config["folder"])), float(str(config["target"]))
    with np.load(folder / "test.npz") as test:
        x, y = test["x"], test["y"]

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        model = {name: array.numpy() for name, array in arrays.items()}
        return MetricRecord({"accuracy": float(np.mean(scores(model, x).argmax(axis=1) == y))})

    strategy = Scheduled(
        FedAvg(fraction_evaluate=0.0),
        str(config["policy"]),
        seed=int(str(config["seed"])),
        nodes=int(str(config["nodes"])),
        target_accuracy=target or None,
        state=folder / str(config["state"]),
    )
    start = {"w": np.zeros((PIXELS, CLASSES), np.float32), "b": np.zeros(CLASSES, np.float32)}
    model = ArrayRecord({name: Array(array) for name, array in start.items()})
    strategy.start(grid, model, num_rounds=int(str(config["rounds"])), evaluate_fn=evaluate)


def part(context: Context) -> tuple[int, Path, Any, Any]:
    i, folder = int(str(context.node_config["partition-id"])), Path(str(context.run_config["folder"]))
    with np.load(folder / f"part-{i}.npz") as data:
        return i, folder, data["x"], data["y"]


def describe(context: Context) -> Report:
    """Its digits, and nothing of its link or speed."""
    _, _, _, y = part(context)
    return Report(samples=len(y), profile=(np.bincount(y, minlength=CLASSES) / len(y)).tolist())


report_device(client, describe)


@client.train()
def train(message: Message, context: Context) -> Message:
    began_s = time.monotonic()
    i, folder, x, y = part(context)
    arrays = {name: array.numpy().copy() for name, array in message.content.array_records["arrays"].items()}
    order = np.random.default_rng([i, int(str(message.content.config_records["config"]["fedcell-round"]))])
    for batch in np.array_split(order.permutation(len(y)), math.ceil(len(y) / BATCH)):
        chances = np.exp(scores(arrays, x[batch]) - scores(arrays, x[batch]).max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(len(batch)), y[batch]] -= 1.0
        arrays["w"] -= np.float32(RATE / len(batch)) * (x[batch].T @ chances)
        arrays["b"] -= np.float32(RATE / len(batch)) * chances.sum(axis=0)
    if (slow := folder / f"slow-{i}").exists():
        time.sleep(max(0.0, float(slow.read_text() or 0.0) - (time.monotonic() - began_s)))
    lie = (folder / f"lie-{i}").read_text() if (folder / f"lie-{i}").exists() else ""
    return Message(reply(arrays, len(y), lie), reply_to=message)


def reply(arrays: dict[str, Any], examples: int, lie: str) -> RecordDict:
    """What the device sends, with the lie in it: nan, huge, shape, bytes, examples, metric, nothing, or none."""
    if lie == "nan":
        arrays["w"][0, 0] = np.nan
    elif lie == "huge":
        arrays["w"] += np.float32(1e30)
    elif lie == "shape":
        arrays["w"] = arrays["w"][:3]
    sent = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    if lie == "bytes":
        sent["w"] = Array("float32", (PIXELS, CLASSES), "numpy.ndarray", b"abc")
    metrics: dict[str, Any] = {"num-examples": math.inf if lie == "examples" else examples}
    metrics |= {"loss": math.nan if lie == "metric" else 0.0}
    records: dict[str, Any] = {} if lie == "nothing" else {"arrays": sent, "metrics": MetricRecord(metrics)}
    return RecordDict(records)
