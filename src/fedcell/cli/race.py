"""`fedcell race`: options and a file become a race, which is watched and then shown."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcell import defaults
from fedcell.cli.console import (
    Trackers,
    Verbosity,
    announce_compiling,
    class_table,
    console,
    note_missing_models,
    notes_of,
    set_verbosity,
    summary_tables,
    verbosity,
)
from fedcell.cli.options import (
    Csv,
    Json,
    Quiet,
    Target,
    Track,
    Verbose,
    Workers,
    argument,
    check_plot,
    check_seeds,
    complete_policy,
    option,
    option_parameters,
    output_format,
    show_without_fields,
)
from fedcell.errors import InputError

if TYPE_CHECKING:
    from fedcell.runs.race import RaceResult, RaceTable
    from fedcell.runs.runner import Event
    from fedcell.sim.spec import Spec

NOTHING_KEPT = (
    "fedcell: stopped before all policies had finished a seed: nothing to show, and nothing is kept without --store"
)


def _check_axis(by: str) -> str:
    if by not in ("time", "energy"):
        raise InputError(f"--by is {by!r}; give time or energy")
    return by


def race(
    context: typer.Context,
    spec: Annotated[Path | None, argument("Race specification (TOML); --print-spec shows one.")] = None,
    policy: Annotated[
        list[str] | None,
        option(
            "Policy to race, such as random:8; repeat for several (default: diverse and the paper's six).",
            autocompletion=complete_policy,
        ),
    ] = None,
    seeds: Annotated[
        int | None, option(f"Number of random seeds, 0, 1, ... (default: {defaults.SEEDS}).", callback=check_seeds)
    ] = None,
    late_weight: Annotated[float | None, typer.Option(hidden=True)] = None,
    averaging: Annotated[str | None, typer.Option(hidden=True)] = None,
    server: Annotated[str | None, typer.Option(hidden=True)] = None,
    target: Target = defaults.TARGET_ACCURACY,
    workers: Workers = None,
    store: Annotated[
        Path | None,
        option("Store the race in this results file: an interrupted race resumes, and fedcell serve shows it."),
    ] = None,
    plot: Annotated[
        Path | None,
        option(
            "Plot accuracy against time into this .png, .svg or .pdf; none for no picture (default: race.png).",
            callback=check_plot,
        ),
    ] = Path("race.png"),
    by: Annotated[
        str,
        option(
            "What the policies are compared by: time (default), or energy: the picture is of accuracy against "
            "joules, and the verdicts of joules to the target.",
            callback=_check_axis,
        ),
    ] = "time",
    save_model: Annotated[
        str | None,
        option(
            "Save the final model of each run: into this directory, or under a name such as "
            "'models/{policy}-{seed}.npz'; .safetensors or .npz.",
            metavar="PLACE",
        ),
    ] = None,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="Show also the final models' accuracy on each class.")
    ] = False,
    track: Track = None,
    as_json: Json = False,
    as_csv: Csv = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    print_spec: Annotated[bool, typer.Option("--print-spec", help="Print the specification as TOML and exit.")] = False,
    **fields: Any,
) -> None:
    """Race policies: train real models against a simulated clock.

    Without options this is the race of the paper's Fig. 3, with two digits per device. With the same random seed, all
    policies have the same devices, channels, data and batches. Options override the file; fields that the file leaves
    out have the defaults of fedcell.Spec.
    """
    output = output_format(as_json, as_csv)
    set_verbosity(quiet, verbose)
    old = {"late_weight": late_weight, "task.averaging": averaging, "task.server": server}  # of version 0.2
    changes = old | {path: fields.get(name) for path, name in option_parameters().items()}
    from contextlib import nullcontext

    from fedcell.plugins import without_imports

    with without_imports("--print-spec imports nothing") if print_spec else nullcontext():
        contest = _build(spec, policy, seeds, {name: value for name, value in changes.items() if value is not None})
    table = _race_table(spec, {name: context.params[name] for name in ("target", "by") if _is_given(context, name)})
    target, by = table.target, table.by
    if print_spec:
        typer.echo(table.toml(contest), nl=False)
        return
    from fedcell.plots import save_picture
    from fedcell.sim.task import resolve_device

    contest = resolve_device(contest)
    trackers = Trackers(track)
    files = ModelFiles(save_model, contest)
    try:
        result = _run_watched(
            contest, target, workers, store, files, trackers, models=per_class or save_model is not None
        )
    except KeyboardInterrupt:  # before the first run began
        typer.echo(NOTHING_KEPT, err=True)
        raise typer.Exit(130) from None
    if result.stopped and store is not None:
        typer.echo(f"fedcell: stopped; what was computed is in {store}, run the same command to resume", err=True)
    if not result.seeds and not result.stopped:
        raise InputError(result.troubles()[-1])
    if not result.seeds:
        if store is None:
            typer.echo(NOTHING_KEPT, err=True)
        raise typer.Exit(130)
    if output == "json":
        typer.echo(result.to_json(per_class=per_class))
    elif output == "csv":
        typer.echo(result.to_csv(per_class=per_class), nl=False)
    else:
        _print(result, by, per_class)
    sys.stdout.flush()  # the table is there whatever becomes of the picture
    for trouble in [*result.troubles(), *files.troubles]:
        typer.echo(f"fedcell: {trouble}", err=True)
    if output == "table" and files.written:
        one, *others = files.written
        typer.echo(f"Models: {f'{1 + len(others)} files such as ' if others else ''}{one}")
    if output == "table":
        trackers.say_where()
    if plot is not None:
        save_picture(result.figure("energy" if by == "energy" else "time"), plot)
        if output == "table":
            typer.echo(f"Picture: {plot}")
    raise typer.Exit(130 if result.stopped else 2 if result.failures or files.troubles or trackers.troubles else 0)


show_without_fields(race)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)  # of click, or of the copy that newer versions of Typer have
    return source is not None and source.name != "DEFAULT"


def _race_table(path: Path | None, given: dict[str, Any]) -> "RaceTable":
    """The target and what the race is by: as given, else the file's."""
    from fedcell.runs.race import RaceTable

    return (RaceTable.load(path) if path is not None else RaceTable()).model_copy(update=given)


