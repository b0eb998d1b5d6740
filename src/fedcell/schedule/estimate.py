"""What a server learns of compute times from the rounds in which it saw them."""

from dataclasses import dataclass, replace

import numpy as np

from fedcell.schedule.bandwidth import Floats
from fedcell.schedule.policy import Indices

WINDOW = 10
"""An estimate is the mean of a device's first observations and then follows the last ten or so: devices change."""


@dataclass(frozen=True, eq=False)
class ComputeEstimates:
    """Estimated compute times of M devices.

    Attributes:
        mean_s: (M,) the estimate, of no meaning where nothing was seen.
        seen: (M,) how often the device was seen.
    """

    mean_s: Floats
    seen: Indices

    @classmethod
    def none(cls, M: int) -> "ComputeEstimates":
        """Nothing seen of any of M devices."""
        return cls(np.zeros(M), np.zeros(M, dtype=np.int64))

    def after(self, devices: Indices, compute_s: Floats) -> "ComputeEstimates":
        """Return the estimates after seeing these devices take so long."""
        mean_s, seen = self.mean_s.copy(), self.seen.copy()
        seen[devices] += 1
        mean_s[devices] += (compute_s - mean_s[devices]) / np.minimum(seen[devices], WINDOW)
        return replace(self, mean_s=mean_s, seen=seen)

    def for_devices(self, M: int) -> "ComputeEstimates":
        """Return the estimates with room for M devices; nothing was seen of the new ones."""
        more = M - self.seen.size
        return replace(self, mean_s=np.pad(self.mean_s, (0, more)), seen=np.pad(self.seen, (0, more)))

    def compute_s(self) -> Floats:
        """(M,) the estimates; for a device never seen the median of the others, and 0 before anything was seen.

        0 is the hopeful guess: it sends the first rounds to the best channels, and teaches.
        """
        if not self.seen.any():
            return np.zeros(self.seen.size)
        known = self.seen > 0
        return np.where(known, self.mean_s, np.median(self.mean_s[known]))
