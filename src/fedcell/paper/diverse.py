"""What Diverse gains: the table of all cells, Diverse taken apart, the price of privacy, and how much to train.

Differences are paired by seed. A time counts as the budget where the target was never reached, which favours whoever
reaches it less often. p-values are two-sided, of Student's t, and corrected by Holm for the number of comparisons.

Also what imperfect channel knowledge costs (csi), with slack and without: a run ends when it reaches 80 %, or after
twice the race's budget, which then counts as its time. Losses are paired by seed: the same devices, channels, data and
batches without the error.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedcell import defaults
from fedcell.paper.output import Claim, Output, verdict_of
from fedcell.paper.readings import TARGET, columns
from fedcell.paper.settings import DEVICES, Collect, Settings, gather
from fedcell.plots import Line, lines_figure
from fedcell.runs import stats
from fedcell.runs.records import Measure, Rounds
from fedcell.runs.stats import Mean
from fedcell.sim.spec import Spec
from fedcell.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BALANCED = {"task.aggregator": "balanced"}
CONTENDERS: dict[str, dict[str, Any]] = {
    "Diverse": {"policy": "diverse", **BALANCED},
    "Diverse, labels": {"policy": "diverse", "profiles": "labels", **BALANCED},
    "Greedy": {"policy": "greedy"},
    "Optimal": {"policy": "optimal"},
    "Deadline 8 s": {"policy": "deadline:seconds=8"},
    "Deadline 25 s": {"policy": "deadline:seconds=25"},
    "PF": {"policy": "proportional_fair:k=8"},
    "Random": {"policy": "random:k=8"},
    "All": {"policy": "all"},
}
"""What is compared, and the fields of a spec that make it."""
OURS = ("Diverse", "Diverse, labels")
BASELINE = "Greedy"


@dataclass(frozen=True)
class ProofCell:
    """A cell: the paper's with some fields changed, and the accuracy whose time is compared."""

    target: float = 0.8
    fields: dict[str, Any] = field(default_factory=dict)


ROWS = {
    "the paper's race, L = 2": ProofCell(),
    "devices that stay": ProofCell(fields={"devices.mobility": "static"}),
    "devices that walk": ProofCell(fields={"devices.mobility": "waypoint"}),
    "L = 1": ProofCell(0.7, {"task.partition": "labels:1"}),
    "L = 5": ProofCell(0.9, {"task.partition": "labels:5"}),
    "L = 8": ProofCell(0.9, {"task.partition": "labels:8"}),
    "i.i.d.": ProofCell(0.95, {"task.partition": "iid"}),
    "Dirichlet 0.1": ProofCell(fields={"task.partition": "dirichlet:0.1"}),
    "Dirichlet 0.5": ProofCell(0.9, {"task.partition": "dirichlet:0.5"}),
    "radius 600 m": ProofCell(fields={"cell.radius_m": 600.0}),
    "50 devices": ProofCell(fields={"devices.count": 50}),
    "100 devices": ProofCell(fields={"devices.count": 100}),
    "observed knowledge": ProofCell(fields={"knowledge": "observed"}),
    "Rayleigh fading": ProofCell(fields={"cell.fading": "rayleigh"}),
    "1 in 10 uploads fails": ProofCell(fields={"devices.failure": 0.1}),
}
"""The cells, and the accuracy that each is judged by."""
VARIANTS: dict[str, dict[str, Any]] = {
    "Diverse (gradients, balanced, memory 0.5)": {"policy": "diverse", **BALANCED},
    "plain averaging": {"policy": "diverse"},
    "no memory": {"policy": "diverse:memory=0", **BALANCED},
    "full memory": {"policy": "diverse:memory=1", **BALANCED},
    "theta = 0.02": {"policy": "diverse:theta=0.02", **BALANCED},
    "theta = 0.1": {"policy": "diverse:theta=0.1", **BALANCED},
    "theta = 0.2": {"policy": "diverse:theta=0.2", **BALANCED},
    "profiles from labels": {"policy": "diverse", "profiles": "labels", **BALANCED},
    "profiles from updates": {"policy": "diverse", "profiles": "updates", **BALANCED},
    "no profiles": {"policy": "diverse", "profiles": "none", **BALANCED},
    "Greedy, balanced averaging": {"policy": "greedy", **BALANCED},
    "Greedy": {"policy": "greedy"},
}
"""Diverse taken apart, in the paper's race and with devices that stay."""
EPSILONS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
EPOCHS = (0.1, 0.3, 1, 3)
MOBILITIES = {"redrawn": "redrawn each round", "waypoint": "walking", "static": "static"}


