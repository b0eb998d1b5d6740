"""Runs reported to experiment trackers while they are computed: a consumer of the runner's events.

Every tracker has a thread of its own in the process that drives the runs. So one that is slow, or whose server does not
answer, delays no run; and one that fails is dropped with a warning, and the runs go on.
"""

import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from fedcell.defaults import TARGET_ACCURACY
from fedcell.errors import InputError
from fedcell.runs.records import Rounds
from fedcell.runs.runner import Event as RunnerEvent
from fedcell.runs.runner import RoundsDone, RunDone, RunFailed
from fedcell.runs.store import Store, differing_fields, stored_document
from fedcell.runs.stored import flat
from fedcell.runs.trackers import Begin, Ending, Log, TrackedRun, Tracker, Values, parse_trackers, sentence
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec

PACE_S = 1.0
"""A tracker is written to about so often: a few large writes cost it less than many small ones."""
TICK_S = 0.2


def _warn(sentence: str) -> None:
    warnings.warn(sentence, RuntimeWarning, stacklevel=2)


@contextmanager
def tracking(
    trackers: Iterable[str | Tracker],
    runs: Spec | Sequence[Spec],
    *,
    target: float = TARGET_ACCURACY,
    store: Store | None = None,
    warn: Callable[[str], None] = _warn,
) -> Iterator[Callable[[RunnerEvent], None]]:
    """Report runs to trackers: hand every event of a Runner, ``run_race`` or ``run_sweep`` to what this gives.

    Each run becomes one run of the tool, with the spec as its parameters, ROUND_COLUMNS as its metrics, and in the end
    its best accuracy, its time and energy to the target, and the joules spent. A tracker that fails is dropped with one
    warning; the runs go on. Leaving the block waits until the trackers have written all they were given; Ctrl-C ends
    the wait.

    Args:
        trackers: such as ``"tensorboard:runs"``, ``"mlflow"`` or ``"wandb:project=cell"``.
        runs: all runs of the race or sweep; they share a group, and its name if no tracker is given one.
        target: the accuracy of the time to the target.
        store: the results file of the runs, if there is one: runs that it had from the start are read from it.
        warn: called with a sentence about each tracker that has failed; a Python warning by default.

    Yields:
        Callable: to be called with every event, by one thread.

    Example:
        >>> import fedcell as fc
        >>> race = fc.Spec(rounds=1, task=fc.TaskSpec(hidden=[4]), grid={"policy": ["all", "random:k=2"], "seed": [0]})
        >>> with fc.tracking([], race) as track:  # ["tensorboard:runs"], with the extra of that name
        ...     result = fc.run_race(race, watch=track)
        >>> result.complete
        True
    """
    opened = [(tracker, tracker.open()) for tracker in parse_trackers(trackers)]
    if not opened:  # the keys of thousands of runs take seconds
        yield lambda _: None
        return
    group = _Group(runs.runs() if isinstance(runs, Spec) else runs)
    lines = [_Line(tracker, begin) for tracker, begin in opened]

    def watch(event: RunnerEvent) -> None:
        step = _step(event, target, store)
        for line in lines:
            if step is not None:
                line.send(group.run(step, line.tracker.group), step)
            line.tell(warn)

    try:
        yield watch
    finally:
        for line in lines:
            line.close()
        for line in lines:
            line.wait()
            line.tell(warn)


@dataclass(frozen=True, eq=False)
class _Step:
    """What an event says of a run: some rounds, its end, or both."""

    key: str
    spec: Spec
    rounds: Sequence[Values] = ()
    ending: Ending | None = None
    summary: Values = field(default_factory=dict)


class _Group:
    """The runs that are tracked together, and what tells them apart."""

    def __init__(self, runs: Sequence[Spec]) -> None:
        keys = sorted({run.key() for run in runs})
        self._name = hashlib.sha256(" ".join(keys).encode()).hexdigest()[:8]
        self._differing = differing_fields(map(stored_document, runs))
        self._known: dict[tuple[str, str], TrackedRun] = {}

    def run(self, step: _Step, name: str | None) -> TrackedRun:
        """The run of a step, as a tracker sees it that calls the group so."""
        place = step.key, name or self._name
        if place not in self._known:
            self._known[place] = self._tracked(step, place[1])
        return self._known[place]

    def _tracked(self, step: _Step, group: str) -> TrackedRun:
        document = stored_document(step.spec)
        fields = flat(document)
        others = [f"{name.rpartition('.')[2]}={fields.get(name)}" for name in self._differing]
        id = hashlib.sha256(f"{group} {step.key}".encode()).hexdigest()[:16]
        return TrackedRun(id, group, " ".join([step.spec.policy, *others]), document)


