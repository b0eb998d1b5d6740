"""One race as one HTML file that plays without a server: the page's own modules, its style and the data in it.

Modules cannot be inlined as they are, for they import each other by place. Each becomes a data: address under a name of
its own in the file's import map. The file's content-security policy allows nothing from anywhere else.
"""

import base64
import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

from fedcell import __version__
from fedcell.dashboard.schemas import as_json
from fedcell.runs.comparisons import Axis

STATIC = Path(__file__).parents[1] / "static"
ENTRY = "pages/shared_race.js"
POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"
_IMPORT = re.compile(r"(from |import )\"(\.[^\"]+)\"")


def race_page(race: dict[str, Any], curves: Mapping[Axis, dict[str, Any]], command: str) -> str:
    """The file.

    Args:
        race: as RaceDocument has it.
        curves: as Curves has them, by what accuracy is shown against: ``time`` and ``energy``.
        command: that runs the race again.
    """
    data = as_json({"race": race, "curves": curves, "command": command}).replace("<", "\\u003c")
    title = escape(race["name"] or "A race of schedulers")
    # The data first: whatever they say, the first {title} is the shell's, which stands above them.
    return _shell().replace("{data}", data, 1).replace("{title}", title, 1)


@cache
def _shell() -> str:
    """All but the title and the data, which do not change while a server runs."""
    style = (STATIC / "app.css").read_text()
    index = (STATIC / "index.html").read_text()
    icons = re.search(r"<svg class=\"sheet\".*?</svg>\n(?=</body>)", index, re.DOTALL)
    assert icons is not None
    modules = json.dumps({"imports": {f"fedcell/{name}": _address(text) for name, text in _modules(ENTRY).items()}})
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="fedcell {__version__}">
<title>{{title}} · fedcell</title>
<script>{(STATIC / "lib" / "early.js").read_text()}</script>
<style>{style}</style>
<script type="importmap">{modules}</script>
</head>
<body>
<main id="main"></main>
<script type="application/json" id="race">{{data}}</script>
<script type="module">import "fedcell/{ENTRY}";</script>
{icons.group()}</body>
</html>
"""


def _modules(entry: str) -> dict[str, str]:
    """The module and all that it needs, by place, with names instead of places in their imports."""
    found: dict[str, str] = {}
    wanted = [entry]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        text, here = (STATIC / name).read_text(), PurePosixPath(name).parent
        for _, given in set(_IMPORT.findall(text)):
            place = _place(here, given)
            wanted.append(place)
            text = text.replace(f'"{given}"', f'"fedcell/{place}"')
        found[name] = text
    return found


def _place(here: PurePosixPath, given: str) -> str:
    return str((STATIC / here / given).resolve().relative_to(STATIC.resolve()))


def _address(module: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(module.encode()).decode()}"
