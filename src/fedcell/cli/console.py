"""What commands print alike: progress, a race as it runs, the tables of a race."""

import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from threading import Lock
from typing import TYPE_CHECKING

import typer

from fedcell.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fedcell.runs.race import RaceResult
    from fedcell.runs.runner import Event
    from fedcell.runs.store import Store
    from fedcell.runs.sweep import Progress
    from fedcell.runs.trackers import Tracker
    from fedcell.sim.spec import Spec


def console(width: int = 160, *, always: bool = False) -> "Console":
    """Standard output for Rich; ``width``: where there is no terminal, or with ``always`` in any case."""
    from rich.console import Console

    # What names policies and runs may come from a file of anybody: nothing in it is markup.
    return Console(markup=False, width=None if sys.stdout.isatty() and not always else width)


class Verbosity(Enum):
    """How much a command says of its progress."""

    QUIET = "quiet"
    NORMAL = "normal"
    VERBOSE = "verbose"


_verbosity = Verbosity.NORMAL


def verbosity() -> Verbosity:
    """What -q and -v of this call asked for."""
    return _verbosity


def set_verbosity(quiet: bool, verbose: bool) -> None:
    """Say less or more of the progress from now on."""
    global _verbosity  # noqa: PLW0603 (one command a process)
    if quiet and verbose:
        raise InputError("--quiet and --verbose were both given; choose one")
    _verbosity = Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL


def time_text(seconds: float) -> str:
    """A duration to wait for, in seconds, minutes or hours."""
    if seconds < 7200:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def announce_compiling() -> None:
    """Say so, once, if from now on anything has to be compiled, here or by a worker, which is a matter of seconds."""
    from fedcell.runtime import when_compiling

    when_compiling(_say_compiling)


def _say_compiling() -> None:
    if verbosity() is not Verbosity.QUIET:
        typer.echo("note: compiling for this machine, once; this takes some seconds", err=True)


def note_missing_models(store: "Store", runs: Iterable["Spec"]) -> None:
    """Say so if finished runs will be computed again because their models were not kept."""
    keys = [run.key() for run in runs]
    count = len(store.done(keys) - store.done(keys, models=True))
    if count and verbosity() is not Verbosity.QUIET:
        typer.echo(f"note: {count_of_runs(count)} stored without a model, and computed again for it", err=True)


def count_of_runs(count: int) -> str:
    """So many runs, and the verb."""
    return "1 run is" if count == 1 else f"{count} runs are"


@contextmanager
def resumable(store: object) -> Iterator[None]:
    """Of work whose finished runs are stored: say so when it is interrupted, and end with status 130."""
    try:
        yield
    except KeyboardInterrupt:
        said = f"fedcell: stopped; the finished runs are stored in {store}, run the same command to resume"
        typer.echo(said, err=True)
        raise typer.Exit(130) from None


class EtaEstimator:
    """How long work will take, guessed from its pace so far once there is enough of it to go by.

    The start, in which modules are imported and code is compiled, is left out of it.
    """

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None

    def left_s(self, done: float, total: float) -> float | None:
        """Seconds still to come; None while that would be a mere guess."""
        now_s = time.monotonic()
        if done > 0 and (self._first is None or done < self._first[1]):
            self._first = (now_s, done)
        if self._first is None:
            return None
        elapsed_s, since = now_s - self._first[0], done - self._first[1]
        return elapsed_s * (total - done) / since if elapsed_s > 2 and since > 0.03 * total else None


@contextmanager
def progress(name: str) -> Iterator[Callable[["Progress"], None]]:
    """A progress bar on standard error; without a terminal, a line for every 10 %, if there is anything to run.

    With -q nothing, with -v a line for every run.

    Yields:
        Callable: to be called with the Progress whenever a run has ended.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    screen = Console(stderr=True)
    if verbosity() is Verbosity.QUIET:
        yield lambda _: None
        return
    if not screen.is_terminal or verbosity() is Verbosity.VERBOSE:
        yield _RunPrinter(name).watch
        return
    eta = EtaEstimator()
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("", total=None)

        def watch(now: "Progress") -> None:
            left = _left_text(now, eta).removeprefix(", ")
            bar.update(task, total=now.total, completed=now.total - now.left, description=left)

        yield watch


class LinePrinter:
    """One line for every 10 %, for logs; with -v, for every report."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tenth = 0

    def watch(self, done: float, total: float, text: str) -> None:
        """Print if another tenth is done; a second piece of work under the same name begins again."""
        share = done / total
        tenth = int(10 * share)
        if tenth > self._tenth or verbosity() is Verbosity.VERBOSE:
            typer.echo(f"{self._name}: {int(100 * share)} %, {text}", err=True)
        self._tenth = tenth


