"""Algorithm 2: add the device that lengthens the round least, until the objective of (P1) would rise.

The literal algorithm solves (P2) for every remaining device at every step, O(M^3) in all. But for a set S the best
addition k minimises the T at which f_S(T) + c_k / (T - t_k) = 1, so at that T it is the device with the smallest share
c_k / (T - t_k), that is, the largest pace (T - t_k) / c_k. Hence: take the best device for a guess of T, solve (P2) for
S with it, and look again at the new T. T falls strictly until the device stays the best; two or three looks are enough.
The same holds for every link law: at any T the best addition is the device with the smallest need.

A look need not be at all devices. Paces rise with T. Of the m best at T, one is left after fewer than m additions; so
until then, and until a later time H, a device whose pace at H is below the m-th best at T is never the best one. And
of devices that are equal in everything only the first m count, as duplicates are taken in their order.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from fedcell.errors import InputError
from fedcell.runtime import cached_njit
from fedcell.schedule.convergence import largest_set, objective
from fedcell.schedule.downlink import best_under
from fedcell.schedule.laws.solver import (
    GROUP_ROWS,
    SERIES_SIZE,
    Needs,
    grown_round_time,
    inverse_shares,
    nth_largest,
    round_time,
    smallest_need,
    solo_finish_s,
)
from fedcell.schedule.policy import Policy, max_scheduled
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats, Indices

DuplicateGroups = tuple[Indices, Indices, Indices]
Limits = tuple[int, float, float, int]
"""As `Rules`; from Python Numba takes a plain tuple faster."""

INITIAL_LOOKAHEAD = 4
"""So many additions are looked ahead at first, then twice as many, up to about the root of M."""
FULL_SCAN_BELOW = 64
"""While no more devices than this remain, each look is at all of them."""
SERIES_FROM = 512
"""From so many devices on the paper's law is solved by a series: what one more device costs no longer grows with n."""
_UNKNOWN: Indices = np.empty(0, dtype=np.int64)


class Rules(NamedTuple):
    """When the set is complete, and how its round time is solved for.

    Attributes:
        most: no more devices than this.
        theta: stop before the objective of (P1) with this theta rises; NaN turns that off.
        deadline_s: stop before the round takes longer.
        many: from so many devices on the paper's law is solved by a series.
    """

    most: int
    theta: float
    deadline_s: float
    many: int


class Growth(NamedTuple):
    """How far the set has grown: its size, round time and objective, and by how much the last device lengthened it."""

    size: int
    round_s: float
    value: float
    rise_s: float


class Reach(NamedTuple):
    """How far the devices that are looked at reach: how many are left, until when, and for how many additions."""

    left: int
    until_s: float
    additions: int


@cached_njit(nogil=True)
def _soonest_alone(law: Any, c: Floats, t: Floats, e: Floats) -> tuple[int, float]:  # pragma: no cover - compiled
    """Return the device that would be done first with everything to itself, and when."""
    found, found_s = 0, solo_finish_s(law, c[0], t[0], e[0])
    for i in range(1, c.size):
        mine_s = solo_finish_s(law, c[i], t[i], e[i])
        if mine_s < found_s:
            found, found_s = i, mine_s
    return found, found_s


@cached_njit(nogil=True)
def _fill(  # pragma: no cover - compiled
    law: Any,
    c: Floats,
    t: Floats,
    e: Floats,
    taken: Bools,
    duplicates: DuplicateGroups,
    m: int,
    until_s: float,
    least: float,
    near: Floats,
    index: Indices,
) -> int:
    """Fill ``near`` with the devices whose pace is at least ``least`` at a time, m of equal ones; return how many."""
    kind, rank, gone = duplicates
    found, n = np.zeros(c.size), 0
    if least > -np.inf:
        inverse_shares(law, c, t, e, until_s, found)
    for i in range(c.size):
        if taken[i] or found[i] < least or (kind.size > 0 and rank[i] >= gone[kind[i]] + m):
            continue
        near[0, n], near[1, n], near[2, n], near[3, n], index[n] = c[i], t[i], e[i], 1.0 / c[i], i
        n += 1
    return n


