"""Choose devices by what they bring: minimise (theta + D(S)) t*(S), D the imbalance of the set. See docs/diverse.md.

The search is local: from a start, make the addition, removal or exchange that lowers the objective most; when none
does, try two at once. It starts from nobody and from the exact optimum of the paper's objective, in small cells also
from larger sets, and the best end is taken.

An entrant k is looked at in three steps, each cheaper than the next and enough for most. With the best value so far, a
round may last best / theta seconds at most, and at that T the share of k must fit beside the others' (one division).
With its D it may last best / (theta + D), and the shares must fit at that T (a sum over the set). Only then is its
round time solved for.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from fedcell.errors import InputError
from fedcell.runtime import cached_njit
from fedcell.schedule.downlink import best_under
from fedcell.schedule.laws.solver import GROUP_ROWS, exceeds, fits, need, needed, round_time
from fedcell.schedule.optimal import best_set
from fedcell.schedule.policy import Policy, max_scheduled
from fedcell.schedule.profiles import Profiles, profiles_of
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats, Indices

_LESS = 1.0 - 1e-12
"""A move must gain more than rounding errors, or the search might not end."""
CANDIDATES = 12
"""Of two devices that enter at once, one is among this many that would be done soonest alone."""
SMALL = 16
"""Up to this many devices every start is searched with pairs of moves, and exchanges of two for two are tried."""
MEDIUM = 32
"""Up to this many devices the search also starts from everybody, and from the paper's optimum with theta = 0."""

USUAL_THETA = 0.1
"""Of the paper's optimum from which the search starts where time has a price."""

MANY = 1024
"""In larger cells devices that are too slow for any better set are sorted out before the search looks at them."""
NOBODY = -1
"""In place of a device, or of a member's place."""
NO_GAIN = -2
"""In place of a device that enters: no move is below the best value so far."""
_TOTAL, _WHOLE = GROUP_ROWS, GROUP_ROWS + 1
"""Two more rows of the group: the sum of the z of its devices, and that of the set from which it came."""


@cached_njit(nogil=True)
def _value(factor: float, T: float, price: float) -> float:  # pragma: no cover - compiled
    """Return the objective of a round of T seconds: the product, or, with a price of a second, the sum."""
    return factor * T if price == 0.0 else factor + price * T


@cached_njit(nogil=True)
def _longest(value: float, factor: float, price: float) -> float:  # pragma: no cover - compiled
    """Return the T at which the objective is ``value``."""
    return value / factor if price == 0.0 else (value - factor) / price


@cached_njit(nogil=True)
def _entrant(  # pragma: no cover - compiled
    law: Any,
    c: Floats,
    t: Floats,
    e: Floats,
    z: Floats,
    unknown: Floats,
    linear: Floats,
    past: Floats,
    inside: Bools,
    near_enough: Indices,
    group: Floats,
    size: int,
    total_unknown: float,
    total_linear: float,
    theta: float,
    price: float,
    best: float,
) -> tuple[int, float]:
    """Return the device outside whose addition to the set gives the least value below ``best``, and it; NOBODY if none.

    The set is the first ``size`` of the group, which has room for one more; the group's row TOTAL is the sum of its z,
    ``total_unknown`` that of its unknown parts. No others than the devices ``near_enough`` could enter.
    """
    d, n = z.shape[1], size + 1
    found = NOBODY
    longest = _longest(best, theta, price)
    taken = needed(law, group, size, longest)
    if not fits(law, taken):
        return found, best
    room_left = 1.0 - taken
    target = np.empty(d)
    for j in range(d):
        target[j] = group[_TOTAL, j] + n * past[j]
    # No entrant shortens the round: most fail on this alone, which costs less than asking whether they fit.
    shortest = round_time(law, group, size, 0.0) * (1.0 - 1e-12) if size > 0 else 0.0
    for k in near_enough:
        if inside[k] or exceeds(law, c[k], t[k], e[k], longest, room_left):
            continue
        square = 0.0
        for j in range(d):
            side = target[j] + z[k, j]
            square += side * side
        factor = theta + (square + total_unknown + unknown[k]) / (n * n) + (total_linear + linear[k]) / n
        T = _longest(best, factor, price)
        if shortest > T or t[k] >= T:
            continue
        if np.isfinite(T) and not fits(law, needed(law, group, size, T) + need(law, c[k], t[k], e[k], T)):
            continue
        group[0, size], group[1, size], group[2, size] = c[k], t[k], e[k]
        value = _value(factor, round_time(law, group, n, 0.0), price)
        if value < best * _LESS:
            best, found = value, k
            longest = _longest(best, theta, price)
            room_left = 1.0 - needed(law, group, size, longest)
    return found, best