def cell_of(settings: Settings, row: ProofCell) -> Spec:
    """The row's cell, its policy and seed still the defaults."""
    fields = dict(row.fields)
    if settings.samples is not None:
        fields["task.sizes"] = [settings.samples] * fields.get("devices.count", DEVICES)
    return settings.in_cell("greedy", "L=2", settings.race_radius_m, settings.race_budget_s).changed(fields)


def race_specs(settings: Settings) -> dict[tuple[str, str], Spec]:
    """The runs of the table, by row and contender."""
    return {
        (name, who): cell_of(settings, row).changed(fields)
        for name, row in list(ROWS.items())[: settings.cells]
        for who, fields in CONTENDERS.items()
    }


def variant_specs(settings: Settings) -> dict[tuple[str, str], Spec]:
    """Diverse taken apart, by mobility and variant."""
    return {
        (mobility, who): cell_of(settings, ProofCell(fields={"devices.mobility": mobility})).changed(fields)
        for mobility in ("redrawn", "static")
        for who, fields in VARIANTS.items()
    }


def privacy_specs(settings: Settings) -> dict[float, Spec]:
    """Diverse with noise for privacy in the paper's race, by epsilon."""
    ours = cell_of(settings, ProofCell()).changed(CONTENDERS["Diverse"])
    return {epsilon: ours.changed({"epsilon": epsilon}) for epsilon in EPSILONS}


def epochs_specs(settings: Settings) -> dict[tuple[str, str, float], Spec]:
    """How much local work a round has, by mobility, contender and epochs."""
    return {
        (mobility, who, epochs): cell_of(settings, ProofCell(fields={"devices.mobility": mobility})).changed(
            CONTENDERS[who] | {"task.epochs": epochs}
        )
        for mobility in MOBILITIES
        for who in ("Diverse", BASELINE)
        for epochs in EPOCHS
    }


COLOURS = {
    "Diverse": ("#d55e00", "-"),
    "Diverse, labels": ("#cc79a7", "-"),
    "Greedy": ("#0072b2", "--"),
    "Optimal": ("#56b4e9", "-."),
    "Deadline 8 s": ("#7f7f7f", ":"),
    "Deadline 25 s": ("#009e73", "--"),
    "PF": ("#e69f00", "-."),
    "Random": ("#000000", ":"),
    "All": ("#999933", "--"),
}
MEASURES: dict[Measure, str] = {"time": "s to the target", "best": "best accuracy", "last": "last accuracy"}


class Comparison(NamedTuple):
    """Ours less theirs, by seed, with its 95 % interval and two-sided p; ``significant`` is corrected by Holm."""

    difference: Mean
    p: float
    significant: bool


def compare(
    found: Mapping[tuple[str, str], Sequence[Rounds]], budget_s: float
) -> dict[tuple[str, str, str, Measure], Comparison]:
    """Both of ours against every other in every row by every measure, corrected for the number of all of them."""
    pairs = {}
    for name in _cells(found):
        row = ROWS[name]
        for ours in OURS:
            for theirs in (who for who in CONTENDERS if who not in OURS):
                for measure in MEASURES:
                    a, b = (
                        [run.value(measure, row.target, budget_s) for run in found[name, who]] for who in (ours, theirs)
                    )
                    pairs[name, ours, theirs, measure] = stats.paired_difference(a, b)
    p = [stats.p_value(difference) for difference in pairs.values()]
    return {
        key: Comparison(difference, p_value, significant)
        for (key, difference), p_value, significant in zip(pairs.items(), p, stats.holm(p), strict=True)
    }


