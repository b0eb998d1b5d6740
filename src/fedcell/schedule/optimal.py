"""(P1) solved exactly: the set S that minimises (theta + 1/|S|) t*(S). The proof is in docs/optimal.md.

Let T_n be the shortest round with n devices. At a given T, n devices can all deliver if and only if the n smallest
needs, under the paper's law the shares c_i / (T - t_i), sum to at most 1. So T_n is the least such T, and (P1) is a
search over n.

- T_n: take the n devices with the smallest shares at a guess of T, solve (P2) for them, take the n smallest at that T,
  and so on: T falls strictly until the set no longer changes, and then it is optimal (the argument is Dinkelbach's).
- Which n, under the paper's law: T_n >= min t + (sum of the n smallest c) bounds the objective of every n from below at
  the cost of one sort. Only the n whose bound is below the best objective found remain. Under other laws: how many
  devices fit in ever longer rounds gives ranges of n, and a range (a, b] from T on is worth (theta + 1/b) T at least.
- What remains is searched by branch and bound: T_n does not fall as n grows, so for a <= n <= b the objective is at
  least (theta + 1/b) T_a; and each T_n that is solved bounds all others of its interval, by duality and tangents.
- Which devices: where n <= b and T_a <= T <= T_b, a device whose need at T_b is larger than the b-th smallest need at
  T_a is beaten by b others everywhere in that range, and is not considered again.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from fedcell.runtime import cached_njit
from fedcell.schedule.greedy import ByObjective, ends_first
from fedcell.schedule.laws.density import DensityNeeds
from fedcell.schedule.laws.solver import (
    FITS,
    GROUP_ROWS,
    Needs,
    inverse_shares,
    is_linear,
    needs_at,
    nth_largest,
    parted,
    round_time,
    solo_finish_s,
    tangent,
)
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats, Indices

WIDE = 8
"""From this many n on, a bound on each of them is worth its price."""
_DOWN = 1.0 - 1e-15
"""A few units in the last place: a set must be better by more than rounding error to be considered."""


@cached_njit(nogil=True)
def _inverse_shares(
    law: Any, c: Floats, t: Floats, e: Floats, q: int, T: float
) -> Floats:  # pragma: no cover - compiled
    """Return the paces, (T - t) / c under the paper's law, of the devices from q on: the larger, the less they need."""
    found = np.empty(c.size - q)
    inverse_shares(law, c[q:], t[q:], e[q:], T, found)
    return found


@cached_njit(nogil=True)
def _take(
    law: Any, c: Floats, t: Floats, e: Floats, q: int, n: int, T: float, at: Indices
) -> None:  # pragma: no cover - compiled
    """Fill ``at`` with the first q devices and the n - q others with the smallest needs at T."""
    for i in range(q):
        at[i] = i
    if n > q:
        found = _inverse_shares(law, c, t, e, q, T)
        least = nth_largest(found, n - q)
        size = q
        for i in range(found.size):
            if found[i] > least:
                at[size] = q + i
                size += 1
        for i in range(found.size):
            if size == n:
                break
            if found[i] == least:
                at[size] = q + i
                size += 1


@cached_njit(nogil=True)
def _shortest(
    law: Any, c: Floats, t: Floats, e: Floats, q: int, n: int, guess_s: float, at: Indices
) -> float:  # pragma: no cover - compiled
    """Return T_n, the shortest round with n devices, the first q among them; fill ``at`` with those devices."""
    group, trial = np.empty((GROUP_ROWS, n)), np.empty(n, np.int64)
    T, T_trial = np.inf, guess_s
    while True:
        _take(law, c, t, e, q, n, T_trial, trial)
        for j in range(n):
            group[0, j], group[1, j], group[2, j] = c[trial[j]], t[trial[j]], e[trial[j]]
        T_trial = round_time(law, group, n, 0.0)
        if not T_trial < T:
            return T
        T = T_trial
        for i in range(n):  # at[:n] = trial would take two seconds more to compile, for a message that never comes
            at[i] = trial[i]


