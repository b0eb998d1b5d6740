"""What a policy sees (RoundView), what it decides (Plan), and the base class of all policies."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcell.check import require_number
from fedcell.errors import InputError
from fedcell.schedule.bandwidth import Allocation, Bools, Sharing, allocate, times
from fedcell.schedule.downlink import Downlink
from fedcell.schedule.laws import Density, Law
from fedcell.schedule.needs import Floats, Indices, Needs


@dataclass(frozen=True, eq=False)
class RoundView:
    """Everything the server knows when it schedules a round. Only the two times are required.

    Attributes:
        upload_s: (M,) c_i, seconds to upload a model with the entire band, positive.
        compute_s: (M,) t_i, seconds of local training, at least 0 (this round's, its mean, or an estimate).
        round_index: the round, from 0.
        must_include: (M,) booleans: devices that must be scheduled (fairness, audits).
        ids: (M,) distinct integers that identify the devices from round to round. Without them, policies that need an
            order of the devices (Random, RoundRobin) use that of (upload_s, compute_s), never that of the arrays, so
            that permuting the devices permutes the plan.
        last_round: (M,) the round in which a device was last scheduled, -1 for never.
        mean_upload_s: (M,) a device's average of upload_s so far.
        samples: (M,) number of training samples on a device.
        label_counts: (M, classes) number of samples of each label on a device.
        profiles: (M, d) a vector that says what a device's data is like, such as its label shares; a row of NaN where
            nothing is known.
        profile_noise: the expected squared norm of the noise in a profile, such as that added for privacy.
        recent: (M,) how much of a device is in the model of late: the sum over earlier rounds of its weight in the
            round's mean, each round counting 0.9 times the one after it.
        joules: (M,) what a device would spend in this round on training and sending, for policies with max_joules.
        law: how the uploads share what carries them: `Density`, the paper's band, `Blocks`, `Power`, `Dedicated` lines
            or one `Ingress`.
        downlink: how the model comes to the devices, a `Multicast` or a `Unicast`; None if that takes no time.

    Example:
        >>> import fedcell as fc
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 9.0], compute_s=[3.0, 2.0, 5.0])
        >>> len(view)
        3
        >>> audited = fc.RoundView([1.0, 2.0, 9.0], [3.0, 2.0, 5.0], must_include=[False, False, True])
        >>> audited.forced.tolist()
        [2]
    """

    upload_s: Floats
    compute_s: Floats
    round_index: int = field(default=0, kw_only=True)
    must_include: Bools | None = field(default=None, kw_only=True)
    ids: Indices | None = field(default=None, kw_only=True)
    last_round: Indices | None = field(default=None, kw_only=True)
    mean_upload_s: Floats | None = field(default=None, kw_only=True)
    samples: NDArray[Any] | None = field(default=None, kw_only=True)
    label_counts: NDArray[Any] | None = field(default=None, kw_only=True)
    profiles: Floats | None = field(default=None, kw_only=True)
    profile_noise: float = field(default=0.0, kw_only=True)
    recent: Floats | None = field(default=None, kw_only=True)
    joules: Floats | None = field(default=None, kw_only=True)
    law: Law = field(default=Density(), kw_only=True)
    downlink: Downlink | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        upload_s, compute_s = times(self.upload_s, self.compute_s)
        if upload_s.ndim != 1 or compute_s.ndim != 1 or upload_s.size != compute_s.size:
            raise InputError(
                f"upload_s has shape {upload_s.shape} and compute_s has shape {compute_s.shape}; "
                "give two vectors with one entry for every device"
            )
        if upload_s.size == 0:
            raise InputError("the cell is empty: upload_s and compute_s have no entries; give at least one device")
        self.law.check(upload_s.shape)
        if self.downlink is not None and self.downlink.seconds.size != upload_s.size:
            raise InputError(
                f"the downlink has {self.downlink.seconds.size} times, upload_s has {upload_s.size}; give one each"
            )
        object.__setattr__(self, "upload_s", upload_s)
        object.__setattr__(self, "compute_s", compute_s)
        for name in _COLUMNS:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._column(name))

    def _column(self, name: str) -> NDArray[Any]:
        column = np.asarray(getattr(self, name))
        if column.shape[:1] != self.upload_s.shape or column.ndim != (2 if name in _WIDE else 1):
            raise InputError(f"{name} has shape {column.shape}; give one entry for each of the {len(self)} devices")
        if name == "must_include" and column.dtype != np.bool_:
            raise InputError(f"must_include is of type {column.dtype}; give booleans, one for each device")
        if name == "ids" and (column.dtype.kind not in "iu" or not _distinct(column)):
            raise InputError("ids must be distinct integers, one for each device")
        if name == "mean_upload_s" and not (np.isfinite(column).all() and (column > 0).all()):
            bad = int(np.flatnonzero(~(np.isfinite(column) & (column > 0)))[0])
            raise InputError(f"mean_upload_s[{bad}] is {column[bad]!r}; give a positive number of seconds")
        if name in ("profiles", "recent", "joules"):
            column = np.asarray(column, dtype=np.float64)
            rows = column.reshape(len(self), -1)
            valid = np.isfinite(rows).all(axis=1)
            if name == "profiles":
                valid |= np.isnan(rows).all(axis=1)
            if not valid.all():
                bad = int(np.flatnonzero(~valid)[0])
                raise InputError(
                    f"{name}[{bad}] is {column[bad].tolist()}; give finite numbers"
                    + (", or NaN throughout where nothing is known" if name == "profiles" else "")
                )
        return column

    def __len__(self) -> int:
        return int(self.upload_s.size)

    @property
    def forced(self) -> Indices:
        """Indices of the devices that must be scheduled, ascending."""
        return _NO_DEVICES if self.must_include is None else np.flatnonzero(self.must_include)

    @property
    def needs(self) -> Needs:
        """What the compiled solvers take of the devices, under the view's law."""
        return self.law.needs(self.upload_s, self.compute_s)

    def only(self, devices: Indices) -> "RoundView":
        """Return the view of these devices alone, (n,) indices; the view's device j is devices[j]."""
        columns = {name: getattr(self, name) for name in ("upload_s", "compute_s", *_COLUMNS)}
        few = {name: column[devices] for name, column in columns.items() if column is not None}
        downlink = None if self.downlink is None else self.downlink.take(devices)
        return replace(self, law=self.law.take(devices), downlink=downlink, **few)

    def order(self) -> Indices:
        """(M,) the device indices in an order that does not depend on the order of the arrays."""
        return np.lexsort((self.compute_s, self.upload_s)) if self.ids is None else np.argsort(self.ids)


