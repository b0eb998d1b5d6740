"""What Auto gains over Greedy and Diverse: seconds to the target in every cell, and accuracy when the time is up.

A cell is the paper's race with something changed, on MNIST or on data of real people.

All seeds count in every number: one that never reaches the target is later than all that do. A median is "never" if
half of the seeds do not reach it. Runs for times end at the target.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedcell import defaults
from fedcell.errors import InputError, did_you_mean
from fedcell.learn.published import DATA_VARIABLE, find_data
from fedcell.paper.output import Claim, Output, Verdict, verdict_of
from fedcell.paper.settings import DEVICES, Collect, Settings, gather
from fedcell.plots import Dots, Line, dots_figure, lines_figure
from fedcell.runs import comparisons, stats
from fedcell.runs.records import Rounds
from fedcell.sim.spec import Spec
from fedcell.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WISDM, AUDIO, WRITERS = "wisdm51-watch-accel.npz", "audiomnist-logmel32.npz", "mnist-by-writer.npz"
FASHION = "fashion-mnist"
PEOPLE = {WISDM: 50, AUDIO: 60, WRITERS: 50}
"""How many people of each data set are devices; of more, the seed draws which."""
FIRST_SEED = 1000
"""The seeds begin here: no constant of Auto was chosen on them."""


@dataclass(frozen=True)
class AutoCell:
    """A cell: the paper's race with some fields changed.

    Attributes:
        title: in tables.
        target: the accuracy whose time is compared, a fraction.
        fields: what differs from the paper's race, but for the data.
        data: a file, or a directory, that is looked for in FEDCELL_DATA; empty for MNIST.
        grid_s: the time limit of the runs of the hindsight grid, in seconds; chosen so that the best of it is within.
    """

    title: str
    target: float = 0.8
    fields: dict[str, Any] = field(default_factory=dict)
    data: str = ""
    grid_s: float = 60.0

    @property
    def people(self) -> bool:
        """Whether each device is a real person."""
        return self.data in PEOPLE


def spread(ratio: float, count: int = DEVICES) -> dict[str, Any]:
    """Fields of devices whose compute speeds are spread by a ratio, evenly in the logarithm around the paper's."""
    factors = ratio ** np.linspace(-0.5, 0.5, count)  # of times: the fastest first; positions and data are drawn
    return {
        "devices.seconds_per_sample": (defaults.SECONDS_PER_SAMPLE * factors).tolist(),
        "devices.samples_per_second": (defaults.SAMPLES_PER_SECOND / factors).tolist(),
    }


STATIC, IID = {"devices.mobility": "static"}, {"task.partition": "iid"}
FREE = {"task.partition": "labels:2,mode=free"}

