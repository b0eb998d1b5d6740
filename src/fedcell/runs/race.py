"""Policies raced on equal terms: every policy with every seed, several runs at once, one core each."""

import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedcell import defaults
from fedcell.defaults import TARGET_ACCURACY
from fedcell.errors import InputError, did_you_mean, printable, require_target
from fedcell.files import read_toml, toml_value
from fedcell.learn.published import PUBLISHED
from fedcell.runs import comparisons, stats
from fedcell.runs.comparisons import Axis, Headline, PairComparison
from fedcell.runs.contest import distinct_policies
from fedcell.runs.records import Rounds
from fedcell.runs.runner import Event, RunDone, RunFailed, Runner
from fedcell.runs.store import Store, opened, spec_document
from fedcell.runs.stored import (
    MAX_POLICIES,
    MAX_REASON,
    MAX_REMEMBERED,
    PolicyText,
    StoredRace,
    StoredRun,
    StoredSeed,
)
from fedcell.schedule.laws import LAWS
from fedcell.schedule.registry import POLICIES
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec, TaskSpec, first_fault, parse_stored, require_spec, upgraded
from fedcell.sim.spec_warnings import warn
from fedcell.sim.task import class_accuracy, resolve_device
from fedcell.types import Floats, Vector
from fedcell.world import SnrTrace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedcell.plots import Curve


def race_policies(devices: int = defaults.DEVICES, law: str = "density") -> list[str]:
    """Auto, Diverse and the policies of the paper's Fig. 3, for a cell of so many devices under a link law."""
    known = LAWS.known(law)
    k = int(min(8, devices, devices if known is None else known.max_devices))
    by_time = ["auto", "diverse", "greedy", "optimal", "deadline:seconds=8", "deadline:seconds=25"]
    return [*by_time, f"proportional_fair:k={k}", f"random:k={k}"]


def default_race() -> Spec:
    """The paper's Fig. 3, with Auto and Diverse: a cell of 1,400 m, 450 simulated s, seeds 0 to 4.

    Models are evaluated as often as needed: Auto plays some 1,700 rounds in that time.
    """
    grid: dict[str, list[Any]] = {"policy": race_policies(), "seed": list(range(defaults.SEEDS))}
    return Spec(grid=grid, task=TaskSpec(evaluate="auto"))


Watch = Callable[[Event], None]
"""Called with every event of the race's runs."""

BEAT_S = 2.0
"""A race under way says so in the store this often."""


