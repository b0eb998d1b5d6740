"""Tables and pictures become a self-contained page without scripts, or Markdown; nothing here computes a result."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 3rem 1.5rem 6rem; max-width: 68rem; color: #1a1a1a; background: #fff;
  font: 16px/1.55 Charter, "Bitstream Charter", "Iowan Old Style", Cambria, Georgia, "DejaVu Serif", serif; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .5rem; font-weight: 600; }
h2 { font-size: 1.25rem; margin: 3.5rem 0 .6rem; padding-top: .6rem; border-top: 1px solid #1a1a1a; font-weight: 600; }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; font-weight: 600; }
p { margin: .5rem 0; max-width: 46rem; }
.note { color: #444; }
.warning { border-left: 3px solid #b00020; padding-left: .8rem; }
figure { margin: 1.2rem 0; }
figure img { display: block; width: 100%; max-width: 44rem; height: auto; }
figure.large img { max-width: none; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; line-height: 1.4;
  font-variant-numeric: tabular-nums lining-nums; }
th { text-align: left; font-weight: 600; border-bottom: 1px solid #1a1a1a; vertical-align: bottom; }
td { border-bottom: 1px solid #ddd; vertical-align: top; }
th, td { padding: .35rem .9rem .35rem 0; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.small { color: #444; font-size: .82rem; }
td.where { white-space: nowrap; }
.verdict { white-space: nowrap; font-weight: 600; }
.yes { color: #00663a; } .no { color: #b00020; } .unsure { color: #7a5200; }
code { font: .85em ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
nav ol { margin: .4rem 0; padding-left: 1.4rem; }
a { color: #003d99; }
@media print { body { max-width: none; padding: 0; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Grid:
    """A table: a title, headings and rows of texts."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def html_page(title: str, parts: Sequence[str]) -> str:
    """The complete page.

    Args:
        title: of the window.
        parts: HTML, from top to bottom; empty ones are left out.
    """
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def html_picture(png: bytes, title: str, *, large: bool = False) -> str:
    """A picture that is part of the page.

    Args:
        png: the file.
        title: read out to those who cannot see it.
        large: whether it has the width of the page.
    """
    data = base64.b64encode(png).decode()
    return f'<figure{" class=large" * large}><img src="data:image/png;base64,{data}" alt="{escape(title)}"></figure>'


def html_table(table: Grid) -> str:
    """The table; columns of numbers are aligned on the right."""
    numeric = tuple(
        column for column in range(len(table.headings)) if all(_is_number(row[column]) for row in table.rows[1:])
    )
    rows = [
        "<tr>"
        + "".join(
            f"<td{' class=number' if column in numeric else ''}>{escape(text)}</td>" for column, text in enumerate(row)
        )
        + "</tr>"
        for row in table.rows
    ]
    return html_rows(table.headings, rows, numeric)


def _is_number(text: str) -> bool:
    return not text or text[0] in "+-[0123456789" or text.startswith(("never", "no fit"))


def html_rows(headings: Sequence[str], rows: Sequence[str], numbers: Sequence[int] = ()) -> str:
    """A table of rows that are HTML already.

    Args:
        headings: texts.
        rows: each a ``<tr>``.
        numbers: the columns that are aligned on the right.
    """
    head = "".join(
        f"<th{' class=number' if column in numbers else ''}>{escape(text)}</th>" for column, text in enumerate(headings)
    )
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"


def markdown_table(table: Grid) -> str:
    """The table in Markdown, under its title."""
    lines = [table.headings, ["---"] * len(table.headings), *table.rows]
    texts = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([f"**{table.title}**", "", *texts, ""])