class _RunPrinter:
    """The runs of a sweep, line by line."""

    def __init__(self, name: str) -> None:
        self._name, self._printer, self._eta = name, LinePrinter(name), EtaEstimator()

    def watch(self, now: "Progress") -> None:
        """Say how many runs there are, then how many of them have ended."""
        if now.left and not now.done + now.failed:
            stored = f", {now.skipped} of them already stored" if now.skipped else ""
            typer.echo(f"{self._name}: {now.total} run{'s' * (now.total != 1)}{stored}", err=True)
        elif now.done + now.failed:
            ended = now.total - now.left
            self._printer.watch(ended, now.total, f"{ended} of {now.total} runs{_left_text(now, self._eta)}")


def _left_text(now: "Progress", eta: EtaEstimator) -> str:
    parts = [f"{now.failed} failed"] if now.failed else []
    left_s = eta.left_s(now.done + now.failed, now.total - now.skipped)
    if now.left == 0:
        parts.append("done")
    elif left_s is not None:
        parts.append(f"{time_text(left_s)} left")
    return "".join(f", {part}" for part in parts)


class RaceDisplay:
    """A table of the race so far: for each policy its seeds done, clock, accuracy and the time left.

    Rich calls it for every frame (``__rich__``); the race's threads feed it through ``watch``.
    """

    def __init__(self, race: "Spec") -> None:
        self._race = race
        self._lock = Lock()
        self._last: dict[tuple[str, int], tuple[int, float, float]] = {}
        self._done: set[tuple[str, int]] = set()
        self._eta = EtaEstimator()

    def watch(self, event: "Event") -> None:
        """Take note of a run's rounds, or of its end."""
        from fedcell.runs.runner import RoundsDone, RunDone, RunFailed

        with self._lock:
            if isinstance(event, RunDone | RunFailed):
                self._done.add((event.spec.policy, event.spec.seed))
            if isinstance(event, RoundsDone):
                last = event.records[-1]
                self._last[event.spec.policy, event.spec.seed] = (last.round, last.clock_s, last.accuracy)

    def _share_done(self, key: tuple[str, int]) -> float:
        if key in self._done:
            return 1.0
        record = self._last.get(key)
        if record is None:
            return 0.0
        number, clock_s, _ = record
        of_rounds = number / self._race.rounds if self._race.rounds else 0.0
        return min(1.0, max(of_rounds, clock_s / self._race.budget_s))

    def progress(self) -> tuple[float, int, int]:
        """How much of the race is done, in runs; how many runs have ended; how many there are."""
        with self._lock:
            runs = [(policy, seed) for policy in self._race.grid["policy"] for seed in self._race.grid["seed"]]
            return sum(map(self._share_done, runs)), len(self._done), len(runs)

    def __rich__(self) -> "Table":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("policy", "", "seeds", "clock s", "accuracy", "time left"):
            table.add_column(heading, justify="left" if heading in ("policy", "") else "right", overflow="fold")
        with self._lock:
            seeds, shares = self._race.grid["seed"], defaultdict(float)
            for policy in self._race.grid["policy"]:
                shares[policy] = sum(self._share_done((policy, seed)) for seed in seeds)
            total = len(shares) * len(seeds)
            left_s = self._eta.left_s(sum(shares.values()), total)
            for policy, share in shares.items():
                records = [self._last[policy, seed] for seed in seeds if (policy, seed) in self._last]
                done = sum((policy, seed) in self._done for seed in seeds)
                table.add_row(
                    policy,
                    ProgressBar(total=len(seeds), completed=share, width=16),
                    f"{done}/{len(seeds)}",
                    f"{records[-1][1]:.0f}" if records else "-",
                    f"{100 * sum(accuracy for _, _, accuracy in records) / len(records):.1f} %" if records else "-",
                    "done" if share >= len(seeds) else "-" if left_s is None else time_text(left_s),
                )
        return table