def _step(event: RunnerEvent, target: float, store: Store | None) -> _Step | None:
    if isinstance(event, RoundsDone):
        return _Step(event.key, event.spec, list(map(_values, event.records)))
    if isinstance(event, RunFailed):
        return _Step(event.key, event.spec, ending="failed")
    if not isinstance(event, RunDone):
        return None
    if event.records is not None:
        return _Step(event.key, event.spec, (), "done", _summary(event.records, target))
    if store is None:
        raise InputError("a run was taken from a results file that tracking does not know; give it as store")
    records = store.get(event.key)
    return _Step(event.key, event.spec, list(map(_values, records)), "done", _summary(records, target))


def _values(record: RoundRecord) -> Values:
    """A round by column."""
    return _finite(record.to_dict(plan=False))


def _summary(records: Sequence[RoundRecord], target: float) -> Values:
    """What a whole run came to."""
    run = Rounds.of_records(records)
    return _finite(
        {
            "best_accuracy": run.best_accuracy(),
            "target": target,
            "time_to_target_s": run.time_to(target),
            "energy_to_target_j": run.energy_to(target),
            "spent_j": float(run.spent_j[-1]) if len(run) else 0.0,
            "diverged": float(run.diverged),
        }
    )


def _finite(values: Mapping[str, Any]) -> Values:
    return {name: value for name, value in values.items() if math.isfinite(value)}


class _Line:
    """A tracker and the thread that feeds it."""

    def __init__(self, tracker: Tracker, begin: Begin) -> None:
        self.tracker, self._begin = tracker, begin
        self._steps: SimpleQueue[tuple[TrackedRun, _Step] | None] = SimpleQueue()
        self._closing = Event()
        self._trouble = ""
        self._thread = Thread(target=self._work, name=f"fedcell-{type(tracker).__name__}", daemon=True)
        self._thread.start()

    def send(self, run: TrackedRun, step: _Step) -> None:
        if self._thread.is_alive():
            self._steps.put((run, step))

    def close(self) -> None:
        """Nothing more comes."""
        self._steps.put(None)
        self._closing.set()

    def wait(self) -> None:
        """Until all is written; Ctrl-C gives it up, and harms nothing else."""
        try:
            while self._thread.is_alive():
                self._thread.join(TICK_S)  # a signal just before an endless wait would not end it
        except KeyboardInterrupt:
            self._trouble = f"{type(self.tracker).__name__} was given up before it had written all rounds"

    def tell(self, warn: Callable[[str], None]) -> None:
        """Warn, once, if the tracker has failed."""
        if self._trouble:
            trouble, self._trouble = self._trouble, ""
            warn(trouble)

    def _work(self) -> None:
        logs: dict[str, Log | None] = {}
        try:
            while steps := self._next():
                for run, step in steps:
                    self._write(logs, run, step)
        except Exception as error:  # a server that is gone, a disk that is full, anything that a tool raises
            name = type(self.tracker).__name__
            self._trouble = f"{name} has failed and is told no more, but the runs go on: {sentence(error)}"
        finally:
            for log in filter(None, logs.values()):
                with suppress(Exception):
                    log.end("stopped", {})

    def _next(self) -> list[tuple[TrackedRun, _Step]]:
        """What has come within a while, a step for each run; nothing after the last."""
        found: dict[str, tuple[TrackedRun, _Step]] = {}
        given = self._steps.get()
        self._closing.wait(PACE_S)
        while given is not None:
            run, step = given
            earlier = found[run.id][1].rounds if run.id in found else ()
            found[run.id] = run, replace(step, rounds=[*earlier, *step.rounds])
            if self._steps.empty():
                break
            given = self._steps.get()
        else:
            self._steps.put(None)  # found again once the rest is written
        return list(found.values())

    def _write(self, logs: dict[str, Log | None], run: TrackedRun, step: _Step) -> None:
        if run.id not in logs:
            logs[run.id] = self._begin(run)
        log = logs[run.id]
        if log is None:
            return
        if step.rounds:
            log.rounds(step.rounds)
        if step.ending is not None:
            log.end(step.ending, step.summary)
            logs[run.id] = None