def _build(path: Path | None, policies: list[str] | None, seeds: int | None, changes: dict[str, Any]) -> "Spec":
    """The race: the file's, or the paper's without one, with the options put over it."""
    from fedcell.runs.race import default_race, race_policies, race_spec
    from fedcell.schedule.registry import POLICIES
    from fedcell.sim.spec import load_spec

    for text in policies or []:
        POLICIES.canonical(text)  # or its mistakes would be told as those of a grid that nobody wrote
    base = load_spec(path) if path else default_race()
    if "rounds" in changes and "budget_s" not in changes and path is None:
        changes = changes | {"budget_s": float("inf")}
    grid = dict(race_spec(base).grid)
    if policies or path is None:
        count, law = changes.get("devices.count", defaults.DEVICES), changes.get("cell.law", "density")
        grid["policy"] = policies or race_policies(max(1, count), law)
    if seeds is not None:
        grid["seed"] = list(range(seeds))
    return race_spec(base.changed(changes, grid))


class ModelFiles:
    """Writes the model of each run as it ends, so that whatever stops the race leaves those of the finished runs."""

    def __init__(self, place: str | None, race: "Spec") -> None:
        from fedcell.runs.models import model_paths

        runs = {run.key(): run for run in race.runs()} if place is not None else {}
        self._paths = model_paths(place, runs, "--save-model") if place is not None else {}
        self.written: list[Path] = []
        self.troubles: list[str] = []

    def watch(self, event: "Event") -> None:
        """Write the model of a run that has ended."""
        from fedcell.runs.models import save_model
        from fedcell.runs.runner import RunDone

        if not isinstance(event, RunDone) or event.model is None or event.key not in self._paths:
            return
        path = self._paths[event.key]
        try:
            save_model(path, event.spec, event.model)
            self.written.append(path)
        except InputError as error:  # a disk that is full now costs the model, not the race
            self.troubles.append(str(error))


def _run_watched(
    race: "Spec",
    target: float,
    workers: int | None,
    path: Path | None,
    files: ModelFiles,
    trackers: Trackers,
    *,
    models: bool,
) -> "RaceResult":
    from contextlib import nullcontext

    from rich.console import Console
    from rich.live import Live

    from fedcell.cli.console import RaceDisplay, RaceLines
    from fedcell.runs.race import run_race
    from fedcell.runs.store import Store
    from fedcell.sim.task import load_task

    announce_compiling()
    display, screen = RaceDisplay(race), Console(stderr=True)
    # Data may have to be downloaded, with a bar of its own: do it before the live display begins.
    load_task(race.task, race.devices.count, race.grid["seed"][0], threads=1)
    table = screen.is_terminal and verbosity() is Verbosity.NORMAL
    live = Live(display, console=screen, refresh_per_second=8, transient=True) if table else nullcontext()
    lines = None if table or verbosity() is Verbosity.QUIET else RaceLines(display)
    with (
        notes_of(race.runs()[:1]),  # they differ in policy and seed
        Store(path) if path is not None else nullcontext() as store,
        live,
        trackers.following(race, target, store) as track,
    ):
        if store is not None and models:
            note_missing_models(store, race.runs())

        def watch(event: "Event") -> None:
            (display if lines is None else lines).watch(event)
            files.watch(event)
            track(event)

        return run_race(
            race,
            target=target,
            workers=workers,
            store=store,
            watch=watch,
            models=models,
            return_on_interrupt=True,
        )


def _print(result: "RaceResult", by: str, per_class: bool) -> None:
    from fedcell.runs import comparisons

    out = console()
    if result.stopped:
        out.print(f"Stopped early: {len(result.seeds)} of {len(result.spec.grid['seed'])} seeds are complete.")
    for table in [*summary_tables(result), *([class_table(result)] if per_class else [])]:
        out.print(table)
        out.print()
    axes: tuple[comparisons.Axis, ...] = ("time", "energy") if by == "energy" else ("time",)
    for axis in axes if len(result.policies) > 1 else ():
        title, lines = comparisons.verdicts(result.rounds, result.target, result.limit(axis), axis)
        out.print(f"{title}:", highlight=False, soft_wrap=not out.is_terminal)
        for line in lines:
            out.print(f"  {line}", highlight=False, soft_wrap=not out.is_terminal)
    if headline := result.headline():
        out.print(headline.line(), highlight=False, soft_wrap=not out.is_terminal)
