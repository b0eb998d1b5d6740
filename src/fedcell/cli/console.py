"""What the commands print alike: the console, progress, the tables of a race."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fedcell.runs.race import RaceResult
    from fedcell.runs.sweep import Progress


def console(width: int = 160, *, always: bool = False) -> "Console":
    """Standard output for Rich.

    Args:
        width: columns where there is no terminal. A pipe has no width, and names shall not be cut at 80 columns.
        always: whether a terminal is taken to be as wide too; its lines are then continued below.
    """
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() and not always else width)


def time_text(seconds: float) -> str:
    """A duration to wait for, in seconds, minutes or hours."""
    if seconds < 7200:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


@contextmanager
def progress(name: str) -> Iterator[Callable[["Progress"], None]]:
    """A progress bar on standard error; without a terminal, a line for every 10 %, if there is anything to run.

    Args:
        name: what is under way.

    Yields:
        Callable: to be called with the Progress whenever a run has ended.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield _TenthPrinter(name).watch
        return
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def watch(now: "Progress") -> None:
            bar.update(task, total=now.total, completed=now.total - now.left, description=_left_text(now))

        yield watch


class _TenthPrinter:
    """One line for every 10 %, for logs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tenth = 10

    def watch(self, now: "Progress") -> None:
        """Print if another tenth is done; a second sweep under the same name begins again."""
        ended = now.total - now.left
        tenth = 10 * ended // now.total
        if tenth > self._tenth or (now.left and tenth < self._tenth):
            typer.echo(f"{self._name}: {10 * tenth} %, {ended} of {now.total} runs, {_left_text(now)}", err=True)
            self._tenth = tenth


def _left_text(now: "Progress") -> str:
    parts = [f"{now.failed} failed"] if now.failed else []
    if now.left == 0:
        return ", ".join([*parts, "done"])
    left_s = now.left_s
    return ", ".join([*parts, f"{time_text(left_s)} left" if left_s is not None else "starting"])


def summary_tables(result: "RaceResult") -> list["Table"]:
    """The tables of a race: accuracy in the budget and time to the target; devices and seconds a round."""
    seeds, budget = len(result.seeds), result.spec.budget_s
    limit = f"in {budget:g} s" if math.isfinite(budget) else f"in {result.spec.rounds} rounds"
    of = f"{seeds} seed{'s' * (seeds != 1)}" + (", ± 95 % interval" if seeds > 1 else "")
    target = f"to {100 * result.target:g} %\n(median)"
    accuracy = policy_table(
        f"Accuracy {limit}, %, {of}", "best", "last", "mean\ncurve's\nbest", "mean\ncurve's\nlast", target
    )
    rounds = policy_table(f"Rounds, {of}", "devices a round", "seconds a round", "rounds")
    for policy, s in result.summaries().items():
        curve = [f"{100 * value:.2f}" for value in (s.curve.best(), s.curve.last())]
        accuracy.add_row(policy, s.best.text(100), s.last.text(100), *curve, s.to_target.text())
        rounds.add_row(policy, s.devices.text(), s.round_s.text(), s.rounds.text(digits=1))
    return [accuracy, rounds]


def policy_table(title: str, *headings: str) -> "Table":
    """A table of a line for each policy, and columns of numbers.

    Args:
        title: above the table.
        headings: of the columns after the policy's.
    """
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    table.add_column("policy", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
