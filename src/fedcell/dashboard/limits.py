"""What one request, race and all clients may ask of the machine, and the checks of what comes over the network.

/api/info tells the limits. Over the network only named policies and published data are taken.
"""

import math
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fedcell import settings
from fedcell.errors import InputError
from fedcell.learn.published import PUBLISHED
from fedcell.runs.race import default_race, race_policies, race_spec
from fedcell.schedule.laws import format_law, parse_law
from fedcell.schedule.policy import Policy
from fedcell.schedule.registry import format_policy, parse_policy
from fedcell.sim.spec import Spec, parse_spec
from fedcell.world import CHANNELS, SnrTrace
from fedcell.world.cell import Channel

UPLOAD_BYTES = 8 * 2**20
PLAN_DEVICES = 100_000
PLAN_OBJECTS = PLAN_DEVICES + 1000
"""Braces and brackets of a JSON body, counted before it is parsed: an empty object takes 20 times its text's memory."""
PLAN_COLUMNS = 1200
PLAN_PROFILE_NUMBERS = 2_000_000
PLAN_DETAIL = 200
PLAN_ROWS = 50
"""Of a table larger than PLAN_DETAIL, each plan lists so many devices; the CSV lists all."""
PLANS_AT_ONCE = 2
PLANS_WAITING = 16
READS_WAITING = 64
POLICY_LINES = 12
POLICY_CHARACTERS = 200
LAW_CHARACTERS = 100
BLOCKS = 100_000
DRAWN_LABELS = 10
RACE_BYTES = 64 * 2**10
RACE_RUNS = 800
RACE_DEVICES = 2000
RACE_ROUNDS = 5000
RACE_ALL_ROUNDS = 200_000
RACE_BUDGET_S = 1_000_000
RACE_HIDDEN = 512
RACE_EPOCHS = 20
RACE_SEED = 2**31 - 1
RUN_BYTES = 64 * 2**20
"""Of the plans of a run that is not yet stored."""
STOPPING_S = 0.5
"""When the server stops, the rounds being trained have so long to end; what is not done then is trained again."""
QUEUE = 20
RACES_KEPT = 50
NAME_CHARACTERS = 100
NOTE_CHARACTERS = 2000
STREAMS = 100
CONNECTIONS = 400
"""Whoever comes while there are so many gets 503."""
IDLE_S = 30
"""After which a connection without a request is closed."""
CLOSING_S = 1
"""What is being answered when the server is told to stop has so long."""
KEYS = 64
EXPORT_SHARES = 2_000_000
ROUND_DEVICES = 2000
FIELD_SIZE = 200
LISTED_RUNS = 1000
MEANS = 20_000
SCENARIO_CHARACTERS = 500


def known_policy(line: str) -> Policy:
    """The policy that a line names; one's own classes are for the command line."""
    if len(line) > POLICY_CHARACTERS:
        raise InputError(f"a policy has {len(line)} characters; {POLICY_CHARACTERS} at most")
    return parse_policy(line, allow_import=False)


def known_law(line: str) -> str:
    """The link law that a line names, as one would write it."""
    law = parse_law(line, allow_import=False)
    if law.units is not None and law.units > BLOCKS:
        raise InputError(f"law has {str(law.units)[:20]} {law.unit}s; {BLOCKS:,} at most")
    return format_law(law)


def known_race(document: dict[str, Any], policies: list[str] | None, seeds: int) -> Spec:
    """The race asked for, checked before anything of it is looked up, imported or computed."""
    for name in ("grid", "policy", "seed"):
        if name in document:
            raise InputError(f"spec has {name}; give policies and seeds outside it")
    lines = policies or race_policies()
    if len(lines) * seeds > RACE_RUNS:
        raise InputError(f"the race has {len(lines) * seeds:,} runs; {RACE_RUNS} at most")
    lines = [format_policy(known_policy(line)) for line in lines]
    _check_task(document.get("task"))
    _check_cell(document.get("cell"))
    _check_devices(document.get("devices"))
    base = parse_spec(document, "spec") if document else default_race()
    _check_size(base)
    if not policies:
        lines = race_policies(base.devices.count, base.cell.law)
    return race_spec(base.changed({}, {"policy": lines, "seed": list(range(seeds))}))


def known_channel(line: str) -> Channel:
    """The channel that a line names; files are for the command line."""
    channel = CHANNELS.parse(line)
    if isinstance(channel, SnrTrace):
        raise InputError(f"channel is {line[:60]!r}; over the network no files, they are for the command line")
    return channel


def _check_cell(cell: Any) -> None:
    if isinstance(cell, dict) and isinstance(cell.get("channel"), str):
        known_channel(cell["channel"])
    if isinstance(cell, dict) and isinstance(cell.get("law"), str):
        known_law(cell["law"][:LAW_CHARACTERS])


def _check_task(task: Any) -> None:
    if not isinstance(task, dict):
        return  # the spec's own checks will say what is wrong
    for field, known in (("data", tuple(PUBLISHED)), ("model", ("mlp", "cnn")), ("device", ("cpu", "cuda"))):
        if task.get(field, known[0]) not in known:
            raise InputError(
                f"task.{field} is {str(task[field])[:60]!r}; over the network only {' or '.join(known)}, "
                "others with fedcell race"
            )


def _check_devices(devices: Any) -> None:
    """Before a spec of a million devices is built only to be refused, or a file is opened that the server has."""
    if not isinstance(devices, dict):
        return
    count, availability = devices.get("count", 1), devices.get("availability", "always")
    if isinstance(count, int | float) and count > RACE_DEVICES:
        raise InputError(f"devices.count is {str(count)[:20]}; {RACE_DEVICES:,} at most")
    name = settings.split("availability", availability)[0] if isinstance(availability, str) else ""
    if name.replace("-", "_").lower() == "trace":
        raise InputError(
            f"devices.availability is {str(availability)[:60]!r}; over the network only always or daynight, "
            "traces with fedcell race"
        )


def _check_size(spec: Spec) -> None:
    bounds = (
        ("devices.count", spec.devices.count, RACE_DEVICES),
        ("rounds", spec.rounds or 0, RACE_ROUNDS),
        ("budget_s", spec.budget_s if math.isfinite(spec.budget_s) else 0.0, RACE_BUDGET_S),
        ("task.epochs", spec.task.epochs, RACE_EPOCHS),
        ("the sum of task.hidden", sum(spec.task.hidden), RACE_HIDDEN),
    )
    for name, value, most in bounds:
        if value > most:
            raise InputError(f"{name} is {str(value)[:20]}; {most:,} at most (fedcell race has no such limit)")


Asked = TypeVar("Asked", bound=BaseModel)


def parse_body(kind: type[Asked], body: bytes) -> Asked:
    """The JSON body of a request as a model, or what is wrong with it in one sentence."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise InputError(one_sentence(error)) from None


def body_documented(kind: type[BaseModel]) -> dict[str, Any]:
    """For routes that read their body themselves: what OpenAPI shall say of it."""
    content = {"application/json": {"schema": kind.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


def one_sentence(error: ValidationError) -> str:
    """The first fault of a request, said as the command line would."""
    fault = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    words = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "json_invalid":
        return f"the body is not valid JSON ({fault['ctx']['error']}); correct it"
    return f"{place}: {words[:1].lower()}{words[1:]}"[:300] if place else words[:300]


class BusyError(Exception):
    """Too much is waiting already; the client shall come again."""
