"""Link laws: how the uploads of a round share what carries them.

A law says which share a device needs to have delivered by T. The paper's, `Density`, is the default: one band that all
uploads share. `Dedicated` is what most federations over the internet have: every device has its own line.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_NEXT_TO_NOTHING = 1e-15


@dataclass(frozen=True)
class Density:
    """The paper's law: with the share g of the band, an upload takes c / g seconds.

    To have delivered by T a device needs the share c_i / (T - t_i).

    Example:
        >>> import fedcell as fc
        >>> fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Density()).round_s
        6.0
    """

    def as_density(self, upload_s: _Floats, compute_s: _Floats) -> tuple[_Floats, _Floats]:
        """Return (M,) upload and compute times that under `Density` give the same round times: these."""
        return upload_s, compute_s


@dataclass(frozen=True)
class Dedicated:
    """Every device has a line of its own, so an upload takes c seconds whoever else uploads: the share is always 1.

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

    def as_density(self, upload_s: _Floats, compute_s: _Floats) -> tuple[_Floats, _Floats]:
        """Return (M,) upload and compute times that under `Density` give the same round times, up to rounding.

        All is training, and the uploads next to nothing.
        """
        ends_s = upload_s + compute_s
        return np.full(ends_s.size, _NEXT_TO_NOTHING * ends_s.min()), ends_s


Law = Density | Dedicated
"""Any link law."""
