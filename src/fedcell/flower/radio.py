"""Where upload times come from, who is told of the plan, and who measures how it went.

A Radio is asked three times a round: what the links are (``look``), to grant the plan's shares (``grant``), and how
long everything took (``measure``). Write one for a radio network of your own; three come with fedcell:

- CellRadio: real nodes report their SNR or rate; nobody measures but Flower's server, by the wall clock.
- SimulatedRadio: the simulator's own world and clock, around nodes that really train.
- fedcell.testbed's: network namespaces whose links are shaped to the granted rates, measured on the wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedcell import units
from fedcell.errors import InputError
from fedcell.flower.report import Report
from fedcell.schedule.bandwidth import Floats
from fedcell.schedule.policy import Plan
from fedcell.sim.knowledge import Foresight, Look, Timing, known_compute_s
from fedcell.world import Cell, World, spectral_efficiency, whole_band_upload_s


@dataclass(frozen=True)
class Device:
    """A node as the scheduler knows it.

    Attributes:
        name: what it calls itself; it stays the same when the node or the server starts again.
        report: what it last reported.
    """

    name: str
    report: Report


@dataclass(frozen=True, eq=False)
class Grant:
    """A round that is about to begin.

    Attributes:
        round_index: from 0.
        devices: all M devices that are there.
        plan: who trains; its indices are into ``devices``.
        finish_s: (n,) when each scheduled device is expected to have delivered, seconds since the round began.
    """

    round_index: int
    devices: Sequence[Device]
    plan: Plan
    finish_s: Floats


class Radio(Protocol):
    """What Scheduled asks of a radio network."""

    @property
    def real_time(self) -> bool:
        """Whether its seconds are those of the wall clock; a deadline is kept only then."""

    def look(self, devices: Sequence[Device], round_index: int, clock_s: float) -> Look:
        """What is known of these devices' links and compute times before the round."""

    def grant(self, grant: Grant) -> None:
        """Give the scheduled devices their shares of the band; called just before they are told to train."""

    def measure(self, grant: Grant) -> Timing | None:
        """How it went, after the replies or the deadline; None leaves it to the server's clock."""


@dataclass(frozen=True)
class CellRadio:
    """A cell whose nodes report their SNR, rate or upload time; the server's own clock measures.

    Subclass it and define ``grant`` to tell a radio network of the shares.

    Attributes:
        cell: its band and the size of one upload, ``model_bits``.
    """

    cell: Cell

    @property
    def real_time(self) -> bool:
        """Its seconds are the wall clock's."""
        return True

    def look(self, devices: Sequence[Device], round_index: int, clock_s: float) -> Look:  # noqa: ARG002
        """What the nodes last reported."""
        upload_s = np.array([self._upload_s(device.report) for device in devices])
        return Look(upload_s, np.full(len(devices), np.nan))

    def _upload_s(self, report: Report) -> float:
        if report.upload_s is not None:
            return report.upload_s
        if report.rate_bps is not None:
            return self.cell.model_bits / report.rate_bps
        if report.snr_db is None:
            return np.nan
        efficiency = spectral_efficiency(np.array([units.db_to_ratio(report.snr_db)]))
        return float(whole_band_upload_s(self.cell, efficiency)[0])

    def grant(self, grant: Grant) -> None:
        """Tell nobody: the shares reach the nodes in their messages."""

    def measure(self, grant: Grant) -> Timing | None:  # noqa: ARG002
        """Leave it to the server's clock."""
        return None


@dataclass
class SimulatedRadio:
    """The simulator's world around nodes that really train: links, compute times and clock are drawn, not measured.

    A node's name is its device's number, from 0. With the seed of a simulation the devices meet the same channels and
    compute times round by round.

    Attributes:
        world: the cell, its devices and how they move.
        seed: of the world.
        knowledge: of compute times: ``perfect``, ``expected``, or ``observed`` (what earlier rounds showed).
    """

    world: World
    seed: int
    knowledge: Foresight = "perfect"
    _now: tuple[Floats, Floats] | None = field(default=None, init=False, repr=False)

    @property
    def real_time(self) -> bool:
        """Its seconds are simulated."""
        return False

    def look(self, devices: Sequence[Device], round_index: int, clock_s: float) -> Look:
        """The round's draws for these devices; of compute times what the knowledge lets see."""
        there = [self._number(device) for device in devices]
        conditions = self.world.conditions(self.seed, round_index, clock_s)
        self._now = conditions.upload_s[there], conditions.compute_s[there]
        return Look(conditions.upload_s[there], known_compute_s(conditions, self.knowledge)[there])

    def _number(self, device: Device) -> int:
        count = len(self.world.devices)
        if not (device.name.isascii() and device.name.isdigit() and int(device.name) < count):
            raise InputError(
                f"a node calls itself {device.name[:50]!r}; in a simulated cell of {count} devices give each node "
                f"a partition-id from 0 to {count - 1}"
            )
        return int(device.name)

    def grant(self, grant: Grant) -> None:
        """Nothing to do: nobody transmits."""

    def measure(self, grant: Grant) -> Timing | None:
        """What the plan really takes in this world."""
        assert self._now is not None  # look comes first
        upload_s, compute_s = self._now
        return Timing(compute_s[grant.plan.devices], grant.plan.finish_s(upload_s, compute_s))
