"""What a terminal shows while a race runs."""

from collections import defaultdict
from threading import Lock
from typing import TYPE_CHECKING

import typer

from fedcell.cli.console import LinePrinter, Loudness, Pace, loudness, time_text
from fedcell.runs.runner import Event, RoundsDone, RunDone, RunFailed
from fedcell.sim.spec import Spec

if TYPE_CHECKING:
    from rich.table import Table


class RaceDisplay:
    """A table of the race so far: for each policy its seeds done, clock, accuracy and the time left.

    Rich calls it for every frame (``__rich__``); the race's threads feed it through ``watch``.
    """

    def __init__(self, race: Spec) -> None:
        self._race = race
        self._lock = Lock()
        self._last: dict[tuple[str, int], tuple[int, float, float]] = {}
        self._done: set[tuple[str, int]] = set()
        self._pace = Pace()

    def watch(self, event: Event) -> None:
        """Take note of a run's rounds, or of its end."""
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
            left_s = self._pace.left_s(sum(shares.values()), total)
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
        self._display, self._printer, self._pace = display, LinePrinter("race"), Pace()
        total = display.progress()[2]
        typer.echo(f"race: {total} run{'s' * (total != 1)}", err=True)

    def watch(self, event: Event) -> None:
        """Take note of a run's rounds, or of its end."""
        self._display.watch(event)
        done, ended, total = self._display.progress()
        done = min(done, total - 0.01) if ended < total else total  # 100 % when all have ended
        left_s = self._pace.left_s(done, total)
        left = f", {time_text(left_s)} left" if left_s is not None and ended < total else ""
        if isinstance(event, RunFailed):  # which is said in the end
            return
        if isinstance(event, RunDone) or loudness() is not Loudness.VERBOSE:
            self._printer.watch(done, total, f"{ended} of {total} runs{left}")
