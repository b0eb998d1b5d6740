"""Runs in the emulated cell, one after the other: the network and Flower are started once for all of them."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedcell import defaults
from fedcell.errors import InputError, require_number
from fedcell.flower import ScheduledRound
from fedcell.flower.state import load_run
from fedcell.runs.store import Measured
from fedcell.sim.loop import world_of
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec
from fedcell.testbed.app import Emulation, prepare
from fedcell.testbed.federation import Federation
from fedcell.testbed.network import network
from fedcell.testbed.runs import Fault, check_faults, on_the_wire, task_of
from fedcell.types import Floats
from fedcell.world import Conditions

LATE_S = 0.05
"""An upload that starts this much later than its drawn compute time counts as late."""

WatchRound = Callable[[Spec, ScheduledRound], None]


@dataclass(frozen=True, eq=False)
class CellRun:
    """One finished run.

    Attributes:
        spec: of the run, scaled, with the size of an upload on the wire as ``cell.model_bits``.
        rounds: the record of each round.
        duration_s: wall-clock seconds of the run, Flower's overhead included.
    """

    spec: Spec
    rounds: Sequence[ScheduledRound]
    duration_s: float

    def records(self) -> list[RoundRecord]:
        """Return the rounds as the simulator records them."""
        return [one.record() for one in self.rounds]

    def measured(self) -> list[Measured]:
        """Return predicted and measured times, for each round."""
        return [
            Measured(
                np.array([int(name) for name in one.names], dtype=np.int64),
                np.array(one.planned_finish_s),
                _floats(one.began_s),
                _floats(one.finish_s),
            )
            for one in self.rounds
        ]

    def round_errors(self) -> Floats:
        """Return (measured - predicted) / predicted round time, for each round in which no device was missing."""
        whole = [one for one in self.rounds if one.devices and not one.missing and None not in one.finish_s]
        errors: Floats = np.array([one.round_s / max(one.planned_finish_s) - 1 for one in whole])
        return errors

    def late_starts(self) -> int:
        """Return how many uploads began late: training and Flower took longer than the compute time that was drawn."""
        rounds = zip(self.measured(), self._conditions(), strict=True)
        return sum(int((m.began_s - now.compute_s[m.devices] > LATE_S).sum()) for m, now in rounds)

    def table(self) -> Iterator[list[tuple[str, ...]]]:
        """Return rows for the devices of each round: round, device, share, rate, times and error, as text."""
        for one, m, now in zip(self.rounds, self.measured(), self._conditions(), strict=True):
            rates = np.array(one.shares) * self.spec.cell.bandwidth_hz * now.spectral_efficiency[m.devices]
            yield [
                (
                    str(one.round) if i == 0 else "",
                    str(device),
                    f"{100 * one.shares[i]:.1f} %",
                    f"{rates[i] / 1e6:.3f}",
                    f"{now.compute_s[device]:.3f}",
                    f"{m.began_s[i]:.3f}" if np.isfinite(m.began_s[i]) else "-",
                    f"{m.predicted_s[i]:.3f}",
                    f"{m.measured_s[i]:.3f}" if np.isfinite(m.measured_s[i]) else "missing",
                    f"{100 * (m.measured_s[i] / m.predicted_s[i] - 1):+.1f} %" if np.isfinite(m.measured_s[i]) else "",
                )
                for i, device in enumerate(m.devices)
            ]

    def _conditions(self) -> list[Conditions]:
        """Return the conditions of each round."""
        world, began_s = world_of(self.spec, task_of(self.spec)), [0.0, *(one.clock_s for one in self.rounds)]
        return [world.conditions(self.spec.seed, r, began_s[r]) for r in range(len(self.rounds))]


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values])


def emulate(
    specs: Sequence[Spec],
    *,
    scale: float = 1.0,
    faults: Sequence[Fault] = (),
    slack: float = defaults.SLACK,
    folder: Path | None = None,
    watch: WatchRound | None = None,
) -> Generator[CellRun]:
    """Train the specs one after the other in one emulated cell.

    Args:
        specs: of the runs; they may differ in policy, seed and when they end, but not in cell, devices or task.
        scale: factor of all seconds.
        faults: to inject into every run.
        slack: the reply of a device that takes more than this times its planned time is not used.
        folder: an empty one, for logs; by default one that is removed at the end.
        watch: called after every round.
    """
    require_number("slack", slack, least=1)
    runs = [on_the_wire(spec, scale) for spec in specs]
    common = [run.model_dump(include={"cell", "devices", "task"}) for run in runs]
    if any(other != common[0] for other in common):
        raise InputError("the specs differ in their cell, devices or task; emulate them one at a time")
    check_faults(faults, len(runs))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a disc that others use would slow rounds down
    scratch_folder = tempfile.TemporaryDirectory(prefix="fedcell-testbed-", dir=memory)
    with scratch_folder as scratch, network(runs[0].devices.count) as links:
        place = Path(scratch) if folder is None else folder.resolve()
        # Polls cost processor time: with many devices the server's are fewer.
        poll_s = max(0.2, 0.03 * links.count)
        setting = Emulation(runs, links, place, faults, slack, grace_s=1.0 + scale, poll_s=poll_s)
        prepare(setting)
        with closing(Federation(links, place, node_poll_s=max(0.05, scale))) as federation:
            federation.start()
            for number in range(len(runs)):
                yield _train(setting, federation, number, 60.0 + 100.0 * scale, watch)


def _train(
    setting: Emulation, federation: Federation, number: int, patience_s: float, watch: WatchRound | None
) -> CellRun:
    spec, folder = setting.runs[number], setting.run_folder(number)
    folder.mkdir()
    began_s = moved_s = time.monotonic()
    federation.submit(number)
    seen = 0
    while True:
        over = (folder / "outcome.json").exists()  # looked for first: what was written before it is whole
        rounds = load_run(folder / "state").rounds if (folder / "state" / "state.json").exists() else []
        for one in rounds[seen:]:
            seen, moved_s = seen + 1, time.monotonic()
            if watch is not None:
                watch(spec, one)
        if over:
            break
        federation.check()
        if time.monotonic() - moved_s > patience_s:
            raise InputError(f"no round has ended within {patience_s:.0f} s; see Flower's logs with --logs DIRECTORY")
        time.sleep(0.1)
    error = json.loads((folder / "outcome.json").read_text())["error"]
    if error is not None:
        raise InputError(f"the ServerApp failed ({error}); see its log with --logs DIRECTORY")
    return CellRun(spec, rounds, time.monotonic() - began_s)
