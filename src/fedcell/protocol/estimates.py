"""A time of each device, estimated from the rounds in which it was observed; optimistic exploration of stale estimates.

A policy that minimises time schedules the devices that it believes to be fast, so it never learns that a device which
it believes to be slow is slow no longer. Therefore an estimate is trusted less the older it is: after age_s without an
observation, a device with the estimate mean_s is assumed to take

    optimistic_s = f mean_s,    f = 1 / (1 + age_s / (EXPLORATION_HALF_LIFE 2^failed_probes turn_s)),

where turn_s is how long a typical device takes to train and upload, and ``failed_probes`` how many times in a row it
was scheduled on such an assumption and was as slow as before. A device that is r times slower than those that are
scheduled is thus tried again after about EXPLORATION_HALF_LIFE (r - 1) rounds, and if it stays slow, twice as late each
time. Only every EXPLORE_EVERY-th round explores: the devices that are due are probed together, and a round lasts as
long as its slowest device, however many of them are slow.
"""

from dataclasses import dataclass

import numpy as np

from fedcell.protocol.columns import Table, column
from fedcell.types import Bools, Floats, Indices

WINDOW = 10
"""An estimate is the mean of a device's first ten observations, then a moving average: devices change."""
EXPLORATION_HALF_LIFE = 16.0
"""An estimate is trusted half after this many turns without an observation, if no probe has failed."""
EXPLORE_EVERY = 10
"""One of so many rounds explores.

Chosen with EXPLORATION_HALF_LIFE by ``benchmarks/exploring.py --tune``. Twice as much of both is a little better over
300 rounds, but many federations run for some tens of rounds, in which nobody would be probed.
"""
MAX_FAILED_PROBES = 30
"""Probes are not put off further after so many failures, so that 2^failed_probes stays a moderate number."""
MIN_OBSERVATIONS = 3
"""A device that takes turns with others at one machine is not called slower, or faster, after fewer observations."""
LEAST_GROWTH = 1.5
"""The least time of late rises by this factor with each observation: it follows a device that becomes slower."""
MIN_SECONDS = 1e-9
"""No time counts as shorter: clocks are coarse, and an upload of 0 s would be a link that costs nothing."""


def is_exploration_round(round_index: int) -> bool:
    """Whether this round, from 0, explores.

    Example:
        >>> from fedcell.protocol.estimates import is_exploration_round
        >>> [r for r in range(30) if is_exploration_round(r)]
        [9, 19, 29]
    """
    return (round_index + 1) % EXPLORE_EVERY == 0


