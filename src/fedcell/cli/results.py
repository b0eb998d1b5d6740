"""`fedcell results`: what a store holds, listed, shown, exported and deleted."""

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from fedcell.cli.console import console, runs_are
from fedcell.cli.options import AllowImport, Json, importing
from fedcell.cli.results_list import StorePath, list_runs, stored_policy, stored_run_document, told_of
from fedcell.errors import InputError
from fedcell.files import STANDARD_OUTPUT, check_output, write_output

if TYPE_CHECKING:
    from rich.table import Table

    from fedcell.files import Write
    from fedcell.runs.store import Store
    from fedcell.runs.stored import StoredRun
    from fedcell.sim.record import RoundRecord
    from fedcell.types import Vector

ROWS_IN_A_GROUP = 50_000

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, show, export or delete stored runs.")


app.command("list")(list_runs)


@app.command("show")
def show_run(
    store: StorePath,
    key: Annotated[str, typer.Argument(help="First digits of the run's key.", show_default=False)],
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Show also the final model's accuracy on each class.")
    ] = False,
    save_model: Annotated[
        Path | None,
        typer.Option(help="Save the final model in this .safetensors or .npz file.", show_default=False),
    ] = None,
    allow_import: AllowImport = False,
    as_json: Json = False,
) -> None:
    """Show one run: its specification and its rounds.

    The model is there if the run was computed with fedcell race --save-model or --per-class, or with fedcell sweep
    --keep-models.
    """
    import json
    from datetime import UTC, datetime

    from fedcell.files import to_json
    from fedcell.runs.models import checked_ending
    from fedcell.runs.models import save_model as write_model
    from fedcell.runs.store import Store
    from fedcell.runs.stored import flat
    from fedcell.sim.task import class_accuracy

    if save_model is not None:
        check_output(checked_ending(save_model))
    with Store(store, "read") as kept:
        run = kept.find(key)
        records = kept.get(run.key) if run.status == "done" else []
        model = _model(kept, run) if per_class or save_model is not None else None
    with importing(allow_import):
        classes = class_accuracy(run.spec.task, model[None])[0].tolist() if per_class and model is not None else None
        if save_model is not None and model is not None:
            write_model(save_model, run.spec, model)
            typer.echo(f"wrote {save_model}", err=True)
    if as_json:
        rounds = [record.to_dict(plan=True) for record in records]
        document = stored_run_document(run) | {"records": rounds}
        document |= {"class_accuracy": classes} if classes is not None else {}
        typer.echo(to_json(document))
        return
    when = datetime.fromtimestamp(run.finished_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    status = "done, training diverged" if run.diverged else run.status
    typer.echo(f"run {run.key}\n{status}, {when}, {run.duration_s:.1f} s of computing")
    if run.reason:
        typer.echo(f"reason: {run.reason}")
    for name, value in flat(run.document).items():
        if value is not None:
            typer.echo(f"  {name} = {json.dumps(value)}")
    if records:
        console().print(_rounds_table(records), markup=False)
    if classes is not None:
        console().print(_classes_table(classes), markup=False)


def _model(store: "Store", run: "StoredRun") -> "Vector":
    model = store.model(run.key)
    if model is None:
        raise InputError(
            f"{store.path} has no model of run {run.key[:8]}; run it again with fedcell race --save-model or fedcell "
            "sweep --keep-models"
        )
    return model


def _classes_table(accuracy: Sequence[float]) -> "Table":
    from rich.table import Table

    table = Table(title="The final model by class", title_justify="left", box=None, min_width=24)
    for heading in ("class", "accuracy %"):
        table.add_column(heading, justify="right")
    for label, value in enumerate(accuracy):
        table.add_row(str(label), "no test samples" if math.isnan(value) else f"{100 * value:.2f}")
    return table


def _rounds_table(records: Sequence["RoundRecord"], most: int = 20) -> "Table":
    from rich.table import Table

    step = -(-len(records) // most)
    shown = [record for record in records if record.round % step == 0 or record in (records[0], records[-1])]
    note = f", {len(shown)} of them shown (--json has all)" if len(shown) < len(records) else ""
    title = f"{len(records)} rounds{note}"
    table = Table(title=title, title_justify="left", box=None, min_width=len(title))
    for heading in ("round", "clock s", "round s", "devices", "delivered", "accuracy %", "loss", "J"):
        table.add_column(heading, justify="right")
    for r in shown:
        counts = (str(r.plan.devices.size), str(r.delivered.size))
        times, result = (f"{r.clock_s:.1f}", f"{r.round_s:.2f}"), (f"{100 * r.accuracy:.2f}", f"{r.loss:.4f}")
        joules = "unknown" if math.isnan(r.joules) else f"{r.joules:.4g}"
        table.add_row(str(r.round), *times, *counts, *result, joules)
    return table


@app.command("export")
def export_runs(
    store: StorePath,
    as_csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", help="CSV file to write, - for standard output; for a directory, rounds.csv and runs.csv in it."
        ),
    ] = None,
    as_parquet: Annotated[
        Path | None, typer.Option("--parquet", help="Parquet file to write, with the plans; - for standard output.")
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the final models, as far as they were kept; or a name such as 'm/{seed}-{key}.npz'.",
            show_default=False,
        ),
    ] = None,
    allow_import: AllowImport = False,
) -> None:
    """Export the rounds of all finished runs, and the final models that were kept."""
    from fedcell.runs.store import Store, differing_fields
    from fedcell.runs.stored import column_of

    if as_csv is None and as_parquet is None and models is None:
        raise InputError("nothing to write; give --csv FILE, --csv FOLDER, --parquet FILE or --models FOLDER")
    if as_csv == as_parquet and as_csv is not None:
        raise InputError(f"--csv and --parquet are both {as_csv}; give each a file of its own")
    if as_parquet is not None:
        _load_pyarrow()  # or say at once that it is missing
    with Store(store, "read") as kept:
        runs = kept.runs()
        extra = list(map(column_of, differing_fields(run.document for run in runs if run.status != "damaged")))
        files: dict[Path, Write] = {}
        if as_csv is not None and as_csv.is_dir():
            files[as_csv / "runs.csv"] = lambda file: _write_runs_csv(file, runs, extra)
            as_csv = as_csv / "rounds.csv"
        if as_csv is not None:
            files[as_csv] = lambda file: _write_rounds_csv(file, kept, runs, extra)
        if as_parquet is not None:
            files[as_parquet] = lambda file: _write_parquet(file, kept, runs, extra)
        for path in files:
            _check_export(path, store)
        if models is not None:
            with importing(allow_import):
                _export_models(kept, runs, models)
        for path, write in files.items():
            write_output(path, write)
            if path != STANDARD_OUTPUT:
                typer.echo(f"wrote {path}", err=True)


