"""What is emulated: specs of runs, scaled in time, and injected faults. Needs neither Flower nor a network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from fedcell import defaults, settings
from fedcell.errors import InputError
from fedcell.schedule.laws import LAWS, parse_law
from fedcell.schedule.policy import Policy
from fedcell.schedule.registry import format_policy, parse_policy
from fedcell.sim.spec import Spec, load_spec
from fedcell.sim.task import Task, load_task
from fedcell.testbed.wire import upload_bytes
from fedcell.world import RandomWaypoint

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
    """Parse a fault.

    Args:
        text: ``cut:device=2,round=3``, and likewise ``degrade`` and ``kill``.
        devices: how many devices there are.
    """
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