class RaceLines:
    """The race so far, line by line, where there is no terminal or -v asks for it."""

    def __init__(self, display: RaceDisplay) -> None:
        self._display, self._printer, self._eta = display, LinePrinter("race"), EtaEstimator()
        total = display.progress()[2]
        typer.echo(f"race: {total} run{'s' * (total != 1)}", err=True)

    def watch(self, event: "Event") -> None:
        """Take note of a run's rounds, or of its end."""
        from fedcell.runs.runner import RunDone, RunFailed

        self._display.watch(event)
        done, ended, total = self._display.progress()
        done = min(done, total - 0.01) if ended < total else total  # 100 % when all have ended
        left_s = self._eta.left_s(done, total)
        left = f", {time_text(left_s)} left" if left_s is not None and ended < total else ""
        if isinstance(event, RunFailed):  # which is said in the end
            return
        if isinstance(event, RunDone) or verbosity() is not Verbosity.VERBOSE:
            self._printer.watch(done, total, f"{ended} of {total} runs{left}")


def summary_tables(result: "RaceResult") -> list["Table"]:
    """The tables of a race: accuracy in the budget; time and energy to the target; devices and seconds a round."""
    from fedcell.runs import comparisons, stats

    seeds, budget = len(result.seeds), result.spec.budget_s
    limit = f"in {budget:g} s" if math.isfinite(budget) else f"in {result.spec.rounds} rounds"
    limit += f" or {result.spec.budget_j:g} J" if result.spec.budget_j is not None else ""
    of, goal = seeds_text(seeds), f"to {100 * result.target:g} %"
    summaries = result.summaries()
    intervals = ", ± 95 % interval" if any(s.best.has_interval for s in summaries.values()) else ""
    accuracy = policy_table(
        f"Accuracy {limit}, %, {of}{intervals}", "best", "last", "mean\ncurve's\nbest", "mean\ncurve's\nlast"
    )
    some_never = any(s.to_target.reached < seeds for s in summaries.values())
    never = [_never_text(result.limit(by), unit) if some_never else "" for by, unit in comparisons.UNITS.items()]
    times = policy_table(f"Time {goal}, {of}{never[0]}", "mean", "median", "reached by")
    headings = ["devices a round", "seconds a round", "rounds"]
    differs = stats.effort_differs(summaries.values())
    headings += ["epochs\na round", "bits a\nweight", "MB sent\na run"] if differs else []
    rounds = policy_table(f"Rounds, {of}{intervals}", *headings)
    energy = policy_table(
        f"Energy of all devices, {of}{intervals}{never[1]}", f"{goal}\n(mean)", f"{goal}\n(median)", "J in all"
    )
    some_diverged = any(s.diverged for s in summaries.values())
    some_failed = any(s.failed for s in summaries.values())
    if some_diverged:
        accuracy.add_column("diverged", justify="right", no_wrap=True)
    if some_failed:
        accuracy.add_column("failed", justify="right", no_wrap=True)
    some_missing = any(s.best.n < seeds for s in summaries.values())
    if some_missing:
        for table in (accuracy, rounds):
            table.add_column("seeds", justify="right", no_wrap=True)
    for policy, s in summaries.items():
        curve = ["-" if math.isnan(value) else f"{100 * value:.2f}" for value in (s.curve.best(), s.curve.last())]
        lost = [f"{s.diverged}/{seeds}"] * some_diverged + [f"{s.failed}/{seeds}"] * some_failed
        ran, to, cost = [f"{s.best.n} of {seeds}"] * some_missing, s.to_target, s.energy_to_target
        accuracy.add_row(policy, s.best.percent_text(), s.last.percent_text(), *curve, *lost, *ran)
        effort = [f"{s.epochs.mean:.3g}", f"{s.bits.mean:.3g}", f"{s.sent_bytes.mean / 1e6:.3g}"] if differs else []
        rounds.add_row(policy, s.devices.text(), s.round_s.text(), s.rounds.text(digits=1), *effort, *ran)
        medians = [to.median_text(), cost.median_text()] if s.best.n else ["-", "-"]
        times.add_row(policy, _mean_text(to.mean_s, to.reached, ".0f", "s"), medians[0], f"{to.reached} of {seeds}")
        energy.add_row(policy, _mean_text(cost.mean_j, cost.reached, ".4g", "J"), medians[1], s.joules.text(digits=1))
    return [accuracy, times, rounds, energy]