def _export_models(store: "Store", runs: Sequence["StoredRun"], place: str) -> None:
    from fedcell.runs.models import model_paths, save_model

    kept = store.done([run.key for run in runs], models=True)
    if not kept:
        raise InputError(
            f"{store.path} has no models; they are kept by fedcell race --save-model and fedcell sweep --keep-models"
        )
    specs = {run.key: run.spec for run in runs if run.key in kept}
    paths = model_paths(place, specs, "--models")
    for key, path in paths.items():
        model = store.model(key)
        if model is not None:  # else it was deleted just now
            save_model(path, specs[key], model)
    without = sum(run.status == "done" for run in runs) - len(kept)
    said = f"; {runs_are(without)} stored without a model" if without else ""
    one, *others = paths.values()
    typer.echo(f"wrote {f'{1 + len(others)} models such as ' if others else ''}{one}{said}", err=True)


def _check_export(path: Path, store_path: Path) -> None:
    check_output(path)
    if os.path.exists(path) and os.path.samefile(path, store_path):
        raise InputError(f"{path} is the store itself; give another file")


def _write_runs_csv(file: IO[bytes], runs: Sequence["StoredRun"], extra: Sequence[str]) -> None:
    from fedcell.tables import csv_lines

    told = ("status", "reason", "duration_s", "rounds", "best_accuracy", "last_accuracy", "doubt")
    rows = ([*_run_cells(run, extra), *told_of(run, told).values()] for run in runs)
    file.writelines(line.encode() for line in csv_lines(["key", "policy", "seed", *extra, *told], rows))


