"""How large fedcell is, beside what it may be: ``make size`` prints it, and writes it into docs/architecture.md.

Lines are those of the package's Python files, blank ones and docstrings included; public names are the functions and
classes of modules that do not begin with an underscore; exported names are those in the ``__all__`` of a package; the
README's words are counted as ``wc -w`` does.
"""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fedcell"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- size: begin -->", "<!-- size: end -->"
LOOP = "import sys, {module}; print(sum(name.split('.')[0] == 'fedcell' for name in sys.modules))"


def modules(source: Path) -> list[Path]:
    """All Python files of the package."""
    return sorted(source.rglob("*.py"))


def lines(source: Path) -> int:
    """How many lines they have together."""
    return sum(len(path.read_text().splitlines()) for path in modules(source))


def public_names(source: Path) -> int:
    """How many functions and classes their modules have at the top that do not begin with an underscore."""
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for path in modules(source) for node in ast.parse(path.read_text()).body]
    return sum(isinstance(node, defined) and not node.name.startswith("_") for node in nodes)


def exported_names(source: Path) -> int:
    """How many names stand in the __all__ of a package, each once: many of a package's are fedcell's too."""
    doors = [path.parent for path in modules(source) if path.name == "__init__.py" and "my-app" not in path.parts]
    packages = [".".join(("fedcell", *door.relative_to(source).parts)) for door in doors]
    return len({name for one in packages for name in getattr(import_module(one), "__all__", ())})


def imported_modules(source: Path, module: str) -> int:
    """How many of our modules the import of one of them loads."""
    code = LOOP.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], cwd=source.parent, check=True, capture_output=True, text=True)
    return int(done.stdout)


def main() -> None:
    """Print the table."""
    rows = [
        ("modules of src", 237, 185, len(modules(SOURCE))),
        ("lines of src", 40_954, 37_500, lines(SOURCE)),
        ("public functions and classes", 972, None, public_names(SOURCE)),
        ("names exported by packages", None, 400, exported_names(SOURCE)),
        ("modules that the loop imports", 83, 40, imported_modules(SOURCE, "fedcell.sim.loop")),
        ("words of the README", 2_364, 900, len((ROOT / "README.md").read_text().split())),
    ]
    table = ["| | 0.2.0 | at most | now |", "|---|---|---|---|"]
    for name, before, most, now in rows:
        cells = ["-" if value is None else f"{value:,}" for value in (before, most, now)]
        table.append(" | ".join([f"| {name}", *cells]) + " |")
    print(*table, sep="\n")
    before_it, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, found, after_it = rest.partition(END)
    if found:
        PAGE.write_text("\n".join([f"{before_it}{BEGIN}\n", *table, f"\n{END}{after_it}"]), "utf-8")


if __name__ == "__main__":
    main()
