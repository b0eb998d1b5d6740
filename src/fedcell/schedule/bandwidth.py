"""(P2): share the band among given devices so that the round ends soonest.

Device i needs ``compute_s[i]`` (t_i) to train and would need ``upload_s[i]`` (c_i) to upload with the whole band, so
with the share g_i it ends at t_i + c_i / g_i. Theorem 1: in the optimum all end at one time T, the root of

    f(T) = sum_i c_i / (T - t_i) = 1,      g_i = c_i / (T - t_i).

For other link laws the round ends at the least T at which the shares that the devices need sum to at most 1. How all of
them are solved is in the package `laws`.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fedcell.errors import InputError
from fedcell.runtime import cached_njit
from fedcell.schedule.laws.base import Law
from fedcell.schedule.laws.density import Density
from fedcell.schedule.laws.solver import share_rows
from fedcell.types import Bools, Floats
from fedcell.units import MAX_S, MIN_S

Sharing = Literal["optimal", "equal"]


@dataclass(frozen=True, eq=False)
class Allocation:
    """The result of `allocate`: how the band is shared, and how long the round takes.

    Attributes:
        shares: (..., n) the fraction g_i of the band that each device gets; each row sums to 1, with 0 for the devices
            that are masked out. Whole blocks may sum to less; with dedicated lines each device has the share 1, of its
            own.
        round_s: seconds until the last device has delivered its model; a float for one set of devices, an array of
            shape (...) for a batch of sets.

    Example:
        >>> import fedcell as fc
        >>> batch = fc.allocate([[1.0, 3.0], [2.0, 2.0]], [[2.0, 2.0], [1.0, 1.0]])
        >>> batch.shares.tolist()
        [[0.25, 0.75], [0.5, 0.5]]
        >>> batch.round_s.tolist()
        [6.0, 5.0]
    """

    shares: Floats
    round_s: float | Floats


@cached_njit(nogil=True)
def _share_rows(
    law: Any, c: Floats, t: Floats, e: Floats, used: Bools, shares: Floats, round_s: Floats
) -> bool:  # pragma: no cover - compiled
    """Solve every row of (rows, n) arrays; see share_rows."""
    exact: bool = share_rows(law, c, t, e, used, shares, round_s)
    return exact


@cached_njit(nogil=True)
def _first_bad(c: Floats, t: Floats) -> int:  # pragma: no cover - compiled
    """Return the flat index of the first unusable time (those of c first, then those of t), or -1."""
    for i in range(c.size):
        if not (MIN_S <= c[i] <= MAX_S):
            return i
    for i in range(t.size):
        if not (0.0 <= t[i] <= MAX_S):
            return c.size + i
    return -1


def times(upload_s: ArrayLike, compute_s: ArrayLike) -> tuple[Floats, Floats]:
    """Check upload and compute times.

    Args:
        upload_s: seconds, of any shape, positive.
        compute_s: seconds, of any shape, at least 0.

    Returns:
        Both as float64 arrays; an InputError names the field, the index and the value that cannot be used.
    """
    try:  # a read-only array is copied: Numba would compile everything again for it
        c = np.require(upload_s, np.float64, ["C", "W"])
        t = np.require(compute_s, np.float64, ["C", "W"])
    except (TypeError, ValueError) as error:
        raise InputError(f"upload_s and compute_s must be arrays of numbers ({error})") from None
    bad = _first_bad(c.reshape(-1), t.reshape(-1))
    if bad >= 0:
        raise InputError(_complaint("upload_s", c, bad) if bad < c.size else _complaint("compute_s", t, bad - c.size))
    return c, t


def _complaint(name: str, values: Floats, flat: int) -> str:
    place = ", ".join(str(int(i)) for i in np.unravel_index(flat, values.shape))
    value = float(values.reshape(-1)[flat])
    where = f"{name}[{place}] is {value!r}" if place else f"{name} is {value!r}"
    if np.isnan(value):
        return f"{where}; give a number of seconds"
    if np.isinf(value) and value > 0 and name == "upload_s":
        return f"{where}: at a rate of zero the model never arrives; leave the device out or give it a channel"
    if value == 0.0:
        return f"{where}; an upload takes some time, so give a positive number of seconds"
    if value < 0.0:
        return f"{where}; time cannot be negative, so give a number of seconds of at least 0"
    return f"{where}; give a number of seconds between {MIN_S:g} and {MAX_S:g}"


def allocate(
    upload_s: ArrayLike,
    compute_s: ArrayLike,
    *,
    where: ArrayLike | None = None,
    sharing: Sharing = "optimal",
    law: Law = Density(),  # noqa: B008 - frozen, without fields
) -> Allocation:
    """Share the band among given devices so that the round ends as early as possible: problem (P2) of the paper.

    Minimises the round time max_i (t_i + c_i / g_i) over the shares g_i >= 0 with sum_i g_i <= 1. In the optimum all
    devices finish at the same time T, with g_i = c_i / (T - t_i) (Theorem 1); T is found to double precision.

    Args:
        upload_s: (n,) or (..., n) c_i, seconds to upload the model with the entire band, positive.
        compute_s: t_i, seconds of local training, at least 0; the same shape, or one that broadcasts with it.
        where: boolean mask of that shape; devices that are False are left out and get the share 0. Use it for a batch
            of sets of different sizes.
        sharing: ``"optimal"``, or ``"equal"``: every device gets 1/n, and the slowest device ends the round.
        law: how the uploads share what carries them; by default the paper's band. Each law says what an upload takes
            with a share of it.

    Returns:
        Allocation: ``shares`` (..., n), which sum to 1 along the last axis (whole blocks to at most 1), and ``round_s``
        (...) in seconds, a float for a single set of devices.

    Raises:
        InputError: if there is no device, if a time is negative, not finite or outside 1e-300 to 1e300 s, if the
            shapes do not match, or if there are more devices than resource blocks.

    Example:
        >>> import fedcell as fc
        >>> band = fc.allocate(upload_s=[1.0, 3.0], compute_s=[2.0, 2.0])
        >>> band.shares.tolist(), band.round_s  # both finish at 2 + 1/0.25 = 2 + 3/0.75 = 6 s
        ([0.25, 0.75], 6.0)
        >>> fc.allocate([1.0, 3.0], [2.0, 2.0], sharing="equal").round_s
        8.0
    """
    c, t = times(upload_s, compute_s)
    if c.shape != t.shape:
        c, t = _broadcast(c, t)
    if c.shape[-1] == 0:
        raise InputError("there are no devices to share the band among; give upload_s and compute_s at least one entry")
    used = _mask(where, c.shape)
    if sharing not in ("optimal", "equal"):
        raise InputError(f"sharing is {sharing!r}; write 'optimal' or 'equal'")
    law.check(c.shape)
    batch, n = c.shape[:-1], c.shape[-1]
    rows = math.prod(batch)
    shares, round_s = np.empty((rows, n)), np.empty(rows)
    used = used.reshape(rows, n) if used.size else used
    _refuse_too_many(used, n, law)
    if sharing == "equal" and type(law) is Density:
        _share_equally(c.reshape(rows, n), t.reshape(rows, n), used, shares, round_s)
    elif sharing == "equal" or law.separable:
        _share_equally_by(law, c.reshape(rows, n), t.reshape(rows, n), used, shares, round_s)
    else:
        needs = law.needs(c, t)
        flat = [column.reshape(rows, n) for column in (needs.c, needs.t, needs.e)]
        exact = _share_rows(needs.law, flat[0], flat[1], flat[2], used, shares, round_s)
        if not exact and law.units is None:  # whole units stay whole; else all of the band is given out
            shares /= shares.sum(axis=1, keepdims=True)
        _refuse_lost_shares(shares, used)
    if not batch:
        return Allocation(shares[0], float(round_s[0]))
    return Allocation(shares.reshape(c.shape), round_s.reshape(batch))


def _broadcast(c: Floats, t: Floats) -> tuple[Floats, Floats]:
    try:
        shape = np.broadcast_shapes(c.shape, t.shape)
    except ValueError:
        shape = ()
    # A vector of length 1 next to one of length n is far more often a mistake than intended.
    if c.shape[-1] != t.shape[-1] or not shape:
        raise InputError(
            f"upload_s has shape {c.shape} and compute_s has shape {t.shape}; give one entry of each for every device"
        )
    full_c, full_t = (x if x.shape == shape else np.broadcast_to(x, shape).copy() for x in (c, t))
    return full_c, full_t


def _mask(where: ArrayLike | None, shape: tuple[int, ...]) -> Bools:
    if where is None:
        return np.empty((0, 0), dtype=np.bool_)
    used = np.asarray(where)
    if used.dtype != np.bool_ or used.shape != shape:
        raise InputError(f"where has shape {used.shape} and type {used.dtype}; give booleans of shape {shape}")
    empty = np.flatnonzero(~used.reshape(-1, shape[-1]).any(axis=1))
    if empty.size:
        raise InputError(f"where leaves no device in set {int(empty[0])}; keep at least one True in every row")
    return np.require(used, np.bool_, ["C", "W"])


def _share_equally(c: Floats, t: Floats, used: Bools, shares: Floats, round_s: Floats) -> None:
    counts = np.full((c.shape[0], 1), c.shape[1]) if used.size == 0 else used.sum(axis=1, keepdims=True)
    shares[:] = 1.0 / counts
    ends = t + c * counts
    if used.size:
        shares[~used] = 0.0
        ends[~used] = 0.0
    round_s[:] = ends.max(axis=1)


def _share_equally_by(law: Law, c: Floats, t: Floats, used: Bools, shares: Floats, round_s: Floats) -> None:
    shares[:] = 0.0
    for row in range(len(c)):
        there = np.arange(c.shape[1]) if used.size == 0 else np.flatnonzero(used[row])
        mine = law.row(row).take(there)
        whole_s, ready_s = c[row, there], t[row, there]
        shares[row, there] = mine.equal_shares(whole_s, ready_s)
        round_s[row] = (ready_s + mine.upload_s(whole_s, shares[row, there])).max()


def _refuse_too_many(used: Bools, n: int, law: Law) -> None:
    most = int(used.sum(axis=1).max()) if used.size else n
    if most > law.max_devices:
        raise InputError(
            f"{most} devices cannot share {law.capacity}, one each at least; "
            f"schedule at most {law.max_devices:.0f} devices"
        )


def _refuse_lost_shares(shares: Floats, used: Bools) -> None:
    """Raise if a share underflowed: such a device would never deliver its model."""
    smallest = shares.min(initial=1.0, where=used if used.size else True)
    if smallest < np.finfo(np.float64).tiny:
        lost = np.argwhere((shares < np.finfo(np.float64).tiny) & (used if used.size else True))[0]
        raise InputError(
            f"device {int(lost[-1])} would get a share of {shares[tuple(lost)]:.3g}, too small for double precision: "
            "the times span too many orders of magnitude; leave the extreme device out"
        )
