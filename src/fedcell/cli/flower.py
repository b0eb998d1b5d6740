"""`fedcell flower`: what the state directories of scheduled Flower runs show; `fedcell flower new`."""

import keyword
import math
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
import typer.main

from fedcell import defaults
from fedcell.cli.console import console, policy_table, summary_tables
from fedcell.cli.options import AllowImport, Json, Plot, PutStore, Target, argument, importing
from fedcell.errors import InputError

if TYPE_CHECKING:
    import click
    from rich.table import Table

    from fedcell.flower.record import ScheduledRound
    from fedcell.flower.state import Run
    from fedcell.plots import RoundTimes
    from fedcell.runs.race import RaceResult


TEMPLATE = Path(__file__).parents[1] / "flower" / "my-app"
"""The app itself, which runs as it is; `new` writes it under another name."""
NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?")
"""What both Flower and Python's packaging accept; Flower wants it of the directory, too."""


class DirectoriesOrNew(typer.core.TyperCommand):
    """`flower DIRECTORY...`, except for `flower new NAME`, which is a command of its own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: "click.Context | None" = None, **extra: Any
    ) -> "click.Context":
        """Read the arguments; they decide which command it is."""
        if args[:1] != ["new"]:
            return super().make_context(info_name, args, parent, **extra)
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(new)
        return typer.main.get_command(app).make_context(f"{info_name} new", args[1:], parent, **extra)

    def format_usage(self, ctx: "click.Context", formatter: "click.HelpFormatter") -> None:
        """Show both commands."""
        super().format_usage(ctx, formatter)
        formatter.write_usage(ctx.command_path, "new NAME", prefix=" " * len("Usage: "))


def flower(
    folders: Annotated[
        list[Path], argument("State directories of Scheduled(..., state=DIRECTORY).", metavar="DIRECTORY...")
    ],
    target: Target = defaults.TARGET_ACCURACY,
    plot: Plot = None,
    store: PutStore = None,
    allow_import: AllowImport = False,
    as_json: Json = False,
) -> None:
    """Show the results of scheduled Flower runs, or write a new app.

    Prints accuracy against time, and round times as planned and as measured. Several runs are compared by policy and
    seed, as in a race.

    `fedcell flower new NAME` writes a Flower app to start from; see `fedcell flower new --help`. A state directory that
    is called new is ./new.
    """
    from fedcell.flower.state import load_run
    from fedcell.plots import federation_figure, save_picture

    # `~/fedcell-runs/*` has runs that ended before their first round, too.
    begun = [folder for folder in folders if len(folders) == 1 or (folder / "state.json").exists()]
    for folder in [folder for folder in folders if folder not in begun]:
        typer.echo(f"fedcell: {folder} has no complete round and is left out", err=True)
    if not begun:
        raise InputError("none of the directories has a complete round yet; wait for one")
    runs = _told_apart(begun, [load_run(folder) for folder in begun])
    result = _as_race(runs, target)
    if store is not None:
        with importing(allow_import):
            _put(store, runs)
    if as_json:
        from fedcell.files import to_json

        typer.echo(to_json({"runs": [_document(run) for run in runs]}, indent=2))
    else:
        _print(runs, result)
    if plot is not None:
        save_picture(federation_figure(result.curves() if result else [], _round_times(runs)), plot)
        if not as_json:
            typer.echo(f"Picture: {plot}")


def _print(runs: list["Run"], result: "RaceResult | None") -> None:
    out = console()
    if result is None:
        out.print("The rounds have no accuracy: give Scheduled.start an evaluate_fn that returns it.\n")
    else:
        for table in summary_tables(result):
            out.print(table)
            out.print()
    out.print(_times_table(runs))
    if result is not None and len(result.policies) > 1 and len(result.seeds) > 1:
        for line in result.verdicts():
            out.print(f"  {line}", highlight=False, soft_wrap=not out.is_terminal)


def _told_apart(folders: list[Path], runs: list["Run"]) -> list["Run"]:
    """The runs; of those with equal policies and seeds, the policy's name is followed by the directory's."""
    from collections import Counter
    from dataclasses import replace

    count = Counter((run.policy, run.seed) for run in runs)
    return [
        replace(run, policy=f"{run.policy} ({folder.resolve().name})") if count[run.policy, run.seed] > 1 else run
        for folder, run in zip(folders, runs, strict=True)
    ]


def _as_race(runs: list["Run"], target: float) -> "RaceResult | None":
    """The runs as a race's: policies over the seeds that all of them have; None if no accuracy was measured."""
    from fedcell.runs.race import RaceResult
    from fedcell.sim.spec import Spec

    by_policy: dict[str, dict[int, Run]] = {}
    for run in runs:
        if _evaluated(run):
            by_policy.setdefault(run.policy, {})[run.seed] = run
    if not by_policy:
        return None
    seeds = sorted(set.intersection(*(set(found) for found in by_policy.values())))
    if not seeds:
        raise InputError("the policies have no seed in common, and a race pairs runs by seed; give directories that do")
    spec = runs[0].spec or Spec(rounds=max(len(run.rounds) for run in runs))
    records = {
        policy: [[done.record() for done in _evaluated(found[seed])] for seed in seeds]
        for policy, found in by_policy.items()
    }
    return RaceResult(spec, list(by_policy), seeds, records, True, target)


