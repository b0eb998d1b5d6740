"""`fedcell sweep`: every combination of a grid, into a store."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcell.cli.console import Trackers, announce_compiling, note_missing_models, notes_of, progress, set_verbosity
from fedcell.cli.options import Cluster, Quiet, Track, Verbose, Workers, argument, option
from fedcell.defaults import TARGET_ACCURACY
from fedcell.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from fedcell.runs.sweep import SweepResult
    from fedcell.sim.spec import Spec

CONNECT_TIMEOUT_S = 5.0


def sweep(
    spec: Annotated[Path, argument("Specification (TOML) with a [grid] of fields and their values.")],
    store: Annotated[Path, option("Results file; created if missing (default: results.db).")] = Path("results.db"),
    workers: Workers = None,
    cluster: Cluster = None,
    keep_models: Annotated[
        bool,
        typer.Option(
            "--keep-models", help="Keep the final models in the results file; fedcell results export writes them."
        ),
    ] = False,
    track: Track = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run all combinations of a grid that the results file lacks.

    Runs use all cores of this machine, or a Dask cluster. Each run is stored when it ends. Stop or kill the sweep at
    any time, and start it again: it resumes. A run that fails is recorded with the reason, does not stop the others,
    and is tried again by the next sweep.
    """
    from fedcell.runs.store import Store
    from fedcell.runs.sweep import run_sweep
    from fedcell.sim.spec import load_spec
    from fedcell.sim.task import resolve_device

    set_verbosity(quiet, verbose)
    announce_compiling()
    runs = load_spec(spec).runs()
    if cluster is None:
        runs = [resolve_device(run) for run in runs]
    trackers = Trackers(track)
    load_data(runs, cluster)
    with (
        notes_of(runs, here=cluster is None),
        crew(cluster) as (executor, width),
        Store(store) as kept,
        progress("sweep") as watch,
        trackers.following(runs, TARGET_ACCURACY, kept) as on_event,
    ):
        if keep_models:
            note_missing_models(kept, runs)
        result = run_sweep(
            runs,
            kept,
            executor,
            workers or width,
            watch,
            models=keep_models,
            on_event=on_event,
            return_on_interrupt=True,
        )
    _print_end(result)
    trackers.say_where()
    raise typer.Exit(130 if result.stopped else 1 if result.failures else 2 if trackers.troubles else 0)


def load_data(runs: Iterable["Spec"], cluster: str | None) -> None:
    """Load what the runs need before anything is made; on a ``cluster`` data may not be downloaded here."""
    from fedcell.learn.data import load_dataset
    from fedcell.learn.published import PUBLISHED

    for data, run in {run.task.data: run for run in runs}.items():
        run.key()
        if data in PUBLISHED and cluster is None:
            load_dataset(data)  # once and with a bar of its own, not by every worker


def crew(cluster: str | None) -> AbstractContextManager[tuple["Executor | None", int | None]]:
    """Who does the work, and how many runs at once: a Dask cluster at this address, or this machine's processes."""
    return nullcontext((None, None)) if cluster is None else _cluster(cluster)


@contextmanager
def _cluster(address: str) -> Iterator[tuple["Executor", int]]:
    """The executor of a Dask cluster, and how many runs it does at once."""
    parts = re.fullmatch(r"(?:tcp|tls)://[^/\s]+:(\d{1,5})", address)
    if parts is None or not 1 <= int(parts[1]) <= 65535:
        raise InputError(f"--cluster is {address!r}; give the scheduler's address, such as tcp://10.0.0.1:8786")
    import asyncio
    import logging
    from importlib import import_module

    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise InputError("--cluster needs Dask, which is not installed; pip install 'fedcell[cluster]'") from None
    for name in ("distributed", "distributed.client"):  # it would log tracebacks of what we say in a sentence
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        asyncio.run(asyncio.wait_for(_knock(distributed, address), CONNECT_TIMEOUT_S))
        client = distributed.Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
    except Exception as error:  # a server of another kind can make Dask raise anything
        reason = " ".join(str(error).split())[:200] or "no answer"
        raise InputError(
            f"--cluster {address}: no Dask scheduler answers there ({reason}); check the address"
        ) from None
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise InputError(
                f"--cluster {address}: the scheduler has no workers; start some with dask worker {address}"
            )
        yield client.get_executor(), threads


async def _knock(distributed: Any, address: str) -> None:
    """Shake hands once. A Client waits for ever on a server that says nothing, and cannot be given up without noise."""
    comm = await distributed.comm.connect(address, timeout=CONNECT_TIMEOUT_S)
    await comm.close()


def _print_end(result: "SweepResult") -> None:
    line = f"{result.done} runs done, {result.skipped} skipped (already stored), {len(result.failures)} failed"
    typer.echo(line if not result.stopped else f"Stopped early: {line}; start it again to finish")
    for reason, count in Counter(result.failures.values()).most_common():
        example = next(key for key, why in result.failures.items() if why == reason)
        typer.echo(f"  failed, {count} run{'s' * (count != 1)} such as {example[:8]}: {reason}", err=True)
