"""What may come over the network: named policies and published data only, within the limits."""

import math
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fedcell import settings
from fedcell.dashboard import limits
from fedcell.errors import InputError
from fedcell.learn.published import PUBLISHED
from fedcell.runs.race import RACE_POLICIES, race_policies, race_spec
from fedcell.schedule.laws import Blocks, format_law, parse_law
from fedcell.schedule.policy import Policy
from fedcell.schedule.registry import format_policy, parse_policy
from fedcell.sim.spec import Spec, parse_spec
from fedcell.world import SnrTrace, parse_channel
from fedcell.world.cell import Channel


def known_policy(line: str) -> Policy:
    """The policy that a line names; one's own classes are for the command line."""
    if len(line) > limits.POLICY_CHARACTERS:
        raise InputError(f"a policy has {len(line)} characters; {limits.POLICY_CHARACTERS} at most")
    return parse_policy(line, allow_import=False)


def known_law(line: str) -> str:
    """The link law that a line names, as one would write it."""
    law = parse_law(line)
    if isinstance(law, Blocks) and law.count > limits.BLOCKS:
        raise InputError(f"law has {str(law.count)[:20]} resource blocks; {limits.BLOCKS:,} at most")
    return format_law(law)


def known_race(document: dict[str, Any], policies: list[str] | None, seeds: int) -> Spec:
    """The race asked for, checked before anything of it is looked up, imported or computed."""
    for name in ("grid", "policy", "seed"):
        if name in document:
            raise InputError(f"spec has {name}; give policies and seeds beside it")
    lines = policies or list(RACE_POLICIES)
    if len(lines) * seeds > limits.RACE_RUNS:
        raise InputError(f"the race has {len(lines) * seeds:,} runs; {limits.RACE_RUNS} at most")
    lines = [format_policy(known_policy(line)) for line in lines]
    _check_task(document.get("task"))
    _check_cell(document.get("cell"))
    _check_devices(document.get("devices"))
    base = parse_spec(document, "spec")
    _check_size(base)
    if not policies:
        lines = race_policies(base.devices.count, base.cell.law)
    return race_spec(base.changed({}, {"policy": lines, "seed": list(range(seeds))}))


def known_channel(line: str) -> Channel:
    """The channel that a line names; files are for the command line."""
    channel = parse_channel(line)
    if isinstance(channel, SnrTrace):
        raise InputError(f"channel is {line[:60]!r}; over the network no files, they are for the command line")
    return channel


def _check_cell(cell: Any) -> None:
    if isinstance(cell, dict) and isinstance(cell.get("channel"), str):
        known_channel(cell["channel"])
    if isinstance(cell, dict) and isinstance(cell.get("law"), str):
        known_law(cell["law"][: limits.LAW_CHARACTERS])


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
    if isinstance(count, int | float) and count > limits.RACE_DEVICES:
        raise InputError(f"devices.count is {str(count)[:20]}; {limits.RACE_DEVICES:,} at most")
    name = settings.split("availability", availability)[0] if isinstance(availability, str) else ""
    if name.replace("-", "_").lower() == "trace":
        raise InputError(
            f"devices.availability is {str(availability)[:60]!r}; over the network only always or daynight, "
            "traces with fedcell race"
        )


def _check_size(spec: Spec) -> None:
    bounds = (
        ("devices.count", spec.devices.count, limits.RACE_DEVICES),
        ("rounds", spec.rounds or 0, limits.RACE_ROUNDS),
        ("budget_s", spec.budget_s if math.isfinite(spec.budget_s) else 0.0, limits.RACE_BUDGET_S),
        ("task.epochs", spec.task.epochs, limits.RACE_EPOCHS),
        ("the sum of task.hidden", sum(spec.task.hidden), limits.RACE_HIDDEN),
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