def _run_cells(run: "StoredRun", extra: Sequence[str]) -> list[Any]:
    import json

    fields = run.columns
    values = [fields.get(name) for name in extra]
    return [run.key, run.policy, run.seed, *(json.dumps(v) if isinstance(v, list) else v for v in values)]


def _write_rounds_csv(file: IO[bytes], store: "Store", runs: Sequence["StoredRun"], extra: Sequence[str]) -> None:
    from fedcell.sim.record import ROUND_COLUMNS
    from fedcell.tables import csv_lines

    finished = ((run, _run_cells(run, extra)) for run in runs if run.status == "done")
    rows = ([*cells, *record.numbers()] for run, cells in finished for record in store.get(run.key))
    file.writelines(line.encode() for line in csv_lines(["key", "policy", "seed", *extra, *ROUND_COLUMNS], rows))


def _load_pyarrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet."""
    from importlib import import_module

    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise InputError("--parquet needs pyarrow, which is not installed; pip install 'fedcell[parquet]'") from None


def _write_parquet(file: IO[bytes], store: "Store", runs: Sequence["StoredRun"], extra: Sequence[str]) -> None:

    pa, parquet = _load_pyarrow()
    names = ["key", "policy", "seed", *extra]
    fields = [_run_cells(run, extra) for run in runs]
    # A column's type comes from all runs, since each group of rows must have the same; mixed ones become text.
    columns = {name: _one_type([row[at] for row in fields]) for at, name in enumerate(names)}
    schema = _parquet_schema(pa, columns)
    rows: list[dict[str, Any]] = []
    with parquet.ParquetWriter(file, schema) as writer:
        for at, run in enumerate(runs):
            ours = {name: values[at] for name, values in columns.items()}
            records = store.get(run.key) if run.status == "done" else []
            rows += [ours | record.to_dict(plan=True) for record in records]
            if len(rows) >= ROWS_IN_A_GROUP or at == len(runs) - 1:
                writer.write_table(pa.Table.from_pylist(rows, schema))
                rows = []


def _parquet_schema(pa: Any, columns: dict[str, list[Any]]) -> Any:
    """The types of the run's columns, whose values are given, and of the round's."""
    from fedcell.sim.record import columns as round_columns

    kinds = {"count": pa.int64(), "number": pa.float64()}
    kinds |= {"ids": pa.list_(pa.int32()), "numbers": pa.list_(pa.float64())}
    return pa.schema(
        [
            *((name, pa.array(values, pa.string() if not values else None).type) for name, values in columns.items()),
            *((one.name, kinds[one.kind]) for one in round_columns()),
        ]
    )


def _one_type(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    fits = all(-(2**63) <= value < 2**63 for value in values if isinstance(value, int))
    if kinds <= {int, float} and fits:
        return [float(v) if v is not None and float in kinds else v for v in values]
    return values if len(kinds) == 1 and fits else [None if v is None else str(v) for v in values]


@app.command("delete")
def delete_runs(
    store: StorePath,
    key: Annotated[list[str] | None, typer.Argument(help="First digits of the runs' keys.", show_default=False)] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Delete all runs that failed.")] = False,
    policy: Annotated[str | None, typer.Option(help="Delete all runs of this policy.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete runs from the store."""
    from fedcell.runs.store import Store

    if bool(key) + failed + (policy is not None) != 1:
        raise InputError("which runs? give their keys, or --failed, or --policy NAME, one of these")
    with Store(store, "read") as kept:
        if key:
            found = list({run.key: run for run in map(kept.find, key)}.values())
        else:
            asked = None if policy is None else stored_policy(policy)
            found = kept.runs(policy=asked, status="failed" if failed else None)
        if policy is not None and not found:
            known = ", ".join(sorted({run.policy for run in kept.runs()})) or "none"
            raise InputError(f"{store} has no run of policy {policy!r}; its policies: {known}")
    if found and not yes:
        if not sys.stdin.isatty():
            raise InputError(f"{len(found)} runs would be deleted from {store}; add --yes to do it")
        if not typer.confirm(f"Delete {len(found)} run{'s' * (len(found) != 1)} from {store}?"):
            raise typer.Exit(1)
    if found:
        with Store(store) as kept:
            kept.delete(run.key for run in found)
    typer.echo(f"{len(found)} run{'s' * (len(found) != 1)} deleted")
