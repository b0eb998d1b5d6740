"""Documents of specs that earlier versions wrote, as this version writes them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fedcell import settings
from fedcell.errors import InputError
from fedcell.learn.aggregator import Spelling02, format_aggregator, parse_aggregator
from fedcell.learn.partition import Labels, parse_kind

AGGREGATION_02 = {"late_weight": "late_weight", "task.averaging": "averaging", "task.server": "server"}
"""Fields of version 0.2 that are settings of task.aggregator now, and what `Spelling02` calls them."""


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a spec in the current version; one without a version is of version 1, which did not write it."""
    with suppress(InputError):  # whoever validates it says what is wrong
        document = with_aggregator(document)
    if document.get("version", 1) != 1:
        return document

    def numbered(partition: Any) -> Any:
        try:
            kind = parse_kind(partition)
        except InputError:
            return partition
        if not isinstance(kind, Labels) or kind.mode == "free":
            return partition
        return settings.write(kind.name, replace(kind, order="numbered"))

    task, grid = document.get("task", {}), document.get("grid", {})
    if isinstance(task, dict):
        task = task | {"partition": numbered(task.get("partition", "labels:2"))}
    if isinstance(grid, dict) and isinstance(grid.get("task.partition"), list):
        grid = grid | {"task.partition": [numbered(partition) for partition in grid["task.partition"]]}
    return document | {"version": 2, "task": task, "grid": grid}


def with_aggregator(document: dict[str, Any]) -> dict[str, Any]:
    """The document with task.aggregator instead of the fields for it that version 0.2 had; as it is without them."""
    task = document.get("task", {})
    if not isinstance(task, dict):
        return document
    names = {"late_weight": document} | dict.fromkeys(("averaging", "server"), task)
    given = {name: part[name] for name, part in names.items() if name in part}
    if not given:
        return document
    if "aggregator" in task:
        raise InputError(f"{' and '.join(given)} and task.aggregator are given; leave {' and '.join(given)} out")
    rest = {name: value for name, value in task.items() if name not in given}
    whole = {name: value for name, value in document.items() if name != "late_weight"}
    return whole | {"task": rest | {"aggregator": respelled("mean", given)}}


def respelled(aggregator: Any, given: Mapping[str, Any]) -> str:
    """The line of an aggregator in which settings of `Spelling02` are changed.

    Args:
        aggregator: as parse_aggregator takes it.
        given: the settings that are changed, by name.
    """
    return format_aggregator(replace(Spelling02.of(parse_aggregator(aggregator)), **given).aggregator())
