"""`fedcell results`: what a store holds, listed, shown, exported and deleted."""

import math
import os
import sys
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from string import ascii_lowercase
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from fedcell.cli.console import console, count_of_runs
from fedcell.cli.options import AllowImport, Csv, Json, argument, importing, option, output_format
from fedcell.errors import InputError
from fedcell.files import STANDARD_OUTPUT, check_output, write_output

if TYPE_CHECKING:
    from rich.table import Table

    from fedcell.files import Write
    from fedcell.runs.store import Store
    from fedcell.runs.stored import StoredRun
    from fedcell.sim.record import RoundRecord
    from fedcell.types import Vector

TOLD = ("status", "reason", "source", "duration_s", "rounds", "best_accuracy", "last_accuracy", "diverged", "doubt")
ACCURACIES = ("best_accuracy", "last_accuracy")
"""What a store says of a run besides its specification."""
FIELDS_ARE = "fedcell results show lists the fields of a run"
POLICY_COLUMNS = 22
"""A policy has at least so much room on a line before other fields are left out; longer ones continue below."""

MAX_COMPLETED = 30
"""A field with more values is not offered for completion."""

StorePath = Annotated[Path, argument("Results file.", metavar="STORE")]
ROWS_IN_A_GROUP = 50_000

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, show, export or delete stored runs.")


def _values_in(context: typer.Context) -> dict[str, list[str]]:
    """For the shell's completion: what the runs of the results file on the line have, by field; nothing without one."""
    from fedcell.runs.store import Store

    found: dict[str, dict[str, None]] = {}
    words = [context.params.get("store"), *context.args]  # on a line that is not complete it may be among the latter
    try:
        with Store(next(Path(word) for word in words if word and Path(word).is_file()), "read") as kept:
            for run in kept.runs():
                for name, value in values_of(run).items():
                    found.setdefault(name, {})[_text(value)] = None
    except (InputError, StopIteration):
        return {}
    return {name: list(values) for name, values in found.items()}


def _complete_where(context: typer.Context, incomplete: str) -> list[str]:
    """Fields with their values, of fields that do not differ with every run; the part after the dot is enough."""
    pairs = [
        f"{name}={value}"
        for name, values in _values_in(context).items()
        if len(values) <= MAX_COMPLETED and name != "key"
        for value in values
    ]
    return [pair for pair in pairs if pair.startswith(incomplete)] or [
        short
        for pair in pairs
        if (short := pair.partition(".")[2]).startswith(incomplete) and "." in pair.split("=")[0]
    ]


def _complete_sort(context: typer.Context, incomplete: str) -> list[str]:
    """Fields; what begins with a minus the shell takes for an option."""
    return [name for name in _values_in(context) if name.startswith(incomplete)]


