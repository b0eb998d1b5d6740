"""index.html: the paper's printed numbers and claims beside ours, on one self-contained page without scripts."""

from collections.abc import Mapping, Sequence
from html import escape

from fedcell import __version__
from fedcell.pages import html_page, html_picture, html_rows, html_table
from fedcell.paper.output import Claim, Output, Printed, Section, value_text
from fedcell.paper.settings import Settings

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
    """The figure as it is kept in a file of its own, for pages that are made later.

    Args:
        output: the figure or table.
        settings: of the reproduction.
        command: that made it.
    """
    said = (
        f"{settings.seeds} trial{'s' * (settings.seeds != 1)}; {'free' if settings.free else 'balanced'} partition, "
        f"{settings.scaling} scaling"
    )
    return output.to_json(command, said, quick=settings != Settings(seeds=settings.seeds))


def verdict_text(claim: Claim, *, quick: bool) -> str:
    """The verdict on a claim; of reduced settings only that it was tried.

    Args:
        claim: the claim.
        quick: whether the settings are those of a mere try.
    """
    return "tried" if quick else claim.verdict


def page(sections: Sequence[Section], pictures: Mapping[str, bytes]) -> str:
    """The complete page.

    Args:
        sections: the figures and tables.
        pictures: PNG files by the figures' names.
    """
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
    parts += [f"<h3>{escape(table.title)}</h3>{html_table(table)}" for table in output.tables]
    files = f"{output.name}.csv" + (f", {output.name}.png, {output.name}.svg" if picture is not None else "")
    parts.append(f"<p class=note>Command: <code>{escape(one.command)}</code>. Files: {files}.</p>")
    return "\n".join(parts)