@dataclass(frozen=True, eq=False)
class RaceResult:
    """What a race gave.

    Attributes:
        spec: the race, whose grid is of policies and seeds.
        policies: the policies, in the order given.
        seeds: the seeds that have ended for every policy; the statistics are of these alone, so that pairs are pairs.
        runs: by policy, one run for each of the seeds; one without a round where it failed, or where no round fits into
            the budget.
        complete: whether all runs were finished: none failed, and none is missing.
        target: the target accuracy.
        failures: why runs failed, by policy and seed; a policy all of whose runs failed is not among the policies.
        models: by policy, the final model (P,) of each of the seeds that has a round; empty unless they were asked for.
        stopped: whether the race was stopped before all runs had ended.

    Example:
        >>> import fedcell as fc
        >>> small = fc.Spec(rounds=2, task=fc.TaskSpec(hidden=[4]), grid={"policy": ["all", "random:k=2"], "seed": [0]})
        >>> result = fc.run_race(small)
        >>> {policy: len(runs[0]) for policy, runs in result.runs.items()}
        {'all': 2, 'random:k=2': 2}
        >>> result.verdicts()[0][:16]
        'all - random:k=2'

        Who is how many times sooner, with its interval and p-value, and each seed's own time:

        >>> found = result.comparisons()["random:k=2", "all"]
        >>> round(found.ratio.value, 2), found.ratio.low, found.p, found.verdict()
        (1.0, nan, 1.0, '1 seed cannot tell; use at least 6')
        >>> result.needs()
        {'all': [inf], 'random:k=2': [inf]}
        >>> result.headline().text[:41]
        'No policy reaches 80 % with any seed; the'
    """

    spec: Spec
    policies: list[str]
    seeds: list[int]
    runs: dict[str, list[list[RoundRecord]]]
    complete: bool
    target: float
    failures: dict[tuple[str, int], str] = field(default_factory=dict)
    models: dict[str, list[Vector]] = field(default_factory=dict)
    stopped: bool = False

    @classmethod
    def of(
        cls,
        spec: Spec,
        done: dict[tuple[str, int], list[RoundRecord]],
        failures: dict[tuple[str, int], str],
        target: float,
        models: Mapping[tuple[str, int], Vector] | None = None,
    ) -> "RaceResult":
        """The result of a race, from the runs that are finished and those that failed, by policy and seed."""
        names, whole = comparable(spec, done, failures)
        runs = {name: [done.get((name, seed), []) for seed in whole] for name in names}
        left = len(spec.grid["policy"]) * len(spec.grid["seed"]) - len(done) - len(failures)
        begun = {name: [seed for seed in whole if done.get((name, seed))] for name in names}
        of_whole = {name: [models[name, seed] for seed in begun[name]] for name in names} if models and whole else {}
        return cls(spec, names, whole, runs, not left and not failures, target, failures, of_whole, left > 0)

    @cached_property
    def rounds(self) -> dict[str, list[Rounds]]:
        """The runs as columns, for statistics."""
        return {policy: [Rounds.of_records(run) for run in runs] for policy, runs in self.runs.items()}

    def limit(self, by: Axis = "time") -> float:
        """What a seed that never reaches the target counts with: the budget, in seconds or joules.

        Without such a budget it is the most that any run took; NaN if that is not known.
        """
        _require_axis(by)
        return comparisons.limit_of(self.rounds, by, self.spec.budget_s if by == "time" else self.spec.budget_j)

    def summaries(self) -> dict[str, stats.Summary]:
        """A summary for each policy."""
        limit_s, limit_j = self.limit(), self.limit("energy")
        return {
            policy: stats.summarise(
                runs, self.target, self.spec.budget_s, limit_s=limit_s, limit_j=limit_j, failed=self._failed(policy)
            )
            for policy, runs in self.rounds.items()
        }

    def _failed(self, policy: str) -> int:
        return sum((policy, seed) in self.failures for seed in self.seeds)

    def needs(self, by: Axis = "time") -> dict[str, list[float]]:
        """By policy, what each seed needed to reach the target.

        Args:
            by: ``"time"``, in seconds, or ``"energy"``, in joules of all devices.

        Returns:
            One number for each of the seeds: infinity for never, NaN for unknown.
        """
        _require_axis(by)
        return {policy: comparisons.needs(runs, self.target, by) for policy, runs in self.rounds.items()}

    def comparisons(self, by: Axis = "time") -> dict[tuple[str, str], PairComparison]:
        """Every policy with every other, by what they need to reach the target; by pair, in both directions.

        Args:
            by: ``"time"`` or ``"energy"``.
        """
        return comparisons.compare_pairs(self.rounds, self.target, self.limit(by), by)

    def headline(self) -> Headline | None:
        """Who reaches the target how many times sooner than greedy, or else than the next; None if there is no word."""
        return comparisons.headline(self.rounds, self.target, self.limit())

    def differences(self) -> dict[str, tuple[stats.Mean, stats.Mean]]:
        """The first policy's best and last accuracy less each other policy's, paired by the seeds that both have."""
        first, *others = self.policies

        def difference(read: Callable[[Rounds], float], other: str) -> stats.Mean:
            pairs = zip(self.rounds[first], self.rounds[other], strict=True)
            return stats.mean_of([read(a) - read(b) for a, b in pairs if len(a) and len(b)])

        return {
            other: (difference(Rounds.best_accuracy, other), difference(Rounds.last_accuracy, other))
            for other in others
        }

    def class_accuracy(self) -> dict[str, Floats]:
        """By policy, (seeds that have a round, classes) the final models' accuracy on each class; needs the models."""
        found = {policy: np.stack(models) for policy, models in self.models.items() if models}
        return {policy: class_accuracy(self.spec.task, models) for policy, models in found.items()}

    def diverged(self) -> dict[str, list[int]]:
        """By policy, the seeds of which training diverged; of the policies that have any."""
        seeds = {
            p: [s for s, run in zip(self.seeds, runs, strict=True) if run.diverged] for p, runs in self.rounds.items()
        }
        return {policy: found for policy, found in seeds.items() if found}

    def troubles(self) -> list[str]:
        """What went wrong with some of the runs, a sentence each; empty for a race without diverged and failed runs."""
        of = len(self.seeds)
        said = [
            f"{policy}: training diverged with {len(seeds)} of {of} seeds, which count as never reaching the target; "
            "lower task.learning_rate"
            for policy, seeds in self.diverged().items()
        ]
        said += [
            f"{policy}: no round fits into the budget with {one.without_round} of {of} seeds; these have no accuracy "
            "and never reach the target"
            for policy, one in self.summaries().items()
            if one.without_round
        ]
        return [*said, *([self.failures_text(self.failures, self.spec)] if self.failures else [])]

    @staticmethod
    def failures_text(failures: Mapping[tuple[str, int], str], spec: Spec) -> str:
        """How many runs of a race failed, and why the first did."""
        of = len(spec.grid["policy"]) * len(spec.grid["seed"])
        (policy, seed), reason = next(iter(failures.items()))
        return f"{len(failures)} of {of} runs failed, the first of them {policy}, seed {seed}: {reason}"

    def verdicts(self, by: Axis = "time") -> list[str]:
        """What the comparisons of the first policy with each other one show, a sentence each.

        They are of the time to the target, or of the energy to it, with the last accuracy beside it.
        """
        return comparisons.verdicts(self.rounds, self.target, self.limit(by), by)[1]

    def curves(self, by: Axis = "time") -> "list[Curve]":
        """The mean curves against time or energy, as plots.race_figure draws them; with few seeds without bands."""
        from fedcell.runs import race_report

        return race_report.curves(self, by)

    def figure(self, by: Axis = "time", looks: Mapping[str, tuple[str, str]] | None = None) -> "Figure":
        """Draw accuracy against time or energy, with the target and who reaches it when; plots.save_picture writes it.

        Args:
            by: what accuracy is drawn against, ``"time"`` or ``"energy"``.
            looks: colour and dash by policy; those of plots.STYLES by default.
        """
        from fedcell.runs.race_report import draw_race

        _require_axis(by)
        return draw_race(self, by, looks)

    def to_json(self, *, per_class: bool = False) -> str:
        """The whole race for machines: the spec, the summaries, the differences and every round.

        Args:
            per_class: whether the final models' accuracies by class are in it, for each policy a list for each seed.
        """
        from fedcell.runs import race_report

        return race_report.to_json(self, per_class=per_class)

    def to_csv(self, *, per_class: bool = False) -> str:
        """Every round of every run, a line each.

        Args:
            per_class: whether there is a column for each class with the final model's accuracy, in the last line of a
                run.
        """
        from fedcell.runs import race_report

        return race_report.to_csv(self, per_class=per_class)


