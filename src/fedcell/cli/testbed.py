"""`fedcell testbed`: the cell emulated on this machine, predicted against measured."""

import signal
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from fedcell import defaults
from fedcell.cli.console import Verbosity, console, set_verbosity, verbosity
from fedcell.cli.options import Plot, PutStore, Quiet, Verbose, argument, option
from fedcell.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

    from fedcell.flower import ScheduledRound
    from fedcell.runs.store import Store
    from fedcell.sim.spec import Spec
    from fedcell.testbed.runs import CellRun, Fault


def emulate_cell(
    spec: Annotated[
        Path | None, argument("Specification (TOML) of one run (default: the paper's cell).", metavar="[SPEC.toml]")
    ] = None,
    devices: Annotated[int | None, option(f"Number of devices (default: {defaults.TESTBED_DEVICES}).")] = None,
    rounds: Annotated[
        int | None, option(f"Limit on the number of rounds (default: {defaults.TESTBED_ROUNDS}).")
    ] = None,
    scale: Annotated[
        float | None,
        option("Time scale: 1 is real time, 0.2 five times faster (default: 0.2 to 1, by the number of devices)."),
    ] = None,
    policy: Annotated[str | None, option("Scheduling policy (default: optimal).")] = None,
    compare: Annotated[
        list[str] | None,
        option("Policy to compare with, or equal for equal shares; repeat for several.", metavar="POLICY"),
    ] = None,
    seed: Annotated[int | None, option("Random seed of the first run (default: 0).")] = None,
    seeds: Annotated[int, option("Number of random seeds (default: 1).")] = 1,
    target_accuracy: Annotated[float | None, option("Stop a run when it reaches this accuracy.")] = None,
    fault: Annotated[
        list[str] | None, option("Fault to inject: cut:device=2,round=3, degrade:... or kill:...; repeat for several.")
    ] = None,
    slack: Annotated[
        float, option(f"Drop devices slower than this many times their planned time (default: {defaults.SLACK:g}).")
    ] = defaults.SLACK,
    store: PutStore = None,
    plot: Plot = None,
    logs: Annotated[Path | None, option("Keep Flower's logs in this new directory.", metavar="DIR")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Emulate the cell with real network links (Linux, root).

    Flower's own nodes train over links shaped to the planned rates. Shows when each device was planned to finish its
    upload, and when it did, measured on the wire.
    """
    from fedcell.plots import save_picture
    from fedcell.runs.store import Store
    from fedcell.testbed.network import why_not
    from fedcell.testbed.runs import build_runs, check_faults, default_scale, parse_fault

    set_verbosity(quiet, verbose)
    runs = build_runs(
        spec,
        devices=devices,
        rounds=rounds,
        policy=policy,
        compare=compare or [],
        seed=seed,
        seeds=seeds,
        target_accuracy=target_accuracy,
    )
    if logs is not None and logs.exists() and (not logs.is_dir() or any(logs.iterdir())):
        raise InputError(f"{logs} is not an empty directory; give --logs a new one")
    if scale is None:
        scale = default_scale(runs[0].devices.count)
    faults = [parse_fault(text, runs[0].devices.count) for text in fault or []]
    check_faults(faults, len(runs))  # before Flower is imported, which takes seconds
    reason = why_not()
    if reason is not None:
        raise InputError(reason)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    with nullcontext(None) if store is None else Store(store) as kept:
        done = _emulate(runs, scale, faults, slack, logs, kept)
    out = console()
    for run in done:
        _print_run(out, run, scale)
    if len(done) > 1:
        _print_comparison(out, done)
    if store is not None:
        out.print(f"Kept in {store}: {len(done)} run{'s' * (len(done) != 1)}", highlight=False)
    if plot is not None:
        save_picture(_figure(done), plot)
        out.print(f"Picture: {plot}", highlight=False)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """End as after Ctrl-C, so that the network is removed."""
    sys.exit(128 + number)


def _emulate(
    runs: Sequence["Spec"],
    scale: float,
    faults: Sequence["Fault"],
    slack: float,
    logs: Path | None,
    kept: "Store | None",
) -> list["CellRun"]:
    from fedcell.testbed.runs import emulate

    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
    if verbosity() is not Verbosity.QUIET:
        said = f"emulating {runs[0].devices.count} devices; Flower's processes take some seconds to start"
        typer.echo(said, err=True)
    done = []
    cell = emulate(runs, scale=scale, faults=faults, slack=slack, folder=logs, watch=_say_round)
    with closing(cell):  # also if storing fails: then the network goes at once
        for run in cell:
            done.append(run)
            if kept is not None:
                kept.put_measured(run.spec, run.records(), run.measured(), source="testbed", duration_s=run.duration_s)
    return done


def _say_round(spec: "Spec", one: "ScheduledRound") -> None:
    """A round in a line; with -v, also its devices, a line each."""
    if verbosity() is Verbosity.QUIET:
        return
    missing = f", missing: {', '.join(map(str, one.missing))}" if one.missing else ""
    typer.echo(
        f"{spec.policy}, seed {spec.seed}, round {one.round}: planned {one.planned_s:.3f} s, took {one.round_s:.3f} s, "
        f"{len(one.delivered)} of {len(one.devices)} devices, accuracy {one.metric('accuracy'):.1%}{missing}",
        err=True,
    )
    if verbosity() is Verbosity.VERBOSE:
        for name, share, planned_s, finish_s in zip(
            one.names, one.shares, one.planned_finish_s, one.finish_s, strict=True
        ):
            arrived = "it did not arrive" if finish_s is None else f"arrived after {finish_s:.3f} s"
            typer.echo(f"  {name}: {100 * share:.2f} % of the band, planned {planned_s:.3f} s, {arrived}", err=True)


def _print_run(out: "Console", run: "CellRun", scale: float) -> None:
    from rich.table import Table

    title = f"{run.spec.policy}, seed {run.spec.seed}, scale {scale:g}: predicted against measured on the wire"
    table = Table(title=title, title_justify="left")
    columns = ("round", "device", "share", "Mbit/s", "trains s", "uploads from s", "predicted s", "measured s", "error")
    for column in columns:
        table.add_column(column, justify="right")
    for rows in run.table():
        for row in rows:
            table.add_row(*row)
        table.add_section()
    out.print(table)
    out.print(_verdict(run), highlight=False)
    out.print()


def _verdict(run: "CellRun") -> str:
    import numpy as np

    errors = 100 * np.abs(run.round_errors())
    whole = f"{errors.size} of {len(run.rounds)} rounds were whole"
    if errors.size == 0:
        return f"{whole}."
    late = run.late_starts()
    planned, measured = (sum(sizes) / 1000 for sizes in zip(*(one[1:] for one in run.sizes), strict=True))
    return (
        f"{whole}; error of their time: median {np.median(errors):.1f} %, worst {errors.max():.1f} %. "
        f"{late} upload{'s' * (late != 1)} began more than 50 ms late (Flower was slower than the compute time). "
        f"{len(run.sizes)} uploads had {measured:,.1f} kB on the wire (planned: {planned:,.1f} kB)."
    )


def _print_comparison(out: "Console", runs: Sequence["CellRun"]) -> None:
    from rich.table import Table

    table = Table(title="Policies", title_justify="left")
    for column in ("policy", "seed", "rounds", "planned s", "on the wire s", "wall clock s", "accuracy"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for run in runs:
        planned = sum(one.planned_s for one in run.rounds)
        wire = sum(one.round_s for one in run.rounds)
        wall = run.rounds[-1].clock_s if run.rounds else 0.0
        accuracy = f"{run.rounds[-1].metric('accuracy'):.1%}" if run.rounds else "-"
        numbers = [f"{planned:.2f}", f"{wire:.2f}", f"{wall:.2f}", accuracy]
        table.add_row(run.spec.policy, str(run.spec.seed), str(len(run.rounds)), *numbers)
    out.print(table)
    by_policy: dict[str, list[float]] = {}
    for run in runs:
        by_policy.setdefault(run.spec.policy, []).append(sum(one.round_s for one in run.rounds))
    (first, ours), *others = by_policy.items()
    for name, theirs in others:
        out.print(_paired(first, ours, name, theirs), highlight=False, soft_wrap=not out.is_terminal)


def _paired(first: str, ours: Sequence[float], name: str, theirs: Sequence[float]) -> str:
    """How much quicker the first policy was than another with the same seeds, in seconds on the wire."""
    from fedcell.runs import stats

    less = stats.paired_difference(theirs, ours)
    wins = sum(a < b for a, b in zip(ours, theirs, strict=True))
    whole = f"{sum(ours):.1f} s on the wire against {sum(theirs):.1f}"
    return f"{first} against {name}: {whole}; {less.text(digits=1)} s less a seed; quicker {wins} of {len(ours)} times"


def _figure(runs: Sequence["CellRun"]) -> "Figure":
    from fedcell.plots import MeasuredBars, measured_figure

    first = [run for run in runs if run.spec.seed == runs[0].spec.seed]
    panels = [
        (
            f"{run.spec.policy}, seed {run.spec.seed}",
            [
                MeasuredBars(one.round, one.names, m.predicted_s, m.began_s, m.measured_s, one.round_s)
                for one, m in zip(run.rounds, run.measured(), strict=True)
                if one.devices
            ],
        )
        for run in first
    ]
    return measured_figure([panel for panel in panels if panel[1]])
