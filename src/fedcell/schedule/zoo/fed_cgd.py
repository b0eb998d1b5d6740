"""FedCGD: the set whose labels are most like the whole cell's, with the most samples, within a round's time.

T. Chen, J. Yan, Y. Sun, S. Zhou, Z. Niu, "FedCGD: Collective gradient divergence optimized scheduling for wireless
federated learning", arXiv:2506.07581, 2025.

The rounds that training takes grow with two divergences of the scheduled devices S together: that of their labels, at
most a weighted earth mover's distance (WEMD) to those of all devices, and that of sampling, which falls inversely with
the number of samples N(S) that the devices train on. FedCGD minimises their sum

    J(S) = sum_b w_b |a_b(S) - a_b| + variance / N(S)

with a_b(S) and a_b the shares of label b in the data of S and of all devices, over the sets that the band can carry
within the time T of a round: sum_{i in S} need_i(T) <= 1, where need_i(T) is the share of the band with which device i
is done by T.

What differs from the paper: w_b and the variance depend on the task, and are estimated there; here all w_b are 1,
and N counts in units of a mean device's samples, so that ``variance`` is the divergence, in the same unit as the
distance, of one such device. Without a time T there is the limit max_devices. We knew the objective from the paper's
abstract only, and its polynomial algorithm not at all: J is minimised here by adding one device after the other, taking
the best of the sets on the way, and then exchanging, adding and dropping devices as long as that helps, from a few
starts. The tests compare it with a search through all sets of small cells: nine in ten are solved exactly.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from fedcell.errors import require_number
from fedcell.runtime import cached_njit
from fedcell.schedule.downlink import best_under
from fedcell.schedule.laws.solver import FITS, need
from fedcell.schedule.policy import Policy, max_scheduled
from fedcell.schedule.view import RoundView
from fedcell.schedule.zoo.common import counts_of_labels
from fedcell.types import Bools, Floats, Indices

STARTS = 20
"""From how many devices, one after the other, the search starts."""
SWEEPS = 3
"""How often at most all scheduled devices are tried to be exchanged."""
_BETTER = 1.0 - 1e-12
"""A set must be better by more than rounding."""


@dataclass(frozen=True)
class FedCgd(Policy):
    """Schedule the set with the least label distance and sampling variance that fits into the round: FedCGD.

    The view should have label_counts, or profiles that are shares of labels. A device of which neither is known counts
    as one like all.

    Attributes:
        seconds: T, the longest a round may take; None for no limit but max_devices. If nobody can be done by then, the
            plan is empty and the round lasts as long as that.
        variance: what the sampling of one mean device adds to the objective, at least 0.
        max_devices: upper limit on the devices per round, or None.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> labels = [[9, 0], [9, 0], [0, 9], [0, 9]]
        >>> view = fc.RoundView([1.0, 2.0, 2.0, 9.0], [3.0, 3.0, 3.0, 3.0], label_counts=labels)
        >>> plan = fc.FedCgd(seconds=6.5).decide(view, np.random.default_rng(0))
        >>> plan.devices.tolist(), plan.round_s  # one of each kind; a third would take too long
        ([0, 2], 6.0)
        >>> fc.FedCgd().decide(view, np.random.default_rng(0)).devices.tolist()
        [0, 1, 2, 3]
    """

    seconds: float | None = None
    variance: float = 1.0
    max_devices: int | None = field(default=8, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seconds is not None:
            require_number("seconds", self.seconds, above=0)
        require_number("variance", self.variance, least=0)

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the best set that was found."""
        most = max_scheduled(view, self.max_devices, "max_devices")
        rank = np.argsort(rng.permutation(view.order()))  # ties are broken at random
        counts = counts_of_labels(view, "fed_cgd")
        if counts is None:
            counts = np.ones((len(view), 1))
        like, variance = counts.sum(axis=0) / counts.sum(), self.variance * float(counts.sum()) / len(view)

        def best(part: RoundView, there: Indices, limit: int) -> Indices:
            order = np.argsort(rank[there])
            forced = np.isin(order, part.forced)
            choice = _Choice(counts[there[order]], like, variance, self._shares(part)[order], limit, forced)
            found: Indices = order[_least(choice)]
            return found

        def worth(devices: Indices, round_s: float) -> float:
            in_time = self.seconds is None or round_s <= self.seconds * FITS
            return divergence(counts[devices].sum(axis=0), like, variance) if in_time else inf

        if self.seconds is None or view.downlink is None:
            return best(view, np.arange(len(view)), most)
        return best_under(view, most, best, worth)

    def _shares(self, view: RoundView) -> Floats:
        """(M,) which share of the band each device needs to be done in time."""
        return np.zeros(len(view)) if self.seconds is None else _needs_at(*view.needs, self.seconds)

    @override
    def empty_round_s(self) -> float:
        """The time of a round: the server waits until then."""
        return 0.0 if self.seconds is None else self.seconds


