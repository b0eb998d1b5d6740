"""`fedcell results list`: the runs of a store, chosen, sorted and fitted to the terminal."""

from collections.abc import Callable, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcell.cli.console import console
from fedcell.cli.options import Csv, Json, output_format
from fedcell.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from fedcell.runs.stored import StoredRun

TOLD = ("status", "reason", "source", "duration_s", "rounds", "best_accuracy", "last_accuracy", "diverged", "doubt")
ACCURACIES = ("best_accuracy", "last_accuracy")
"""What a store says of a run besides its specification."""
FIELDS_ARE = "fedcell results show lists the fields of a run"
POLICY_COLUMNS = 22
"""A policy has at least so much room on a line before other fields are left out; longer ones continue below."""

MOST_COMPLETED = 30
"""A field with more values is not offered for completion."""

StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="Results file.", show_default=False)]


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
        if len(values) <= MOST_COMPLETED and name != "key"
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


def list_runs(
    store: StorePath,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Only runs of this policy, such as random:8 or random (any k); repeatable.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Only runs with this random seed; repeatable.", show_default=False)
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="Only runs with this value, such as radius_m=500; repeatable.",
            show_default=False,
            autocompletion=_complete_where,
        ),
    ] = None,
    sort: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD",
            help="Sort by a field, such as best_accuracy, or -best_accuracy for the largest first; repeatable.",
            show_default=False,
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
    from fedcell.runs.store import Store, differing_fields
    from fedcell.runs.stored import column_of

    output = output_format(as_json, as_csv)
    with Store(store, "read") as kept:
        every = kept.runs()
    runs = _sorted(_chosen(every, policy or [], seed or [], where or [], str(store)), every, sort or [])
    extra = list(map(column_of, differing_fields(run.document for run in runs if run.status != "damaged")))
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
        field = _field(name, runs, "--where")
        tests.append(lambda run, field=field, value=value: _is(values_of(run).get(field), value))  # type: ignore[misc]
    found = [run for run in runs if all(test(run) for test in tests)]
    if runs and not found:
        known = ", ".join(sorted({run.policy for run in runs}))
        raise InputError(f"no run of {store} is like that; it has {len(runs)} run{'s' * (len(runs) != 1)}, of {known}")
    return found


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

    known = {field for run in runs for field in values_of(run)}
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
