"""What a tournament compares: scenarios, policies (who enters) and seeds.

A sweep over policies is one too; a store keeps both.
"""

import hashlib
import itertools
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcell import defaults
from fedcell.errors import InputError
from fedcell.runs.scenarios import Scenario
from fedcell.runs.store import Store, spec_document
from fedcell.runs.stored import MAX_POLICIES, MOST_REMEMBERED, StoredTournament
from fedcell.schedule.laws import parse_law
from fedcell.schedule.policy import Policy, limited
from fedcell.schedule.registry import POLICIES, format_policy, parse_policy
from fedcell.sim.spec import MAX_RUNS, Spec, parse_stored

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
    """The policies as `POLICIES.canonical` writes them, as their runs are stored; an InputError if one is there twice.

    Args:
        texts: the policies as a user wrote them.
        where: what has them, for the message.
    """
    found: dict[str, str] = {}
    for text in texts:
        policy = POLICIES.canonical(text)
        if policy in found:
            as_written = f" (as {found[policy]!r} and {text!r})" if found[policy] != text else ""
            raise InputError(f"{where} has the policy {policy!r} twice{as_written}; give it once")
        found[policy] = text
    return list(found)


def sweep_as_tournament(spec: Spec) -> tuple[Tournament, list[Entry]] | None:
    """A sweep as the tournament that it is.

    Args:
        spec: with a grid.

    Returns:
        The tournament, each combination of the grid's other fields being a scenario of the usual target, and what each
        of ``spec.runs()`` is in it; None unless the grid has two policies.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.runs.contest import sweep_as_tournament
        >>> spec = fc.Spec(grid={"cell.radius_m": [300, 900], "policy": ["all", "greedy"], "seed": [0, 1]})
        >>> tournament, entries = sweep_as_tournament(spec)
        >>> [one.name for one in tournament.scenarios], tournament.policies, entries[1]
        (['radius_m=300', 'radius_m=900'], ['all', 'greedy'], ('radius_m=300', 'all', 1))
    """
    if len(spec.grid.get("policy", [])) < 2:
        return None
    policies = {text: POLICIES.canonical(text) for text in spec.grid["policy"]}
    entries, scenarios = list[Entry](), dict[str, Scenario]()
    for values in itertools.product(*spec.grid.values()):
        fields = dict(zip(spec.grid, values, strict=True))
        policy, seed = policies[fields.pop("policy")], int(fields.pop("seed", spec.seed))
        name = " ".join(f"{field.rpartition('.')[2]}={_short(value)}" for field, value in fields.items()) or "sweep"
        if name not in scenarios:
            scenarios[name] = Scenario(name, "", defaults.TARGET_ACCURACY, spec.changed(fields, {}))
        entries.append((name, policy, seed))
    who, seeds = dict.fromkeys(policies.values()), dict.fromkeys(seed for _, _, seed in entries)
    return Tournament(list(scenarios.values()), list(who), list(seeds)), entries


def _short(value: object) -> str:
    """A value as a scenario's name has it; two values never have the same."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def save_tournament(store: Store, tournament: Tournament, keys: Mapping[Entry, str]) -> None:
    """Write a tournament down, in place of the same one with other seeds.

    Args:
        store: that has, or is to have, its runs.
        tournament: what is compared.
        keys: of all its runs.
    """
    if len(keys) > MOST_REMEMBERED or len(tournament.policies) > MAX_POLICIES:
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
    """A tournament that `remember` wrote down, and the keys of its runs; an InputError if it is damaged."""
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
    return [format_policy(limited(policy, fewest)) for policy in found]


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
        >>> from fedcell.runs.scenarios import load_scenarios
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
