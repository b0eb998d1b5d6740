"""`fedcell reproduce` and `fedcell fit`: options become runs, pictures, tables and a page. A shell, like cli.py."""

import csv
import io
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

from fedcell.errors import InputError
from fedcell.paper.figures import FIGURES, chosen
from fedcell.paper.output import Output
from fedcell.paper.report import page
from fedcell.paper.runs import Watch, collect
from fedcell.paper.settings import Settings, gather
from fedcell.plots import Line, check_picture_path, lines_figure, save
from fedcell.runs import fit as fits
from fedcell.runs.rows import Rounds
from fedcell.runs.store import Store
from fedcell.runs.sweep import Progress
from fedcell.schedule.convergence import largest_set
from fedcell.sim.spec import Spec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SEEDS = 10_000


def reproduce(
    names: Sequence[str], *, seeds: int, out: Path, store: Path | None, workers: int | None, quick: bool
) -> None:
    """Make the figures and the page; all files appear in the folder at the end, or none."""
    wanted = chosen(names)
    _check(seeds, workers)
    settings = Settings.quick(seeds) if quick else Settings(seeds=seeds)
    if store is not None:
        with Store(store):  # a bad one is refused before anything is made
            pass
    _make_folder(out)
    place = store or out / "results.db"
    outputs: list[Output] = []
    for name in wanted:
        with _watching(name) as watch:

            def run(specs: Sequence[Spec], watch: Watch = watch) -> dict[str, Rounds]:
                return collect(specs, place, workers, watch)

            outputs.append(FIGURES[name](settings, run))
    command = " ".join(["fedcell reproduce", *(names or ["all"]), f"--seeds {seeds}", *(["--quick"] * quick)])
    _write_all(outputs, settings, command, out)
    for output in outputs:
        for claim in output.claims:
            typer.echo(f"{claim.verdict}: {claim.text}")
    typer.echo(f"Page: {out / 'index.html'}")


def _check(seeds: int, workers: int | None) -> None:
    if not 1 <= seeds <= MAX_SEEDS:
        raise InputError(f"--seeds is {seeds}; give a whole number from 1 to {MAX_SEEDS:,}")
    if workers is not None and workers < 1:
        raise InputError(f"--workers is {workers}; give a whole number of at least 1")


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot write into {str(out)[:200]}: {reason}; give another --out") from None


@contextmanager
def _watching(name: str) -> Iterator[Watch]:
    """A progress bar for one figure; without a terminal, a line when it has run something."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    ran = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(name, total=None)

        def watch(progress: Progress) -> None:
            nonlocal ran
            ran = max(ran, progress.done)
            bar.update(task, total=progress.total, completed=progress.skipped + progress.done)

        yield watch
    if ran and not console.is_terminal:
        typer.echo(f"{name}: done", err=True)


def _write_all(outputs: Sequence[Output], settings: Settings, command: str, out: Path) -> None:
    """Write into a scratch folder beside the files, then move them: nobody sees half a report."""
    scratch = Path(tempfile.mkdtemp(prefix=".fedcell-", dir=out))
    try:
        pictures: dict[str, bytes] = {}
        for output in outputs:
            (scratch / f"{output.name}.csv").write_text(_csv(output), encoding="utf-8")
            if output.figure is not None:
                for ending in ("svg", "png"):
                    save(output.figure, scratch / f"{output.name}.{ending}")
                pictures[output.name] = (scratch / f"{output.name}.png").read_bytes()
        (scratch / "index.html").write_text(page(outputs, pictures, settings, command), encoding="utf-8")
        for path in sorted(scratch.iterdir()):
            os.replace(path, out / path.name)
    except OSError as error:
        raise InputError(f"cannot write into {out}: {error.strerror}; give another --out") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _csv(output: Output) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    headings, rows = output.csv
    writer.writerow(headings)
    writer.writerows([["" if isinstance(v, float) and math.isnan(v) else v for v in row] for row in rows])
    return text.getvalue()


def show_fit(
    partition: str,
    *,
    target: float,
    ks: Sequence[int],
    seeds: int,
    limit: int,
    store: Path,
    workers: int | None,
    plot: Path | None,
) -> None:
    """Run or read the fit's runs, print beta and theta in both readings, draw the fit."""
    _check(seeds, workers)
    if not 0.0 < target <= 1.0:
        raise InputError(f"--target is {target:g}; give an accuracy between 0 and 1, such as 0.8")
    if limit < 1:
        raise InputError(f"--rounds-limit is {limit}; give a whole number of at least 1")
    if plot is not None:
        check_picture_path(plot)
    counts = sorted(set(ks))
    if len(counts) < 2 or counts[0] < 1 or counts[-1] > 20:
        raise InputError(f"--k is {', '.join(map(str, ks))}; give at least two different numbers from 1 to 20")
    wanted = fits.fit_runs(partition, counts, limit)
    with _watching("fit") as watch:
        runs = gather(lambda specs: collect(specs, store, workers, watch), wanted, seeds)
    accuracy = fits.accuracies(runs)
    found: dict[fits.Reading, fits.Fit | str] = {}
    for reading in fits.READINGS:
        try:
            found[reading] = fits.fit(accuracy, counts, target, reading)
        except InputError as error:
            found[reading] = str(error)
    needed = fits.rounds_needed_in(accuracy, counts, target)
    _print_fit(partition, needed, found, seeds)
    good = [one for one in found.values() if isinstance(one, fits.Fit)]
    if plot is not None and good:
        save(_fit_figure(needed, good), plot)
        typer.echo(f"Picture: {plot}")
    if not good:
        raise InputError(str(found["curve"]))
    _print_policy(good[0])


