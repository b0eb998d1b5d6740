"""What a figure's module gives (picture, data, numbers, claims), and index.html, which binds all of them.

The page has the paper's printed numbers and claims beside ours; it is self-contained and has no scripts.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from fedcell import __version__
from fedcell.distributions import student_t_quantile
from fedcell.paper.settings import Settings
from fedcell.runs import stats
from fedcell.runs.stats import Mean
from fedcell.tables import Table, html_page, html_picture, html_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PAPER_TRIALS = 5
Verdict = Literal["confirmed", "not confirmed", "not significant"]


@dataclass(frozen=True)
class Printed:
    """A number that the paper prints, and ours.

    Attributes:
        where: such as ``Fig. 2``.
        what: what the number is.
        printed: as the paper prints it.
        readings: ours, by how it is read, with 95 % intervals; the first is the one that is compared.
        unit: such as ``%``.
        digits: decimals shown.
        why: what is known of a difference; shown only where there is one.
        interval: of the first reading, where it is not symmetric (bootstrap).
    """

    where: str
    what: str
    printed: str
    readings: tuple[tuple[str, Mean], ...]
    unit: str
    digits: int
    why: str
    interval: tuple[float, float] | None = None

    @property
    def agrees(self) -> bool:
        """Whether the paper's number lies within the spread of two such means, the paper's five trials and ours."""
        ours, printed = self.readings[0][1], float(self.printed)
        if self.interval is None:
            return close(printed, ours)
        low, high = self.interval
        half = ours.mean - low if printed < ours.mean else high - ours.mean
        bounded = math.isfinite(low) and math.isfinite(ours.mean)
        return bounded and close(printed, Mean(ours.mean, half, ours.n))

    def text(self) -> str:
        """Ours with its interval; ``never`` for infinity, ``-`` for nothing."""
        value = value_text(self.readings[0][1], self.digits)
        if self.interval is None or not math.isfinite(self.interval[0]):
            return value
        low, high = self.interval
        upper = f"{high:.{self.digits}f}" if math.isfinite(high) else "never"
        return f"{value} [{low:.{self.digits}f}, {upper}]"

    def remark(self) -> str:
        """``compatible``, by how much it differs, or that nothing can be said."""
        ours = self.readings[0][1]
        if self.agrees:
            return "compatible"
        bounded = not math.isnan(ours.half) if self.interval is None else math.isfinite(self.interval[0])
        if not (bounded and math.isfinite(ours.mean)):
            return "no interval"
        return f"differs by {ours.mean - float(self.printed):+.{self.digits}f}"


def value_text(value: Mean, digits: int) -> str:
    """Such as ``87.41 ± 0.62``; ``never`` for infinity, ``-`` for nothing."""
    if math.isnan(value.mean):
        return "-"
    return value.text(digits=digits) if math.isfinite(value.mean) else "never"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, judged by the data, with the numbers behind it."""

    text: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True, eq=False)
class Output:
    """One figure or table of the paper, reproduced.

    Attributes:
        name: as the command line names it.
        title: as the paper numbers it, and what it shows.
        setting: the settings in a sentence or two.
        figure: the picture, if it has one.
        csv: headings and rows of what is drawn.
        tables: for the page.
        printed: the paper's numbers beside ours.
        claims: the paper's claims, judged.
        notes: sentences that the reader needs.
        left_out: those of them that say what could not be run.
    """

    name: str
    title: str
    setting: str
    figure: "Figure | None"
    csv: tuple[Sequence[str], Sequence[Sequence[object]]]
    tables: list[Table] = field(default_factory=list)
    printed: list[Printed] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def to_json(self, command: str, settings: str, quick: bool) -> str:
        """All but the picture and its data, for :class:`Section`."""
        kept = {name: getattr(self, name) for name in ("name", "title", "setting", "notes")}
        parts = {name: [asdict(part) for part in getattr(self, name)] for name in ("tables", "printed", "claims")}
        made = {"command": command, "settings": settings, "quick": quick}
        return json.dumps(kept | parts | made, indent=1)


