"""A tournament: every policy in every scenario with every seed, who is better than whom, and by which test.

Runs that never reach their scenario's target count with its budget; runs that failed, or whose budget allows no round,
rank last in their block, a block being one seed of one scenario.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fedcell.distributions import chi_square_p, normal_range_quantile
from fedcell.errors import InputError
from fedcell.runs import stats
from fedcell.runs.comparisons import fewest_seeds, sign_flip_p
from fedcell.runs.contest import Entry, Scenario, Tournament, distinct_policies, save_tournament
from fedcell.runs.records import Measure, Rounds
from fedcell.runs.stats import LEVEL
from fedcell.runs.store import Store, opened
from fedcell.runs.sweep import Progress, run_sweep
from fedcell.schedule.plan import Plan, Question
from fedcell.schedule.policy import Policy
from fedcell.schedule.view import RoundView
from fedcell.sim.loop import Simulation
from fedcell.sim.spec import Spec
from fedcell.sim.task import resolve_device
from fedcell.types import Floats


@dataclass(frozen=True, eq=False)
class Ranking:
    """The mean ranks of k contenders over some blocks, and what they show.

    Attributes:
        names: the contenders, in the order given.
        mean: (k,) mean ranks; 1 is the best possible.
        blocks: over how many blocks.
        chi_square: Friedman's statistic, corrected for ties, with k - 1 degrees of freedom.
        p: the chance of such a value or a larger one if all contenders were alike.
        critical: Nemenyi's critical difference: two whose mean ranks differ by less do not differ significantly.

    Example:
        >>> import numpy as np
        >>> from fedcell.runs.tournament import ranking
        >>> seconds = np.array([[58.0, 158.0, 300.0], [61.0, 140.0, 300.0], [70.0, 170.0, 290.0], [50.0, 90.0, 200.0]])
        >>> found = ranking(["diverse", "greedy", "random"], seconds)
        >>> found.mean.tolist(), round(found.chi_square, 3), round(found.p, 4), round(found.critical, 3)
        ([1.0, 2.0, 3.0], 8.0, 0.0183, 1.657)
        >>> found.groups()
        [['diverse', 'greedy'], ['greedy', 'random']]
    """

    names: list[str]
    mean: Floats
    blocks: int
    chi_square: float
    p: float
    critical: float

    def order(self) -> list[int]:
        """The places of the contenders in ``names``, the best first."""
        return [int(i) for i in np.argsort(self.mean, kind="stable")]

    def groups(self) -> list[list[str]]:
        """The largest groups of contenders, best first, none of which can be told from another; only those of several.

        Where Friedman's test shows no difference at all, that is one group of everybody.
        """
        order = self.order()
        if not self.p <= LEVEL:
            return [[self.names[i] for i in order]]
        found, end = list[list[str]](), 0
        for start, best in enumerate(order):
            reach = sum(bool(self.mean[i] - self.mean[best] < self.critical) for i in order[start:])
            if reach > 1 and start + reach > end:
                end = start + reach
                found.append([self.names[i] for i in order[start:end]])
        return found

    def text(self) -> str:
        """What the test says, in a sentence."""
        p = f"p = {self.p:.2g}" if self.p >= 1e-4 else "p < 0.0001"
        said = "the policies differ" if self.p <= LEVEL else "no difference is shown"
        return (
            f"Friedman's test over {self.blocks} blocks: chi-square {self.chi_square:.1f} with {len(self.names) - 1} "
            f"degrees of freedom, {p}: {said}; Nemenyi's critical difference at 5 % is {self.critical:.2f} ranks"
        )


def block_ranks(scores: Floats) -> Floats:
    """Rank the contenders of each block; the smallest score has rank 1, ties share the mean of their ranks.

    Args:
        scores: (B, k), one row a block; infinity for whoever failed.

    Returns:
        (B, k) ranks from 1 to k.

    Example:
        >>> import numpy as np
        >>> from fedcell.runs.tournament import block_ranks
        >>> block_ranks(np.array([[3.0, 1.0, 3.0, np.inf]])).tolist()
        [[2.5, 1.0, 2.5, 4.0]]
    """
    one, other = scores[:, :, np.newaxis], scores[:, np.newaxis, :]
    ranks: Floats = (other < one).sum(axis=2) + 0.5 * ((other == one).sum(axis=2) + 1)
    return ranks


def ranking(names: Sequence[str], scores: Floats) -> Ranking:
    """Rank contenders over blocks.

    Args:
        names: k contenders, two at least.
        scores: (B, k), the smaller the better, one row a block; infinity for whoever failed.
    """
    blocks, k = scores.shape
    if k < 2:
        raise InputError(f"there is no policy to compare {names[0] if names else 'none'} with; give two policies")
    ranks = block_ranks(scores)
    mean: Floats = ranks.mean(axis=0)
    spread = float((ranks**2).sum()) - blocks * k * (k + 1) ** 2 / 4
    apart = blocks**2 * float(((mean - (k + 1) / 2) ** 2).sum())
    chi_square = (k - 1) * apart / spread if spread > 0.0 else 0.0  # nothing but ties
    return Ranking(
        list(names), mean, blocks, chi_square, chi_square_p(chi_square, k - 1), critical_difference(k, blocks)
    )


def critical_difference(k: int, blocks: int, level: float = LEVEL) -> float:
    """Return Nemenyi's critical difference of mean ranks: q sqrt(k (k + 1) / (12 blocks)).

    q is the quantile of the range of k standard normal values. Ties make the true spread smaller, so it is safe.

    Args:
        k: contenders.
        blocks: how many blocks the ranks are means of.
        level: the chance of any false difference that is accepted.
    """
    return normal_range_quantile(1.0 - level, k) * math.sqrt(k * (k + 1) / (12.0 * blocks))


TIMED_ROUNDS = 8


def deciding_s(spec: Spec, rounds: int = TIMED_ROUNDS) -> float:
    """Seconds that the policy of a run takes to decide a round: the least of some rounds, once the first has passed.

    The questions of a policy that asks first count, the time that devices take to answer does not.

    Args:
        spec: one run.
        rounds: how many are played.

    Returns:
        Seconds of this machine; NaN if the policy fails.
    """
    run = spec.changed({"rounds": rounds, "budget_s": float("inf"), "budget_j": None, "target_accuracy": None})
    took_s: list[float] = [0.0]
    try:
        loaded = Simulation.load(run, threads=1)
        timed = Simulation(loaded.spec, loaded.task, loaded.world, _timed(loaded.policy, took_s))
        state = timed.start()
        while (played := timed.step(state)) is not None:
            state = played[1]
            took_s.append(0.0)
    except Exception:  # whatever a user's own policy raises: its runs say what
        return float("nan")
    return min([second for second in took_s[1:] if second > 0.0], default=float("nan"))


def _timed(policy: Policy, took_s: list[float]) -> Policy:
    """The same policy, which adds the seconds that it takes to the last entry of a list."""
    kind: Any = type(policy)

    class Timed(kind):  # type: ignore[misc]
        def asked(self, view: RoundView, rng: np.random.Generator) -> Question | None:
            began_s = time.perf_counter()
            question: Question | None = super().checked_question(view, rng)
            took_s[-1] += time.perf_counter() - began_s
            return question

        def decide(self, view: RoundView, rng: np.random.Generator) -> Plan:
            began_s = time.perf_counter()
            plan: Plan = super().decide(view, rng)
            took_s[-1] += time.perf_counter() - began_s
            return plan

    made: Policy = Timed(**{field.name: getattr(policy, field.name) for field in fields(policy) if field.init})
    return made


@dataclass(frozen=True)
class Winner:
    """Who is best in a scenario.

    Attributes:
        best: the policy with the best mean, by time among those whose median seed reaches the target; empty if there is
            none.
        tied: those from which it cannot be told, by paired sign-flip tests and Holm's correction for all pairs.
        untold: why nobody differs significantly: too few seeds, or no policy reaches the target; empty otherwise.
    """

    best: str
    tied: list[str]
    untold: str = ""

    def text(self) -> str:
        """Such as ``diverse``, or ``tie of 2: diverse, greedy``; of many, the first few; or why it cannot be told."""
        if self.untold:
            return self.untold
        everybody = [self.best, *self.tied]
        more = f" and {len(everybody) - 4} more" if len(everybody) > 5 else ""
        few = everybody[:4] if more else everybody
        return f"tie of {len(everybody)}: {', '.join(few)}{more}" if self.tied else self.best

    def leaders(self) -> list[str]:
        """The best and who does not differ significantly from it; nobody where that cannot be said."""
        return [] if self.untold else [self.best, *self.tied]


@dataclass(frozen=True, eq=False)
class TournamentResult:
    """What a tournament gave.

    Attributes:
        tournament: what was run.
        rounds: the runs that were finished.
        failures: why the others failed.
        deciding_s: by policy and number of devices, the seconds to decide a round, if `measured_decisions` was asked.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.runs.records import Rounds
        >>> wanted = fc.Tournament(fc.load_scenarios()[:1], ["diverse", "greedy"], [0, 1, 2, 3, 4, 5])
        >>> def run(reached_s):
        ...     return Rounds(np.array([reached_s]), np.array([reached_s]), np.ones(1), np.array([0.8]))
        >>> times_s = {"diverse": 58.0, "greedy": 158.0}
        >>> rounds = {("paper", who, seed): run(times_s[who] + seed) for who in times_s for seed in range(6)}
        >>> result = fc.TournamentResult(wanted, rounds, failures={})
        >>> result.ranking("time").mean.tolist(), result.winners["paper", "time"].text()
        ([1.0, 2.0], 'diverse')
    """

    tournament: Tournament
    rounds: dict[Entry, Rounds]
    failures: dict[Entry, str]
    deciding_s: dict[tuple[str, int], float] = field(default_factory=dict)

    @classmethod
    def of_store(cls, store: Store, tournament: Tournament, keys: Mapping[Entry, str]) -> "TournamentResult":
        """What a store has of a tournament: the seeds that all policies have finished in all scenarios.

        Args:
            store: with its runs.
            tournament: what is compared.
            keys: of all its runs.

        Returns:
            TournamentResult: of fewer seeds than were asked for while runs are missing; an InputError if there is
                none yet.
        """
        done, failed = store.done(keys.values()), store.failures(keys.values())
        missing = {seed for (_, _, seed), key in keys.items() if key not in done and key not in failed}
        seeds = [seed for seed in tournament.seeds if seed not in missing]
        if not seeds:
            raise InputError(
                "no seed is finished by all policies in all scenarios yet; wait, or run the tournament again"
            )
        ended = {entry: key for entry, key in keys.items() if entry[2] in seeds}
        rounds = {entry: store.rounds(key) for entry, key in ended.items() if key in done}
        failures = {entry: failed[key] for entry, key in ended.items() if key not in done}
        scenarios = [_limited(one, rounds) for one in tournament.scenarios]
        return cls(replace(tournament, scenarios=scenarios, seeds=seeds), rounds, failures)

    @cached_property
    def summaries(self) -> dict[tuple[str, str], stats.Summary]:
        """By scenario and policy, what tables say of it; a run that failed counts as one without a round."""
        return {
            (one.name, policy): stats.summarise(
                [self._run(one.name, policy, seed) for seed in self.tournament.seeds],
                one.target,
                one.spec.budget_s,
                failed=sum((one.name, policy, seed) in self.failures for seed in self.tournament.seeds),
            )
            for one in self.tournament.scenarios
            for policy in self.tournament.policies
        }

    def _run(self, scenario: str, policy: str, seed: int) -> Rounds:
        """A run; one without a round if it failed."""
        return self.rounds.get((scenario, policy, seed), Rounds.of([]))

    @cached_property
    def _values(self) -> dict[tuple[str, Measure], Floats]:
        return {(one.name, m): self._values_of(one, m) for one in self.tournament.scenarios for m in MEASURES}

    def _values_of(self, one: Scenario, measure: Measure) -> Floats:
        grid = [
            [
                self._run(one.name, policy, seed).value(measure, one.target, one.spec.budget_s)
                for policy in self.tournament.policies
            ]
            for seed in self.tournament.seeds
        ]
        return np.array(grid)

    def values(self, scenario: str, measure: Measure) -> Floats:
        """(seeds, policies) seconds or accuracies; of a run without a round, the budget or NaN."""
        return self._values[scenario, measure]

    def scores(self, scenario: str, measure: Measure) -> Floats:
        """(seeds, policies) the smaller the better, infinity for runs that failed or have no accuracy."""
        values = self._values[scenario, measure]
        scores: Floats = values.copy() if measure == "time" else np.where(np.isnan(values), math.inf, -values)
        for where, policy, seed in self.failures:
            if where == scenario:
                scores[self.tournament.seeds.index(seed), self.tournament.policies.index(policy)] = math.inf
        return scores

    def mean_ranks(self, measure: Measure) -> Floats:
        """(scenarios, policies) mean ranks over the seeds of each scenario."""
        names = [one.name for one in self.tournament.scenarios]
        return np.stack([block_ranks(self.scores(name, measure)).mean(axis=0) for name in names])

    def ranking(self, measure: Measure, *, seeds: bool = True) -> Ranking:
        """The policies ranked over all blocks.

        Args:
            measure: by what.
            seeds: whether every seed of every scenario is a block, which says how the policies compare in these
                scenarios; otherwise every scenario is one, by the mean ranks of its seeds, which says what to expect of
                other scenarios like these.
        """
        if not seeds:
            return ranking(self.tournament.policies, self.mean_ranks(measure))
        names = [one.name for one in self.tournament.scenarios]
        return ranking(self.tournament.policies, np.concatenate([self.scores(name, measure) for name in names]))

    @cached_property
    def winners(self) -> dict[tuple[str, Measure], Winner]:
        """By scenario and measure, who is significantly better than all others, or who cannot be told from the best."""
        return {(scenario, measure): self._winner(scenario, measure) for scenario, measure in self._values}

    def _winner(self, scenario: str, measure: Measure) -> Winner:
        values, names = self._values[scenario, measure], self.tournament.policies
        summaries = [self.summaries[scenario, name] for name in names]
        if measure == "time":
            can = [i for i, one in enumerate(summaries) if math.isfinite(one.to_target.median_s)]
            means = values.mean(axis=0)
        else:
            can = [i for i, one in enumerate(summaries) if one.best.n]
            means = np.array([-getattr(one, measure).mean for one in summaries])
        if not can:
            nobody = "no policy reaches the target with more than half of the seeds"
            return Winner("", [], nobody if measure == "time" else "no policy has a round")
        best, *others = sorted(can, key=lambda i: float(means[i]))
        pairs = list(combinations(range(len(names)), 2))
        seeds, fewest = len(self.tournament.seeds), fewest_seeds(max(1, len(pairs)))
        if seeds < fewest:
            few = f"{seeds} seed{'s' * (seeds != 1)} cannot tell policies apart here; use at least {fewest}"
            return Winner(names[best], [names[i] for i in others], few)
        differences = [values[:, a] - values[:, b] for a, b in pairs]
        p = [sign_flip_p(both[np.isfinite(both)].tolist()) for both in differences]
        apart = {pair for pair, holds in zip(pairs, stats.holm(p), strict=True) if holds}
        tied = [i for i in others if (min(i, best), max(i, best)) not in apart]
        return Winner(names[best], [names[i] for i in tied])

    def leads(self, measure: Measure) -> dict[str, tuple[int, int]]:
        """By policy, in how many scenarios it wins, and in how many it does not differ significantly from it."""
        found = [winner for (_, by), winner in self.winners.items() if by == measure]
        return {
            policy: (
                sum(one.leaders() == [policy] for one in found),
                sum(policy in one.leaders() and bool(one.tied) for one in found),
            )
            for policy in self.tournament.policies
        }

    def troubles(self) -> list[str]:
        """Which runs failed and why, a sentence for each policy and reason."""
        total = len(self.tournament.scenarios) * len(self.tournament.policies) * len(self.tournament.seeds)
        by_reason: dict[tuple[str, str], list[Entry]] = {}
        for entry, reason in self.failures.items():
            by_reason.setdefault((entry[1], reason), []).append(entry)
        return [
            f"{policy}: {len(entries)} of {total:,} runs failed and rank last, the first of them in "
            f"{entries[0][0]}, seed {entries[0][2]}: {reason}"
            for (policy, reason), entries in by_reason.items()
        ]


MEASURES: tuple[Measure, ...] = ("time", "best", "last")


def run_tournament(
    tournament: Tournament,
    store: Store | str | Path,
    executor: Executor | None = None,
    workers: int | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> TournamentResult:
    """Run what the store lacks of a tournament, and say what came of it.

    Args:
        tournament: what to run.
        store: a Store, open for writing, or its path; every run is kept as it ends, and an unfinished one goes on where
            it was.
        executor: does the work; by default processes of this machine. The caller shuts it down.
        workers: runs at once; by default as many as this process has cores.
        watch: called with the progress.

    Returns:
        TournamentResult: of all runs, its policies as `format_policy` writes them. Ctrl-C raises a KeyboardInterrupt
        once what was computed is stored.

    Example:
        >>> import tempfile, fedcell as fc
        >>> spec = fc.Spec(budget_s=40.0, rounds=2, task=fc.TaskSpec(hidden=[4]))
        >>> wanted = fc.Tournament([fc.Scenario("tiny", "", 0.5, spec)], ["all", "random:k=2"], [0, 1])
        >>> with tempfile.TemporaryDirectory() as folder, fc.Store(f"{folder}/results.db") as store:
        ...     result = fc.run_tournament(wanted, store)
        >>> len(result.rounds), result.ranking("time").blocks, result.winners["tiny", "last"].text()[:19]
        (4, 2, '2 seeds cannot tell')
    """
    tournament = replace(tournament, policies=distinct_policies(tournament.policies, "the tournament"))
    runs = tournament.runs()
    if executor is None:
        runs = {entry: resolve_device(run) for entry, run in runs.items()}
    keys = {entry: run.key() for entry, run in runs.items()}
    with opened(store) as kept:
        if kept is None:
            raise InputError("run_tournament needs a store; give a Store, or the path of a results file")
        save_tournament(kept, tournament, keys)
        run_sweep(list(runs.values()), kept, executor, workers, watch)
        result = TournamentResult.of_store(kept, tournament, keys)
    if not result.rounds:
        (scenario, policy, seed), reason = next(iter(result.failures.items()))
        raise InputError(
            f"all {len(runs):,} runs failed, the first of them {policy} in {scenario}, seed {seed}: {reason}"
        )
    return result


def _limited(one: Scenario, rounds: Mapping[Entry, Rounds]) -> Scenario:
    """The scenario with a budget: that of a sweep without one is its longest run, for a mean cannot be infinite."""
    if math.isfinite(one.spec.budget_s):
        return one
    longest_s = max((float(run.clock_s[-1]) for entry, run in rounds.items() if entry[0] == one.name), default=0.0)
    return replace(one, spec=one.spec.model_copy(update={"budget_s": longest_s}))


def measured_decisions(tournament: Tournament) -> dict[tuple[str, int], float]:
    """By policy and number of devices, the seconds to decide a round of the first scenario with so many devices.

    It is measured here and now, apart from the runs, in less than a second each.
    """
    sizes: dict[int, Scenario] = {}
    for one in tournament.scenarios:
        sizes.setdefault(one.spec.devices.count, one)
    return {
        (policy, count): deciding_s(one.spec.model_copy(update={"policy": policy}))
        for count, one in sizes.items()
        for policy in tournament.policies
    }
