"""A grid whose nodes are ClientApps in this process: Scheduled's whole run, without Flower's own processes."""

import importlib
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from flower.runs import EXAMPLE

Nodes = dict[int, tuple[ClientApp, Context]]


class LocalGrid(Grid):
    """Every message is answered at once, or after a delay, as over a network.

    Args:
        nodes: by node id, its app and its context; may be changed between rounds.
        delay_s: from a message to the seconds after which its answer can be pulled; inf for never.
    """

    def __init__(self, nodes: Nodes, delay_s: Callable[[Message], float] = lambda _: 0.0) -> None:
        self.nodes, self.delay_s = nodes, delay_s
        self._answers: dict[str, tuple[float, Message]] = {}

    def set_run(self, run: Any) -> None:
        """Nothing."""

    @property
    def run(self) -> Any:
        """Nobody asks."""
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        """Flower's older interface."""
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Flower's own."""
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        """All nodes."""
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Let each node answer."""
        sent = []
        for message in messages:
            sent.append(str(uuid4()))
            message.metadata.__dict__["_message_id"] = sent[-1]
            app, context = self.nodes[message.metadata.dst_node_id]
            try:
                answer = app(message, context)
            except Exception as error:  # as Flower's own processes do
                answer = Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=message)
            self._answers[sent[-1]] = time.monotonic() + self.delay_s(message), answer
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The answers to these messages."""
        now_s = time.monotonic()
        ready = [i for i in message_ids if i in self._answers and self._answers[i][0] <= now_s]
        return [self._answers.pop(message_id)[1] for message_id in ready]


def node(
    app: ClientApp, number: int, run_config: dict[str, Any] | None = None, **node_config: Any
) -> tuple[ClientApp, Context]:
    """An app and the context of a node with this partition-id."""
    return app, Context(1, 1000 + number, {"partition-id": number, **node_config}, RecordDict(), run_config or {})


def run_example(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the ServerApp of examples/flower-mnist and its own clients."""
    run_app(EXAMPLE, values, monkeypatch, nodes=values.get("devices.count", 20))


def run_app(folder: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    """Run the ServerApp in a folder, and its own clients on so many nodes."""
    monkeypatch.syspath_prepend(str(folder))
    for name in ("_run_id", "_node_id", "_task_id"):  # which Flower sets in its own processes
        monkeypatch.setattr(TaskIdentity, name, 1)
    app = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    client, server = (_loaded(app["components"][part]) for part in ("clientapp", "serverapp"))
    config = dict(_flat(app["config"])) | values
    # Ids in an order that is not that of the devices.
    numbers = {7919 * (number + 3) % 1009: number for number in range(nodes)}
    grid = LocalGrid({i: node(client, n, config, **{"num-partitions": nodes}) for i, n in numbers.items()})
    server(grid, Context(1, 1, {}, RecordDict(), config))


def _loaded(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def _flat(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
