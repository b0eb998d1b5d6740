"""The base class of all policies: choose the devices, share the band, build the Plan."""

import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import deprecated

from fedcell import lazy_names
from fedcell.errors import InputError, require_number, short_repr
from fedcell.quantisation import checked_bits
from fedcell.schedule.bandwidth import Sharing, allocate
from fedcell.schedule.plan import Plan, Question, Report
from fedcell.schedule.view import RoundView
from fedcell.types import Floats, Indices


@dataclass(frozen=True)
class Policy(ABC):
    """Base class of all policies: decides which devices train in a round.

    A policy is a frozen dataclass and a pure function of what the server knows. To write your own, subclass Policy and
    define ``choose``; ``decide`` then adds the devices that must be included, shares the band and builds the plan.
    Every policy has the settings below beside its own.

    Attributes:
        max_devices: upper limit on the devices per round, or None; the first that ``choose`` returns are kept.
        max_joules: a device that would spend more than this in the round is not scheduled; None for no such limit.
        sharing: ``"optimal"`` (the shortest round: all scheduled devices finish at the same time) or ``"equal"`` shares
            of the band.
        overcommit: how many times more devices are invited than needed, at least 1. The round ends when as many as
            needed have delivered: k of them for a policy that schedules k devices, 1/overcommit of those invited for
            others.
        uses_profiles: whether ``choose`` looks at the view's profiles. Set it in the class of a policy that does:
            otherwise no simulation spends time on getting them. Likewise for the others:
        uses_rms: whether it looks at rms_losses.
        uses_norms: whether it looks at norms of earlier rounds.
        uses_updates: whether it looks at updates.
        uses_sums: whether it looks at peaks, absolutes or squares.

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
    overcommit: float = field(default=1.0, kw_only=True, repr=False)
    uses_profiles: ClassVar[bool] = False
    uses_rms: ClassVar[bool] = False
    uses_norms: ClassVar[bool] = False
    uses_updates: ClassVar[bool] = False
    uses_sums: ClassVar[bool] = False

    @property
    def server_momentum(self) -> float:
        """The server's momentum, from 0 to below 1, where the task's aggregator has no server optimizer of its own."""
        return 0.0

    def __post_init__(self) -> None:
        if self.max_devices is not None:
            at_least_one("max_devices", self.max_devices)
        if self.sharing not in ("optimal", "equal"):
            raise InputError(f"sharing is {self.sharing!r}; write 'optimal' or 'equal'")
        if self.max_joules is not None:
            require_number("max_joules", self.max_joules, above=0)
        require_number("overcommit", self.overcommit, least=1)

    def ask(self, view: RoundView, rng: np.random.Generator) -> Question | None:  # noqa: ARG002
        """Ask some devices something before the round is decided; a policy that decides in two stages defines this.

        The answers cost time. ``choose`` then sees a view of the devices that answered, and of no others, with their
        answers as ``losses`` or ``norms`` and ``heard_round`` equal to ``round_index``.

        Args:
            view: what the server knows this round, for M devices.
            rng: the source of every random number that the policy uses; ``choose`` gets the same one afterwards.

        Returns:
            The question, or None to decide at once.
        """
        return None

    @abstractmethod
    def choose(self, view: RoundView, rng: np.random.Generator) -> ArrayLike:
        """Choose the devices that train this round; this is the one method a policy must define.

        Args:
            view: what the server knows this round, for M devices.
            rng: the source of every random number that the policy uses.

        Returns:
            (n,) distinct device indices from 0 to M - 1, most wanted first; empty to schedule no device.
        """

    def __init_subclass__(cls) -> None:
        if "cost_of_nobody_s" in cls.__dict__:  # its name in 0.2
            warnings.warn(
                f"{cls.__name__}.cost_of_nobody_s is called empty_round_s; write that", DeprecationWarning, stacklevel=2
            )
            cls.empty_round_s = cls.__dict__["cost_of_nobody_s"]  # type: ignore[method-assign]

    def empty_round_s(self) -> float:
        """Return the time in seconds of a round in which no device is scheduled."""
        return 0.0

    def local_epochs(self, view: RoundView, devices: Indices) -> ArrayLike | None:  # noqa: ARG002
        """Decide how often each scheduled device goes through its samples; override it in a policy that does.

        Args:
            view: what the server knows this round; ``view.epochs`` is what the task says.
            devices: (n,) the scheduled devices, ascending.

        Returns:
            (n,) fractions of an epoch, or whole numbers of them; None for what the task says.
        """
        return None

    def upload_bits(self, view: RoundView, devices: Indices) -> ArrayLike | None:  # noqa: ARG002
        """Decide how many bits a weight each scheduled device uploads; override it in a policy that does.

        Args:
            view: what the server knows this round; ``view.upload_part(bits)`` says what bits cost.
            devices: (n,) the scheduled devices, ascending.

        Returns:
            (n,) bits a weight, whole numbers from 2 to 16, or 32 for the weights as they are; None for what the task
            says.
        """
        return None

    def learn(self, view: RoundView, report: Report) -> Floats | None:  # noqa: ARG002
        """Sum up what a round showed; a policy that learns over many rounds defines this.

        What it returns is ``view.learnt`` from the next round on, so that ``choose`` stays a pure function of the view
        and a run can be resumed. It is called after each round in which a model arrived.

        Args:
            view: what the server knew when it scheduled the round, with what was learnt until then as ``view.learnt``.
            report: what came of it.

        Returns:
            (k,) numbers, or None to keep what was learnt.
        """
        return None

    def decide(self, view: RoundView, rng: np.random.Generator) -> Plan:
        """Choose the devices, add the ones that must be included, and share the band among them.

        Args:
            view: what the server knows this round, for M devices.
            rng: passed on to ``choose``.

        Returns:
            Plan: the scheduled devices, their shares of the band and the round time.
        """
        _require_generator(rng)
        if self.overcommit > 1.0 and hasattr(self, "k"):
            invited = int(min(ceil(self.overcommit * self.k), max(self.k, min(len(view), view.law.max_devices))))
            return replace(self, k=invited, overcommit=1.0).decide(view, rng)  # type: ignore[call-arg]
        if self.max_joules is not None and (allowed := self._affordable(view, self.max_joules)).size < len(view):
            if allowed.size == 0:
                return Plan.empty(self.empty_round_s())
            few = cap_k(self, allowed.size)
            plan = few.decide(view.only(allowed), rng)
            return replace(plan, devices=allowed[plan.devices])
        with self._copying():
            chosen = np.asarray(self.choose(view, rng))
        devices = self._checked(chosen, view)
        if devices.size == 0:
            return Plan.empty(self.empty_round_s())
        starts_s = None if view.downlink is None else view.downlink.starts_s(devices)
        plan = Plan(devices, np.ones(devices.size), 0.0, starts_s, *self._effort(view, devices))
        upload_s, compute_s, law = view.upload_s[devices], view.compute_s[devices], view.law.take(devices)
        if (work := plan.work(view.epochs)) is not None:
            compute_s = work * compute_s
        if (part := plan.part(view)) is not None:
            upload_s, law = part * upload_s, law.scaled(part)
        ready_s = compute_s if starts_s is None else starts_s + compute_s
        band = allocate(upload_s, ready_s, sharing=self.sharing, law=law)
        return replace(plan, shares=band.shares, round_s=float(band.round_s))

    def _effort(self, view: RoundView, devices: Indices) -> tuple[Floats | None, Floats | None]:
        """Return what ``local_epochs`` and ``upload_bits`` say, checked."""
        epochs, bits = self.local_epochs(view, devices), self.upload_bits(view, devices)
        if epochs is not None:
            epochs = self._amounts("local_epochs", epochs, devices)
            odd = (epochs > 1.0) & (epochs != np.floor(epochs))
            if odd.any():
                raise InputError(
                    f"{type(self).__name__}.local_epochs returned {epochs[odd][0]:g}; give a fraction of an epoch, or "
                    "a whole number of them"
                )
        if bits is not None:
            bits = self._amounts("upload_bits", bits, devices)
            bits = checked_bits(f"{type(self).__name__}.upload_bits returned", bits)
        return epochs, bits

    def _amounts(self, method: str, given: ArrayLike, devices: Indices) -> Floats:
        amounts = np.asarray(given, np.float64)
        if amounts.shape != devices.shape or not (np.isfinite(amounts) & (amounts > 0.0)).all():
            raise InputError(
                f"{type(self).__name__}.{method} returned {short_repr(given)}; return a positive number for each of "
                f"the {devices.size} devices, or None"
            )
        return amounts

    def checked_question(self, view: RoundView, rng: np.random.Generator) -> Question | None:
        """Return what ``ask`` returns, checked: with the devices that must be included, without those too dear.

        Args:
            view: what the server knows this round, for M devices.
            rng: passed on to ``ask``.

        Returns:
            The question, its devices ascending, or None.
        """
        _require_generator(rng)
        if type(self).ask is Policy.ask:
            return None
        with self._copying():
            question = self.ask(view, rng)
        if question is None:
            return None
        require_devices(getattr(self, "k", 0), view)  # fewer may answer, which is nobody's mistake
        devices = np.union1d(self._valid(np.asarray(question.devices), view, "ask"), view.forced)
        if self.max_joules is not None:
            devices = np.intersect1d(devices, self._affordable(view, self.max_joules))
        return replace(question, devices=devices.astype(np.int64)) if devices.size else None

    @deprecated("Policy.asked is called checked_question; write that")
    def asked(self, view: RoundView, rng: np.random.Generator) -> Question | None:
        """The former name of `checked_question`."""
        return self.checked_question(view, rng)

    def needed(self, invited: int) -> int:
        """Return how many models end the round, if so many devices were scheduled."""
        if self.overcommit == 1.0:
            return invited
        return min(invited, self.k) if hasattr(self, "k") else ceil(invited / self.overcommit)

    @contextmanager
    def _copying(self) -> Iterator[None]:
        """Say what to do instead where the policy writes into the view."""
        try:
            yield
        except ValueError as error:
            if "read-only" not in str(error) or isinstance(error, InputError):
                raise
            *_, last = traceback.extract_tb(error.__traceback__)
            raise InputError(
                f"{type(self).__name__} changes an array of the view ({last.filename}, line {last.lineno}), which is "
                "read-only; copy it first, such as view.upload_s.copy()"
            ) from error

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
        most = max_scheduled(view, self.max_devices, "max_devices")
        devices = self._valid(chosen, view, "choose")
        if devices.size == 0:
            return view.forced
        if view.must_include is None:
            return np.sort(devices[:most])
        others = devices[~view.must_include[devices]]
        return np.sort(np.concatenate((view.forced, others[: most - view.forced.size])))

    def _valid(self, devices: NDArray[Any], view: RoundView, method: str) -> Indices:
        """Return the device indices that a method of the policy returned, or raise if they are none."""
        who = f"{type(self).__name__}.{method}"
        if devices.size == 0:
            return np.empty(0, np.int64)
        if devices.ndim != 1 or devices.dtype.kind not in "iu":
            raise InputError(
                f"{who} returned {devices.dtype} of shape {devices.shape}; return a vector of device indices"
            )
        found = devices.astype(np.int64)
        if found.min() < 0 or found.max() >= len(view):
            bad = found.min() if found.min() < 0 else found.max()
            raise InputError(f"{who} returned device {bad}, but the devices are 0 to {len(view) - 1}")
        in_order = np.sort(found)
        if (in_order[1:] == in_order[:-1]).any():
            twice = in_order[1:][in_order[1:] == in_order[:-1]][0]
            raise InputError(f"{who} returned device {twice} twice; return each device at most once")
        return found


def _require_generator(rng: object) -> None:
    """Raise unless this is a random generator, or None for a policy that draws nothing."""
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise InputError(f"rng is {short_repr(rng)}; give a random generator, such as np.random.default_rng(0)")


def require_devices(k: int, view: RoundView) -> None:
    """Raise an InputError if a round shall have more devices than there are."""
    if k > len(view):
        raise InputError(f"k is {k}, but the cell has {len(view)} devices; give a k of at most {len(view)}")


def cap_k(policy: Policy, count: int) -> Policy:
    """Return the policy, with a smaller number of devices per round if it wants more than there are.

    Args:
        policy: any policy; one that schedules a fixed number of devices has it in its field ``k``.
        count: how many devices can be scheduled.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.schedule.policy import cap_k
        >>> cap_k(fc.Random(k=8), 5).k, cap_k(fc.Random(k=8), 20).k, cap_k(fc.All(), 5)
        (5, 8, All(max_devices=None, sharing='optimal'))
    """
    return replace(policy, k=count) if getattr(policy, "k", 0) > count else policy  # type: ignore[call-arg]


def at_least_one(name: str, value: int) -> None:
    """Raise an InputError unless the value is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} is {value!r}; give a whole number of devices of at least 1")


def max_scheduled(view: RoundView, limit: int | None, name: str) -> int:
    """Return how many devices may be scheduled: at most ``limit``, and what the law carries, but all forced ones.

    Args:
        view: what the server knows this round.
        limit: the most devices allowed, or None.
        name: the setting that has this limit, for the message.

    Returns:
        The smaller of the limit and M.
    """
    carried = min(len(view), view.law.max_devices)
    if view.forced.size > carried:
        raise InputError(
            f"must_include forces {view.forced.size} devices in, but there are {view.law.capacity}; force in fewer"
        )
    most = int(carried if limit is None else min(limit, carried))
    if view.forced.size > most:
        raise InputError(f"must_include forces {view.forced.size} devices in, but {name} is {limit}; raise {name}")
    return most


if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, {}, {"limited": "cap_k", "room": "max_scheduled"})
