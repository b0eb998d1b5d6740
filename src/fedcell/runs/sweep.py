"""All runs of a spec's grid into a store; what the store has is not run again.

Each run is stored as it ends, so whatever is killed at whatever moment, a second sweep of the same spec does the rest.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal

from fedcell.errors import InputError
from fedcell.runs.runner import Event as RunnerEvent
from fedcell.runs.runner import RunDone, RunFailed, Runner, any_typed
from fedcell.runs.store import Store, opened
from fedcell.sim.spec import Spec, require_spec
from fedcell.sim.spec_warnings import warn
from fedcell.sim.task import resolve_device


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes:
        total: the grid's different runs.
        skipped: of these, how many were in the store at the start.
        done: finished by this sweep.
        failed: failed in this sweep.
    """

    total: int
    skipped: int
    done: int
    failed: int

    @property
    def left(self) -> int:
        """Runs still to come."""
        return self.total - self.skipped - self.done - self.failed


@dataclass(frozen=True)
class SweepResult:
    """What a sweep did.

    Attributes:
        done: runs that it finished and stored.
        skipped: runs that the store already had.
        failures: the reasons of the runs that failed, by their keys; the next sweep tries them again.
        complete: whether all runs are finished and stored: none failed, and none is left.
        stopped: whether it was stopped before all runs had ended.

    Example:
        >>> import fedcell as fc
        >>> fc.SweepResult(done=2, skipped=1, failures={}, complete=True).done
        2
    """

    done: int
    skipped: int
    failures: dict[str, str]
    complete: bool
    stopped: bool = False


def run_sweep(
    spec: Spec | Sequence[Spec],
    store: Store | str | Path,
    executor: Executor | None = None,
    workers: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    stop: Event | None = None,
    models: bool = False,
    on_event: Callable[[RunnerEvent], None] | None = None,
    return_on_interrupt: bool = False,
) -> SweepResult:
    """Run what the store lacks of the spec's runs and store each run as it ends.

    A run that fails is recorded with its reason and does not stop the others; see Runner. Scripts that call this need
    the usual ``if __name__ == "__main__":``, for worker processes import them. A policy or model that was typed into a
    notebook or an interpreter runs on threads of this process, for no other one can import it.

    Args:
        spec: whose grid is swept; or a list of single runs.
        store: a Store, open for writing, or its path.
        executor: does the work; by default processes of this machine. The caller shuts it down.
        workers: runs at once; by default as many as this process has cores.
        watch: called with the progress, at the start and whenever a run has ended.
        stop: set it to end the sweep early. What is done is stored.
        models: whether the store keeps the final models; a run stored without its model is computed again.
        on_event: called with every event of the runs, such as what ``tracking`` gives.
        return_on_interrupt: whether Ctrl-C returns what is done, as ``stop`` does, instead of raising
            KeyboardInterrupt.

    Returns:
        SweepResult: how many runs were done, skipped and failed. Ctrl-C raises KeyboardInterrupt once what was computed
        is stored.

    Example:
        >>> import tempfile, fedcell as fc
        >>> spec = fc.Spec(policy="all", rounds=1, task=fc.TaskSpec(hidden=[4]), grid={"seed": [0, 1]})
        >>> with tempfile.TemporaryDirectory() as directory, fc.Store(f"{directory}/results.db") as store:
        ...     first, second = fc.run_sweep(spec, store), fc.run_sweep(spec, store)
        >>> first.done, second.done, second.skipped
        (2, 0, 2)
    """
    for one in spec if isinstance(spec, list | tuple) else [spec]:
        require_spec(one, "run_sweep")
    runs = spec.runs() if isinstance(spec, Spec) else spec
    if executor is None:  # others compute on machines that only they know
        runs = [resolve_device(run) for run in runs]
    warn(runs, here=executor is None)
    here: Literal["threads", "processes"] = "threads" if any_typed(runs) else "processes"
    with opened(store) as kept:
        if kept is None:
            raise InputError("run_sweep needs a store; give a Store, or the path of a results file")
        runner = Runner(runs, store=kept, on=executor or here, workers=workers, models=models)
        known = len(kept.done(runner.keys, models=models))

        def report() -> None:
            if watch:
                watch(Progress(runner.total, known, runner.done, len(runner.failures)))

        try:
            with closing(iter(runner)) as events:
                report()
                for event in events:
                    if on_event:
                        on_event(event)
                    if isinstance(event, RunFailed) or (isinstance(event, RunDone) and event.records is not None):
                        report()
                    if stop is not None and stop.is_set():
                        runner.stop()
        except KeyboardInterrupt:
            if not return_on_interrupt:
                raise
        return SweepResult(runner.done, runner.known, runner.failures, runner.complete, not runner.ended)
