"""A race as the command that runs it again."""

import math
import shlex
from typing import Any

from fedcell.defaults import TARGET_ACCURACY
from fedcell.runs.race import default_race, race_policies
from fedcell.runs.store import spec_document
from fedcell.runs.stored import flat
from fedcell.sim.spec import Spec
from fedcell.sim.spec_fields import spec_fields

OPTIONS = {field.path: field.about.option for field in spec_fields() if field.about.option}
"""The fields of a spec that `fedcell race` has an option for; all others need a file."""


def race_command(spec: Spec, target: float) -> tuple[str, str | None]:
    """The `fedcell race` command of a race, and the file that it reads if options cannot say all of it.

    Args:
        spec: the race, with its grid of policies and seeds.
        target: the target accuracy, from 0 to 1.

    Returns:
        The command, quoted for a shell, and the TOML text of ``race.toml``; None if the command needs no file.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.runs.command import race_command
        >>> race = fc.Spec(budget_s=60.0, grid={"policy": ["greedy", "all"], "seed": [0, 1]})
        >>> race_command(race, 0.7)
        ('fedcell race --policy greedy --policy all --seeds 2 --budget-s 60 --target 0.7', None)
    """
    aim = [] if target == TARGET_ACCURACY else ["--target", _text(target)]
    changes = _changes(spec)
    seeds, policies = spec.grid["seed"], spec.grid["policy"]
    if not set(changes) <= set(OPTIONS) or None in changes.values() or seeds != list(range(len(seeds))):
        return shlex.join(["fedcell", "race", "race.toml", *aim]), spec.to_toml()
    words = ["fedcell", "race"]
    if policies != race_policies(spec.devices.count, spec.cell.law):
        words += [word for policy in policies for word in ("--policy", policy)]
    if seeds != default_race().grid["seed"]:
        words += ["--seeds", str(len(seeds))]
    for field, value in changes.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{OPTIONS[field]}")
        else:
            words += [f"--{OPTIONS[field]}", _text(value)]
    return shlex.join([*words, *aim]), None


def _changes(spec: Spec) -> dict[str, Any]:
    """The fields in which the race is not the default one."""
    usual, ours = flat(spec_document(default_race())), flat(spec_document(spec))
    changes = {name: value for name, value in ours.items() if usual.get(name) != value}
    for name in ("policy", "seed"):
        changes.pop(name, None)
    if spec.rounds is not None:  # which lifts the usual limit of time
        changes.pop("budget_s", None)
        if math.isfinite(spec.budget_s):
            changes["budget_s"] = spec.budget_s
    return changes


def _text(value: Any) -> str:
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
