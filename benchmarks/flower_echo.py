"""A Flower client that sends back what it got: a module of its own, so that Ray's actors import it."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcell.flower import Report, report_device, timed

app = ClientApp(mods=[timed])


def describe(context: Context) -> Report:
    """A link and a speed that differ from node to node."""
    number = int(context.node_config["partition-id"])
    return Report(samples=3000, compute_s=1.0 + 0.01 * number, snr_db=5.0 + 0.2 * number)


report_device(app, describe)


@app.train()
def train(message: Message, context: Context) -> Message:  # noqa: ARG001
    """No training: the cost of everything else is wanted."""
    arrays = ArrayRecord(message.content.array_records["arrays"].to_numpy_ndarrays())
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
