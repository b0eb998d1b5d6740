"""The Flower client: a module of its own, so that Ray's actors import it once instead of unpickling it every time."""

from functools import lru_cache
from typing import Any

import torch
from benchmarks.peers.common import load
from benchmarks.peers.torch_common import get_weights, make_model, set_weights, train
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

app = ClientApp()


@lru_cache(maxsize=1)
def client_state(path: str) -> tuple[nn.Sequential, Tensor, Tensor, Tensor]:
    """What an actor keeps: a model, the samples and the orders."""
    torch.set_num_threads(1)
    work = load(path)
    return make_model(work.start), torch.as_tensor(work.x), torch.as_tensor(work.y), torch.as_tensor(work.orders)


@app.train()  # type: ignore[untyped-decorator, unused-ignore]
def train_client(message: Message, context: Context) -> Message:
    received: Any = message.content
    config = received["config"]
    model, x, y, orders = client_state(str(config["path"]))
    client = int(context.node_config["partition-id"])
    set_weights(model, received["arrays"].to_numpy_ndarrays())
    train(model, x[client], y[client], orders[int(config["server-round"]) - 1, client])
    content: dict[str, Any] = {
        "arrays": ArrayRecord(get_weights(model)),
        "metrics": MetricRecord({"num-examples": x.shape[1]}),
    }
    return Message(RecordDict(content), reply_to=message)
