"""`fedcell tournament`: every policy in every scenario with many seeds, and a page that says who is better."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcell.cli.console import (
    Verbosity,
    announce_compiling,
    console,
    policy_table,
    progress,
    resumable,
    set_verbosity,
    verbosity,
)
from fedcell.cli.options import Cluster, Quiet, Seeds, Verbose, Workers, complete_policy, option
from fedcell.cli.sweep import crew, load_data
from fedcell.errors import InputError
from fedcell.files import STANDARD_OUTPUT, atomic_directory, check_output, make_folder, write_output

if TYPE_CHECKING:
    from fedcell.runs.tournament import TournamentResult

OUT = Path("out/tournament")


def tournament(
    policy: Annotated[
        list[str] | None,
        option(
            "Policy to add to all others, such as mine:Nearest:k=2; repeat for several.", autocompletion=complete_policy
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        option(
            "Policy to enter instead of all others; repeat for several (default: every registered policy).",
            metavar="POLICY",
            autocompletion=complete_policy,
        ),
    ] = None,
    scenarios: Annotated[
        Path | None,
        option(
            "Scenarios of your own (TOML) instead of the standard ones; --print-scenarios shows how.", metavar="FILE"
        ),
    ] = None,
    scenario: Annotated[list[str] | None, option("Run this scenario only; repeat for several.", metavar="NAME")] = None,
    seeds: Seeds = 5,
    out: Annotated[Path, option("Output directory (default: out/tournament).")] = OUT,
    store: Annotated[
        Path | None, option("Results file to read and add to (default: results.db in the output directory).")
    ] = None,
    workers: Workers = None,
    cluster: Cluster = None,
    markdown: Annotated[
        Path | None,
        option(
            "Write the tables in Markdown too, with two pictures beside them: into a new file, or one with marks.",
            metavar="FILE",
        ),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    print_scenarios: Annotated[
        bool, typer.Option("--print-scenarios", help="Print the scenarios as TOML and exit.")
    ] = False,
) -> None:
    """Run every policy in every scenario with many seeds, and rank them.

    Writes a page, index.html, with the ranks, a critical-difference diagram and who wins where, and the same as tables
    and pictures. Without options every registered policy enters the standard scenarios.

    Each run is stored when it ends. Stop or kill the tournament at any time, and start it again: it resumes.
    """
    from fedcell.runs.contest import STANDARD, Tournament, chosen_scenarios, contenders, load_scenarios, scenarios_toml
    from fedcell.runs.store import Store
    from fedcell.runs.tournament import run_tournament

    set_verbosity(quiet, verbose)
    wanted = chosen_scenarios(load_scenarios(scenarios or STANDARD), scenario or [])
    if print_scenarios:
        typer.echo(scenarios_toml(wanted), nl=False)
        return
    contest = Tournament(wanted, contenders(wanted, policy or [], only or []), list(range(seeds)))
    _old_markdown(markdown)
    load_data(contest.runs().values(), cluster)
    announce_compiling()
    if store is not None:
        with Store(store):  # a bad one is refused before anything is made
            pass
    place = store or out / "results.db"
    with crew(cluster) as (executor, width):
        make_folder(out, "--out")
        with resumable(place), Store(place) as kept, progress("tournament") as watch:
            result = run_tournament(contest, kept, executor, workers or width, watch)
    result = _with_times(result)
    options = {"--policy": policy, "--only": only, "--scenarios": scenarios and [scenarios], "--scenario": scenario}
    said = [word for name, values in options.items() for value in values or [] for word in (name, str(value))]
    _hand_over(result, shlex.join(["fedcell", "tournament", *said, "--seeds", str(seeds)]), out, markdown)
    raise typer.Exit(1 if result.failures else 0)


def _with_times(result: "TournamentResult") -> "TournamentResult":
    from dataclasses import replace

    from fedcell.runs.tournament import measured_decisions

    if verbosity() is not Verbosity.QUIET:
        typer.echo("tournament: timing how long each policy takes to decide", err=True)
    return replace(result, deciding_s=measured_decisions(result.tournament))


def _old_markdown(path: Path | None) -> str:
    """What the Markdown file has now; refused before the work if the tables have no place in it."""
    from fedcell.runs.tournament_report import put_between

    if path is None:
        return ""
    check_output(path)
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read {path} as UTF-8 text; name another file for --markdown") from None
    put_between(text, "", str(path))
    return text


def _hand_over(result: "TournamentResult", command: str, out: Path, markdown: Path | None) -> None:
    """Print the tables, then write the files."""
    from fedcell.runs.tournament_report import TournamentReport, put_between

    _print(result)
    for trouble in result.troubles():
        typer.echo(f"fedcell: {trouble}", err=True)
    _write(result, command, out)
    typer.echo(f"Page: {out / 'index.html'}")
    if markdown is not None:
        files = {} if markdown == STANDARD_OUTPUT else {n: f"{markdown.stem}-{n}.png" for n in ("ranks", "heat-map")}
        text = put_between(_old_markdown(markdown), TournamentReport(result).markdown(command, files), str(markdown))
        for name, file in files.items():
            _put(markdown.with_name(file), (out / f"{name}.png").read_bytes())
        _put(markdown, text.encode())
        typer.echo(f"Tables: {markdown}")


def _put(path: Path, content: bytes) -> None:
    write_output(path, lambda file: file.write(content))


def _print(result: "TournamentResult") -> None:
    from fedcell.runs.tournament_report import TournamentReport

    report = TournamentReport(result)
    screen, overall = console(), report.overall()
    shown = policy_table(overall.title, *overall.headings[1:])
    for row in overall.rows:
        shown.add_row(*row)
    screen.print(shown)
    won = [f"  {name} ({target}): {who}" for name, target, who, *_ in report.winners().rows]
    lines = [report.COLUMNS, "", "Who wins where, by time to the target:", *won, ""]
    for line in [*lines, *(f"{sentence}." for sentence in report.verdicts())]:
        screen.print(line, highlight=False, markup=False, soft_wrap=not screen.is_terminal)


def _write(result: "TournamentResult", command: str, out: Path) -> None:
    from fedcell.plots import save_picture
    from fedcell.runs.contest import scenarios_toml
    from fedcell.runs.tournament_report import TournamentReport

    report = TournamentReport(result)
    with atomic_directory(out, "--out") as folder:
        figures = report.pictures()
        for name, figure in figures.items():
            save_picture(figure, folder / f"{name}.png")
            save_picture(figure, folder / f"{name}.svg")
        png = {name: (folder / f"{name}.png").read_bytes() for name in figures}
        texts = {
            "index.html": report.page(command, png),
            "tournament.csv": report.to_csv(),
            "runs.csv": report.runs_csv(),
            "tournament.json": report.to_json(command),
            "scenarios.toml": scenarios_toml(result.tournament.scenarios),
        }
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
