"""`fedcell testbed`: what it does and prints. A shell, like cli.py."""

import signal
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from fedcell.errors import InputError
from fedcell.plots import check_picture_path, save
from fedcell.runs.stats import paired_difference
from fedcell.runs.store import Store
from fedcell.sim.spec import Spec
from fedcell.testbed.runs import build_runs, default_scale

if TYPE_CHECKING:
    from rich.console import Console

    from fedcell.flower import ScheduledRound
    from fedcell.testbed.cell import CellRun
    from fedcell.testbed.fault import Fault


@dataclass(frozen=True)
class Options:
    """What `fedcell testbed` was asked for; None where the spec says it, or its default holds."""

    spec: Path | None
    devices: int | None
    rounds: int | None
    scale: float | None
    policy: str | None
    compare: Sequence[str]
    seed: int | None
    seeds: int
    target_accuracy: float | None
    faults: Sequence[str]
    slack: float
    store: Path | None
    plot: Path | None
    logs: Path | None


def show_testbed(options: Options) -> int:
    """Emulate the cell, print predicted against measured, keep and draw it; return the exit status."""
    runs = build_runs(
        options.spec,
        devices=options.devices,
        rounds=options.rounds,
        policy=options.policy,
        compare=options.compare,
        seed=options.seed,
        seeds=options.seeds,
        target_accuracy=options.target_accuracy,
    )
    if options.plot is not None:
        check_picture_path(options.plot)
    if (
        options.logs is not None
        and options.logs.exists()
        and (not options.logs.is_dir() or any(options.logs.iterdir()))
    ):
        raise InputError(f"{options.logs} is no empty folder; give --logs a new one")
    from fedcell.testbed.fault import parse_fault
    from fedcell.testbed.network import why_not

    scale = default_scale(runs[0].devices.count) if options.scale is None else options.scale
    faults = [parse_fault(text, runs[0].devices.count) for text in options.faults]
    reason = why_not()
    if reason is not None:
        raise InputError(reason)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    store = nullcontext(None) if options.store is None else Store(options.store)
    with store as kept:
        done = _emulate(options, runs, scale, faults, kept)
    console = _console()
    for run in done:
        _print_run(console, run, scale)
    if len(done) > 1:
        _print_comparison(console, done)
    if options.plot is not None:
        save(_figure(done), options.plot)
        console.print(f"Picture: {options.plot}", highlight=False)
    if options.store is not None:
        console.print(f"Kept in {options.store}: {len(done)} run{'s' * (len(done) != 1)}", highlight=False)
    return 0


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """End as after Ctrl-C, so that the network is removed."""
    sys.exit(128 + number)


def _emulate(
    options: Options, runs: Sequence[Spec], scale: float, faults: Sequence["Fault"], kept: Store | None
) -> list["CellRun"]:
    from fedcell.testbed.cell import emulate

    if options.logs is not None:
        options.logs.mkdir(parents=True, exist_ok=True)
    typer.echo(f"emulating {runs[0].devices.count} devices; Flower's processes take some seconds to start", err=True)
    done = []
    cell = emulate(runs, scale=scale, faults=faults, slack=options.slack, folder=options.logs, watch=_say_round)
    with closing(cell):  # also if storing fails: then the network goes at once
        for run in cell:
            done.append(run)
            if kept is not None:
                kept.put_measured(run.spec, run.records(), run.measured(), source="testbed", duration_s=run.duration_s)
    return done


def _say_round(spec: Spec, one: "ScheduledRound") -> None:
    missing = f", missing: {', '.join(map(str, one.missing))}" if one.missing else ""
    typer.echo(
        f"{spec.policy}, seed {spec.seed}, round {one.round}: planned {one.planned_s:.3f} s, took {one.round_s:.3f} s, "
        f"{len(one.delivered)} of {len(one.devices)} devices, accuracy {one.metric('accuracy'):.1%}{missing}",
        err=True,
    )


def _console() -> "Console":
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=160)


def _print_run(console: "Console", run: "CellRun", scale: float) -> None:
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
    console.print(table)
    console.print(_verdict(run), highlight=False)
    console.print()


def _verdict(run: "CellRun") -> str:
    errors = 100 * np.abs(run.round_errors())
    whole = f"{errors.size} of {len(run.rounds)} rounds were whole"
    if errors.size == 0:
        return f"{whole}."
    late = run.late_starts()
    return (
        f"{whole}; error of their time: median {np.median(errors):.1f} %, worst {errors.max():.1f} %. "
        f"{late} upload{'s' * (late != 1)} began more than 50 ms late (Flower was slower than the compute time)."
    )


def _print_comparison(console: "Console", runs: Sequence["CellRun"]) -> None:
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
    console.print(table)
    by_policy: dict[str, list[float]] = {}
    for run in runs:
        by_policy.setdefault(run.spec.policy, []).append(sum(one.round_s for one in run.rounds))
    (first, ours), *others = by_policy.items()
    for name, theirs in others:
        console.print(_paired(first, ours, name, theirs), highlight=False, soft_wrap=True)


def _paired(first: str, ours: Sequence[float], name: str, theirs: Sequence[float]) -> str:
    """How much quicker the first policy was than another with the same seeds, in seconds on the wire."""
    less = paired_difference(theirs, ours)
    wins = sum(a < b for a, b in zip(ours, theirs, strict=True))
    whole = f"{sum(ours):.1f} s on the wire against {sum(theirs):.1f}"
    return f"{first} against {name}: {whole}; {less.text(digits=1)} s less a seed; quicker {wins} of {len(ours)} times"


def _figure(runs: Sequence["CellRun"]) -> Any:
    from fedcell.testbed.picture import RoundBars, cell_figure

    first = [run for run in runs if run.spec.seed == runs[0].spec.seed]
    panels = [
        (
            f"{run.spec.policy}, seed {run.spec.seed}",
            [
                RoundBars(one.round, one.names, m.predicted_s, m.began_s, m.measured_s, one.round_s)
                for one, m in zip(run.rounds, run.measured(), strict=True)
                if one.devices
            ],
        )
        for run in first
    ]
    return cell_figure([panel for panel in panels if panel[1]])