CELLS = {
    "race": AutoCell("the paper's race, L = 2"),
    "static": AutoCell("devices that stay", fields=STATIC),
    "iid": AutoCell("i.i.d.", 0.95, IID, grid_s=250.0),
    "waypoint": AutoCell("devices that walk", fields={"devices.mobility": "waypoint"}),
    "free": AutoCell("L = 2, free", fields=FREE, grid_s=100.0),
    "free-static": AutoCell("L = 2, free, static", fields=FREE | STATIC, grid_s=100.0),
    "labels-1": AutoCell("L = 1", fields={"task.partition": "labels:1"}, grid_s=100.0),
    "dirichlet-0.1": AutoCell("Dirichlet 0.1", fields={"task.partition": "dirichlet:0.1"}),
    "speeds-10": AutoCell("speeds spread 10 x", fields=spread(10.0)),
    "speeds-30": AutoCell("speeds spread 30 x", fields=spread(30.0)),
    "speeds-10-iid": AutoCell("speeds spread 10 x, i.i.d.", 0.95, IID | spread(10.0), grid_s=250.0),
    "speeds-30-iid": AutoCell("speeds spread 30 x, i.i.d.", 0.95, IID | spread(30.0), grid_s=250.0),
    "fashion": AutoCell("Fashion-MNIST, L = 2", 0.7, data=FASHION),
    "fashion-static": AutoCell("Fashion-MNIST, L = 2, static", 0.7, STATIC, FASHION),
    "fashion-dirichlet-0.3": AutoCell(
        "Fashion-MNIST, Dirichlet 0.3", 0.8, {"task.partition": "dirichlet:0.3"}, FASHION, 120.0
    ),
    "wisdm": AutoCell("WISDM, 50 people", 0.5, data=WISDM),
    "wisdm-static": AutoCell("WISDM, 50 people, static", 0.5, STATIC, WISDM),
    "audio": AutoCell("AudioMNIST, 60 speakers", 0.9, data=AUDIO),
    "audio-static": AutoCell("AudioMNIST, 60 speakers, static", 0.9, STATIC, AUDIO),
    "writers": AutoCell("MNIST, 50 writers", 0.8, data=WRITERS),
    "writers-static": AutoCell("MNIST, 50 writers, static", 0.75, STATIC, WRITERS),
    "labels-1-70": AutoCell("L = 1, to 70 %", 0.7, {"task.partition": "labels:1"}),
    "labels-5": AutoCell("L = 5", 0.9, {"task.partition": "labels:5"}),
    "labels-8": AutoCell("L = 8", 0.9, {"task.partition": "labels:8"}),
    "dirichlet-0.5": AutoCell("Dirichlet 0.5", 0.9, {"task.partition": "dirichlet:0.5"}),
    "radius-600": AutoCell("radius 600 m", fields={"cell.radius_m": 600.0}),
    "devices-50": AutoCell("50 devices", fields={"devices.count": 50}),
    "devices-100": AutoCell("100 devices", fields={"devices.count": 100}),
    "observed": AutoCell("observed knowledge", fields={"knowledge": "observed"}),
    "rayleigh": AutoCell("Rayleigh fading", fields={"cell.fading": "rayleigh"}),
    "failures": AutoCell("1 in 10 uploads fails", fields={"devices.failure": 0.1}),
}
"""All cells, by the names that ``--cells`` takes: the promised ones, then the rest of docs/diverse.md's fifteen."""


def checked_cells(names: str) -> tuple[str, ...]:
    """The names of a list with commas, in the order of CELLS; an InputError names the one that is none."""
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in CELLS:
            raise InputError(f"there is no cell {name[:60]!r}; {did_you_mean(name, CELLS)}")
    return tuple(name for name in CELLS if name in asked)


def chosen_cells(settings: Settings, among: Iterable[str] = CELLS) -> tuple[dict[str, AutoCell], list[str]]:
    """The cells of these names that are compared, and a sentence for all whose data is not there."""
    names = [name for name in among if not settings.only or name in settings.only]
    found, missing = {}, dict[str, list[str]]()
    for name in names[: settings.cells]:
        cell = CELLS[name]
        if cell.data and find_data(cell.data) is None:
            missing.setdefault(cell.data, []).append(name)
        else:
            found[name] = cell
    where = f"{DATA_VARIABLE} names no directory that has it, itself or one below"
    return found, [f"Left out: {', '.join(cells)}, for there is no {data}; {where}." for data, cells in missing.items()]


def spec_of(settings: Settings, cell: AutoCell) -> Spec:
    """The cell, its policy and seed still the defaults."""
    fields = dict(cell.fields)
    if cell.data:
        fields["task.data"] = find_data(cell.data) or cell.data
    if cell.people:
        fields |= {"task.partition": "natural", "devices.count": PEOPLE[cell.data]}
    elif settings.samples is not None:
        fields["task.sizes"] = [settings.samples] * fields.get("devices.count", DEVICES)
    return settings.in_cell("greedy", "L=2", settings.race_radius_m, settings.race_budget_s).changed(fields)


# --- contenders ----------------------------------------------------------------------------------------------------

