"""Auto: who trains, for how long, and with how many bits a weight, by what updates so far showed. See docs/auto.md.

With x_i the update of device i for each epoch of its work, and z_i its standardised profile, what a round consists of
is measured (`Makeup`): x_i = g + h_i + n_i has a part g that all devices share, a part h_i that is the device's own
(zeta z_i where its profile says so, and eta beside that), and noise n_i of the samples it drew and of rounding. A
round with the devices S lacks

    F(S, b) = g^2 + |mean of h over S, and what earlier rounds lacked|^2 + w (sigma^2 + q^2(b)) / n,

and the number of rounds grows with its mean over the rounds. The time to an accuracy is the mean of F times the mean of
the round times T, and the least product of two means is found by minimising, round by round, the sum

    F(S, b) + price T(S, b, e),        price = mean F / mean T of the last rounds.

(The product F T of one round, which `Diverse` minimises, would make short rounds look best whenever much is lacking.)
"""

from dataclasses import dataclass, replace
from math import exp, log
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from fedcell.errors import InputError, require_number
from fedcell.quantisation import BITS, checked_bits, noise
from fedcell.schedule.bandwidth import allocate
from fedcell.schedule.diverse import SetSearch, least_of
from fedcell.schedule.downlink import best_under
from fedcell.schedule.greedy import Greedy
from fedcell.schedule.plan import Report
from fedcell.schedule.policy import Policy, max_scheduled
from fedcell.schedule.profiles import Profiles, profiles_of
from fedcell.schedule.view import RoundView
from fedcell.types import Floats, Indices

FADE, SLOW_FADE = 0.9, 0.98
"""How much less a round counts than the next: for what changes while a model learns, and for what does not."""
MEMORY = 0.5
"""How much of what earlier rounds lacked a round is to make up for; as of `Diverse`."""
NOISE = 0.03
"""w: what noise hurts, measured by its length, beside a lack of balance. It points everywhere, mostly where the loss is
flat; twice as much is 5 % slower (docs/auto.md)."""
PRIOR_PAIRS, PRIOR_SPREAD = 3.0, 0.1
"""The guess at g^2 and zeta^2 counts as so many pairs of devices, whose products of profiles have this variance."""
PRIOR_COMMON, PRIOR_OWN = 0.05, 0.5
"""That guess, as parts of the mean square length of an update."""
LEAST_COMMON = 0.003
"""Of that length, the least that g^2 is taken to be."""
PRIOR_AGAIN, PRIOR_HIDDEN = 10.0, 0.6
"""Likewise of eta^2: as so many devices seen again, and as a part of what is neither common nor said by profiles."""
PRIOR_ROUNDING = (4.0, 1.3, 0.4, 0.01, 0.0)
"""The noise of rounding to `BITS`, in squared lengths of the update, before one was seen."""
FIRST_BITS = 2
"""Bits a weight of the uploads that the work is to take as long as, before any were chosen."""
MOST_COMPARED = 32
"""Of so many devices of a round the updates are compared with each other. Products of larger matrices are computed by
several threads, and their last bits depend on how many."""
MANY, MANY_AXES, EACH_SIDE = 512, 64, 16
"""In cells of more devices than ``MANY`` the choice is among those that would be done soonest; see `_candidates`."""
LEAST_SAMPLES = 10
"""A device goes through at least so many samples, a mini-batch."""
MOST_EPOCHS, UNKNOWN_EPOCHS = 5.0, 0.05
"""The most work, and that of the first round where nobody knows yet how long training takes."""
SMOOTHING = 0.2
"""How much of the step towards the work that a round's times ask for is made."""


class Makeup(NamedTuple):
    """What updates consist of: mean squares for each epoch of work, and the averages of rounds that follow from them.

    Attributes:
        common: g^2, of what all devices share.
        own: zeta^2, of what differs between devices as their profiles do.
        hidden: eta^2, of what differs between devices, round after round, and not as their profiles do.
        drawn: sigma^2, of the noise of the samples that were drawn.
    """

    common: float
    own: float
    hidden: float
    drawn: float


