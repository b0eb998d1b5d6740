"""Tables become HTML, Markdown or CSV, and with pictures a self-contained page without scripts."""

import base64
import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
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
class Table:
    """A table: a title, headings and rows of texts.

    Example:
        >>> from fedcell.tables import Table
        >>> print(Table("Rounds", ["policy", "s"], [["greedy", "12.1"]]).markdown())
        **Rounds**
        <BLANKLINE>
        | policy | s |
        | --- | --- |
        | greedy | 12.1 |
        <BLANKLINE>
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def html(self) -> str:
        """The table in HTML; columns of numbers are aligned on the right."""
        texts = self.rows[1:]  # the first row may be the paper's
        numeric = tuple(i for i in range(len(self.headings)) if all(_is_number(row[i]) for row in texts))
        rows = []
        for row in self.rows:
            cells = (f"<td{' class=number' * (i in numeric)}>{escape(text)}</td>" for i, text in enumerate(row))
            rows.append(f"<tr>{''.join(cells)}</tr>")
        return html_rows(self.headings, rows, numeric)

    def markdown(self) -> str:
        """The table in Markdown, under its title."""
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        texts = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
        return "\n".join([f"**{self.title}**", "", *texts, ""])


def csv_lines(headings: Iterable[object], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """The lines of a CSV file, one after the other, however many there are; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in itertools.chain([headings], rows):
        writer.writerow(row)
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def csv_text(headings: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A small CSV file; see `csv_lines`."""
    return "".join(csv_lines(headings, rows))


def html_page(title: str, parts: Sequence[str]) -> str:
    """The complete page: its title and its parts from top to bottom, empty ones left out."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def html_picture(png: bytes, title: str, *, large: bool = False) -> str:
    """A picture that is part of the page; ``title`` is read out, ``large`` has the width of the page."""
    data = base64.b64encode(png).decode()
    return f'<figure{" class=large" * large}><img src="data:image/png;base64,{data}" alt="{escape(title)}"></figure>'


def _is_number(text: str) -> bool:
    return not text or text[0] in "+-[0123456789" or text.startswith(("never", "no fit"))


def html_rows(headings: Sequence[str], rows: Sequence[str], numbers: Sequence[int] = ()) -> str:
    """A table of rows that are HTML already; ``numbers``: the columns that are aligned on the right."""
    head = "".join(
        f"<th{' class=number' if column in numbers else ''}>{escape(text)}</th>" for column, text in enumerate(headings)
    )
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
