"""Algorithm 2: add the device that lengthens the round least, until the objective of (P1) would rise.

The literal algorithm solves (P2) for every remaining device at every step, O(M^3) in all. But for a set S the best
addition k minimises the T at which f_S(T) + c_k / (T - t_k) = 1, so at that T it is the device with the smallest share
c_k / (T - t_k), that is, the largest pace (T - t_k) / c_k. Hence: take the best device for a guess of T, solve (P2) for
S with it, and look again at the new T. T falls strictly until the device stays the best; two or three looks are enough,
each of them one pass over the remaining devices. The same holds for every link law: at any T the best addition is the
device with the smallest need.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from fedcell.errors import InputError
from fedcell.schedule.convergence import largest_set, objective
from fedcell.schedule.downlink import best_under
from fedcell.schedule.needs import GROUP_ROWS, DensityNeeds, Floats, Indices, alone, by_law, pace, round_time
from fedcell.schedule.policy import Policy, room
from fedcell.schedule.view import RoundView


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "nnan"})
def _best_pace(rate: Floats, t: Floats, T: float) -> float:  # pragma: no cover - compiled
    best = -np.inf
    for i in range(t.size):
        best = max(best, (T - t[i]) * rate[i])
    return best


@njit(cache=True, nogil=True)
def _cheapest(rate: Floats, t: Floats, index: Indices, T: float) -> int:  # pragma: no cover - compiled
    """Return the position with the smallest share at T, the lowest device index among equals."""
    best, found = _best_pace(rate, t, T), -1
    for i in range(t.size):
        if (T - t[i]) * rate[i] >= best and (found < 0 or index[i] < index[found]):
            found = i
    return found


@njit(cache=True, nogil=True)
def _least_needy(
    law: Any, c: Floats, t: Floats, e: Floats, index: Indices, T: float
) -> int:  # pragma: no cover - compiled
    """The same under any law: the position in ``index`` of the device with the smallest need just below T."""
    best, found = -np.inf, -1
    for at in range(index.size):
        i = index[at]
        mine = pace(law, c[i], t[i], e[i], T)
        if found < 0 or mine > best or (mine == best and i < index[found]):
            best, found = mine, at
    return found


@njit(cache=True, nogil=True)
def _soonest_alone(law: Any, c: Floats, t: Floats, e: Floats) -> int:  # pragma: no cover - compiled
    found, found_s = 0, alone(law, c[0], t[0], e[0])
    for i in range(1, c.size):
        mine_s = alone(law, c[i], t[i], e[i])
        if mine_s < found_s:
            found, found_s = i, mine_s
    return found


def _next(law: Any, c: Floats, t: Floats, e: Floats, rate: Floats, rest_t: Floats, index: Indices, T: float) -> int:
    """Return the position, among the remaining devices, of the one with the smallest need at T."""
    raise NotImplementedError


def _density_next(
    _law: Any, _c: Floats, _t: Floats, _e: Floats, rate: Floats, rest_t: Floats, index: Indices, T: float
) -> int:
    return _cheapest(rate, rest_t, index, T)


def _any_next(
    law: Any, c: Floats, t: Floats, e: Floats, _rate: Floats, _rest_t: Floats, index: Indices, T: float
) -> int:
    return _least_needy(law, c, t, e, index, T)


by_law(_next, _any_next, {DensityNeeds: _density_next})


@njit(cache=True, nogil=True)
def _grow(  # pragma: no cover - compiled
    law: Any, c: Floats, t: Floats, e: Floats, forced: Indices, most: int, theta: float, deadline_s: float
) -> Indices:
    """Return the devices in the order in which they were added.

    Starts from ``forced`` and stops before the set exceeds ``most`` devices, the round exceeds ``deadline_s``, or the
    objective of (P1) rises; a theta of NaN turns that last rule off.
    """
    M = c.size
    chosen = np.empty(M, np.int64)
    index, rest_t, rate = np.arange(M), t.copy(), 1.0 / c
    group = np.empty((GROUP_ROWS, M))
    size, left = 0, M
    for i in forced[::-1]:  # from the end: what is swapped in from behind is never a forced device still to come
        chosen[size], group[0, size], group[1, size], group[2, size] = i, c[i], t[i], e[i]
        size += 1
        left -= 1
        index[i], rest_t[i], rate[i] = index[left], rest_t[left], rate[left]
    T, value, rise = 0.0, np.inf, 0.0
    if size:
        T = round_time(law, group, size, 0.0)
        value = (theta + 1.0 / size) * T
    while size < most:
        at, T_next = -1, np.inf
        if size == 0:
            guess = _soonest_alone(law, c, t, e)
        else:
            guess = _next(law, c, t, e, rate[:left], rest_t[:left], index[:left], T + rise)
        while guess != at:
            i = index[guess]
            group[0, size], group[1, size], group[2, size] = c[i], t[i], e[i]
            T_guess = round_time(law, group, size + 1, T)
            if T_guess > T_next or (T_guess == T_next and i > index[at]):
                break
            at, T_next = guess, T_guess
            guess = _next(law, c, t, e, rate[:left], rest_t[:left], index[:left], T_next)
        next_value = (theta + 1.0 / (size + 1)) * T_next
        if T_next > deadline_s or next_value > value:
            break
        i = index[at]
        chosen[size], group[0, size], group[1, size], group[2, size] = i, c[i], t[i], e[i]
        size += 1
        left -= 1
        index[at], rest_t[at], rate[at] = index[left], rest_t[left], rate[left]
        T, value, rise = T_next, next_value, T_next - T
    return chosen[:size]


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
    # As floats: for integers it would be compiled a second time.
    return _grow(*view.needs, view.forced, most, float(theta), float(deadline_s))


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
        most = room(view, self.max_devices, "max_devices")
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

    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:  # noqa: ARG002
        """Return the devices that Algorithm 2 schedules, in the order in which they were added."""
        return self.best(view, lambda part, most: grow(part, most, self.theta))
