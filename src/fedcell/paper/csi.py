"""Beyond the paper: what imperfect channel knowledge costs Greedy, Optimal and Diverse, with slack and without.

A run ends when it reaches 80 %, or after twice the race's budget, which then counts as its time. Losses are paired by
seed: the same devices, channels, data and batches without the error.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedcell import defaults
from fedcell.paper.diverse import COLOURS, CONTENDERS, ProofCell, cell_of
from fedcell.paper.output import Output
from fedcell.paper.readings import TARGET, columns
from fedcell.paper.settings import Collect, Settings, gather
from fedcell.plots import Line, lines_figure
from fedcell.runs import stats
from fedcell.runs.records import Rounds
from fedcell.runs.stats import Mean
from fedcell.sim.spec import Spec
from fedcell.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ERRORS_DB = (0.0, 1.0, 2.0, 4.0, 8.0)
SLACKS = {None: "waits for all", defaults.SLACK: f"slack {defaults.SLACK:g}"}
"""How long the server waits, and how that is called."""
WHO = ("Greedy", "Optimal", "Diverse")
_DASHES = dict(zip(SLACKS, ("-", ":"), strict=True))

Key = tuple[str, float | None, float]
"""Who, with which slack, at which error."""


def specs(settings: Settings) -> dict[Key, Spec]:
    """The runs; without an error the slack makes no difference, and they are run once."""
    fields = {"target_accuracy": TARGET, "budget_s": _budget_s(settings)}
    return {
        (who, slack, error_db): cell_of(settings, ProofCell()).changed(
            CONTENDERS[who] | fields | {"slack": slack, "cell.csi_error_db": error_db}
        )
        for who in WHO
        for slack in SLACKS
        for error_db in ERRORS_DB
    }


def _budget_s(settings: Settings) -> float:
    return 2 * settings.race_budget_s


def make(settings: Settings, collect: Collect) -> Output:
    """Time to 80 % against the error in the SNR that the server believes."""
    budget_s = _budget_s(settings)
    found = gather(collect, specs(settings), settings.seeds)
    times = {key: [run.value("time", TARGET, budget_s) for run in runs] for key, runs in found.items()}
    means = {key: stats.mean_of(values) for key, values in times.items()}
    losses = {key: stats.paired_difference(values, times[key[0], key[1], 0.0]) for key, values in times.items()}
    headings = ("policy", "slack", *(f"{error_db:g} dB" for error_db in ERRORS_DB))
    return Output(
        name="csi",
        title="Beyond the paper: imperfect channel knowledge",
        setting=f"The paper's race (R = {settings.race_radius_m:g} m, 20 devices, L = 2), {settings.seeds} seeds, "
        f"until 80 % or {budget_s:g} s. The server plans with an SNR that is off by a normal error in dB, of the given "
        "standard deviation, drawn independently for each device and round.",
        figure=_figure(means),
        csv=(
            ("policy", "slack", "csi_error_db", "mean_s_to_80_percent", "half_s", "loss_s", "loss_half_s", "reached"),
            [
                [who, slack or "none", error_db, *_numbers(means[key]), *_numbers(losses[key]), _reached(found[key])]
                for key in found
                for who, slack, error_db in [key]
            ],
        ),
        tables=[
            Table("Mean seconds to 80 % with 95 % intervals", headings, _rows(means, found)),
            Table(
                "Seconds lost by the error, paired by seed, with 95 % intervals", headings, _rows(losses, found, "+")
            ),
            Table("Rounds until then, and mean seconds of a round", headings, _by_key(lambda key: _rounds(found[key]))),
        ],
        notes=[f"n/{settings.seeds}: so many seeds reached 80 %; the others count as {budget_s:g} s."],
    )


def _numbers(value: Mean) -> tuple[float, float]:
    return value.mean, value.half


def _reached(runs: Sequence[Rounds]) -> int:
    return stats.times_to(runs, TARGET).reached


def _rows(values: Mapping[Key, Mean], found: Mapping[Key, Sequence[Rounds]], sign: str = "") -> list[list[str]]:
    def text(key: Key) -> str:
        value, runs = values[key], found[key]
        if sign and key[2] == 0.0:
            return "0"
        half = "" if np.isnan(value.half) else f" ± {value.half:.0f}"
        reached = "" if _reached(runs) == len(runs) else f" ({_reached(runs)}/{len(runs)})"
        return f"{value.mean:{sign}.0f}{half}{reached}"

    return _by_key(text)


def _rounds(runs: Sequence[Rounds]) -> str:
    """How many rounds a run has on average, and how long one takes, such as ``12.6 x 12.2 s``."""
    round_s = np.concatenate([run.round_s for run in runs])
    return f"{len(round_s) / len(runs):.1f} x {round_s.mean():.1f} s"


def _by_key(text: Callable[[Key], str]) -> list[list[str]]:
    return [
        [who, name, *(text((who, slack, error_db)) for error_db in ERRORS_DB)]
        for who in WHO
        for slack, name in SLACKS.items()
    ]


def _figure(means: Mapping[Key, Mean]) -> "Figure":
    lines = []
    for shift, who in zip((-0.06, 0.0, 0.06), WHO, strict=True):  # so that the intervals can be told apart
        for slack, name in SLACKS.items():
            y, half = columns([means[who, slack, error_db] for error_db in ERRORS_DB], 1)
            x = np.array(ERRORS_DB) + shift
            lines.append(Line(f"{who}, {name}", x, y, half, COLOURS[who][0], _DASHES[slack], "o"))
    return lines_figure(
        lines,
        "standard deviation of the error in the SNR, dB",
        "simulated time to 80 %, s",
        y_limits=(0.0, 1.4 * max(mean.mean for mean in means.values())),  # the legend needs room
        legend="upper left",
        columns=3,
    )
