"""Experiment trackers (TensorBoard, MLflow, Weights & Biases), and how the runner's events are reported to them.

Each is used through its own package. None of them needs a network unless it is told so. A run that is
resumed, or computed again, stays the same run there.
"""

import hashlib
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from shlex import quote
from threading import Event, Thread
from typing import Any, Literal, Protocol, runtime_checkable

from fedcell.defaults import TARGET_ACCURACY
from fedcell.errors import InputError, did_you_mean
from fedcell.files import directory_lock, make_folder, plain_name
from fedcell.runs.records import Rounds
from fedcell.runs.runner import Event as RunnerEvent
from fedcell.runs.runner import RoundsDone, RunDone, RunFailed
from fedcell.runs.store import Store, differing_fields, stored_document
from fedcell.runs.stored import flat
from fedcell.settings import build, choose, split
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec

Values = dict[str, float]
"""Numbers by name; what is unknown or infinite is left out."""
Ending = Literal["done", "failed", "stopped"]


@dataclass(frozen=True, eq=False)
class TrackedRun:
    """A run as trackers see it.

    Attributes:
        id: 16 hex digits, the same whenever the same run of the same group is tracked.
        group: the name of the race or sweep, which its runs share.
        title: its policy, and whatever else but the seed differs within the group.
        document: its spec as a nested document.
    """

    id: str
    group: str
    title: str
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its title and its seed, which tell it from the other runs of its group."""
        return f"{self.title} seed{self.document['seed']}"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the spec that are set, nested ones named by a dot."""
        return {name: value for name, value in flat(dict(self.document)).items() if value is not None}


class RunLogger(Protocol):
    """Where one run goes."""

    def rounds(self, rounds: Sequence[Values], /) -> None:
        """Add rounds, each with the values of ROUND_COLUMNS."""

    def end(self, ending: Ending, summary: Values, /) -> None:
        """Add what is known in the end; nothing comes after it."""


Begin = Callable[[TrackedRun], RunLogger | None]
"""Begins a run, whose rounds follow from the first one on; None if the tracker has all of it already."""


@runtime_checkable
class Tracker(Protocol):
    """A tool that keeps runs; the fields of a dataclass are its settings."""

    @property
    def group(self) -> str | None:
        """The name of the race or sweep, if the user gave one."""

    def open(self) -> Begin:
        """Get ready, before anything is computed; an InputError if the package is missing or nothing can be written."""

    def shown_by(self) -> str:
        """The command that shows what was written."""


def package(module: str, extra: str) -> Any:
    """The module of a tracker's package, or an InputError that says how to install it.

    Args:
        module: what to import.
        extra: of ours, which installs it.
    """
    try:
        with warnings.catch_warnings():  # what they deprecate of each other is not for our users
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError as error:
        raise InputError(
            f"tracker {extra!r} needs a package that is not installed ({error.name or error}); "
            f"pip install 'fedcell[{extra}]'"
        ) from None


def sentence(error: Exception) -> str:
    """The first words of an exception of somebody else's, in one line."""
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


def parse_tracker(line: str) -> Tracker:
    """The tracker that a line such as ``tensorboard:runs`` or ``mlflow:uri=http://localhost:5000`` names.

    Args:
        line: its name and settings.
    """
    name, text = split("tracker", line)
    kind = choose("tracker", name, TRACKERS)
    return build(kind, "tracker", name, text, positional=POSITIONAL[kind])


def parse_trackers(given: Iterable[str | Tracker]) -> list[Tracker]:
    """Trackers, of which some are lines; an InputError if one is there twice, for both would write the same runs.

    Args:
        given: lines such as ``tensorboard:runs``, or trackers.
    """
    if isinstance(given, str):
        raise InputError(f"trackers is {given[:100]!r}; give a list of them")
    found = [one if isinstance(one, Tracker) else parse_tracker(one) for one in given]
    for place, one in enumerate(found):
        if one in found[:place]:
            raise InputError(f"the tracker {one} is given twice; give it once")
    return found


def _cut(value: Any) -> str:
    """A field's value as text; devices may have a list of thousands."""
    return str(value)[:500]


# --- TensorBoard ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TensorBoard:
    """Event files in folders, ``FOLDER/GROUP/RUN``. The time of an event is the simulated clock.

    Attributes:
        folder: the log directory.
        group: the name of the race or sweep.
    """

    folder: str = "runs"
    group: str | None = None

    def open(self) -> Begin:
        """Import TensorBoard and make the folder."""
        if self.group in (".", ".."):
            raise InputError(f"group of tracker 'tensorboard' is {self.group!r}; give the name of a folder")
        package("tensorboard.summary.writer.record_writer", "tensorboard")
        folder = Path(self.folder).expanduser()
        make_folder(folder, "folder")
        return lambda run: _EventFile(folder / plain_name(run.group) / _folder_name(run), run)

    def shown_by(self) -> str:
        """TensorBoard's own command."""
        return f"tensorboard --logdir {quote(str(Path(self.folder).expanduser()))}"