@cached_njit(nogil=True)
def _bound(  # pragma: no cover - compiled
    law: Any, near: Floats, left: int, m: int, from_s: float, group: Floats, size: int
) -> tuple[float, float, int]:
    """Return a pace that m devices have from a time on, how long a round would take with them, and how many are equal.

    The m are the best of the first ``left`` of ``near``.
    """
    found = near[4, :left]
    inverse_shares(law, near[0, :left], near[1, :left], near[2, :left], from_s * (1.0 - 1e-12), found)
    least, n, same = nth_largest(found, m), size, 0
    for at in range(left):
        if found[at] >= least:
            same += found[at] == least
            if n < size + m:
                group[0, n], group[1, n], group[2, n] = near[0, at], near[1, at], near[2, at]
                n += 1
    return least - 1e-12 * abs(least), round_time(law, group, n, 0.0), same


@cached_njit(nogil=True)
def _add(  # pragma: no cover - compiled
    law: Any,
    c: Floats,
    t: Floats,
    e: Floats,
    near: Floats,
    index: Indices,
    reach: Reach,
    rules: Rules,
    chosen: Indices,
    group: Floats,
    series: Floats,
    state: Growth,
) -> tuple[Growth, float, int]:
    """Add devices as far as ``near`` reaches.

    Returns the state then, the time that ``near`` has to reach to go on (NaN if no more are to be added), and how many
    of ``near`` are left.
    """
    left, additions, many = reach.left, reach.additions, rules.many
    size, T, value, rise = state
    while size < rules.most:
        look_s = T + rise
        if additions == 0 or look_s > reach.until_s:
            return Growth(size, T, value, rise), look_s, left
        i = index[smallest_need(law, near, index, left, look_s)] if size else _soonest_alone(law, c, t, e)[0]
        best, T_next = -1, np.inf
        while i != best:
            group[0, size], group[1, size], group[2, size] = c[i], t[i], e[i]
            T_mine = grown_round_time(law, group, size + 1, T, series, many)
            if T_mine > T_next or (T_mine == T_next and i > best):
                break
            best, T_next = i, T_mine
            if T_next > reach.until_s:
                return Growth(size, T, value, rise), T_next, left
            i = index[smallest_need(law, near, index, left, T_next)]
        group[0, size], group[1, size], group[2, size] = c[best], t[best], e[best]
        next_value = (rules.theta + 1.0 / (size + 1)) * T_next
        late_s = T_next - rules.deadline_s
        if size >= many and (abs(late_s) < 1e-11 * T_next or abs(next_value - value) < 1e-11 * value):
            # So close that the series must not decide.
            value = (rules.theta + 1.0 / size) * round_time(law, group, size, 0.0)
            T_next = round_time(law, group, size + 1, T)
            next_value = (rules.theta + 1.0 / (size + 1)) * T_next
        if T_next > rules.deadline_s or next_value > value:
            break
        left = _without(best, near, index, left)
        chosen[size] = best
        rise = T_next - T if size else 0.0
        size, additions, T, value = size + 1, additions - 1, T_next, next_value
    return Growth(size, T, value, rise), np.nan, left


@cached_njit(nogil=True)
def _without(device: int, near: Floats, index: Indices, n: int) -> int:  # pragma: no cover - compiled
    """Take a device out of the first n of ``near``, if it is there; return how many are left."""
    for at in range(n):
        if index[at] == device:
            index[at] = index[n - 1]
            for row in range(4):
                near[row, at] = near[row, n - 1]
            return n - 1
    return n


