"""The command line. Each command is thin: read, call the library, print."""

import gc
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcell import __version__, defaults
from fedcell.errors import InputError

app = typer.Typer(
    name="fedcell",
    help="Which devices of a radio cell train this round, and how much of the band each one gets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedcell {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def plan(
    devices: Annotated[
        str,
        typer.Argument(
            metavar="DEVICES", help="CSV or JSON file of devices, or - for standard input.", show_default=False
        ),
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Such as optimal:theta=0, greedy, deadline:seconds=8. Repeat it to compare.", show_default=False
        ),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="All policies side by side (or those given).")] = False,
    theta: Annotated[
        float, typer.Option(help="Of the rounds model beta (theta + 1/n); see Table I of the paper.")
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for spreadsheets.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the round into this .png, .svg or .pdf.", show_default=False)
    ] = None,
    bandwidth_hz: Annotated[float, typer.Option(help="The band that is shared.")] = defaults.BANDWIDTH_HZ,
    model_bits: Annotated[int, typer.Option(help="Size of one upload.")] = defaults.MODEL_BITS,
    noise_dbm_per_mhz: Annotated[float, typer.Option(help="Noise power density.")] = defaults.NOISE_DBM_PER_MHZ,
    path_loss_1km_db: Annotated[float, typer.Option(help="Path loss at 1 km.")] = defaults.PATH_LOSS_1KM_DB,
    path_loss_exponent: Annotated[float, typer.Option(help="Path loss exponent.")] = defaults.PATH_LOSS_EXPONENT,
    seed: Annotated[int, typer.Option(help="For policies that draw lots.")] = 0,
) -> None:
    """Decide one round: who trains, and with how much of the band.

    DEVICES has a line for each device with the columns upload_s (seconds to upload with the whole band) and compute_s
    (seconds to train). Instead of upload_s it may give snr_db, or distance_m and power_dbm_per_mhz; instead of
    compute_s, samples, seconds_per_sample and samples_per_second. A column device names them, must_include forces some
    in.
    """
    from fedcell import units
    from fedcell.plan import plans as planning
    from fedcell.plan.device_table import read_devices
    from fedcell.plots import check_picture_path, save
    from fedcell.world import Cell

    if as_json and as_csv:
        raise InputError("--json and --csv were both given; choose one")
    if not -1000 <= noise_dbm_per_mhz <= 1000:
        raise InputError(f"--noise-dbm-per-mhz is {noise_dbm_per_mhz:g}; give a number between -1000 and 1000")
    if plot is not None:
        check_picture_path(plot)
    cell = Cell(
        bandwidth_hz=bandwidth_hz,
        model_bits=model_bits,
        noise_w_per_hz=units.dbm_per_mhz(noise_dbm_per_mhz),
        path_loss_1km_db=path_loss_1km_db,
        path_loss_exponent=path_loss_exponent,
    )
    table = read_devices(devices, cell)
    for note in table.notes:
        typer.echo(f"note: {note}", err=True)
    comparing = compare or len(policy or []) > 1
    plans = planning.plan_round(table, policy or [], cell, theta, seed, compare=compare)
    for note in planning.notes(plans):
        typer.echo(f"note: {note}", err=True)
    if plot is not None:
        save(planning.figure(plans), plot)
    if as_json:
        typer.echo(planning.to_json(plans, comparing))
    elif as_csv:
        typer.echo(planning.to_csv(plans, comparing), nl=False)
    else:
        _print(planning.comparison_table(plans) if comparing else planning.plan_table(plans[0]))