def _require_axis(by: str) -> None:
    if by not in comparisons.UNITS:
        raise InputError(f"by is {by!r}; {did_you_mean(str(by), comparisons.UNITS)}")


class RaceTable(BaseModel):
    """The table ``[race]`` of a TOML file: what `fedcell race` does with the runs that the file describes.

    Attributes:
        target: the target accuracy, from 0 to 1.
        by: what the policies are compared by, ``time`` or ``energy``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    target: float = Field(default=TARGET_ACCURACY, gt=0.0, le=1.0)
    by: Axis = "time"

    @classmethod
    def load(cls, path: str | Path) -> "RaceTable":
        """Read the table of a TOML file; the defaults if it has none."""
        table = read_toml(path, "fedcell race --print-spec").get("race", {})
        try:
            return cls.model_validate(table)
        except ValidationError as error:
            raise InputError(f"{path}: race: {first_fault(error, cls)}") from None

    def toml(self, spec: Spec) -> str:
        """The race as a TOML document that `fedcell race` reads."""
        lines = [f"{name} = {toml_value(value)}" for name, value in self.model_dump().items()]
        return "\n".join([spec.to_toml(), "[race]", *lines, ""])


def race_spec(spec: Spec) -> Spec:
    """Return the spec as a race: a grid of policies and seeds and of nothing else."""
    odd = [field for field in spec.grid if field not in ("policy", "seed")]
    if odd:
        raise InputError(f"a race's grid is of policy and seed; {odd[0]!r} needs fedcell sweep, or a separate race")
    policies = distinct_policies(spec.grid.get("policy", [spec.policy]), "the race")
    return spec.model_copy(update={"grid": {"policy": policies, "seed": spec.grid.get("seed", [spec.seed])}})


def comparable(
    spec: Spec, done: Container[tuple[str, int]], failed: Container[tuple[str, int]]
) -> tuple[list[str], list[int]]:
    """What of a race can be compared: the policies that did not always fail, and the seeds that ended for all these.

    Args:
        spec: the race, with its grid of policies and seeds.
        done: the runs that are finished, by policy and seed.
        failed: those that failed: they count as never reaching the target.
    """
    seeds = spec.grid["seed"]
    names = [name for name in spec.grid["policy"] if not all((name, seed) in failed for seed in seeds)]

    def ended(seed: int) -> bool:
        return all((name, seed) in done or (name, seed) in failed for name in names)

    return names, [seed for seed in seeds if names and ended(seed)]


def race_runs(spec: Spec) -> list[Spec]:
    """The runs of a race, seed by seed, so that an early end leaves complete seeds."""
    policies, seeds = spec.grid["policy"], sorted(spec.grid["seed"])  # they were checked when they became its grid
    return [spec.model_copy(update={"policy": p, "seed": s, "grid": {}}) for s in seeds for p in policies]


def run_race(
    spec: Spec,
    *,
    target: float = TARGET_ACCURACY,
    workers: int | None = None,
    store: Store | str | Path | None = None,
    watch: Watch | None = None,
    stop: threading.Event | None = None,
    models: bool = False,
    return_on_interrupt: bool = False,
) -> RaceResult:
    """Run every policy with every seed; all policies of a seed advance together by their simulated clocks.

    Args:
        spec: with a grid of policies and seeds.
        target: the target accuracy.
        workers: runs at once, each on one core; all cores by default. The result does not depend on it.
        store: keeps the race and its runs, a Store or its path; what it has of them is not computed again, and the
            dashboard shows the race.
        watch: called with every event: rounds done, a run done, a run failed.
        stop: set it to end the race after the rounds now being trained.
        models: whether the final models are part of the result, of the events and of the store.
        return_on_interrupt: whether Ctrl-C returns what is finished, as ``stop`` does, instead of raising
            KeyboardInterrupt.

    Returns:
        RaceResult: of all runs; after ``stop``, of the seeds that have ended for every policy. A run whose training
        diverges ends there, and counts. A run that fails has no accuracy and never reaches the target; a policy all of
        whose runs failed is left out; an InputError if all runs did. Ctrl-C raises KeyboardInterrupt once what was
        computed is stored.

    Example:
        >>> import fedcell as fc
        >>> grid = {"policy": ["all", "random:k=2"], "seed": [0, 1]}
        >>> small = fc.Spec(rounds=1, task=fc.TaskSpec(hidden=[4]), grid=grid)
        >>> result = fc.run_race(small)
        >>> result.policies, result.seeds, result.complete
        (['all', 'random:k=2'], [0, 1], True)
        >>> [round(summary.devices.mean) for summary in result.summaries().values()]
        [20, 2]
    """
    require_spec(spec, "run_race")
    require_target("target", target)
    spec = resolve_device(race_spec(spec))
    warn(race_runs(spec))
    with opened(store) as kept:
        runner = Runner(race_runs(spec), store=kept, on="threads", workers=workers, together=True, models=models)
        found: dict[tuple[str, int], Vector] = {}
        done: dict[tuple[str, int], list[RoundRecord]] = {}
        failures: dict[tuple[str, int], str] = {}
        with _recorded(kept, spec, target, runner) as end:
            try:
                with closing(iter(runner)) as events:
                    for event in events:
                        if isinstance(event, RunFailed):
                            failures[event.spec.policy, event.spec.seed] = event.reason
                        if isinstance(event, RunDone):
                            done[event.spec.policy, event.spec.seed] = _records(event, kept)
                            if event.model is not None:
                                found[event.spec.policy, event.spec.seed] = event.model
                        if watch:
                            watch(event)
                        if stop is not None and stop.is_set():
                            runner.stop()
            except KeyboardInterrupt:
                if not return_on_interrupt:
                    end("done" if runner.ended else "stopped", "")
                    raise
            if failures and runner.ended and not done:
                (policy, seed), reason = next(iter(failures.items()))
                raise InputError(f"{policy}, seed {seed}: {reason}")
            end("done" if runner.ended else "stopped", RaceResult.failures_text(failures, spec) if failures else "")
        return RaceResult.of(spec, done, failures, target, found)


def _records(event: RunDone, store: Store | None) -> list[RoundRecord]:
    if event.records is None:
        assert store is not None  # it had the run
        return store.get(event.key)
    return event.records


# --- a race in a store ---------------------------------------------------------------------------------------------


def race_to_store(
    id: str,
    spec: Spec,
    target: float,
    state: str,
    created_unix_s: float,
    reason: str = "",
    *,
    keys: Sequence[str] | None = None,
    name: str = "",
    note: str = "",
) -> StoredRace:
    """A race as the store keeps it.

    Args:
        id: of the race.
        spec: what race_spec returned.
        target: the target accuracy.
        state: such as ``running``.
        created_unix_s: when it was asked for.
        reason: why it failed, or empty.
        keys: of its runs, in the order of `race_runs`: whoever shows the race need not hash anybody's code and data.
            By default they are computed.
        name: what the user calls it.
        note: what the user wrote about it.
    """
    keys = [run.key() for run in race_runs(spec)] if keys is None else keys
    fields = {"spec": spec_document(spec), "policies": spec.grid["policy"], "seeds": spec.grid["seed"]}
    document = fields | {"target": target, "reason": reason, "name": name, "note": note, "keys": list(keys)}
    owner = f"{platform.node()} {os.getpid()}"
    return StoredRace(id, document, state, created_unix_s, time.time(), owner)


class Heartbeat:
    """Says in the store, from a thread of its own, that this process has some races under way: other processes look."""

    def __init__(self, store: Store, races: Callable[[], Sequence[str]]) -> None:
        self._store, self._races = store, races
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="fedcell-heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._closing.wait(BEAT_S):
            with suppress(InputError):  # a locked store: the next beat will do
                self._store.touch_races(self._races())

    def close(self) -> None:
        """Stop the heartbeat."""
        self._closing.set()
        self._thread.join()


@contextmanager
def _recorded(store: Store | None, spec: Spec, target: float, runner: Runner) -> Iterator[Callable[[str, str], None]]:
    """The race in the store while this process runs it; what it gives is called with the state in which it ended.

    The same race has the same id whenever it is run.
    """
    if store is None:
        yield lambda *_: None
        return
    asked = json.dumps([spec_document(spec), spec.grid, target], sort_keys=True)
    id = hashlib.sha256(asked.encode()).hexdigest()[:16]
    began, keys = time.time(), runner.keys

    def put(state: str, reason: str = "") -> None:
        known = next((race for race in store.races() if race.id == id), None)
        created = began if known is None else known.created_unix_s
        words = {} if known is None else {field: str(known.document.get(field, "")) for field in ("name", "note")}
        store.put_race(race_to_store(id, spec, target, state, created, reason, keys=keys, **words))

    put("running")
    heart = Heartbeat(store, lambda: [id])
    try:
        yield put
    except InputError as error:
        heart.close()
        put("failed", str(error))
        raise
    finally:
        heart.close()


# --- what is shown of it -------------------------------------------------------------------------------------------


class _RaceFields(BaseModel):
    """The document of a stored race; version 0.2.0 wrote no keys."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
    spec: dict[str, Any]
    policies: Annotated[list[PolicyText], Field(min_length=1, max_length=MAX_POLICIES)]
    seeds: Annotated[list[StoredSeed], Field(min_length=1, max_length=MAX_REMEMBERED)]
    target: Annotated[float, Field(gt=0.0, le=1.0)]
    reason: str
    name: Annotated[str, Field(max_length=MAX_REASON)] = ""
    note: Annotated[str, Field(max_length=MAX_REASON)] = ""
    keys: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] | None = None

    @model_validator(mode="after")
    def _whole(self) -> "_RaceFields":
        runs = len(self.policies) * len(self.seeds)
        if runs > MAX_REMEMBERED:
            raise ValueError(f"it has {runs:,} runs; {MAX_REMEMBERED:,} at most are shown as a race")
        if self.keys is not None and (len(self.keys) != runs or len(set(self.keys)) != runs):
            raise ValueError("it does not have a key for each run")
        return self


