"""`fedcell flower`: what the state folders of scheduled Flower runs show. A shell, like cli.py."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from fedcell.errors import InputError
from fedcell.flower.state import Run, load_run
from fedcell.plots import RoundTimes, check_picture_path, federation_figure, save
from fedcell.runs.race import RaceResult, curves, summary_tables
from fedcell.runs.store import Measured, Store
from fedcell.sim.spec import Spec

if TYPE_CHECKING:
    from rich.table import Table


def show_runs(
    folders: list[Path],
    *,
    target: float,
    plot: Path | None,
    store: Path | None,
    as_json: bool,
    console_width: int = 160,
) -> None:
    """Print the runs as a race would be, and their rounds' planned and measured times; draw and store them if asked."""
    if not 0.0 < target <= 1.0:
        raise InputError(f"--target is {target:g}; give an accuracy between 0 and 1, such as 0.8")
    if plot is not None:
        check_picture_path(plot)
    runs = [load_run(folder) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if not run.rounds:
            raise InputError(f"{folder} has no whole round yet; wait for one")
    result = _as_race(runs, target)
    if plot is not None:
        save(federation_figure(curves(result) if result else [], _round_times(runs)), plot)
    if store is not None:
        _put(store, runs)
    if as_json:
        typer.echo(json.dumps({"runs": [_document(run) for run in runs]}, indent=2, allow_nan=False))
        return
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=console_width)
    if result is None:
        console.print("The rounds have no accuracy: give Scheduled.start an evaluate_fn that returns it.\n")
    else:
        for table in summary_tables(result):
            console.print(table)
            console.print()
    console.print(_times_table(runs))
    if result is not None and len(result.policies) > 1 and len(result.seeds) > 1:
        for line in result.verdicts():
            console.print(f"  {line}", highlight=False, soft_wrap=True)
    if plot is not None:
        console.print(f"Picture: {plot}", highlight=False)


def _as_race(runs: list[Run], target: float) -> RaceResult | None:
    """The runs as a race's: policies over the seeds that all of them have; None if no accuracy was measured."""
    by_policy: dict[str, dict[int, Run]] = {}
    for run in runs:
        if run.seed in by_policy.setdefault(run.policy, {}):
            raise InputError(f"two of the folders hold {run.policy} with seed {run.seed}; give one of them")
        by_policy[run.policy][run.seed] = run
    if any(math.isnan(done.metric("accuracy")) for run in runs for done in run.rounds):
        return None
    seeds = sorted(set.intersection(*(set(found) for found in by_policy.values())))
    if not seeds:
        raise InputError("the policies have no seed in common, and a race pairs runs by seed; give folders that do")
    spec = runs[0].spec or Spec(rounds=max(len(run.rounds) for run in runs))
    records = {
        policy: [[done.record() for done in found[seed].rounds] for seed in seeds]
        for policy, found in by_policy.items()
    }
    return RaceResult(spec, list(by_policy), seeds, records, True, target)


def _times(run: Run) -> tuple[Any, Any]:
    """(n,) planned and measured seconds of the rounds in which somebody trained."""
    rounds = [done for done in run.rounds if done.devices]
    return np.array([done.planned_s for done in rounds]), np.array([done.round_s for done in rounds])


def _round_times(runs: list[Run]) -> list[RoundTimes]:
    policies = list(dict.fromkeys(run.policy for run in runs))
    several = len({run.seed for run in runs}) > 1
    names = [f"{run.policy}, seed {run.seed}" if several else run.policy for run in runs]
    return [RoundTimes(n, policies.index(run.policy), *_times(run)) for n, run in zip(names, runs, strict=True)]


def _times_table(runs: list[Run]) -> "Table":
    from rich.table import Table

    table = Table(title="Rounds as planned and as measured", title_justify="left", box=None, pad_edge=False)
    table.add_column("policy", overflow="fold")
    for heading in ("seed", "rounds", "planned s", "measured s", "median error", "worst error", "late", "missing"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        planned_s, measured_s = _times(run)
        error = np.abs(measured_s / planned_s - 1.0) if planned_s.size else np.array([np.nan])
        late = sum(len(done.late) for done in run.rounds)
        missing = sum(len(done.missing) for done in run.rounds) - late
        means = [f"{values.mean():.4g}" if values.size else "-" for values in (planned_s, measured_s)]
        errors = [f"{100 * value:.2f} %" for value in (np.median(error), error.max())]
        table.add_row(run.policy, str(run.seed), str(len(run.rounds)), *means, *errors, str(late), str(missing))
    return table


def _document(run: Run) -> dict[str, Any]:
    planned_s, measured_s = _times(run)
    return {
        "policy": run.policy,
        "seed": run.seed,
        "strategy": run.strategy,
        "devices": run.names,
        "planned_s": planned_s.tolist(),
        "measured_s": measured_s.tolist(),
        "rounds": [vars(done) for done in run.rounds],
    }


def _put(path: Path, runs: list[Run]) -> None:
    if any(run.spec is None for run in runs):
        raise InputError("--store keeps runs whose cell is known; give Scheduled the run's spec (spec=...)")
    with Store(path) as store:
        for run in runs:
            assert run.spec is not None  # seen above
            measured = [
                Measured(
                    np.array(done.devices, dtype=np.int64),
                    np.array(done.planned_finish_s, dtype=np.float64),
                    np.array(done.began_s, dtype=np.float64),
                    np.array(done.finish_s, dtype=np.float64),
                )
                for done in run.rounds
            ]
            records = [done.record() for done in run.rounds]
            store.put_measured(run.spec, records, measured, source="flower", duration_s=run.rounds[-1].clock_s)
