"""my-app: a node. The lines marked "fedcell" are all that differs from another Flower app."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcell.flower import (  # fedcell  # fedcell
    Report,
    answer_loss,
    compressed,
    epochs_of,
    profile_of,
    report_device,
    timed,
    upload_when_asked,
)
from my_app import task

# fedcell: tell the server how long training took, send as many bits a weight as it says, and for policies that choose
# after training, keep the model till then
app = ClientApp(mods=[timed, compressed, upload_when_asked])


def describe(context: Context) -> Report:
    """fedcell: tell the server about this node; it asks once, before it first plans."""
    loader, _ = load_data(context)
    snr_db = context.node_config.get("snr-db")  # in a real cell, ask the modem
    torch.manual_seed(0)  # profiles must start from the same model everywhere
    return Report(
        samples=len(loader.dataset),
        any_epochs=True,  # see train
        snr_db=None if snr_db is None else float(snr_db),
        profile=profile_of(task.Net(), loader),  # what the data is like, for the policy "diverse"
    )


def loss(message: Message, context: Context) -> float:
    """fedcell: tell the model's loss on the training data, for policies that ask for it before they choose."""
    net, device = load_model(message)
    loader, _ = load_data(context)
    return task.test(net, loader, device)[0]


report_device(app, describe)  # fedcell
answer_loss(app, loss)  # fedcell


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model on this node's data."""
    net, device = load_model(message)
    loader, _ = load_data(context)
    learning_rate = float(message.content["config"]["learning-rate"])
    epochs = epochs_of(message, float(context.run_config["local-epochs"]))  # fedcell: as long as the policy decides
    loss = task.train(net, loader, epochs, learning_rate, device)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the model on this node's data."""
    net, device = load_model(message)
    _, loader = load_data(context)
    loss, accuracy = task.test(net, loader, device)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def load_model(message: Message) -> tuple[task.Net, torch.device]:
    """Return the model that the server sent, and where to run it."""
    net = task.Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return net, torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def load_data(context: Context) -> tuple[task.Loader, task.Loader]:
    """Return this node's training and validation data."""
    node = context.node_config
    return task.load_data(int(node["partition-id"]), int(node["num-partitions"]), int(context.run_config["batch-size"]))
