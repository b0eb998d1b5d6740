"""How estimates age, one device at a time and step by step."""

import math
from dataclasses import dataclass

from fedcell.protocol.estimates import EXPLORATION_HALF_LIFE, MAX_FAILED_PROBES, WINDOW


@dataclass
class DeviceEstimate:
    mean_s: float = 0.0
    weight: float = 0.0
    last_s: float = math.nan
    failed_probes: int = 0

    def meet(self, clock_s: float) -> None:
        if math.isnan(self.last_s):
            self.last_s = clock_s

    def optimistic_s(self, mean_s: float, clock_s: float, turn_s: float) -> float:
        if math.isnan(self.last_s) or clock_s <= self.last_s:
            return mean_s
        patience_s = EXPLORATION_HALF_LIFE * turn_s
        for _ in range(self.failed_probes):
            patience_s *= 2.0
        return mean_s / (1.0 + (clock_s - self.last_s) / patience_s)

    def observe(self, time_s: float, planned_s: float, censored: bool, clock_s: float) -> None:
        self.last_s = clock_s
        if self.weight == 0.0:
            self.mean_s, self.weight = time_s, 1.0
            return
        if censored:
            time_s = max(time_s, self.mean_s)
        if planned_s < self.mean_s:
            if time_s <= math.sqrt(self.mean_s * planned_s):
                self.mean_s, self.weight, self.failed_probes = time_s, 1.0, 0
                return
            self.failed_probes = min(self.failed_probes + 1, MAX_FAILED_PROBES)
            self.weight *= planned_s / self.mean_s
        self.weight += 1.0
        self.mean_s += (time_s - self.mean_s) / min(self.weight, WINDOW)
