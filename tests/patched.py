"""Modules of ours as a worked example of the docs changes them: a diff applied to copies that Python then loads."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOAD = """
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location

for name, path in {modules!r}.items():
    import_module(name.rpartition(".")[0])
    spec = spec_from_file_location(name, path)
    sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
"""
"""Run first: whoever imports one of the modules later gets the changed one."""


def diffs_in(page: str, heading: str) -> list[str]:
    """The diffs below a heading of a page of docs."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```diff\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def patched(diff: str, folder: Path) -> str:
    """Write the changed modules of a diff into a folder, and return the code that loads them.

    A hunk begins with a line ``@@`` and fits where its lines that stay or go stand, exactly once.
    """
    modules = {}
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        name, _, rest = part.partition("\n")
        text = (ROOT / name).read_text("utf-8")
        for hunk in rest.split("@@\n")[1:]:
            lines = [line or " " for line in hunk.splitlines()]
            old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in kept) for kept in (" -", " +"))
            assert text.count(old) == 1, f"{name} has these lines {text.count(old)} times:\n{old}"
            text = text.replace(old, new)
        module = ".".join(Path(name).with_suffix("").parts[1:])
        modules[module] = str(folder / f"{module}.py")
        Path(modules[module]).write_text(text, "utf-8")
    return LOAD.format(modules=modules)
