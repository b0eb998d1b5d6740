"""The command line, a module a command. Each is thin: read, call the library, print.

Commands import what is heavy (NumPy, Rich, the library itself) only when they run, so that ``fedcell --help`` is quick.
"""

import gc
import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer
import typer.core

from fedcell import __version__
from fedcell.cli import fit, flower, plan, race, reproduce, results, serve, sweep, testbed
from fedcell.errors import InputError

typer.core.HAS_RICH = False  # the help is plain text, in which Typer would show "[required]" with a backslash

app = typer.Typer(
    name="fedcell",
    help="Which devices of a radio cell train this round, and how much of the band each one gets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(plan.plan)
app.command()(race.race)
app.command()(sweep.sweep)
app.add_typer(results.app, name="results")
app.command()(fit.fit)
app.command()(reproduce.reproduce)
app.command(cls=flower.DirectoriesOrNew)(flower.flower)
app.command("testbed")(testbed.emulate_cell)
app.command()(serve.serve)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedcell {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit status 2."""
    gc.set_threshold(100_000, 50, 50)  # collecting while thousands of modules' objects are made is a sixth of start-up
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name that the terminal cannot show is shown in escapes
            stream.reconfigure(errors="backslashreplace")
    os.environ["PYTHONSAFEPATH"] = "1"  # or worker processes would look for every module in this directory first
    try:
        app()
    except InputError as error:
        typer.echo(f"fedcell: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("fedcell: interrupted", err=True)
        sys.exit(130)
    except OSError as error:  # the commands handle those of their files; this is a full disc behind the output, say
        place = error.filename or "standard output"
        typer.echo(f"fedcell: {place}: {error.strerror}; write it elsewhere, or make room, and try again", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the rest would fail again at exit
        sys.exit(2)