def _cells(keys: Iterable[tuple[str, ...]]) -> list[str]:
    """The names of the cells, in order."""
    return list(dict.fromkeys(key[0] for key in keys))


def make_table(settings: Settings, collect: Collect) -> Output:
    """Every contender in every cell."""
    found = gather(collect, race_specs(settings), settings.seeds)
    budget_s = settings.race_budget_s
    compared = compare(found, budget_s)
    times = {key: stats.times_to(runs, ROWS[key[0]].target) for key, runs in found.items()}
    accuracies = {
        (key, measure): stats.mean_of([run.value(measure, 1.0, budget_s) for run in runs])
        for key, runs in found.items()
        for measure in ("best", "last")
    }
    headings = ("cell", *CONTENDERS)
    tables = [
        Table(
            f"Median seconds to the target (seeds of {settings.seeds} that reached it, if not all)",
            ("cell", "target, %", *CONTENDERS),
            [
                [name, f"{100 * ROWS[name].target:g}", *(times[name, who].text() for who in CONTENDERS)]
                for name in _cells(found)
            ],
        ),
        *(
            Table(
                f"Mean {MEASURES[measure]}, %",
                headings,
                [
                    [name, *(f"{100 * accuracies[(name, w), measure].mean:.1f}" for w in CONTENDERS)]
                    for name in _cells(found)
                ],
            )
            for measure in ("best", "last")
        ),
        *(_against_baseline(compared, ours) for ours in OURS),
        _tally(compared),
    ]
    rows = [
        [name, who, time.median_s, time.reached, *(100 * accuracies[(name, who), m].mean for m in ("best", "last"))]
        for (name, who), time in times.items()
    ]
    return Output(
        name="diverse",
        title="Beyond the paper: Diverse against everybody, one factor at a time",
        setting=f"The paper's race (R = {settings.race_radius_m:g} m, {budget_s:g} s, 20 devices, L = 2) with one "
        f"factor changed in each row, {settings.seeds} seeds. Diverse has profiles from a report of 100 samples' "
        "training, or from label shares, and balanced averaging. The picture is of the paper's race, averaged over "
        "seeds.",
        figure=_curves(found, "the paper's race, L = 2", budget_s),
        csv=(("cell", "policy", "median_s_to_target", "reached", "best_percent", "last_percent"), rows),
        tables=tables,
        claims=_claims(times, compared),
        notes=[
            "* marks a difference that is significant at 5 % after Holm's correction for all "
            f"{len(compared)} comparisons of this table; intervals are 95 %, not corrected."
        ],
    )


def _against_baseline(compared: Mapping[tuple[str, str, str, Measure], Comparison], ours: str) -> Table:
    def cell(name: str, measure: Measure) -> str:
        one = compared[name, ours, BASELINE, measure]
        scale, digits = (1.0, 0) if measure == "time" else (100.0, 1)
        star = " *" if one.significant else ""
        half = "" if math.isnan(one.difference.half) else f" ± {scale * one.difference.half:.{digits}f}"
        return f"{scale * one.difference.mean:+.{digits}f}{half}{star}"

    return Table(
        f"{ours} less {BASELINE}: seconds to the target, points of best and of last accuracy",
        ("cell", *MEASURES.values()),
        [[name, *(cell(name, measure) for measure in MEASURES)] for name in _cells(compared)],
    )


def _better(one: Comparison, measure: Measure) -> bool:
    return (one.difference.mean < 0.0) == (measure == "time")


