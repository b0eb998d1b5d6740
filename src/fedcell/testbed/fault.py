"""Injected faults: what happens, to which device, in which round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from fedcell import settings
from fedcell.errors import InputError

FaultKind = Literal["cut", "degrade", "kill"]
TENTH = 0.1


@dataclass(frozen=True)
class Fault:
    """Something goes wrong in the middle of a device's upload.

    Attributes:
        kind: ``cut``: its link is down until the round ends; ``degrade``: its rate falls to a tenth for the rest of the
            round; ``kill``: its processes are killed and never come back.
        device: whose.
        round: from 1.
    """

    kind: FaultKind
    device: int
    round: int


def parse_fault(text: str, devices: int) -> Fault:
    """The fault that a line describes.

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
    """Refuse what cannot be put in each of so many runs."""
    if runs > 1 and any(fault.kind == "kill" for fault in faults):
        raise InputError("a killed device is missing in the next run; emulate one run only, or cut its link instead")
