"""`fedcell reproduce`: the paper's figures and tables, and a page that binds them."""

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcell.cli.console import announce_compiling, progress, resumable, set_verbosity
from fedcell.cli.options import Quiet, Seeds, Verbose, Workers, argument, complete_figure, option
from fedcell.errors import InputError
from fedcell.files import atomic_directory, make_folder

if TYPE_CHECKING:
    from fedcell.paper.output import Output, Section
    from fedcell.paper.settings import Settings, WatchProgress
    from fedcell.runs.records import Rounds
    from fedcell.sim.spec import Spec


def reproduce(
    figures: Annotated[
        list[str] | None,
        argument(
            "fig1a fig1b fig2 table1 fig3a fig3b fig3c fig3d, beyond the paper diverse variants "
            "privacy epochs csi, or all of these (the default); or auto, which takes hours: auto-times auto-accuracy "
            "auto-decisions auto-hindsight.",
            metavar="[FIGURE]...",
            autocompletion=complete_figure,
        ),
    ] = None,
    seeds: Seeds = 5,
    out: Annotated[Path, option("Output directory (default: out/paper).")] = Path("out/paper"),
    store: Annotated[
        Path | None, option("Results file to read and add to (default: results.db in the output directory).")
    ] = None,
    workers: Workers = None,
    device: Annotated[str, option("Where to train: cpu (default) or cuda.")] = "cpu",
    cells: Annotated[
        str | None, option("Of auto's cells only these, with commas, such as race,static (default: all).")
    ] = None,
    rounds: Annotated[
        list[Path] | None,
        option(
            "Use the runs of this file, which fedcell results export --rounds wrote, perhaps elsewhere; repeatable.",
            metavar="FILE",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use tiny settings to try it out; the results mean nothing.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Reproduce the paper's figures and tables.

    Writes pictures, tables and a page, index.html, that compares each number of the paper with ours. The page has all
    figures that the output directory has, those made earlier too.

    Everything is kept in the store: what was interrupted goes on where it was, and a second time takes seconds.
    """
    from dataclasses import replace

    from fedcell.paper import GROUPS, checked_cells, chosen, make_figure
    from fedcell.paper.output import TRIED, verdict_text
    from fedcell.paper.settings import Settings, collect_runs
    from fedcell.runs.processes import Processes
    from fedcell.runs.records import read_rounds
    from fedcell.runs.store import Store
    from fedcell.runtime import cores

    set_verbosity(quiet, verbose)
    announce_compiling()
    wanted = chosen(figures or [])
    settings = Settings.quick(seeds) if quick else Settings(seeds=seeds)
    if cells is not None:
        if other := [name for name in wanted if name not in GROUPS["auto"]]:
            raise InputError(f"--cells chooses cells of auto, but {other[0]} is asked for too; leave out one of them")
        settings = replace(settings, only=checked_cells(cells))
    known = {key: found for path in rounds or [] for key, found in read_rounds(path).items()}
    if store is not None:
        with Store(store):  # a bad one is refused before anything is made
            pass
    make_folder(out, "--out")
    place = store or out / "results.db"
    outputs: list[Output] = []
    with Processes(workers or cores()) as pool:  # the same ones for all figures: on a GPU each takes seconds to start
        for name in wanted:
            with resumable(place), progress(name) as watch:

                def run(specs: Sequence["Spec"], watch: "WatchProgress" = watch) -> dict[str, "Rounds"]:
                    return collect_runs(specs, place, workers, watch, executor=pool, device=device, known=known)

                outputs.append(make_figure(name, settings, run))
    on = [] if device == "cpu" else [f"--device {device}"]
    some = [] if cells is None else [f"--cells {','.join(settings.only)}"]
    asked = " ".join(figures or ["all"])
    command = " ".join(["fedcell reproduce", asked, f"--seeds {seeds}", *some, *(["--quick"] * quick), *on])
    if quick:
        typer.echo(f"{TRIED}.")
    for output in outputs:
        for claim in output.claims:
            typer.echo(f"{verdict_text(claim, quick=quick)}: {claim.text}")
    for sentence in dict.fromkeys(sentence for output in outputs for sentence in output.left_out):
        typer.echo(sentence)
    # All files appear at the end, or none.
    _write_all(outputs, settings, command, out)
    typer.echo(f"Page: {out / 'index.html'}")


def _write_all(outputs: Sequence["Output"], settings: "Settings", command: str, out: Path) -> None:
    from fedcell.paper.output import page, section
    from fedcell.plots import save_picture

    with atomic_directory(out, "--out") as folder:
        for output in outputs:
            (folder / f"{output.name}.csv").write_text(_csv(output), encoding="utf-8")
            if output.figure is not None:
                for ending in ("svg", "png"):
                    save_picture(output.figure, folder / f"{output.name}.{ending}")
            (folder / f"{output.name}.json").write_text(section(output, settings, command), encoding="utf-8")
        (folder / "index.html").write_text(page(*_everything(out, folder)), encoding="utf-8")


def _everything(*folders: Path) -> tuple[list["Section"], dict[str, bytes]]:
    """All figures that the folders have, in the paper's order, and their pictures; a later folder's replace others."""
    from fedcell.paper import FIGURES
    from fedcell.paper.output import Section

    sections: dict[str, Section] = {}
    pictures: dict[str, bytes] = {}
    for name in FIGURES:
        for folder in folders:
            with suppress(FileNotFoundError, ValueError, KeyError, TypeError):  # not there, or not of this version
                sections[name] = Section.from_json((folder / f"{name}.json").read_text(encoding="utf-8"))
                pictures[name] = (folder / f"{name}.png").read_bytes()
    return list(sections.values()), pictures


def _csv(output: "Output") -> str:
    from fedcell.tables import csv_text

    headings, rows = output.csv
    return csv_text(headings, ([None if isinstance(v, float) and math.isnan(v) else v for v in row] for row in rows))
