"""What a server knows about its devices, in a simulation and in a real federation.

Links and compute times are known in advance (a report, the simulator's perfect foresight), estimated from earlier
rounds (see estimates.py), or not known at all: then the median of the other devices is assumed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from fedcell.protocol.columns import MAX_WHOLE, Rows, Table, column, part
from fedcell.protocol.estimates import MIN_SECONDS, Estimates, is_exploration_round
from fedcell.protocol.signals import SIGNALS, Reports, signals_of
from fedcell.schedule.plan import Links, Plan, Timing
from fedcell.schedule.policy import Policy
from fedcell.schedule.view import RoundView, Undeclared
from fedcell.types import Bools, Floats, Indices

PARTICIPATION_DECAY = 0.9
"""A round counts this much less for the balance of the model than the round after it."""
MAX_BACKOFF_ROUNDS = 63
"""A device that keeps failing is left out for at most so many rounds in a row."""


@dataclass(frozen=True, eq=False)
class Knowledge(Table):
    """What earlier rounds showed about M devices, which are numbered from 0.

    Attributes:
        compute: observed compute times.
        upload: observed upload times with the entire band, for links that were not known in advance.
        last_round: (M,) the round in which a device was last scheduled, -1 for never.
        mean_upload_s: (M,) the mean of its upload times so far.
        rounds_available: (M,) the number of rounds in that mean.
        profiles: (M, d) what is known about the devices' data, a row of NaN where nothing is.
        recent: (M,) the sum of a device's weights in the rounds' means, each round counting 0.9 times the next.
        failures: (M,) in how many rounds in a row a scheduled device brought nothing usable.
        retry_round: (M,) the first round in which it may be scheduled again.
        reports: what each device reported when it last delivered; see `signals`.
        heard_round: (M,) the round of that report, -1 for never.
        turns: (M,) how often a device has delivered.
        took_s: (M,) how long that took on average, in seconds from the start of a round.
        planned_s: (M,) how long it was planned to take.
        heard_epochs: (M,) how often it went through its samples for its last update.
        learnt: (k,) what the policy itself made of the rounds so far; see `Policy.learn`.
        round_losses: (rounds,) the mean training loss of the devices that delivered in each round, NaN where none did.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.schedule.plan import Timing
        >>> from fedcell.schedule.plan import Links
        >>> from fedcell.protocol.knowledge import Knowledge
        >>> knowledge, links = Knowledge.empty(2), Links(upload_s=np.ones(2), compute_s=np.full(2, np.nan))
        >>> view = knowledge.view(links, 0)
        >>> plan = fc.All().decide(view, np.random.default_rng(0))
        >>> timing = Timing(began_s=np.array([2.0, 40.0]), finish_s=np.array([4.0, 42.0]))
        >>> knowledge = knowledge.with_round(view, plan, links, timing, clock_s=42.0)
        >>> knowledge.view(links, 1).compute_s.tolist()
        [2.0, 40.0]
        >>> knowledge.view(links, 99, clock_s=42.0 + 352.0, explore=True).compute_s.tolist()  # after 352 s unseen
        [1.0, 20.0]
    """

    compute: Estimates = part(Estimates, "compute_")
    upload: Estimates = part(Estimates, "upload_")
    last_round: Indices = column(-1, np.int64)
    mean_upload_s: Floats = column(0.0)
    rounds_available: Indices = column(0, np.int64, stored="looks")
    profiles: Floats = column(np.nan, wide=True)
    recent: Floats = column(0.0)
    failures: Indices = column(0, np.int64)
    retry_round: Indices = column(0, np.int64)
    reports: Table = part(Reports, "heard_")
    heard_round: Indices = column(-1, np.int64, stored="heard_heard_round")
    turns: Indices = column(0, np.int64, stored="heard_turns")
    took_s: Floats = column(np.nan, stored="heard_took_s")
    planned_s: Floats = column(np.nan, stored="heard_planned_s")
    heard_epochs: Floats = column(np.nan, later=True)
    round_losses: Floats = field(default_factory=lambda: np.empty(0))
    learnt: Floats = field(default_factory=lambda: np.empty(0))

    def with_profiles(self, devices: Indices, profiles: Floats) -> "Knowledge":
        """Return the knowledge with new profiles of some devices; a device that had one gets the mean of both.

        Args:
            devices: (n,) distinct device numbers.
            profiles: (n, d) what they brought; rows with NaN are ignored. Another d than before replaces all profiles.
        """
        usable = np.isfinite(profiles).all(axis=1)
        if not usable.any():
            return self
        same = self.profiles.shape[1] == profiles.shape[1]
        after = self.profiles.copy() if same else np.full((len(self), profiles.shape[1]), np.nan)
        new, which = profiles[usable], devices[usable]
        after[which] = np.where(np.isnan(after[which]), new, 0.5 * (after[which] + new))
        return self.changed(profiles=after)

    def known(self, links: Links, there: Indices, reported_s: Floats | None = None) -> tuple[Floats, Floats]:
        """Return the (n,) upload and (n,) compute times that are known of the connected devices, NaN where none is.

        An upload time comes from ``links``, otherwise from earlier rounds; a compute time likewise, otherwise from the
        device's report.

        Args:
            links: what is known in advance about these n devices.
            there: (n,) their numbers.
            reported_s: (n,) the compute times they reported, NaN where they reported none.
        """
        compute_s = _first_known(links.compute_s, self.compute, there)
        if reported_s is not None:
            compute_s = np.where(np.isfinite(compute_s), compute_s, reported_s)
        return _first_known(links.upload_s, self.upload, there), compute_s

    def view(
        self,
        links: Links,
        round_index: int,
        *,
        clock_s: float = 0.0,
        explore: bool = False,
        there: Indices | None = None,
        reported_s: Floats | None = None,
        joules: Callable[[Indices, Floats, Floats], Floats] | None = None,
        policy: Policy | None = None,
        **columns: Any,
    ) -> RoundView:
        """Return what a policy sees of the connected devices.

        Args:
            links: what is known in advance about these n devices.
            round_index: the round, from 0.
            clock_s: the time at the start of the round, in seconds.
            explore: whether stale estimates are explored: in every tenth round a device that was not observed for long
                is expected to be as fast as may be hoped; see `Estimates`. Times known in advance or reported stay, and
                those of a device that brought nothing the last time.
            there: (n,) their numbers; all devices by default.
            reported_s: (n,) the compute times they reported, NaN where they reported none.
            joules: from device numbers, upload and compute times to what each would spend in the round.
            policy: what it has not said that it uses is an error to read; None if all may be read.
            columns: further fields of the RoundView.

        Returns:
            RoundView: of n devices; an unknown time is the median of the others. If all are unknown, links are assumed
            equal and training times 0: the optimistic guess, which schedules the best channels first, and their times
            become known.
        """
        some: Places = EVERYBODY if there is None else there  # of everybody nothing is copied
        there = np.arange(len(self)) if there is None else there
        upload_s, compute_s = self.known(links, there, reported_s)
        upload_s, compute_s = _with_median(upload_s, otherwise=1.0), _with_median(compute_s, otherwise=0.0)
        if explore and is_exploration_round(round_index):
            turn_s = float(np.median(upload_s + compute_s))
            failed = self.failures[there] > 0  # that it was not seen since is no sign that it has become faster
            told = failed | np.isfinite(links.compute_s)
            if reported_s is not None:
                told |= np.isfinite(reported_s) & (self.compute.weight[there] == 0)
            compute_s = np.where(told, compute_s, self.compute.optimistic_s(there, compute_s, clock_s, turn_s))
            known_link = failed | np.isfinite(links.upload_s)
            upload_s = np.where(known_link, upload_s, self.upload.optimistic_s(there, upload_s, clock_s, turn_s))
        return RoundView.of_known(
            upload_s,
            compute_s,
            round_index=round_index,
            ids=there,
            last_round=self.last_round[some],
            mean_upload_s=np.where(self.rounds_available[there] > 0, self.mean_upload_s[there], upload_s),
            recent=self.recent[some],
            presence=self.rounds_available[there] / round_index if round_index else np.ones(there.size),
            round_losses=self._losses_until(round_index),
            clock_s=clock_s,
            law=links.law,
            epochs=links.epochs,
            weights=links.weights,
            tensors=links.tensors,
            bits=links.bits,
            overhead_bits=links.overhead_bits,
            heard_round=self.heard_round[some],
            heard_epochs=self.heard_epochs[some],
            learnt=self.learnt if self.learnt.size else None,
            turns=self.turns[some],
            took_s=self.took_s[some],
            planned_s=self.planned_s[some],
            joules=None if joules is None else joules(there, upload_s, compute_s),
            **self._reported(some, policy),
            **columns,
        )

    def _reported(self, some: "Places", policy: Policy | None) -> dict[str, Any]:
        """The last reports of these devices, and their profiles; None of what nobody has made."""
        found: dict[str, Any] = {} if policy is None else dict(_undeclared(type(policy)))
        if "profiles" not in found:
            found["profiles"] = self.profiles[some] if self.profiles.shape[1] else None
        for one in SIGNALS if policy is None else signals_of(type(policy)):
            values: NDArray[Any] | Rows = getattr(self.reports, one.name)
            if one.wide and values.shape[1] == 0:
                found[one.name] = None
            elif isinstance(values, Rows) and values.shape[0] * values.shape[1] > MAX_WHOLE:
                found[one.name] = values.take(some)
            else:
                found[one.name] = values[some]
        return found

    def with_participation(self, devices: Indices, weights: Floats | None = None) -> "Knowledge":
        """Return the knowledge after the mean of a round's models was taken.

        Args:
            devices: (n,) numbers of the devices whose models are in it; none if it was not taken.
            weights: (n,) their weights, up to a common factor; equal by default.
        """
        if devices.size == 0:
            return self
        recent, share = self.recent.copy(), np.ones(devices.size) if weights is None else weights
        np.add.at(recent, devices, share / share.sum())  # a device may bring a late model and one of this round
        return self.changed(recent=PARTICIPATION_DECAY * recent)

    def with_failures(self, devices: Indices, failed: Bools, round_index: int) -> "Knowledge":
        """Return the knowledge after a round in which some devices brought nothing usable.

        After the first failure a device may be tried again at once; after the second, third and fourth in a row it
        rests for 1, 3 and 7 rounds, and so on up to 63.

        Args:
            devices: (n,) distinct numbers of the devices that were scheduled.
            failed: (n,) booleans: whether a device brought nothing; one that did not fail starts from 0 again.
            round_index: the round, from 0.
        """
        failures, retry_round = self.failures.copy(), self.retry_round.copy()
        failures[devices] = np.where(failed, failures[devices] + 1, 0)
        rest = np.minimum(2 ** np.clip(failures[devices] - 1, 0, 32) - 1, MAX_BACKOFF_ROUNDS)
        retry_round[devices] = np.where(failed, round_index + 1 + rest, 0)
        return self.changed(failures=failures, retry_round=retry_round)

    def resting(self, round_index: int, there: Indices) -> Bools:
        """Return which devices are not to be scheduled in a round, because they failed too often.

        Args:
            round_index: the round, from 0.
            there: (n,) device numbers.

        Returns:
            (n,) booleans.
        """
        resting: Bools = self.retry_round[there] > round_index
        return resting

    def with_round(
        self,
        view: RoundView,
        plan: Plan,
        links: Links,
        timing: Timing,
        clock_s: float,
        planned_s: Floats | None = None,
    ) -> "Knowledge":
        """Return the knowledge after a round.

        Args:
            view: what the round was planned with.
            plan: who trained.
            links: what was known in advance; upload times are estimated only where that was nothing.
            timing: when the scheduled devices started to upload and finished; NaN is ignored.
            clock_s: the time at the end of the round, in seconds.
            planned_s: when they were planned to finish, in seconds from the start of the round; by default what the
                plan's timing is by the view.
        """
        there = np.asarray(view.ids)
        trained = there[plan.devices]
        last_round = self.last_round.copy()
        last_round[trained] = view.round_index
        rounds_available, mean_upload_s = self.rounds_available.copy(), self.mean_upload_s.copy()
        some: Places = EVERYBODY if there.size == len(self) else there
        rounds_available[some] += 1
        mean_upload_s[some] += (view.upload_s - mean_upload_s[some]) / rounds_available[some]

        known = self.with_times(view, plan, links, timing, clock_s)
        known = known.changed(last_round=last_round, mean_upload_s=mean_upload_s, rounds_available=rounds_available)
        if planned_s is None:
            planned_s = plan.timing(view).finish_s
        return known._with_delivery_times(trained, timing, planned_s)

    def _with_delivery_times(self, devices: Indices, timing: Timing, planned_s: Floats) -> "Knowledge":
        """Return the knowledge with the mean times in which devices deliver.

        Args:
            devices: (n,) who was scheduled.
            timing: when they finished; a device that did not deliver, or only too late, teaches nothing here.
            planned_s: (n,) when they were planned to finish.
        """
        arrived = np.isfinite(timing.finish_s)
        if timing.censored is not None:
            arrived &= ~timing.censored
        if not arrived.any():
            return self
        who = devices[arrived]
        turns = self.turns.copy()
        turns[who] += 1

        def mean(old: Floats, new: Floats) -> Floats:
            found = old.copy()
            before = np.where(np.isnan(old[who]), 0.0, old[who])
            found[who] = before + (new[arrived] - before) / turns[who]
            return found

        took_s, plan_s = mean(self.took_s, timing.finish_s), mean(self.planned_s, planned_s)
        return self.changed(turns=turns, took_s=took_s, planned_s=plan_s)

    def with_times(self, view: RoundView, plan: Plan, links: Links, timing: Timing, clock_s: float) -> "Knowledge":
        """Return the knowledge with the times of a round, which may become known long after it; see `with_round`."""
        there = np.asarray(view.ids)
        trained = there[plan.devices]
        # A device that waits for the model does not train yet.
        trained_s = timing.began_s if plan.starts_s is None else np.maximum(timing.began_s - plan.starts_s, 0.0)
        upload_s, law = timing.finish_s - timing.began_s, view.law.take(plan.devices)
        # What is estimated is the time of the task's training, and of a whole model.
        if (work := plan.work(view.epochs)) is not None:
            trained_s = trained_s / work
        if (part := plan.part(view)) is not None:
            upload_s = upload_s / part
        whole_band_s = np.maximum(law.solo_s(upload_s, plan.shares), MIN_SECONDS)
        seen = np.isfinite(timing.began_s) & np.isfinite(timing.finish_s)
        unknown = seen & ~np.isfinite(links.upload_s[plan.devices])

        def learnt(estimates: Estimates, time_s: Floats, which: Bools, known_s: Floats, planned_s: Floats) -> Estimates:
            if not which.any():
                return estimates.with_first_seen(there, clock_s)
            known_s, planned_s = known_s[plan.devices], planned_s[plan.devices]
            assumed_s = np.where(np.isfinite(known_s), np.inf, planned_s)  # what was known was no optimism
            censored = None if timing.censored is None else timing.censored[which]
            observed = estimates.with_observations(
                trained[which], time_s[which], planned_s=assumed_s[which], censored=censored, clock_s=clock_s
            )
            return observed.with_first_seen(there, clock_s)

        return self.changed(
            compute=learnt(self.compute, trained_s, seen, links.compute_s, view.compute_s),
            upload=learnt(self.upload, whole_band_s, unknown, links.upload_s, view.upload_s),
        )

    def _with_reports(self, devices: Indices, round_index: int, **reports: Floats) -> "Knowledge":
        """Return the knowledge with what devices reported about their training.

        Args:
            devices: (n,) distinct device numbers.
            round_index: the round, from 0.
            reports: (n,) ``losses``, ``rms_losses``, ``norms`` and (n, d) ``updates``, as far as there are any; what is
                not finite counts as not reported.
        """
        changed: dict[str, Any] = {}
        for name, values in reports.items():
            old: NDArray[Any] | Rows = getattr(self.reports, name)
            told = np.isfinite(values) if values.ndim == 1 else np.isfinite(values).all(axis=1)
            if isinstance(old, Rows):
                changed[name] = old.with_rows(devices[told], values[told])
                continue
            changed[name] = old.copy()
            changed[name][devices[told]] = values[told]
        heard_round = self.heard_round.copy()
        heard_round[devices] = round_index
        return self.changed(heard_round=heard_round, reports=self.reports.changed(**changed))

    def with_reports(self, devices: Indices, round_index: int, reports: Mapping[str, Floats]) -> "Knowledge":
        """Return the knowledge with what these devices told, NaN for nothing: whoever told nothing has not reported."""
        some = [np.isfinite(v) if v.ndim == 1 else np.isfinite(v).all(axis=1) for v in reports.values()]
        who = np.logical_or.reduce(some) if some else np.zeros(devices.size, np.bool_)
        if not who.any():
            return self
        if who.all():
            return self._with_reports(devices, round_index, **reports)
        return self._with_reports(devices[who], round_index, **{name: column[who] for name, column in reports.items()})

    def with_losses(self, round_index: int, losses: Floats) -> "Knowledge":
        """Return the knowledge with the (n,) training losses of the devices that delivered in a round."""
        told = losses[np.isfinite(losses)]
        mean = float(told.sum()) / told.size if told.size else np.nan
        earlier = self._losses_until(round_index)
        round_losses = np.empty(earlier.size + 1)
        round_losses[:-1], round_losses[-1] = earlier, mean
        return self.changed(round_losses=round_losses)

    def with_epochs(self, devices: Indices, epochs: Floats) -> "Knowledge":
        """Return the knowledge with how often (n,) devices went through their samples for their last updates."""
        heard_epochs = self.heard_epochs.copy()
        heard_epochs[devices] = epochs
        return self.changed(heard_epochs=heard_epochs)

    def _losses_until(self, round_index: int) -> Floats:
        """(round_index,) the mean losses of the earlier rounds; NaN for those that brought nothing."""
        missing = round_index - self.round_losses.size
        return self.round_losses if missing <= 0 else np.append(self.round_losses, np.full(missing, np.nan))

    @override
    def to_arrays(self, prefix: str = "") -> dict[str, NDArray[Any]]:
        own = {f"{prefix}round_losses": self.round_losses}
        return super().to_arrays(prefix) | own | ({f"{prefix}learnt": self.learnt} if self.learnt.size else {})

    @override
    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Self:
        known = super().from_arrays(arrays, prefix)
        learnt = arrays.get(f"{prefix}learnt", ())  # version 0.2 had none
        return known.changed(
            round_losses=np.array(arrays[f"{prefix}round_losses"], np.float64), learnt=np.array(learnt, np.float64)
        )


EVERYBODY = slice(None)
Places = Indices | slice
"""Of some devices their numbers; an index of arrays."""


@cache
def _undeclared(policy: type[Policy]) -> dict[str, Undeclared]:
    """What stands in a view for the columns that a class of policies has not said it uses."""
    flags = {one.name: str(one.flag) for one in SIGNALS if one not in signals_of(policy)}
    flags |= {} if policy.uses_profiles else {"profiles": "uses_profiles"}
    return {name: Undeclared(name, flag, policy.__name__) for name, flag in flags.items()}


def _first_known(times_s: Floats, estimates: Estimates, there: Indices) -> Floats:
    known = np.isfinite(times_s)
    return times_s if known.all() else np.where(known, times_s, estimates.known_s(there))


def _with_median(values: Floats, otherwise: float) -> Floats:
    """NaN becomes the median of the others, or ``otherwise`` if there are none."""
    known = np.isfinite(values)
    if known.all():
        return values
    return np.where(known, values, np.median(values[known]) if known.any() else otherwise)