def _folder_name(run: TrackedRun) -> str:
    """The run's name, by which TensorBoard calls it; if it had to be cut, with the id."""
    name = plain_name(run.name)
    return name if len(name) == len(plain_name(run.name, 255)) else f"{name}-{run.id[:8]}"


class _EventFile:
    """The event file of a run.

    It has nothing in it but what the run determines, times included. So a resumed run rewrites its file, and
    the bytes that a TensorBoard has read stay what they were.
    """

    def __init__(self, folder: Path, run: TrackedRun) -> None:
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        self._records = RecordWriter((folder / "events.out.tfevents.0.fedcell").open("wb"))
        self._last = 0, 0.0
        self._event(file_version="brain.Event:2")
        # Without the seed: runs that differ by nothing else are one trial, with the mean of their metrics.
        fields = {name: value for name, value in run.fields.items() if name != "seed"}
        plain = {name: value if isinstance(value, int | float) else _cut(value) for name, value in fields.items()}
        parameters = hparams_pb(plain, f"{run.group} {run.title}", start_time_secs=0.0)
        stored = parameters.value[0].metadata.plugin_data  # in whatever order a hash table has
        stored.content = HParamsPluginData.FromString(stored.content).SerializeToString(deterministic=True)
        self._event(summary=parameters)
        self._records.flush()

    def rounds(self, rounds: Sequence[Values]) -> None:
        for values in rounds:
            self._last = int(values["round"]), values["clock_s"]
            self._scalars("round", {name: value for name, value in values.items() if name != "round"})
        self._records.flush()

    def end(self, _: Ending, summary: Values) -> None:
        if summary:
            self._scalars("run", summary)
        self._records.close()

    def _scalars(self, section: str, values: Values) -> None:
        found = [{"tag": f"{section}/{name}", "simple_value": value} for name, value in values.items()]
        self._event(summary={"value": found})

    def _event(self, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        step, clock_s = self._last
        self._records.write(Event(wall_time=clock_s, step=step, **content).SerializeToString(deterministic=True))


# --- MLflow --------------------------------------------------------------------------------------------------------

BATCH_ROUNDS = 100
"""MLflow takes at most 1,000 metrics and 100 parameters at once, and a round must not be torn."""


@dataclass(frozen=True)
class MLflow:
    """Runs of an MLflow experiment. The timestamp of a metric is when the run began, plus the simulated clock.

    Attributes:
        uri: the tracking server or database; by default MLflow's own, ``MLFLOW_TRACKING_URI`` or ./mlflow.db.
        experiment: the name of the experiment, which is created if it is missing.
        group: the name of the race or sweep, a tag.
    """

    uri: str | None = None
    experiment: str = "fedcell"
    group: str | None = None

    def open(self) -> Begin:
        """Import MLflow, connect, and look for the experiment."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault(
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3"
        )  # 7 are minutes until it says that nobody is there
        mlflow = package("mlflow", "mlflow")
        package("sqlalchemy", "mlflow")  # which the skinny package leaves out
        package("alembic", "mlflow")
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it tells of each table that it creates
        try:
            # A database whose tables two processes make at once is broken for good.
            database = (self.uri or mlflow.get_tracking_uri()).removeprefix("sqlite:///")
            with directory_lock(Path(database).parent), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                client = mlflow.MlflowClient(self.uri)
                found = client.get_experiment_by_name(self.experiment)
                id = client.create_experiment(self.experiment) if found is None else found.experiment_id
        except Exception as error:
            raise InputError(f"tracker 'mlflow' cannot be used: {sentence(error)}; check its uri") from None
        return lambda run: _begin_mlflow(client, id, run)

    def shown_by(self) -> str:
        """MLflow's own command, or the address of its server."""
        import mlflow

        uri = self.uri or mlflow.get_tracking_uri()
        return uri if uri.startswith("http") else f"mlflow ui --backend-store-uri {quote(uri)}"


def _begin_mlflow(client: Any, experiment: str, run: TrackedRun) -> RunLogger | None:
    """A new run, or the one that was interrupted."""
    from mlflow.entities import Param

    found = client.search_runs([experiment], f"tags.`fedcell.id` = '{run.id}'", max_results=1)
    if found:
        [known] = found
        if known.info.status == "FINISHED":
            return None
        client.update_run(known.info.run_id, status="RUNNING")
        return _MlflowRun(client, known, int(known.data.metrics.get("round", 0)))
    tags = {"fedcell.id": run.id, "fedcell.group": run.group, "mlflow.source.name": "fedcell"}
    new = client.create_run(experiment, run_name=run.name, tags=tags)
    params = [Param(name, _cut(value)) for name, value in run.fields.items()]
    client.log_batch(new.info.run_id, params=params)
    return _MlflowRun(client, new, 0)


class _MlflowRun:
    """A run of MLflow's, which has its first rounds already if it was interrupted."""

    def __init__(self, client: Any, run: Any, known: int) -> None:
        self._client, self._id, self._began_ms = client, run.info.run_id, run.info.start_time
        self._known, self._last = known, (0, 0.0)

    def rounds(self, rounds: Sequence[Values]) -> None:
        new = [values for values in rounds if values["round"] > self._known]
        for first in range(0, len(new), BATCH_ROUNDS):
            self._log(
                [(values, int(values["round"]), values["clock_s"]) for values in new[first : first + BATCH_ROUNDS]]
            )
        self._last = int(rounds[-1]["round"]), rounds[-1]["clock_s"]

    def end(self, ending: Ending, summary: Values) -> None:
        self._log([(summary, *self._last)])
        self._client.set_terminated(self._id, {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}[ending])

    def _log(self, points: Sequence[tuple[Values, int, float]]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(name, value, self._began_ms + round(1000 * clock_s), step)
            for values, step, clock_s in points
            for name, value in values.items()
        ]
        if metrics:
            self._client.log_batch(self._id, metrics=metrics)


# --- Weights & Biases ----------------------------------------------------------------------------------------------

FINISHED = "fedcell-finished"
"""A file in the folder of a run that W&B has all of."""
WANDB_MODES = ("online", "offline", "shared", "disabled", "dryrun", "run")
"""What W&B takes; the last two are older words for offline and online."""


@dataclass(frozen=True)
class WeightsAndBiases:
    """Runs of a W&B project, offline unless asked otherwise. Charts are drawn against the simulated clock.

    Attributes:
        project: the name of the project.
        entity: the user or team; by default W&B's own, ``WANDB_ENTITY`` or the user's.
        mode: online or offline; by default what ``WANDB_MODE`` says, or offline.
        group: the name of the race or sweep.
    """

    project: str = "fedcell"
    entity: str | None = None
    mode: Literal["online", "offline"] | None = None
    group: str | None = None

    @property
    def _mode(self) -> str:
        return self.mode or os.environ.get("WANDB_MODE") or "offline"

    def open(self) -> Begin:
        """Import W&B and look whether its folder can be written to."""
        said = os.environ.get("WANDB_MODE", "offline")
        if not said:
            del os.environ["WANDB_MODE"]  # which W&B would take for a mode
        elif said not in WANDB_MODES:
            raise InputError(f"WANDB_MODE is {said[:100]!r}; {did_you_mean(said, WANDB_MODES)}")
        if self._mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = package("wandb", "wandb")
        make_folder(_wandb_folder(), "WANDB_DIR")
        return lambda run: self._begin(wandb, run)

    def _begin(self, wandb: Any, run: TrackedRun) -> RunLogger | None:
        if any(_wandb_folder().glob(f"*wandb/*run-*-{run.id}/{FINISHED}")):
            return None
        # Without its capture of what is printed, and without the load of a machine on which time is simulated.
        settings = wandb.Settings(mode=self._mode, console="off", silent=True, x_disable_stats=True)
        opened = wandb.init(
            project=self.project,
            entity=self.entity,
            dir=str(_wandb_folder()),
            id=run.id,
            name=run.name,
            group=run.group,
            config=dict(run.document),
            reinit="create_new",  # the runs of a race are open at the same time
            settings=settings,
        )
        opened.define_metric("*", step_metric="clock_s")
        return _WandbRun(opened)

    def shown_by(self) -> str:
        """What uploads the runs, or where they are."""
        if self._mode == "disabled":
            return "nowhere, for W&B is disabled (WANDB_MODE)"
        if self._mode != "offline":
            return f"the W&B project {self.project}"
        return f"wandb sync {quote(str(_wandb_folder() / 'wandb'))}/offline-run-*"


def _wandb_folder() -> Path:
    """Where W&B makes its folder."""
    return Path(os.environ.get("WANDB_DIR", ".")).expanduser()


class _WandbRun:
    """A run of W&B's."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def rounds(self, rounds: Sequence[Values]) -> None:
        for values in rounds:
            self._run.log(values, step=int(values["round"]))

    def end(self, ending: Ending, summary: Values) -> None:
        self._run.summary.update(summary)
        self._run.finish(exit_code=0 if ending == "done" else 1)
        folder = Path(self._run.dir).parent
        if ending == "done" and folder.exists():  # there is none where W&B is disabled
            (folder / FINISHED).touch()


# --- by name -------------------------------------------------------------------------------------------------------

TRACKERS: dict[str, type[TensorBoard | MLflow | WeightsAndBiases]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}
POSITIONAL = {TensorBoard: ["folder"], MLflow: ["uri"], WeightsAndBiases: ["project"]}
"""The setting whose value may stand without its name."""


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
        logs: dict[str, RunLogger | None] = {}
        try:
            while steps := self._next():
                for run, step in steps:
                    self._write(logs, run, step)
        except Exception as error:  # a server that is gone, a disk that is full, anything that a tool raises
            name = type(self.tracker).__name__
            self._trouble = f"{name} has failed and gets no more rounds, but the runs continue: {sentence(error)}"
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

    def _write(self, logs: dict[str, RunLogger | None], run: TrackedRun, step: _Step) -> None:
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
