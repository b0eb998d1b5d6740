"""Run notebooks as Jupyter does, without it: `python tests/notebooks.py NOTEBOOK` writes into it what its cells show.

One notebook a process: its cells are run in the module ``__main__``, and their files are in the working directory.
"""

import ast
import base64
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from matplotlib.figure import Figure

Output = dict[str, Any]


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell; what it prints, and the value of its last line if that is an expression."""
    tree = ast.parse("".join(line for line in source.splitlines(keepends=True) if not line.startswith("%")))
    match tree.body:
        case [*_, ast.Expr(last)]:
            tree.body.pop()
        case _:
            last = ast.parse("None", mode="eval").body
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "<cell>", "exec"), names)
        value = eval(compile(ast.Expression(last), "<cell>", "eval"), names)
    return printed.getvalue(), value


def outputs(printed: str, value: Any, count: int) -> list[Output]:
    """What a notebook keeps of it, as its format wants it."""
    found: list[Output] = []
    if printed:
        found.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if value is not None:
        data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
        if isinstance(value, Figure):
            picture = io.BytesIO()
            value.savefig(picture, format="png", dpi=110)
            data["image/png"] = base64.b64encode(picture.getvalue()).decode()
        found.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return found


def run_notebook(path: Path, names: dict[str, Any]) -> None:
    """Run all cells and write their outputs into the file."""
    document = json.loads(path.read_text())
    for count, cell in enumerate((cell for cell in document["cells"] if cell["cell_type"] == "code"), start=1):
        printed, value = run_cell("".join(cell["source"]), names)
        cell |= {"execution_count": count, "outputs": outputs(printed, value, count)}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    notebook = sys.modules["__main__"] = ModuleType("__main__")  # so that nothing of ours is among its names
    sys.path[0] = ""
    run_notebook(Path(sys.argv[1]), vars(notebook))
