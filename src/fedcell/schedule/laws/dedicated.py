"""A line for each device: an upload takes as long whoever else uploads."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from fedcell.schedule.laws.base import Law
from fedcell.schedule.laws.density import DensityNeeds
from fedcell.schedule.laws.solver import Needs
from fedcell.types import Floats

_NEXT_TO_NOTHING = 1e-15


@dataclass(frozen=True)
class Dedicated(Law):
    """Every device has a dedicated link, so an upload takes c seconds whoever else uploads: the share is always 1.

    A round lasts as long as the slowest of its devices: max (t_i + c_i).

    Example:
        >>> import fedcell as fc
        >>> lines = fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Dedicated())
        >>> lines.shares.tolist(), lines.round_s
        ([1.0, 1.0], 5.0)
        >>> view = fc.RoundView([1.0, 1.5, 9.0], [2.0, 2.0, 9.0], law=fc.Dedicated())
        >>> fc.Optimal(theta=0.1).decide(view, rng=None).devices.tolist()
        [0, 1]
    """

    label: ClassVar[str] = "a dedicated link for each device"
    shared: ClassVar[str] = ""
    own_lines: ClassVar[bool] = True
    carries_late: ClassVar[bool] = True

    @override
    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        # As with one band, up to rounding: all is training, and the uploads take next to nothing.
        ends_s = upload_s + compute_s
        nothing = np.full(ends_s.shape, _NEXT_TO_NOTHING * ends_s.min(initial=1.0))
        return Needs(DensityNeeds(), nothing, ends_s, nothing)

    @override
    def equal_shares(self, upload_s: Floats, compute_s: Floats) -> Floats:
        return np.ones(upload_s.size)

    @override
    def held_share(self, shares: Floats) -> Floats:
        return np.zeros(shares.size)

    @override
    def resources(self, share: float, bandwidth_hz: float) -> dict[str, float]:
        return {}
