"""What a policy sees of a round: RoundView. Whatever history a policy may use is in it."""

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcell.errors import InputError, read_only, writable
from fedcell.schedule.bandwidth import times
from fedcell.schedule.downlink import Downlink, Multicast
from fedcell.schedule.laws import Density, Law
from fedcell.schedule.laws.solver import Needs
from fedcell.types import Bools, Floats, Indices


@dataclass(frozen=True, eq=False)
class RoundView:
    """Everything the server knows when it schedules a round. Only the two times are required.

    Its arrays are read-only: a policy that wants to sort one in place, or to write into it, copies it first.

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
        losses: (M,) the mean training loss that a device last reported, in nats; NaN where none is known.
        rms_losses: (M,) the root mean square of its samples' losses then; likewise.
        norms: (M,) the Euclidean length of its last update; likewise.
        heard_round: (M,) the round of that report, -1 for never.
        updates: (M, d) a sketch of its last update, whose distances are about those of the updates; a row of NaN where
            none is known.
        turns: (M,) how often a device has delivered.
        took_s: (M,) how long that took on average, in seconds from the start of the round; NaN for never.
        planned_s: (M,) how long it was planned to take, on average over the same rounds; likewise.
        presence: (M,) in which fraction of the earlier rounds a device was there.
        round_losses: (round_index,) the mean training loss of the devices that delivered in each earlier round, in
            nats; NaN for a round of which nothing is known.
        clock_s: the time since training began, in seconds.
        left_s: the time that is left of the budget, in seconds; infinity if there is none.
        left_j: the energy that is left of the budget, in joules; likewise.
        law: how the uploads share what carries them: `Density`, the paper's band, `Blocks`, `Power`, `Dedicated` lines
            or one `Ingress`.
        downlink: how the model comes to the devices, a `Multicast` or a `Unicast`; None if that takes no time.
        epochs: how often a device goes through its samples in compute_s.
        model_bits: the size of the upload that upload_s is for, in bits; None if it is not known.

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
    losses: Floats | None = field(default=None, kw_only=True)
    rms_losses: Floats | None = field(default=None, kw_only=True)
    norms: Floats | None = field(default=None, kw_only=True)
    heard_round: Indices | None = field(default=None, kw_only=True)
    updates: Floats | None = field(default=None, kw_only=True)
    turns: Indices | None = field(default=None, kw_only=True)
    took_s: Floats | None = field(default=None, kw_only=True)
    planned_s: Floats | None = field(default=None, kw_only=True)
    presence: Floats | None = field(default=None, kw_only=True)
    round_losses: Floats | None = field(default=None, kw_only=True)
    clock_s: float = field(default=0.0, kw_only=True)
    left_s: float = field(default=inf, kw_only=True)
    left_j: float = field(default=inf, kw_only=True)
    law: Law = field(default=Density(), kw_only=True)
    downlink: Downlink | None = field(default=None, kw_only=True)
    epochs: float = field(default=1.0, kw_only=True)
    model_bits: float | None = field(default=None, kw_only=True)
    if TYPE_CHECKING:
        _times: tuple[Floats, Floats] = field(init=False)  # both for what Numba compiled: see needs

        def __init__(self, upload_s: ArrayLike, compute_s: ArrayLike, **columns: Any) -> None: ...  # lists will do

    def __post_init__(self) -> None:
        upload_s, compute_s = times(writable(self.upload_s), writable(self.compute_s))
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
        object.__setattr__(self, "_times", (upload_s, compute_s))
        object.__setattr__(self, "upload_s", read_only(upload_s))
        object.__setattr__(self, "compute_s", read_only(compute_s))
        for name in _COLUMNS:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read_only(self._column(name)))
        if self.round_losses is not None:
            losses = np.asarray(self.round_losses, dtype=np.float64)
            if losses.ndim != 1:
                raise InputError(f"round_losses has shape {losses.shape}; give one number a round")
            object.__setattr__(self, "round_losses", read_only(losses))

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
        return self._numbers(name, column) if name in _FINITE or name in _REPORTED else column

    def _numbers(self, name: str, given: NDArray[Any]) -> Floats:
        """The column as floats: finite, or NaN where nothing may be known."""
        try:
            column = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{name} is of type {given.dtype}; give numbers, one for each device") from None
        rows = column.reshape(len(self), -1)
        valid = np.isfinite(rows).all(axis=1)
        if name in _REPORTED:
            valid |= np.isnan(rows).all(axis=1)
        if not valid.all():
            bad = int(np.flatnonzero(~valid)[0])
            raise InputError(
                f"{name}[{bad}] is {column[bad].tolist()}; give finite numbers"
                + (", or NaN throughout where nothing is known" if name in _REPORTED else "")
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
        """What the compiled solvers take of the devices, under the view's law; not the read-only arrays.

        Numba would compile everything again for these, for some seconds.
        """
        return self.law.needs(*self._times)

    def only(self, devices: Indices) -> "RoundView":
        """Return the view of these devices alone, (n,) indices; the view's device j is devices[j]."""
        columns = {name: getattr(self, name) for name in ("upload_s", "compute_s", *_COLUMNS)}
        few = {name: column[devices] for name, column in columns.items() if column is not None}
        downlink = None if self.downlink is None else self.downlink.take(devices)
        return replace(self, law=self.law.take(devices), downlink=downlink, **few)

    def answered(self, devices: Indices, waited_s: float, **answers: Floats) -> "RoundView":
        """Return the view of the devices that answered a question, once all answers are in.

        Args:
            devices: (n,) who answered; the view's device j is devices[j].
            waited_s: when that was, in seconds from the start of the round: nothing else can begin before.
            answers: (n,) their ``losses`` or ``norms``. Devices that report the norm of an update have trained.

        Returns:
            RoundView: with the answers instead of what was known before. What began with the round begins at waited_s.
        """
        few = self.only(devices)
        heard = np.full(devices.size, self.round_index)
        compute_s = np.zeros(devices.size) if "norms" in answers else few.compute_s
        downlink = Multicast(np.full(devices.size, waited_s)) if waited_s > 0.0 else None
        return replace(few, compute_s=compute_s, downlink=downlink, heard_round=heard, **answers)  # type: ignore[arg-type]

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
    "losses",
    "rms_losses",
    "norms",
    "heard_round",
    "updates",
    "turns",
    "took_s",
    "planned_s",
    "presence",
)
_WIDE = ("label_counts", "profiles", "updates")
_FINITE = ("recent", "joules", "presence")
_REPORTED = ("profiles", "losses", "rms_losses", "norms", "updates", "took_s", "planned_s")
"""What devices told or rounds showed: NaN where nothing is known."""
_NO_DEVICES = np.empty(0, dtype=np.int64)


def _distinct(ids: NDArray[Any]) -> bool:
    # Ascending ids, the usual case, need no sorting, which would be a third of a round's cost with 100,000 devices.
    return bool((ids[1:] > ids[:-1]).all()) or np.unique(ids).size == ids.size