def _evaluated(run: "Run") -> list["ScheduledRound"]:
    """The rounds after which the accuracy was measured; it need not be all of them."""
    return [done for done in run.rounds if not math.isnan(done.metric("accuracy"))]


def _times(run: "Run") -> tuple[Any, Any]:
    """(n,) planned and measured seconds of the rounds in which somebody trained and that had a planned time."""
    import numpy as np

    rounds = [done for done in run.rounds if done.devices and not math.isnan(done.planned_s)]
    return np.array([done.planned_s for done in rounds]), np.array([done.round_s for done in rounds])


def _round_times(runs: list["Run"]) -> list["RoundTimes"]:
    from fedcell.plots import RoundTimes

    policies = list(dict.fromkeys(run.policy for run in runs))
    several = len({run.seed for run in runs}) > 1
    names = [f"{run.policy}, seed {run.seed}" if several else run.policy for run in runs]
    return [RoundTimes(n, policies.index(run.policy), *_times(run)) for n, run in zip(names, runs, strict=True)]


def _times_table(runs: list["Run"]) -> "Table":
    import numpy as np

    headings = ("seed", "rounds", "planned s", "measured s", "median error", "worst error", "late", "missing")
    # What devices were told, where a policy decided it.
    effort = {"epochs": "epochs", "bits": "bits a weight"}
    decided = [name for name in effort if any(getattr(done, name) for run in runs for done in run.rounds)]
    table = policy_table("Rounds as planned and as measured", *headings, *(effort[name] for name in decided))
    for run in runs:
        planned_s, measured_s = _times(run)
        error = np.abs(measured_s / planned_s - 1.0) if planned_s.size else np.array([np.nan])
        late = sum(len(done.late) for done in run.rounds)
        missing = sum(len(done.missing) for done in run.rounds) - late
        means = [f"{values.mean():.4g}" if values.size else "-" for values in (planned_s, measured_s)]
        errors = [f"{100 * value:.2f} %" for value in (np.median(error), error.max())]
        told = [[value for done in run.rounds for value in getattr(done, name) or ()] for name in decided]
        work = [f"{np.mean(values):.3g}" if values else "-" for values in told]
        table.add_row(run.policy, str(run.seed), str(len(run.rounds)), *means, *errors, str(late), str(missing), *work)
    return table


def _document(run: "Run") -> dict[str, Any]:
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


def _put(path: Path, runs: list["Run"]) -> None:
    import numpy as np

    from fedcell.runs.store import Measured, Store

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


# --- fedcell flower new ------------------------------------------------------------------------------------------


def new(
    name: Annotated[Path, argument("Directory to write, named like the app.", metavar="NAME")],
) -> None:
    """Write a Flower app whose devices fedcell schedules.

    The app trains a small PyTorch model on MNIST; put your own model and data into its task.py. It runs in Flower's
    simulation and in deployment, as its README.md says.
    """
    write_app(name)
    typer.echo(
        f"Wrote {name}. Run it in simulation:\n\n"
        f"  cd {name}\n"
        '  flwr run . --stream --federation-config "num-supernodes=10"\n\n'
        "Its README.md says how to deploy it, and where your model and data go."
    )
    missing = _missing()
    if missing:
        typer.echo(f'It needs {missing}: pip install "fedcell[flower,torch]"')


def write_app(path: Path) -> None:
    """Write the app into a directory that does not exist yet or is empty: completely, or not at all."""
    package = _package_of(path.name)
    try:
        if not path.parent.is_dir():
            raise InputError(f"cannot write {path}: {path.parent} is not a directory; create it first")
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InputError(f"{path} exists and is not a directory; give another name")
        if path.is_dir() and any(path.iterdir()):
            raise InputError(f"the directory {path} exists and is not empty; give another name")
        _write_whole_directory(path, {"my_app": package, "my-app": path.name})
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; give another place") from None


def _package_of(name: str) -> str:
    """The name of the app's package; an InputError if the app cannot have this name."""
    from importlib.metadata import packages_distributions

    if not NAME.fullmatch(name):
        better = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-0123456789")[:32].rstrip("-") or "my-app"
        raise InputError(
            f"a Flower app cannot have the name {name!r}: it starts with a letter and has only letters, digits and "
            f"hyphens, at most 32; give another, such as {better}"
        )
    package = name.lower().replace("-", "_")
    taken = {"fedcell", *sys.stdlib_module_names, *packages_distributions()}
    if keyword.iskeyword(package) or package in taken:
        raise InputError(
            f"a Flower app cannot have the name {name!r}: {package} is already a keyword, a module or an installed "
            f"package of Python; give another, such as my-{name}"
        )
    return package


def _write_whole_directory(path: Path, names: dict[str, str]) -> None:
    """Write the template with these names elsewhere, then give the directory its own."""
    import secrets
    import shutil

    scratch = path.with_name(f".fedcell-{secrets.token_hex(8)}")
    try:
        for source in sorted(TEMPLATE.rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                target = scratch / _renamed(str(source.relative_to(TEMPLATE)), names)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(_renamed(source.read_text(encoding="utf-8"), names), encoding="utf-8")
        os.replace(scratch, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _renamed(text: str, names: dict[str, str]) -> str:
    for old, new_name in names.items():
        text = text.replace(old, new_name)
    return text


def _missing() -> str:
    from importlib.util import find_spec

    return " and ".join(
        name for name, module in (("Flower", "flwr"), ("PyTorch", "torch")) if find_spec(module) is None
    )
