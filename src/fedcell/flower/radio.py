"""The interface to a radio network: where upload times come from, who applies the shares, and who measures the round.

A Radio is called three times per round: for the state of the links (``look``), to apply the shares of the plan
(``grant``), and for how long everything took (``measure``). If the policy asks devices something before it decides, it
is called to grant and measure that, too. Write one for your own radio network; fedcell has four:

- DedicatedRadio: every node has a dedicated link; what it does not report is learnt from the clients' timings.
- CellRadio: real nodes report their SNR or rate; Flower's server measures with its own clock.
- SimulatedRadio: the simulator's world and clock, around nodes that really train.
- fedcell.testbed's: network namespaces whose links are shaped to the granted rates, measured on the wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from fedcell import units
from fedcell.errors import InputError
from fedcell.flower.client import Report
from fedcell.protocol import answer_links
from fedcell.quantisation import WEIGHT_BITS
from fedcell.schedule.laws import LAWS, Dedicated, Density, Law, parse_law
from fedcell.schedule.plan import Links, Plan, Timing
from fedcell.types import Floats
from fedcell.units import MAX_S, MIN_S
from fedcell.world import Always, Cell, Conditions, World, whole_band_upload_s
from fedcell.world.cell import Foresight

_STEEPEST_BITS = 100.0  # bit/s/Hz: nobody has a better link, and 2^100 is still a number


@dataclass(frozen=True)
class Device:
    """A node as the scheduler knows it.

    Attributes:
        name: the device's name; it stays the same when the node or the server restarts.
        report: its latest report.

    Example:
        >>> from fedcell.flower import Device, Report
        >>> Device("pi-3", Report(snr_db=12.0)).report.snr_db
        12.0
    """

    name: str
    report: Report


@dataclass(frozen=True, eq=False)
class Grant:
    """A round that is about to start: what a radio needs to apply the shares.

    Attributes:
        round_index: the round, from 0.
        devices: all M connected devices.
        plan: who trains, with which share of the band; its indices refer to ``devices``.
        finish_s: (n,) when each scheduled device is expected to have delivered, in seconds from the start of the round.
        epochs: the local epochs of a whole training, of which the plan's ``epochs`` may be a part; 0 of them are for
            devices that have trained already, and now send their models.
        weights: the number of the model's weights; None if it is not known.
        tensors: the number of arrays that they are in.
        bits: the bits a weight of an upload where the plan does not say ``bits`` of its own.
        overhead_bits: the bits that an upload has beside the model.
        answers: whether the devices answer a question, with a few bits, and send no models.

    Example:
        >>> import numpy as np
        >>> from fedcell import Plan
        >>> from fedcell.flower import Device, Grant, Report
        >>> plan = Plan(devices=np.array([1]), shares=np.array([1.0]), round_s=5.0)
        >>> grant = Grant(0, [Device("a", Report()), Device("b", Report())], plan, finish_s=np.array([5.0]))
        >>> [grant.devices[i].name for i in grant.plan.devices]
        ['b']
    """

    round_index: int
    devices: Sequence[Device]
    plan: Plan
    finish_s: Floats
    epochs: float = 1.0
    weights: float | None = None
    tensors: int = 1
    bits: float = WEIGHT_BITS
    overhead_bits: float = 0.0
    answers: bool = False


class Radio(Protocol):
    """The interface between Scheduled and a radio network; any class with these four members is one.

    It may have ``model_bits``, the size of one upload in bits, if that is not the size of the model's arrays.

    Example:
        >>> from fedcell import Cell
        >>> from fedcell.flower import CellRadio
        >>> class Printing(CellRadio):
        ...     def grant(self, grant):
        ...         for i, share in zip(grant.plan.devices, grant.plan.shares):
        ...             print(grant.devices[i].name, "gets", round(float(share), 3))
        >>> Printing(Cell()).real_time
        True
    """

    @property
    def real_time(self) -> bool:
        """Whether its times are wall-clock times; only then does the server enforce deadlines."""

    def look(self, devices: Sequence[Device], round_index: int, clock_s: float) -> Links:
        """Return what is known about the links and compute times of these devices before the round.

        Args:
            devices: M connected devices.
            round_index: the round, from 0.
            clock_s: seconds from the start of the run.
        """

    def grant(self, grant: Grant) -> None:
        """Give the scheduled devices their shares of the band; called just before the messages are sent."""

    def measure(self, grant: Grant) -> Timing | None:
        """Return the measured times, after all replies or the deadline; None to use the server's clock."""


