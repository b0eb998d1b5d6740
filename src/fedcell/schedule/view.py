"""What a policy sees of a round: RoundView. Whatever history a policy may use is in it."""

from collections.abc import Callable, Hashable
from dataclasses import MISSING, dataclass, field, fields, replace
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import deprecated

from fedcell.errors import InputError, read_only, writable
from fedcell.quantisation import WEIGHT_BITS, upload_part
from fedcell.schedule.bandwidth import times
from fedcell.schedule.laws import Density, Law
from fedcell.schedule.laws.solver import Needs
from fedcell.types import Bools, Floats, Indices

if TYPE_CHECKING:
    from fedcell.schedule.downlink import Downlink

T = TypeVar("T")

# Fields of RoundView with an entry for each device: anything, finite numbers, or what devices tell: NaN if unknown.
_EACH, _FINITE, _REPORTED = {"each": "any"}, {"each": "finite"}, {"each": "reported"}
_WIDE = {"wide": True}


@dataclass(frozen=True, eq=False)
class Undeclared:
    """Stands for a column that costs something and that the policy has not said it uses: to read it is an error.

    Attributes:
        column: of the RoundView.
        flag: what the policy's class lacks.
        policy: the name of the class that has not said it.
    """

    column: str
    flag: str
    policy: str

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise InputError(
            f"{self.policy} reads view.{self.column}, which is not collected for it; add this line to "
            f"the class: {self.flag}: ClassVar[bool] = True"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copy and pickle look for
            raise AttributeError(name)
        self._refuse()

    __array__ = __getitem__ = __len__ = __iter__ = __bool__ = __neg__ = __abs__ = __invert__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __matmul__ = __rmatmul__ = __mod__ = __float__ = __contains__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = object.__hash__


@dataclass(frozen=True, eq=False)
class RoundView:
    """Everything the server knows when it schedules a round. Only the two times are required.

    What costs something to get (``profiles``, ``rms_losses``, ``norms``, ``updates``, ``peaks``, ``absolutes``,
    ``squares``) is there for policies whose class says that they use it, such as ``uses_norms: ClassVar[bool] = True``;
    for others it is an error to read it.

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
        peaks: (M,) of its last update before it was rounded, as `fedcell.quantisation.noise` takes it; NaN where none
            is known.
        absolutes: (M,) likewise.
        squares: (M,) likewise: its squared length.
        heard_epochs: (M,) how often it went through its samples for that update; likewise.
        turns: (M,) how often a device has delivered.
        took_s: (M,) how long that took on average, in seconds from the start of the round; NaN for never.
        planned_s: (M,) how long it was planned to take, on average over the same rounds; likewise.
        presence: (M,) in which fraction of the earlier rounds a device was there.
        round_losses: (round_index,) the mean training loss of the devices that delivered in each earlier round, in
            nats; NaN for a round of which nothing is known.
        learnt: (k,) what the policy itself made of earlier rounds; see `Policy.learn`. None before the first.
        clock_s: the time since training began, in seconds.
        left_s: the time that is left of the budget, in seconds; infinity if there is none.
        left_j: the energy that is left of the budget, in joules; likewise.
        law: how the uploads share what carries them: `Density`, the paper's band, `Blocks`, `Power`, `Dedicated` lines
            or one `Ingress`.
        downlink: how the model comes to the devices, a `Multicast` or a `Unicast`; None if that takes no time.
        epochs: how often a device goes through its samples in compute_s.
        weights: the number of the model's weights; None if it is not known, or if nobody may decide bits, as where
            uploads are compressed with error feedback.
        tensors: the number of arrays that they are in.
        bits: the bits a weight that upload_s is for, 32 for the weights as they are; see `upload_part`.
        overhead_bits: the bits that an upload has beside the model, such as headers of protocols.

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
    must_include: Bools | None = field(default=None, kw_only=True, metadata=_EACH)
    ids: Indices | None = field(default=None, kw_only=True, metadata=_EACH)
    last_round: Indices | None = field(default=None, kw_only=True, metadata=_EACH)
    mean_upload_s: Floats | None = field(default=None, kw_only=True, metadata=_EACH)
    samples: NDArray[Any] | None = field(default=None, kw_only=True, metadata=_EACH)
    label_counts: NDArray[Any] | None = field(default=None, kw_only=True, metadata=_EACH | _WIDE)
    profiles: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED | _WIDE)
    profile_noise: float = field(default=0.0, kw_only=True)
    recent: Floats | None = field(default=None, kw_only=True, metadata=_FINITE)
    joules: Floats | None = field(default=None, kw_only=True, metadata=_FINITE)
    losses: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED)
    rms_losses: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED)
    norms: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED)
    heard_round: Indices | None = field(default=None, kw_only=True, metadata=_EACH)
    updates: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED | _WIDE)
    peaks: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED)
    absolutes: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED)
    squares: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED)
    heard_epochs: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED)
    turns: Indices | None = field(default=None, kw_only=True, metadata=_EACH)
    took_s: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED)
    planned_s: Floats | None = field(default=None, kw_only=True, metadata=_REPORTED)
    presence: Floats | None = field(default=None, kw_only=True, metadata=_FINITE)
    round_losses: Floats | None = field(default=None, kw_only=True)
    learnt: Floats | None = field(default=None, kw_only=True)
    clock_s: float = field(default=0.0, kw_only=True)
    left_s: float = field(default=inf, kw_only=True)
    left_j: float = field(default=inf, kw_only=True)
    law: Law = field(default=Density(), kw_only=True)
    downlink: "Downlink | None" = field(default=None, kw_only=True)
    epochs: float = field(default=1.0, kw_only=True)
    weights: float | None = field(default=None, kw_only=True)
    tensors: int = field(default=1, kw_only=True)
    bits: float = field(default=WEIGHT_BITS, kw_only=True)
    overhead_bits: float = field(default=0.0, kw_only=True)
    if TYPE_CHECKING:
        _times: tuple[Floats, Floats] = field(init=False)  # both for what Numba compiled: see needs

        def __init__(self, upload_s: ArrayLike, compute_s: ArrayLike, **columns: Any) -> None: ...  # lists will do

    @classmethod
    def of_known(cls, upload_s: Floats, compute_s: Floats, **columns: Any) -> "RoundView":
        """Make a view of columns that are sure to be right, as those of `Knowledge` are; only its times are checked."""
        view = object.__new__(cls)
        seen = {name: read_only(one) if isinstance(one, np.ndarray) else one for name, one in columns.items()}
        view.__dict__.update(_DEFAULTS, upload_s=upload_s, compute_s=compute_s, **seen)
        view._check_times()
        return view

    def __post_init__(self) -> None:
        self._check_times()
        for name in _COLUMNS:
            if getattr(self, name) is not None and not isinstance(getattr(self, name), Undeclared):
                object.__setattr__(self, name, read_only(self._column(name)))
        for name, what in (("round_losses", "one number a round"), ("learnt", "a vector of numbers")):
            if getattr(self, name) is not None:
                vector = np.asarray(getattr(self, name), dtype=np.float64)
                if vector.ndim != 1:
                    raise InputError(f"{name} has shape {vector.shape}; give {what}")
                object.__setattr__(self, name, read_only(vector))

    def _check_times(self) -> None:
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

    def _column(self, name: str) -> NDArray[Any]:
        column = np.asarray(getattr(self, name))
        if column.shape[:1] != self.upload_s.shape or column.ndim != (2 if name in _WIDE_COLUMNS else 1):
            raise InputError(f"{name} has shape {column.shape}; give one entry for each of the {len(self)} devices")
        if name == "must_include" and column.dtype != np.bool_:
            raise InputError(f"must_include is of type {column.dtype}; give booleans, one for each device")
        if name == "ids" and (column.dtype.kind not in "iu" or not _distinct(column)):
            raise InputError("ids must be distinct integers, one for each device")
        if name == "mean_upload_s" and not (np.isfinite(column).all() and (column > 0).all()):
            bad = int(np.flatnonzero(~(np.isfinite(column) & (column > 0)))[0])
            raise InputError(f"mean_upload_s[{bad}] is {column[bad]!r}; give a positive number of seconds")
        return self._numbers(name, column) if name in _FINITE_COLUMNS or name in _REPORTED_COLUMNS else column

    def _numbers(self, name: str, given: NDArray[Any]) -> Floats:
        """The column as floats: finite, or NaN where nothing may be known."""
        try:
            column = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{name} is of type {given.dtype}; give numbers, one for each device") from None
        rows = column.reshape(len(self), -1)
        valid = np.isfinite(rows).all(axis=1)
        if name in _REPORTED_COLUMNS:
            valid |= np.isnan(rows).all(axis=1)
        if not valid.all():
            bad = int(np.flatnonzero(~valid)[0])
            raise InputError(
                f"{name}[{bad}] is {column[bad].tolist()}; give finite numbers"
                + (", or NaN throughout where nothing is known" if name in _REPORTED_COLUMNS else "")
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
        if len(devices) == 0:
            raise InputError("a view of no devices was asked for; give at least one device")
        c, t = (times[devices] for times in self._times)
        few: dict[str, Any] = {"_computed": {}, "_times": (c, t), "upload_s": read_only(c), "compute_s": read_only(t)}
        for name in _COLUMNS:
            column = getattr(self, name)
            if column is not None and not isinstance(column, Undeclared):
                few[name] = read_only(column[devices])
        downlink = None if self.downlink is None else self.downlink.take(devices)
        view = object.__new__(type(self))  # what is here was checked when this view was made
        view.__dict__.update(self.__dict__ | few | {"law": self.law.take(devices), "downlink": downlink})
        return view

    def with_answers(self, devices: Indices, waited_s: float, **answers: Floats) -> "RoundView":
        """Return the view of the devices that answered a question, once all answers are in.

        Args:
            devices: (n,) who answered; the view's device j is devices[j].
            waited_s: when that was, in seconds from the start of the round: nothing else can begin before.
            answers: (n,) their ``losses`` or ``norms``. Devices that report the norm of an update have trained.

        Returns:
            RoundView: with the answers instead of what was known before. What began with the round begins at waited_s.
        """
        from fedcell.schedule.downlink import Multicast

        few = self.only(devices)
        heard = np.full(devices.size, self.round_index)
        compute_s = np.zeros(devices.size) if "norms" in answers else few.compute_s
        downlink = Multicast(np.full(devices.size, waited_s)) if waited_s > 0.0 else None
        return replace(few, compute_s=compute_s, downlink=downlink, heard_round=heard, **answers)  # type: ignore[arg-type]

    @deprecated("RoundView.answered is called with_answers; write that")
    def answered(self, devices: Indices, waited_s: float, **answers: Floats) -> "RoundView":
        """The former name of `with_answers`."""
        return self.with_answers(devices, waited_s, **answers)

    def upload_part(self, bits: ArrayLike) -> Floats:
        """Return what part of the upload that upload_s is for one with so many bits a weight is.

        The time is that part of upload_s, under every law (`Law.scaled`). Likewise ``e`` epochs of work take
        ``e / view.epochs`` of compute_s.

        Args:
            bits: (...) bits a weight, whole numbers from 2 to 16, or 32 for the weights as they are.

        Returns:
            (...) parts. An InputError if the view does not know the number of weights.

        Example:
            >>> import fedcell as fc
            >>> view = fc.RoundView([1.0], [3.0], weights=10_000, tensors=4)
            >>> view.upload_part([2, 8, 32]).tolist()
            [0.0631, 0.2506, 1.0]
        """
        return upload_part(self.weights, self.tensors, bits, self.bits, self.overhead_bits)

    def order(self) -> Indices:
        """(M,) the device indices in an order that does not depend on the order of the arrays."""
        if self.ids is None:
            return np.lexsort((self.compute_s, self.upload_s))
        return np.arange(len(self)) if (self.ids[1:] > self.ids[:-1]).all() else np.argsort(self.ids)

    def once(self, what: Hashable, compute: Callable[[], T]) -> T:
        """Return what was computed of this view by that name; if nothing was, compute it and keep it."""
        kept: dict[Hashable, T] = self.__dict__.setdefault("_computed", {})
        if what not in kept:
            kept[what] = compute()
        return kept[what]


_COLUMNS = tuple(one.name for one in fields(RoundView) if "each" in one.metadata)
"""The fields that may be None and else have an entry for each device."""
_DEFAULTS = {one.name: one.default for one in fields(RoundView) if one.default is not MISSING}
_WIDE_COLUMNS = frozenset(one.name for one in fields(RoundView) if "wide" in one.metadata)
_FINITE_COLUMNS = frozenset(one.name for one in fields(RoundView) if one.metadata.get("each") == "finite")
_REPORTED_COLUMNS = frozenset(one.name for one in fields(RoundView) if one.metadata.get("each") == "reported")
_NO_DEVICES = np.empty(0, dtype=np.int64)


def _distinct(ids: NDArray[Any]) -> bool:
    # Ascending ids, the usual case, need no sorting, which would be a third of a round's cost with 100,000 devices.
    return bool((ids[1:] > ids[:-1]).all()) or np.unique(ids).size == ids.size
