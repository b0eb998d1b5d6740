"""What a server knows about its devices, in a simulation and in a real federation.

Links and compute times are known in advance (a report, the simulator's perfect foresight), estimated from earlier
rounds, or not known at all: then the median of the other devices is assumed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedcell.schedule.bandwidth import Floats
from fedcell.schedule.laws import Density, Law
from fedcell.schedule.policy import Indices, Plan, RoundView
from fedcell.world import Conditions

Foresight = Literal["perfect", "expected", "observed"]
"""What a server knows about compute times before a round: the true ones, their means, or what earlier rounds showed."""

WINDOW = 10
"""An estimate is the mean of a device's first ten observations, then a moving average: devices change."""
FADE = 0.9
"""A round counts this much less for the balance of the model than the round after it."""
SHORTEST_S = 1e-9
"""A measured upload takes at least this long: clocks are coarse, and 0 would be a link that costs nothing."""


@dataclass(frozen=True, eq=False)
class Look:
    """What is known about M devices before a round, apart from what earlier rounds showed; NaN where nothing is known.

    Attributes:
        upload_s: (M,) seconds to upload a model with the entire band.
        compute_s: (M,) seconds of local training.
        law: how the uploads share what carries them.

    Example:
        >>> import numpy as np
        >>> from fedcell.sim.knowledge import Look
        >>> Look(upload_s=np.array([0.5, np.nan]), compute_s=np.full(2, np.nan)).upload_s.tolist()
        [0.5, nan]
    """

    upload_s: Floats
    compute_s: Floats
    law: Law = Density()  # noqa: RUF009 - frozen, without fields


@dataclass(frozen=True, eq=False)
class Timing:
    """When the n scheduled devices of a round started to upload and finished, in seconds from the start of the round.

    Attributes:
        began_s: (n,) start of the upload, in the plan's order; NaN where it was not observed.
        finish_s: (n,) end of the upload; NaN for a device that has not delivered.

    Example:
        >>> import numpy as np
        >>> from fedcell.sim.knowledge import Timing
        >>> timing = Timing(began_s=np.array([2.0, 3.0]), finish_s=np.array([6.0, np.nan]))
        >>> (timing.finish_s - timing.began_s).tolist()
        [4.0, nan]
    """

    began_s: Floats
    finish_s: Floats


def known_compute_s(conditions: Conditions, foresight: Foresight) -> Floats:
    """Return what a server knows about the compute times of a round in advance.

    Args:
        conditions: of the round.
        foresight: ``perfect``, ``expected`` or ``observed``.

    Returns:
        (M,) seconds; NaN for ``observed``, where only earlier rounds tell.
    """
    return {
        "perfect": conditions.compute_s,
        "expected": conditions.expected_compute_s,
        "observed": np.full(conditions.compute_s.size, np.nan),
    }[foresight]