OURS, PLAIN, BASELINE, DIVERSE = "Auto", "Auto, momentum 0", "Greedy", "Diverse"
MOMENTUM = 0.5
"""Auto's own; the grid has it too."""
CONTENDERS: dict[str, dict[str, Any]] = {
    BASELINE: {"policy": "greedy"},
    DIVERSE: {"policy": "diverse", "task.aggregator": "balanced"},
    OURS: {"policy": "auto"},
    PLAIN: {"policy": "auto:momentum=0"},
}
"""What is compared, and the fields of a spec that make it."""
LOOKS = {
    BASELINE: ("#0072b2", "s", "--"),
    DIVERSE: ("#009e73", "^", "-."),
    OURS: ("#d55e00", "o", "-"),
    PLAIN: ("#e69f00", "D", ":"),
}
"""Colour, marker and dash."""
Found = Mapping[tuple[str, str], Sequence[Rounds]]
"""Runs by cell and contender."""


@dataclass(frozen=True)
class Share:
    """A goal: at most this share of the median time of Greedy.

    Attributes:
        cell: where.
        most: the share.
        text: the share in words.
    """

    cell: str
    most: float
    text: str


SHARES = (
    Share("race", 1 / 20, "1/20"),
    Share("race", 1 / 15, "1/15 (the least that will do)"),
    Share("free", 1 / 15, "1/15"),
    Share("iid", 0.5, "half"),
    Share("iid", 0.65, "0.65 (the least that will do)"),
    Share("dirichlet-0.1", 0.12, "0.12"),
    Share("fashion", 1 / 12, "1/12"),
    Share("fashion-dirichlet-0.3", 0.25, "a quarter"),
    *(Share(f"{name}{where}", 0.5, "half") for name in ("wisdm", "audio", "writers") for where in ("", "-static")),
)
WITHIN_S = {"static": 12.0, "waypoint": 12.0, "free-static": math.inf}
"""Where all seeds must reach the target, and the most that the median may be, in seconds."""
POINTS = 0.06
"""How much higher the accuracy must be at the end of the paper's race."""


def gather_ours(collect: Collect, specs: Mapping[Any, Spec], settings: Settings) -> dict[Any, list[Rounds]]:
    """The runs of the specs with the seeds of this proof, by the specs' labels."""
    return gather(collect, specs, settings.seeds, FIRST_SEED)


def to_target(settings: Settings, cell: AutoCell) -> Spec:
    """Of the cell, its policy still the default."""
    return spec_of(settings, cell).changed({"target_accuracy": cell.target})


def time_specs(settings: Settings, cells: Mapping[str, AutoCell]) -> dict[tuple[str, str], Spec]:
    """The runs until the target, by cell and contender."""
    return {
        (name, who): to_target(settings, cell).changed(fields)
        for name, cell in cells.items()
        for who, fields in CONTENDERS.items()
    }


def accuracy_specs(settings: Settings, cells: Mapping[str, AutoCell]) -> dict[tuple[str, str], Spec]:
    """The runs of the whole time, by cell and contender."""
    return {
        (name, who): spec_of(settings, cell).changed(fields)
        for name, cell in cells.items()
        for who, fields in CONTENDERS.items()
    }


class Time(NamedTuple):
    """Times to a target over seeds.

    Attributes:
        values: (seeds,) seconds, infinity for never.
        median_s: infinity if half of the seeds or more never got there.
        low: where its 95 % interval begins.
        high: where it ends.
    """

    values: list[float]
    median_s: float
    low: float
    high: float

    @classmethod
    def of(cls, runs: Sequence[Rounds], target: float) -> "Time":
        """When the runs reached the target."""
        values = [run.time_to(target) for run in runs]
        return cls(values, stats.median(values), *stats.median_interval(values))

    @property
    def reached(self) -> int:
        """How many seeds did."""
        return sum(map(math.isfinite, self.values))

    def text(self) -> str:
        """Such as ``6.4 s [5.9, 7.1]`` or ``never (3/30)``."""
        of = "" if self.reached == len(self.values) else f" ({self.reached}/{len(self.values)})"
        if not math.isfinite(self.median_s):
            return f"never{of}"
        interval = "" if math.isnan(self.low) else f" [{_s(self.low)}, {_s(self.high)}]"
        return f"{_s(self.median_s)} s{interval}{of}"


def _s(seconds: float) -> str:
    return "never" if math.isinf(seconds) else f"{seconds:.1f}" if seconds < 99.95 else f"{seconds:.0f}"