@app.command()
def race(
    spec: Annotated[
        Path | None, typer.Argument(help="TOML file of the race (see --print-spec).", show_default=False)
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy of the race; repeat it. By default the paper's.", show_default=False),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help=f"Seeds 0, 1, ...; {defaults.SEEDS} by default.", show_default=False)
    ] = None,
    budget_s: Annotated[
        float | None, typer.Option(help=f"Simulated seconds; {defaults.BUDGET_S:g} by default.", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds, instead of or beside the budget.", show_default=False)
    ] = None,
    radius_m: Annotated[
        float | None, typer.Option(help=f"Of the cell; {defaults.RACE_RADIUS_M:g} by default.", show_default=False)
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help=f"In the cell; {defaults.DEVICES} by default.", show_default=False)
    ] = None,
    mobility: Annotated[
        str | None, typer.Option(help="redrawn, static or waypoint:speed_mps=1.5,pause_s=10.", show_default=False)
    ] = None,
    fading: Annotated[str | None, typer.Option(help="none, rayleigh or rician.", show_default=False)] = None,
    shadowing_db: Annotated[
        float | None, typer.Option(help="Standard deviation; 0 is none.", show_default=False)
    ] = None,
    failure: Annotated[float | None, typer.Option(help="Probability that a model is lost.", show_default=False)] = None,
    knowledge: Annotated[
        str | None, typer.Option(help="Of compute times: perfect, expected or observed.", show_default=False)
    ] = None,
    data: Annotated[str | None, typer.Option(help="mnist, fashion-mnist or a .npz file.", show_default=False)] = None,
    partition: Annotated[
        str | None, typer.Option(help="iid, labels:2, labels:2,free or dirichlet:0.5.", show_default=False)
    ] = None,
    engine: Annotated[str | None, typer.Option(help="mlp or torch.", show_default=False)] = None,
    model: Annotated[str | None, typer.Option(help="mlp, cnn or package.module:function.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="Of the torch engine: cpu or cuda.", show_default=False)] = None,
    target: Annotated[float, typer.Option(help="The accuracy whose time is asked for.")] = defaults.TARGET_ACCURACY,
    workers: Annotated[int | None, typer.Option(help="Runs at once; all cores by default.", show_default=False)] = None,
    plot: Annotated[Path, typer.Option(help="Picture of accuracy against time (.png, .svg, .pdf).")] = Path("race.png"),
    as_json: Annotated[bool, typer.Option("--json", help="Print all as JSON, for machines.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every round as CSV.")] = False,
    print_spec: Annotated[bool, typer.Option("--print-spec", help="Print the race as TOML and exit.")] = False,
) -> None:
    """Race policies: train real models against a simulated clock, and see who is accurate soonest.

    By default the contest of the paper's Fig. 3, with two digits a device. Every policy of a seed meets the same
    devices, channels, data and batches. Options override the file; what a file leaves out is as in fedcell.Spec.
    """
    changes = {
        "budget_s": budget_s,
        "rounds": rounds,
        "knowledge": knowledge,
        "cell.radius_m": radius_m,
        "cell.fading": fading,
        "cell.shadowing_db": shadowing_db,
        "devices.count": devices,
        "devices.mobility": mobility,
        "devices.failure": failure,
        "task.data": data,
        "task.partition": partition,
        "task.engine": engine,
        "task.model": model,
        "task.device": device,
    }
    from fedcell.cli.racing import build_race, show_race

    if as_json and as_csv:
        raise InputError("--json and --csv were both given; choose one")
    contest = build_race(spec, policy, seeds, {name: value for name, value in changes.items() if value is not None})
    if print_spec:
        typer.echo(contest.to_toml(), nl=False)
        return
    sys.exit(
        show_race(
            contest, target=target, workers=workers, plot=plot, output="json" if as_json else "csv" if as_csv else ""
        )
    )


@app.command()
def sweep(
    spec: Annotated[
        Path, typer.Argument(help="TOML file with a [grid] of fields and their values.", show_default=False)
    ],
    store: Annotated[Path, typer.Option(help="SQLite file of the results; made if there is none.")] = Path(
        "results.db"
    ),
    workers: Annotated[int | None, typer.Option(help="Runs at once; all cores by default.", show_default=False)] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Run on this Dask scheduler, such as tcp://10.0.0.1:8786.", show_default=False
        ),
    ] = None,
) -> None:
    """Run every combination of a spec's grid that the store lacks, on all cores or on a cluster.

    Each run is stored as it ends: stop it or kill it at any time, and start it again to finish the rest. A run that
    fails is recorded with its reason, does not stop the others, and is tried again by the next sweep.
    """
    from fedcell.cli.sweeping import sweep as run

    sys.exit(run(spec, store, workers, cluster))


results = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What a store of `fedcell sweep` holds.")
app.add_typer(results, name="results")
StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="SQLite file of the results.", show_default=False)]


