"""Flower's nodes and the devices they are: each is asked once who it is, and again when the server wants news."""

import logging
import time
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedcell.errors import InputError
from fedcell.flower.collect import POLL_S, push
from fedcell.flower.radio import Device
from fedcell.flower.report import QUERY, RECORD, Report, parse_report

LOG = logging.getLogger("flwr")
"""Flower's own logger, so that ``flwr run --stream`` shows our lines among its own."""


@dataclass
class Nodes:
    """Which node is which device.

    Attributes:
        answer_s: how long a node may take to answer before it counts as one that reports nothing.
        devices: by node id, the devices that are known.
    """

    answer_s: float
    devices: dict[int, Device] = field(default_factory=dict)
    _asked: dict[str, tuple[int, float]] = field(default_factory=dict)  # message id -> node, when
    _warned: set[str] = field(default_factory=set)

    def wait_for(self, grid: Grid, count: int, wait_s: float) -> None:
        """Return when so many nodes are there, or at least one after ``wait_s``."""
        give_up_s = time.monotonic() + wait_s
        there = len(list(grid.get_node_ids()))
        if there < count:
            LOG.info("fedcell: %d of %d nodes are there; waiting up to %g s for the rest", there, count, wait_s)
        while there < count and time.monotonic() < give_up_s:
            time.sleep(POLL_S)
            there = len(list(grid.get_node_ids()))
        if there == 0:
            raise InputError(f"no node has connected in {wait_s:g} s; start SuperNodes, then run again")
        if there < count:
            LOG.warning("fedcell: going on with %d of the %d nodes expected", there, count)

    def meet(self, grid: Grid, *, ask_all: bool = False) -> list[int]:
        """Ask the nodes that are new (or all), and return those that are there and known, with one name each.

        It waits for answers only where it would know nobody otherwise, or where news is wanted: a node that joins late
        must not hold up the others.
        """
        there = list(grid.get_node_ids())
        waiting = {node for node, _ in self._asked.values()}
        self._ask(grid, [n for n in there if n not in waiting and (ask_all or n not in self.devices)])
        self._hear(grid)
        wait = ask_all or not any(node in self.devices for node in there)
        while wait and self._asked:
            time.sleep(POLL_S)
            self._hear(grid)
        return self._one_each([node for node in there if node in self.devices])

    def _ask(self, grid: Grid, nodes: list[int]) -> None:
        messages = [Message(RecordDict({RECORD: ConfigRecord({"ask": "report"})}), node, QUERY) for node in nodes]
        if messages:
            self._asked |= {message_id: (node, time.monotonic()) for message_id, node in push(grid, messages).items()}

    def _hear(self, grid: Grid) -> None:
        if not self._asked:
            return
        for reply in list(grid.pull_messages(list(self._asked))):
            node, _ = self._asked.pop(reply.metadata.reply_to_message_id)
            self.devices[node] = self._read(node, reply)
        for message_id, (node, asked_s) in list(self._asked.items()):
            if time.monotonic() - asked_s > self.answer_s:
                del self._asked[message_id]
                if node not in self.devices:
                    self.devices[node] = self._unknown(str(node), f"it has not answered in {self.answer_s:g} s")

    def _read(self, node: int, reply: Message) -> Device:
        known = self.devices.get(node)
        try:
            if reply.has_error() or RECORD not in reply.content.config_records:
                raise InputError("its app does not answer (fedcell.flower.report_device)")
            record = dict(reply.content.config_records[RECORD])
        except InputError as error:
            return known or self._unknown(str(node), str(error))
        name = str(record.get("name", ""))
        try:
            report = parse_report(record)
        except InputError as error:
            safe = Report(name=name).name if name.isprintable() and len(name) <= 200 else ""
            return self._unknown(safe or str(node), str(error))
        return Device(report.name or str(node), report)

    def _unknown(self, name: str, why: str) -> Device:
        if name not in self._warned:
            self._warned.add(name)
            LOG.warning("fedcell: node %s reports nothing of use: %s", name, why)
        return Device(name, Report())

    def _one_each(self, nodes: list[int]) -> list[int]:
        """Nodes with distinct names: of two with one name the later counts, for a node that starts again is new."""
        last = {device.name: node for node, device in self.devices.items() if node in nodes}
        for node in nodes:
            name = self.devices[node].name
            if last[name] != node and (warning := f"{name} {node}") not in self._warned:
                self._warned.add(warning)
                LOG.warning(
                    "fedcell: two nodes call themselves %s; node %d is taken for gone, and %d for the same started "
                    "again (if both are there, give each a partition-id of its own)",
                    *(name, node, last[name]),
                )
        return [node for node in nodes if last[self.devices[node].name] == node]
