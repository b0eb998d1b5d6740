"""/api/info and /api/paper."""

import json
import re
from contextlib import suppress
from dataclasses import MISSING
from html import unescape
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

from annotated_types import Ge, Gt, Le, Lt
from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from fedcell import __version__, defaults, settings
from fedcell.dashboard import limits
from fedcell.dashboard.schemas import ErrorAnswer, FormField, Info, PaperAnswer, PlanCell
from fedcell.dashboard.state import AppState
from fedcell.paper import FIGURES
from fedcell.plots import styles
from fedcell.runs.race import default_race, race_policies
from fedcell.runs.store import spec_document
from fedcell.schedule.bandwidth import Sharing
from fedcell.schedule.laws import LAWS
from fedcell.schedule.registry import POLICIES
from fedcell.sim.spec_fields import all_fields

LIMITS: dict[str, int] = {
    "upload_bytes": limits.UPLOAD_BYTES,
    "devices": limits.PLAN_DEVICES,
    "plan_devices_detail": limits.PLAN_DETAIL,
    "plan_rows": limits.PLAN_ROWS,
    "policies": limits.POLICY_LINES,
    "race_runs": limits.RACE_RUNS,
    "race_devices": limits.RACE_DEVICES,
    "race_rounds": limits.RACE_ROUNDS,
    "race_all_rounds": limits.RACE_ALL_ROUNDS,
    "race_budget_s": limits.RACE_BUDGET_S,
    "race_hidden": limits.RACE_HIDDEN,
    "race_epochs": limits.RACE_EPOCHS,
    "races": limits.RACES_KEPT,
    "queue": limits.QUEUE,
    "name_characters": limits.NAME_CHARACTERS,
    "note_characters": limits.NOTE_CHARACTERS,
    "streams": limits.STREAMS,
    "keys": limits.KEYS,
    "round_devices": limits.ROUND_DEVICES,
    "field_size": limits.FIELD_SIZE,
    "listed_runs": limits.LISTED_RUNS,
}
SHARING = list(get_args(Sharing))
KINDS = {bool: "truth", int: "whole", float: "number", str: "text"}
ENDINGS = (".svg", ".png", ".csv")


def router(state: AppState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["info"])

    @routes.get("/info")
    async def info() -> Info:
        """Versions, results files, limits, policies and what can be chosen."""
        paper = race_policies()
        return Info.model_validate(
            {
                "version": __version__,
                "docs": _docs(),
                "stores": [{"name": store.name, "writable": store.writable} for store in state.stores],
                "paper": state.settings.paper is not None,
                "limits": LIMITS,
                "policies": list(paper),
                "all_policies": [{"name": name, "settings": _settings(kind)} for name, kind in POLICIES.items()],
                "laws": [
                    {"name": name, "label": kind.label, "settings": _settings(kind)} for name, kind in LAWS.items()
                ],
                "colours": {line: {"colour": c, "dash": d} for line, (c, d) in styles(paper).items()},
                "defaults": spec_document(default_race()),
                "seeds": defaults.SEEDS,
                "target": defaults.TARGET_ACCURACY,
                "plan_cell": PlanCell(),
                "choices": {"sharing": SHARING},
                "fields": _fields(),
            }
        )

    @routes.get("/paper")
    async def paper() -> PaperAnswer:
        """The figures that `fedcell reproduce` left in the folder given by --paper."""
        names = _paper_files(state.settings.paper)
        titles = await state.views.run(lambda: _titles(state.settings.paper))
        figures = [
            {"name": name, "title": titles.get(name, name), "files": mine}
            for name in FIGURES
            if (mine := [file for file in names if file.rpartition(".")[0] == name])
        ]
        page = "index.html" if "index.html" in names else None
        quick = await state.views.run(lambda: _quick(state.settings.paper))
        return PaperAnswer.model_validate({"figures": figures, "page": page, "quick": quick})

    @routes.get("/paper/{file}", response_class=Response, responses=_files_documented())
    async def paper_file(file: str) -> Response:
        """One of those files; nothing else of the folder."""
        folder = state.settings.paper
        if folder is None or file not in _paper_files(folder):
            raise HTTPException(404, f"there is no file {file[:100]!r} in the reproduction; see /api/paper")
        # The page's style stands in it. It has no scripts, and may not run any.
        csp = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
        return FileResponse(folder / file, headers={"content-security-policy": csp})

    return routes


def _fields() -> list[FormField]:
    """The fields of a race that the page's form has."""
    return [
        FormField(
            path=one.path,
            label=one.about.label,
            unit=one.about.unit,
            scale=one.about.scale,
            step=one.about.step,
            kind=one.declared.kind,
            choices=list(one.declared.choices),
            others=not one.declared.is_choice,
            least=next((b for b in map(one.declared.bound, (Ge, Gt)) if b is not None), None),
            most=next((b for b in map(one.declared.bound, (Le, Lt)) if b is not None), None),
            required=not one.declared.nullable,
            default=one.default_text,
            help=one.about.help,
            topic=one.about.topic,
        )
        for one in all_fields()
        if one.about.label
    ]


def _files_documented() -> dict[int | str, dict[str, Any]]:
    kinds = ("text/html", "image/svg+xml", "image/png", "text/csv")
    return {200: {"content": {kind: {} for kind in kinds}}, 404: {"model": ErrorAnswer}, 422: {"model": ErrorAnswer}}


def _paper_files(folder: Path | None) -> list[str]:
    known = ["index.html", *(f"{name}{ending}" for name in FIGURES for ending in ENDINGS)]
    if folder is None:
        return []
    # No links: somebody's folder could have one to any file of this machine.
    return [file for file in known if (folder / file).is_file() and not (folder / file).is_symlink()]


def _titles(folder: Path | None) -> dict[str, str]:
    """The figures' titles, as the page of the reproduction has them."""
    try:
        page = (folder / "index.html").read_text("utf-8") if "index.html" in _paper_files(folder) and folder else ""
    except (OSError, ValueError):
        return {}
    return {name: unescape(title) for name, title in re.findall(r"<h2 id=(\w+)>([^<]*)</h2>", page)}


def _quick(folder: Path | None) -> bool:
    """Whether any figure of the reproduction was made with --quick."""
    if folder is None:
        return False
    found = False
    for name in FIGURES:
        with suppress(OSError, ValueError, AttributeError):  # not there, or not of this version
            found = found or bool(json.loads((folder / f"{name}.json").read_text("utf-8")).get("quick"))
    return found


def _settings(kind: type[Any]) -> list[dict[str, Any]]:
    hints = settings.type_hints(kind)
    found = []
    for field in settings.settable(kind):
        default = settings.default(field)
        required = default is MISSING
        word = KINDS[settings.scalar(hints[field.name])]
        said = {"name": field.name, "default": None if required else default, "required": required, "kind": word}
        found.append(said | dict(field.metadata))
    return found


def _docs() -> str | None:
    """Where the package says that its documentation is."""
    try:
        urls = metadata.metadata("fedcell").get_all("Project-URL", [])
    except metadata.PackageNotFoundError:
        return None
    named = dict(url.split(", ", 1) for url in urls if ", " in url)
    return named.get("Documentation")
