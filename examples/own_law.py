"""A link law of one's own: time slots, of which each device loses a part to switching.

Run it with ``python examples/own_law.py``, or use the law anywhere, such as
``fedcell plan examples/devices.csv --law examples.own_law:Slots:guard=0.02``.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

import fedcell as fc
from fedcell.schedule.laws import Needs, register, setting
from fedcell.types import Floats


@dataclass(frozen=True)
class Slots(fc.Law):
    """Devices take turns in a frame, and each loses the part ``guard`` of it: an upload takes c / (g - guard) seconds.

    Attributes:
        guard: the part of a frame that a device that sends in it loses.
    """

    label: ClassVar[str] = "time slots with guard times"
    shared: ClassVar[str] = "the frame"

    guard: float = field(default=0.01, metadata=setting("guard time, % of a frame", usual=0.01, scale=0.01))

    def upload_s(self, whole_s: Floats, shares: Floats) -> Floats:
        """How long an upload takes with a share."""
        seconds: Floats = whole_s / (shares - self.guard)
        return seconds

    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        """What the compiled `need` below takes."""
        return Needs(SlotsNeeds(self.guard), upload_s, compute_s, upload_s)

    @property
    def max_devices(self) -> float:
        """So many can send in one frame."""
        return math.ceil(1.0 / self.guard) - 1

    def resources(self, share: float, bandwidth_hz: float) -> dict[str, float]:  # noqa: ARG002
        """What a device gets: all of the band, for a part of the time."""
        return {"ms_per_second": 1000.0 * share}


class SlotsNeeds(NamedTuple):
    """The law in compiled code: its type selects the functions, and these are its numbers."""

    guard: float


def need(law: Any, c: float, t: float, _e: float, T: float) -> float:
    """The share that a device needs to be done by T. All else follows from it."""
    return law.guard + c / (T - t) if t < T else np.inf


register(SlotsNeeds, need=need)


def main() -> None:
    """Plan a round with and without guard times, and race two policies with them."""
    drawn = fc.World().conditions(seed=0)
    for guard in (1e-9, 0.02):
        view = fc.RoundView(drawn.upload_s, drawn.compute_s, law=Slots(guard))
        for policy in (fc.Greedy(theta=0.0), fc.Optimal(theta=0.0)):
            plan = policy.decide(view, np.random.default_rng(0))
            print(f"guard {guard:g}, {type(policy).__name__}: {plan.devices.size} devices in {plan.round_s:.2f} s")
    for line in ("greedy", "all"):
        spec = fc.Spec(policy=line, rounds=3).changed({"cell.law": Slots(0.02), "task.hidden": [8]})
        *_, last = fc.simulate(spec)
        print(f"{line}: 3 rounds in {last.clock_s:.1f} s")


if __name__ == "__main__":
    main()
