"""FedCS in its original form: as many devices as can upload one after the other before a deadline.

T. Nishio, R. Yonetani, "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge", ICC 2019
(arXiv:1804.08333), Algorithm 3.

The chosen devices S upload one after the other, each with the entire band: device i begins when the one before it has
ended and its own training is done. With c_i the upload time with the entire band and t_i the training time, the elapsed
time Theta of the uploads grows by

    c_i + max(0, t_i - Theta)

with device i, and the round has ended at T_d(S) + Theta, where T_d(S) is how long the model takes to all of S. Starting
from nobody, the device that lengthens the round least is added as long as it then ends before the deadline T_round.

`Deadline` is the same idea where the devices upload at once, with optimal shares of the band, as Shi et al. adapt it.

Where this differs from the paper:

- It asks a random tenth of 1000 devices for their times. Here all devices' times are in the view.
- Its deadline is 3 minutes for a model of 18.3 MB. The default here is 25 s, which Shi et al. use for theirs.
- Selection and aggregation take no time, as in the paper's experiments.
- The order of the uploads is only a way to choose: the band is then shared as with all policies here. With constant
  shares a device's part of the band is idle while it trains, so the round may take longer than the deadline, or less.

The tests have the algorithm as it is printed, and cases by hand.
"""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from fedcell.errors import require_number
from fedcell.schedule.downlink import Multicast
from fedcell.schedule.policy import Policy, max_scheduled
from fedcell.schedule.view import RoundView
from fedcell.types import Indices


@dataclass(frozen=True)
class FedCS(Policy):
    """Schedule as many devices as can upload one after the other before a deadline: Nishio and Yonetani's FedCS.

    If no device can, the plan is empty and the round lasts until the deadline. Devices that must be included come
    first, whatever the deadline.

    Attributes:
        seconds: the deadline, a positive number of seconds from the start of the round.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[2.0, 2.0, 9.0, 2.0], compute_s=[3.0, 4.0, 5.0, 8.0])
        >>> fc.FedCS(seconds=10.0).decide(view, np.random.default_rng(0)).devices.tolist()  # uploads end at 5, 7 and 10
        [0, 1, 3]
        >>> fc.FedCS(seconds=9.0).decide(view, np.random.default_rng(0)).devices.tolist()
        [0, 1]
    """

    seconds: float = 25.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("seconds", self.seconds, above=0)

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices in the order in which they were added."""
        order, most = view.order(), max_scheduled(view, self.max_devices, "max_devices")
        c, t, down = view.upload_s[order], view.compute_s[order], np.zeros(len(view))
        if view.downlink is not None:
            down = view.downlink.seconds[order]
        must = np.zeros(len(view), np.bool_) if view.must_include is None else view.must_include[order]
        places, down_s, elapsed_s = list[int](), 0.0, 0.0
        while len(places) < most:
            more_down = np.maximum(down - down_s, 0.0) if isinstance(view.downlink, Multicast) else down
            more_up = c + np.maximum(t - elapsed_s, 0.0)
            more_s, forced = more_down + more_up, len(places) < view.forced.size
            best = int(np.argmin(np.where(must, more_s, np.inf) if forced else more_s))
            if down_s + elapsed_s + more_s[best] > self.seconds and not forced:
                break  # all others would end later still
            down_s, elapsed_s = down_s + float(more_down[best]), elapsed_s + float(more_up[best])
            places.append(best)
            c[best] = np.inf
        return order[places]

    @override
    def empty_round_s(self) -> float:
        """The deadline: the server waits until then."""
        return self.seconds