def _range(one: comparisons.PairEstimate, digits: int = 1) -> str:
    """A number and its interval, if it has one."""
    interval = "" if math.isnan(one.low) else f" [{one.low:.{digits}f}, {one.high:.{digits}f}]"
    return f"{one.value:.{digits}f}{interval}"


def times_of(found: Found, cells: Mapping[str, AutoCell]) -> dict[tuple[str, str], Time]:
    """The times to the targets of the cells, by cell and contender."""
    return {(name, who): Time.of(runs, cells[name].target) for (name, who), runs in found.items()}


# --- times to the target -------------------------------------------------------------------------------------------


def make_times(settings: Settings, collect: Collect) -> Output:
    """When each contender reaches the target of each cell."""
    cells, missing = chosen_cells(settings)
    found: Found = gather_ours(collect, time_specs(settings, cells), settings)
    times, budget_s = times_of(found, cells), settings.race_budget_s
    compared = compare(found, cells, budget_s)
    rows = [
        [name, who, 100 * cells[name].target, one.median_s, one.low, one.high, one.reached, len(one.values)]
        for (name, who), one in times.items()
    ]
    return Output(
        name="auto-times",
        title="Beyond the paper: Auto against Greedy and Diverse, seconds to the target",
        setting=f"{setting(settings, budget_s)} Runs end at the target. Auto has the policy's own server momentum, "
        f"{MOMENTUM:g}, or none; Diverse has balanced averaging, and Greedy is the paper's.",
        figure=dots_of(times, cells, list(CONTENDERS), budget_s),
        csv=(("cell", "policy", "target_percent", "median_s", "low_s", "high_s", "reached", "seeds"), rows),
        tables=[
            Table(
                "Median seconds to the target [95 % interval of the median] (seeds that reached it, if not all)",
                ("cell", "target, %", *CONTENDERS),
                [
                    [cell.title, f"{100 * cell.target:g}", *(times[name, who].text() for who in CONTENDERS)]
                    for name, cell in cells.items()
                ],
            ),
            _compared_table(compared, cells),
        ],
        claims=_time_claims(times, compared, cells, budget_s),
        notes=[
            "* marks a difference of restricted means that is significant at 5 % by a paired sign-flip test, after "
            f"Holm's correction for all {len(compared)} comparisons of this table; intervals are not corrected.",
            *missing,
        ],
        left_out=missing,
    )


def setting(settings: Settings, budget_s: float) -> str:
    """What is run, in a sentence."""
    return (
        f"The paper's race (R = {settings.race_radius_m:g} m, {budget_s:g} s, 20 devices, L = 2, redrawn) with "
        f"something changed in each row, seeds {FIRST_SEED} to {FIRST_SEED + settings.seeds - 1}."
    )


class Compared(NamedTuple):
    """One contender against another in a cell.

    Attributes:
        mean: its restricted mean, in seconds.
        other_mean: the other's.
        ratio: other_mean / mean, with its interval.
        significant: after Holm's correction for all comparisons.
    """

    mean: float
    other_mean: float
    ratio: comparisons.PairEstimate
    significant: bool


COMPARED = ((OURS, BASELINE), (OURS, DIVERSE), (PLAIN, BASELINE), (OURS, PLAIN))


def compare(found: Found, cells: Mapping[str, AutoCell], budget_s: float) -> dict[tuple[str, str, str], Compared]:
    """By cell, contender and the other one: the pairs of COMPARED, corrected for the number of all of them."""
    told = dict[tuple[str, str, str], comparisons.PairComparison]()
    for name, cell in cells.items():
        pairs = comparisons.compare_pairs({who: found[name, who] for who in CONTENDERS}, cell.target, budget_s)
        told |= {(name, one, other): pairs[one, other] for one, other in COMPARED if (one, other) in pairs}
    rejected = stats.holm([one.p for one in told.values()])
    return {
        key: Compared(one.mean, one.other_mean, one.ratio, holds)
        for (key, one), holds in zip(told.items(), rejected, strict=True)
    }