@dataclass(frozen=True, eq=False)
class Estimates:
    """A time of each of M devices, estimated from the rounds in which it was observed.

    Attributes:
        mean_s: (M,) the estimate in seconds; meaningless for a device that was never observed.
        seen: (M,) how many times the device was observed.

    Example:
        >>> import numpy as np
        >>> from fedcell.sim.knowledge import Estimates
        >>> seen = Estimates.none(3).after(np.array([0, 1]), np.array([2.0, 4.0]))
        >>> seen.known_s(np.arange(3)).tolist()
        [2.0, 4.0, nan]
    """

    mean_s: Floats
    seen: Indices

    @classmethod
    def none(cls, M: int) -> "Estimates":
        """Return the estimates before anything was observed of M devices."""
        return cls(np.zeros(M), np.zeros(M, dtype=np.int64))

    def after(self, devices: Indices, time_s: Floats) -> "Estimates":
        """Return the estimates after one more observation of each of these devices.

        Args:
            devices: (n,) distinct device numbers.
            time_s: (n,) the observed times in seconds.
        """
        if devices.size == 0:
            return self
        mean_s, seen = self.mean_s.copy(), self.seen.copy()
        seen[devices] += 1
        mean_s[devices] += (time_s - mean_s[devices]) / np.minimum(seen[devices], WINDOW)
        return Estimates(mean_s, seen)

    def for_devices(self, M: int) -> "Estimates":
        """Return the estimates extended to M devices; nothing was observed of the new ones."""
        more = (0, M - self.seen.size)
        return Estimates(np.pad(self.mean_s, more), np.pad(self.seen, more))

    def known_s(self, devices: Indices) -> Floats:
        """Return the estimates of these devices in seconds, NaN for those never observed."""
        return np.where(self.seen[devices] > 0, self.mean_s[devices], np.nan)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What earlier rounds showed about M devices, which are numbered from 0.

    Attributes:
        compute: observed compute times.
        upload: observed upload times with the entire band, for links that were not known in advance.
        last_round: (M,) the round in which a device was last scheduled, -1 for never.
        mean_upload_s: (M,) the mean of its upload times so far.
        looks: (M,) the number of rounds in that mean.
        profiles: (M, d) what is known about the devices' data, a row of NaN where nothing is.
        recent: (M,) the sum of a device's weights in the rounds' means, each round counting 0.9 times the next.
    """

    compute: Estimates
    upload: Estimates
    last_round: Indices
    mean_upload_s: Floats
    looks: Indices
    profiles: Floats
    recent: Floats

    @classmethod
    def none(cls, M: int, d: int = 0) -> "Knowledge":
        """Return what is known before the first round of M devices with profiles of d entries: nothing."""
        nothing = Estimates.none(M)
        unseen = np.zeros(M, dtype=np.int64)
        return cls(nothing, nothing, np.full(M, -1), np.zeros(M), unseen, np.full((M, d), np.nan), np.zeros(M))

    def __len__(self) -> int:
        return int(self.looks.size)

    def for_devices(self, M: int) -> "Knowledge":
        """Return the knowledge extended to M devices; nothing is known about the new ones."""
        more = (0, M - len(self))
        return Knowledge(
            self.compute.for_devices(M),
            self.upload.for_devices(M),
            np.pad(self.last_round, more, constant_values=-1),
            np.pad(self.mean_upload_s, more),
            np.pad(self.looks, more),
            np.pad(self.profiles, (more, (0, 0)), constant_values=np.nan),
            np.pad(self.recent, more),
        )

    def learning(self, devices: Indices, profiles: Floats) -> "Knowledge":
        """Return the knowledge with new profiles of some devices; a device that had one gets the mean of both.

        Args:
            devices: (n,) distinct device numbers.
            profiles: (n, d) what they brought; rows with NaN are ignored. Another d than before replaces all profiles.
        """
        usable = np.isfinite(profiles).all(axis=1)
        if not usable.any():
            return self
        same = self.profiles.shape[1] == profiles.shape[1]
        after = self.profiles.copy() if same else np.full((len(self), profiles.shape[1]), np.nan)
        new, which = profiles[usable], devices[usable]
        after[which] = np.where(np.isnan(after[which]), new, 0.5 * (after[which] + new))
        return replace(self, profiles=after)

    def known(self, look: Look, there: Indices, reported_s: Floats | None = None) -> Look:
        """Return what is known about the connected devices, NaN where nothing is known.

        An upload time comes from ``look``, otherwise from earlier rounds; a compute time likewise, otherwise from the
        device's report.

        Args:
            look: what is known in advance about these n devices.
            there: (n,) their numbers.
            reported_s: (n,) the compute times they reported, NaN where they reported none.
        """
        compute_s = _first_known(look.compute_s, self.compute, there)
        if reported_s is not None:
            compute_s = np.where(np.isfinite(compute_s), compute_s, reported_s)
        return Look(_first_known(look.upload_s, self.upload, there), compute_s)

    def view(
        self,
        look: Look,
        round_index: int,
        *,
        there: Indices | None = None,
        reported_s: Floats | None = None,
        **columns: Any,
    ) -> RoundView:
        """Return what a policy sees of the connected devices.

        Args:
            look: what is known in advance about these n devices.
            round_index: the round, from 0.
            there: (n,) their numbers; all devices by default.
            reported_s: (n,) the compute times they reported, NaN where they reported none.
            columns: further fields of the RoundView.

        Returns:
            RoundView: of n devices; an unknown time is the median of the others. If all are unknown, links are assumed
            equal and training times 0: the optimistic guess, which schedules the best channels first, and their times
            become known.
        """
        there = np.arange(len(self)) if there is None else there
        known = self.known(look, there, reported_s)
        upload_s = _with_median(known.upload_s, otherwise=1.0)
        return RoundView(
            upload_s,
            _with_median(known.compute_s, otherwise=0.0),
            round_index=round_index,
            ids=there,
            last_round=self.last_round[there],
            mean_upload_s=np.where(self.looks[there] > 0, self.mean_upload_s[there], upload_s),
            profiles=self.profiles[there] if self.profiles.shape[1] else None,
            recent=self.recent[there],
            law=look.law,
            **columns,
        )

    def averaged(self, devices: Indices, weights: Floats | None = None) -> "Knowledge":
        """Return the knowledge after the mean of a round's models was taken.

        Args:
            devices: (n,) distinct numbers of the devices whose models are in it; none if it was not taken.
            weights: (n,) their weights, up to a common factor; equal by default.
        """
        if devices.size == 0:
            return self
        recent, share = self.recent.copy(), np.ones(devices.size) if weights is None else weights
        recent[devices] += share / share.sum()
        return replace(self, recent=FADE * recent)

    def after(self, view: RoundView, plan: Plan, look: Look, timing: Timing) -> "Knowledge":
        """Return the knowledge after a round.

        Args:
            view: what the round was planned with.
            plan: who trained.
            look: what was known in advance; upload times are estimated only where that was nothing.
            timing: when the scheduled devices started to upload and finished; NaN is ignored.
        """
        there = np.asarray(view.ids)
        trained = there[plan.devices]
        last_round = self.last_round.copy()
        last_round[trained] = view.round_index
        looks, mean_upload_s = self.looks.copy(), self.mean_upload_s.copy()
        looks[there] += 1
        mean_upload_s[there] += (view.upload_s - mean_upload_s[there]) / looks[there]

        seen = np.isfinite(timing.began_s) & np.isfinite(timing.finish_s)
        compute = self.compute.after(trained[seen], timing.began_s[seen])
        unknown = seen & ~np.isfinite(look.upload_s[plan.devices])
        whole_band_s = np.maximum((timing.finish_s - timing.began_s) * plan.shares, SHORTEST_S)
        upload = self.upload.after(trained[unknown], whole_band_s[unknown])
        return replace(
            self, compute=compute, upload=upload, last_round=last_round, mean_upload_s=mean_upload_s, looks=looks
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name, to be saved."""
        return {
            "compute_s": self.compute.mean_s,
            "compute_seen": self.compute.seen,
            "upload_s": self.upload.mean_s,
            "upload_seen": self.upload.seen,
            "last_round": self.last_round,
            "mean_upload_s": self.mean_upload_s,
            "looks": self.looks,
            "profiles": self.profiles,
            "recent": self.recent,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Knowledge":
        """The inverse of to_arrays."""

        def floats(name: str) -> Floats:
            return np.array(arrays[name], dtype=np.float64)

        def whole(name: str) -> Indices:
            return np.array(arrays[name], dtype=np.int64)

        compute = Estimates(floats("compute_s"), whole("compute_seen"))
        upload = Estimates(floats("upload_s"), whole("upload_seen"))
        return cls(
            compute,
            upload,
            whole("last_round"),
            floats("mean_upload_s"),
            whole("looks"),
            floats("profiles"),
            floats("recent"),
        )


def _first_known(times_s: Floats, estimates: Estimates, there: Indices) -> Floats:
    known = np.isfinite(times_s)
    return times_s if known.all() else np.where(known, times_s, estimates.known_s(there))


def _with_median(values: Floats, otherwise: float) -> Floats:
    """NaN becomes the median of the others, or ``otherwise`` if there are none."""
    known = np.isfinite(values)
    if known.all():
        return values
    return np.where(known, values, np.median(values[known]) if known.any() else otherwise)
