"""Figures and data to take away, and a race as one HTML file that plays without a server.

The file has the page's own modules, its style and the data. Modules cannot be inlined as they are, for they import each
other by place: each becomes a data: address under a name of its own in the file's import map. The file's
content-security policy allows nothing from anywhere else.
"""

import base64
import io
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from fedcell import __version__
from fedcell.dashboard import limits
from fedcell.dashboard.curves import curves_document, said_document
from fedcell.dashboard.queue import LiveRace
from fedcell.dashboard.schemas import as_json
from fedcell.dashboard.state import AppState, FoundRun
from fedcell.errors import InputError
from fedcell.plots import Curve, LineStyle, group_styles, race_figure, styles
from fedcell.runs import stats
from fedcell.runs.comparisons import Axis
from fedcell.runs.race import RaceResult, comparable
from fedcell.runs.records import Rounds
from fedcell.runs.stored import flat
from fedcell.sim.record import ROUND_COLUMNS
from fedcell.tables import csv_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def race_result(state: AppState, race: LiveRace) -> RaceResult:
    """The race as far as whole seeds go, from the store."""
    with state.races.lock:
        done = {(run.spec.policy, run.spec.seed): run.key for run in race.runs.values() if run.state == "done"}
    failures = failures_of(state, race)
    if not comparable(race.spec, done, failures)[1]:
        raise HTTPException(409, "no seed is finished by all policies yet; wait, or take fewer")
    records = {run: state.stores[0].store.get(key) for run, key in done.items()}
    return RaceResult.of(race.spec, records, failures, race.target)


def failures_of(state: AppState, race: LiveRace) -> dict[tuple[str, int], str]:
    """Why runs of the race failed, by policy and seed."""
    with state.races.lock:
        return {(run.spec.policy, run.spec.seed): run.reason for run in race.runs.values() if run.state == "failed"}


MEDIA = {"svg": "image/svg+xml", "png": "image/png", "csv": "text/csv", "json": "application/json"}
"""Media types by the ending of what is downloaded."""


def race_picture(state: AppState, race: LiveRace, ending: str, by: Axis = "time") -> bytes:
    """As `fedcell race` draws it."""
    return picture(race_result(state, race).figure(by, styles(race.policies)), ending)


def race_data(state: AppState, race: LiveRace, ending: str) -> str:
    """As `fedcell race --csv` and `--json` print it."""
    result = race_result(state, race)
    if ending == "csv":
        return result.to_csv()
    shares = sum(record.plan.devices.size for runs in result.runs.values() for run in runs for record in run)
    if shares > limits.EXPORT_SHARES:
        raise InputError(f"the race's JSON would have {shares:,} shares; take its CSV, which has none of them")
    return result.to_json()


def picture(figure: "Figure", ending: str) -> bytes:
    """A figure as a file's content."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure.savefig(content, format=ending, dpi=200)
    return content.getvalue()


def grouped(runs: Sequence[FoundRun], differing: Sequence[str]) -> dict[str, list[FoundRun]]:
    """The runs by policy and whatever else tells them apart, but for their seeds."""
    groups: dict[str, list[FoundRun]] = {}
    for run in sorted(runs, key=lambda run: int(run.document["seed"])):
        fields = flat(run.document)
        extra = [f"{name.rpartition('.')[2]}={fields[name]}" for name in differing if name in fields]
        real = [run.stored.source] if run.stored is not None and run.stored.source != "simulation" else []
        groups.setdefault(" ".join([str(run.document["policy"]), *extra, *real]), []).append(run)
    return groups


def end_of(runs: Sequence[FoundRun]) -> float:
    """The budget that all runs share, or infinity."""
    budgets = {run.document.get("budget_s", math.inf) for run in runs}
    return float(budgets.pop()) if len(budgets) == 1 else math.inf


def compared(groups: dict[str, list[FoundRun]], target: float, by: Axis = "time", among: int = 0) -> str:
    """The answer of /api/results/compare; a run that failed has no round, and never reaches the target."""
    looks = _looks(groups)
    end_s = end_of([run for runs in groups.values() for run in runs])
    failed = {name: sum(map(_has_failed, runs)) for name, runs in groups.items()}
    parts = {name: [(_rounds(run), _has_ended(run)) for run in runs] for name, runs in groups.items()}
    drawn = curves_document(parts, parts, looks, target, end_s, failed, by)
    return as_json(drawn | said_document(_of_common_seeds(groups), target, drawn, among))


def _of_common_seeds(groups: dict[str, list[FoundRun]]) -> dict[str, list[Rounds]]:
    """The runs of the seeds that have ended in all groups."""
    ended = {
        name: {int(run.document["seed"]): _rounds(run) for run in runs if _has_ended(run)}
        for name, runs in groups.items()
    }
    seeds = sorted(set.intersection(*map(set, ended.values())))
    return {name: [runs[seed] for seed in seeds] for name, runs in ended.items()}


def _rounds(run: FoundRun) -> Rounds:
    """Its rounds; none of a run that failed."""
    return Rounds.of([]) if _has_failed(run) else run.rounds


def _has_failed(run: FoundRun) -> bool:
    return run.stored is not None and run.stored.status == "failed"


def _has_ended(run: FoundRun) -> bool:
    return run.stored is not None and run.stored.status != "unfinished"


def _looks(groups: dict[str, list[FoundRun]]) -> dict[str, LineStyle]:
    return group_styles({name: str(runs[0].document["policy"]) for name, runs in groups.items()})


def compared_picture(groups: dict[str, list[FoundRun]], ending: str, by: Axis = "time") -> bytes:
    """The groups' mean curves."""
    end = end_of([run for runs in groups.values() for run in runs]) if by == "time" else math.inf
    begun = {name: [run.rounds for run in runs if run.records] for name, runs in groups.items()}
    found = {
        name: stats.mean_curve(runs, end) if by == "time" else stats.energy_curve(runs) for name, runs in begun.items()
    }
    curves = [Curve(name, curve.x, curve.accuracy, curve.half) for name, curve in found.items()]
    count = sum(len(runs) for runs in groups.values())
    return picture(race_figure(curves, f"{count} stored run{'s' * (count != 1)}", end, _looks(groups), by), ending)


def compared_data(groups: dict[str, list[FoundRun]], ending: str) -> str:
    """Every round of the runs, a line each."""
    columns = ["group", "key", "policy", "seed", *ROUND_COLUMNS]
    rows = [
        [name, run.key, run.document["policy"], run.document["seed"], *record.numbers()]
        for name, runs in groups.items()
        for run in runs
        for record in run.records
    ]
    if ending == "json":
        return as_json([dict(zip(columns, row, strict=True)) for row in rows])
    return csv_text(columns, rows)


STATIC = Path(__file__).parent / "static"
ENTRY = "pages/shared_race.js"
POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"
_IMPORT = re.compile(r"(from |import )\"(\.[^\"]+)\"")


def race_page(race: dict[str, Any], curves: Mapping[Axis, dict[str, Any]], command: str) -> str:
    """The file; ``curves`` by what accuracy is shown against, ``time`` and ``energy``."""
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
