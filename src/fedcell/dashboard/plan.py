"""/api/plan: what `fedcell plan` does, for a browser, with the objective's curve over the number of devices."""

import asyncio
import csv
import io
import json
import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from fedcell import __version__, units
from fedcell.dashboard import limits
from fedcell.dashboard.limits import body_documented, known_channel, known_law, known_policy, one_sentence, parse_body
from fedcell.dashboard.schemas import Draw, ErrorAnswer, PlanAnswer, PlanAsk, as_json
from fedcell.dashboard.state import AppState, left
from fedcell.errors import InputError
from fedcell.plan import plans as planning
from fedcell.plan.device_table import PROFILE, DeviceColumns, DeviceTable, parse_columns, parse_devices
from fedcell.plan.plans import TablePlan
from fedcell.plots import plan_styles
from fedcell.rng import stream
from fedcell.schedule.convergence import largest_set, objective
from fedcell.schedule.greedy import Greedy
from fedcell.schedule.optimal import Optimal, shortest_rounds
from fedcell.schedule.profiles import Profiles, imbalances_without, standardise
from fedcell.schedule.view import RoundView
from fedcell.types import Indices
from fedcell.world import RATES, Cell, Devices, World

OFTEN_CHARACTERS = 2**18
ALL_SIZES = 200
SOME_SIZES = 60
OF_DEVICES = ("names", "upload_s", "compute_s")


def answer(body: bytes, media_type: str, query: dict[str, str]) -> tuple[str, str]:
    """The plans for a request's body; the text and its media type."""
    if media_type != "text/csv" and body.count(b"{") + body.count(b"[") > limits.PLAN_OBJECTS:
        raise InputError(f"the body has more than {limits.PLAN_OBJECTS:,} objects and lists; give fewer devices")
    ask = parse_csv_ask(body, query) if media_type == "text/csv" else parse_body(PlanAsk, body)
    made = answer_plan(ask)
    if ask.format == "json-file":
        return f"{planning.plans_json(made.plans, made.several)}\n", "application/json"
    if ask.format == "csv":
        return planning.plans_csv(made.plans, made.several), "text/csv; charset=utf-8"
    return as_json(made.document()), "application/json"


def parse_csv_ask(body: bytes, query: dict[str, str]) -> PlanAsk:
    """A CSV file as the body, the rest of the request in the query."""
    known = {"theta", "seed", "format", "law", "epochs"}
    cell = {name: value for name, value in query.items() if name not in known}
    try:
        fields: dict[str, Any] = {name: value for name, value in query.items() if name in known}
        return PlanAsk.model_validate(fields | {"devices_csv": body.decode("utf-8-sig"), "cell": cell})
    except ValidationError as error:
        raise InputError(one_sentence(error)) from None
    except UnicodeDecodeError as error:
        raise InputError(f"the CSV is not UTF-8 text (byte at offset {error.start}); save it as UTF-8") from None


@dataclass(frozen=True, eq=False)
class Made:
    """What a request gave."""

    ask: PlanAsk
    table: DeviceTable
    shown: tuple[list[str], list[list[str]]]
    plans: list[TablePlan]
    several: bool

    def document(self) -> dict[str, Any]:
        """The answer, as PlanAnswer has it."""
        count = len(self.table.names)
        most = limits.PLAN_ROWS if count > limits.PLAN_DETAIL else None
        colours = plan_styles(plan.name for plan in self.plans)
        profiles = None if most or self.table.profiles is None else standardise(self.table.profiles)
        cut = f"of {count:,} devices only the first {most} of the table and of each plan are listed; CSV lists all"
        return {
            "table": {
                "columns": self.shown[0],
                "rows": self.shown[1][:most],
                "count": count,
                "notes": list(self.table.notes),
                **{name: None if most else _listed(getattr(self.table, name)) for name in OF_DEVICES},
            },
            "plans": [_plan_document(plan, most, profiles, *colours[plan.name]) for plan in self.plans],
            "notes": planning.notes(self.plans),
            "curve": _curve(self.table, self.plans),
            "comparison": _comparison(self.plans, colours),
            "cut": cut if most else None,
        }


