"""What the server knows of the devices, round by round: reports, measurements, who took part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcell.flower.radio import Device, Look, Timing
from fedcell.schedule.bandwidth import Floats
from fedcell.schedule.estimate import ComputeEstimates
from fedcell.schedule.policy import Indices, Plan, RoundView

Arrays = Mapping[str, NDArray[np.generic]]
SHORTEST_S = 1e-9
"""A measured upload takes at least so long: clocks are coarse, and 0 would make a link that costs nothing."""


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Of M devices, in the order in which they were first met.

    A device's compute time is what the radio says, else what its rounds showed, else what it reported, else the
    median of the others. Its upload time is what the radio says (from its report), else what its
    rounds showed, else the median.

    Attributes:
        names: M names.
        compute: what rounds showed of compute times.
        upload: what rounds showed of whole-band upload times, where the radio knew none.
        last_round: (M,) the round each last took part in, -1 for never.
        mean_upload_s: (M,) the mean of its upload times so far.
        looks: (M,) of how many rounds that mean is.
    """

    names: tuple[str, ...]
    compute: ComputeEstimates
    upload: ComputeEstimates
    last_round: Indices
    mean_upload_s: Floats
    looks: Indices

    @classmethod
    def none(cls) -> "Knowledge":
        """Before the first device."""
        nothing = ComputeEstimates.none(0)
        return cls((), nothing, nothing, np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))

    def meeting(self, names: Sequence[str]) -> "Knowledge":
        """Return the knowledge with these devices in it; new ones come last, ordered by number or name."""
        new = sorted(set(names) - set(self.names), key=lambda name: (not name.isdigit(), len(name.lstrip("0")), name))
        if not new:
            return self
        M, more = len(self.names) + len(new), (0, len(new))
        return Knowledge(
            (*self.names, *new),
            self.compute.for_devices(M),
            self.upload.for_devices(M),
            np.pad(self.last_round, more, constant_values=-1),
            np.pad(self.mean_upload_s, more),
            np.pad(self.looks, more),
        )

    def indices(self, devices: Sequence[Device]) -> Indices:
        """The numbers of these devices, which tell them apart from round to round."""
        number = {name: index for index, name in enumerate(self.names)}
        return np.array([number[device.name] for device in devices], dtype=np.int64)

    def view(self, devices: Sequence[Device], look: Look, round_index: int) -> RoundView:
        """What a policy sees of the devices that are there."""
        there = self.indices(devices)
        upload_s, compute_s = self._known(devices, look)
        upload_s = _with_median(upload_s, otherwise=1.0)  # where nobody knows anything all links are alike
        compute_s = _with_median(compute_s, otherwise=0.0)
        mean_upload_s = np.where(self.looks[there] > 0, self.mean_upload_s[there], upload_s)
        samples = np.array([device.report.samples or 0.0 for device in devices])
        return RoundView(
            upload_s,
            compute_s,
            round_index=round_index,
            ids=there,
            last_round=self.last_round[there],
            mean_upload_s=mean_upload_s,
            samples=samples if samples.all() else None,
        )

    def _known(self, devices: Sequence[Device], look: Look) -> tuple[Floats, Floats]:
        """What is known of upload and compute times, NaN where nothing is."""
        there = self.indices(devices)
        reported = np.array([device.report.expected_compute_s() for device in devices])
        upload_s = _first_known(look.upload_s, _where_seen(self.upload, there))
        return upload_s, _first_known(look.compute_s, _where_seen(self.compute, there), reported)

    def unknown(self, devices: Sequence[Device], look: Look) -> dict[str, list[str]]:
        """By ``link`` and ``speed``, the names of the devices of which nothing is known of it."""
        upload_s, compute_s = self._known(devices, look)
        return {
            what: [device.name for device, value in zip(devices, values, strict=True) if np.isnan(value)]
            for what, values in (("link", upload_s), ("speed", compute_s))
        }

    def after(self, view: RoundView, plan: Plan, look: Look, timing: Timing) -> "Knowledge":
        """Return the knowledge after a round.

        Args:
            view: what the round was planned with.
            plan: who trained.
            look: what the radio had said; uploads are learnt only where it knew no link.
            timing: when the scheduled devices began to upload and finished; NaN teaches nothing.
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

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """All but the names, to be saved."""
        return {
            "compute_s": self.compute.mean_s,
            "compute_seen": self.compute.seen,
            "upload_s": self.upload.mean_s,
            "upload_seen": self.upload.seen,
            "last_round": self.last_round,
            "mean_upload_s": self.mean_upload_s,
            "looks": self.looks,
        }

    @classmethod
    def from_arrays(cls, names: Sequence[str], arrays: Arrays) -> "Knowledge":
        """The inverse of to_arrays."""

        def floats(name: str) -> Floats:
            return np.array(arrays[name], dtype=np.float64)

        def whole(name: str) -> Indices:
            return np.array(arrays[name], dtype=np.int64)

        compute = ComputeEstimates(floats("compute_s"), whole("compute_seen"))
        upload = ComputeEstimates(floats("upload_s"), whole("upload_seen"))
        return cls(tuple(names), compute, upload, whole("last_round"), floats("mean_upload_s"), whole("looks"))


def _where_seen(estimates: ComputeEstimates, there: Indices) -> Floats:
    return np.where(estimates.seen[there] > 0, estimates.mean_s[there], np.nan)


def _first_known(*sources: Floats) -> Floats:
    """For each device the first source that knows it."""
    best = sources[0]
    for source in sources[1:]:
        best = np.where(np.isfinite(best), best, source)
    return best


def _with_median(values: Floats, otherwise: float) -> Floats:
    """NaN becomes the median of the others, or ``otherwise`` if there are none."""
    known = np.isfinite(values)
    return np.where(known, values, np.median(values[known]) if known.any() else otherwise)