def _tally(compared: Mapping[tuple[str, str, str, Measure], Comparison]) -> Table:
    rows = []
    for ours in OURS:
        for theirs in (who for who in CONTENDERS if who not in OURS):
            cells = []
            for measure in MEASURES:
                ones = [compared[name, ours, theirs, measure] for name in _cells(compared)]
                wins = sum(one.significant and _better(one, measure) for one in ones)
                losses = sum(one.significant and not _better(one, measure) for one in ones)
                cells.append(f"{wins} : {losses}")
            rows.append([ours, theirs, *cells])
    return Table(
        f"Cells, of {len(_cells(compared))}, in which it is significantly better : worse",
        ("", "than", *MEASURES.values()),
        rows,
    )


def _claims(
    times: Mapping[tuple[str, str], stats.TimeTo], compared: Mapping[tuple[str, str, str, Measure], Comparison]
) -> list[Claim]:
    race, static, *_ = ROWS
    claims = []
    for ours in OURS:
        mine, base = times[race, ours].median_s, times[race, BASELINE].median_s
        claims.append(
            Claim(
                f"{ours} reaches the target in at most half of {BASELINE}'s median time",
                verdict_of(mine <= 0.5 * base),
                f"{mine:.0f} s against {base:.0f} s in the paper's race.",
            )
        )
        last = compared[race, ours, BASELINE, "last"].difference
        claims.append(
            Claim(
                f"{ours} ends at least 5 points higher than {BASELINE}",
                verdict_of(last.mean >= 0.05),
                f"{last.text(100, 1)} points in the paper's race.",
            )
        )
        here = times[static, ours]
        claims.append(
            Claim(
                f"{ours} reaches the target with at least 8 of 10 seeds where devices stay",
                verdict_of(here.reached >= 0.8 * here.n),
                f"{here.reached} of {here.n}; {BASELINE} {times[static, BASELINE].reached}.",
            )
        )
        worse = [
            f"{name} ({MEASURES[measure]})"
            for name in _cells(compared)
            for measure in MEASURES
            if (one := compared[name, ours, BASELINE, measure]).significant and not _better(one, measure)
        ]
        claims.append(
            Claim(
                f"{ours} is nowhere significantly worse than {BASELINE}",
                verdict_of(not worse),
                f"Worse in: {'; '.join(worse) or 'none'}.",
            )
        )
    return claims


def _curves(found: Mapping[tuple[str, str], Sequence[Rounds]], name: str, budget_s: float) -> "Figure":
    lines = []
    for who, (colour, dash) in COLOURS.items():
        curve = stats.mean_curve(found[name, who], budget_s)
        ours = who in OURS
        half = 100 * curve.half if who in ("Diverse", BASELINE) else None
        width = 2.0 if ours else 1.0
        lines.append(Line(who, curve.x, 100 * curve.accuracy, half, colour, dash, step=True, width=width))
    return lines_figure(
        lines, "simulated time, s", "test accuracy, %", x_limits=(0.0, budget_s), y_limits=(20.0, None), columns=2
    )


def make_variants(settings: Settings, collect: Collect) -> Output:
    """The ablation of Diverse."""
    found = gather(collect, variant_specs(settings), settings.seeds)
    places = ("redrawn", "static")
    rows = []
    for who in VARIANTS:
        cells = []
        for place in places:
            cells += _time_best_last(found[place, who])
        rows.append([who, *cells])
    headings = ["", *(f"{what}, {MOBILITIES[place]}" for place in places for what in ("to 80 %", "best, %", "last, %"))]
    return Output(
        name="variants",
        title="Beyond the paper: Diverse taken apart",
        setting=f"The paper's race, and the same with devices that stay where they are; {settings.seeds} seeds. Each "
        "row changes one thing of Diverse's default.",
        figure=None,
        csv=(headings, rows),
        tables=[Table("Median seconds to 80 %, best and last accuracy with 95 % intervals", headings, rows)],
    )


