"""Options that several commands have, each checked as it is read: a bad value is refused before any work is done."""

import inspect
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedcell import defaults
from fedcell.errors import InputError
from fedcell.files import STANDARD_OUTPUT
from fedcell.schedule.laws import LAWS
from fedcell.schedule.registry import POLICIES

if TYPE_CHECKING:
    from fedcell.sim.spec_fields import SpecField

MAX_SEEDS = 10_000
# For completion, which must not import the modules that have them.
TRACKER_NAMES = ("tensorboard", "mlflow", "wandb")


def option(help: str, *names: str, **more: Any) -> Any:
    """An option whose help says its default, where it has one."""
    return typer.Option(*names, help=help, show_default=False, **more)


def argument(help: str, **more: Any) -> Any:
    """An argument whose help says its default, where it has one."""
    return typer.Argument(help=help, show_default=False, **more)


def check_seeds(seeds: int | None) -> int | None:
    """Refuse a number of seeds that is none, or more than anybody waits for."""
    if seeds is not None and not 1 <= seeds <= MAX_SEEDS:
        raise InputError(f"--seeds is {seeds}; give a whole number from 1 to {MAX_SEEDS:,}")
    return seeds


def check_plot(context: typer.Context, plot: Path | None) -> Path | None:
    """Refuse a picture that could not be written; None for ``none``.

    A picture on standard output is alone there: what would be printed goes to standard error.
    """
    if plot is None or str(plot) == "none":
        return None
    from fedcell.plots import check_picture_path

    if plot == STANDARD_OUTPUT:
        context.with_resource(redirect_stdout(sys.stderr))
    return check_picture_path(plot)


def _check_workers(workers: int | None) -> int | None:
    if workers is not None and workers < 1:
        raise InputError(f"--workers is {workers}; give a whole number of at least 1")
    return workers


def _check_target(target: float) -> float:
    from fedcell.errors import require_target

    require_target("--target", target)
    return target


def output_format(as_json: bool, as_csv: bool) -> Literal["table", "json", "csv"]:
    """What to print, of commands that have --json and --csv: "table" where neither was given."""
    if as_json and as_csv:
        raise InputError("--json and --csv were both given; choose one")
    return "json" if as_json else "csv" if as_csv else "table"


def complete_policy(incomplete: str) -> list[str]:
    """The policies that begin so, for the shell's completion."""
    return [name for name in POLICIES if name.startswith(incomplete)]


def complete_law(incomplete: str) -> list[str]:
    """The link laws that begin so."""
    return [name for name in LAWS if name.startswith(incomplete)]


def complete_tracker(incomplete: str) -> list[str]:
    """The trackers that begin so."""
    return [name for name in TRACKER_NAMES if name.startswith(incomplete)]


def complete_figure(incomplete: str) -> list[str]:
    """The figures that begin so."""
    from fedcell.paper import FIGURES, GROUPS

    return [name for name in (*FIGURES, *GROUPS) if name.startswith(incomplete)]


LawOption = Annotated[
    str | None,
    option(
        f"How uploads share the link: {', '.join(LAWS)}, such as blocks:count=15; by default density.",
        autocompletion=complete_law,
    ),
]
Track = Annotated[
    list[str] | None,
    option(
        "Report every run to a tracker: tensorboard:runs, mlflow or wandb; repeat for several.",
        metavar="TRACKER",
        autocompletion=complete_tracker,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Report every step on its own line.")]
Plot = Annotated[
    Path | None, option("Plot into this .png, .svg or .pdf file; - for standard output.", callback=check_plot)
]
Seeds = Annotated[int, option(f"Number of random seeds, 0, 1, ... (default: {defaults.SEEDS}).", callback=check_seeds)]
Target = Annotated[
    float, option(f"Target accuracy, from 0 to 1 (default: {defaults.TARGET_ACCURACY:g}).", callback=_check_target)
]
Workers = Annotated[int | None, option("Number of runs at a time (default: one per core).", callback=_check_workers)]

Cluster = Annotated[
    str | None, option("Address of a Dask scheduler to run on, such as tcp://10.0.0.1:8786.", metavar="ADDRESS")
]

AllowImport = Annotated[
    bool,
    typer.Option(
        "--allow-import",
        help="Import the modules that the file names for user-defined policies and models, which runs their code.",
    ),
]

PutStore = Annotated[Path | None, option("Add the runs to this results file.", "--store")]
"""Of commands that show runs and may keep them."""


def importing(allowed: bool) -> AbstractContextManager[None]:
    """For commands that look at files: nothing that these name is imported unless --allow-import asks for it."""
    from contextlib import nullcontext

    from fedcell.plugins import without_imports

    return nullcontext() if allowed else without_imports("add --allow-import if you trust the file")


def show_without_fields(command: Callable[..., None]) -> None:
    """Hide ``**fields`` of a command from Typer: with_spec_options puts an option for each in its place."""
    signature = inspect.signature(command)
    named = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]


def option_parameters() -> dict[str, str]:
    """By the path of a field of the spec that has an option, the name of the command's parameter."""
    from fedcell.sim.spec_fields import all_fields

    return {one.path: one.about.option.replace("-", "_") for one in all_fields() if one.about.option}


def with_spec_options(command: Callable[..., None], after: str) -> Callable[..., None]:
    """Give a command an option for every field of the spec that has one.

    Not done before the command is asked for: it loads NumPy and all that has fields.

    Args:
        command: whose signature show_without_fields has seen.
        after: the parameter that they come after.
    """
    from fedcell.sim.spec_fields import all_fields

    signature, found = inspect.signature(command), list[inspect.Parameter]()
    if set(option_parameters().values()) <= signature.parameters.keys():
        return command  # it has them already
    for one in signature.parameters.values():
        found.append(one)
        if one.name == after:
            found += [_parameter(field) for field in all_fields() if field.about.option]
    command.__signature__ = signature.replace(parameters=found)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in found} | {"return": None}
    return command


def _parameter(field: "SpecField") -> inspect.Parameter:
    """A field as a parameter of a command."""
    about, choices = field.about, field.declared.choices
    kind = {"number": float, "whole": int, "truth": bool}.get(field.declared.kind, str)
    option = typer.Option(
        f"--{about.option}/--no-{about.option}" if kind is bool else f"--{about.option}",
        help=f"{about.help.rstrip('.')} (default: {field.default_text}).",
        show_default=False,
        autocompletion=(lambda incomplete: [one for one in choices if one.startswith(incomplete)]) if choices else None,
    )
    name = about.option.replace("-", "_")
    annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)