@dataclass(frozen=True)
class Section:
    """A figure or table as the page shows it, whenever it was made.

    Attributes:
        output: without its picture and data.
        command: that made it.
        settings: its number of trials and so on.
        quick: whether the settings are those of a mere try.
    """

    output: Output
    command: str
    settings: str
    quick: bool

    @classmethod
    def from_json(cls, text: str) -> "Section":
        """What :meth:`Output.to_json` wrote; a ValueError, KeyError or TypeError if it did not."""
        found = json.loads(text)
        made = {name: found.pop(name) for name in ("command", "settings", "quick")}
        tables = [Table(**table) for table in found.pop("tables")]
        claims = [Claim(**claim) for claim in found.pop("claims")]
        printed = [_printed(**line) for line in found.pop("printed")]
        output = Output(**found, figure=None, csv=((), ()), tables=tables, claims=claims, printed=printed)
        return cls(output, **made)


def _printed(readings: Sequence[Any], interval: Sequence[float] | None, **fields: Any) -> Printed:
    means = tuple((name, Mean(**mean)) for name, mean in readings)
    return Printed(readings=means, interval=None if interval is None else (interval[0], interval[1]), **fields)


def close(printed: float, ours: Mean) -> bool:
    """Whether a mean of the paper's five trials and ours differ by no more than chance: 95 %, equal spread assumed."""
    return not math.isnan(ours.half) and abs(printed - ours.mean) <= ours.half * math.sqrt(1 + ours.n / PAPER_TRIALS)


def jackknife(statistic: Callable[[list[int]], float], trials: int) -> Mean:
    """A statistic of several trials, such as the averaged curve's best, with a 95 % interval.

    The interval comes from leaving out one trial at a time (Tukey's jackknife) and Student's t. It is NaN for one
    trial, or where the statistic is infinite for some of them.
    """
    everyone = list(range(trials))
    whole = statistic(everyone)
    if trials < 2:
        return Mean(whole, math.nan, trials)
    without = [statistic([other for other in everyone if other != one]) for one in everyone]
    middle = sum(without) / trials
    variance = (trials - 1) / trials * sum((value - middle) ** 2 for value in without) if math.isfinite(middle) else 0.0
    half = student_t_quantile(0.975, trials - 1) * math.sqrt(variance) if math.isfinite(middle) else math.nan
    return Mean(whole, half if math.isfinite(whole) else math.nan, trials)


def verdict_of(holds: bool) -> Verdict:
    """Of a claim that its numbers meet or do not."""
    return "confirmed" if holds else "not confirmed"


def judge(difference: Mean) -> Verdict:
    """Of a difference that the claim says is above 0."""
    return judge_all([difference])[0]


