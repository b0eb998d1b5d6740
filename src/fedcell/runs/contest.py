"""What a tournament compares: scenarios, policies and seeds. A sweep over policies is one too; a store keeps both."""

import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedcell import defaults
from fedcell.errors import InputError
from fedcell.runs.scenarios import Scenario
from fedcell.runs.store import Store, spec_document
from fedcell.runs.stored import MAX_POLICIES, MOST_REMEMBERED, StoredTournament
from fedcell.schedule.registry import canonical_policy
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
    """The policies as `canonical_policy` writes them, as their runs are stored; an InputError if one is there twice.

    Args:
        texts: the policies as a user wrote them.
        where: what has them, for the message.
    """
    found: dict[str, str] = {}
    for text in texts:
        policy = canonical_policy(text)
        if policy in found:
            as_written = f" (as {found[policy]!r} and {text!r})" if found[policy] != text else ""
            raise InputError(f"{where} has the policy {policy!r} twice{as_written}; give it once")
        found[policy] = text
    return list(found)


def swept(spec: Spec) -> tuple[Tournament, list[Entry]] | None:
    """A sweep as the tournament that it is.

    Args:
        spec: with a grid.

    Returns:
        The tournament, each combination of the grid's other fields being a scenario of the usual target, and what each
        of ``spec.runs()`` is in it; None unless the grid has two policies.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.runs.contest import swept
        >>> spec = fc.Spec(grid={"cell.radius_m": [300, 900], "policy": ["all", "greedy"], "seed": [0, 1]})
        >>> tournament, entries = swept(spec)
        >>> [one.name for one in tournament.scenarios], tournament.policies, entries[1]
        (['radius_m=300', 'radius_m=900'], ['all', 'greedy'], ('radius_m=300', 'all', 1))
    """
    if len(spec.grid.get("policy", [])) < 2:
        return None
    policies = {text: canonical_policy(text) for text in spec.grid["policy"]}
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


def remember(store: Store, tournament: Tournament, keys: Mapping[Entry, str]) -> None:
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


def remembered(stored: StoredTournament) -> tuple[Tournament, dict[Entry, str]]:
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
