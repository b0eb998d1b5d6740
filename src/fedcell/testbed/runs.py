"""Runs in the emulated cell: specs scaled in time, injected faults, and the runs one after the other.

Flower is imported when it is started, which takes seconds: what is wrong with a run is said before.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fedcell import defaults, settings
from fedcell.errors import InputError, require_number
from fedcell.runs.store import Measured
from fedcell.schedule.laws import LAWS, parse_law
from fedcell.schedule.policy import Policy
from fedcell.schedule.registry import format_policy, parse_policy
from fedcell.sim.loop import world_of
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec, load_spec
from fedcell.sim.task import Task, load_task
from fedcell.testbed.network import network
from fedcell.testbed.wire import upload_bytes
from fedcell.types import Floats
from fedcell.world import Conditions, RandomWaypoint

if TYPE_CHECKING:
    from fedcell.flower import ScheduledRound
    from fedcell.testbed.app import Emulation
    from fedcell.testbed.federation import Federation


FaultKind = Literal["cut", "degrade", "kill"]
DEGRADED = 0.1
"""What is left of the rate of a device whose link is degraded."""


@dataclass(frozen=True)
class Fault:
    """An injected fault, in the middle of a device's upload.

    Attributes:
        kind: ``cut``: its link is down until the round ends; ``degrade``: its rate falls to a tenth for the rest of the
            round; ``kill``: its processes are killed and never come back.
        device: number of the device, from 0.
        round: number of the round, from 1.
    """

    kind: FaultKind
    device: int
    round: int


def parse_fault(text: str, devices: int) -> Fault:
    """Parse a fault such as ``cut:device=2,round=3``; likewise ``degrade`` and ``kill``."""
    name, rest = settings.split("fault", text)
    kind = settings.choose("fault", name, {kind: kind for kind in get_args(FaultKind)})
    fault = settings.build(Fault, "fault", name, rest, given={"kind": kind})
    if not 0 <= fault.device < devices or fault.round < 1:
        raise InputError(f"fault {text!r}: give a device from 0 to {devices - 1} and a round of at least 1")
    return fault


def check_faults(faults: Sequence[Fault], runs: int) -> None:
    """Refuse faults that cannot be injected into each of so many runs."""
    if runs > 1 and any(fault.kind == "kill" for fault in faults):
        raise InputError("a killed device is missing in the next run; emulate one run only, or cut its link instead")


MAX_ROUNDS = 1000


def build_runs(
    path: Path | None = None,
    *,
    devices: int | None = None,
    rounds: int | None = None,
    policy: str | None = None,
    compare: Sequence[str] = (),
    seed: int | None = None,
    seeds: int = 1,
    target_accuracy: float | None = None,
) -> list[Spec]:
    """Return the specs to emulate: every policy with every seed.

    Args:
        path: file of a spec; None for the paper's cell.
        devices: number of devices, instead of the spec's.
        rounds: the most rounds, instead of the spec's.
        policy: instead of the spec's.
        compare: further policies; ``equal`` is the first one with equal shares.
        seed: the first seed, instead of the spec's.
        seeds: number of seeds.
        target_accuracy: instead of the spec's; without ``rounds`` the runs then go on until it is reached.
    """
    if not 1 <= seeds <= 100:
        raise InputError(f"--seeds is {seeds}; give a whole number from 1 to 100")
    base = load_spec(path) if path else _paper_cell(defaults.TESTBED_DEVICES if devices is None else devices)
    if base.grid:
        raise InputError(f"{path} has a grid; give a spec of one run, and other policies with --compare")
    if target_accuracy is not None and rounds is None and path is None:
        rounds = MAX_ROUNDS
    named: dict[str, Any] = {"devices.count": devices, "rounds": rounds, "policy": policy, "seed": seed}
    named |= {"target_accuracy": target_accuracy}
    base = base.changed({field: value for field, value in named.items() if value is not None})
    policies = [base.policy, *(_compared(text, base.policy) for text in compare)]
    lots = range(base.seed, base.seed + seeds)
    return [base.changed({"policy": one, "seed": lot}) for lot in lots for one in policies]


def _paper_cell(devices: int) -> Spec:
    """Return the paper's cell for a few rounds; every device has the paper's number of samples."""
    sizes: Any = [defaults.SAMPLES] * devices if 1 <= devices <= defaults.DEVICES else "equal"
    base = Spec(policy="optimal", rounds=defaults.TESTBED_ROUNDS)
    return base.changed({"devices.count": devices, "task.sizes": sizes})


def _compared(text: str, first: str) -> str:
    return format_policy(replace(parse_policy(first), sharing="equal")) if text == "equal" else text


def default_scale(devices: int) -> float:
    """Return the least scale at which two cores keep up: Flower takes about a core second per device and round."""
    return min(1.0, max(0.2, 0.05 * devices))


def on_the_wire(spec: Spec, scale: float) -> Spec:
    """Return the spec of the emulated run: every second times ``scale``, uploads with their protocols' overhead.

    Compute times shrink and the band widens alike, so that plans stay the same.
    """
    if not 0.02 <= scale <= 10:
        raise InputError(f"scale is {scale:g}; give a number from 0.02 to 10")
    if spec.devices.failure:
        raise InputError("devices.failure is not emulated; leave it out, and use --fault instead")
    if spec.devices.availability != "always":
        raise InputError("devices.availability is not emulated; leave it out, and use --fault instead")
    if spec.slack is not None:
        raise InputError("slack is set in the spec, which the testbed does not read; give it as --slack")
    if spec.profiles == "updates" and spec.uses_profiles:
        raise InputError("profiles = 'updates' is not emulated; set profiles to gradients, labels or none")
    if type(spec.make_policy()).ask is not Policy.ask:
        raise InputError(f"{spec.policy} asks devices before it decides, which is not emulated; use another policy")
    if spec.task.aggregator not in ("mean", "samples", "balanced"):
        raise InputError(
            f"task.aggregator is {spec.task.aggregator!r}, but late models and server optimizers are not emulated; "
            "use mean, samples or balanced"
        )
    if spec.task.compression != "none":
        raise InputError(
            f"task.compression is {spec.task.compression!r}, but the testbed's uploads have the bits that policies "
            "decide; leave it out"
        )
    if scale != 1 and isinstance(spec.make_mobility(), RandomWaypoint):
        raise InputError("moving devices can be emulated only with a scale of 1; set devices.mobility to redrawn")
    if not parse_law(spec.cell.law).proportional:
        raise InputError(f"cell.law is {spec.cell.law!r}, which is not emulated; use {LAWS.either('proportional')}")
    if spec.cell.given_model_bits is not None:
        raise InputError("cell.model_bits is set, but the testbed uses the model's actual size; leave it out")

    devices = spec.devices
    return spec.changed(
        {
            "budget_s": spec.budget_s * scale,
            "cell.bandwidth_hz": spec.cell.bandwidth_hz / scale,
            "cell.model_bits": 8 * upload_bytes(4 * task_of(spec).engine.parameters),
            "devices.power_dbm": None,  # the density stays, whatever the emulated band
            "devices.power_w_per_hz": devices.density_w_per_hz(spec.cell.bandwidth_hz).tolist(),
            "devices.seconds_per_sample": (scale * devices.seconds_per_sample).tolist(),
            "devices.samples_per_second": (1 / scale * devices.samples_per_second).tolist(),
        }
    )


def task_of(spec: Spec) -> Task:
    """Return the task of a run, for one thread: the devices share this machine."""
    return load_task(spec.task, spec.devices.count, spec.seed, threads=1)


LATE_S = 0.05
"""An upload that starts this much later than its drawn compute time counts as late."""

WatchRound = Callable[[Spec, "ScheduledRound"], None]


@dataclass(frozen=True, eq=False)
class CellRun:
    """One finished run.

    Attributes:
        spec: of the run, scaled, with the size of an upload on the wire as ``cell.model_bits``.
        rounds: the record of each round.
        duration_s: wall-clock seconds of the run, Flower's overhead included.
        sizes: for each upload the number of its round, from 1, and its bytes on the wire as planned and as they were.
    """

    spec: Spec
    rounds: Sequence["ScheduledRound"]
    duration_s: float
    sizes: Sequence[tuple[int, int, int]]

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
    from fedcell.testbed.app import Emulation, prepare
    from fedcell.testbed.federation import Federation

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
    setting: "Emulation", federation: "Federation", number: int, patience_s: float, watch: WatchRound | None
) -> CellRun:
    from fedcell.flower.state import load_run
    from fedcell.testbed.radio import SIZES_FILE

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
    text = (folder / SIZES_FILE).read_text() if (folder / SIZES_FILE).exists() else ""
    lines = [line.split() for line in text.splitlines()]
    sizes = [(int(number) + 1, int(planned), int(measured)) for number, planned, measured in lines]
    return CellRun(spec, rounds, time.monotonic() - began_s, sizes)
