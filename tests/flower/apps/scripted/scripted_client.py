"""An app whose clients do what a test tells them: by their node config, their environment, and files in a folder.

A client that trains writes what its message said to ``trains-NAME-ROUND``, and does not go on while a file
``hold-NAME-ROUND`` is there. Device i adds 2^i to each weight, so that a model tells whose updates are in it.

Flower starts a process for each message: it does not import what only the server needs.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcell.flower import Report, answer_loss, report_device, timed, upload_when_asked

LONGEST_HOLD_S = 180.0
SILENT = "SCRIPTED_SILENT" in os.environ  # this SuperNode's app is one without report_device

app = ClientApp(mods=[timed, upload_when_asked])


def describe(context: Context) -> Report:
    """Device i: ``train-s`` + i / 10 s of training, and 0.01 (i + 1) s to upload; or an SNR, if its config has one."""
    i = int(str(context.node_config["partition-id"]))
    if "snr-db" in context.node_config:
        return Report(snr_db=float(str(context.node_config["snr-db"])))
    return Report(samples=100, compute_s=float(str(context.run_config["train-s"])) + i / 10, upload_s=0.01 * (i + 1))


if not SILENT:
    report_device(app, describe)
    answer_loss(app, lambda _, context: float(str(context.node_config["partition-id"])))


@app.train()
def train(message: Message, context: Context) -> Message:
    config = dict(message.content.config_records["config"])
    i, folder = int(str(context.node_config["partition-id"])), Path(str(context.run_config["folder"]))
    which = f"{i}-{config['fedcell-round']!r}"
    (folder / f"trains-{which}.tmp").write_text(json.dumps(config))
    os.replace(folder / f"trains-{which}.tmp", folder / f"trains-{which}")
    give_up_s = time.monotonic() + LONGEST_HOLD_S
    while (folder / f"hold-{which}").exists() and time.monotonic() < give_up_s:
        time.sleep(0.05)
    arrays = message.content.array_records["arrays"]
    moved = {name: Array(np.asarray(array.numpy() + 2**i, np.float32)) for name, array in arrays.items()}
    content = RecordDict({"arrays": ArrayRecord(moved), "metrics": MetricRecord({"num-examples": 100})})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    metrics = MetricRecord({"num-examples": 1, "device": float(str(context.node_config["partition-id"]))})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