@app.command("list")
def list_runs(
    store: StorePath,
    policy: Annotated[
        list[str] | None, option("Only runs of this policy, such as random:8 or random (any k); repeatable.")
    ] = None,
    seed: Annotated[list[int] | None, option("Only runs with this random seed; repeatable.")] = None,
    where: Annotated[
        list[str] | None,
        option(
            "Only runs with this value, such as radius_m=500; repeatable.",
            metavar="FIELD=VALUE",
            autocompletion=_complete_where,
        ),
    ] = None,
    sort: Annotated[
        list[str] | None,
        option(
            "Sort by a field, such as best_accuracy, or -best_accuracy for the largest first; repeatable.",
            metavar="FIELD",
            autocompletion=_complete_sort,
        ),
    ] = None,
    wide: Annotated[bool, typer.Option("--wide", help="Show all fields in which the runs differ.")] = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """List the runs, with the fields in which they differ and their accuracies.

    Where the terminal is too narrow for all these fields, the others are named below the table.
    """
    from fedcell.runs.store import Store, differing_in
    from fedcell.runs.stored import column_of

    output = output_format(as_json, as_csv)
    with Store(store, "read") as kept:
        every = kept.runs()
    runs = _sorted(_chosen(every, policy or [], seed or [], where or [], str(store)), every, sort or [])
    extra = list(map(column_of, differing_in(runs)))
    if output == "json":
        import json

        typer.echo(json.dumps([stored_run_document(run) for run in runs]))
    elif output == "csv":
        _print_csv(runs, extra)
    else:
        _print_table(str(store), runs, len(every), extra, wide)


# --- which runs, in which order ------------------------------------------------------------------------------------


def values_of(run: "StoredRun") -> dict[str, Any]:
    """All that can be asked about a run, by field; nested ones with a dot."""
    return run.columns | {"key": run.key} | told_of(run, TOLD)


def told_of(run: "StoredRun", names: Sequence[str]) -> dict[str, Any]:
    """These attributes of a run; a run without a round has no accuracy: None."""
    return {name: None if name in ACCURACIES and not run.rounds else getattr(run, name) for name in names}


def _chosen(
    runs: Sequence["StoredRun"], policies: Sequence[str], seeds: Sequence[int], where: Sequence[str], store: str
) -> list["StoredRun"]:
    tests: list[Callable[[StoredRun], bool]] = []
    if policies:
        asked = {name for text in policies for name in (text, stored_policy(text))}
        tests.append(lambda run: bool({run.policy, run.policy.partition(":")[0]} & asked))
    if seeds:
        tests.append(lambda run: run.seed in seeds)
    for text in where:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise InputError(f"--where is {text!r}; write FIELD=VALUE, such as cell.radius_m=500")
        if name in _FIELDS_02:
            tests.append(lambda run, name=name, value=value: _is(_value_02(run, name), value))  # type: ignore[misc]
            continue
        field = _field(name, runs, "--where")
        tests.append(lambda run, field=field, value=value: _is(values_of(run).get(field), value))  # type: ignore[misc]
    found = [run for run in runs if all(test(run) for test in tests)]
    if runs and not found:
        known = ", ".join(sorted({run.policy for run in runs}))
        raise InputError(f"no run of {store} matches; it has {len(runs)} run{'s' * (len(runs) != 1)}, of {known}")
    return found


_FIELDS_02 = ("late_weight", "task.averaging", "task.server", "averaging", "server")
"""How version 0.2 spelled the aggregator, which --where still knows."""


def _value_02(run: "StoredRun", name: str) -> Any:
    from fedcell.learn.aggregator import Spelling02, parse_aggregator

    old = Spelling02.of(parse_aggregator(values_of(run).get("task.aggregator", "mean")))
    return getattr(old, name.removeprefix("task."))


def stored_policy(policy: str) -> str:
    """The line under which the policy's runs are stored; as it stands if it names none of ours."""
    from fedcell.schedule.registry import format_policy, parse_policy

    try:
        return format_policy(parse_policy(policy, allow_import=False))
    except InputError:
        return policy


def _field(name: str, runs: Sequence["StoredRun"], option: str) -> str:
    """The field of that name; the part after the dot is enough where no other field has it."""
    from fedcell.errors import did_you_mean

    shared = {id(run.fields): run for run in runs}  # many runs share their fields
    known = {field for run in shared.values() for field in values_of(run)}
    ends = [field for field in known if field.rpartition(".")[2] == name]
    if name in known or len(ends) == 1:
        return name if name in known else ends[0]
    raise InputError(f"{option} names {name!r}, which no run has; {did_you_mean(name, known, FIELDS_ARE)}")


def _is(value: Any, text: str) -> bool:
    if value is None or isinstance(value, str | list | bool):
        return text.lower() == _text(value).lower()
    try:
        return bool(value == type(value)(text))
    except ValueError:
        return False


def _sorted(runs: list["StoredRun"], every: Sequence["StoredRun"], sort: Sequence[str]) -> list["StoredRun"]:
    runs = sorted(runs, key=lambda run: (run.policy, run.seed, run.key))
    for text in reversed(sort):  # the first decides, so it comes last
        field = _field(text.removeprefix("-"), every, "--sort")
        values = {run.key: values_of(run).get(field) for run in runs}
        # Numbers before texts; runs without a value come last, whichever end is first.
        runs.sort(key=lambda run: _order(values[run.key]), reverse=text.startswith("-"))
        runs.sort(key=lambda run: values[run.key] is None)
    return runs


def _order(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return (not number, float(value) if number else 0.0, "" if number else _text(value))


# --- how they are shown --------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def stored_run_document(run: "StoredRun") -> dict[str, Any]:
    """A run for machines."""
    return {
        "key": run.key,
        "status": run.status,
        "reason": run.reason,
        "finished_unix_s": run.finished_unix_s,
        "duration_s": run.duration_s,
        "rounds": run.rounds,
        **told_of(run, ACCURACIES),
        "diverged": run.diverged,
        "doubt": run.doubt,
        "spec": run.document,
    }


def _print_csv(runs: Sequence["StoredRun"], extra: Sequence[str]) -> None:
    import json

    from fedcell.tables import csv_text

    names = ["key", "policy", "seed", *extra, *TOLD]
    rows = (map(values_of(run).get, names) for run in runs)
    texts = ([json.dumps(value) if isinstance(value, list) else value for value in row] for row in rows)
    typer.echo(csv_text(names, texts), nl=False)


def _print_table(store: str, runs: Sequence["StoredRun"], of: int, extra: Sequence[str], wide: bool) -> None:
    out = console()
    columns = _columns(runs, extra)
    shown = [name for name in columns if wide or not out.is_terminal or name not in extra]
    for name in extra:
        if name not in shown and _width(columns, [*shown, name]) <= out.width:
            shown.append(name)
    shown = [name for name in columns if name in shown]  # in their order
    left = [name for name in extra if name not in shown]
    if wide or not out.is_terminal:
        out = console(max(_width(columns, shown, whole=True), 80), always=True)
    count = f"{len(runs)} of {of} runs" if len(runs) < of else f"{of} run{'s' * (of != 1)}"
    out.print(_table(f"{store}: {count}", {name: columns[name] for name in shown}), markup=False)
    for mark, doubt in _doubts(runs).items():
        out.print(f"{mark}: {doubt}", highlight=False, markup=False, soft_wrap=not out.is_terminal)
    if left:
        out.print(f"They differ also in {', '.join(left)}; --wide, --csv and --json show it.", highlight=False)


def _columns(runs: Sequence["StoredRun"], extra: Sequence[str]) -> dict[str, list[str]]:
    """The cells of all columns, by heading; the status only if some run is not done, or diverged."""
    digits = _short_digits([run.key for run in runs])
    columns = {"key": [run.key[:digits] for run in runs], "policy": [run.policy for run in runs]}
    columns["seed"] = [str(run.seed) for run in runs]
    for name in extra:
        columns[name] = [_text(values_of(run).get(name)) for run in runs]
    if any(run.status != "done" or run.diverged for run in runs):
        columns["status"] = ["diverged" if run.diverged else run.status for run in runs]
    if any(run.doubt for run in runs):
        marks = {doubt: mark for mark, doubt in _doubts(runs).items()}
        columns["doubt"] = [marks.get(run.doubt, "") for run in runs]
    columns["rounds"] = [str(run.rounds) for run in runs]
    columns["best %"] = [f"{100 * run.best_accuracy:.2f}" if run.rounds else "-" for run in runs]
    columns["last %"] = [f"{100 * run.last_accuracy:.2f}" if run.rounds else "-" for run in runs]
    return columns


def _doubts(runs: Sequence["StoredRun"]) -> dict[str, str]:
    """What is not to be used of some of the runs, by the letter that stands for it in their lines."""
    return dict(zip(ascii_lowercase, dict.fromkeys(run.doubt for run in runs if run.doubt), strict=False))


def _short_digits(keys: Sequence[str]) -> int:
    """How many digits tell all keys apart, 8 at least."""
    return next((n for n in range(8, 64) if len({key[:n] for key in keys}) == len(keys)), 64)


def _heading(name: str) -> str:
    return name.replace(".", ".\n")


def _width(columns: dict[str, list[str]], shown: Sequence[str], *, whole: bool = False) -> int:
    """Columns of the terminal that these columns take; a long policy may continue on the next line unless ``whole``."""
    width = 0
    for name in shown:
        widest = max(map(len, [*_heading(name).split("\n"), *columns[name]]))
        width += 2 + (min(widest, POLICY_COLUMNS) if name == "policy" and not whole else widest)
    return width - 2


def _table(title: str, columns: dict[str, list[str]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, cells in columns.items():
        number = name not in ("key", "policy", "status") and all(_is_number(cell) for cell in cells)
        table.add_column(
            Text(_heading(name)), justify="right" if number else "left", no_wrap=name != "policy", overflow="fold"
        )
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _is_number(text: str) -> bool:
    return text == "-" or text.replace("e", "").replace("-", "").replace("+", "").replace(".", "").isdigit()


# --- fedcell results show ----------------------------------------------------------------------------------------


@app.command("show")
def show_run(
    store: StorePath,
    key: Annotated[str, argument("First digits of the run's key.")],
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Show also the final model's accuracy on each class.")
    ] = False,
    save_model: Annotated[Path | None, option("Save the final model in this .safetensors or .npz file.")] = None,
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
    rounds: Annotated[
        Path | None,
        option("Small file for the rounds without their plans, which fedcell reproduce --rounds reads."),
    ] = None,
    models: Annotated[
        str | None,
        option(
            "Folder for the final models, as far as they were kept; or a name such as 'm/{seed}-{key}.npz'.",
            metavar="FOLDER",
        ),
    ] = None,
    allow_import: AllowImport = False,
) -> None:
    """Export the rounds of all finished runs, and the final models that were kept."""
    from fedcell.runs.store import Store, differing_in
    from fedcell.runs.stored import column_of

    if as_csv is None and as_parquet is None and models is None and rounds is None:
        raise InputError(
            "nothing to write; give --csv FILE, --csv FOLDER, --parquet FILE, --rounds FILE or --models FOLDER"
        )
    named = {name: path for name, path in (("csv", as_csv), ("parquet", as_parquet), ("rounds", rounds)) if path}
    for (one, path), (other, another) in combinations(named.items(), 2):
        if path == another:
            raise InputError(f"--{one} and --{other} are both {path}; give each its own file")
    if as_parquet is not None:
        _load_pyarrow()  # or say at once that it is missing
    with Store(store, "read") as kept:
        runs = kept.runs()
        extra = list(map(column_of, differing_in(runs)))
        files: dict[Path, Write] = {}
        if as_csv is not None and as_csv.is_dir():
            files[as_csv / "runs.csv"] = lambda file: _write_runs_csv(file, runs, extra)
            as_csv = as_csv / "rounds.csv"
        if as_csv is not None:
            files[as_csv] = lambda file: _write_rounds_csv(file, kept, runs, extra)
        if as_parquet is not None:
            files[as_parquet] = lambda file: _write_parquet(file, kept, runs, extra)
        if rounds is not None:
            files[rounds] = lambda file: _write_rounds(file, kept, runs)
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
    said = f"; {count_of_runs(without)} stored without a model" if without else ""
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


def _write_rounds(file: IO[bytes], store: "Store", runs: Sequence["StoredRun"]) -> None:
    from fedcell.runs.records import write_rounds

    # What real devices did has a key that answers for no simulation.
    write_rounds(file, store.rounds_of(run.key for run in runs if run.status == "done"))


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
    told = [pa.array(columns[name], schema.field(name).type) for name in names]
    places = {run.key: place for place, run in enumerate(runs)}
    done = [run.key for run in runs if run.status == "done"]
    with parquet.ParquetWriter(file, schema, use_dictionary=names) as writer:
        for keys, table in store.tables(done, ROWS_IN_A_GROUP):
            rows = pa.array([places[key] for key in keys], pa.int64())
            rounds = [_parquet_array(pa, table[name], schema.field(name).type) for name in schema.names[len(names) :]]
            writer.write_table(pa.Table.from_arrays([*(one.take(rows) for one in told), *rounds], schema=schema))


def _parquet_array(pa: Any, column: Any, kind: Any) -> Any:
    import numpy as np

    if isinstance(column, np.ndarray):
        return pa.array(column, kind)
    ends = np.concatenate([[0], np.cumsum(column.lengths)])
    # An offset that is null begins a list that is null.
    offsets = pa.array(ends, pa.int32(), mask=np.append(column.missing, False))
    return pa.ListArray.from_arrays(offsets, pa.array(column.values.astype(kind.value_type.to_pandas_dtype())), kind)


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
    key: Annotated[list[str] | None, argument("First digits of the runs' keys.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Delete all runs that failed.")] = False,
    policy: Annotated[str | None, option("Delete all runs of this policy.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete runs from the store."""
    from fedcell.runs.store import Store

    if bool(key) + failed + (policy is not None) != 1:
        raise InputError("no runs are given; give their keys, or --failed, or --policy NAME, one of these")
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