def _print_fit(
    partition: str, needed: fits.RoundsNeeded, found: dict[fits.Reading, "fits.Fit | str"], seeds: int
) -> None:
    typer.echo(f"Rounds to {100 * needed.target:g} % on {partition}, {seeds} trials of at most {needed.limit} rounds:")
    typer.echo("  devices  on the averaged curve  median over trials  trials that got there")
    for k, curve, median, trials in zip(needed.ks, needed.on_curve, needed.medians(), needed.by_trial, strict=True):
        reached = int(np.isfinite(trials).sum())
        typer.echo(f"  {k:7d}  {_rounds(curve, needed):>21}  {_rounds(median, needed):>18}  {reached:>14} of {seeds}")
    if needed.censored():
        typer.echo(
            "Trials that did not get there are censored: the median counts them as later than all others; a number of "
            "devices without a value is left out of the fit."
        )
    for reading, one in found.items():
        typer.echo(f"Fit of N = beta (theta + 1/n), {fits.READINGS[reading]}:")
        typer.echo(f"  none: {one}" if isinstance(one, str) else _fit_text(one))


def _rounds(value: float, needed: fits.RoundsNeeded) -> str:
    return f"{value:g}" if math.isfinite(value) else f"more than {needed.limit}"


def _fit_text(one: fits.Fit) -> str:
    said = f"  beta = {one.beta:.4g} {_span(one.beta_interval)}, theta = {one.theta:.4g} {_span(one.theta_interval)}"
    return said + (f"; without n = {', '.join(map(str, one.left_out))}" if one.left_out else "")


def _span(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"(95 % [{low:.4g}, {high:.4g}])" if math.isfinite(low) else "(no bounded 95 % interval)"


def _print_policy(one: fits.Fit) -> None:
    typer.echo(f"Policy: {fits.policy_line(one)}")
    most = largest_set(one.theta)
    if math.isfinite(most):
        typer.echo(
            f"note: theta is negative: beyond {most:g} devices the model has no meaning, and the policy takes no more",
            err=True,
        )


def _fit_figure(needed: fits.RoundsNeeded, good: Sequence[fits.Fit]) -> "Figure":
    n = np.array(needed.ks, dtype=np.float64)
    lines = []
    for one, colour, marker, dash in zip(good, ("#0072b2", "#d55e00"), "os", ("-", "--"), strict=False):
        rounds, name = needed.reading(one.reading), fits.READINGS[one.reading]
        reached = np.isfinite(rounds)
        lines.append(Line(f"{name}, rounds needed", n[reached], rounds[reached], None, colour, "", marker))
        fine = np.linspace(min(one.used), max(one.used), 200)
        formula = f"{name}: {one.beta:.4g} ({one.theta:.4g} + 1/n)"
        lines.append(Line(formula, fine, one.beta * (one.theta + 1 / fine), None, colour, dash))
    return lines_figure(
        lines,
        "devices a round, n",
        f"rounds to {100 * needed.target:g} %",
        y_limits=(0, None),
        legend="upper right",
    )