def _never_text(limit: float, unit: str) -> str:
    return f"; mean: restricted, never counts as {limit:.4g} {unit}" if math.isfinite(limit) else ""


def _mean_text(mean: float, reached: int, form: str, unit: str) -> str:
    return "-" if math.isnan(mean) or not reached else f"{mean:{form}} {unit}"


@contextmanager
def notes_of(runs: Sequence["Spec"], *, here: bool = True) -> Iterator[None]:
    """Say once on standard error what may not be meant in these runs; the library then does not warn of it."""
    from fedcell.schedule.laws import LAWS
    from fedcell.sim.spec_warnings import warnings_of, without_spec_warnings

    laws = {line: LAWS.known(line) for line in {run.cell.law for run in runs}}
    of_laws = [note for run in runs if (law := laws[run.cell.law]) for note in law.notes(run.cell.bandwidth_hz)]
    for note in (*warnings_of(runs, here=here), *dict.fromkeys(of_laws)):
        typer.echo(f"note: {note}", err=True)
    with without_spec_warnings():
        yield


PATIENCE_S = 3.0
"""After so long a user wants to know what is waited for."""


class Trackers:
    """What --track gave: trackers that are ready, or an InputError before anything is made."""

    def __init__(self, lines: Sequence[str] | None) -> None:
        self._trackers: list[Tracker] = []
        self.troubles: list[str] = []
        if lines:
            from fedcell.runs.trackers import parse_trackers

            self._trackers = parse_trackers(lines)
        for tracker in self._trackers:
            tracker.open()

    @contextmanager
    def following(
        self, runs: "Spec | Sequence[Spec]", target: float, store: "Store | None"
    ) -> Iterator[Callable[["Event"], None]]:
        """What ``tracking`` gives, with warnings as lines on standard error."""
        if not self._trackers:
            yield lambda _: None
            return
        from threading import Timer

        from fedcell.runs.trackers import tracking

        note = "note: waiting for the trackers to write what they have; Ctrl-C gives them up"
        waiting = Timer(PATIENCE_S, lambda: typer.echo(note, err=True))
        try:
            with tracking(self._trackers, runs, target=target, store=store, warn=self._warn) as track:
                yield track
                waiting.start()
        finally:
            waiting.cancel()

    def _warn(self, sentence: str) -> None:
        self.troubles.append(sentence)
        typer.echo(f"fedcell: {sentence}", err=True)

    def say_where(self) -> None:
        """Print how to look at what was tracked."""
        for tracker in self._trackers:
            typer.echo(f"Tracked: {tracker.shown_by()}")


MAX_CLASSES = 10
"""More have no room in 80 columns beside a policy's name."""


def class_table(result: "RaceResult") -> "Table":
    """The mean accuracy of the final models on each class; of many classes the worst and the best."""
    import numpy as np

    means = {policy: np.mean(found, axis=0) for policy, found in result.class_accuracy().items()}
    title = f"Accuracy of the final models by class, %, {seeds_text(len(result.seeds))}"
    classes = max((len(mean) for mean in means.values()), default=0)
    if classes <= MAX_CLASSES:
        table = policy_table(title, *map(str, range(classes)))
        for policy, mean in means.items():
            table.add_row(policy, *(f"{100 * value:.1f}" if np.isfinite(value) else "-" for value in mean))
        return table
    table = policy_table(f"{title} (--json has all {classes})", "worst class", "best class", "median")
    for policy, mean in means.items():
        some = np.flatnonzero(np.isfinite(mean))
        ends = [some[np.argmin(mean[some])], some[np.argmax(mean[some])]]
        table.add_row(policy, *(f"{100 * mean[c]:.1f} (class {c})" for c in ends), f"{100 * np.median(mean[some]):.1f}")
    return table


def seeds_text(seeds: int) -> str:
    """So many seeds, in words."""
    return f"{seeds} seed{'s' * (seeds != 1)}"


def policy_table(title: str, *headings: str) -> "Table":
    """A table of a line for each policy, and columns of numbers."""
    from rich.table import Table

    wide = len(title)  # or the title of a narrow table would be broken
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1), min_width=wide)
    table.add_column("policy", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
