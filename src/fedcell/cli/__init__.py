"""The command line, a module a command. Each is thin: read, call the library, print.

Commands import what is heavy (NumPy, Rich, the library itself) only when they run, so that ``fedcell --help`` is quick.
"""

import errno
import gc
import os
import re
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
import typer.core

from fedcell import __version__
from fedcell.cli import fit, flower, options, plan, race, reproduce, results, serve, sweep, testbed, tournament
from fedcell.errors import InputError

OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE, errno.EIO, errno.EBADF)
"""What the system says of a file that cannot take more."""

typer.core.HAS_RICH = False  # the help is plain text, in which Typer would show "[required]" with a backslash


class Commands(typer.core.TyperGroup):
    """The commands, which say so when they are interrupted; Typer would end them in silence.

    A race gets its options from the fields of the spec, which are heavy, and so only when it is asked for.
    """

    _listing = False

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands, of which only the names and the first sentences are needed."""
        self._listing = True
        super().format_commands(ctx, formatter)
        self._listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name, with all its options."""
        if cmd_name != "race" or self._listing:
            return super().get_command(ctx, cmd_name)
        whole = typer.Typer(context_settings=dict(self.context_settings), rich_markup_mode=None, add_completion=False)
        whole.command("race")(options.with_spec_options(race.race, after="seeds"))
        return typer.main.get_command(whole)

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
    _open_closed_streams()
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
    except MemoryError:
        _say("this machine does not have the memory for it; take fewer devices, runs or rounds")
        sys.exit(2)
    except OSError as error:  # the commands handle those of their files; this is a full disc behind the output, say
        reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
        if error.filename is None and error.errno not in OUTPUT_ERRORS:
            _say(f"the system refused something: {reason}; free memory, processes or files, and try again")
            sys.exit(2)
        _say(f"{error.filename or 'standard output'}: {reason}; write it elsewhere, or make room, and try again")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the rest would fail again at exit
        sys.exit(2)
    except Exception as error:  # Typer's own, whose classes are in another module in every other version of it
        if type(error).__name__ == "Abort":  # at a question
            _say("stopped; nothing was changed")
            sys.exit(130)
        if not hasattr(error, "format_message"):
            raise
        _end_misused(error)


def _open_closed_streams() -> None:
    """Daemons start commands without standard streams: the first files that we open would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    # They live as long as the process.
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _say(sentence: str) -> None:
    typer.echo(f"fedcell: {sentence}", err=True)


def _end_misused(error: Any) -> None:
    """What Typer says of a call that it does not understand, in one sentence instead of a block of usage."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(2)
    message = " ".join(error.format_message().split()).rstrip(".")
    # Typer's versions differ in how they say it.
    message = re.sub(r"[.;]? Did you mean", "; did you mean", message)
    message = re.sub(r" \(Possible options: ([^,)]+)\)", r"; did you mean \1?", message)
    context = getattr(error, "ctx", None)
    see = f"; see {context.command_path if context is not None else 'fedcell'} --help"
    _say(f"{message[:1].lower()}{message[1:]}{'' if message.endswith('?') else see}")
    sys.exit(error.exit_code)


def _quieten_matplotlib() -> None:
    """It warns of a cache directory that cannot be written, and of its fonts; pictures are the same."""
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
