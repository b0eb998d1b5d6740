from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedcell as fc

LINES = ["greedy", "optimal", "diverse", "random:k=3", "round_robin:k=3", "deadline:seconds=9", "proportional_fair:k=3"]
LINES += ["all", "all:max_devices=2", "all:sharing=equal"]
JOULES = np.array([0.5, 3.0, 1.0, 2.0, 9.0, 0.1])


def view_of(**columns: Any) -> fc.RoundView:
    rng = np.random.default_rng(5)
    upload_s, compute_s, profiles = rng.exponential(size=6), rng.exponential(size=6), rng.dirichlet(np.ones(4), size=6)
    return fc.RoundView(upload_s, compute_s, ids=np.arange(6), joules=JOULES, profiles=profiles, **columns)


@pytest.mark.parametrize("line", LINES)
def test_a_cap_is_the_same_policy_among_the_devices_it_leaves(line: str) -> None:
    capped = fc.parse_policy(f"{line}{',' if ':' in line else ':'}max_joules=2")
    assert fc.format_policy(capped).endswith("max_joules=2") or "max_joules=2," in fc.format_policy(capped)
    left = np.array([0, 2, 3, 5])
    view = view_of()
    plan = capped.decide(view, np.random.default_rng(1))
    alone = fc.RoundView(view.upload_s[left], view.compute_s[left], ids=left, profiles=np.asarray(view.profiles)[left])
    free = fc.parse_policy(line).decide(alone, np.random.default_rng(1))
    assert plan.devices.tolist() == left[free.devices].tolist()
    assert plan.shares.tolist() == free.shares.tolist()
    assert plan.round_s == free.round_s


@pytest.mark.parametrize("line", LINES)
def test_a_cap_that_nobody_exceeds_changes_nothing(line: str) -> None:
    policy = fc.parse_policy(line)
    with_cap, without = replace(policy, max_joules=9.0), policy
    plans = [p.decide(view_of(), np.random.default_rng(2)) for p in (with_cap, without)]
    assert plans[0].devices.tolist() == plans[1].devices.tolist()
    assert plans[0].shares.tolist() == plans[1].shares.tolist()


def test_a_cap_that_everybody_exceeds_schedules_nobody() -> None:
    plan = fc.Deadline(seconds=8.0, max_joules=0.01).decide(view_of(), np.random.default_rng(0))
    assert (plan.devices.size, plan.shares.size, plan.round_s) == (0, 0, 8.0)


def test_forced_devices_must_be_affordable() -> None:
    forced = np.array([True, False, False, True, False, False])
    plan = fc.Random(3, max_joules=2.0).decide(view_of(must_include=forced), np.random.default_rng(0))
    assert {0, 3} <= set(plan.devices.tolist()) <= {0, 2, 3, 5}
    with pytest.raises(
        fc.InputError, match="must_include forces device 3 in, but it would spend 2 J and max_joules is 1"
    ):
        fc.Random(1, max_joules=1.0).decide(view_of(must_include=forced), np.random.default_rng(0))


def test_bad_values_get_a_sentence() -> None:
    with pytest.raises(fc.InputError, match="max_joules is 0; give a finite number above 0"):
        fc.All(max_joules=0)
    with pytest.raises(fc.InputError, match="max_joules is 2, but the view does not say what a round costs"):
        fc.All(max_joules=2.0).decide(fc.RoundView(np.ones(1), np.ones(1)), np.random.default_rng(0))
    with pytest.raises(fc.InputError, match=r"joules\[1\] is nan"):
        fc.RoundView(np.ones(2), np.ones(2), joules=np.array([1.0, np.nan]))
    with pytest.raises(fc.InputError, match=r"joules has shape \(1,\)"):
        fc.RoundView(np.ones(2), np.ones(2), joules=np.ones(1))