def _compared_table(compared: Mapping[tuple[str, str, str], Compared], cells: Mapping[str, AutoCell]) -> Table:
    def row(name: str) -> list[str]:
        means = [f"{compared[name, OURS, other].mean:.1f}" for other in (BASELINE,) if (name, OURS, other) in compared]
        ratios = [
            _range(one.ratio) + (" *" if one.significant else "")
            for pair in COMPARED
            if (one := compared.get((name, *pair))) is not None
        ]
        return [cells[name].title, *(means or ["-"]), *(ratios or ["-"] * len(COMPARED))]

    headings = ("cell", f"{OURS}, mean s", *(f"{other} / {one}" for one, other in COMPARED))
    return Table(
        "Restricted mean seconds (a seed that never reaches the target counts with the limit), and how many times as "
        "long the other takes",
        headings,
        [row(name) for name in cells],
    )


def _time_claims(
    times: Mapping[tuple[str, str], Time],
    compared: Mapping[tuple[str, str, str], Compared],
    cells: Mapping[str, AutoCell],
    budget_s: float,
) -> list[Claim]:
    claims = []
    for goal in SHARES:
        if goal.cell in cells:
            ours, theirs = times[goal.cell, OURS], times[goal.cell, BASELINE]
            ratio = comparisons.median_ratio(ours.values, theirs.values, budget_s)
            least = "" if math.isfinite(theirs.median_s) else f" (never counts as {budget_s:g} s)"
            claims.append(
                Claim(
                    f"{cells[goal.cell].title}: at most {goal.text} of {BASELINE}'s median time",
                    verdict_of(math.isfinite(ours.median_s) and ratio.value <= goal.most),
                    f"{ours.text()} against {theirs.text()}: {_range(ratio, 3)} of it{least}.",
                )
            )
    for name, most_s in WITHIN_S.items():
        if name in cells:
            ours = times[name, OURS]
            within = f", at the median within {most_s:g} s" if math.isfinite(most_s) else ""
            claims.append(
                Claim(
                    f"{cells[name].title}: all seeds reach the target{within}",
                    verdict_of(ours.reached == len(ours.values) and ours.median_s <= most_s),
                    f"{ours.text()}, the last {_s(max(ours.values))}; {BASELINE} {times[name, BASELINE].text()}.",
                )
            )
    for other in (BASELINE, DIVERSE):
        pairs = {name: one for (name, who, than), one in compared.items() if (who, than) == (OURS, other)}
        worse = [cells[name].title for name, one in pairs.items() if one.significant and one.mean > one.other_mean]
        better = sum(one.significant and one.mean < one.other_mean for one in pairs.values())
        claims.append(
            Claim(
                f"{OURS} is nowhere significantly later than {other}",
                verdict_of(not worse),
                f"Sooner in {better} of {len(pairs)} cells; later in: {', '.join(worse) or 'none'}.",
            )
        )
    return claims


def dots_of(
    times: Mapping[tuple[str, str], Time], cells: Mapping[str, AutoCell], names: Sequence[str], limit_s: float
) -> "Figure":
    """The medians of every cell, with their intervals."""
    dots = []
    for who in names:
        here = [times.get((name, who)) for name in cells]
        numbers = [(one.median_s, one.low, one.high) if one is not None else (math.nan,) * 3 for one in here]
        x, low, high = np.array(numbers, dtype=np.float64).reshape(-1, 3).T
        colour, marker, _ = LOOKS[who]
        dots.append(Dots(who, x, low, high, colour, marker))
    label = "median simulated time to the target, s (arrows: never)"
    return dots_figure([cell.title for cell in cells.values()], dots, label, limit_s)


# --- accuracies ----------------------------------------------------------------------------------------------------


