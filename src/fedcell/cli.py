"""The command line. Each command is thin: read, call the library, print."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcell import __version__
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
    bandwidth_hz: Annotated[float, typer.Option(help="The band that is shared.")] = 3e6,
    model_bits: Annotated[int, typer.Option(help="Size of one upload.")] = 50_890 * 32,
    noise_dbm_per_mhz: Annotated[float, typer.Option(help="Noise power density.")] = -114.0,
    path_loss_1km_db: Annotated[float, typer.Option(help="Path loss at 1 km.")] = 128.1,
    path_loss_exponent: Annotated[float, typer.Option(help="Path loss exponent.")] = 3.76,
    seed: Annotated[int, typer.Option(help="For policies that draw lots.")] = 0,
) -> None:
    """Decide one round: who trains, and with how much of the band.

    DEVICES has a line for each device with the columns upload_s (seconds to upload with the whole band) and compute_s
    (seconds to train). Instead of upload_s it may give snr_db, or distance_m and power_dbm_per_mhz; instead of
    compute_s, samples, seconds_per_sample and samples_per_second. A column device names them, must_include forces some
    in.
    """
    from fedcell import planning, units
    from fedcell.device_table import read_devices
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
    plans = planning.make_plans(table, planning.policies(policy or [], compare, theta, table), cell, theta, seed)
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
    seeds: Annotated[int | None, typer.Option(help="Seeds 0, 1, ...; 5 by default.", show_default=False)] = None,
    budget_s: Annotated[
        float | None, typer.Option(help="Simulated seconds; 450 by default.", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds, instead of or beside the budget.", show_default=False)
    ] = None,
    radius_m: Annotated[float | None, typer.Option(help="Of the cell; 1400 by default.", show_default=False)] = None,
    devices: Annotated[int | None, typer.Option(help="In the cell; 20 by default.", show_default=False)] = None,
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
    target: Annotated[float, typer.Option(help="The accuracy whose time is asked for.")] = 0.8,
    workers: Annotated[int | None, typer.Option(help="Runs at once; all cores by default.", show_default=False)] = None,
    plot: Annotated[Path, typer.Option(help="Picture of accuracy against time (.png, .svg, .pdf).")] = Path("race.png"),
    as_json: Annotated[bool, typer.Option("--json", help="Print all as JSON, for machines.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every round as CSV.")] = False,
    print_spec: Annotated[bool, typer.Option("--print-spec", help="Print the race as TOML and exit.")] = False,
) -> None:
    """Race policies: train real models against a simulated clock, and see who is accurate soonest.

    By default the contest of the paper's Fig. 3: 20 devices, radius 1400 m, two digits a device, 450 simulated seconds,
    5 seeds. Every policy of a seed meets the same devices, channels, data and batches. Options override the file.
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
    from fedcell.racing import build_race, show_race

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


def _print(renderable: Any) -> None:
    from rich.console import Console

    console = Console()
    # A pipe has no width: give the table the room it needs rather than cut names at 80 columns.
    console.print(renderable) if console.is_terminal else Console(width=160).print(renderable)


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit status 2."""
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
