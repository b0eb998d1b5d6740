"""Devices behind Flower's nodes: each node is asked for its report once, or again when the server wants it."""

import time
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedcell.errors import InputError
from fedcell.flower.client import FAULT, QUERY, RECORD, Report, parse_report
from fedcell.flower.collect import POLL_S, pull, push
from fedcell.flower.compat import LOG, was_lost
from fedcell.flower.radio import Device

MAX_QUERIES = 5
"""A node whose report cannot be used is asked again in up to so many rounds."""


@dataclass
class Nodes:
    """The devices behind the nodes that are connected.

    Attributes:
        answer_s: seconds to wait for answers if the round cannot start without them.
        devices: the known devices, by node id.
    """

    answer_s: float
    devices: dict[int, Device] = field(default_factory=dict)
    _asked: dict[str, Message] = field(default_factory=dict)  # by message id
    _failed: dict[int, int] = field(default_factory=dict)  # node -> answers in a row that could not be used
    _warned: set[tuple[int, str]] = field(default_factory=set)

    def wait_for(self, grid: Grid, count: int, wait_s: float) -> None:
        """Wait until ``count`` nodes are connected, or at most ``wait_s`` seconds; raise if there is none then."""
        give_up_s = time.monotonic() + wait_s
        there = len(list(grid.get_node_ids()))
        if there < count:
            LOG.info("fedcell: %d of %d nodes are connected; waiting up to %g s for the others", there, count, wait_s)
        while there < count and time.monotonic() < give_up_s:
            time.sleep(POLL_S)
            there = len(list(grid.get_node_ids()))
        if there == 0:
            raise InputError(f"no node has connected within {wait_s:g} s; start SuperNodes, then run again")
        if there < count:
            LOG.warning("fedcell: continuing with %d of the %d expected nodes", there, count)

    def meet(self, grid: Grid, *, ask_all: bool = False) -> list[int]:
        """Ask new nodes (or all) for their reports, and return those that have answered, one for each name.

        A node whose answer could not be used is asked again, a few times; it is scheduled meanwhile.

        It waits for answers only if no device is known yet or all were asked: a node that joins late must not delay
        the others. A node that never answers would not train either.
        """
        there = list(grid.get_node_ids())
        known = any(node in self.devices for node in there)
        waiting = self._waiting()
        again = {node for node, times in self._failed.items() if times < MAX_QUERIES}
        wanted = there if ask_all else [n for n in there if n not in self.devices or n in again]
        asked = self._ask(grid, [n for n in wanted if n not in waiting])
        self._hear(grid)
        if ask_all or not known:
            asked = asked if known else set(self._asked)
            give_up_s = time.monotonic() + self.answer_s
            while asked & set(self._asked) and time.monotonic() < give_up_s:
                time.sleep(POLL_S)
                self._hear(grid)
        for node in (self._waiting() & set(there)) - set(self.devices):
            self._warn(node, f"node {node} has not answered yet and is not scheduled until it does")
        return self._one_each([node for node in there if node in self.devices])

    def _waiting(self) -> set[int]:
        return {message.metadata.dst_node_id for message in self._asked.values()}

    def _ask(self, grid: Grid, nodes: list[int]) -> set[str]:
        """Ask these nodes; return the ids of the messages that could be sent."""
        messages = [Message(RecordDict({RECORD: ConfigRecord({"ask": "report"})}), node, QUERY) for node in nodes]
        sent = push(grid, messages) if messages else {}
        self._asked |= sent
        return set(sent)

    def _hear(self, grid: Grid) -> None:
        if self._asked:
            for reply in pull(grid, self._asked):
                node = self._asked.pop(reply.metadata.reply_to_message_id).metadata.dst_node_id
                if not was_lost(reply):  # else it is asked again when it is there
                    self.devices[node] = self._read(node, reply)

    def _read(self, node: int, reply: Message) -> Device:
        """Return the device that answers. Nothing in an answer is trusted."""
        if reply.has_error() or RECORD not in reply.content.config_records:
            why = str(reply.error.reason)[:200] if reply.has_error() else "its answer is not a report"
            return self._refuse(node, str(node), f"does its app call report_device? ({why})")
        record: dict[str, Any] = dict(reply.content.config_records[RECORD])
        try:
            name = Report(name=str(record.get("name", ""))).name or str(node)
        except InputError as error:
            return self._refuse(node, str(node), str(error))
        if FAULT in record:
            return self._refuse(node, name, str(record[FAULT])[:500])
        try:
            Report(profile=record.get("profile"))
        except InputError as error:  # the rest of the report may still be of use
            del record["profile"]
            self._warn(node, f"the profile of device {name} is not used: {error}")
        try:
            report = parse_report(record | {"name": name})
        except InputError as error:
            return self._refuse(node, name, str(error))
        self._failed.pop(node, None)
        return Device(name, report)

    def _refuse(self, node: int, name: str, why: str) -> Device:
        """Warn, remember to ask again, and return the device with what it last said that could be used."""
        self._warn(node, f"the report of device {name} cannot be used: {why}")
        self._failed[node] = self._failed.get(node, 0) + 1
        return self.devices.get(node) or Device(name, Report())

    def _warn(self, node: int, what: str) -> None:
        if (node, what) not in self._warned:
            self._warned.add((node, what))
            LOG.warning("fedcell: %s", what)

    def _one_each(self, nodes: list[int]) -> list[int]:
        """Return nodes with distinct names: of two with the same name the later one, which has restarted."""
        last = {device.name: node for node, device in self.devices.items() if node in nodes}
        for node in nodes:
            name = self.devices[node].name
            if last[name] != node:
                self._warn(
                    node,
                    f"two nodes have the name {name}; assuming that node {node} has restarted as {last[name]} "
                    "(if both are connected, give each its own partition-id)",
                )
        return [node for node in nodes if last[self.devices[node].name] == node]
