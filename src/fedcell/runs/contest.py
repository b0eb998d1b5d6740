"""What a tournament compares: scenarios (cells, as TOML), policies (who enters) and seeds."""

import hashlib
import json
import logging
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcell import defaults
from fedcell.errors import InputError, did_you_mean, short_repr
from fedcell.files import read_toml, toml_value
from fedcell.runs.store import Store, spec_document
from fedcell.runs.stored import MAX_POLICIES, MAX_REMEMBERED, StoredTournament
from fedcell.schedule.laws import parse_law
from fedcell.schedule.policy import Policy, cap_k
from fedcell.schedule.registry import POLICIES, format_policy, parse_policy
from fedcell.sim.spec import MAX_RUNS, Spec, parse_spec, parse_stored

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
        raise InputError(f"{source} has the scenario {twice[0]!r} twice; give each its own name")
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


Entry = tuple[str, str, int]
"""One run of a tournament: its scenario, its policy and its seed."""


@dataclass(frozen=True)
class Tournament:
    """What is to be run.

    Attributes:
        scenarios: where.
        policies: who, two at least.
        seeds: the seeds of each.

    Example:
        >>> import fedcell as fc
        >>> wanted = fc.Tournament(fc.load_scenarios()[:2], ["greedy", "random:k=8"], [0, 1, 2])
        >>> len(wanted.runs())
        12
    """

    scenarios: list[Scenario]
    policies: list[str]
    seeds: list[int]

    def __post_init__(self) -> None:
        count = len(self.scenarios) * len(self.policies) * len(self.seeds)
        if not 1 <= count <= MAX_RUNS:
            raise InputError(f"the tournament has {count:,} runs; {MAX_RUNS:,} at most, fewer --seeds will do")

    def entries(self) -> list[Entry]:
        """The runs by name, seed by seed, so that an early end leaves complete seeds."""
        return [(one.name, policy, seed) for seed in self.seeds for one in self.scenarios for policy in self.policies]

    def runs(self) -> dict[Entry, Spec]:
        """The runs, in the order of `entries`; an InputError if a policy is none, or there twice."""
        specs = {one.name: one.spec for one in self.scenarios}
        written = dict(zip(self.policies, distinct_policies(self.policies, "the tournament"), strict=True))
        return {
            (name, policy, seed): specs[name].model_copy(update={"policy": written[policy], "seed": seed})
            for name, policy, seed in self.entries()
        }


def distinct_policies(texts: Iterable[str], where: str) -> list[str]:
    """The policies as their runs are stored (`POLICIES.canonical`); an InputError if one is there twice."""
    found: dict[str, str] = {}
    for text in texts:
        policy = POLICIES.canonical(text)
        if policy in found:
            as_written = f" (as {found[policy]!r} and {text!r})" if found[policy] != text else ""
            raise InputError(f"{where} has the policy {policy!r} twice{as_written}; give it once")
        found[policy] = text
    return list(found)


def save_tournament(store: Store, tournament: Tournament, keys: Mapping[Entry, str]) -> None:
    """Write a tournament, and the keys of all its runs, down in place of the same one with other seeds."""
    if len(keys) > MAX_REMEMBERED or len(tournament.policies) > MAX_POLICIES:
        return
    document = {
        "scenarios": [
            {"name": one.name, "about": one.about, "target": one.target, "spec": _cell_document(one.spec)}
            for one in tournament.scenarios
        ],
        "policies": tournament.policies,
    }
    id = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
    listed = [keys[entry] for entry in tournament.entries()]
    store.put_tournament(StoredTournament(id, document | {"seeds": tournament.seeds}, time.time(), listed))


def _cell_document(spec: Spec) -> dict[str, Any]:
    """The spec without what the tournament chooses: nobody who reads it imports a policy of one's own."""
    return {name: value for name, value in spec_document(spec).items() if name not in ("policy", "seed")}


def load_tournament(stored: StoredTournament) -> tuple[Tournament, dict[Entry, str]]:
    """A tournament that `save_tournament` wrote down, and the keys of its runs; an InputError if it is damaged."""
    if stored.damage:
        raise InputError(f"tournament {stored.id} is {stored.damage}; run it again, its runs are kept")
    try:
        scenarios = [
            Scenario(
                one["name"], one["about"], float(one["target"]), parse_stored(one["spec"], f"scenario {one['name']}")
            )
            for one in stored.document["scenarios"]
        ]
        tournament = Tournament(scenarios, list(stored.document["policies"]), list(stored.document["seeds"]))
        return tournament, dict(zip(tournament.entries(), stored.keys, strict=True))
    except InputError:
        raise
    except Exception:  # whatever somebody has written there
        raise InputError(f"tournament {stored.id} is damaged; run it again, its runs are kept") from None


RACE_SETTINGS = {"k": ("8",), "seconds": ("8", "25")}
"""Of settings that have no default: the values of the paper's race."""


def default_contenders(scenarios: Sequence[Scenario]) -> list[str]:
    """Every policy that fedcell and installed packages register, with its defaults or the values of the paper's race.

    A policy that schedules k devices takes as many as the smallest of the cells has, if these are fewer. One of another
    package that cannot be loaded, or needs a setting of which we know no value, is left out with a word about it.

    Args:
        scenarios: where they are to compete.
    """
    fewest = int(min(min(one.spec.devices.count, parse_law(one.spec.cell.law).max_devices) for one in scenarios))
    found = [policy for name in [*POLICIES, *POLICIES.installed()] for policy in _entering(name)]
    return [format_policy(cap_k(policy, fewest)) for policy in found]


def _entering(name: str) -> list[Policy]:
    """The forms in which a registered policy enters by default: one, or one for each of the race's values."""
    raced = [[f"{name}:{key}={value}" for value in values] for key, values in RACE_SETTINGS.items()]
    reasons = []
    for texts in [[name], *raced]:
        try:
            return [parse_policy(text) for text in texts]
        except InputError as error:
            reasons.append(error)
    logging.getLogger("fedcell").warning("policy %r does not enter the tournament: %s", name, reasons[0])
    return []


def contenders(scenarios: Sequence[Scenario], added: Sequence[str] = (), only: Sequence[str] = ()) -> list[str]:
    """The policies of a tournament, as `format_policy` writes them.

    Args:
        scenarios: where they are to compete.
        added: policies beside the others, such as ``mine:Nearest:k=2``.
        only: the others: policies, or names of those that enter by default; all of these if it is empty.

    Example:
        >>> from fedcell.runs.contest import contenders
        >>> from fedcell.runs.contest import load_scenarios
        >>> contenders(load_scenarios(), only=["greedy", "deadline"], added=["random:4"])
        ['greedy', 'deadline:seconds=8', 'deadline:seconds=25', 'random:k=4']
    """
    usual = default_contenders(scenarios)
    found = list(usual) if not only else []
    for text in only:
        found += [policy for policy in usual if policy.partition(":")[0] == text] or [format_policy(parse_policy(text))]
    found += [format_policy(parse_policy(text)) for text in added]
    twice = [policy for policy in found if found.count(policy) > 1]
    if twice:
        hint = "it enters by default" if twice[0] in usual and not only else "give it once"
        raise InputError(f"the tournament has the policy {twice[0]!r} twice; {hint}")
    if len(found) < 2:
        raise InputError(f"a tournament needs two policies; add another to {found[0]!r} with --policy")
    return found