@dataclass(frozen=True)
class CellRadio:
    """A cell whose nodes report their SNR, rate or upload time; times are measured with the server's clock.

    Subclass it and define ``grant`` to pass the shares to a radio network.

    Attributes:
        cell: its bandwidth and the size of one upload, ``model_bits``.
        law: how uploads share the band, such as ``fc.Blocks(15)``. Under a law that needs the SNR, a node that reports
            a rate or an upload time instead has the SNR that gives it, and one that reports nothing the median of the
            others.

    Example:
        >>> from fedcell import Cell
        >>> from fedcell.flower import CellRadio, Device, Report
        >>> radio = CellRadio(Cell(model_bits=2_000_000))
        >>> devices = [Device("a", Report(rate_bps=1e6)), Device("b", Report(upload_s=0.5)), Device("c", Report())]
        >>> radio.look(devices, round_index=0, clock_s=0.0).upload_s.tolist()
        [2.0, 0.5, nan]
    """

    cell: Cell
    law: Law = Density()  # noqa: RUF009 - frozen, without fields

    def __post_init__(self) -> None:
        if self.law.needs_snr and self.cell.rate != Cell.rate:
            raise InputError(
                f"law is {self.law.line!r}, which holds for Shannon's rate, but the cell's rate is {self.cell.rate}; "
                "change one of them"
            )

    @property
    def real_time(self) -> bool:
        """True: its times are wall-clock times."""
        return True

    @property
    def model_bits(self) -> int:
        """The size of an upload in this cell, in bits."""
        return self.cell.model_bits

    def look(self, devices: Sequence[Device], round_index: int, clock_s: float) -> Links:  # noqa: ARG002
        """Return the upload times that follow from the latest reports, under the law."""
        upload_s = np.array([self._upload_s(device.report) for device in devices])
        snr = self._snr(devices, upload_s) if self.law.needs_snr else None
        return Links(upload_s, np.full(len(devices), np.nan), self.law.for_devices(snr, self.cell.model_bits))

    def _snr(self, devices: Sequence[Device], upload_s: Floats) -> Floats:
        """(M,) the SNR with the entire band: as reported, or as Shannon's formula has it for the upload time."""
        bits = np.minimum(self.cell.model_bits / (upload_s * self.cell.bandwidth_hz), _STEEPEST_BITS)
        by_time = np.maximum(np.expm1(np.log(2.0) * bits), MIN_S)
        told = np.array([np.nan if d.report.snr_db is None else units.db_to_ratio(d.report.snr_db) for d in devices])
        snr: Floats = np.where(np.isnan(told), by_time, told)
        known = snr[np.isfinite(snr)]
        return np.where(np.isfinite(snr), snr, np.median(known) if known.size else 1.0)

    def _upload_s(self, report: Report) -> float:
        upload_s = _reported_upload_s(report, self.cell.model_bits)
        if not np.isnan(upload_s) or report.snr_db is None:
            return upload_s
        efficiency = self.cell.rate.efficiency(np.array([units.db_to_ratio(report.snr_db)]))
        return float(np.clip(whole_band_upload_s(self.cell, efficiency)[0], MIN_S, MAX_S))

    def grant(self, grant: Grant) -> None:
        """Do nothing: the shares reach the nodes in their messages."""

    def measure(self, grant: Grant) -> Timing | None:  # noqa: ARG002
        """Return None: the server's clock measures."""
        return None


@dataclass(frozen=True)
class DedicatedRadio:
    """A line for each node, as over the internet: a round lasts as long as the slowest of the chosen nodes.

    An upload time is the reported one (``upload_s``, or the size of the model over ``rate_bps``); otherwise it is
    learnt from earlier rounds: all of a reply's delay that the node did not spend on training.

    Attributes:
        model_bits: size of one upload in bits.
        law: one of dedicated links, such as `Ingress` where all end in one uplink of the server: ``fc.Ingress(1e7)``
            for one of 10 Mbit/s. How long an upload waits there says nothing of the node's link.

    Example:
        >>> from fedcell.flower import DedicatedRadio, Device, Report
        >>> radio = DedicatedRadio(model_bits=2_000_000)
        >>> look = radio.look([Device("a", Report(rate_bps=1e6)), Device("b", Report())], round_index=0, clock_s=0.0)
        >>> look.upload_s.tolist(), look.law
        ([2.0, nan], Dedicated())
    """

    model_bits: int
    law: Law = Dedicated()  # noqa: RUF009 - frozen, without fields

    @property
    def real_time(self) -> bool:
        """True: its times are wall-clock times."""
        return True

    def look(self, devices: Sequence[Device], round_index: int, clock_s: float) -> Links:  # noqa: ARG002
        """Return the upload times that the nodes reported, if any."""
        upload_s = np.array([_reported_upload_s(device.report, self.model_bits) for device in devices])
        return Links(upload_s, np.full(len(devices), np.nan), self.law.for_devices(None, self.model_bits))

    def grant(self, grant: Grant) -> None:
        """Do nothing: there is nothing to share."""

    def measure(self, grant: Grant) -> Timing | None:  # noqa: ARG002
        """Return None: the server's clock measures."""
        return None