_COLUMNS = (
    "must_include",
    "ids",
    "last_round",
    "mean_upload_s",
    "samples",
    "label_counts",
    "profiles",
    "recent",
    "joules",
)
_WIDE = ("label_counts", "profiles")
_NO_DEVICES = np.empty(0, dtype=np.int64)


def _distinct(ids: NDArray[Any]) -> bool:
    # Ascending ids, the usual case, need no sorting, which would be a third of a round's cost with 100,000 devices.
    return bool((ids[1:] > ids[:-1]).all()) or np.unique(ids).size == ids.size


@dataclass(frozen=True, eq=False)
class Plan:
    """A policy's decision: which devices train this round, and with which share of the band.

    Attributes:
        devices: (n,) indices of the scheduled devices, ascending; empty if no device is scheduled.
        shares: (n,) the fraction of the band that each of them gets; they sum to 1, or to less in whole blocks. With
            dedicated lines each is 1.
        round_s: the time of the round in seconds, according to the times in the view.
        starts_s: (n,) when each of them has the model and starts to train, in seconds from the start of the round; None
            if the downlink takes no time.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 3.0, 9.0], compute_s=[2.0, 2.0, 9.0])
        >>> plan = fc.All(max_devices=2).decide(view, np.random.default_rng(0))
        >>> plan.devices.tolist(), plan.shares.tolist(), plan.round_s
        ([0, 1], [0.25, 0.75], 6.0)
        >>> plan.finish_s(upload_s=[1.0, 3.0, 9.0], compute_s=[4.0, 2.0, 9.0]).tolist()  # device 0 trained longer
        [8.0, 6.0]
    """

    devices: Indices
    shares: Floats
    round_s: float
    starts_s: Floats | None = None

    def finish_s(self, upload_s: ArrayLike, compute_s: ArrayLike, law: Law = Density()) -> Floats:  # noqa: B008 - frozen
        """Return when each scheduled device delivers its model: t_i + c_i / g_i under the paper's law.

        Args:
            upload_s: (M,) c_i of all devices, seconds with the entire band.
            compute_s: (M,) t_i of all devices, seconds.
            law: of the M devices' uploads.

        Returns:
            (n,) seconds from the start of the round.
        """
        c, t = times(upload_s, compute_s)
        finish: Floats = t[self.devices] + law.take(self.devices).takes_s(c[self.devices], self.shares)
        return finish if self.starts_s is None else self.starts_s + finish