def make_privacy(settings: Settings, collect: Collect) -> Output:
    """Accuracy against epsilon."""
    found = gather(collect, privacy_specs(settings), settings.seeds)
    race = {who: race_specs(settings)[next(iter(ROWS)), who] for who in ("Diverse", BASELINE)}
    found_ends = gather(collect, race, settings.seeds)
    names = [f"epsilon = {epsilon:g}" for epsilon in EPSILONS]
    cases = dict(zip(names, found.values(), strict=True))
    cases |= {"no noise": found_ends["Diverse"], "Greedy": found_ends[BASELINE]}
    rows = [[name, *_time_best_last(runs)] for name, runs in cases.items()]
    x = np.arange(len(cases), dtype=np.float64)
    lines = []
    for label, f, colour, marker in (
        ("best accuracy", Rounds.best_accuracy, "#0072b2", "o"),
        ("last accuracy", Rounds.last_accuracy, "#d55e00", "s"),
    ):
        y, half = columns([_mean(runs, f) for runs in cases.values()], 100)
        lines.append(Line(label, x, y, half, colour, "", marker))
    figure = lines_figure(lines, "epsilon", "accuracy, %", legend="upper left")
    figure.axes[0].set_xticks(x, [*(f"{epsilon:g}" for epsilon in EPSILONS), "no noise", "Greedy"])
    return Output(
        name="privacy",
        title="Beyond the paper: the price of privacy",
        setting=f"The paper's race, Diverse with gradient reports that have the noise of local differential privacy; "
        f"{settings.seeds} seeds, bars are 95 % intervals.",
        figure=figure,
        csv=(("epsilon", "seconds_to_80_percent", "best_percent", "last_percent"), rows),
        tables=[Table("Accuracy against epsilon", ("", "to 80 %", "best, %", "last, %"), rows)],
    )


def _mean(runs: Sequence[Rounds], value: Callable[[Rounds], float]) -> Mean:
    return stats.mean_of([value(run) for run in runs])


def _time_best_last(runs: Sequence[Rounds]) -> list[str]:
    """The median time to 80 %, best and last accuracy, as a table shows them."""
    accuracies = (_mean(runs, value).text(100, 1) for value in (Rounds.best_accuracy, Rounds.last_accuracy))
    return [stats.times_to(runs, TARGET).text(), *accuracies]


def make_epochs(settings: Settings, collect: Collect) -> Output:
    """How much local work a round should have."""
    found = gather(collect, epochs_specs(settings), settings.seeds)
    dashes = {"redrawn": "-", "waypoint": "--", "static": ":"}
    lines, rows = [], []
    for (mobility, dash), (who, colour, marker) in [
        (place, style)
        for place in dashes.items()
        for style in (("Diverse", "#d55e00", "o"), (BASELINE, "#0072b2", "s"))
    ]:
        y, half = columns([_mean(found[mobility, who, epochs], Rounds.last_accuracy) for epochs in EPOCHS], 100)
        lines.append(
            Line(f"{who}, {MOBILITIES[mobility]}", np.arange(len(EPOCHS), dtype=float), y, half, colour, dash, marker)
        )
        for epochs in EPOCHS:
            rows.append([MOBILITIES[mobility], who, f"{epochs:g}", *_time_best_last(found[mobility, who, epochs])])
    figure = lines_figure(
        lines, "epochs of local training in a round", "last accuracy, %", y_limits=(35.0, None), columns=2
    )
    figure.axes[0].set_xticks(range(len(EPOCHS)), [f"{epochs:g}" for epochs in EPOCHS])
    headings = ("devices", "policy", "epochs", "to 80 %", "best, %", "last, %")
    return Output(
        name="epochs",
        title="Beyond the paper: how much to train in a round",
        setting=f"The paper's race with less and with more local training in a round, {settings.seeds} seeds; compute "
        "time is proportional to the samples visited. Bars are 95 % intervals.",
        figure=figure,
        csv=(headings, rows),
        tables=[Table("Time to 80 %, best and last accuracy", headings, rows)],
    )