def answer_plan(ask: PlanAsk) -> Made:
    """Read the devices and plan the round with every policy."""
    given = [name for name in ("devices_csv", "devices", "draw") if getattr(ask, name) is not None]
    if len(given) != 1:
        raise InputError("give exactly one of devices_csv, devices and draw")
    cell = Cell(
        radius_m=ask.cell.radius_m,
        bandwidth_hz=ask.cell.bandwidth_hz,
        model_bits=ask.cell.model_bits,
        noise_w_per_hz=units.dbm_per_mhz(ask.cell.noise_dbm_per_mhz),
        path_loss_1km_db=ask.cell.path_loss_1km_db,
        path_loss_exponent=ask.cell.path_loss_exponent,
        channel=known_channel(ask.cell.channel),
        rate=RATES.parse(ask.cell.rate),
    )
    lines = ask.policies or []
    for line in lines:  # before a table of a hundred thousand devices is read
        known_policy(line)
    objective(1, 1.0, ask.theta or 0.0)
    law = known_law(ask.law)
    table, shown = _devices(ask, cell)
    plans = planning.plan_round(
        *(table, lines, cell, ask.theta, ask.seed), law=law, compare=True, epochs=ask.epochs, allow_import=False
    )
    return Made(ask, table, shown, plans, len(plans) > 1)


def _devices(ask: PlanAsk, cell: Cell) -> tuple[DeviceTable, tuple[list[str], list[list[str]]]]:
    """The devices, and the columns and rows that show them as they were given."""
    if ask.devices_csv is not None:
        _check_count(_line_ends(ask.devices_csv) - 1)  # before a million lines are taken apart
        if ask.devices_csv.lstrip("\ufeff \r\n\t").startswith(("[", "{")):
            raise InputError("devices_csv is JSON; give CSV there, or a list in devices")
        read = _read_often if len(ask.devices_csv) <= OFTEN_CHARACTERS else _read
        columns, shown = read(ask.devices_csv)
        _check_count(len(columns.names))
        return columns.table(cell, ask.epochs), shown
    rows = ask.devices or [] if ask.draw is None else _draw(ask.draw, cell)
    if not rows:
        raise InputError("devices is empty; give at least one device")
    _check_count(len(rows))
    _check_profiles(rows)
    table = parse_devices(json.dumps(rows).encode(), "devices" if ask.draw is None else "the draw", cell, ask.epochs)
    names = list(dict.fromkeys(name for row in rows[: limits.PLAN_DETAIL] for name in row))
    return table, (names, [[_text(row.get(name)) for name in names] for row in rows[: limits.PLAN_DETAIL]])


def _read(text: str) -> tuple[DeviceColumns, tuple[list[str], list[list[str]]]]:
    return parse_columns(text.encode("utf-8", "replace"), "the CSV"), _shown_csv(text)


# Whoever drags a slider sends the same table again and again; taking it apart is half of a plan's time.
_read_often = lru_cache(maxsize=8)(_read)