@cached_njit(nogil=True)
def _grow(  # pragma: no cover - compiled
    law: Any,
    c: Floats,
    t: Floats,
    e: Floats,
    forced: Indices,
    limits: Limits,
    ahead: int,
    duplicates: DuplicateGroups,
) -> tuple[Indices, bool]:
    """Return the devices in the order in which they were added, and False; or True if ``duplicates`` must be given.

    Starts from ``forced`` and stops by the `Rules` that ``limits`` are. ``ahead`` is how many additions to look ahead
    at first.
    """
    M, (kind, _, gone) = c.size, duplicates
    rules = Rules(limits[0], limits[1], limits[2], limits[3])
    chosen, taken, group = np.empty(M, np.int64), np.zeros(M, np.bool_), np.empty((GROUP_ROWS, M))
    near, index, series = np.empty((5, M)), np.empty(M, np.int64), np.zeros(SERIES_SIZE)
    size, T, value, known = forced.size, 0.0, np.inf, 0
    for at in range(size):
        i = forced[size - 1 - at]
        chosen[at], group[0, at], group[1, at], group[2, at] = i, c[i], t[i], e[i]
    if size:
        T = round_time(law, group, size, 0.0)
        value = (rules.theta + 1.0 / size) * T
    state, look_s, left = Growth(size, T, value, 0.0), T if size else _soonest_alone(law, c, t, e)[1], 0
    while not np.isnan(look_s):
        size, T = state.size, state.round_s if state.size else look_s
        for at in range(known, size):
            taken[chosen[at]] = True
            if kind.size > 0:
                gone[kind[chosen[at]]] += 1
        known, until_s, few = size, np.inf, M - size <= FULL_SCAN_BELOW
        m = M - size if few else min(ahead, M - size)
        if few or left < m:
            left = _fill(law, c, t, e, taken, duplicates, m, 0.0, -np.inf, near, index)
        if not few:
            least, until_s, same = _bound(law, near, left, m, T, group, size)
            if kind.size == 0 and same > 4 * m:
                return chosen[:0], True
            until_s = max(until_s, look_s) * (1.0 + 1e-9)
            left = _fill(law, c, t, e, taken, duplicates, m, until_s, least, near, index)
        reach = Reach(left, until_s, m)
        state, look_s, left = _add(law, c, t, e, near, index, reach, rules, chosen, group, series, state)
        ahead = min(2 * ahead, INITIAL_LOOKAHEAD + int(math.sqrt(M)))
    return chosen[: state.size], False


def grow(view: RoundView, most: int, theta: float = np.nan, deadline_s: float = np.inf) -> Indices:
    """Starting from the forced devices, keep adding the device that lengthens the round least.

    Args:
        view: what the server knows this round.
        most: stop before the set exceeds this many devices.
        theta: stop before the objective (theta + 1/n) t*(S) rises; by default this rule is off.
        deadline_s: stop before the round exceeds this many seconds.

    Returns:
        (n,) device indices in the order in which they were added.
    """
    if view.law.separable:
        return _grow_by_ends(view, most, theta, deadline_s)
    limits = (most, float(theta), float(deadline_s), SERIES_FROM)  # as floats: for integers it would be compiled again
    chosen, crowded = _grow(*view.needs, view.forced, limits, INITIAL_LOOKAHEAD, (_UNKNOWN, _UNKNOWN, _UNKNOWN))
    if crowded:
        chosen, _ = _grow(*view.needs, view.forced, limits, INITIAL_LOOKAHEAD, _duplicates(view.needs))
    return chosen


def _duplicates(needs: Needs) -> DuplicateGroups:
    """Return the kind of each device, 0 to K - 1, its rank among the devices of its kind, and K zeros."""
    columns = needs.c, needs.t, needs.e
    order = np.lexsort(columns)
    new = np.ones(order.size, dtype=np.bool_)
    new[1:] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
    kind, rank = np.empty_like(order), np.empty_like(order)
    kind[order] = np.cumsum(new) - 1
    rank[order] = np.arange(order.size) - np.flatnonzero(new)[kind[order]]
    return kind, rank, np.zeros(int(new.sum()), dtype=np.int64)