class _Sums(NamedTuple):
    """What is kept from round to round, in this order in ``view.learnt``; sums over rounds, older ones counting less.

    Over pairs of devices of a round: their number, and sums of the products of profiles, of their squares, of the
    products of updates, and of both products. Over devices seen before: their number, and the sum of what two updates
    of a device have in common beyond g^2 and zeta^2, in mean squares. Over devices: number, squares of updates and of
    profiles. The work, as a logarithm. Over rounds: bits a weight, number, F and seconds.
    """

    pairs: float = 0.0
    d: float = 0.0
    dd: float = 0.0
    y: float = 0.0
    dy: float = 0.0
    again: float = 0.0
    alike: float = 0.0
    devices: float = 0.0
    squares: float = 0.0
    profiles: float = 0.0
    work: float = 0.0
    bits: float = 0.0
    rounds: float = 0.0
    lacked: float = 0.0
    seconds: float = 0.0

    @property
    def usual_bits(self) -> float:
        """The mean bits a weight of late."""
        return self.bits / self.rounds if self.rounds > 0.0 else FIRST_BITS

    @property
    def square(self) -> float:
        """The mean square of an update as trained."""
        return self.squares / self.devices if self.devices > 0.0 else 1.0

    def makeup(self) -> Makeup:
        """Return what updates consist of: a line through the products of pairs, held to a guess while there are few."""
        if self.devices == 0.0:
            return Makeup(PRIOR_COMMON, 1.0, 0.0, 1.0)
        square = max(self.square, 1e-300)
        n = self.pairs + PRIOR_PAIRS
        mean_d, mean_y = self.d / n, (self.y + PRIOR_PAIRS * PRIOR_COMMON * square) / n
        spread = (self.dd + PRIOR_PAIRS * PRIOR_SPREAD) / n - mean_d**2
        both = (self.dy + PRIOR_PAIRS * PRIOR_SPREAD * PRIOR_OWN * square) / n - mean_d * mean_y
        own = max(both / max(spread, 1e-12), 0.0) if self.profiles > 0.0 else 0.0
        common = max(mean_y - own * mean_d, LEAST_COMMON * square)
        rest = max(square - common - own * self.profiles / self.devices, 0.0)
        guess = PRIOR_AGAIN * PRIOR_HIDDEN * rest / square
        hidden = min(max((self.alike + guess) / (self.again + PRIOR_AGAIN), 0.0) * square, rest)
        return Makeup(common, own, hidden, rest - hidden)


class _Choice(NamedTuple):
    """What was decided for a round; ``bits`` and ``epochs`` None where nobody can or need decide them."""

    devices: Indices
    epochs: float | None
    bits: int | None