@cached_njit(nogil=True)
def _within(  # pragma: no cover - compiled
    law: Any, c: Floats, t: Floats, e: Floats, longest: float, room_left: float, devices: Indices
) -> Indices:
    """Return those of some devices, ascending, that could be done by then with the part of the band that is left.

    No set with another one is below the value for which a round lasts at most so long.
    """
    found, n = np.empty(devices.size, np.int64), 0
    for k in devices:
        if not exceeds(law, c[k], t[k], e[k], longest, room_left):
            found[n] = k
            n += 1
    return found[:n]


@cached_njit(nogil=True)
def _most_room(  # pragma: no cover - compiled
    law: Any, c: Floats, t: Floats, e: Floats, members: Indices, longest: float, leaving: int
) -> float:
    """Return how much of the band may be left, in a round of that length, once so many members have left: 1 or 2."""
    taken = first = second = 0.0
    for i in members:
        share = need(law, c[i], t[i], e[i], longest)
        taken += share
        if share > first:
            first, second = share, first
        elif share > second:
            second = share
    room_left: float = 1.0 - (taken - first - (second if leaving > 1 else 0.0))
    return room_left + 1e-9 if room_left < 1.0 else 1.0  # of infinite needs nothing is known


@cached_njit(nogil=True)
def _moved(  # pragma: no cover - compiled
    law: Any,
    c: Floats,
    t: Floats,
    e: Floats,
    z: Floats,
    unknown: Floats,
    linear: Floats,
    past: Floats,
    inside: Bools,
    near_enough: Indices,
    members: Indices,
    sizes: tuple[int, int],
    out: tuple[int, int],
    first: int,
    whole_unknown: float,
    whole_linear: float,
    theta: float,
    price: float,
    best: float,
    group: Floats,
) -> tuple[int, float]:
    """Return what the set is worth without the members at ``out``, with ``first``, and with the best further entrant.

    ``sizes`` are the number of members and the largest number allowed. Returned: the entrant, which
    may be NOBODY, or NO_GAIN if nothing is below ``best``, and the value. The group's row WHOLE is the sum of the z of
    all members.
    """
    d, (size, most) = z.shape[1], sizes
    total_unknown, total_linear = whole_unknown, whole_linear
    for j in range(d):
        group[_TOTAL, j] = group[_WHOLE, j]
    for at in out:
        if at >= 0:
            total_unknown -= unknown[members[at]]
            total_linear -= linear[members[at]]
            for j in range(d):
                group[_TOTAL, j] -= z[members[at], j]
    if first >= 0:
        total_unknown += unknown[first]
        total_linear += linear[first]
        for j in range(d):
            group[_TOTAL, j] += z[first, j]
    n = 0
    for at in range(size + 1):
        if at in out:
            continue
        i = members[at] if at < size else first
        if i < 0:
            continue
        group[0, n], group[1, n], group[2, n] = c[i], t[i], e[i]
        n += 1
    found = NO_GAIN
    if n > 0:
        if np.isfinite(best) and not fits(law, needed(law, group, n, _longest(best, theta, price))):
            return found, best  # with D = 0 it would still take too long, and with any entrant longer
        square = 0.0
        for j in range(d):
            square += (group[_TOTAL, j] + n * past[j]) ** 2
        factor = theta + (square + total_unknown) / (n * n) + total_linear / n
        if not np.isfinite(best) or fits(law, needed(law, group, n, _longest(best, factor, price))):
            value = _value(factor, round_time(law, group, n, 0.0), price)
            if value < best:
                found, best = NOBODY, value
    if n < most:
        if first >= 0:
            inside[first] = True
        k, value = _entrant(
            law, c, t, e, z, unknown, linear, past, inside, near_enough, group, n, total_unknown, total_linear, theta,
            price, best,
        )  # fmt: skip
        if first >= 0:
            inside[first] = False
        if k >= 0:
            found, best = k, value
    return found, best


