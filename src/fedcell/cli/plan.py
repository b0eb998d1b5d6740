"""`fedcell plan`: one round for a table of devices."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fedcell import defaults
from fedcell.cli.console import announce_compiling, console, set_verbosity
from fedcell.cli.options import Csv, Json, LawOption, Plot, Quiet, argument, complete_policy, option, output_format
from fedcell.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from fedcell.plan.plans import TablePlan

MAX_ROWS = 100
"""A terminal shows so many devices; --json and --csv list all."""


def plan(
    devices: Annotated[str, argument("CSV or JSON file of devices, or - for standard input.", metavar="DEVICES")],
    policy: Annotated[
        list[str] | None,
        option(
            "Policy, such as optimal, diverse, random:8 or deadline:seconds=8; repeat to compare.",
            autocompletion=complete_policy,
        ),
    ] = None,
    law: LawOption = None,
    compare: Annotated[bool, typer.Option("--compare", help="Compare all policies, or those given.")] = False,
    theta: Annotated[
        float | None, option("theta of the rounds model beta (theta + 1/n) (default: the first policy's, or 0).")
    ] = None,
    as_json: Json = False,
    as_csv: Csv = False,
    plot: Plot = None,
    bandwidth_hz: Annotated[
        float, option(f"Uplink bandwidth (default: {defaults.BANDWIDTH_HZ:g}).")
    ] = defaults.BANDWIDTH_HZ,
    model_bits: Annotated[int, option(f"Size of one upload (default: {defaults.MODEL_BITS}).")] = defaults.MODEL_BITS,
    epochs: Annotated[
        float, option("Local epochs that compute_s is for; a policy may decide others (default: 1).")
    ] = 1.0,
    noise_dbm_per_mhz: Annotated[
        float, option(f"Noise power density (default: {defaults.NOISE_DBM_PER_MHZ:g}).")
    ] = defaults.NOISE_DBM_PER_MHZ,
    path_loss_1km_db: Annotated[
        float, option(f"Path loss at 1 km (default: {defaults.PATH_LOSS_1KM_DB:g}).")
    ] = defaults.PATH_LOSS_1KM_DB,
    path_loss_exponent: Annotated[
        float, option(f"Path loss exponent (default: {defaults.PATH_LOSS_EXPONENT:g}).")
    ] = defaults.PATH_LOSS_EXPONENT,
    channel: Annotated[
        str,
        option(
            "Channel that distances are turned into SNRs with: paper (default), or uma, umi or rma of 3GPP TR "
            "38.901, in the likelier state of LOS and NLOS."
        ),
    ] = "paper",
    rate: Annotated[str, option("Rate at an SNR: shannon (default), shannon:gap_db=3, mcs64 or mcs256.")] = "shannon",
    seed: Annotated[int, option("Random seed, for policies that choose at random (default: 0).")] = 0,
    quiet: Quiet = False,
) -> None:
    """Plan one round: who trains, with how much of the band, and where the policy decides it how long, with what bits.

    DEVICES has a line for each device with the columns upload_s (seconds to upload with the whole band) and compute_s
    (seconds to train). Instead of upload_s it may give rate_bps, snr_db, or distance_m and power_dbm (or
    power_dbm_per_mhz); instead of compute_s, samples, seconds_per_sample and samples_per_second. A column device names
    them, must_include forces some in. Columns profile:NAME say what a device's data is like, for the policy diverse:
    one for each label, with the number or share of its samples; a device leaves all of them empty if that is unknown.
    """
    from fedcell import units
    from fedcell.plan import plans as planning
    from fedcell.plan.device_table import read_devices
    from fedcell.plots import save_picture
    from fedcell.world import CHANNELS, RATES, Cell

    output = output_format(as_json, as_csv)
    set_verbosity(quiet, verbose=False)
    if not -1000 <= noise_dbm_per_mhz <= 1000:
        raise InputError(f"--noise-dbm-per-mhz is {noise_dbm_per_mhz:g}; give a number between -1000 and 1000")
    cell = Cell(
        bandwidth_hz=bandwidth_hz,
        model_bits=model_bits,
        noise_w_per_hz=units.dbm_per_mhz(noise_dbm_per_mhz),
        path_loss_1km_db=path_loss_1km_db,
        path_loss_exponent=path_loss_exponent,
        channel=CHANNELS.parse(channel),
        rate=RATES.parse(rate),
    )
    table = read_devices(devices, cell, epochs)
    _print_notes(table.notes)
    announce_compiling()
    comparing = compare or len(policy or []) > 1
    plans = planning.plan_round(
        table, policy or [], cell, theta, seed, law=law or "density", compare=compare, epochs=epochs
    )
    if output == "json":
        typer.echo(planning.plans_json(plans, comparing))
    elif output == "csv":
        typer.echo(planning.plans_csv(plans, comparing), nl=False)
    else:
        console().print(_comparison_table(plans) if comparing else _plan_table(plans[0]))
    _print_notes(planning.notes(plans))
    if plot is not None:
        save_picture(planning.figure(plans), plot)


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def _plan_table(planned: "TablePlan") -> "Table":
    """The plan as a table: device, what it gets of the band or the server's uplink, compute, upload, finish."""
    from rich.table import Table
    from rich.text import Text  # names are text as it stands: [bold] is no markup

    from fedcell.plots import short

    n, of = planned.plan.devices.size, len(planned.table.names)
    title = f"{planned.name}: {n:,} of {of:,} devices, {planned.plan.round_s:.6g} s{_law_text(planned)}"
    if n and planned.decides:
        title += "\n" + ", ".join(f"{planned.effort_text(name)} {_EFFORT[name]}" for name in planned.decides)
    table = Table(title=Text(title, "italic"), title_justify="left", caption_justify="left")
    table.add_column("device", overflow="fold")  # the only one that may wrap: numbers are never cut
    # Of a dedicated link a device always gets all: there is nothing to tell.
    gets = planned.law.gets(1.0, planned.bandwidth_hz) if planned.law.asked.shared else {}
    shown = {name: _column(name) for name in (*gets, *planned.decides)}
    for heading in (*(heading for heading, _ in shown.values()), "compute s", "upload s", "finish s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in planned.rows(MAX_ROWS):
        table.add_row(
            Text(short(row["device"], 40)),
            *(write(row[name]) for name, (_, write) in shown.items()),
            *(f"{row[key]:.5g}" for key in ("compute_s", "upload_s", "finish_s")),
        )
    captions = [f"the first {MAX_ROWS} of {n:,}; --csv and --json list all"] * (n > MAX_ROWS)
    if planned.learns:
        captions.append("a first round: the policy learns from the updates of each what suits the next")
    if planned.free_units:
        units = planned.law.asked.unit.split()[-1]
        captions.append(f"{planned.free_units:,} {units}s stay free: they would not shorten the round")
    table.caption = "\n".join(captions) or None
    return table


_EFFORT = {"epochs": "local epochs", "bits": "bits a weight"}


def _percent(share: float) -> str:
    from fedcell.plots import percent

    return percent(share, 2)


def _column(name: str) -> tuple[str, Callable[[float], str]]:
    """The heading of a column that says what a device gets, by the unit in its name, and how a value is written."""
    if name == "share":
        return name, _percent
    if name.endswith("_hz"):
        return "kHz", lambda hz: f"{hz / 1e3:.5g}"
    if name.endswith("bits_per_s"):
        return "Mbit/s", lambda bps: f"{bps / 1e6:.5g}"
    return name.replace("_", " "), lambda value: f"{value:,}" if isinstance(value, int) else f"{value:.5g}"


def _law_text(planned: "TablePlan") -> str:
    """The law, where it is not the paper's."""
    return "" if planned.law.name == "density" else f"\nlaw {planned.law.name}"


def _comparison_table(plans: Sequence["TablePlan"]) -> "Table":
    """All plans side by side: devices, round time, and time to train relative to the best."""
    from rich.table import Table
    from rich.text import Text

    from fedcell.plan import plans as planning

    values = [planned.objective_s for planned in plans if planned.objective_s is not None]
    best = min(values, default=None)
    n = len(plans[0].table.names)
    title = f"{n:,} device{'s' * (n > 1)}, one round{_law_text(plans[0])}"
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("policy")
    profiled, decided = any(planned.imbalance is not None for planned in plans), planning.decided_by(plans)
    for heading in ("devices", *decided, "round s", "s per device", "time to train", *(["imbalance"] * profiled)):
        table.add_column(heading, justify="right")
    for planned in plans:
        n = planned.plan.devices.size
        relative = f"{planned.objective_s / best:.3f} x" if planned.objective_s is not None and best else "-"
        each = f"{planned.plan.round_s / n:.5g}" if n else "-"
        unlike = "-" if planned.imbalance is None else f"{planned.imbalance:.3f}"
        effort = (planned.effort_text(name) for name in decided)
        cells = (str(n), *effort, f"{planned.plan.round_s:.5g}", each, relative, unlike)
        table.add_row(Text(planned.name), *cells[: None if profiled else -1])
    theta = f"{plans[0].theta:g} + " if plans[0].theta else ""
    table.caption = f"time to train: ({theta}1/n) x round s, relative to the least; beta and the target cancel"
    if decided:
        table.caption += "\n- where a policy decides work or bits, of which that says nothing: race it instead"
    if profiled:
        table.caption += "\nimbalance: 0 for data like that of all devices together, 1 for one device on average"
    return table
