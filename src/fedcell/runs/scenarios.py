"""Scenarios: the cells in which a tournament compares policies, as TOML; a standard set comes with fedcell."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcell import defaults
from fedcell.errors import InputError, did_you_mean, short_repr
from fedcell.sim.spec import Spec, parse_spec
from fedcell.toml import read_toml, toml_value

STANDARD = Path(__file__).with_name("scenarios.toml")
"""The scenarios that come with fedcell."""
_NAME = re.compile(r"\w[\w.-]{0,39}")
_OWN = ("name", "about", "target")


@dataclass(frozen=True)
class Scenario:
    """A cell, its devices and a task in which policies are compared.

    Attributes:
        name: short, of letters, digits, ``-`` and ``.``.
        about: a sentence.
        target: the accuracy whose time is compared, a fraction.
        spec: everything but the policy and the seed.

    Example:
        >>> import fedcell as fc
        >>> far = fc.Scenario("far", "A large cell.", 0.7, fc.Spec(budget_s=300.0, cell=fc.Cell(radius_m=2000.0)))
        >>> far.name, far.spec.cell.radius_m
        ('far', 2000.0)
    """

    name: str
    about: str
    target: float
    spec: Spec


def load_scenarios(path: str | Path = STANDARD) -> list[Scenario]:
    """Read scenarios from a TOML file.

    Args:
        path: a file of tables ``[[scenario]]``, each with a ``name``, and if wanted ``about``, ``target`` and any
            fields of a spec; those of a table ``[defaults]`` hold where a scenario says nothing else. The standard
            scenarios by default.

    Returns:
        At least one; an InputError names the file, the scenario and the field that is wrong.

    Example:
        >>> import fedcell as fc
        >>> paper, small, *_ = fc.load_scenarios()
        >>> paper.name, paper.target, paper.spec.cell.radius_m, small.spec.cell.radius_m
        ('paper', 0.8, 1400.0, 300.0)
    """
    document = read_toml(path, "fedcell tournament --print-scenarios")
    source = "the standard scenarios" if path == STANDARD else str(path)
    odd = [name for name in document if name not in ("defaults", "scenario")]
    if odd:
        raise InputError(f"{source}: unknown table {odd[0]!r}; write [defaults] and [[scenario]]")
    tables, usual = document.get("scenario"), document.get("defaults", {})
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables) or not tables:
        raise InputError(f"{source} has no scenarios; write each as a table [[scenario]] with a name")
    if not isinstance(usual, dict) or "name" in usual or "about" in usual:
        raise InputError(f"{source}: [defaults] has fields that scenarios share; a name is a scenario's own")
    found = [_scenario(_merged(usual, table), source) for table in tables]
    names = [scenario.name for scenario in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"{source} has the scenario {twice[0]!r} twice; give each a name of its own")
    return found


def chosen_scenarios(scenarios: Sequence[Scenario], names: Sequence[str]) -> list[Scenario]:
    """The scenarios with these names, in the order of the scenarios; all if no name is given."""
    known = [scenario.name for scenario in scenarios]
    for name in names:
        if name not in known:
            raise InputError(f"there is no scenario {name!r}; {did_you_mean(name, known)}")
    return [scenario for scenario in scenarios if scenario.name in names or not names]


def _merged(usual: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The fields of a scenario over those of all; tables are merged field by field."""
    both = {
        key: _merged(usual[key], own[key]) for key in usual.keys() & own.keys() if _are_tables(usual[key], own[key])
    }
    return usual | own | both


def _are_tables(*values: Any) -> bool:
    return all(isinstance(value, dict) for value in values)


def _scenario(fields: dict[str, Any], source: str) -> Scenario:
    name = fields.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{source}: the name of a scenario is {short_repr(name)}; give a word of up to 40 letters, digits, - and ."
        )
    where = f"{source}, scenario {name!r}"
    about, target = fields.get("about", ""), fields.get("target", defaults.TARGET_ACCURACY)
    if not isinstance(about, str):
        raise InputError(f"{where}: about is {short_repr(about)}; give a sentence")
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0.0 < target <= 1.0:
        raise InputError(f"{where}: target is {short_repr(target)}; give an accuracy between 0 and 1, such as 0.8")
    taken = [field for field in ("policy", "seed", "grid") if field in fields]
    if taken:
        raise InputError(f"{where}: {taken[0]} is the tournament's to choose; leave it out (see --policy and --seeds)")
    spec = parse_spec({key: value for key, value in fields.items() if key not in _OWN}, where)
    if not math.isfinite(spec.budget_s):
        raise InputError(f"{where}: budget_s is not given; runs that never reach the target count with it, give one")
    return Scenario(name, " ".join(about.split()), float(target), spec)


def changed_fields(spec: Spec) -> dict[str, Any]:
    """The fields of a spec that are not at their defaults, nested ones with a dot."""
    found: dict[str, Any] = {}
    usual = Spec().model_dump()
    for name, value in spec.model_dump(exclude={"grid", "policy", "seed"}).items():
        inner = {f"{name}.{key}": (v, usual[name][key]) for key, v in value.items()} if isinstance(value, dict) else {}
        found |= {path: v for path, (v, default) in (inner or {name: (value, usual[name])}).items() if v != default}
    return found


def scenarios_toml(scenarios: Sequence[Scenario]) -> str:
    """The scenarios as a TOML document, which load_scenarios reads back."""
    return "\n".join(
        "\n".join(
            [
                "[[scenario]]",
                *(f"{field} = {toml_value(getattr(one, field))}" for field in _OWN),
                *(f"{field} = {toml_value(value)}" for field, value in _written(one.spec).items()),
                "",
            ]
        )
        for one in scenarios
    )


def _written(spec: Spec) -> dict[str, Any]:
    """The budget in any case: with a limit on rounds there would be none."""
    return {"budget_s": spec.budget_s} | changed_fields(spec)
