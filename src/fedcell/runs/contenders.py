"""Who enters a tournament, and how long each takes to decide."""

import logging
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from fedcell.errors import InputError
from fedcell.runs.scenarios import Scenario
from fedcell.schedule.laws import parse_law
from fedcell.schedule.plan import Plan, Question
from fedcell.schedule.policy import Policy, limited
from fedcell.schedule.registry import POLICIES, format_policy, installed, parse_policy
from fedcell.schedule.view import RoundView
from fedcell.sim.loop import Simulation
from fedcell.sim.spec import Spec

RACE_SETTINGS = {"k": ("8",), "seconds": ("8", "25")}
"""Of settings that have no default: the values of the paper's race."""
TIMED_ROUNDS = 8


def default_contenders(scenarios: Sequence[Scenario]) -> list[str]:
    """Every policy that fedcell and installed packages register, with its defaults or the values of the paper's race.

    A policy that schedules k devices takes as many as the smallest of the cells has, if these are fewer. One of another
    package that cannot be loaded, or needs a setting of which we know no value, is left out with a word about it.

    Args:
        scenarios: where they are to compete.
    """
    fewest = int(min(min(one.spec.devices.count, parse_law(one.spec.cell.law).most) for one in scenarios))
    found = [policy for name in [*POLICIES, *installed()] for policy in _entering(name)]
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
        >>> from fedcell.runs.contenders import contenders
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


def deciding_s(spec: Spec, rounds: int = TIMED_ROUNDS) -> float:
    """Seconds that the policy of a run takes to decide a round: the least of some rounds, once the first has passed.

    The questions of a policy that asks first count, the time that devices take to answer does not.

    Args:
        spec: one run.
        rounds: how many are played.

    Returns:
        Seconds of this machine; NaN if the policy fails.
    """
    run = spec.changed({"rounds": rounds, "budget_s": float("inf"), "budget_j": None, "target_accuracy": None})
    took_s: list[float] = [0.0]
    try:
        loaded = Simulation.load(run, threads=1)
        timed = Simulation(loaded.spec, loaded.task, loaded.world, _timed(loaded.policy, took_s))
        state = timed.start()
        while (played := timed.step(state)) is not None:
            state = played[1]
            took_s.append(0.0)
    except Exception:  # whatever a user's own policy raises: its runs say what
        return float("nan")
    return min([second for second in took_s[1:] if second > 0.0], default=float("nan"))


def _timed(policy: Policy, took_s: list[float]) -> Policy:
    """The same policy, which adds the seconds that it takes to the last entry of a list."""
    kind: Any = type(policy)

    class Timed(kind):  # type: ignore[misc]
        def asked(self, view: RoundView, rng: np.random.Generator) -> Question | None:
            began_s = time.perf_counter()
            question: Question | None = super().asked(view, rng)
            took_s[-1] += time.perf_counter() - began_s
            return question

        def decide(self, view: RoundView, rng: np.random.Generator) -> Plan:
            began_s = time.perf_counter()
            plan: Plan = super().decide(view, rng)
            took_s[-1] += time.perf_counter() - began_s
            return plan

    made: Policy = Timed(**{field.name: getattr(policy, field.name) for field in fields(policy) if field.init})
    return made
