"""The output of a figure's module: the figure, its data, the paper's numbers and ours, and the tested claims."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fedcell.intervals import student_t_quantile
from fedcell.pages import Grid
from fedcell.runs.stats import Mean, significant_among

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
    """A claim of the paper, judged by the data.

    Attributes:
        text: the claim.
        verdict: the judgement.
        evidence: the numbers behind it.
    """

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
    """

    name: str
    title: str
    setting: str
    figure: "Figure | None"
    csv: tuple[Sequence[str], Sequence[Sequence[object]]]
    tables: list[Grid] = field(default_factory=list)
    printed: list[Printed] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self, command: str, settings: str, quick: bool) -> str:
        """All but the picture and its data, for :class:`Section`.

        Args:
            command: that made it.
            settings: its number of trials and so on, for readers.
            quick: whether the settings are those of a mere try.
        """
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
        tables = [Grid(**table) for table in found.pop("tables")]
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


def judge(difference: Mean) -> Verdict:
    """Of a difference that the claim says is above 0."""
    return judge_all([difference])[0]


def judge_all(differences: Sequence[Mean]) -> list[Verdict]:
    """Of several differences that claims say are above 0, corrected for their number by Holm's method."""
    return [
        "not significant" if not significant else "confirmed" if difference.mean > 0 else "not confirmed"
        for difference, significant in zip(differences, significant_among(differences), strict=True)
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