def divergence(held: Floats, like: Floats, variance: float) -> float:
    """Return J of a set of devices.

    Args:
        held: (B,) how many samples of each label its devices hold together.
        like: (B,) a_b, the shares of the labels that it should have.
        variance: the numerator of J's second term, over the number of samples.

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.zoo.fed_cgd import divergence
        >>> divergence(np.array([6.0, 2.0]), np.array([0.5, 0.5]), variance=4.0)
        1.0
    """
    return float(_divergence(np.asarray(held, dtype=np.float64), np.zeros(len(like)), like, variance))


class _Choice(NamedTuple):
    """What the compiled search takes.

    Attributes:
        counts: (n, B) samples of each label that each device holds.
        like: (B,) as above.
        variance: likewise.
        shares: (n,) what each device needs of the band; those of a set sum to at most 1.
        most: how many devices at most.
        forced: (n,) devices that must be in the set, whatever they need.
    """

    counts: Floats
    like: Floats
    variance: float
    shares: Floats
    most: int
    forced: Bools


@cached_njit(nogil=True)
def _least(cell: _Choice) -> Bools:  # pragma: no cover - compiled
    """(n,) the best of the sets that grow from the forced devices alone and from them with one of the first others."""
    best, least = cell.forced.copy(), np.inf
    for start in range(-1, min(STARTS, cell.forced.size)):
        inside = cell.forced.copy()
        if start >= 0:
            if cell.forced[start] or not _may_join(cell, inside)[start]:
                continue
            inside[start] = True
        inside, value = _grown(cell, inside)
        for _ in range(SWEEPS):
            inside, better = _exchanged(cell, inside, value)
            if better == value:
                break
            value = better
        if value < _BETTER * least:
            best, least = inside, value
    return best


@cached_njit(nogil=True)
def _grown(cell: _Choice, inside: Bools) -> tuple[Bools, float]:  # pragma: no cover - compiled
    """Add the device with which J is least, again and again: the best of the sets on the way, and its J."""
    best, least = inside.copy(), _divergence(_held(cell, inside), np.zeros(cell.like.size), cell.like, cell.variance)
    while True:
        found, value = _joining(cell, inside, inside)
        if found < 0:
            return best, least
        inside[found] = True
        if value < _BETTER * least:
            best, least = inside.copy(), value


@cached_njit(nogil=True)
def _exchanged(cell: _Choice, inside: Bools, value: float) -> tuple[Bools, float]:  # pragma: no cover - compiled
    """Let every device leave or be exchanged for another, and another come, where J falls."""
    nothing = np.zeros(cell.like.size)
    for leaver in range(-1, inside.size):
        if leaver >= 0 and (cell.forced[leaver] or not inside[leaver]):
            continue
        rest = inside.copy()
        if leaver >= 0:
            rest[leaver] = False
        found, least = _joining(cell, rest, inside)
        alone = _divergence(_held(cell, rest), nothing, cell.like, cell.variance)
        if alone < _BETTER * min(value, least):
            inside, value = rest, alone
        elif least < _BETTER * value:
            rest[found] = True
            inside, value = rest, least
    return inside, value


@cached_njit(nogil=True)
def _joining(cell: _Choice, inside: Bools, others: Bools) -> tuple[int, float]:  # pragma: no cover - compiled
    """The device, none of ``others``, with which J of a set is least, and that J; -1 and infinity if none may join."""
    found, least, held, free = -1, np.inf, _held(cell, inside), _may_join(cell, inside)
    for i in range(inside.size):
        if free[i] and not others[i]:
            value = _divergence(held, cell.counts[i], cell.like, cell.variance)
            if value < least:
                found, least = i, value
    return found, least


@cached_njit(nogil=True)
def _may_join(cell: _Choice, inside: Bools) -> Bools:  # pragma: no cover - compiled
    """(n,) for which devices there is a place and band left beside a set."""
    n, used = 0, 0.0
    for i in range(inside.size):
        if inside[i]:
            n += 1
            used += cell.shares[i]
    return (used + cell.shares <= FITS) & (n < cell.most)


@cached_njit(nogil=True)
def _held(cell: _Choice, inside: Bools) -> Floats:  # pragma: no cover - compiled
    """(B,) how many samples of each label the devices of a set hold."""
    held = np.zeros(cell.like.size)
    for i in range(inside.size):
        if inside[i]:
            held += cell.counts[i]
    return held


@cached_njit(nogil=True)
def _divergence(held: Floats, more: Floats, like: Floats, variance: float) -> float:  # pragma: no cover - compiled
    """J of a set that holds so many samples of each label, and so many more."""
    samples = distance = 0.0
    for b in range(like.size):
        samples += held[b] + more[b]
    if samples == 0.0:
        return np.inf
    one = 1.0 / samples  # a division for each label would be half of the search's time
    for b in range(like.size):
        distance += abs((held[b] + more[b]) * one - like[b])
    return distance + variance * one


@cached_njit(nogil=True)
def _needs_at(law: Any, c: Floats, t: Floats, e: Floats, T: float) -> Floats:  # pragma: no cover - compiled
    """(M,) the share that each device needs to be done by T."""
    found = np.empty(c.size)
    for i in range(found.size):
        found[i] = need(law, c[i], t[i], e[i], T)
    return found