@results.command("list")
def list_results(
    store: StoreArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """List the runs: key, policy, seed, the fields in which they differ, rounds, best and last accuracy."""
    from fedcell.cli.sweeping import list_runs

    list_runs(store, as_json)


@results.command("show")
def show_result(
    store: StoreArgument,
    key: Annotated[str, typer.Argument(help="The first digits of the run's key.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Show one run: its settings, how it went, its rounds."""
    from fedcell.cli.sweeping import show_run

    show_run(store, key, as_json)


@results.command("export")
def export_results(
    store: StoreArgument,
    as_csv: Annotated[
        Path | None, typer.Option("--csv", help="This file, or rounds.csv and runs.csv in this folder.")
    ] = None,
    as_parquet: Annotated[Path | None, typer.Option("--parquet", help="This file; with the plans.")] = None,
) -> None:
    """Write the rounds of all finished runs, with their run's key, policy, seed and differing fields."""
    from fedcell.cli.sweeping import export

    export(store, as_csv, as_parquet)


@results.command("delete")
def delete_results(
    store: StoreArgument,
    key: Annotated[list[str] | None, typer.Argument(help="The first digits of runs' keys.", show_default=False)] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All runs that failed.")] = False,
    policy: Annotated[str | None, typer.Option(help="All runs of this policy.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete runs from the store."""
    from fedcell.cli.sweeping import delete

    sys.exit(delete(store, key or [], failed, policy, yes))


@app.command()
def fit(
    more: Annotated[
        list[int] | None, typer.Argument(metavar="[K]...", help="More numbers of devices.", show_default=False)
    ] = None,
    partition: Annotated[str, typer.Option(help="iid, labels:2, labels:2,free or dirichlet:0.5.")] = "labels:2",
    target: Annotated[float, typer.Option(help="The accuracy whose rounds are counted.")] = defaults.TARGET_ACCURACY,
    k: Annotated[
        list[int] | None,
        typer.Option(
            help=f"Random devices a round, such as --k 2 4 8; by default {' '.join(map(str, defaults.FIT_DEVICES))}.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Trials, with the seeds 0, 1, ...")] = defaults.SEEDS,
    rounds_limit: Annotated[int, typer.Option(help="Rounds after which a trial ends.")] = defaults.FIT_ROUNDS,
    store: Annotated[Path, typer.Option(help="SQLite file that is read and filled.")] = Path("results.db"),
    workers: Annotated[int | None, typer.Option(help="Runs at once; all cores by default.", show_default=False)] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the fit into this .png, .svg or .pdf.", show_default=False)
    ] = None,
) -> None:
    """Fit the rounds model beta (theta + 1/n) to experiments, and print the policy that uses it.

    Models are trained with n random devices a round for a fixed number of rounds; the rounds to the target are read
    trial by trial and on the averaged curve. Runs are kept in the store, so another target takes no time.
    """
    from fedcell.cli.reproducing import show_fit

    ks = [*(k or []), *(more or [])] or list(defaults.FIT_DEVICES)
    show_fit(partition, target=target, ks=ks, seeds=seeds, limit=rounds_limit, store=store, workers=workers, plot=plot)


@app.command()
def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIGURE]...",
            help="fig1a fig1b fig2 table1 fig3a fig3b fig3c fig3d calibration, or all (the default).",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Trials, with the seeds 0, 1, ...")] = defaults.SEEDS,
    out: Annotated[Path, typer.Option(help="Folder of the pictures, the tables and index.html.")] = Path("out/paper"),
    store: Annotated[
        Path | None,
        typer.Option(
            help="SQLite file that is read and filled; results.db in the folder by default.", show_default=False
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Runs at once; all cores by default.", show_default=False)] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny settings, to try it out; the results mean nothing.")
    ] = False,
) -> None:
    """Make the paper's figures and tables anew, and a page that sets each printed number beside ours.

    Everything is kept in the store: what was interrupted goes on where it was, and a second time takes seconds.
    """
    from fedcell.cli.reproducing import reproduce as make_figures

    make_figures(figures or [], seeds=seeds, out=out, store=store, workers=workers, quick=quick)


@app.command()
def flower(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER...", help="State folders of Scheduled(..., state=FOLDER).", show_default=False),
    ],
    target: Annotated[float, typer.Option(help="The accuracy whose time is asked for.")] = defaults.TARGET_ACCURACY,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the runs into this .png, .svg or .pdf.", show_default=False)
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Put the runs into this SQLite file of results.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Show what scheduled Flower runs did: accuracy against time, and rounds as planned and as measured.

    Several folders are set side by side as a race's policies and seeds are.
    """
    from fedcell.cli.federating import show_runs

    show_runs(folders, target=target, plot=plot, store=store, as_json=as_json)


@app.command("testbed")
def emulate(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="[SPEC.toml]", help="A run; without one, the paper's cell.", show_default=False),
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help=f"How many; {defaults.TESTBED_DEVICES} by default.", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help=f"At most so many; {defaults.TESTBED_ROUNDS} by default.", show_default=False)
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            help="Every second times this; 1 is the paper's cell at full length; by default 0.2 to 1, by the devices.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Who trains; optimal by default.", show_default=False)] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            help="Another policy on the same draws, or equal: equal shares; repeat it.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the first run; 0 by default.", show_default=False)] = None,
    seeds: Annotated[int, typer.Option(help="Run with so many seeds, one after the other.")] = 1,
    target_accuracy: Annotated[
        float | None, typer.Option(help="A run ends when it is reached.", show_default=False)
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="cut:device=2,round=3, degrade:... or kill:...; repeat it.", show_default=False),
    ] = None,
    slack: Annotated[
        float, typer.Option(help="Who takes longer than this times the plan is left out.")
    ] = defaults.SLACK,
    store: Annotated[
        Path | None, typer.Option(help="Put the runs into this SQLite file of results.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw predicted and measured into this .png, .svg or .pdf.", show_default=False)
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep Flower's logs in this new folder.", show_default=False)
    ] = None,
) -> None:
    """Emulate the cell on this machine: Flower's own nodes train over links shaped to the plan's rates (Linux, root).

    Shows when each device was to have delivered, and when it had, measured on the wire.
    """
    from fedcell.cli.emulating import Options, show_testbed

    options = Options(
        spec=spec,
        devices=devices,
        rounds=rounds,
        scale=scale,
        policy=policy,
        compare=compare or [],
        seed=seed,
        seeds=seeds,
        target_accuracy=target_accuracy,
        faults=fault or [],
        slack=slack,
        store=store,
        plot=plot,
        logs=logs,
    )
    raise typer.Exit(show_testbed(options))


@app.command()
def serve(
    store: Annotated[
        Path, typer.Argument(metavar="[STORE]", help="SQLite file of the results; made if there is none.")
    ] = Path("results.db"),
    read: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A further store, read only; repeat it.")
    ] = None,
    paper: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="What fedcell reproduce wrote; out/paper by default, if there.", show_default=False
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Listen for other machines too, with --token; 127.0.0.1 by default.", show_default=False),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(help="That every request must carry; or set FEDCELL_TOKEN.", show_default=False),
    ] = None,
    port: Annotated[int, typer.Option(help="0 picks a free one.")] = defaults.PORT,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    workers: Annotated[int | None, typer.Option(help="Runs at once; all cores by default.", show_default=False)] = None,
) -> None:
    """Serve the dashboard on this machine: races, the cell, plans and results in a browser.

    Only this machine can reach it, unless --host and --token are given. Ctrl-C ends it; a race that was under way can
    be resumed the next time.
    """
    from fedcell.cli.serving import serve as run

    run(store, read or [], paper, host=host, token=token, port=port, browser=browser, workers=workers)


def _print(renderable: Any) -> None:
    from rich.console import Console

    console = Console()
    # A pipe has no width: give the table the room it needs rather than cut names at 80 columns.
    console.print(renderable) if console.is_terminal else Console(width=160).print(renderable)


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit status 2."""
    gc.set_threshold(100_000, 50, 50)  # collecting while thousands of modules' objects are made is a sixth of start-up
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name that the terminal cannot show is shown in escapes
            stream.reconfigure(errors="backslashreplace")
    sys.path.insert(0, "")  # so that --policy my_module:MyPolicy finds my_module.py in this folder
    try:
        app()
    except InputError as error:
        typer.echo(f"fedcell: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("fedcell: interrupted", err=True)
        sys.exit(130)
    except OSError as error:  # the commands handle those of their files; this is a full disc behind the output, say
        typer.echo(f"fedcell: {error.filename or 'standard output'}: {error.strerror}; mend it and repeat", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the rest would fail again at exit
        sys.exit(2)


if __name__ == "__main__":
    main()
