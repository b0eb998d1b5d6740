"""A device: it says who it is, and trains when it is asked to."""

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcell.flower import Report, answer_loss, compressed, epochs_of, report_device, timed, upload_when_asked
from fedcell.learn.engine import Job
from fedcell.rng import keyed
from fedcell.sim.loop import jobs
from flower_mnist.task import run_of, to_arrays, to_model

app = ClientApp(mods=[timed, compressed, upload_when_asked])


def describe(context: Context) -> Report:
    """What this node knows of itself; a real one would ask its modem."""
    run = run_of(context.run_config)
    device = int(context.node_config["partition-id"])
    snr_db = context.node_config.get("snr-db")
    return Report(
        samples=len(run.task.parts[device]),
        snr_db=None if snr_db is None else float(snr_db),
        any_epochs=True,  # see train
        profile=run.report(device),  # as in the simulator; of a model in PyTorch: profile_of(model, batches)
    )


def loss(message: Message, context: Context) -> float:
    """The model's loss on the device's own digits, for policies that ask for it before they choose."""
    run, device = run_of(context.run_config), int(context.node_config["partition-id"])
    config, digits = message.content.config_records["config"], run.task.parts[device]
    if "fedcell-samples" in config:  # on some of them, as the simulator would draw them
        draw = keyed(run.spec.seed, "poll", int(str(config["fedcell-round"])))
        digits = draw(device).permutation(digits)[: int(str(config["fedcell-samples"]))]
    model = to_model(message.content.array_records["arrays"])
    return float(run.task.engine.losses([Job(model, digits[np.newaxis])])[0])


report_device(app, describe)
answer_loss(app, loss)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the device's own digits, in the order in which the simulator would visit them."""
    run = run_of(context.run_config)
    spec, task, device = run.spec, run.task, int(context.node_config["partition-id"])
    number = int(str(message.content.config_records["config"]["fedcell-round"]))
    start = to_model(message.content.array_records["arrays"])
    epochs = np.array([epochs_of(message, spec.task.epochs)])
    one, rms = np.array([device]), run.policy.uses_rms
    updates = task.engine.update(jobs(task, start, one, spec, number, rms=rms, epochs=epochs))
    weight = len(task.parts[device]) if spec.task.aggregator == "samples" else 1
    metrics = MetricRecord({"num-examples": weight, "train_loss": float(updates.losses[0])})
    if run.policy.uses_rms:
        metrics["train_loss_rms"] = float(updates.rms[0])
    return Message(RecordDict({"arrays": to_arrays(updates.models()[0], task), "metrics": metrics}), reply_to=message)
