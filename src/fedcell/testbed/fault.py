"""Faults that are put on purpose: what, to whom, in which round."""

from dataclasses import dataclass
from typing import Literal, cast, get_args

from fedcell.check import did_you_mean
from fedcell.errors import InputError

Kind = Literal["cut", "degrade", "kill"]
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

    kind: Kind
    device: int
    round: int


def parse_fault(text: str, devices: int) -> Fault:
    """``cut:device=2,round=3``, and likewise ``degrade`` and ``kill``."""
    kind, _, rest = text.partition(":")
    if kind not in get_args(Kind):
        raise InputError(f"fault {text[:50]!r} is of unknown kind; {did_you_mean(kind[:50], get_args(Kind))}")
    pairs = [part.partition("=") for part in rest.split(",")]
    values = {key.strip(): value.strip() for key, _, value in pairs}
    if set(values) != {"device", "round"} or not all(v.isascii() and v.isdigit() for v in values.values()):
        raise InputError(f"fault {text[:50]!r} cannot be read; write it as {kind}:device=2,round=3")
    fault = Fault(cast(Kind, kind), int(values["device"]), int(values["round"]))
    if fault.device >= devices or fault.round < 1:
        raise InputError(f"fault {text[:50]!r}: devices are 0 to {devices - 1}, rounds begin with 1")
    return fault