@dataclass(frozen=True, eq=False)
class KnownRace:
    """A stored race whose document is in order.

    Attributes:
        spec: as race_spec returned it; a policy of one's own is its line, see `parse_stored`.
        target: the target accuracy.
        reason: why it failed, or empty.
        name: what the user calls it.
        note: what the user wrote about it.
        keys: of its runs, in the order of `race_runs`; None if version 0.2.0 wrote the race, which kept none.
    """

    spec: Spec
    target: float
    reason: str
    name: str
    note: str
    keys: list[str] | None

    @classmethod
    def of(cls, race: StoredRace) -> "KnownRace":
        """Of a race that a store has; an InputError if it is damaged. Nothing that it names is imported or hashed."""
        if race.state == "damaged":
            raise InputError(str(race.document["reason"]))
        try:
            fields = _RaceFields.model_validate(race.document)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, fault["loc"]))
            raise InputError(f"damaged in the file ({place}{': ' if place else ''}{fault['msg']})") from None
        grid = {"policy": fields.policies, "seed": fields.seeds}
        spec = parse_stored(fields.spec | {"grid": grid}, f"race {race.id}")
        reason = printable(fields.reason[:MAX_REASON])
        return cls(spec, fields.target, reason, fields.name, fields.note, fields.keys)

    def keys_in(self, store: Store, race: StoredRace) -> list[str]:
        """The keys of the runs of a race that version 0.2.0 wrote down, in the order of `race_runs`.

        They follow from the spec if all in it is fedcell's own. Otherwise they count code or files that may have
        changed, or be elsewhere: then the stored runs of the same specification are the race's, the newest of each; a
        run that is not stored has a key that stands for it.
        """
        if is_ours(self.spec):
            return [run.key() for run in race_runs(self.spec)]
        stored: dict[str, StoredRun] = {}
        for run in store.runs():
            if run.status != "damaged" and run.source == "simulation":
                mark = _mark(run.document)
                if mark not in stored or stored[mark].finished_unix_s < run.finished_unix_s:
                    stored[mark] = run
        base = upgraded(race.document["spec"])
        marks = [_mark(base | {"policy": run.policy, "seed": run.seed}) for run in race_runs(self.spec)]
        return [stored[mark].key if mark in stored else hashlib.sha256(mark.encode()).hexdigest() for mark in marks]


def is_ours(spec: Spec) -> bool:
    """Whether nothing in the race is of the user's own, code or files."""
    named = spec.task.data in PUBLISHED and ":" not in spec.task.model
    laws = [spec.cell.law, *spec.grid.get("cell.law", [])]
    built_in = all(map(POLICIES.is_built_in, spec.grid["policy"])) and all(map(LAWS.is_built_in, laws))
    traces = isinstance(spec.cell.channel, SnrTrace) or spec.devices.availability.startswith("trace")
    return named and built_in and not traces


def _mark(document: dict[str, Any]) -> str:
    """What tells runs apart by their documents: without the code, and what is left out where it does not matter."""
    left_out = ("code", "profiles", "epsilon", "slack", "explore")
    return json.dumps({k: v for k, v in document.items() if k not in left_out}, sort_keys=True)


def own_code(spec: Spec) -> str:
    """The first policy, law or model of a race that is user-defined code; empty if there is none."""
    named = [text for text in spec.grid["policy"] if POLICIES.names_code(text)]
    named += [text for text in (spec.cell.law, *spec.grid.get("cell.law", [])) if LAWS.names_code(text)]
    return str((named or [spec.task.model if ":" in spec.task.model else ""])[0])