@dataclass(frozen=True)
class Auto(Policy):
    """Our first recommendation: decides who trains, with which share of the band, for how long and with how many bits.

    It needs no setting. It measures from the updates that arrive how much the devices differ and how much is noise, and
    schedules what brings the model on most for the time that it takes; docs/auto.md has the method and the proof. What
    it has learnt is in ``view.learnt``; it draws no random numbers.

    Attributes:
        epochs: how often devices go through their samples, a fraction or a whole number; None to decide it.
        bits: bits a weight of an upload, from 2 to 16, or 32 for the weights as they are; None to decide it.
        momentum: of the server, from 0 to below 1: so much of its last step is added to each. It applies where the
            task's aggregator has no server optimizer of its own; in Flower the wrapped strategy makes the step.
        who: ``"auto"``, or ``"paper"`` to choose devices by the paper's objective instead, (theta + 1/n) T.
        max_devices: upper limit on the devices per round, or None.
        sharing: ``"optimal"`` or ``"equal"`` shares of the band for the chosen set; see `Policy`.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> labels = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
        >>> view = fc.RoundView(
        ...     [1.0, 1.0, 3.0, 9.0], [2.0] * 4, profiles=labels, weights=50_000, tensors=4, samples=[600] * 4
        ... )
        >>> plan = fc.Auto().decide(view, np.random.default_rng(0))
        >>> plan.devices.tolist(), plan.bits.tolist(), plan.epochs.round(3).tolist(), round(plan.round_s, 2)
        ([1, 2], [4.0, 4.0], [0.031, 0.031], 0.56)
        >>> fc.Auto(epochs=1, bits=32).decide(view, np.random.default_rng(0)).round_s  # as long as the paper's
        6.0
    """

    epochs: float | None = None
    bits: int | None = None
    momentum: float = 0.5
    who: Literal["auto", "paper"] = "auto"
    uses_profiles: ClassVar[bool] = True
    uses_updates: ClassVar[bool] = True
    uses_sums: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is not None:
            require_number("epochs", self.epochs, above=0)
            if self.epochs > 1.0 and self.epochs != int(self.epochs):
                raise InputError(f"epochs is {self.epochs!r}; give a fraction of an epoch, or a whole number of them")
        if self.bits is not None:
            require_number("bits", self.bits, above=0)
            checked_bits("bits is", np.array([self.bits], np.float64))
        require_number("momentum", self.momentum, least=0)
        if self.momentum >= 1.0:
            raise InputError(f"momentum is {self.momentum!r}; give a number from 0 to less than 1")
        if self.who not in ("auto", "paper"):
            raise InputError(f"who is {self.who!r}; write 'auto' or 'paper'")

    @property
    @override
    def server_momentum(self) -> float:
        return self.momentum

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        """Return the devices of the best round that the search found."""
        return self._decision(view).devices

    @override
    def local_epochs(self, view: RoundView, devices: Indices) -> Floats | None:
        epochs = self._decision(view).epochs
        return None if epochs is None else np.full(devices.size, epochs)

    @override
    def upload_bits(self, view: RoundView, devices: Indices) -> Floats | None:
        bits = self._decision(view).bits
        return None if bits is None else np.full(devices.size, float(bits))

    def _decision(self, view: RoundView) -> "_Choice":
        """What is decided for the round of a view; once, though a plan asks three times."""
        return view.once(self, lambda: _decision(self, view))

    @override
    def learn(self, view: RoundView, report: Report) -> Floats | None:
        """Measure what the round's updates consist of, and what the round lacked."""
        kept = _kept(view)
        sums = kept._replace(
            **{name: FADE * getattr(kept, name) for name in _FADING},
            again=SLOW_FADE * kept.again,
            alike=SLOW_FADE * kept.alike,
            work=log(float(report.epochs.mean())),
        )
        sums = _measured(sums, view, report)
        return np.array(
            sums._replace(
                bits=sums.bits + float(report.bits.mean()),
                rounds=sums.rounds + 1.0,
                lacked=sums.lacked + _lacked(view, sums, report),
                seconds=sums.seconds + report.round_s,
            )
        )


_BITS = np.array(BITS)[:, np.newaxis]
_FADING = ("pairs", "d", "dd", "y", "dy", "devices", "squares", "profiles", "bits", "rounds", "lacked", "seconds")
"""The sums of what changes while a model learns."""


def _kept(view: RoundView) -> _Sums:
    """Return what earlier rounds showed; nothing if they were of another policy."""
    return _Sums() if view.learnt is None or view.learnt.size != len(_Sums._fields) else _Sums(*view.learnt.tolist())