@dataclass(frozen=True)
class Policy(ABC):
    """Base class of all policies: decides which devices train in a round.

    A policy is a frozen dataclass and a pure function of what the server knows. To write your own, subclass Policy and
    define ``choose``; ``decide`` then adds the devices that must be included, shares the band and builds the plan.

    Attributes:
        max_devices: upper limit on the devices per round, or None; the first that ``choose`` returns are kept.
        max_joules: a device that would spend more than this in the round is not scheduled; None for no such limit.
        sharing: ``"optimal"`` (the shortest round: all scheduled devices finish at the same time) or ``"equal"`` shares
            of the band.
        uses_profiles: whether ``choose`` looks at the view's profiles. Set it in the class of a policy that does:
            otherwise no simulation spends time on getting them.

    Example:
        >>> from dataclasses import dataclass
        >>> import fedcell as fc, numpy as np
        >>> @dataclass(frozen=True)
        ... class Nearest(fc.Policy):
        ...     k: int = 2
        ...     def choose(self, view, rng):
        ...         return np.argsort(view.upload_s)[: self.k]
        >>> view = fc.RoundView(upload_s=[5.0, 1.0, 3.0], compute_s=[1.0, 2.0, 2.0])
        >>> plan = Nearest(k=2).decide(view, np.random.default_rng(0))
        >>> plan.devices.tolist(), plan.shares.tolist(), plan.round_s
        ([1, 2], [0.25, 0.75], 6.0)
    """

    max_devices: int | None = field(default=None, kw_only=True)
    sharing: Sharing = field(default="optimal", kw_only=True)
    max_joules: float | None = field(default=None, kw_only=True, repr=False)
    uses_profiles: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.max_devices is not None:
            at_least_one("max_devices", self.max_devices)
        if self.sharing not in ("optimal", "equal"):
            raise InputError(f"sharing is {self.sharing!r}; write 'optimal' or 'equal'")
        if self.max_joules is not None:
            require_number("max_joules", self.max_joules, above=0)

    @abstractmethod
    def choose(self, view: RoundView, rng: np.random.Generator) -> ArrayLike:
        """Choose the devices that train this round; this is the one method a policy must define.

        Args:
            view: what the server knows this round, for M devices.
            rng: the source of every random number that the policy uses.

        Returns:
            (n,) distinct device indices from 0 to M - 1, most wanted first; empty to schedule no device.
        """

    def cost_of_nobody_s(self) -> float:
        """Return the time in seconds of a round in which no device is scheduled."""
        return 0.0

    def decide(self, view: RoundView, rng: np.random.Generator) -> Plan:
        """Choose the devices, add the ones that must be included, and share the band among them.

        Args:
            view: what the server knows this round, for M devices.
            rng: passed on to ``choose``.

        Returns:
            Plan: the scheduled devices, their shares of the band and the round time.
        """
        if self.max_joules is not None and (allowed := self._affordable(view, self.max_joules)).size < len(view):
            if allowed.size == 0:
                return Plan(allowed, np.empty(0), self.cost_of_nobody_s())
            few = replace(self, k=allowed.size) if getattr(self, "k", 0) > allowed.size else self  # type: ignore[call-arg]
            plan = few.decide(view.only(allowed), rng)
            return replace(plan, devices=allowed[plan.devices])
        chosen = np.asarray(self.choose(view, rng))
        devices = self._checked(chosen, view)
        if devices.size == 0:
            return Plan(devices, np.empty(0), self.cost_of_nobody_s())
        starts_s = None if view.downlink is None else view.downlink.starts_s(devices)
        ready_s = view.compute_s[devices] if starts_s is None else starts_s + view.compute_s[devices]
        law = view.law.take(devices)
        band: Allocation = allocate(view.upload_s[devices], ready_s, sharing=self.sharing, law=law)
        return Plan(devices, band.shares, float(band.round_s), starts_s)

    def _affordable(self, view: RoundView, most_j: float) -> Indices:
        """Return the devices that would spend at most max_joules; raise if one of the others must be scheduled."""
        if view.joules is None:
            raise InputError(
                f"max_joules is {most_j:g}, but the view does not say what a round costs the devices; "
                "give RoundView(joules=...), or leave max_joules out"
            )
        dear = view.joules > most_j
        if (forced := view.forced[dear[view.forced]]).size:
            raise InputError(
                f"must_include forces device {forced[0]} in, but it would spend {view.joules[forced[0]]:.4g} J and "
                f"max_joules is {most_j:g}; raise max_joules"
            )
        return np.flatnonzero(~dear)

    def _checked(self, chosen: NDArray[Any], view: RoundView) -> Indices:
        """Return the chosen and the forced devices, sorted and at most max_devices; raise if the choice is invalid."""
        who = type(self).__name__
        most = room(view, self.max_devices, "max_devices")
        if chosen.size == 0:
            return view.forced
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise InputError(
                f"{who}.choose returned {chosen.dtype} of shape {chosen.shape}; return a vector of device indices"
            )
        devices = chosen.astype(np.int64)
        if devices.min() < 0 or devices.max() >= len(view):
            bad = devices.min() if devices.min() < 0 else devices.max()
            raise InputError(f"{who}.choose returned device {bad}, but the devices are 0 to {len(view) - 1}")
        in_order = np.sort(devices)
        if (in_order[1:] == in_order[:-1]).any():
            twice = in_order[1:][in_order[1:] == in_order[:-1]][0]
            raise InputError(f"{who}.choose returned device {twice} twice; return each device at most once")
        if view.must_include is None:
            return in_order if devices.size <= most else np.sort(devices[:most])
        others = devices[~view.must_include[devices]]
        return np.sort(np.concatenate((view.forced, others[: most - view.forced.size])))


def at_least_one(name: str, value: int) -> None:
    """Raise an InputError unless the value is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} is {value!r}; give a whole number of devices of at least 1")


def room(view: RoundView, limit: int | None, name: str) -> int:
    """Return how many devices may be scheduled: at most ``limit``, and what the law carries, but all forced ones.

    Args:
        view: what the server knows this round.
        limit: the most devices allowed, or None.
        name: the setting that has this limit, for the message.

    Returns:
        The smaller of the limit and M.
    """
    carried = min(len(view), view.law.most)
    if view.forced.size > carried:
        raise InputError(
            f"must_include forces {view.forced.size} devices in, but there are {carried:.0f} resource blocks; "
            "force in fewer"
        )
    most = int(carried if limit is None else min(limit, carried))
    if view.forced.size > most:
        raise InputError(f"must_include forces {view.forced.size} devices in, but {name} is {limit}; raise {name}")
    return most
