"""The tree of docs/architecture.md, made from the first lines of the modules' docstrings: ``make tree``."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fedcell"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- tree: begin -->", "<!-- tree: end -->"
NAME_WIDTH = 30
PACKAGES = (
    "world", "schedule", "learn", "protocol", "sim", "runs", "plan", "paper",
    "flower", "testbed", "dashboard", "cli",
)  # fmt: skip
"""In the order of the imports; others come last."""


def first_line(path: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return text.partition("\n")[0].removesuffix(".")


def tree(source: Path) -> str:
    """The tree below a package, a line for each module."""
    return "\n".join(["src/fedcell/", *_lines(source, "  ")])


def _lines(folder: Path, indent: str) -> list[str]:
    modules = sorted(p for p in folder.glob("*.py") if p.name != "__init__.py")
    packages = sorted((p.parent for p in folder.glob("*/__init__.py")), key=_place)
    found = [_line(indent, path.name, first_line(path)) for path in modules]
    for package in packages:
        found += [
            _line(indent, f"{package.name}/", first_line(package / "__init__.py")),
            *_lines(package, indent + "  "),
        ]
    return found


def _line(indent: str, name: str, text: str) -> str:
    return f"{indent}{name:{NAME_WIDTH - len(indent)}} {text}".rstrip()


def _place(package: Path) -> tuple[int, str]:
    known = PACKAGES.index(package.name) if package.name in PACKAGES else len(PACKAGES)
    return known, package.name


def page_with_tree(page: str, source: Path) -> str:
    """The page, with the tree between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"docs/architecture.md has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n```\n{tree(source)}\n```\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_tree(PAGE.read_text("utf-8"), SOURCE), "utf-8")