@cached_njit(nogil=True)
def _shortest_rounds(
    law: Any, c: Floats, t: Floats, e: Floats, q: int, sizes: Indices
) -> Floats:  # pragma: no cover - compiled
    """Return T_n for each n; each T is a good guess for the next."""
    at = np.empty(c.size, np.int64)
    found = np.empty(sizes.size)
    guess_s = _soonest(law, c, t, e)
    for i in range(sizes.size):
        found[i] = _shortest(law, c, t, e, q, sizes[i], guess_s, at)
        guess_s = found[i]
    return found


@cached_njit(nogil=True)
def _soonest(law: Any, c: Floats, t: Floats, e: Floats) -> float:  # pragma: no cover - compiled
    """Return when the first device would be done that has everything to itself."""
    first_s = np.inf
    for i in range(c.size):
        first_s = min(first_s, solo_finish_s(law, c[i], t[i], e[i]))
    return first_s


@cached_njit(nogil=True)
def _bounds(cheapest: Floats, t: Floats, low: int, high: int, theta: float) -> Floats:  # pragma: no cover - compiled
    """Return for n = low..high a lower bound on (theta + 1/n) T_n, from T_n >= min t + the sum of the n cheapest c."""
    total, lost = t[0], 0.0
    for i in range(1, t.size):
        total = min(total, t[i])
    bounds = np.empty(high - low + 1)
    for n in range(1, high + 1):
        # Kahan's sum: a bound that rounding lifted above the truth could cut off the optimum.
        term = cheapest[n - 1] - lost
        total, lost = total + term, (total + term - total) - term
        if n >= low:
            bounds[n - low] = (theta + 1.0 / n) * total * _DOWN
    return bounds


@cached_njit(nogil=True)
def _contenders(
    law: Any, c: Floats, t: Floats, e: Floats, q: int, n: int, low_s: float, high_s: float
) -> Indices:  # pragma: no cover - compiled
    """Return the devices that can be among the best n at some T in [low_s, high_s]; the first q always are."""
    early, later = _inverse_shares(law, c, t, e, q, low_s), np.empty(c.size)
    inverse_shares(law, c, t, e, high_s, later)
    beaten = nth_largest(early, n - q) if n > q else np.inf
    beaten_later = beaten
    if is_linear(law) and n > q:  # whoever is behind n others both at first and at last is always behind them
        beaten_later = np.inf
        for i in range(early.size):
            if early[i] >= beaten:
                beaten_later = min(beaten_later, later[q + i])
    keep = np.empty(c.size, np.int64)
    size = 0
    for i in range(c.size):
        # Paces rise with T. A device equal to the n-th, but for rounding, is a contender.
        if (
            i < q
            or beaten <= 0.0
            or later[i] >= beaten_later * (1.0 - 1e-12)
            or (is_linear(law) and later[i] > 0.0 and (low_s - t[i]) / c[i] >= beaten * (1.0 - 1e-12))
        ):
            keep[size] = i
            size += 1
    return keep[:size]


@cached_njit(nogil=True)
def _fitting(law: Any, c: Floats, t: Floats, e: Floats, q: int, T: float) -> int:  # pragma: no cover - compiled
    """Return how many devices can be done by T, the first q among them; 0 if not even those.

    A selection by weight: the smallest needs are counted, part by part, as long as they fit.
    """
    total, needs, size = 0.0, np.empty(c.size), 0
    needs_at(law, c, t, e, T, needs)
    for i in range(c.size):
        if i < q:
            total += needs[i]
        elif needs[i] <= 1.0:
            needs[size] = needs[i]
            size += 1
    if total > FITS:
        return 0
    low: Any = np.int64(0)
    high = size - 1  # a literal 0 would have `parted` compiled twice
    while low <= high:
        i, j, pivot = parted(needs, low, high)
        part = 0.0
        for k in range(low, j + 1):
            part += needs[k]
        if total + part > FITS:
            high = j
            continue
        total += part
        equal = min(i - j - 1, int((FITS - total) / pivot)) if pivot > 0.0 else i - j - 1
        total += equal * pivot
        low = j + 1 + equal
        if low < i:
            break
    found: int = q + low
    return found