def radio_of(given: Cell | str | None, law: Law | None, model_bits: int) -> CellRadio | DedicatedRadio:
    """Return the radio for what `Scheduled` was given.

    Args:
        given: a `Cell`, ``"dedicated"``, or None for whatever the law needs.
        law: a link law, or None for the radio's own.
        model_bits: size of one upload in bits.
    """
    if given == "dedicated" or (given is None and law is not None and law.own_lines):
        if law is not None and not law.own_lines:
            raise InputError(
                f"radio is 'dedicated', but the law {law.line} shares a band; give radio=Cell(...), or the law "
                f"{LAWS.either('own_lines')}"
            )
        return DedicatedRadio(model_bits, law or Dedicated())
    cell = given if isinstance(given, Cell) else Cell()
    return CellRadio(replace(cell, model_bits=model_bits), law or Density())


def refuse_absence(world: World) -> None:
    """Refuse a world whose devices come and go: nodes do that by themselves."""
    if world.availability != Always():
        raise InputError(
            "availability is for the simulator, but here nodes come and go by themselves; set it to 'always'"
        )


def require_links(conditions: Conditions) -> None:
    """Refuse a round in which a device has no rate at all: a node that is there is asked to train."""
    if conditions.available is not None:
        device = int(np.argmin(conditions.available))
        raise InputError(
            f"device {device} has no rate in this round ({units.ratio_to_db(conditions.snr[device]):.1f} dB), but its "
            "node is there; set rate to 'shannon', or make the cell smaller"
        )


def _reported_upload_s(report: Report, model_bits: int) -> float:
    """Seconds of an upload over the entire link according to the report's time or rate; NaN if it has neither."""
    if report.upload_s is not None:
        return report.upload_s
    return np.nan if report.rate_bps is None else max(model_bits / report.rate_bps, MIN_S)


def reports_band(report: Report) -> bool:
    """Whether a report says anything about the node's share of a radio network."""
    return any(value is not None for value in (report.snr_db, report.rate_bps, report.upload_s))


@dataclass
class SimulatedRadio:
    """The simulator's world around nodes that really train: links, compute times and clock are drawn, not measured.

    A node's name is the number of its device, from 0. With the seed of a simulation, the devices have the same channels
    and compute times in every round as there.

    Attributes:
        world: the cell, its devices and how they move.
        seed: random seed of the world.
        knowledge: what the server knows about compute times: ``perfect``, ``expected``, or ``observed`` (estimates from
            earlier rounds).
        law: how uploads share the band, as ``spec.cell.law`` has it, such as ``"blocks:count=15"``.
        deadlines: whether `Scheduled`'s ``slack`` holds in simulated time, too; otherwise nobody is late.

    Example:
        >>> from fedcell import Devices, World
        >>> from fedcell.flower import Device, Report, SimulatedRadio
        >>> radio = SimulatedRadio(World(devices=Devices(count=2)), seed=1, knowledge="expected")
        >>> radio.look([Device("0", Report()), Device("1", Report())], round_index=0, clock_s=0.0).compute_s.tolist()
        [6.75, 6.75]
    """

    world: World
    seed: int
    knowledge: Foresight = "perfect"
    law: str = "density"
    deadlines: bool = False
    _now: Links | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        refuse_absence(self.world)
        parse_law(self.law)

    @property
    def real_time(self) -> bool:
        """False: its times are simulated."""
        return False

    @property
    def model_bits(self) -> int:
        """The size of an upload in this cell, in bits."""
        return self.world.cell.model_bits

    def look(self, devices: Sequence[Device], round_index: int, clock_s: float) -> Links:
        """Return the round's draws for these devices, and their compute times as far as ``knowledge`` allows."""
        there = [self._number(device) for device in devices]
        conditions = self.world.conditions(self.seed, round_index, clock_s)
        require_links(conditions)
        law, bits = parse_law(self.law), self.world.upload_bits
        true_law, believed = (
            law.for_devices(conditions.snr[there], bits),
            law.for_devices(conditions.believed_snr[there], bits),
        )
        self._now = Links(conditions.upload_s[there], conditions.compute_s[there], true_law)
        return Links(
            conditions.believed_upload_s[there], conditions.foreseen_compute_s(self.knowledge)[there], believed
        )

    def _number(self, device: Device) -> int:
        count = len(self.world.devices)
        if not (device.name.isascii() and device.name.isdigit() and int(device.name) < count):
            raise InputError(
                f"a node has the name {device.name[:50]!r}; in a simulated cell of {count} devices, give each node "
                f"a partition-id from 0 to {count - 1}"
            )
        return int(device.name)

    def grant(self, grant: Grant) -> None:
        """Do nothing: transmission is simulated."""

    def measure(self, grant: Grant) -> Timing | None:
        """Return the times of the plan under the true conditions of the round."""
        assert self._now is not None  # look comes first
        now = replace(self._now, epochs=grant.epochs, weights=grant.weights, tensors=grant.tensors, bits=grant.bits)
        return grant.plan.timing(answer_links(now) if grant.answers else now)