@cached_njit(nogil=True)
def _moves(  # pragma: no cover - compiled
    members: Indices, size: int, forced: Bools, near: Indices, pairs: bool, small: bool
) -> Indices:
    """Return the moves to try, (K, 3): the places of two members that leave and a device that enters, or NOBODY.

    Single moves are one member that leaves, or none; a further device may always enter. With ``pairs``, two leave, or
    one of the ``near`` devices enters besides; in small cells both at once.
    """
    most = size + 1
    if pairs:
        most += size * (near.size + size * (1 + near.size * small)) + near.size
    moves = np.empty((most, 3), np.int64)
    count = 0
    for a in range(NOBODY, size):
        if a >= 0 and forced[members[a]]:
            continue
        for b in range(NOBODY, size if pairs and a >= 0 else 0):
            if b >= 0 and (b <= a or forced[members[b]]):
                continue
            for at in range(NOBODY, near.size if pairs and (b < 0 or small) else 0):
                if not pairs or b >= 0 or at >= 0:
                    moves[count, 0], moves[count, 1] = a, b  # one by one: Numba compiles 2 s less
                    moves[count, 2] = near[at] if at >= 0 else NOBODY
                    count += 1
    return moves[:count]


@cached_njit(nogil=True)
def _search(  # pragma: no cover - compiled
    law: Any,
    c: Floats,
    t: Floats,
    e: Floats,
    z: Floats,
    unknown: Floats,
    linear: Floats,
    past: Floats,
    forced: Bools,
    start: Indices,
    near: Indices,
    most: int,
    theta: float,
    price: float,
    deep: bool,
) -> tuple[Indices, float]:
    """Return the devices at which the local search ends, and the objective there; ``deep`` tries two moves at once.

    ``near`` are the devices that would be ready soonest, which are the first to be tried.
    """
    M, d = z.shape
    members = np.empty(M + 1, np.int64)
    inside = np.zeros(M, np.bool_)
    group = np.empty((GROUP_ROWS + 2, max(most + 2, d)))
    size = start.size
    for i in range(size):  # an assignment of slices takes seconds to compile
        members[i] = start[i]
        inside[start[i]] = True
    value, pairs = np.inf, False
    soon_enough = np.arange(M)
    near_enough = soon_enough
    while True:
        best, out, first, enters = value * _LESS, (NOBODY, NOBODY), NOBODY, NO_GAIN
        if M > MANY and np.isfinite(value):
            longest = _longest(value, theta, price)
            room_left = _most_room(law, c, t, e, members[:size], longest, 2 if pairs else 1)
            soon_enough = _within(law, c, t, e, longest, 1.0, soon_enough)
            near_enough = _within(law, c, t, e, longest, room_left, soon_enough)
        whole_unknown = whole_linear = 0.0
        group[_WHOLE, :d] = 0.0
        for i in members[:size]:
            whole_unknown += unknown[i]
            whole_linear += linear[i]
            for j in range(d):
                group[_WHOLE, j] += z[i, j]
        for move in _moves(members, size, forced, near, pairs, M <= SMALL):
            leave, new = (move[0], move[1]), move[2]
            if new >= 0 and (inside[new] or size + 1 - (move[0] >= 0) - (move[1] >= 0) > most):
                continue
            sizes = (size, most)
            k, found = _moved(
                law,
                c,
                t,
                e,
                z,
                unknown,
                linear,
                past,
                inside,
                near_enough,
                members,
                sizes,
                leave,
                new,
                whole_unknown,
                whole_linear,
                theta,
                price,
                best,
                group,
            )
            if k != NO_GAIN:
                best, out, first, enters = found, leave, new, k
        if enters == NO_GAIN:
            if pairs or not deep:
                return members[:size].copy(), value
            pairs = True
            continue
        value, pairs = best, False
        left = 0
        for at in range(size):
            if at in out:
                inside[members[at]] = False
            else:
                members[left] = members[at]
                left += 1
        size = left
        for i in (first, enters):
            if i >= 0:
                members[size], inside[i] = i, True
                size += 1