def make_accuracy(settings: Settings, collect: Collect) -> Output:
    """The accuracy of each contender when the time is up."""
    cells, missing = chosen_cells(settings)
    found: Found = gather_ours(collect, accuracy_specs(settings, cells), settings)
    budget_s = settings.race_budget_s
    last = {key: [run.last_accuracy() for run in runs] for key, runs in found.items()}
    differences = {
        (name, who): [a - b for a, b in zip(last[name, who], last[name, BASELINE], strict=True)]
        for name in cells
        for who in (DIVERSE, OURS, PLAIN)
    }
    p = [comparisons.sign_flip_p(values) for values in differences.values()]
    significant = dict(zip(differences, stats.holm(p), strict=True))
    gains = {key: stats.mean_of(values) for key, values in differences.items()}

    def gain(name: str, who: str) -> str:
        half = f" ± {100 * gains[name, who].half:.1f}" if gains[name, who].has_interval else ""
        return f"{100 * gains[name, who].mean:+.1f}{half}" + (" *" if significant[name, who] else "")

    means = {key: stats.mean_of(values) for key, values in last.items()}
    return Output(
        name="auto-accuracy",
        title=f"Beyond the paper: Auto against Greedy and Diverse, accuracy after {budget_s:g} s",
        setting=f"{setting(settings, budget_s)} The picture is of the first row.",
        figure=_curves({who: found[next(iter(cells)), who] for who in CONTENDERS}, budget_s) if cells else None,
        csv=(
            ("cell", "policy", "last_percent", "half_percent", "best_percent", "seeds"),
            [
                [name, who, 100 * one.mean, 100 * one.half, 100 * _best(found[name, who]), one.n]
                for (name, who), one in means.items()
            ],
        ),
        tables=[
            Table(
                f"Mean accuracy after {budget_s:g} s, %, with 95 % intervals",
                ("cell", *CONTENDERS),
                [
                    [cell.title, *(means[name, who].percent_text(1) for who in CONTENDERS)]
                    for name, cell in cells.items()
                ],
            ),
            Table(
                f"Less that of {BASELINE}, in points, paired by seed",
                ("cell", DIVERSE, OURS, PLAIN),
                [[cell.title, *(gain(name, who) for who in (DIVERSE, OURS, PLAIN))] for name, cell in cells.items()],
            ),
        ],
        claims=_accuracy_claims({n: gains[n, OURS] for n in cells}, {n: significant[n, OURS] for n in cells}, cells),
        notes=[
            "* marks a difference that is significant at 5 % by a paired sign-flip test, after Holm's correction for "
            f"all {len(differences)} differences; intervals are not corrected.",
            *missing,
        ],
        left_out=missing,
    )


def _best(runs: Sequence[Rounds]) -> float:
    return stats.mean_of([run.best_accuracy() for run in runs]).mean


def _accuracy_claims(
    gains: Mapping[str, stats.Mean], significant: Mapping[str, bool], cells: Mapping[str, AutoCell]
) -> list[Claim]:
    claims = []
    if "race" in cells:
        claims.append(
            Claim(
                f"{cells['race'].title}: {OURS} ends at least {100 * POINTS:g} points higher than {BASELINE}",
                verdict_of(gains["race"].mean >= POINTS),
                f"{gains['race'].text(100, 1)} points.",
            )
        )
    for where, names in (
        ("on data of real people", [name for name, cell in cells.items() if cell.people]),
        ("anywhere", list(cells)),
    ):
        lower = [name for name in names if not gains[name].mean >= 0.0]
        sure = [name for name in lower if significant[name]]
        judged: Verdict = "not confirmed" if sure else "not significant" if lower else "confirmed"
        said = ", ".join(f"{cells[name].title} ({gains[name].text(100, 1)} points)" for name in lower)
        if names:
            claims.append(
                Claim(f"{OURS} does not end lower than {BASELINE} {where}", judged, f"Lower in: {said or 'none'}.")
            )
    return claims


def _curves(runs: Mapping[str, Sequence[Rounds]], budget_s: float) -> "Figure":
    lines = []
    for who, some in runs.items():
        curve = stats.mean_curve(some, budget_s)
        colour, _, dash = LOOKS[who]
        lines.append(Line(who, curve.x, 100 * curve.accuracy, 100 * curve.half, colour, dash, step=True))
    figure = lines_figure(lines, "simulated time, s", "test accuracy, %", x_limits=(1.0, budget_s))
    figure.axes[0].set_xscale("log")
    return figure