def _measured(sums: _Sums, view: RoundView, report: Report) -> _Sums:
    """Return the sums with the products of the round's updates, of two devices and of one device's last two."""
    devices, each = report.devices, report.epochs[:, np.newaxis]
    x = report.signals["updates"] / each
    squares = report.signals["squares"] / np.square(report.epochs)
    there = np.isfinite(x).all(axis=1)
    squares = np.where(np.isfinite(squares), squares, np.square(x).sum(axis=1))
    if not there.any():
        return sums
    x, squares, devices = x[there], squares[there], devices[there]
    profiles = profiles_of(view)
    z = np.zeros((x.shape[0], 0)) if profiles is None else profiles.z[devices]
    some = np.linspace(0, len(x) - 1, min(len(x), MOST_COMPARED)).astype(np.int64)
    alike, distance = x[some] @ x[some].T, z[some] @ z[some].T
    first, second = np.triu_indices(some.size, 1)
    y, d = alike[first, second], distance[first, second]
    sums = sums._replace(
        pairs=sums.pairs + y.size,
        d=sums.d + float(d.sum()),
        dd=sums.dd + float(d @ d),
        y=sums.y + float(y.sum()),
        dy=sums.dy + float(d @ y),
        devices=sums.devices + len(x),
        squares=sums.squares + float(squares.sum()),
        profiles=sums.profiles + float(np.square(z).sum()),
    )
    if view.updates is None or view.heard_epochs is None:
        return sums
    before = view.updates[devices] / view.heard_epochs[devices][:, np.newaxis]
    again = np.isfinite(before).all(axis=1)
    if again.any():
        found = sums.makeup()
        known = found.common + found.own * np.square(z[again]).sum(axis=1)
        more = ((x[again] * before[again]).sum(axis=1) - known).sum() / max(sums.square, 1e-300)
        sums = sums._replace(again=sums.again + float(np.count_nonzero(again)), alike=sums.alike + float(more))
    return sums


@dataclass(frozen=True, eq=False)
class _Round:
    """What rounds with the devices of a view are made of.

    Attributes:
        makeup: of updates.
        z: (M, d) profiles times zeta.
        past: (d,) what earlier rounds lacked, in the same units.
        unknown: (M,) mean squares that are divided by n: what is not known of a device, what is hidden, and noise, but
            that of rounding.
        debt: (M,) what it costs to take a device that was taken lately, for what is hidden of it.
        rounding: (bits, M) w times the noise of rounding, for each of `BITS`.
    """

    makeup: Makeup
    z: Floats
    past: Floats
    unknown: Floats
    debt: Floats
    rounding: Floats

    @classmethod
    def of(cls, view: RoundView, sums: _Sums, some: Indices | None = None) -> "_Round":
        """Return it for a view, after so much has been learnt; or for some of its devices only, in their order."""
        makeup, M, profiles = sums.makeup(), len(view), profiles_of(view)
        if profiles is None:
            profiles = Profiles(np.zeros((M, 1)), np.ones(M))
        recent = np.zeros(M) if view.recent is None else view.recent
        few: Indices | slice = slice(None)
        if some is None:
            past_z, lately = profiles.z, recent
        else:  # in a large cell few devices have trained lately
            few, trained = some, np.flatnonzero(recent)
            past_z, lately = profiles.z[trained], recent[trained]
        scale = np.sqrt(makeup.own)
        z = scale * profiles.z[few]
        own = makeup.own * profiles.unknown[few] if profiles.z.any() else np.full(len(z), makeup.own)
        unknown = own + makeup.hidden + NOISE * makeup.drawn
        debt = 2.0 * MEMORY * makeup.hidden * recent[few]
        past = MEMORY * (lately @ (z if some is None else scale * past_z))
        return cls(makeup, z, past, unknown, debt, NOISE * _rounding(view, makeup)[:, few])

    def lacked(self, devices: Indices, bits: Floats) -> float:
        """Return F of a round that is over, without what earlier ones lacked."""
        noise = self.unknown[devices] + self.rounding[np.searchsorted(BITS, bits), devices]
        balance = float(np.square(self.z[devices].mean(axis=0)).sum())
        return self.makeup.common + balance + float(noise.sum()) / devices.size**2

    def factor(self, devices: Indices, unknown: Floats) -> float:
        """Return F of a round to come, with (M,) ``unknown`` for the bits that it has."""
        n = devices.size
        balance = float(np.square(self.z[devices].mean(axis=0) + self.past).sum())
        noise = float(unknown[devices].sum()) / n**2 + float(self.debt[devices].sum()) / n
        return self.makeup.common + balance + noise