@dataclass(frozen=True)
class Diverse(Policy):
    """The devices that together are most like the whole cell, for the time they take: where work and bits are fixed.

    It chooses the set S of devices that minimises

        (theta + D(S)) t*(S),

    where t*(S) is the time in seconds of a round with the devices S under optimal bandwidth allocation, and D(S) is the
    imbalance of the set: the squared distance of its mean profile from that of the cell, in units in which one device
    alone has 1 on average. A profile is a vector that says what a device's data is like, such as its label shares. A
    device of unknown profile counts with what is expected of it; if none is known, D is 1/n and this is `Optimal`.

    The search is local: docs/diverse.md says how far from the best of all sets it ends.

    Attributes:
        theta: above 0, dimensionless: the part of the rounds that a perfectly balanced round would still need. Large
            values favour short rounds, small ones balanced rounds.
        memory: how much of what earlier rounds lacked a round is to make up for, from 0 (nothing) to 1 (all): this
            times the sum of the earlier rounds' mean profiles, each counting 0.9 times the one after it, is added to
            the round's.
        max_devices: upper limit on the devices per round, or None.
        sharing: ``"optimal"`` or ``"equal"`` shares of the band for the chosen set; see `Policy`. The set itself is
            chosen for optimal shares.

    `decide(view, rng)` returns a `Plan`: the devices, their shares of the band and the round time. It draws no random
    numbers. It uses ``view.profiles``, and for its memory ``view.recent``.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> labels = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
        >>> view = fc.RoundView([1.0, 1.0, 3.0, 9.0], [2.0, 2.0, 2.0, 2.0], profiles=labels)
        >>> plan = fc.Diverse().decide(view, np.random.default_rng(0))
        >>> plan.devices.tolist(), plan.round_s  # one of each kind, the nearest ones
        ([0, 2], 6.0)
        >>> fc.Optimal(theta=0.1).decide(view, np.random.default_rng(0)).devices.tolist()
        [0, 1]
    """

    theta: float = 0.05
    memory: float = 0.5
    uses_profiles: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (np.isfinite(self.theta) and self.theta > 0.0):
            raise InputError(f"theta is {self.theta!r}; give a number above 0")
        if not 0.0 <= self.memory <= 1.0:
            raise InputError(f"memory is {self.memory!r}; give a number from 0 to 1")

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices of the best set that the search found."""
        most = max_scheduled(view, self.max_devices, "max_devices")
        profiles = profiles_of(view)
        if view.downlink is not None:
            return self._choose_under_downlink(view, profiles, most)
        if profiles is None:
            return best_set(view, self.theta, most)
        return diverse_set(view, profiles, self.theta, most, memory=self.memory)

    def _choose_under_downlink(self, view: RoundView, profiles: Profiles | None, most: int) -> Indices:
        if profiles is None:
            return best_under(
                view,
                most,
                lambda part, _, limit: best_set(part, self.theta, limit),
                lambda devices, round_s: (self.theta + 1.0 / devices.size) * round_s,
            )
        # What all devices brought so far counts, also where a part of them is chosen from.
        past = np.zeros(profiles.z.shape[1]) if view.recent is None else self.memory * (view.recent @ profiles.z)

        def choose(part: RoundView, there: Indices, limit: int) -> Indices:
            few = replace(profiles, z=profiles.z[there], unknown=profiles.unknown[there])
            return diverse_set(part, few, self.theta, limit, memory=self.memory, past=past)

        def worth(devices: Indices, round_s: float) -> float:
            square = np.square(profiles.z[devices].mean(axis=0) + past).sum()
            unknown = profiles.unknown[devices].sum() / devices.size**2
            return float((self.theta + square + unknown) * round_s)

        return best_under(view, most, choose, worth)


def diverse_set(
    view: RoundView, profiles: Profiles, theta: float, most: int, *, memory: float, past: Floats | None = None
) -> Indices:
    """Return the set of devices with the least (theta + D(S)) t*(S) that the local search finds.

    Args:
        view: what the server knows this round; the devices that must be included are in the set.
        profiles: of its devices.
        theta: above 0.
        most: the largest number of devices allowed.
        memory: how much of the imbalance of ``view.recent`` is added to the round's.
        past: (d,) that imbalance, where it is known already.

    Returns:
        (n,) device indices, in no particular order.
    """
    order = view.order()
    in_order = bool((order[1:] > order[:-1]).all())
    z = np.ascontiguousarray(profiles.z if in_order else profiles.z[order])
    if past is None:
        past = np.zeros(z.shape[1])
        if memory > 0.0 and view.recent is not None:
            past = memory * (view.recent[order] @ z)
    return SetSearch(view, z, past, most, order=order).best(theta, profiles.unknown[order])[0]


def least_of(values: Floats, count: int) -> Indices:
    """Return the places of the least so many values in their order, of equal ones the first."""
    if values.size <= max(count, MANY):
        return np.argsort(values, kind="stable")[:count]
    there = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return there[np.argsort(values[there], kind="stable")[:count]]


class SetSearch:
    """The local search for the set S of a view's devices with the least (theta + D(S)) t*(S), or another price of time.

    D(S) = |mean of z over S + past|^2 + sum of unknown / n^2 + sum of linear / n. With a ``price`` it is the sum
    theta + D(S) + price t*(S) that is minimised.

    The order of devices that it works in does not depend on that of the arrays, so that permuting the devices permutes
    the set.

    Args:
        view: what the server knows this round; the devices that must be included are in every set.
        z: (M, d) what the devices bring, in the order of ``order``.
        past: (d,) what earlier rounds lacked.
        most: the largest number of devices allowed.
        order: (M,) device indices, as ``view.order()`` has them; or those of some devices, and no others are chosen.
        linear: (M,) as above, at least 0, in that order; 0 by default.
        price: what a second costs; 0 for the product.
    """

    def __init__(
        self,
        view: RoundView,
        z: Floats,
        past: Floats,
        most: int,
        *,
        order: Indices,
        linear: Floats | None = None,
        price: float = 0.0,
    ) -> None:
        self._z, self._past, self._order, self._price = z, past, order, price
        self._c, self._t, self._law = view.upload_s[order], view.compute_s[order], view.law.take(order)
        self._forced = np.zeros(order.size, np.bool_) if view.must_include is None else view.must_include[order]
        self._most = min(most, order.size)
        self._linear = np.zeros(order.size) if linear is None else linear
        self._found: Indices | None = None

    def best(self, theta: float, unknown: Floats, part: float = 1.0, work: float = 1.0) -> tuple[Indices, float]:
        """Search.

        Args:
            theta: above 0.
            unknown: (M,) as above, in the search's order.
            part: what part of a model is uploaded.
            work: what part of the view's training the devices do.

        Returns:
            (n,) device indices in the view, in no particular order; and what is minimised. A further search begins at
            the set that the last one found.
        """
        order, M, theta, forced = self._order, self._order.size, float(theta), self._forced
        c, t, law = self._c, self._t, self._law
        if part != 1.0:
            c, law = part * c, law.scaled(np.full(M, part))
        if work != 1.0:
            t = work * t
        needs = law.needs(c, t)
        near = least_of(law.upload_s(c, np.ones(M)) + t, CANDIDATES)

        def end(start: Indices, deep: bool) -> tuple[Indices, float]:
            found: tuple[Indices, float] = _search(
                *needs, self._z, unknown, self._linear, self._past, forced, start, near, self._most, theta,
                self._price, deep,
            )  # fmt: skip
            return found

        if self._found is not None:
            found, value = end(self._found, M <= SMALL)
        else:
            ordered = RoundView(c, t, must_include=forced, law=law)
            starts = [
                np.flatnonzero(forced),
                best_set(ordered, theta if self._price == 0.0 else USUAL_THETA, self._most),
            ]
            if M <= MEDIUM:
                starts += [best_set(ordered, 0.0, self._most), *([np.arange(M)] if self._most == M else [])]
            found, value = min((end(start, M <= SMALL) for start in starts), key=lambda one: one[1])
            if M > SMALL:
                found, value = end(found, True)
        self._found = found
        return order[found], float(value)
