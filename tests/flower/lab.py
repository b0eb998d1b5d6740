"""A federation in virtual time: the real Scheduled, real strategies and ClientApps; only the clock is ours."""

import sys
import time
import types
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

import fedcell.flower.messages
from fedcell.flower import Report, Scheduled, report_device, timed
from flower.local import LocalGrid

Behaviour = Callable[[int, int], float]
"""From a device and how often it was asked to train so far, from 1, to how many seconds it trains; infinity if the
message is lost."""


@dataclass
class Clock:
    """What fedcell takes for Python's ``time``; it moves when somebody sleeps."""

    now_s: float = 0.0
    training_s: float = 0.0

    def monotonic(self) -> float:
        """Seconds; a node that trains is ahead of the others."""
        return self.now_s + self.training_s

    def sleep(self, seconds: float) -> None:
        """Nobody waits."""
        self.now_s += seconds


class LabGrid(LocalGrid):
    """Replies come when their node has trained and sent, by the clock of the lab."""

    def __init__(self, clock: Clock, nodes: dict[int, tuple[ClientApp, Context]], upload_s: float) -> None:
        super().__init__(nodes)
        self.clock, self.upload_s = clock, upload_s

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Let each node answer, all at once."""
        sent = []
        for message in messages:
            sent.append(uuid.uuid4().hex)
            message.metadata.__dict__["_message_id"] = sent[-1]
            app, context = self.nodes[message.metadata.dst_node_id]
            self.clock.training_s = 0.0
            reply = app(message, context)
            took_s, self.clock.training_s = self.clock.training_s, 0.0
            reply.metadata.__dict__["_reply_to_message_id"] = sent[-1]
            self._answers[sent[-1]] = self.clock.now_s + took_s + self.upload_s, reply
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The answers that are there by now."""
        ready = [i for i in message_ids if i in self._answers and self._answers[i][0] <= self.clock.now_s + 1e-9]
        return [self._answers.pop(message_id)[1] for message_id in ready]


@dataclass
class Lab:
    """Runs in virtual time.

    Attributes:
        clock: of the lab.
    """

    clock: Clock = field(default_factory=Clock)

    def run(
        self, policy: str, reports: list[Report], trains: Behaviour, rounds: int, upload_s: float = 0.0, **settings: Any
    ) -> Scheduled:
        """Play rounds with a device for each report, and return the strategy, whose rounds say how it went."""
        nodes = {1000 + i: self._node(i, report, trains) for i, report in enumerate(reports)}
        scheduled = Scheduled(FedAvg(fraction_evaluate=0.0), policy, nodes=len(reports), **settings)
        model = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
        scheduled.start(LabGrid(self.clock, nodes, upload_s), model, num_rounds=rounds)
        return scheduled

    def _node(self, device: int, report: Report, trains: Behaviour) -> tuple[ClientApp, Context]:
        app, asked = ClientApp(mods=[timed]), [0]
        report_device(app, report)

        @app.train()
        def train(message: Message, _: Context) -> Message:
            asked[0] += 1
            self.clock.training_s += trains(device, asked[0])
            arrays = ArrayRecord({"w": Array(message.content.array_records["arrays"]["w"].numpy() + np.float32(1))})
            return Message(
                RecordDict({"a": arrays, "m": MetricRecord({"num-examples": 1, "train_loss": 9.0 / asked[0]})}),
                reply_to=message,
            )

        return app, Context(1, 1000 + device, {"partition-id": device}, RecordDict(), {})


@contextmanager
def laboratory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab: all of fedcell.flower lives by its clock, and pulls from its grid never block."""
    lab = Lab()
    for name in ("_run_id", "_node_id", "_task_id"):  # which Flower sets in its own processes
        monkeypatch.setattr(TaskIdentity, name, 1)
    stand_in = types.SimpleNamespace(monotonic=lab.clock.monotonic, sleep=lab.clock.sleep, time=lab.clock.monotonic)
    for name, module in list(sys.modules.items()):
        if name.startswith("fedcell.flower") and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", stand_in)
    monkeypatch.setattr(fedcell.flower.messages, "_apart", fedcell.flower.messages._together)
    yield lab
