"""Runs through the store: what it has is read, the rest is swept on several cores and kept."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from fedcell.errors import InputError
from fedcell.runs.rows import Rounds
from fedcell.runs.store import Store
from fedcell.runs.sweep import Progress, run_sweep
from fedcell.sim.spec import Spec
from fedcell.sim.task import settled

WatchProgress = Callable[[Progress], None]


def collect_runs(
    specs: Sequence[Spec],
    store_path: Path,
    workers: int | None = None,
    watch: WatchProgress | None = None,
    *,
    executor: Executor | None = None,
    device: str = "cpu",
) -> dict[str, Rounds]:
    """The rounds of every spec, by Spec.key().

    Args:
        specs: single runs; one that is asked for twice is run once.
        store_path: the store that is read and filled.
        workers: processes, one core each; all cores by default.
        watch: called after every run.
        executor: worker processes that several calls share; by default this call has its own.
        device: where to train, ``cpu`` or ``cuda``; what a GPU computes is stored as that.
    """
    asked = {spec.key(): spec for spec in specs}
    if device != "cpu":
        asked = {key: settled(spec.changed({"task.device": device})) for key, spec in asked.items()}
    wanted = {spec.key(): spec for spec in asked.values()}
    with Store(store_path) as store:
        missing = [spec for key, spec in wanted.items() if not store.has(key)]
        if missing:
            result = run_sweep(missing, store, executor, workers, watch)
            if result.failures:
                key, reason = next(iter(result.failures.items()))
                raise InputError(f"{len(result.failures)} runs failed, first {wanted[key].policy}: {reason}")
        return {key: store.rounds(spec.key()) for key, spec in asked.items()}
