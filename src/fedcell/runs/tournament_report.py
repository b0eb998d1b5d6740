"""What a tournament showed: tables, pictures, a page or Markdown that binds them, CSV and JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedcell import __version__
from fedcell.errors import InputError
from fedcell.files import to_json, without_nan
from fedcell.plots import critical_difference_figure, ranking_heat_map
from fedcell.runs.contest import Scenario, changed_fields, scenarios_toml
from fedcell.runs.records import Measure
from fedcell.runs.stats import Summary, effort_differs
from fedcell.runs.tournament import MEASURES, TournamentResult, Winner
from fedcell.tables import Table, csv_text, html_page, html_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WORDS: dict[Measure, str] = {"time": "time to the target", "best": "best accuracy", "last": "last accuracy"}
BEGIN, END = "<!-- tournament: begin -->", "<!-- tournament: end -->"
"""Between these lines of a Markdown file stand the tables of the last tournament."""


@dataclass(frozen=True)
class TournamentReport:
    """What is shown of a tournament.

    Attributes:
        result: the tournament.
    """

    result: TournamentResult

    READING: ClassVar[str] = (
        "A block is one seed of one scenario: the same devices, channels, data and batches for all. Rank 1 is the "
        "best of a block, ties share their ranks, a run that misses the target counts with the budget, and one "
        "that failed is last. Policies joined by a blue bar do not differ significantly (Nemenyi's test at 5 %). In a "
        "scenario the winner is better than each of the others by a paired sign-flip test that is significant at 5"
        " %, with Holm's correction for all pairs of that scenario; otherwise it is a tie. By time nobody wins or "
        "ties whose median seed never reaches the target. Accuracies are means of the runs that have a round; "
        "(3/5): 3 of 5 seeds reached the target, or have a round."
    )
    COLUMNS: ClassVar[str] = (
        "Columns: mean ranks by time to the target, by best and by last accuracy; in how many scenarios it wins by"
        " time, and in how many it is not significantly different from the best; in how many milliseconds it decides a"
        " round of M devices on this machine."
    )

    def _policies(self) -> list[str]:
        """The policies, the best first."""
        names = self.result.tournament.policies
        return [names[i] for i in self.result.ranking("time").order()]

    def overall(self) -> Table:
        """A line for each policy: its mean ranks, where it wins, what failed and how long it takes to decide.

        ``COLUMNS`` says what its columns are.
        """
        names, leads = self.result.tournament.policies, self.result.leads("time")
        ranks = {measure: dict(zip(names, self.result.ranking(measure).mean, strict=True)) for measure in MEASURES}
        sizes = list(dict.fromkeys(count for _, count in self.result.deciding_s))
        rows = []
        for policy in self._policies():
            alone, shared = leads[policy]
            failed = sum(who == policy for _, who, _ in self.result.failures)
            decides = (self.result.deciding_s[policy, count] for count in sizes)
            shown = ["-" if math.isnan(seconds) else f"{1e3 * seconds:.2f}" for seconds in decides]
            means = [f"{ranks[measure][policy]:.2f}" for measure in MEASURES]
            rows.append(
                [policy, *means, str(alone), str(shared), *shown, *([str(failed)] if self.result.failures else [])]
            )
        headings = ["policy", "by time", "by best", "by last", "wins", "ties"]
        headings += [f"ms, M = {count}" for count in sizes] + ["failed"] * bool(self.result.failures)
        return Table(f"Mean ranks of {len(names)} policies, {self._size_text()}", headings, rows)

    def _size_text(self) -> str:
        scenarios, seeds = len(self.result.tournament.scenarios), len(self.result.tournament.seeds)
        return f"{scenarios} scenario{'s' * (scenarios != 1)}, {seeds} seed{'s' * (seeds != 1)} each"

    def winners(self) -> Table:
        """Who wins where."""
        rows = [
            [one.name, f"{100 * one.target:g} % in {one.spec.budget_s:g} s"]
            + [self.result.winners[one.name, measure].text() for measure in MEASURES]
            for one in self.result.tournament.scenarios
        ]
        return Table("Who wins where, ties called ties", ["scenario", "target", *WORDS.values()], rows)

    def matrix(self, measure: Measure) -> Table:
        """Policies by scenarios: median times to the target, or mean accuracies."""

        def cell(one: Scenario, policy: str) -> str:
            found = self.result.summaries[one.name, policy]
            if measure == "time":
                return found.to_target.text() if found.best.n else "-"
            mean = found.best if measure == "best" else found.last
            return mean.percent_text(1) + (f" ({mean.n}/{found.to_target.n})" if 0 < mean.n < found.to_target.n else "")

        scenarios = self.result.tournament.scenarios
        rows = [[policy, *(cell(one, policy) for one in scenarios)] for policy in self._policies()]
        reached = f" (of {len(self.result.tournament.seeds)} seeds that reached it, if not all)"
        what = f"Median time to the target{reached}" if measure == "time" else f"{WORDS[measure].capitalize()}, %"
        return Table(what, ["policy", *(one.name for one in scenarios)], rows)

    def scenario(self, one: Scenario) -> Table:
        """All that is known of the policies in one scenario, the best first."""
        names = self.result.tournament.policies
        place = self.result.tournament.scenarios.index(one)
        ranks = self.result.mean_ranks("time")[place]
        found = [self.result.summaries[one.name, name] for name in names]
        some_missing, differs = any(s.best.n < s.to_target.n for s in found), effort_differs(found)
        rows = []
        for i in np.argsort(ranks, kind="stable"):
            s = self.result.summaries[one.name, names[i]]
            failed = sum(entry[:2] == (one.name, names[i]) for entry in self.result.failures)
            when = s.to_target.text() if s.best.n else "-"
            row = [names[i], f"{ranks[i]:.2f}", when, s.best.percent_text(1), s.last.percent_text(1)]
            row += [s.devices.text(digits=1), s.round_s.text(digits=1), s.rounds.text(digits=1)]
            row += [f"{s.epochs.mean:.3g}", f"{s.bits.mean:.3g}", f"{s.sent_bytes.mean / 1e6:.3g}"] if differs else []
            row += [f"{s.best.n} of {s.to_target.n}"] * some_missing
            rows.append([*row, *([str(failed)] if self.result.failures else [])])
        headings = ["policy", "mean rank", f"to {100 * one.target:g} %", "best, %", "last, %", "devices a round"]
        headings += (
            ["seconds a round", "rounds"]
            + (["epochs", "bits a weight", "MB sent"] if differs else [])
            + ["seeds"] * some_missing
            + ["failed runs"] * bool(self.result.failures)
        )
        return Table(one.name, headings, rows)

    def pictures(self) -> dict[str, "Figure"]:
        """The figures, by the names of their files."""
        names, found = self.result.tournament.policies, dict[str, "Figure"]()
        wanted: list[tuple[str, Measure, bool]] = [("ranks", "time", True), ("ranks-last", "last", True)]
        if len(self.result.tournament.scenarios) > 1:
            wanted.insert(1, ("ranks-scenarios", "time", False))
        found |= {file: self.ranks_picture(measure, seeds=seeds) for file, measure, seeds in wanted}
        order = self.result.ranking("time").order()
        scenarios = self.result.tournament.scenarios
        policies = [names[i] for i in order]
        leads = [self.result.winners[one.name, "time"] for one in scenarios]
        found["heat-map"] = ranking_heat_map(
            policies,
            [one.name for one in scenarios],
            self.result.mean_ranks("time")[:, order].T,
            [[_short_time(self.result.summaries[one.name, policy]) for one in scenarios] for policy in policies],
            np.array([[policy in lead.leaders() for lead in leads] for policy in policies]),
            "Median time to the target; " + _framed(leads),
        )
        return found

    def ranks_picture(self, measure: Measure, *, seeds: bool = True) -> "Figure":
        """The critical-difference diagram; see `TournamentResult.ranking` for what a block is."""
        ranks = self.result.ranking(measure, seeds=seeds)
        blocks = f"{ranks.blocks} {'blocks (scenario and seed)' if seeds else 'scenarios as blocks'}"
        title = f"Mean ranks by {WORDS[measure]}, {blocks}"
        return critical_difference_figure(ranks.names, ranks.mean, ranks.critical, ranks.groups(), title)

    def page(self, command: str, png: Mapping[str, bytes]) -> str:
        """The page.

        Args:
            command: that made it.
            png: the pictures, by the names of `pictures`.
        """
        scenarios = self.result.tournament.scenarios
        runs = len(self.result.rounds) + len(self.result.failures)
        parts = [
            f"<h1>A tournament of {len(self.result.tournament.policies)} scheduling policies</h1>",
            f"<p class=note>{self._size_text()}, {runs:,} runs. Made with fedcell {__version__} by "
            f"<code>{escape(command)}</code>.</p>",
            *(f"<p class=warning>{escape(trouble)}</p>" for trouble in self.result.troubles()),
            *(f"<p class=warning>{escape(sentence)}.</p>" for sentence in self.untold("time")),
            f"<p>{escape(self.READING)}</p>",
            f"<h2 id=ranks>The ranking</h2>{self.overall().html()}",
            f"<p class=note>{escape(self.COLUMNS)}</p>",
            *(f"<p>{escape(sentence)}.</p>" for sentence in self.verdicts()),
            *(
                html_picture(png[name], name, large=True)
                for name in ("ranks", "ranks-scenarios", "ranks-last")
                if name in png
            ),
            f"<h2 id=where>Who wins where</h2>{self.winners().html()}",
            html_picture(png["heat-map"], "median times and mean ranks by policy and scenario", large=True),
            *(self._section(one) for one in scenarios),
            "<h2 id=again>Again</h2><p>The same scenarios, for --scenarios (scenarios.toml has them too). "
            "tournament.csv has a line for each scenario and policy, runs.csv one for each run, tournament.json all of "
            "it.</p>"
            f"<div class=wide><pre><code>{escape(scenarios_toml(scenarios))}</code></pre></div>",
        ]
        return html_page("A tournament of scheduling policies", parts)

    def verdicts(self) -> list[str]:
        """What the tests say of the ranks, a sentence each."""
        both = [f"In these scenarios, by time to the target: {self.result.ranking('time').text()}"]
        if len(self.result.tournament.scenarios) > 1:
            both.append(f"For other scenarios like these: {self.result.ranking('time', seeds=False).text()}")
        return [*both, f"In these scenarios, by last accuracy: {self.result.ranking('last').text()}"]

    def untold(self, measure: Measure) -> list[str]:
        """In which scenarios nobody differs significantly from the best, and why, a sentence for each reason."""
        reasons: dict[str, list[str]] = {}
        for one in self.result.tournament.scenarios:
            if why := self.result.winners[one.name, measure].untold:
                reasons.setdefault(why, []).append(one.name)
        everywhere = len(self.result.tournament.scenarios)
        return [
            f"{'Everywhere' if len(where) == everywhere else ', '.join(where)}: {why}" for why, where in reasons.items()
        ]

    def _section(self, one: Scenario) -> str:
        name = escape(one.name)
        fields = ", ".join(f"{name} = {_short(value)}" for name, value in changed_fields(one.spec).items())
        return (
            f"<h2 id='{name}'>{name}</h2><p>{escape(one.about)}</p>"
            f"<p class=note>target = {one.target:g}; <code>{escape(fields)}</code></p>"
            f"{self.scenario(one).html()}"
        )

    def markdown(self, command: str, files: Mapping[str, str] | None = None) -> str:
        """The tables in Markdown.

        Args:
            command: that made it.
            files: of pictures to show among them, by the names of `pictures`.
        """
        shown = {name: f"![{name}]({file})\n" for name, file in (files or {}).items()}
        listed = "".join(f"- {sentence}.\n" for sentence in [*self.verdicts(), *self.result.troubles()])
        parts = [f"`{command}`, fedcell {__version__}:\n", self.overall().markdown(), f"{self.COLUMNS}\n", listed]
        parts += [shown.get("ranks", ""), self.winners().markdown(), shown.get("heat-map", "")]
        return "\n".join(part for part in [*parts, *(self.matrix(m).markdown() for m in MEASURES)] if part)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each scenario and policy; NaN and infinity where there is no number."""
        ranks = {measure: self.result.mean_ranks(measure) for measure in MEASURES}
        rows = []
        for s, one in enumerate(self.result.tournament.scenarios):
            for p, policy in enumerate(self.result.tournament.policies):
                found = self.result.summaries[one.name, policy]
                row = {
                    "scenario": one.name,
                    "policy": policy,
                    "target": one.target,
                    "budget_s": one.spec.budget_s,
                    "seeds": len(self.result.tournament.seeds),
                    "failed": sum(entry[:2] == (one.name, policy) for entry in self.result.failures),
                    "median_s_to_target": found.to_target.median_s,
                    "reached": found.to_target.reached,
                    "mean_s_to_target": found.to_target.mean_s,
                    "with_round": found.best.n,
                    "best": found.best.mean,
                    "best_half": found.best.half if found.best.has_interval else math.nan,
                    "last": found.last.mean,
                    "last_half": found.last.half if found.last.has_interval else math.nan,
                    "devices": found.devices.mean,
                    "round_s": found.round_s.mean,
                    "rounds": found.rounds.mean,
                    "epochs": found.epochs.mean,
                    "bits": found.bits.mean,
                    "sent_bytes": found.sent_bytes.mean,
                    **{f"rank_{measure}": float(ranks[measure][s, p]) for measure in MEASURES},
                    "deciding_s": self.result.deciding_s.get((policy, one.spec.devices.count), math.nan),
                }
                rows.append(row)
        return rows

    def run_rows(self) -> list[dict[str, Any]]:
        """A row for each run: what statistics of one's own need."""
        rows = []
        for one in self.result.tournament.scenarios:
            values = {measure: self.result.values(one.name, measure) for measure in MEASURES}
            for i, seed in enumerate(self.result.tournament.seeds):
                for p, policy in enumerate(self.result.tournament.policies):
                    entry = (one.name, policy, seed)
                    numbers = {_RUN_COLUMNS[measure]: float(values[measure][i, p]) for measure in MEASURES}
                    named = {"scenario": one.name, "policy": policy, "seed": seed}
                    rows.append(named | numbers | {"failed": self.result.failures.get(entry, "")})
        return rows

    def to_json(self, command: str) -> str:
        """The whole tournament for machines."""
        rankings = {
            f"{measure}{'' if seeds else ', scenarios as blocks'}": self.result.ranking(measure, seeds=seeds)
            for measure in MEASURES
            for seeds in (True, False)
        }
        document = {
            "fedcell": __version__,
            "command": command,
            "seeds": self.result.tournament.seeds,
            "policies": self.result.tournament.policies,
            "scenarios": [
                {
                    "name": one.name,
                    "about": one.about,
                    "target": one.target,
                    "spec": one.spec.model_dump(exclude_none=True),
                }
                for one in self.result.tournament.scenarios
            ],
            "rankings": {
                name: {
                    "blocks": ranks.blocks,
                    "mean_ranks": dict(zip(ranks.names, ranks.mean.tolist(), strict=True)),
                    "friedman": {"chi_square": ranks.chi_square, "freedom": len(ranks.names) - 1, "p": ranks.p},
                    "critical_difference": ranks.critical,
                    "groups": ranks.groups(),
                }
                for name, ranks in rankings.items()
            },
            "winners": [
                {"scenario": scenario, "by": measure, "best": winner.best, "tied": winner.tied, "untold": winner.untold}
                for (scenario, measure), winner in self.result.winners.items()
            ],
            "results": self.rows(),
            "failures": [
                {"scenario": scenario, "policy": policy, "seed": seed, "reason": reason}
                for (scenario, policy, seed), reason in self.result.failures.items()
            ],
        }
        return to_json(document, indent=1)

    def to_csv(self) -> str:
        """A line for each scenario and policy; empty where there is no number."""
        return _csv(self.rows())

    def runs_csv(self) -> str:
        """A line for each run."""
        return _csv(self.run_rows())


def _framed(leads: Sequence[Winner]) -> str:
    if any(lead.leaders() for lead in leads):
        return "framed: the winner, or not significantly different from the best"
    return " / ".join(dict.fromkeys(lead.untold for lead in leads))


def _short_time(summary: Summary) -> str:
    return summary.to_target.median_text() if summary.best.n else "-"


def _short(value: Any) -> str:
    if isinstance(value, list) and len(value) > 6:
        return f"[{value[0]}, ..., {value[-1]}]"
    return str(value)


def put_between(text: str, tables: str, source: str) -> str:
    """A Markdown text with other tables between its marks.

    Args:
        text: with the lines BEGIN and END, or empty.
        tables: what is to stand between them.
        source: whose text it is, for messages.
    """
    if not text:
        return tables
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"{source} has no lines {BEGIN} and {END} for the tables; add them, or name a new file")
    return f"{before}{BEGIN}\n\n{tables.strip()}\n\n{END}{after}"


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV; empty where there is no number."""
    return csv_text(rows[0], (without_nan(dict(row)).values() for row in rows))


_RUN_COLUMNS: dict[Measure, str] = {"time": "s_to_target_or_budget", "best": "best", "last": "last"}
