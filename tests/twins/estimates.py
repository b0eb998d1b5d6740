"""How estimates age, one device at a time and step by step."""

import math
from dataclasses import dataclass

from fedcell.protocol.estimates import CURIOSITY, MOST_DOUBTS, WINDOW


@dataclass
class DeviceEstimate:
    mean_s: float = 0.0
    seen: float = 0.0
    last_s: float = math.nan
    doubts: int = 0

    def meet(self, clock_s: float) -> None:
        if math.isnan(self.last_s):
            self.last_s = clock_s

    def hoped_s(self, mean_s: float, clock_s: float, turn_s: float) -> float:
        if math.isnan(self.last_s) or clock_s <= self.last_s:
            return mean_s
        patience_s = CURIOSITY * turn_s
        for _ in range(self.doubts):
            patience_s *= 2.0
        return mean_s / (1.0 + (clock_s - self.last_s) / patience_s)

    def observe(self, time_s: float, hoped_s: float, censored: bool, clock_s: float) -> None:
        self.last_s = clock_s
        if self.seen == 0.0:
            self.mean_s, self.seen = time_s, 1.0
            return
        if censored:
            time_s = max(time_s, self.mean_s)
        if hoped_s < self.mean_s:
            if time_s <= math.sqrt(self.mean_s * hoped_s):
                self.mean_s, self.seen, self.doubts = time_s, 1.0, 0
                return
            self.doubts = min(self.doubts + 1, MOST_DOUBTS)
            self.seen *= hoped_s / self.mean_s
        self.seen += 1.0
        self.mean_s += (time_s - self.mean_s) / min(self.seen, WINDOW)