def _grow_by_ends(view: RoundView, most: int, theta: float, deadline_s: float) -> Indices:
    """The same with dedicated lines: whoever is done next lengthens the round least, so one sort is enough."""
    order, q, ends_s = ends_first(view)
    order = order[:most]
    rounds_s = np.maximum.accumulate(ends_s[order])
    values = (theta + 1.0 / np.arange(1, order.size + 1)) * rounds_s
    over = rounds_s > deadline_s
    over[1:] |= values[1:] > values[:-1]
    over[:q] = False
    return order[: int(np.argmax(over)) if over.any() else order.size]


def ends_first(view: RoundView) -> tuple[Indices, int, Floats]:
    """Return with dedicated lines: the forced devices and then the others by their ends, how many are forced, all ends.

    Args:
        view: what the server knows this round.

    Returns:
        (M,) device indices, the number of forced ones, and (M,) seconds by device.
    """
    ends_s = view.upload_s + view.compute_s
    free = np.setdiff1d(np.argsort(ends_s, kind="stable"), view.forced, assume_unique=True)
    order: Indices = np.concatenate((view.forced, free))
    return order, view.forced.size, ends_s


@dataclass(frozen=True)
class ByObjective(Policy):
    """What Greedy and Optimal have in common: the theta of (P1)'s objective, and how many devices it allows.

    Attributes:
        theta: of the rounds model N(n) = beta (theta + 1/n), dimensionless, above -1; see Table I. With a negative
            theta the model holds for fewer than -1/theta devices, and no more are scheduled.
    """

    theta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        objective(1, 1.0, self.theta)  # refuses a theta that predicts no rounds

    def most(self, view: RoundView) -> int:
        """Return the largest number of devices that max_devices and the rounds model allow."""
        most = max_scheduled(view, self.max_devices, "max_devices")
        valid = largest_set(self.theta)
        if view.forced.size > valid:
            raise InputError(
                f"must_include forces {view.forced.size} devices in, but with theta = {self.theta} the rounds model "
                f"holds for at most {valid:.0f}; use a larger theta"
            )
        return int(min(most, valid))

    def best(self, view: RoundView, choose: Callable[[RoundView, int], Indices]) -> Indices:
        """Return the best choice, by the objective, under any downlink that a set can have."""
        if view.downlink is None:
            return choose(view, self.most(view))
        return best_under(
            view,
            self.most(view),
            lambda part, _, most: choose(part, most),
            lambda devices, round_s: (self.theta + 1.0 / devices.size) * round_s,
        )


@dataclass(frozen=True)
class Greedy(ByObjective):
    """The paper's policy, Algorithm 2: approximately minimises the total training time, problem (P1).

    (P1) is to choose the set S of devices that minimises

        (theta + 1/|S|) t*(S),

    where t*(S) is the time in seconds of a round with the devices S under optimal bandwidth allocation (see `allocate`)
    and N(n) = beta (theta + 1/n) is the number of rounds that training needs with n devices per round. Greedy starts
    with the device that finishes first on its own, and keeps adding the device that lengthens the round least, until
    the objective would rise. See `Optimal` for the exact minimum.

    Attributes:
        theta: of the rounds model N(n) = beta (theta + 1/n), dimensionless, above -1: the part of the rounds that
            adding devices cannot reduce. 0 schedules the most devices, large values few. Measure it with
            ``fedcell fit`` or `fit_rounds`, or take it from `TABLE_I`. With a negative theta, fewer than -1/theta
            devices are scheduled.
        max_devices: upper limit on the devices per round, or None.
        sharing: ``"optimal"`` or ``"equal"`` shares of the band; see `Policy`.

    `decide(view, rng)` returns a `Plan`: the devices, their shares of the band and the round time. It draws no random
    numbers.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 9.0, 1.5], compute_s=[3.0, 2.0, 5.0, 8.0])
        >>> plan = fc.Greedy(theta=0.0).decide(view, np.random.default_rng(0))
        >>> plan.devices.tolist(), plan.shares.round(3).tolist(), round(plan.round_s, 3)
        ([0, 1], [0.414, 0.586], 5.414)
    """

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices that Algorithm 2 schedules, in the order in which they were added."""
        return self.best(view, lambda part, most: grow(part, most, self.theta))
