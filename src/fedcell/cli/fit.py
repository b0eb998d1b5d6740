"""`fedcell fit`: the rounds model fitted to experiments."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcell import defaults
from fedcell.cli.console import announce_compiling, progress, resumable, set_verbosity
from fedcell.cli.options import Json, Plot, Quiet, Seeds, Target, Verbose, Workers, argument, option
from fedcell.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedcell.runs import fit as fits

DEFAULT_KS = (2, 4, 8, 12, 16, 20)


def fit(
    more: Annotated[list[int] | None, argument("More values for --k.", metavar="[K]...")] = None,
    partition: Annotated[
        str, option("How the data is split: labels:2 (default), labels:2,free, dirichlet:0.5 or iid.")
    ] = "labels:2",
    target: Target = defaults.TARGET_ACCURACY,
    k: Annotated[
        list[int] | None,
        option(f"Devices per round, such as --k 2 4 8 (default: {' '.join(map(str, defaults.FIT_DEVICES))})."),
    ] = None,
    seeds: Seeds = 5,
    rounds_limit: Annotated[int, option(f"Rounds per run (default: {defaults.FIT_ROUNDS}).")] = defaults.FIT_ROUNDS,
    store: Annotated[Path, option("Results file to read and add to (default: results.db).")] = Path("results.db"),
    workers: Workers = None,
    plot: Plot = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fit the rounds model beta (theta + 1/n) to experiments.

    Models are trained with n random devices a round for a fixed number of rounds; the rounds to the target are read
    trial by trial and on the averaged curve. Runs are kept in the store, so another target takes no time.
    """
    from fedcell.paper.settings import collect_runs, gather
    from fedcell.plots import save_picture
    from fedcell.runs import fit as fits

    set_verbosity(quiet, verbose)
    announce_compiling()
    if rounds_limit < 1:
        raise InputError(f"--rounds-limit is {rounds_limit}; give a whole number of at least 1")
    counts = _counts([*(k or []), *(more or [])] or DEFAULT_KS)
    wanted = fits.fit_runs(partition, counts, rounds_limit)
    with resumable(store), progress("fit") as watch:
        runs = gather(lambda specs: collect_runs(specs, store, workers, watch), wanted, seeds)
    accuracy = fits.accuracies(runs)
    found: dict[fits.Reading, fits.Fit | str] = {}
    for reading in fits.READINGS:
        try:
            found[reading] = fits.fit(accuracy, counts, target, reading)
        except InputError as error:
            found[reading] = str(error)
    needed = fits.rounds_needed_in(accuracy, counts, target)
    good = [one for one in found.values() if isinstance(one, fits.Fit)]
    if as_json:
        typer.echo(_document(partition, needed, found))
    else:
        _print_fit(partition, needed, found if good else {}, seeds)
    if not good:  # said once: no reading has a fit
        raise InputError(str(found["curve"]))
    if not as_json:
        _print_policy(good[0])
    if plot is not None:
        save_picture(_fit_figure(needed, good), plot)
        if not as_json:
            typer.echo(f"Picture: {plot}")


def _counts(ks: Sequence[int]) -> list[int]:
    """The different numbers of devices, in order."""
    counts = sorted(set(ks))
    if len(counts) < 2 or counts[0] < 1 or counts[-1] > 20:
        raise InputError(f"--k is {', '.join(map(str, ks))}; give at least two different numbers from 1 to 20")
    return counts


def _print_fit(
    partition: str, needed: "fits.RoundsNeeded", found: Mapping["fits.Reading", "fits.Fit | str"], seeds: int
) -> None:
    from fedcell.runs import fit as fits

    of = f"{seeds} trial{'s' * (seeds != 1)} of at most {needed.limit} rounds"
    typer.echo(f"Rounds to {100 * needed.target:g} % on {partition}, {of}:")
    typer.echo("  devices  on the averaged curve  median over trials  trials that reached it")
    for k, curve, median, trials in zip(needed.ks, needed.on_curve, needed.medians(), needed.by_trial, strict=True):
        reached = sum(map(math.isfinite, trials))
        typer.echo(f"  {k:7d}  {_rounds(curve, needed):>21}  {_rounds(median, needed):>18}  {reached:>14} of {seeds}")
    if needed.censored():
        typer.echo(
            "Trials that did not reach it are censored: the median counts them as later than all others; a number of "
            "devices without a value is left out of the fit."
        )
    for reading, one in found.items():
        typer.echo(f"Fit of N = beta (theta + 1/n), {fits.READINGS[reading]}:")
        typer.echo(f"  none: {one}" if isinstance(one, str) else _fit_text(one))


def _document(partition: str, needed: "fits.RoundsNeeded", found: Mapping["fits.Reading", "fits.Fit | str"]) -> str:
    """The fit for machines; None where the target was not reached."""
    from dataclasses import asdict

    from fedcell.files import to_json

    first = next((one for one in found.values() if not isinstance(one, str)), None)
    columns = zip(needed.ks, needed.on_curve.tolist(), needed.medians().tolist(), needed.by_trial.tolist(), strict=True)
    document = {
        "partition": partition,
        "target": needed.target,
        "rounds_limit": needed.limit,
        "rounds": [{"devices": k, "curve": curve, "median": m, "trials": trials} for k, curve, m, trials in columns],
        "fits": {
            reading: {"reason": one} if isinstance(one, str) else {k: _listed(v) for k, v in asdict(one).items()}
            for reading, one in found.items()
        },
        "policy": None if first is None else first.policy,
    }
    return to_json(document, indent=2)


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _rounds(value: float, needed: "fits.RoundsNeeded") -> str:
    return f"{value:g}" if math.isfinite(value) else f"more than {needed.limit}"


def _fit_text(one: "fits.Fit") -> str:
    said = f"  beta = {one.beta:.4g} {_span(one.beta_interval)}, theta = {one.theta:.4g} {_span(one.theta_interval)}"
    return said + (f"; without n = {', '.join(map(str, one.left_out))}" if one.left_out else "")


def _span(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"(95 % [{low:.4g}, {high:.4g}])" if math.isfinite(low) else "(no bounded 95 % interval)"


def _print_policy(one: "fits.Fit") -> None:
    from fedcell.schedule.convergence import largest_set

    typer.echo(f"Policy: {one.policy}")
    most = largest_set(one.theta)
    if math.isfinite(most):
        typer.echo(
            f"note: theta is negative: beyond {most:g} devices the model has no meaning, and the policy takes no more",
            err=True,
        )


def _fit_figure(needed: "fits.RoundsNeeded", good: Sequence["fits.Fit"]) -> "Figure":
    import numpy as np

    from fedcell.plots import Line, lines_figure
    from fedcell.runs import fit as fits

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