def _lacked(view: RoundView, sums: _Sums, report: Report) -> float:
    """Return F of a round that is over, without what earlier ones lacked."""
    if len(view) <= MANY:
        return _Round.of(view, sums).lacked(report.devices, report.bits)
    return _Round.of(view, sums, report.devices).lacked(np.arange(report.devices.size), report.bits)


def _rounding(view: RoundView, makeup: Makeup) -> Floats:
    """Return (bits, M) the noise of rounding for each epoch of work, squared: of each device's last update."""
    M = len(view)
    usual = np.array(PRIOR_ROUNDING)[:, np.newaxis] * sum(makeup)
    if view.peaks is None or view.absolutes is None or view.squares is None or view.heard_epochs is None:
        return np.repeat(usual, M, axis=1)
    scale = np.square(view.heard_epochs)
    peaks, absolutes, squares = view.peaks / scale, view.absolutes / scale, view.squares / scale
    known = np.isfinite(peaks) & np.isfinite(absolutes) & np.isfinite(squares)
    if not known.any():
        return np.repeat(usual, M, axis=1)
    if known.all():
        return noise(peaks, absolutes, squares, _BITS)
    found = np.empty((len(BITS), M))
    some = noise(peaks[known], absolutes[known], squares[known], _BITS)
    found[:, known] = some
    found[:, ~known] = some.mean(axis=1)[:, np.newaxis]
    return found


def _decision(policy: Auto, view: RoundView) -> _Choice:
    sums = _kept(view)
    epochs = _epochs(policy, view, sums)
    work = 1.0 if epochs is None else epochs / view.epochs
    price = 0.0 if sums.rounds == 0.0 or sums.seconds <= 0.0 else sums.lacked / sums.seconds
    most = max_scheduled(view, policy.max_devices, "max_devices")
    few: Indices | None = None
    if len(view) > MANY and policy.who == "auto" and view.downlink is None:
        few = _candidates(view, work)
        made = _Round.of(view, sums, few)
        search = _Search(policy, view.only(few), made, most, price, work)
    else:
        search = _Search(policy, view, _Round.of(view, sums), most, price, work)
    best: tuple[float, Indices, int | None] | None = None
    for bits in _bits_to_try(policy, view):
        devices, value = search.best(bits)
        if best is None or value < best[0]:
            best = value, devices, bits
    assert best is not None
    return _Choice(best[1] if few is None else few[best[1]], epochs, best[2])


class _Search:
    """The search for the devices of a round, for one number of bits after the other."""

    def __init__(self, policy: Auto, view: RoundView, made: _Round, most: int, price: float, work: float) -> None:
        self.policy, self.view, self.made, self.most, self.price, self.work = policy, view, made, most, price, work
        self.order = view.order()
        self.sets = SetSearch(
            view, np.ascontiguousarray(made.z[self.order]), made.past, most, order=self.order,
            linear=made.debt[self.order], price=price,
        )  # fmt: skip

    def best(self, bits: int | None) -> tuple[Indices, float]:
        """Return the devices for so many bits a weight, and what the round costs."""
        view, made, work = self.view, self.made, self.work
        part = 1.0 if bits is None else float(view.upload_part(bits))
        unknown = made.unknown + made.rounding[len(BITS) - 1 if bits is None else _column(bits)]
        if self.policy.who == "auto" and view.downlink is None:
            return self.sets.best(made.makeup.common, unknown[self.order], part, work)
        scaled = replace(
            view, upload_s=part * view.upload_s, compute_s=work * view.compute_s,
            law=view.law.scaled(np.full(len(view), part)),
        )  # fmt: skip

        def worth(devices: Indices, round_s: float) -> float:
            factor = made.factor(devices, unknown)
            return factor * round_s if self.price == 0.0 else factor + self.price * round_s

        def seconds(devices: Indices) -> float:
            starts_s = 0.0 if view.downlink is None else view.downlink.starts_s(devices)
            times = scaled.upload_s[devices], starts_s + scaled.compute_s[devices]
            return float(allocate(*times, law=scaled.law.take(devices)).round_s)

        if self.policy.who == "paper":
            devices = Greedy(max_devices=self.policy.max_devices).choose(scaled, np.random.default_rng(0))
        else:

            def among(some: RoundView, there: Indices, limit: int) -> Indices:
                order = some.order()
                z, debt = np.ascontiguousarray(made.z[there][order]), made.debt[there][order]
                search = SetSearch(some, z, made.past, limit, order=order, linear=debt, price=self.price)
                return search.best(made.makeup.common, unknown[there][order])[0]

            devices = best_under(scaled, self.most, among, worth)
        return devices, worth(devices, seconds(devices))


