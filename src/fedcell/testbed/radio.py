"""The radio of the emulated cell: rates from the simulator's world, shaped by tc, measured on the wire."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedcell.files import replace_file
from fedcell.flower import Device, Grant, Timing
from fedcell.flower.radio import require_links
from fedcell.quantisation import WEIGHT_BITS, upload_bits
from fedcell.schedule.laws import parse_law
from fedcell.schedule.plan import Links
from fedcell.sim.spec import Spec
from fedcell.testbed import network
from fedcell.testbed.network import CONTROL_BITS_PER_S
from fedcell.testbed.runs import DEGRADED, Fault
from fedcell.testbed.wire import OVERHEAD_BYTES, Tap, upload, upload_bytes
from fedcell.types import Floats
from fedcell.world import Conditions, World

ROUND_FILE = "round.json"
SIZES_FILE = "sizes.txt"
"""Has a line for each upload: the round, from 0, and its bytes on the wire as planned and as they were."""


@dataclass
class TestbedRadio:
    """Shapes every scheduled device's uplink to share x B x spectral efficiency, the others' to the control rate.

    A device's name is its number, from 0.

    Attributes:
        spec: the run; its ``cell.model_bits`` counts all that an upload puts on the wire.
        world: the world of the spec.
        links: the network.
        tap: records the packets at the base station.
        weights: number of the model's weights, which are one array.
        folder: where the round's beginning is written for the devices.
        faults: to inject.
    """

    __test__ = False  # no test of pytest's

    spec: Spec
    world: World
    links: network.Links
    tap: Tap
    weights: int
    folder: Path
    faults: Sequence[Fault] = ()
    _now: Conditions | None = field(default=None, init=False)
    _began_s: float = field(default=0.0, init=False)
    _mend: set[int] = field(default_factory=set, init=False)

    @property
    def real_time(self) -> bool:
        """True: a round takes as long on the wall clock as it says."""
        return True

    def look(self, devices: Sequence[Device], round_index: int, clock_s: float) -> Links:
        """Return the round's links of these devices, with what the spec lets the server know of compute times."""
        there = _numbers(devices)
        now = self._now = self.world.conditions(self.spec.seed, round_index, clock_s)
        require_links(now)
        # Of the laws let in here, all have rates in proportion to the shares.
        law = parse_law(self.spec.cell.law)
        compute_s = now.foreseen_compute_s(self.spec.knowledge)[there]
        sizes = self.spec.task.epochs, self.weights, 1, WEIGHT_BITS, 8 * OVERHEAD_BYTES
        return Links(now.believed_upload_s[there], compute_s, law, *sizes)

    def grant(self, grant: Grant) -> None:
        """Set all rates, tell the devices when the round began, and schedule its faults."""
        now, work = self._conditions, grant.plan.work(grant.epochs)
        scheduled = _numbers([grant.devices[i] for i in grant.plan.devices])
        granted = grant.plan.shares * self.spec.cell.bandwidth_hz * now.spectral_efficiency[scheduled]
        rates = dict.fromkeys(range(self.links.count), CONTROL_BITS_PER_S)
        rates |= dict(zip(scheduled.tolist(), granted.tolist(), strict=True))
        self.links.mend(self._mend)
        self._mend.clear()
        self.links.set_rates(rates)
        self._began_s = time.time()
        compute_s = now.compute_s.copy()
        if work is not None:
            compute_s[scheduled] *= work
        write_round(self.folder, RoundStart(grant.round_index, self._began_s, compute_s.tolist()))
        finish_s = dict(zip(scheduled.tolist(), grant.finish_s.tolist(), strict=True))
        for fault in self.faults:
            if fault.round == grant.round_index + 1 and fault.device in finish_s:
                middle_s = (compute_s[fault.device] + finish_s[fault.device]) / 2
                timer = threading.Timer(middle_s, self._put, (fault, rates[fault.device], self._began_s))
                timer.daemon = True
                timer.start()

    def measure(self, grant: Grant) -> Timing:
        """Return when each device's upload began and ended on the wire."""
        packets = self.tap.packets(self._began_s)
        numbers = _numbers([grant.devices[i] for i in grant.plan.devices])
        model = 4 * self.weights
        each = np.full(numbers.size, WEIGHT_BITS) if grant.plan.bits is None else grant.plan.bits
        sent = np.ceil(upload_bits(self.weights, 1, each) / 8).astype(int).tolist()
        found = [upload(packets, int(device), model, size) for device, size in zip(numbers, sent, strict=True)]
        sizes = [(upload_bytes(size), u.bytes) for size, u in zip(sent, found, strict=True) if u is not None]
        with (self.folder / SIZES_FILE).open("a") as file:
            file.writelines(f"{grant.round_index} {planned} {measured}\n" for planned, measured in sizes)
        began: Floats = np.array([np.nan if u is None else u.began_s - self._began_s for u in found])
        ended: Floats = np.array([np.nan if u is None else u.ended_s - self._began_s for u in found])
        return Timing(began, ended)

    @property
    def _conditions(self) -> Conditions:
        assert self._now is not None  # look comes first
        return self._now

    def _put(self, fault: Fault, rate: float, began_s: float) -> None:
        if began_s != self._began_s:  # the round is over already
            return
        if fault.kind == "cut":
            self._mend.add(fault.device)
            self.links.cut(fault.device)
        elif fault.kind == "degrade":
            self.links.set_rates({fault.device: DEGRADED * rate})
        else:
            self.links.kill(fault.device)


def _numbers(devices: Sequence[Device]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([int(device.name) for device in devices], dtype=np.int64)


@dataclass(frozen=True)
class RoundStart:
    """What devices are told beside Flower's message: the round, from 0, its wall-clock start, compute times (M,)."""

    round_index: int
    began_s: float
    compute_s: list[float]


def write_round(folder: Path, start: RoundStart) -> None:
    """Write the start of a round to a file for the devices, atomically."""
    text = json.dumps([start.round_index, start.began_s, start.compute_s])
    replace_file(folder / ROUND_FILE, lambda file: file.write(text.encode()))


def read_round(folder: Path) -> RoundStart:
    """Read the file of `write_round`."""
    return RoundStart(*json.loads((folder / ROUND_FILE).read_text()))
