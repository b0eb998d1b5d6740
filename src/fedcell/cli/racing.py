"""`fedcell race`: options and a file become a race, which is watched and then shown. A shell, like cli.py."""

import sys
from pathlib import Path
from typing import Any, Literal

import typer

from fedcell.cli.live import RaceDisplay
from fedcell.errors import InputError
from fedcell.plots import check_picture_path, race_figure, save
from fedcell.runs.race import (
    PAPER_POLICIES,
    RaceResult,
    curves,
    race_spec,
    run_race,
    summary_tables,
    title,
    to_csv,
    to_json,
)
from fedcell.sim.spec import Spec, load_spec
from fedcell.sim.task import load_task


def build_race(path: Path | None, policies: list[str] | None, seeds: int | None, changes: dict[str, Any]) -> Spec:
    """Return the race: the file's, or the paper's without one, with the options put over it."""
    base = load_spec(path) if path else Spec(grid={"policy": list(PAPER_POLICIES), "seed": list(range(5))})
    if "rounds" in changes and "budget_s" not in changes and path is None:
        changes = changes | {"budget_s": float("inf")}
    grid = dict(race_spec(base).grid)
    if policies:
        grid["policy"] = policies
    if seeds is not None:
        if not 1 <= seeds <= 10_000:
            raise InputError(f"--seeds is {seeds}; give a whole number from 1 to 10,000")
        grid["seed"] = list(range(seeds))
    return race_spec(base.changed(changes, grid))


def show_race(race: Spec, *, target: float, workers: int | None, plot: Path, output: Literal["", "json", "csv"]) -> int:
    """Run the race, show it live, print its table, draw its picture; return the exit status."""
    if not 0.0 < target <= 1.0:
        raise InputError(f"--target is {target:g}; give an accuracy between 0 and 1, such as 0.8")
    if workers is not None and workers < 1:
        raise InputError(f"--workers is {workers}; give a whole number of at least 1")
    check_picture_path(plot)
    result = _run_watched(race, target, workers)
    if not result.seeds:
        typer.echo("fedcell: stopped before any seed was finished by all policies; nothing to show", err=True)
        return 130
    save(race_figure(curves(result), title(result), race.budget_s), plot)
    if output:
        typer.echo(to_json(result) if output == "json" else to_csv(result), nl=output == "json")
    else:
        _print_result(result, plot)
    return 0 if result.complete else 130


def _run_watched(race: Spec, target: float, workers: int | None) -> RaceResult:
    from rich.console import Console
    from rich.live import Live

    display, console = RaceDisplay(race), Console(stderr=True)
    # Data may have to be downloaded, with a bar of its own: do it before the live display begins.
    load_task(race.task, race.devices.count, race.grid["seed"][0], threads=1)
    if not console.is_terminal:
        runs = len(race.grid["policy"]) * len(race.grid["seed"])
        typer.echo(f"racing: {runs} runs; a terminal would show them live", err=True)
        return run_race(race, target=target, workers=workers, watch=display.watch)
    with Live(display, console=console, refresh_per_second=8, transient=True):
        return run_race(race, target=target, workers=workers, watch=display.watch)


def _print_result(result: RaceResult, plot: Path) -> None:
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=160)
    if not result.complete:
        console.print(f"Stopped early: {len(result.seeds)} of {len(result.spec.grid['seed'])} seeds are whole.")
    for table in summary_tables(result):
        console.print(table)
        console.print()
    if len(result.policies) > 1:
        console.print("Best accuracy, paired by seed:")
        for line in result.verdicts():
            console.print(f"  {line}", highlight=False, soft_wrap=True)
    console.print(f"Picture: {plot}", highlight=False)
