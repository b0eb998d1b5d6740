"""A device: it says who it is, and trains when it is asked to."""

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcell.flower import Report, report_device, timed
from fedcell.learn.engine import Job
from fedcell.rng import keyed
from fedcell.sim.loop import visits
from flower_mnist.task import run_of, to_arrays, to_model

app = ClientApp(mods=[timed])


def describe(context: Context) -> Report:
    """What this node knows of itself; a real one would ask its modem."""
    run = run_of(context.run_config)
    device = int(context.node_config["partition-id"])
    snr_db = context.node_config.get("snr-db")
    return Report(
        samples=len(run.task.parts[device]),
        snr_db=None if snr_db is None else float(snr_db),
        profile=run.report(device),  # as in the simulator; of a model in PyTorch: profile_of(model, batches)
    )


report_device(app, describe)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the device's own digits, in the order in which the simulator would visit them."""
    run = run_of(context.run_config)
    spec, task, device = run.spec, run.task, int(context.node_config["partition-id"])
    number = int(str(message.content.config_records["config"]["fedcell-round"]))
    order = visits(task.parts[device], spec.task.epochs, keyed(spec.seed, "batches", number)(device))
    [model] = task.engine.train([Job(to_model(message.content.array_records["arrays"]), order)])
    weight = len(task.parts[device]) if spec.task.averaging == "samples" else 1
    metrics = MetricRecord({"num-examples": weight})
    return Message(RecordDict({"arrays": to_arrays(model), "metrics": metrics}), reply_to=message)
