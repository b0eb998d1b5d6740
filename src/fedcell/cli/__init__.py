"""The command line, a module a command. Each is thin: read, call the library, print.

Commands import what is heavy (NumPy, Rich, the library itself) only when they run, so that ``fedcell --help`` is quick.
"""

import gc
import os
import re
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
import typer.core

from fedcell import __version__
from fedcell.cli import fit, flower, plan, race, reproduce, results, serve, sweep, testbed, tournament
from fedcell.errors import InputError

typer.core.HAS_RICH = False  # the help is plain text, in which Typer would show "[required]" with a backslash


class Commands(typer.core.TyperGroup):
    """The commands, which say so when they are interrupted; Typer would end them in silence."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _say("interrupted")
            raise typer.Exit(130) from None


app = typer.Typer(
    name="fedcell",
    cls=Commands,
    help="Which devices of a radio cell train this round, and how much of the band each one gets.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(plan.plan)
app.command()(race.race)
app.command()(sweep.sweep)
app.command()(tournament.tournament)
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
    _quieten_matplotlib()
    try:
        sys.exit(app(prog_name="fedcell", standalone_mode=False))
    except InputError as error:
        _say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(130)
    except OSError as error:  # the commands handle those of their files; this is a full disc behind the output, say
        place = error.filename or "standard output"
        _say(f"{place}: {error.strerror}; write it elsewhere, or make room, and try again")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the rest would fail again at exit
        sys.exit(2)
    except Exception as error:  # Typer's own, whose classes are in another module in every other version of it
        if type(error).__name__ == "Abort":  # at a question
            _say("stopped; nothing was changed")
            sys.exit(130)
        if not hasattr(error, "format_message"):
            raise
        _end_misused(error)


def _say(sentence: str) -> None:
    typer.echo(f"fedcell: {sentence}", err=True)


def _end_misused(error: Any) -> None:
    """What Typer says of a call that it does not understand, in one sentence instead of a block of usage."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(2)
    message = " ".join(error.format_message().split()).rstrip(".")
    message = re.sub(r"[.;]? Did you mean", "; did you mean", message)  # with or without a stop, by Typer's version
    context = getattr(error, "ctx", None)
    see = f"; see {context.command_path if context is not None else 'fedcell'} --help"
    _say(f"{message[:1].lower()}{message[1:]}{'' if message.endswith('?') else see}")
    sys.exit(error.exit_code)


def _quieten_matplotlib() -> None:
    """It warns of a cache directory that cannot be written, and of its fonts; pictures are the same."""
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
