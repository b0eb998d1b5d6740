"""Estimates that age: optimistic exploration of devices that were not observed for long."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcell as fc
from fedcell.protocol import Knowledge, estimates
from fedcell.protocol.estimates import (
    EXPLORATION_HALF_LIFE,
    EXPLORE_EVERY,
    MAX_FAILED_PROBES,
    MIN_OBSERVATIONS,
    Estimates,
    is_exploration_round,
)
from fedcell.protocol.knowledge import MAX_BACKOFF_ROUNDS
from fedcell.schedule.plan import Links, Timing
from fedcell.types import Bools, Floats
from twins.estimates import DeviceEstimate

SECONDS = st.floats(1e-6, 1e6)
OBSERVATION = st.tuples(st.integers(0, 3), SECONDS, st.floats(0.0, 1e7), st.booleans(), st.booleans())
ONE = np.array([0])


def observed(estimates: Estimates, device: int, time_s: float, **others: object) -> Estimates:
    arrays = {name: np.array([value]) if name != "clock_s" else value for name, value in others.items()}
    return estimates.with_observations(np.array([device]), np.array([time_s]), **arrays)  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(history=st.lists(OBSERVATION, max_size=30), turn_s=SECONDS)
def test_ageing_is_that_of_the_slow_twin(history: list[tuple[int, float, float, bool, bool]], turn_s: float) -> None:
    ours, twins, clock_s = Estimates.empty(4), [DeviceEstimate() for _ in range(4)], 0.0
    everybody = np.arange(4)
    for device, time_s, later_s, censored, probing in history:
        clock_s += later_s
        mean_s = np.nan_to_num(ours.known_s(everybody), nan=5.0)
        optimistic_s = ours.optimistic_s(everybody, mean_s, clock_s, turn_s)
        assert (optimistic_s <= mean_s).all()
        expected = [twin.optimistic_s(mean, clock_s, turn_s) for twin, mean in zip(twins, mean_s, strict=True)]
        assert optimistic_s == pytest.approx(expected, rel=1e-9)
        planned_s = optimistic_s[device] if probing else mean_s[device]
        ours = observed(ours, device, time_s, planned_s=planned_s, censored=censored, clock_s=clock_s)
        ours = ours.with_first_seen(everybody[:3], clock_s)
        twins[device].observe(time_s, float(planned_s), censored, clock_s)
        for twin in twins[:3]:
            twin.meet(clock_s)
        assert ours.mean_s == pytest.approx([twin.mean_s for twin in twins], rel=1e-9)
        assert ours.weight == pytest.approx([twin.weight for twin in twins], rel=1e-9)
        assert ours.last_s == pytest.approx([twin.last_s for twin in twins], nan_ok=True)
        assert ours.failed_probes.tolist() == [twin.failed_probes for twin in twins]


@settings(max_examples=100, deadline=None)
@given(before=st.lists(SECONDS, min_size=1, max_size=12), bound_s=SECONDS, age_s=st.floats(0.0, 1e9))
def test_a_lower_bound_never_lowers_an_estimate(before: list[float], bound_s: float, age_s: float) -> None:
    known = Estimates.empty(1)
    for time_s in before:
        known = observed(known, 0, time_s)
    optimistic_s = known.optimistic_s(ONE, known.mean_s, age_s, 1.0)
    after = known.with_observations(
        ONE, np.array([bound_s]), planned_s=optimistic_s, censored=np.array([True]), clock_s=age_s
    )
    assert after.mean_s[0] >= known.mean_s[0]
    assert after.failed_probes[0] == (1 if optimistic_s[0] < known.mean_s[0] else 0)
    if bound_s > known.mean_s[0]:
        assert after.mean_s[0] > known.mean_s[0]


def test_trust_halves_after_so_many_turns_and_twice_as_late_after_each_failed_probe() -> None:
    known, turn_s = observed(Estimates.empty(1), 0, 3.0, clock_s=10.0), 2.0
    assert known.optimistic_s(ONE, known.mean_s, 10.0, turn_s).tolist() == [3.0]
    assert known.optimistic_s(ONE, known.mean_s, 10.0 + EXPLORATION_HALF_LIFE * turn_s, turn_s).tolist() == [1.5]
    for j in range(1, MAX_FAILED_PROBES + 5):
        known = observed(known, 0, 3.0, planned_s=1.5, clock_s=10.0)
        assert known.failed_probes[0] == min(j, MAX_FAILED_PROBES)
        half_s = EXPLORATION_HALF_LIFE * 2.0 ** min(j, MAX_FAILED_PROBES) * turn_s
        assert known.optimistic_s(ONE, known.mean_s, 10.0 + half_s, turn_s)[0] == pytest.approx(1.5)


def test_a_probe_that_succeeds_starts_the_estimate_anew() -> None:
    known = Estimates.empty(1)
    for _ in range(12):
        known = observed(known, 0, 8.0)
    known = observed(known, 0, 8.0, planned_s=2.0)
    found = observed(known, 0, 3.9, planned_s=2.0)
    assert (found.mean_s[0], found.weight[0], found.failed_probes[0]) == (3.9, 1.0, 0)
    not_found = observed(known, 0, 4.1, planned_s=2.0)  # closer to 8 s than to 2 s
    assert not_found.mean_s[0] > 6.0
    assert not_found.failed_probes[0] == 2


def history(
    policy: fc.Policy,
    compute_s: Callable[[int], Floats],
    rounds: int,
    explore: bool,
    slack: float = math.inf,
) -> Bools:
    """(rounds, M) who is scheduled in each round; who is later than slack times the planned finish is dropped."""
    M, clock_s = compute_s(0).size, 0.0
    known, links, rng = Knowledge.empty(M), Links(np.full(M, 0.2), np.full(M, np.nan)), np.random.default_rng(0)
    scheduled = np.zeros((rounds, M), dtype=np.bool_)
    for r in range(rounds):
        view = known.view(links, r, clock_s=clock_s, explore=explore)
        plan = policy.decide(view, rng)
        scheduled[r, plan.devices] = True
        finish_s = plan.finish_s(links.upload_s, compute_s(r))
        allowed_s = np.where(
            known.compute.weight[plan.devices] > 0, slack * plan.finish_s(links.upload_s, view.compute_s), np.inf
        )
        late, end_s = finish_s > allowed_s, np.minimum(finish_s, allowed_s)
        began_s = end_s - links.upload_s[plan.devices] / plan.shares
        clock_s += float(end_s.max())
        known = known.with_round(view, plan, links, Timing(began_s, end_s, late), clock_s)
    return scheduled


@pytest.mark.parametrize("slack", [math.inf, 2.0])
@pytest.mark.parametrize("policy", [fc.Greedy(0.0), fc.Greedy(0.5), fc.Optimal(0.0), fc.Optimal(0.5)], ids=repr)
def test_a_device_slow_once_and_one_that_recovers_are_scheduled_again(policy: fc.Policy, slack: float) -> None:
    once, recovers, always = 1, 2, 3

    def compute_s(r: int) -> Floats:
        t = np.full(8, 5.0)
        t[once] = 50.0 if r == 1 else 5.0
        t[recovers] = 40.0 if 20 <= r < 70 else 5.0
        t[always] = 40.0
        return t

    explored = history(policy, compute_s, 300, True, slack)
    assert explored[1, once]
    assert explored[10:20, recovers].all()
    assert explored[-100:, once].mean() > 0.9
    assert explored[-100:, recovers].mean() > 0.9
    assert 1 <= explored[100:, always].sum() <= 4
    without = history(policy, compute_s, 300, False, slack)
    assert without[1, once]
    assert without[10:20, recovers].all()
    assert not without[-100:, [once, recovers]].any()


@pytest.mark.parametrize("policy", [fc.Greedy(0.0), fc.Optimal(0.5)], ids=repr)
def test_probes_of_a_device_that_stays_slow_grow_with_the_logarithm_of_time(policy: fc.Policy) -> None:
    slow = np.array([5.0, 5.0, 5.0, 5.0, 20.0])
    probes = np.cumsum(history(policy, lambda _: slow, 6400, True)[:, 4])
    per_doubling = np.diff(probes[[99, 199, 399, 799, 1599, 3199, 6399]])
    assert probes[-1] >= 5
    assert per_doubling.max() <= 2


def test_only_exploration_rounds_are_optimistic_and_only_for_what_was_observed() -> None:
    links = Links(np.array([0.5, np.nan, np.nan]), np.array([np.nan, 2.0, np.nan]))
    known, rng = Knowledge.empty(3), np.random.default_rng(0)
    view = known.view(links, 0)
    plan = fc.All().decide(view, rng)
    began_s = np.array([4.0, 4.0, 4.0])
    known = known.with_round(view, plan, links, Timing(began_s, began_s + 1.0), 5.0)
    plain = known.view(links, EXPLORE_EVERY - 1)
    turn_s = float(np.median(plain.upload_s + plain.compute_s))
    r, later_s = EXPLORE_EVERY - 1, 5.0 + turn_s * EXPLORATION_HALF_LIFE
    assert plain.compute_s.tolist() == [4.0, 2.0, 4.0]
    optimistic = known.view(links, r, clock_s=later_s, explore=True)
    assert optimistic.compute_s.tolist() == [2.0, 2.0, 2.0]
    assert optimistic.upload_s.tolist() == [0.5, *(plain.upload_s[1:] / 2.0)]
    assert not is_exploration_round(r + 1)
    assert known.view(links, r + 1, clock_s=later_s, explore=True).compute_s.tolist() == [4.0, 2.0, 4.0]


def test_a_reported_time_stays_until_the_device_is_observed_and_an_unknown_one_ages_from_the_first_meeting() -> None:
    nothing, reported_s = Links(np.ones(4), np.full(4, np.nan)), np.array([3.0, 3.0, np.nan, np.nan])
    known = Knowledge.empty(4)
    view = known.view(nothing, 0, reported_s=reported_s)
    plan = fc.Plan(np.array([0]), np.ones(1), 4.0)
    known = known.with_round(view, plan, nothing, Timing(np.array([3.0]), np.array([4.0])), 100.0).grow(5)
    links, there = Links(np.ones(5), np.full(5, np.nan)), np.arange(5)
    optimistic = known.view(
        *(links, EXPLORE_EVERY - 1),
        clock_s=100.0 + 4.0 * EXPLORATION_HALF_LIFE,
        explore=True,
        there=there,
        reported_s=np.append(reported_s, np.nan),
    )
    assert optimistic.compute_s.tolist() == [1.5, 3.0, 1.5, 1.5, 3.0]  # the last was never met before


def test_a_deadline_teaches_at_least_that_slow() -> None:
    links, known = Links(np.full(2, np.nan), np.full(2, np.nan)), Knowledge.empty(2)
    plan = fc.Plan(np.arange(2), np.full(2, 0.5), 10.0)
    for began_s, censored in (([4.0, 4.0], None), ([3.0, 9.0], np.array([True, True]))):
        view = known.view(links, 0)
        known = known.with_round(view, plan, links, Timing(np.array(began_s), np.array(began_s) + 2.0, censored), 0.0)
    assert known.compute.mean_s.tolist() == [4.0, 6.5]
    assert known.upload.mean_s.tolist() == [1.0, 1.0]


def test_a_device_that_keeps_failing_rests_longer_each_time_until_it_delivers() -> None:
    known, r, rests = Knowledge.empty(3), 0, []
    both = np.array([0, 2])
    for _ in range(9):
        known = known.with_failures(both, np.array([True, False]), r)
        again = next(i for i in range(r + 1, r + 100) if not known.resting(i, both)[0])
        rests.append(again - r - 1)
        r = again
    assert rests == [0, 1, 3, 7, 15, 31, MAX_BACKOFF_ROUNDS, MAX_BACKOFF_ROUNDS, MAX_BACKOFF_ROUNDS]
    assert known.failures.tolist() == [9, 0, 0]
    known = known.with_failures(both, np.array([False, True]), r)
    assert known.failures.tolist() == [0, 0, 1]
    assert not known.resting(r + 1, np.arange(3)).any()
    assert known.with_failures(ONE, np.array([True]), r).grow(4).failures.tolist() == [1, 0, 1, 0]


def test_everything_is_saved_and_read_back() -> None:
    links, known, clock_s = Links(np.full(3, np.nan), np.full(3, np.nan)), Knowledge.empty(3), 0.0
    for r in range(2 * EXPLORE_EVERY):
        view = known.view(links, r, clock_s=clock_s, explore=True)
        plan = fc.RoundRobin(2).decide(view, np.random.default_rng(r))
        began_s = np.random.default_rng(r).random(plan.devices.size)
        clock_s += 50.0
        known = known.with_round(view, plan, links, Timing(began_s, began_s + 1.0), clock_s)
    known = known.with_failures(np.array([1]), np.array([True]), r).with_failures(
        np.array([1]), np.array([True]), r + 1
    )
    assert known.compute.failed_probes.any() or known.upload.failed_probes.any()
    saved = known.to_arrays()
    again = Knowledge.from_arrays(saved)
    assert again.to_arrays().keys() == saved.keys()
    for name, array in again.to_arrays().items():
        assert np.array_equal(array, saved[name], equal_nan=True), name
    assert again.resting(r + 2, np.arange(3)).tolist() == [False, True, False]
    r = 3 * EXPLORE_EVERY - 1
    views = [k.view(links, r, clock_s=2 * clock_s, explore=True).compute_s.tolist() for k in (known, again)]
    assert views[0] == views[1]


def test_pooled_times_within_a_factor_of_their_median_are_equal() -> None:
    all_of_them, time_s = np.arange(6), np.array([1.0, 2.0, 5.0, 7.0, 0.1])
    seen = Estimates.empty(6)
    for _ in range(MIN_OBSERVATIONS - 1):
        seen = seen.with_observations(all_of_them[:5], time_s)
    np.testing.assert_array_equal(seen.pooled(all_of_them, 3.0).known_s(all_of_them), [*[2.0] * 5, np.nan])
    seen = seen.with_observations(all_of_them[:5], time_s)
    level = seen.pooled(all_of_them, 3.0)
    np.testing.assert_array_equal(level.known_s(all_of_them), [2.0, 2.0, 2.0, 7.0, 0.1, np.nan])
    assert seen.mean_s.tolist() == [1.0, 2.0, 5.0, 7.0, 0.1, 0.0]
    assert level.pooled(all_of_them[5:], 3.0) is level  # nothing was seen of it


def test_a_busy_machine_makes_no_device_slow_and_one_that_becomes_slow_is_noticed() -> None:
    """Other work delays any of ten equal devices by 2 to 50 times, each time one in ten."""
    rng, ten, seen = np.random.default_rng(0), np.arange(10), Estimates.empty(10)
    apart = 0
    for _ in range(200):
        delay = np.where(rng.random(10) < 0.1, rng.uniform(2.0, 50.0, 10), 1.0)
        seen = seen.with_observations(ten, 0.1 * delay * rng.uniform(0.8, 1.2, 10))
        apart += np.unique(seen.pooled(ten, 3.0).known_s(ten)).size > 1
    assert apart <= 10  # 79 with the means alone
    slow = np.where(ten == 3, 1.0, 0.1)
    rounds = 0
    while np.unique(seen.pooled(ten, 3.0).known_s(ten)).size == 1:
        seen, rounds = seen.with_observations(ten, slow), rounds + 1
    level_s = seen.pooled(ten, 3.0).known_s(ten)
    assert rounds == 3
    assert level_s[3] > 3.0 * level_s[0]
    old = {name: array for name, array in seen.to_arrays().items() if name != "least_s"}
    again = Estimates.from_arrays(old)  # a state of version 0.2: its means, as long as there is nothing else
    assert again.pooled(ten, 3.0).known_s(ten)[3] == np.median(seen.mean_s)


def test_an_estimate_is_the_mean_of_ten_observations_and_then_moves_by_a_tenth() -> None:
    known = Estimates.empty(1)
    for n in range(1, 11):
        known = observed(known, 0, float(n * n))
    assert known.mean_s[0] == pytest.approx(38.5)
    for n in range(3):
        known = observed(known, 0, 138.5)
        assert known.mean_s[0] == pytest.approx(138.5 - 100.0 * 0.9 ** (n + 1))


def test_numbers_that_the_documentations_results_were_measured_with() -> None:
    assert (estimates.WINDOW, estimates.EXPLORATION_HALF_LIFE, estimates.EXPLORE_EVERY) == (10, 16.0, 10)
    assert (estimates.MAX_FAILED_PROBES, estimates.MIN_OBSERVATIONS, estimates.LEAST_GROWTH) == (30, 3, 1.5)
    assert estimates.MIN_SECONDS == 1e-9
    never = Estimates.empty(1)
    found = [getattr(never, name)[0] for name in ("mean_s", "weight", "failed_probes", "least_s")]
    assert found == [0.0, 0.0, 0, math.inf]
