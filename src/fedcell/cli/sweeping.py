"""`fedcell sweep` and `fedcell results`: what they do and print. A shell, like cli.py."""

import asyncio
import csv
import json
import logging
import math
import os
import re
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedcell.errors import InputError
from fedcell.learn.data import PUBLISHED, load_dataset
from fedcell.runs.store import Store, StoredRun, differing_fields, flat
from fedcell.runs.sweep import Progress, SweepResult, run_sweep
from fedcell.sim.loop import RoundRecord
from fedcell.sim.spec import Spec, load_spec

if TYPE_CHECKING:
    from rich.table import Table

CONNECT_TIMEOUT_S = 5.0
ROUND_COLUMNS = ("round", "clock_s", "round_s", "devices", "delivered", "accuracy", "loss")
COUNTS = ("round", "devices", "delivered")
ROWS_IN_A_GROUP = 50_000


def sweep(path: Path, store_path: Path, workers: int | None, cluster: str | None) -> int:
    """Sweep the file's grid into the store; return the exit status."""
    if workers is not None and workers < 1:
        raise InputError(f"--workers is {workers}; give a whole number of at least 1")
    spec = load_spec(path)
    if cluster is None:
        for name in {run.task.data for run in spec.runs()} & set(PUBLISHED):
            load_dataset(name)  # may be downloaded, once and with a bar of its own, not by every worker
    cluster_or_none = _cluster(cluster) if cluster is not None else nullcontext((None, None))
    with cluster_or_none as (executor, width), Store(store_path) as store:
        result = _run_watched(spec, store, executor, workers or width)
    _print_end(result)
    return 130 if not result.complete else 1 if result.failures else 0


@contextmanager
def _cluster(address: str) -> Iterator[tuple[Executor, int]]:
    """The executor of a Dask cluster, and how many runs it does at once."""
    parts = re.fullmatch(r"(?:tcp|tls)://[^/\s]+:(\d{1,5})", address)
    if parts is None or not 1 <= int(parts[1]) <= 65535:
        raise InputError(f"--cluster is {address!r}; give the scheduler's address, such as tcp://10.0.0.1:8786")
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


def _run_watched(spec: Spec, store: Store, executor: Executor | None, workers: int | None) -> SweepResult:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        return run_sweep(spec, store, executor, workers, _TenthPrinter().watch)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting")

        def watch(now: Progress) -> None:
            bar.update(task, total=now.total, completed=now.total - now.left, description=_said(now))

        return run_sweep(spec, store, executor, workers, watch)


class _TenthPrinter:
    """One line for every 10 %, for logs."""

    def __init__(self) -> None:
        self._tenth = -1

    def watch(self, now: Progress) -> None:
        """Print if another tenth is done."""
        ended = now.total - now.left
        tenth = 10 * ended // now.total
        if tenth > self._tenth:
            self._tenth = tenth
            typer.echo(f"sweep: {10 * tenth} %, {ended} of {now.total} runs, {_said(now)}", err=True)


def _said(now: Progress) -> str:
    parts = [f"{now.failed} failed"] if now.failed else []
    if now.left == 0:
        return ", ".join([*parts, "done"])
    left_s = now.left_s
    return ", ".join([*parts, f"{_time_text(left_s)} left" if left_s is not None else "starting"])


def _time_text(seconds: float) -> str:
    if seconds < 7200:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _print_end(result: SweepResult) -> None:
    line = f"{result.done} runs done, {result.skipped} skipped (already in the store), {len(result.failures)} failed"
    typer.echo(line if result.complete else f"Stopped early: {line}; start it again to finish")
    for reason, count in Counter(result.failures.values()).most_common():
        example = next(key for key, why in result.failures.items() if why == reason)
        typer.echo(f"  failed, {count} run{'s' * (count != 1)} such as {example[:8]}: {reason}", err=True)


def list_runs(store_path: Path, as_json: bool) -> None:
    """Print the runs of a store."""
    from rich.console import Console
    from rich.table import Table

    with Store(store_path, "read") as store:
        runs = store.runs()
    runs.sort(key=lambda run: (run.policy, run.seed, run.key))
    if as_json:
        typer.echo(json.dumps([_run_document(run) for run in runs]))
        return
    extra = differing_fields(runs)
    table = Table(title=f"{store_path}: {len(runs)} run{'s' * (len(runs) != 1)}", title_justify="left")
    for heading in ("key", "policy", "seed", *extra, "status"):
        table.add_column(heading, justify="right" if heading == "seed" else "left")
    for heading in ("rounds", "best %", "last %"):
        table.add_column(heading, justify="right")
    digits = _short_digits([run.key for run in runs])
    for run in runs:
        fields = flat(run.document)
        told = (f"{100 * run.best_accuracy:.2f}", f"{100 * run.last_accuracy:.2f}") if run.rounds else ("-", "-")
        cells = [run.key[:digits], run.policy, str(run.seed), *(_cell(fields.get(name)) for name in extra), run.status]
        table.add_row(*cells, str(run.rounds), *told)
    console = Console() if sys.stdout.isatty() else Console(width=160 + 20 * len(extra))
    console.print(table, markup=False)