def _shown_csv(text: str) -> tuple[list[str], list[list[str]]]:
    filled = (row for row in csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")) if "".join(row).strip())
    columns, *rows = islice(filled, 1 + limits.PLAN_DETAIL)
    return [name.strip() for name in columns], rows


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _check_count(count: int) -> None:
    if count > limits.PLAN_DEVICES:
        raise InputError(f"there are more than {limits.PLAN_DEVICES:,} devices; give fewer, or use fedcell plan")


def _line_ends(text: str) -> int:
    """Where a CSV parser sees a line end (LF, CR, or both as one): there is at most one row more than that."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _check_profiles(rows: list[dict[str, Any]]) -> None:
    """A column that one device names is a column of all of them."""
    columns = {name for row in rows for name in row if name.startswith(PROFILE)}
    if len(columns) * len(rows) > limits.PLAN_PROFILE_NUMBERS:
        raise InputError(
            f"devices has {len(columns):,} profile columns for {len(rows):,} devices; give at most "
            f"{limits.PLAN_PROFILE_NUMBERS:,} numbers in all, or use fedcell plan"
        )


def _draw(draw: Draw, cell: Cell) -> list[dict[str, Any]]:
    conditions = World(cell, Devices(draw.count)).conditions(draw.seed)
    pairs = zip(conditions.distance_m.tolist(), conditions.compute_s.tolist(), strict=True)
    rows: list[dict[str, Any]] = [{"distance_m": d, "compute_s": t} for d, t in pairs]
    if draw.labels:
        rng = stream(draw.seed, "partition")
        for row in rows:
            has = set(rng.permutation(limits.DRAWN_LABELS)[: draw.labels].tolist())
            row |= {f"{PROFILE}{label}": int(label in has) for label in range(limits.DRAWN_LABELS)}
    return rows


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, tuple) else list(values.tolist())


def _plan_document(
    plan: TablePlan, most: int | None, profiles: Profiles | None, colour: str, dash: str
) -> dict[str, Any]:
    other = imbalances_without(profiles, plan.plan.devices).tolist() if profiles and plan.plan.devices.size else None
    return {
        "fedcell": __version__,
        "policy": plan.name,
        "law": plan.law.name,
        "shared": plan.law.asked.shared,
        "round_s": plan.plan.round_s,
        "theta": plan.theta,
        "objective_s": plan.objective_s,
        "imbalance": plan.imbalance,
        "imbalance_other": other,
        "bandwidth_hz": plan.bandwidth_hz,
        "devices": plan.rows(most),
        "n": int(plan.plan.devices.size),
        "colour": colour,
        "dash": dash,
    }


def _comparison(plans: list[TablePlan], colours: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    best = min((plan.objective_s for plan in plans if plan.objective_s is not None), default=None)
    decided = planning.decided_by(plans)
    return [
        {
            "policy": plan.name,
            "devices": (n := int(plan.plan.devices.size)),
            **{name: plan.effort_text(name) if name in decided else None for name in planning.EFFORT},
            "round_s": plan.plan.round_s,
            "per_device_s": plan.plan.round_s / n if n else None,
            "relative": plan.objective_s / best if plan.objective_s is not None and best else None,
            "imbalance": plan.imbalance,
            "colour": colours[plan.name][0],
        }
        for plan in plans
    ]


def _curve(table: DeviceTable, plans: list[TablePlan]) -> dict[str, Any]:
    """The best objective with n devices, for every n (of a large table for some), and where the two policies stop."""
    theta = plans[0].theta
    view = RoundView(table.upload_s, table.compute_s, must_include=table.must_include, law=plans[0].law.of)
    stops: dict[str, Any] = {}
    for name, policy in (("greedy", Greedy(theta)), ("optimal", Optimal(theta))):
        known = [one.plan for one in plans if one.policy == policy]
        plan = known[0] if known else policy.decide(view, stream(0, "policy"))
        n = int(plan.devices.size)
        stops |= {f"{name}_n": n, f"{name}_objective_s": objective(n, plan.round_s, theta) if n else None}
    sizes = _sizes(max(1, view.forced.size), int(min(len(view), largest_set(theta), view.law.max_devices)))
    for n in (stops["greedy_n"], stops["optimal_n"]):
        sizes = np.union1d(sizes, [n])
    round_s = shortest_rounds(view, sizes)
    return {
        "n": sizes.tolist(),
        "objective_s": [(theta + 1.0 / n) * float(T) for n, T in zip(sizes.tolist(), round_s, strict=True)],
        **stops,
        "theta": theta,
    }


def _sizes(least: int, most: int) -> Indices:
    if most - least < ALL_SIZES:
        return np.arange(least, most + 1)
    spread = np.geomspace(1, most - least + 1, SOME_SIZES)
    return np.unique(np.rint(spread).astype(np.int64)) + least - 1


def warm_up() -> None:
    """Load the compiled code, so that the first visitor does not wait for it."""
    made = answer_plan(PlanAsk.model_validate({"draw": {"count": 20}}))
    assert math.isfinite(made.document()["plans"][0]["round_s"])


RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": PlanAnswer, "content": {"text/csv": {"schema": {"type": "string"}}}},
    **{status: {"model": ErrorAnswer} for status in (413, 415, 422)},
}


def router(state: AppState) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["plan"])

    @routes.post("/plan", response_class=Response, responses=RESPONSES, openapi_extra=body_documented(PlanAsk))
    async def plan(request: Request) -> Response:
        """Plan one round with several policies; text/csv bodies are device tables."""
        body = await request.body()  # read in a thread: parsing megabytes would keep all others waiting
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        query = dict(request.query_params)
        planned = asyncio.ensure_future(state.plans.run(lambda: answer(body, kind, query)))
        # A plan that nobody waits for any more gives its place to the next: whoever drags a slider drops many.
        leaving = asyncio.ensure_future(left(request.receive))
        try:
            await asyncio.wait((planned, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not planned.done():
                raise ClientDisconnect
            text, media_type = planned.result()
            return Response(text, media_type=media_type)
        finally:
            planned.cancel()
            leaving.cancel()

    return routes