@dataclass(frozen=True, eq=False)
class Estimates(Table):
    """A time of each of M devices, estimated from the rounds in which it was observed.

    Attributes:
        mean_s: (M,) the estimate in seconds; meaningless for a device that was never observed.
        weight: (M,) of the observations in it: their number, but less where they are old; 0 for none.
        last_s: (M,) the clock at the last observation, in seconds; for a device that was never observed the clock when
            it was first met, and NaN before that.
        failed_probes: (M,) how many times in a row it was scheduled as if it had become faster, and had not.
        least_s: (M,) the least time of late, in seconds: LEAST_GROWTH times what it was, or the newest if that is less.
            Other work on a machine only ever delays, so this is the observation that it delayed least.

    Example:
        >>> import numpy as np
        >>> from fedcell.protocol.estimates import Estimates
        >>> both = np.array([0, 1])
        >>> known = Estimates.empty(3).with_observations(both, np.array([2.0, 4.0]), clock_s=5.0)
        >>> known.known_s(np.arange(3)).tolist()
        [2.0, 4.0, nan]
        >>> known.optimistic_s(both, known.known_s(both), clock_s=5.0 + 64.0, turn_s=4.0).tolist()
        [1.0, 2.0]
    """

    mean_s: Floats = column(0.0, stored="s")
    weight: Floats = column(0.0, stored="seen")
    last_s: Floats = column(np.nan)
    failed_probes: Indices = column(0, np.int64, stored="doubts")
    least_s: Floats = column(np.inf, later=True)

    def with_first_seen(self, devices: Indices, clock_s: float) -> "Estimates":
        """Return the estimates with these devices (n,) met by now at the latest: from then on they grow stale."""
        new = devices[np.isnan(self.last_s[devices])]
        if new.size == 0:
            return self
        last_s = self.last_s.copy()
        last_s[new] = clock_s
        return self.changed(last_s=last_s)

    def known_s(self, devices: Indices) -> Floats:
        """Return the estimates of these devices in seconds, NaN for those never observed."""
        return np.where(self.weight[devices] > 0, self.mean_s[devices], np.nan)

    def pooled(self, devices: Indices, factor: float) -> "Estimates":
        """Return the estimates with those of these devices equal whose times are no sign that they differ.

        For devices that train on one machine, which has other work, too: it makes any of them look slower now and then,
        by any factor. So a device counts as slower than the others only if its least time of late, of at least
        MIN_OBSERVATIONS observations, is more than ``factor`` times their median; likewise as faster. All are estimated
        by these least times.

        Args:
            devices: (n,) distinct device numbers.
            factor: at least 1.
        """
        seen = devices[self.weight[devices] > 0]
        if seen.size == 0:
            return self
        least_s = np.where(np.isfinite(self.least_s[seen]), self.least_s[seen], self.mean_s[seen])
        usual_s = np.median(least_s)
        differs = (self.weight[seen] >= MIN_OBSERVATIONS) & (
            (least_s > factor * usual_s) | (factor * least_s < usual_s)
        )
        mean_s = self.mean_s.copy()
        mean_s[seen] = np.where(differs, least_s, usual_s)
        return self.changed(mean_s=mean_s)

    def optimistic_s(self, devices: Indices, mean_s: Floats, clock_s: float, turn_s: float) -> Floats:
        """Return the times that these devices may have by now, if all goes well.

        Args:
            devices: (n,) distinct device numbers.
            mean_s: (n,) their estimates in seconds; for those never observed, what is assumed instead.
            clock_s: the time now, in seconds.
            turn_s: how long a typical device takes to train and upload, in seconds.

        Returns:
            (n,) seconds, at most ``mean_s``, and exactly that for a device observed just now or not met before.
        """
        age_s = np.maximum(np.nan_to_num(clock_s - self.last_s[devices], nan=0.0), 0.0)
        patience_s = EXPLORATION_HALF_LIFE * 2.0 ** self.failed_probes[devices] * max(turn_s, MIN_SECONDS)
        optimistic: Floats = mean_s * (patience_s / (patience_s + age_s))
        return optimistic

    def with_observations(
        self,
        devices: Indices,
        time_s: Floats,
        *,
        planned_s: Floats | None = None,
        censored: Bools | None = None,
        clock_s: float = 0.0,
    ) -> "Estimates":
        """Return the estimates after one more observation of each of these devices.

        An observation is a probe if the device was planned with a time below its estimate. A probe that shows a time
        closer to the planned than to the estimated one (on a logarithmic scale) restarts the estimate: the device has
        changed. Any other has failed, and older observations count f times, as much as they were trusted.

        Args:
            devices: (n,) distinct device numbers.
            time_s: (n,) the observed times in seconds.
            planned_s: (n,) the times in seconds with which the round was planned; by default the estimates.
            censored: (n,) booleans: the device took at least this long, so the estimate does not fall.
            clock_s: the time at the end of the round, in seconds.
        """
        if devices.size == 0:
            return self
        old_s, old = self.mean_s[devices], self.weight[devices]
        plan_s = old_s if planned_s is None else planned_s
        probed = (old > 0) & (plan_s < old_s)
        if censored is not None:
            time_s = np.where(censored & (old > 0), np.maximum(time_s, old_s), time_s)
        better = probed & (time_s <= np.sqrt(old_s * np.where(probed, plan_s, 0.0)))
        trust = np.divide(plan_s, old_s, out=np.ones(devices.size), where=probed)

        mean_s, weight, last_s = self.mean_s.copy(), self.weight.copy(), self.last_s.copy()
        failed_probes, least_s = self.failed_probes.copy(), self.least_s.copy()
        weight[devices] = np.where(better, 1.0, trust * old + 1.0)
        mean_s[devices] = np.where(better, time_s, old_s + (time_s - old_s) / np.minimum(weight[devices], WINDOW))
        last_s[devices] = clock_s
        more = np.minimum(failed_probes[devices] + 1, MAX_FAILED_PROBES)
        failed_probes[devices] = np.where(better, 0, np.where(probed, more, failed_probes[devices]))
        least_s[devices] = np.minimum(time_s, LEAST_GROWTH * least_s[devices])
        return Estimates(mean_s, weight, last_s, failed_probes, least_s)
