"""The devices that a run has met, by name, and what it knows of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from fedcell.flower.radio import Device
from fedcell.learn.profile import noise_of
from fedcell.protocol.knowledge import Knowledge
from fedcell.schedule.plan import Links
from fedcell.schedule.policy import Policy
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats, Indices

FARTHEST = 10.0
"""How far a profile may be from the median of all, in median distances, and still count as it is."""


@dataclass(frozen=True, eq=False)
class Roster:
    """M devices in the order in which they were first met: a device's number is its place.

    Attributes:
        names: M names.
        knowledge: what rounds showed of them.
    """

    names: tuple[str, ...]
    knowledge: Knowledge

    @classmethod
    def empty(cls) -> "Roster":
        """Before the first device."""
        return cls((), Knowledge.empty(0))

    def meeting(self, names: Sequence[str]) -> "Roster":
        """Return the roster with these devices in it; new ones come last, ordered by number or name."""
        new = sorted(set(names) - set(self.names), key=lambda name: (not name.isdigit(), len(name.lstrip("0")), name))
        if not new:
            return self
        return Roster((*self.names, *new), self.knowledge.grow(len(self.names) + len(new)))

    def indices(self, devices: Sequence[Device]) -> Indices:
        """The numbers of these devices, which tell them apart from round to round."""
        number = {name: index for index, name in enumerate(self.names)}
        return np.array([number[device.name] for device in devices], dtype=np.int64)

    def hearing(self, devices: Sequence[Device]) -> "Roster":
        """Return the roster with the profiles in these devices' reports, instead of those that they had before.

        All profiles have as many numbers as most devices' have; others are ignored. A device that reports none keeps
        what it had.
        """
        there, profiles = self.indices(devices), self.knowledge.profiles
        said = {int(i): d.report.profile for i, d in zip(there, devices, strict=True) if d.report.profile is not None}
        if not said:
            return self
        used, known = profiles.shape[1], np.flatnonzero(np.isfinite(profiles).all(axis=1))
        votes = Counter(len(said[i]) for i in sorted(said))
        votes[used] += sum(int(i) not in said for i in known) if used else 0
        usual = max(votes, key=lambda d: (votes[d], d == used))
        after = profiles.copy() if usual == used else np.full((len(self.names), usual), np.nan)
        for i, profile in said.items():
            after[i] = profile if len(profile) == usual else np.nan
        return replace(self, knowledge=replace(self.knowledge, profiles=after))

    def odd_profiles(self, devices: Sequence[Device]) -> list[str]:
        """Names of the devices whose profiles are not used, because most others have another number of entries."""
        usual = self.knowledge.profiles.shape[1]
        return [d.name for d in devices if d.report.profile is not None and len(d.report.profile) != usual]

    def view(
        self,
        devices: Sequence[Device],
        look: Links,
        round_index: int,
        *,
        clock_s: float = 0.0,
        left_s: float = inf,
        explore: bool = False,
        epsilon: float | None = None,
        policy: Policy | None = None,
        alike: float = 1.0,
    ) -> RoundView:
        """What a policy sees of the devices that are there.

        Args:
            devices: M devices.
            look: what the radio knows about them.
            round_index: the round, from 0.
            clock_s: the time at its start, in seconds.
            left_s: seconds left of the budget.
            explore: whether stale estimates earn a look.
            epsilon: of the noise in the devices' profiles, or None.
            policy: who looks; see `Knowledge.view`.
            alike: observed training times within this factor of their median count as equal to it.
        """
        samples = np.array([device.report.samples or 0.0 for device in devices])
        known = replace(self.knowledge, profiles=bounded(self.knowledge.profiles))
        if alike > 1.0:
            known = replace(known, compute=known.compute.levelled(self.indices(devices), alike))
        return known.view(
            look,
            round_index,
            clock_s=clock_s,
            explore=explore,
            there=self.indices(devices),
            reported_s=_reported_s(devices),
            samples=samples if samples.all() else None,
            profile_noise=noise_of(epsilon, self.knowledge.profiles.shape[1]),
            left_s=left_s,
            policy=policy,
        )

    def unknown(self, devices: Sequence[Device], look: Links) -> dict[str, Bools]:
        """By ``link`` and ``speed``, (M,) booleans: the devices of which nothing is known of it."""
        upload_s, compute_s = self.knowledge.known(look, self.indices(devices), _reported_s(devices))
        return {"link": np.isnan(upload_s), "speed": np.isnan(compute_s)}

    def resting(self, devices: Sequence[Device], round_index: int, least: int = 1) -> Bools:
        """(M,) the devices that rest after failures; ``least`` of them do not, those that may try again soonest."""
        there = self.indices(devices)
        rests = self.knowledge.resting(round_index, there)
        soonest = np.argsort(np.where(rests, self.knowledge.retry_round[there], -1), kind="stable")
        rests[soonest[:least]] = False
        return rests


def bounded(profiles: Floats) -> Floats:
    """Return the profiles, those that are absurdly far from the others drawn in.

    All profiles are divided by their common spread: a single one of 1e6 would make all others look alike.
    """
    known = np.flatnonzero(np.isfinite(profiles).all(axis=1))
    if known.size < 3 or profiles.shape[1] == 0:
        return profiles
    centre = np.median(profiles[known], axis=0)
    away = profiles[known] - centre
    distance = np.linalg.norm(away, axis=1)
    most = FARTHEST * float(np.median(distance))
    far = distance > most
    if most == 0.0 or not far.any():
        return profiles
    bounded = profiles.copy()
    bounded[known[far]] = centre + away[far] * (most / distance[far])[:, np.newaxis]
    return bounded


def _reported_s(devices: Sequence[Device]) -> Floats:
    return np.array([device.report.expected_compute_s() for device in devices])