def _short_digits(keys: Sequence[str]) -> int:
    """How many digits tell all keys apart, 8 at least."""
    return next((n for n in range(8, 64) if len({key[:n] for key in keys}) == len(keys)), 64)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _run_document(run: StoredRun) -> dict[str, Any]:
    return {
        "key": run.key,
        "status": run.status,
        "reason": run.reason,
        "finished_unix_s": run.finished_unix_s,
        "duration_s": run.duration_s,
        "rounds": run.rounds,
        "best_accuracy": run.best_accuracy,
        "last_accuracy": run.last_accuracy,
        "spec": run.document,
    }


def show_run(store_path: Path, prefix: str, as_json: bool) -> None:
    """Print one run: its settings, how it went, and its rounds."""
    with Store(store_path, "read") as store:
        run = store.find(prefix)
        records = store.get(run.key) if run.status == "done" else []
    if as_json:
        rounds = [_round_cells(record) | _plan_cells(record) for record in records]
        typer.echo(json.dumps(_run_document(run) | {"records": _no_nan(rounds)}))
        return
    from rich.console import Console

    when = datetime.fromtimestamp(run.finished_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    typer.echo(f"run {run.key}\n{run.status}, {when}, {run.duration_s:.1f} s of computing")
    if run.reason:
        typer.echo(f"reason: {run.reason}")
    for name, value in flat(run.document).items():
        if value is not None:
            typer.echo(f"  {name} = {json.dumps(value)}")
    if records:
        Console(width=100).print(_rounds_table(records), markup=False)


def _rounds_table(records: Sequence[RoundRecord], most: int = 20) -> "Table":
    from rich.table import Table

    step = -(-len(records) // most)
    shown = [record for record in records if record.round % step == 0 or record in (records[0], records[-1])]
    note = f", {len(shown)} of them shown (--json has all)" if len(shown) < len(records) else ""
    table = Table(title=f"{len(records)} rounds{note}", title_justify="left")
    for heading in ("round", "clock s", "round s", "devices", "delivered", "accuracy %", "loss"):
        table.add_column(heading, justify="right")
    for r in shown:
        counts = (str(r.plan.devices.size), str(r.delivered.size))
        table.add_row(
            str(r.round), f"{r.clock_s:.1f}", f"{r.round_s:.2f}", *counts, f"{100 * r.accuracy:.2f}", f"{r.loss:.4f}"
        )
    return table


def _round_cells(record: RoundRecord) -> dict[str, Any]:
    counts = (record.plan.devices.size, record.delivered.size)
    values = (record.round, record.clock_s, record.round_s, *counts, record.accuracy, record.loss)
    return dict(zip(ROUND_COLUMNS, values, strict=True))


def _plan_cells(record: RoundRecord) -> dict[str, Any]:
    return {
        "plan_devices": record.plan.devices.tolist(),
        "plan_shares": record.plan.shares.tolist(),
        "plan_delivered": record.delivered.tolist(),
    }


def _no_nan(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """JSON has neither NaN nor infinity."""
    return [{k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()} for row in rows]


def export(store_path: Path, csv_path: Path | None, parquet_path: Path | None) -> None:
    """Write all rounds of all finished runs as CSV, Parquet or both."""
    if csv_path is None and parquet_path is None:
        raise InputError("nothing to write; give --csv FILE, --csv FOLDER or --parquet FILE")
    write_parquet = _parquet_writer() if parquet_path is not None else None
    with Store(store_path, "read") as store:
        runs = store.runs()
        extra = differing_fields(runs)
        files: dict[Path, Callable[[Path], None]] = {}
        if csv_path is not None and csv_path.is_dir():
            files[csv_path / "runs.csv"] = lambda scratch: _write_runs_csv(scratch, runs, extra)
            csv_path = csv_path / "rounds.csv"
        if csv_path is not None:
            files[csv_path] = lambda scratch: _write_rounds_csv(scratch, store, runs, extra)
        if parquet_path is not None and write_parquet is not None:
            files[parquet_path] = lambda scratch: write_parquet(scratch, store, runs, extra)
        for path in files:
            _check_output(path, store_path)
        for path, write in files.items():
            _write_whole(path, write)


def _check_output(path: Path, store_path: Path) -> None:
    if not os.path.isdir(path.parent):
        raise InputError(f"cannot write {path}: {path.parent} is no folder; create it first")
    if os.path.isdir(path):
        raise InputError(f"cannot write {path}: it is a folder; give a file's name")
    if os.path.exists(path) and os.path.samefile(path, store_path):
        raise InputError(f"{path} is the store itself; give another file")


def _write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` write elsewhere and then give the file its name."""
    scratch = path.with_name(f".fedcell-{secrets.token_hex(8)}")
    try:
        write(scratch)
        os.replace(scratch, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; give another place") from None
    finally:
        scratch.unlink(missing_ok=True)
    typer.echo(f"wrote {path}", err=True)


def _write_runs_csv(path: Path, runs: Sequence[StoredRun], extra: Sequence[str]) -> None:
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        told = ("status", "reason", "duration_s", "rounds", "best_accuracy", "last_accuracy")
        writer.writerow(["key", "policy", "seed", *extra, *told])
        for run in runs:
            writer.writerow([*_run_cells(run, extra), *(getattr(run, name) for name in told)])


def _run_cells(run: StoredRun, extra: Sequence[str]) -> list[Any]:
    fields = flat(run.document)
    values = [fields.get(name) for name in extra]
    return [run.key, run.policy, run.seed, *(json.dumps(v) if isinstance(v, list) else v for v in values)]


def _write_rounds_csv(path: Path, store: Store, runs: Sequence[StoredRun], extra: Sequence[str]) -> None:
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["key", "policy", "seed", *extra, *ROUND_COLUMNS])
        for run in runs:
            cells = _run_cells(run, extra)
            for record in store.get(run.key) if run.status == "done" else []:
                writer.writerow([*cells, *_round_cells(record).values()])


def _parquet_writer() -> Callable[[Path, Store, Sequence[StoredRun], Sequence[str]], None]:
    try:
        pa: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise InputError("--parquet needs pyarrow, which is not installed; pip install 'fedcell[parquet]'") from None

    def write(path: Path, store: Store, runs: Sequence[StoredRun], extra: Sequence[str]) -> None:
        columns = ["key", "policy", "seed", *extra]
        fields = [_run_cells(run, extra) for run in runs]
        # A column's type comes from all runs, since each group of rows must have the same; mixed ones become text.
        cells = {name: _one_type([row[at] for row in fields]) for at, name in enumerate(columns)}
        schema = pa.schema(
            [
                *((name, pa.array(values, pa.string() if not values else None).type) for name, values in cells.items()),
                *((name, pa.int64() if name in COUNTS else pa.float64()) for name in ROUND_COLUMNS),
                ("plan_devices", pa.list_(pa.int32())),
                ("plan_shares", pa.list_(pa.float64())),
                ("plan_delivered", pa.list_(pa.int32())),
            ]
        )
        rows: list[dict[str, Any]] = []
        with parquet.ParquetWriter(path, schema) as writer:
            for at, run in enumerate(runs):
                ours = {name: values[at] for name, values in cells.items()}
                records = store.get(run.key) if run.status == "done" else []
                rows += [ours | _round_cells(record) | _plan_cells(record) for record in records]
                if len(rows) >= ROWS_IN_A_GROUP or at == len(runs) - 1:
                    writer.write_table(pa.Table.from_pylist(rows, schema))
                    rows = []

    return write


def _one_type(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    fits = all(-(2**63) <= value < 2**63 for value in values if isinstance(value, int))
    if kinds <= {int, float} and fits:
        return [float(v) if v is not None and float in kinds else v for v in values]
    return values if len(kinds) == 1 and fits else [None if v is None else str(v) for v in values]


def delete(store_path: Path, prefixes: Sequence[str], failed: bool, policy: str | None, yes: bool) -> int:
    """Delete the runs named, after asking on a terminal; return the exit status."""
    if bool(prefixes) + failed + (policy is not None) != 1:
        raise InputError("which runs? give their keys, or --failed, or --policy NAME, one of these")
    with Store(store_path, "read") as store:
        if prefixes:
            found = list({run.key: run for run in map(store.find, prefixes)}.values())
        else:
            found = store.runs(policy=policy, status="failed" if failed else None)
        if policy is not None and not found:
            known = ", ".join(sorted({run.policy for run in store.runs()})) or "none"
            raise InputError(f"{store_path} has no run of policy {policy!r}; its policies: {known}")
    if found and not yes:
        if not sys.stdin.isatty():
            raise InputError(f"{len(found)} runs would be deleted from {store_path}; add --yes to do it")
        if not typer.confirm(f"Delete {len(found)} run{'s' * (len(found) != 1)} from {store_path}?"):
            return 1
    if found:
        with Store(store_path) as store:
            store.delete(run.key for run in found)
    typer.echo(f"{len(found)} run{'s' * (len(found) != 1)} deleted")
    return 0