def judge_all(differences: Sequence[Mean]) -> list[Verdict]:
    """Of several differences that claims say are above 0, corrected for their number by Holm's method."""
    return [
        "not significant" if not significant else "confirmed" if difference.mean > 0 else "not confirmed"
        for difference, significant in zip(differences, stats.significant_among(differences), strict=True)
    ]


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Of a claim with several parts: as weak as its weakest."""
    for verdict in ("not confirmed", "not significant"):
        if verdict in verdicts:
            return verdict
    return "confirmed"


def points(difference: Mean) -> str:
    """A difference of accuracies, such as ``+2.31 ± 1.02 points``."""
    half = "" if math.isnan(difference.half) else f" ± {100 * difference.half:.2f}"
    return f"{100 * difference.mean:+.2f}{half} points"


REMARKS = {"compatible": "yes", "no": "unsure"}
COLOURS = {"confirmed": "yes", "not confirmed": "no", "not significant": "unsure", "tried": "unsure"}
TRIED = "With --quick everything is tried and nothing is shown: the settings are tiny, and the results mean nothing"
"""The warning of whatever was made with reduced settings."""
READING = (
    "The paper's “highest achievable accuracy” can be read as the best of the averaged curve, as the mean of each "
    "trial's best, or as the last accuracy. On non-iid data the three differ a lot, so all are given, the averaged "
    "curve's best first; it is the one that is compared and tested. Intervals are 95 %: Student's t over trials, the "
    "jackknife for the best of averaged curves, the bootstrap for fits and for times to 80 %. A printed number is "
    "called compatible if it lies within the spread of two such means, the paper's five trials and ours. Many "
    "comparisons are made, so one in twenty would differ by chance alone."
)


def section(output: Output, settings: Settings, command: str) -> str:
    """The figure as it is kept in a file of its own, for pages that are made later."""
    said = f"{settings.seeds} trial{'s' * (settings.seeds != 1)}; balanced partition, standard scaling"
    return output.to_json(command, said, quick=settings != Settings(seeds=settings.seeds))


def verdict_text(claim: Claim, *, quick: bool) -> str:
    """The verdict on a claim; of reduced settings only that it was tried."""
    return "tried" if quick else claim.verdict


def page(sections: Sequence[Section], pictures: Mapping[str, bytes]) -> str:
    """The complete page."""
    outputs = [one.output for one in sections]
    claims = [(claim, verdict_text(claim, quick=one.quick)) for one in sections for claim in one.output.claims]
    printed = [line for output in outputs for line in output.printed]
    tried = [one.output.title for one in sections if one.quick]
    made = list(dict.fromkeys((one.command, one.settings) for one in sections))
    parts = [
        "<h1>Device Scheduling with Fast Convergence for Wireless Federated Learning, reproduced</h1>",
        f"<p class=note>Shi, Zhou and Niu, ICC 2020. Made with fedcell {__version__}, path loss "
        "128.1 + 37.6 log₁₀(d/km) dB, by "
        + "; by ".join(f"<code>{escape(command)}</code> ({escape(text)})" for command, text in made)
        + ".</p>",
        f"<p class=warning>{TRIED}: {escape(', '.join(tried))}.</p>" if tried else "",
        _contents(outputs, bool(claims), bool(printed)),
    ]
    if claims:
        rows = [
            f"<tr><td>{escape(claim.text)}</td><td class='verdict {COLOURS[verdict]}'>{verdict}</td>"
            f"<td class=small>{escape(claim.evidence)}</td></tr>"
            for claim, verdict in claims
        ]
        parts.append(f"<h2 id=claims>The paper's claims, judged by the data</h2><p>{READING}</p>")
        parts.append(html_rows(("claim", "verdict", "evidence"), rows))
    if printed:
        parts.append("<h2 id=numbers>Every printed number and ours</h2>")
        parts += _printed_table(printed)
    parts += [_section(one, pictures.get(one.output.name)) for one in sections]
    return html_page("The paper, reproduced", parts)


def _contents(outputs: Sequence[Output], claims: bool, printed: bool) -> str:
    links = ["<li><a href='#claims'>The paper's claims, judged by the data</a>"] if claims else []
    links += ["<li><a href='#numbers'>Every printed number and ours</a>"] if printed else []
    links += [f"<li><a href='#{output.name}'>{escape(output.title)}</a>" for output in outputs]
    return f"<nav><ol>{''.join(links)}</ol></nav>"


def _printed_table(printed: Sequence[Printed]) -> list[str]:
    """The numbers, and below them the known reasons for the differences, each once."""
    reasons = list(dict.fromkeys(line.why for line in printed if not line.agrees))
    signs = dict(zip(reasons, "abcdefghijklmnopqrstuvwxyz", strict=False))
    headings = ("where", "what", "printed", "ours", "comparison", "read as", "other readings")
    rows = [_printed_row(line, signs.get(line.why, "")) for line in printed]
    notes = [f"<p class=note><b>{signs[reason]}</b>&ensp;{escape(reason)}</p>" for reason in reasons]
    return [html_rows(headings, rows, numbers=(2, 3)), *notes]


def _printed_row(line: Printed, sign: str) -> str:
    (first, _), *others = line.readings
    remark = line.remark()
    colour = REMARKS.get(remark.partition(" ")[0], "no")
    unit = f" {line.unit}" if line.unit else ""
    rest = "; ".join(f"{name} {value_text(value, line.digits)}" for name, value in others)
    return (
        f"<tr><td class=where>{line.where}</td><td>{escape(line.what)}</td><td class=number>{line.printed}{unit}</td>"
        f"<td class=number>{line.text()}{unit}</td>"
        f"<td class=where><span class={colour}>{remark}</span> <b>{'' if line.agrees else sign}</b></td>"
        f"<td class=small>{escape(first)}</td><td class=small>{escape(rest)}</td></tr>"
    )


def _section(one: Section, picture: bytes | None) -> str:
    output = one.output
    parts = [f"<h2 id={output.name}>{escape(output.title)}</h2>", f"<p>{escape(output.setting)}</p>"]
    if picture is not None:
        parts.append(html_picture(picture, output.title))
    parts += [f"<p>{escape(note)}</p>" for note in output.notes]
    parts += [f"<h3>{escape(table.title)}</h3>{table.html()}" for table in output.tables]
    files = f"{output.name}.csv" + (f", {output.name}.png, {output.name}.svg" if picture is not None else "")
    parts.append(f"<p class=note>Command: <code>{escape(one.command)}</code>. Files: {files}.</p>")
    return "\n".join(parts)
