"""The tables of docs/fields.md, made from the fields of a spec as they are declared: ``make fields``."""

from pathlib import Path

from fedcell.sim.spec_fields import SECTIONS, SpecField, all_fields

PAGE = Path(__file__).resolve().parents[1] / "docs" / "fields.md"
BEGIN, END = "<!-- fields: begin -->", "<!-- fields: end -->"
HEAD = "| field | default | bounds | option | since | what it is |\n|---|---|---|---|---|---|"


def tables() -> str:
    """The fields as tables in Markdown, one for each section."""
    found = list[str]()
    for section in SECTIONS:
        rows = [_row(one) for one in all_fields() if one.path.rpartition(".")[0] == section]
        found.append("\n".join([f"## `[{section}]`" if section else "## The run", "", HEAD, *rows]))
    return "\n\n".join(found)


def _row(one: SpecField) -> str:
    about = one.about
    option = f"`--{about.option}`" if about.option else ""
    cells = [f"`{one.path.rpartition('.')[2]}`", one.default_text, one.bounds_text, option, about.since, about.help]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def page_with_tables(page: str) -> str:
    """The page, with the tables between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"docs/fields.md has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text("utf-8")), "utf-8")
