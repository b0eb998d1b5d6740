"""Devices behind Flower's nodes: each node is asked for its report, and a run knows its devices by name."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedcell.errors import InputError
from fedcell.flower.client import FAULT, QUERY, RECORD, Report, parse_report
from fedcell.flower.compat import LOG, was_lost
from fedcell.flower.messages import POLL_S, pull, push
from fedcell.flower.radio import Device
from fedcell.learn.profile import noise_of
from fedcell.protocol import Knowledge
from fedcell.schedule.plan import Links
from fedcell.schedule.policy import Policy
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats, Indices

MAX_QUERIES = 5
"""A node whose report cannot be used is asked again in up to so many rounds."""


@dataclass
class Nodes:
    """The devices behind the nodes that are connected; ``answer_s``: how long a round waits for them."""

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

    def discover_nodes(self, grid: Grid, *, ask_all: bool = False) -> list[int]:
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


OUTLIER_FACTOR = 10.0
"""How far a profile may be from the median of all, in median distances, and still count as it is."""


@dataclass(frozen=True, eq=False)
class Roster:
    """M devices in the order in which they were first met, a device's number; and what rounds showed of them."""

    names: tuple[str, ...]
    knowledge: Knowledge

    @classmethod
    def empty(cls) -> "Roster":
        """Before the first device."""
        return cls((), Knowledge.empty(0))

    def with_devices(self, names: Sequence[str]) -> "Roster":
        """Return the roster with these devices in it; new ones come last, ordered by number or name."""
        new = sorted(set(names) - set(self.names), key=lambda name: (not name.isdigit(), len(name.lstrip("0")), name))
        if not new:
            return self
        return Roster((*self.names, *new), self.knowledge.grow(len(self.names) + len(new)))

    def indices(self, devices: Sequence[Device]) -> Indices:
        """The numbers of these devices, which tell them apart from round to round."""
        number = {name: index for index, name in enumerate(self.names)}
        return np.array([number[device.name] for device in devices], dtype=np.int64)

    def with_profiles(self, devices: Sequence[Device]) -> "Roster":
        """Return the roster with the profiles in these devices' reports, instead of those that they had before.

        All profiles have as many numbers as most devices' have; others are ignored. A device that reports none keeps
        what it had.
        """
        there, profiles = self.indices(devices), self.knowledge.profiles
        said = {int(i): d.report.profile for i, d in zip(there, devices, strict=True) if d.report.profile is not None}
        if not said:
            return self
        used, known = profiles.shape[1], np.flatnonzero(np.isfinite(profiles).all(axis=1))
        votes = Counter(len(said[i]) for i in sorted(said))
        votes[used] += sum(int(i) not in said for i in known) if used else 0
        usual = max(votes, key=lambda d: (votes[d], d == used))
        after = profiles.copy() if usual == used else np.full((len(self.names), usual), np.nan)
        for i, profile in said.items():
            after[i] = profile if len(profile) == usual else np.nan
        return replace(self, knowledge=replace(self.knowledge, profiles=after))

    def odd_profiles(self, devices: Sequence[Device]) -> list[str]:
        """Names of the devices whose profiles are not used, because most others have another number of entries."""
        usual = self.knowledge.profiles.shape[1]
        return [d.name for d in devices if d.report.profile is not None and len(d.report.profile) != usual]

    def view(
        self,
        devices: Sequence[Device],
        links: Links,
        round_index: int,
        *,
        clock_s: float = 0.0,
        left_s: float = inf,
        explore: bool = False,
        epsilon: float | None = None,
        policy: Policy | None = None,
        alike: float = 1.0,
    ) -> RoundView:
        """What a policy sees of the devices that are there.

        Args:
            devices: M devices.
            links: what the radio knows about them.
            round_index: the round, from 0.
            clock_s: the time at its start, in seconds.
            left_s: seconds left of the budget.
            explore: whether stale estimates are explored.
            epsilon: of the noise in the devices' profiles, or None.
            policy: who looks; see `Knowledge.view`.
            alike: observed training times that are no sign of a larger factor than this count as equal; see
                `Estimates.pooled`.
        """
        samples = np.array([device.report.samples or 0.0 for device in devices])
        known = replace(self.knowledge, profiles=bounded(self.knowledge.profiles))
        if alike > 1.0:
            known = replace(known, compute=known.compute.pooled(self.indices(devices), alike))
        return known.view(
            links,
            round_index,
            clock_s=clock_s,
            explore=explore,
            there=self.indices(devices),
            reported_s=_reported_s(devices),
            samples=samples if samples.all() else None,
            profile_noise=noise_of(epsilon, self.knowledge.profiles.shape[1]),
            left_s=left_s,
            policy=policy,
        )

    def unknown(self, devices: Sequence[Device], links: Links) -> dict[str, Bools]:
        """By ``link`` and ``speed``, (M,) booleans: the devices of which nothing is known of it."""
        upload_s, compute_s = self.knowledge.known(links, self.indices(devices), _reported_s(devices))
        return {"link": np.isnan(upload_s), "speed": np.isnan(compute_s)}

    def resting(self, devices: Sequence[Device], round_index: int, least: int = 1) -> Bools:
        """(M,) the devices that rest after failures; ``least`` of them do not, those that may try again soonest."""
        there = self.indices(devices)
        rests = self.knowledge.resting(round_index, there)
        soonest = np.argsort(np.where(rests, self.knowledge.retry_round[there], -1), kind="stable")
        rests[soonest[:least]] = False
        return rests


def bounded(profiles: Floats) -> Floats:
    """Return the profiles, those that are absurdly far from the others drawn in.

    All profiles are divided by their common spread: a single one of 1e6 would make all others look alike.
    """
    known = np.flatnonzero(np.isfinite(profiles).all(axis=1))
    if known.size < 3 or profiles.shape[1] == 0:
        return profiles
    centre = np.median(profiles[known], axis=0)
    away = profiles[known] - centre
    distance = np.linalg.norm(away, axis=1)
    most = OUTLIER_FACTOR * float(np.median(distance))
    far = distance > most
    if most == 0.0 or not far.any():
        return profiles
    bounded = profiles.copy()
    bounded[known[far]] = centre + away[far] * (most / distance[far])[:, np.newaxis]
    return bounded


def _reported_s(devices: Sequence[Device]) -> Floats:
    return np.array([device.report.expected_compute_s() for device in devices])