ERRORS_DB = (0.0, 1.0, 2.0, 4.0, 8.0)
SLACKS = {None: "waits for all", defaults.SLACK: f"slack {defaults.SLACK:g}"}
"""How long the server waits, and how that is called."""
CSI_POLICIES = ("Greedy", "Optimal", "Diverse")
_DASHES = dict(zip(SLACKS, ("-", ":"), strict=True))

CsiKey = tuple[str, float | None, float]
"""Who, with which slack, at which error."""


def csi_specs(settings: Settings) -> dict[CsiKey, Spec]:
    """The runs; without an error the slack makes no difference, and they are run once."""
    fields = {"target_accuracy": TARGET, "budget_s": _csi_budget_s(settings)}
    return {
        (who, slack, error_db): cell_of(settings, ProofCell()).changed(
            CONTENDERS[who] | fields | {"slack": slack, "cell.csi_error_db": error_db}
        )
        for who in CSI_POLICIES
        for slack in SLACKS
        for error_db in ERRORS_DB
    }


def _csi_budget_s(settings: Settings) -> float:
    return 2 * settings.race_budget_s


def make_csi(settings: Settings, collect: Collect) -> Output:
    """Time to 80 % against the error in the SNR that the server believes."""
    budget_s = _csi_budget_s(settings)
    found = gather(collect, csi_specs(settings), settings.seeds)
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
        figure=_csi_figure(means),
        csv=(
            ("policy", "slack", "csi_error_db", "mean_s_to_80_percent", "half_s", "loss_s", "loss_half_s", "reached"),
            [
                [
                    who,
                    slack or "none",
                    error_db,
                    *_mean_and_half(means[key]),
                    *_mean_and_half(losses[key]),
                    _reached(found[key]),
                ]
                for key in found
                for who, slack, error_db in [key]
            ],
        ),
        tables=[
            Table("Mean seconds to 80 % with 95 % intervals", headings, _csi_rows(means, found)),
            Table(
                "Seconds lost by the error, paired by seed, with 95 % intervals",
                headings,
                _csi_rows(losses, found, "+"),
            ),
            Table(
                "Rounds until then, and mean seconds of a round",
                headings,
                _by_csi_key(lambda key: _rounds_text(found[key])),
            ),
        ],
        notes=[f"n/{settings.seeds}: so many seeds reached 80 %; the others count as {budget_s:g} s."],
    )


def _mean_and_half(value: Mean) -> tuple[float, float]:
    return value.mean, value.half


def _reached(runs: Sequence[Rounds]) -> int:
    return stats.times_to(runs, TARGET).reached


def _csi_rows(
    values: Mapping[CsiKey, Mean], found: Mapping[CsiKey, Sequence[Rounds]], sign: str = ""
) -> list[list[str]]:
    def text(key: CsiKey) -> str:
        value, runs = values[key], found[key]
        if sign and key[2] == 0.0:
            return "0"
        half = "" if np.isnan(value.half) else f" ± {value.half:.0f}"
        reached = "" if _reached(runs) == len(runs) else f" ({_reached(runs)}/{len(runs)})"
        return f"{value.mean:{sign}.0f}{half}{reached}"

    return _by_csi_key(text)


def _rounds_text(runs: Sequence[Rounds]) -> str:
    """How many rounds a run has on average, and how long one takes, such as ``12.6 x 12.2 s``."""
    round_s = np.concatenate([run.round_s for run in runs])
    return f"{len(round_s) / len(runs):.1f} x {round_s.mean():.1f} s"


def _by_csi_key(text: Callable[[CsiKey], str]) -> list[list[str]]:
    return [
        [who, name, *(text((who, slack, error_db)) for error_db in ERRORS_DB)]
        for who in CSI_POLICIES
        for slack, name in SLACKS.items()
    ]


def _csi_figure(means: Mapping[CsiKey, Mean]) -> "Figure":
    lines = []
    for shift, who in zip((-0.06, 0.0, 0.06), CSI_POLICIES, strict=True):  # so that the intervals can be told apart
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