@cached_njit(nogil=True)
def _most_by(  # pragma: no cover - compiled
    law: Any, c: Floats, t: Floats, e: Floats, q: int, at: Indices, times: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Return upper bounds on how many devices are done at three times, between which they are lines at most.

    ``at`` is the best set for the second time. Whatever m > 0 is, n devices that are done by T are n <= m + sum of
    max(0, 1 - m g(T)), over all devices, with no max for the first q: weak duality. A tangent of a convex g in its
    place makes that larger, and convex.
    """
    low_s, T, high_s = times
    largest = 0.0
    for i in at:
        if i >= q:
            largest = max(largest, tangent(law, c[i], t[i], e[i], T)[0])
    m = 1.0 / largest if largest > 0.0 else 1.0
    low, middle, high = m, m, m
    for i in range(c.size):
        least = 0.0 if i >= q else -np.inf
        g, slope = tangent(law, c[i], t[i], e[i], T)
        if g < np.inf:
            low += max(least, 1.0 - m * (g + slope * (T - low_s)))
            middle += max(least, 1.0 - m * g)
            high += max(least, 1.0 - m * (g - slope * (high_s - T)))
        else:  # not before T, and later not more than at the end
            more = max(0.0, 1.0 - m * tangent(law, c[i], t[i], e[i], high_s)[0])
            middle += more
            high += more
    return low, middle, high


@cached_njit(nogil=True)
def _raise_bounds(  # pragma: no cover - compiled
    bounds: Floats, low: int, first: int, last: int, theta: float, times: tuple[float, float], most: tuple[float, float]
) -> None:
    """Raise the bounds of n = first..last, where at most ``most`` devices are done at two times, and a line between."""
    (from_s, until_s), (fewer, more) = times, most
    if not more > fewer:
        return
    for n in range(first, last + 1):
        T = min(from_s + (until_s - from_s) * (n - fewer) / (more - fewer), until_s) * (1.0 - 1e-11)
        bounds[n - low] = max(bounds[n - low], (theta + 1.0 / n) * T)


@cached_njit(nogil=True)
def _searched(  # pragma: no cover - compiled
    law: Any,
    c: Floats,
    t: Floats,
    e: Floats,
    q: int,
    theta: float,
    stack: list[tuple[int, int, float, float, Indices]],
    low: int,
    bounds: Floats,
    value: float,
    best: Indices,
) -> tuple[Indices, int]:
    """Return the best set, ``best`` or one with an n in the intervals, and how often T_n was solved for.

    An interval is the least and the largest n, the least and the largest T of use there, and the devices that matter;
    ``bounds`` are of the objective, for n = low, low + 1, ...
    """
    solved = 0
    at = np.empty(c.size, np.int64)
    while len(stack) > 0:
        a, b, a_s, b_s, keep = stack.pop()
        while a <= b and max(bounds[a - low], (theta + 1.0 / a) * a_s) >= value * _DOWN:
            a += 1
        while a <= b and max(bounds[b - low], (theta + 1.0 / b) * a_s) >= value * _DOWN:
            b -= 1
        if a > b:
            continue
        keep = keep[_contenders(law, c[keep], t[keep], e[keep], q, b, a_s, b_s)]
        n = (a + b) // 2
        guess_s = a_s + (b_s - a_s) * (n - a + 1.0) / (b - a + 2.0)
        T = _shortest(law, c[keep], t[keep], e[keep], q, n, guess_s, at)
        solved += 1
        if (theta + 1.0 / n) * T < value:
            value, best = (theta + 1.0 / n) * T, keep[at[:n]]
        if b - a >= WIDE:
            fewer, same, more = _most_by(law, c[keep], t[keep], e[keep], q, at[:n], (a_s, T, max(b_s, T)))
            _raise_bounds(bounds, low, a, n - 1, theta, (a_s, T), (fewer, same))
            _raise_bounds(bounds, low, n + 1, b, theta, (T, max(b_s, T)), (same, more))
        stack.append((a, n - 1, a_s, min(T, b_s), keep))
        stack.append((n + 1, b, T, b_s, keep))
    return best, solved


@cached_njit(nogil=True)
def _best_set(
    law: Any, c: Floats, t: Floats, e: Floats, cheapest: Floats, q: int, most: int, theta: float
) -> tuple[Indices, int]:  # pragma: no cover - compiled
    """Return the optimal set, which contains the first q devices, and how often T_n was solved for: the paper's law."""
    low, high = max(1, q), most
    bounds = _bounds(cheapest, t, low, high, theta)
    at = np.empty(high, np.int64)
    # The n whose bound is lowest starts the search: it is near the best one, and its value makes the window.
    n = low + int(np.argmin(bounds))
    T = _shortest(law, c, t, e, q, n, bounds[n - low] / (theta + 1.0 / n), at)
    value, best = (theta + 1.0 / n) * T, at[:n].copy()
    first, last = 0, 0
    for size in range(low, high + 1):  # NumPy's flatnonzero and arange would take 0.4 s to compile
        if bounds[size - low] < value * _DOWN:
            first, last = first if first else size, size
    if last == 0:
        return best, 1
    everybody = np.empty(c.size, np.int64)
    for i in range(c.size):
        everybody[i] = i
    low_s, high_s = bounds[first - low] / (theta + 1.0 / first), value / (theta + 1.0 / last)
    stack = [(first, last, low_s, high_s, everybody)]
    best, solved = _searched(law, c, t, e, q, theta, stack, low, bounds, value, best)
    return best, solved + 1


@cached_njit(nogil=True)
def _best_set_by(
    law: Any, c: Floats, t: Floats, e: Floats, q: int, most: int, theta: float
) -> tuple[Indices, int]:  # pragma: no cover - compiled
    """The same under any law, which need not bound T_n from below."""
    low, everybody = max(1, q), np.arange(c.size)
    at, bounds = np.empty(c.size, np.int64), np.zeros(most - low + 1)
    low_s = _shortest(law, c, t, e, q, low, _soonest(law, c, t, e), at)
    value, best, solved = (theta + 1.0 / low) * low_s, at[:low].copy(), 1
    stack = [(low, low - 1, low_s, low_s, everybody)]  # nothing, but it has the type
    n, first_s = low, t.min()
    while n < most and (theta + 1.0 / most) * low_s < value:
        # Twice the time for uploads; and no set is of use that takes longer than the last.
        high_s = min(max(first_s + 2.0 * (low_s - first_s), 1.02 * low_s), value / (theta + 1.0 / most))
        if high_s <= low_s:  # the bound is reached, but for rounding
            break
        n_high = min(most, _fitting(law, c, t, e, q, high_s))
        if n_high > n and (theta + 1.0 / n_high) * low_s < value * _DOWN:
            keep = _contenders(law, c, t, e, q, n_high, low_s, high_s)
            T = _shortest(law, c[keep], t[keep], e[keep], q, n_high, high_s, at)
            solved += 1
            if (theta + 1.0 / n_high) * T < value:
                value, best = (theta + 1.0 / n_high) * T, keep[at[:n_high]]
            stack.append((n + 1, n_high - 1, low_s, T, keep))
        n, low_s = max(n, n_high), high_s
    best, more = _searched(law, c, t, e, q, theta, stack, low, bounds, value, best)
    return best, solved + more


def best_set(view: RoundView, theta: float, most: int) -> Indices:
    """Return the set of devices that minimises (theta + 1/n) t*(S).

    Args:
        view: what the server knows this round; the devices that must be included are in the set.
        theta: of the rounds model, with theta + 1/most > 0.
        most: the largest n allowed.

    Returns:
        (n,) device indices, in no particular order.
    """
    if view.law.separable:
        return _soonest_set(view, theta, most)
    needs, order = _forced_first(view)
    theta = float(theta)  # for an integer all would be compiled a second time
    q = view.forced.size
    if isinstance(needs.law, DensityNeeds):
        found, _ = _best_set(*needs, _cheapest_first(needs.c, q), q, most, theta)
    else:
        found, _ = _best_set_by(*needs, q, most, theta)
    return found if order is None else order[found]


def _soonest_set(view: RoundView, theta: float, most: int) -> Indices:
    """The best set with dedicated lines: T_n is the n-th smallest end, so one sort is enough."""
    order, q, ends_s = ends_first(view)
    order = order[:most]
    n = np.arange(1, order.size + 1)
    values = (theta + 1.0 / n) * np.maximum.accumulate(ends_s[order])
    first = max(q, 1) - 1
    return order[: first + 1 + int(np.argmin(values[first:]))]


def shortest_rounds(view: RoundView, sizes: Indices) -> Floats:
    """Return T_n, the shortest round with n devices, the ones that must be included among them.

    Args:
        view: what the server knows this round.
        sizes: (K,) values of n, ascending.

    Returns:
        (K,) seconds.
    """
    needs, _ = _forced_first(view)
    rounds: Floats = _shortest_rounds(*needs, view.forced.size, sizes)
    return rounds


def _cheapest_first(c: Floats, q: int) -> Floats:
    """The first q times, then the others from the least on; sorted here, as a sort takes seconds to compile."""
    return np.concatenate((c[:q], np.sort(c[q:])))


def _forced_first(view: RoundView) -> tuple[Needs, Indices | None]:
    """The needs with those of the forced devices before the others', and the order; None if it is the view's own."""
    forced, needs = view.forced, view.needs
    if not forced.size:
        return needs, None
    free: Bools = np.ones(len(view), dtype=np.bool_)
    free[forced] = False
    order = np.concatenate((forced, np.flatnonzero(free)))
    return Needs(needs.law, needs.c[order], needs.t[order], needs.e[order]), order


@dataclass(frozen=True)
class Optimal(ByObjective):
    """The set of devices that exactly minimises the total training time: problem (P1) of the paper.

    Over all sets S of devices that contain the ones that must be included, it minimises

        (theta + 1/|S|) t*(S),

    where t*(S) is the time in seconds of a round with the devices S under optimal bandwidth allocation (see `allocate`)
    and N(n) = beta (theta + 1/n) is the number of rounds that training needs with n devices per round; beta does not
    change the best set. The search is exact, not exhaustive: docs/optimal.md has the proof.

    Attributes:
        theta: of the rounds model N(n) = beta (theta + 1/n), dimensionless, above -1: the part of the rounds that
            adding devices cannot reduce. 0 schedules the most devices, large values few. Measure it with
            ``fedcell fit`` or `fit_rounds`, or take it from `TABLE_I`. With a negative theta, fewer than -1/theta
            devices are scheduled.
        max_devices: upper limit on the devices per round, or None.
        sharing: ``"optimal"`` or ``"equal"`` shares of the band for the chosen set; see `Policy`. The set itself is
            chosen for optimal shares.

    `decide(view, rng)` returns a `Plan`: the devices, their shares of the band and the round time. It draws no random
    numbers.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> view = fc.RoundView(upload_s=[1.0, 2.0, 9.0, 1.5], compute_s=[3.0, 2.0, 5.0, 8.0])
        >>> plan = fc.Optimal(theta=0.0).decide(view, np.random.default_rng(0))
        >>> plan.devices.tolist(), plan.shares.round(3).tolist(), round(plan.round_s, 3)
        ([0, 1], [0.414, 0.586], 5.414)
        >>> round(fc.objective(n=2, round_s=plan.round_s, theta=0.0), 3)  # the minimum, in seconds
        2.707
    """

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices of the optimal set."""
        return self.best(view, lambda part, most: best_set(part, self.theta, most))