def _candidates(view: RoundView, work: float) -> Indices:
    """Return the devices of a large cell to choose from, in an order that does not depend on that of the arrays.

    These are those that would be done soonest alone, and for each axis of the profiles those of each side that would
    be: whoever is like them and slower brings nothing more.
    """
    order, profiles = view.order(), profiles_of(view)
    part = 1.0 if view.weights is None else float(view.upload_part(FIRST_BITS))
    law = view.law.take(order).scaled(np.full(order.size, part))
    alone_s = law.upload_s(part * view.upload_s[order], np.ones(order.size)) + work * view.compute_s[order]
    wanted = np.zeros(order.size, np.bool_)
    wanted[least_of(alone_s, MANY // 2)] = True
    for axis in () if profiles is None else profiles.z.T[:MANY_AXES]:
        values = axis[order]
        for on_it in (values > 0.5 * values.max(), values < 0.5 * values.min()):
            there = np.flatnonzero(on_it)
            wanted[there[least_of(alone_s[there], EACH_SIDE)]] = True
    if view.must_include is not None:
        wanted |= view.must_include[order]
    return order[wanted]


def _median(values: NDArray[Any]) -> float:
    """As np.median, less what that asks first."""
    middle = values.size // 2
    if values.size % 2:
        return float(np.partition(values, middle)[middle])
    parted = np.partition(values, (middle - 1, middle))
    return float((parted[middle - 1] + parted[middle]) / 2)


def _column(bits: float) -> int:
    """Return the place in `BITS` of the least that is at least ``bits``."""
    return int(np.searchsorted(BITS, bits))


def _bits_to_try(policy: Auto, view: RoundView) -> tuple[int | None, ...]:
    if policy.bits is not None:
        return (policy.bits,)
    return (None,) if view.weights is None else BITS


def _epochs(policy: Auto, view: RoundView, sums: _Sums) -> float | None:
    """Return the work: as long training as a reference round sends, for the median device; see docs/auto.md."""
    if policy.epochs is not None:
        return float(policy.epochs)
    M = len(view)
    count = max(1, int(min(M // 4, view.law.max_devices)))
    fast = least_of(view.upload_s, count)
    bits = sums.usual_bits if policy.bits is None else policy.bits
    part = np.full(fast.size, 1.0 if view.weights is None else float(view.upload_part(bits)))
    starts_s = np.zeros(fast.size) if view.downlink is None else view.downlink.starts_s(fast)
    law = view.law.take(fast).scaled(part)
    sending_s = float(allocate(part * view.upload_s[fast], starts_s, law=law).round_s)
    epoch_s = _median(view.compute_s) / view.epochs
    least = 0.01 if view.samples is None else LEAST_SAMPLES / max(_median(view.samples), LEAST_SAMPLES)
    if epoch_s == 0.0 and sums.devices == 0.0:
        wanted = UNKNOWN_EPOCHS
    else:
        wanted = MOST_EPOCHS if epoch_s * MOST_EPOCHS <= sending_s else max(sending_s / epoch_s, least)
    if sums.devices > 0.0:
        wanted = exp((1.0 - SMOOTHING) * sums.work + SMOOTHING * log(wanted))
    wanted = min(max(wanted, least), MOST_EPOCHS)
    return wanted if wanted <= 1.0 else float(round(wanted))
