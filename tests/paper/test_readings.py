"""Statistics of hand-made records, checked by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import ArrayLike

from fedcell.paper import table1
from fedcell.paper.fig1_fig2 import bounds_verdict, round_times
from fedcell.paper.fig3 import BASELINES, ORDER, PROPOSED, Race, best_k, devices_claim, race_claims, radius_claims
from fedcell.paper.output import close, jackknife, judge, judge_all, overall, points
from fedcell.paper.readings import (
    CURVE,
    LAST,
    TRIALS,
    band,
    by_round,
    differences,
    lead_s,
    readings_by_round,
    readings_by_time,
    time_to_target,
)
from fedcell.paper.settings import Settings, within
from fedcell.paper.table1 import OUTSIDE, highest_target
from fedcell.runs.fit import fit
from fedcell.runs.records import Rounds
from fedcell.runs.stats import LEVEL, Mean, mean_of
from fedcell.schedule.convergence import RoundTimeBounds


def run(accuracy: ArrayLike, round_s: float = 10.0, devices: int = 2) -> Rounds:
    values = np.array(accuracy)
    n = values.size
    return Rounds(round_s * np.arange(1.0, n + 1), np.full(n, round_s), np.full(n, float(devices)), values)


RUNS = [run([0.2, 0.8, 0.4]), run([0.4, 0.2, 0.6])]


def test_jackknife_of_a_mean_is_students_interval() -> None:
    values = [1.0, 4.0, 2.0, 7.0]
    found = jackknife(lambda trials: float(np.mean([values[t] for t in trials])), 4)
    assert (found.mean, found.half) == pytest.approx((mean_of(values).mean, mean_of(values).half))


def test_jackknife_of_what_is_infinite_without_one_trial_has_no_interval() -> None:
    found = jackknife(lambda trials: 1.0 if 0 in trials else math.inf, 3)
    assert found.mean == 1.0
    assert math.isnan(found.half)
    assert math.isnan(jackknife(lambda _: 5.0, 1).half)


def test_three_readings_by_round() -> None:
    found = readings_by_round(RUNS)
    assert found[CURVE].mean == pytest.approx(0.5)  # of 0.3, 0.5, 0.5
    assert found[TRIALS].mean == pytest.approx(0.7)  # of 0.8 and 0.6
    assert found[LAST].mean == pytest.approx(0.5)


def test_three_readings_by_time() -> None:
    slow = run([0.1, 0.9], round_s=15.0)
    found = readings_by_time([RUNS[0], slow], 30.0)
    # Averaged from 15 s on: (0.2, 0.1), then at 20 s (0.8, 0.1), at 30 s (0.4, 0.9).
    assert found[CURVE].mean == pytest.approx(0.65)
    assert found[TRIALS].mean == pytest.approx(0.85)
    assert found[LAST].mean == pytest.approx(0.65)


def test_differences_are_paired() -> None:
    better = [run(one.accuracy + 0.1) for one in RUNS]
    for value in differences(better, RUNS, 30.0).values():
        assert value.mean == pytest.approx(0.1)
        assert value.half == pytest.approx(0.0, abs=1e-9)


def test_rounds_beyond_the_shortest_trial_are_left_out() -> None:
    assert by_round([run([0.1, 0.2, 0.3]), run([0.5, 0.6])]).tolist() == [[0.1, 0.2], [0.5, 0.6]]
    mean, half = band(np.array([[0.1, 0.2], [0.5, 0.6]]))
    assert mean.tolist() == pytest.approx([0.3, 0.4])
    assert half.tolist() == pytest.approx([12.706 * 0.2] * 2, rel=1e-3)


def test_a_smaller_budget_cuts_the_run() -> None:
    assert [len(one) for one in within(RUNS, 20.0)] == [2, 2]


def test_verdicts() -> None:
    assert judge(Mean(1.0, 0.5, 5)) == "confirmed"
    assert judge(Mean(-1.0, 0.5, 5)) == "not confirmed"
    assert judge(Mean(1.0, 1.5, 5)) == "not significant"
    assert judge(Mean(1.0, math.nan, 1)) == "not significant"
    among = [Mean(5.0, 2.0, 5), Mean(2.1, 2.0, 5), Mean(-9.0, 1.0, 5)]
    assert judge_all(among) == ["confirmed", "confirmed", "not confirmed"]
    assert judge_all([*among, Mean(0.1, 2.0, 5)]) == [
        "confirmed",
        "not significant",
        "not confirmed",
        "not significant",
    ]
    assert overall(["confirmed", "not significant"]) == "not significant"
    assert overall(["not significant", "not confirmed", "confirmed"]) == "not confirmed"
    assert overall(["confirmed"]) == "confirmed"
    assert points(Mean(0.0231, 0.01, 5)) == "+2.31 ± 1.00 points"


def test_two_means_of_five_trials_may_differ_by_more_than_one_interval() -> None:
    assert close(11.3, Mean(10.0, 1.0, 5))
    assert not close(11.5, Mean(10.0, 1.0, 5))
    assert not close(10.0, Mean(10.0, math.nan, 1))


def test_time_to_80_percent_on_the_averaged_curve() -> None:
    runs = [run([0.5, 0.7, 0.9]), run([0.5, 0.9, 0.9])]
    found = time_to_target(runs, 30.0)
    assert found.value == 20.0
    assert found.interval == (20.0, 30.0)  # the first trial drawn twice needs 30 s, the second 20 s
    assert found.text() == "20 s [20, 30]"
    assert time_to_target([run([0.5]), run([0.6])], 30.0).text() == "never"
    assert time_to_target(runs[:1], 30.0).text() == "30 s"  # one trial has no interval


def test_who_is_sooner_is_paired_by_trial() -> None:
    ours, theirs = [run([0.5, 0.9, 0.9]), run([0.9, 0.9, 0.9])], [run([0.5, 0.5, 0.9]), run([0.5, 0.9, 0.9])]
    found = lead_s(ours, theirs, 30.0)
    assert found.value == 10.0  # 20 s against 30 s
    assert found.interval == (-math.inf, math.inf)  # the same in every resample: nothing is known of the spread
    never = [run([0.1, 0.1, 0.1]), run([0.1, 0.1, 0.1])]
    assert lead_s(ours, never, 30.0).value == math.inf
    assert lead_s(never, never, 30.0).value == 0.0


def test_random_opt_is_the_best_k_below_everyone() -> None:
    search = {2: [run([0.5])], 4: [run([0.7])], 18: [run([0.6])], 20: [run([0.9])]}
    assert best_k(search, 30.0) == 4


def race(level: dict[str, float], wobble: float = 0.001) -> Race:
    """A race in which each policy has its level from the first round on, a little apart in each trial."""
    noise = (0.0, wobble, -wobble, wobble / 2, -wobble / 2)  # of fewer than five trials nothing is confirmed
    runs = {name: [run([level[name] + e, level[name] + e]) for e in noise] for name in ORDER}
    return Race(runs, {8: runs["Random-opt"]}, 8, 30.0)


def levels(proposed: float, others: float) -> dict[str, float]:
    return {name: proposed if name == PROPOSED else others for name in ORDER}


def test_claims_of_the_race_follow_the_data() -> None:
    ahead, behind = race_claims(race(levels(0.9, 0.7))), race_claims(race(levels(0.7, 0.9)))
    assert [claim.verdict for claim in ahead[:4]] == ["confirmed"] * 4
    assert [claim.verdict for claim in behind[:4]] == ["not confirmed"] * 4
    assert [name in claim.text for name, claim in zip(BASELINES, ahead, strict=False)] == [True] * 4
    assert "CL-high never" in ahead[4].evidence
    assert ahead[4].verdict == "not significant"


def test_claims_of_the_radii_follow_the_data() -> None:
    growing = {r: race(levels(0.8 + lead, 0.8)) for r, lead in ((200.0, 0.01), (800.0, 0.05), (1400.0, 0.1))}
    always, shrinks, alike, large = radius_claims(growing)
    assert always.verdict == "confirmed"
    assert shrinks.verdict == "confirmed"
    assert alike.verdict == "confirmed"  # PF and Random-opt are equal
    assert large.verdict == "not significant"
    falling = {r: race(levels(0.8 + lead, 0.8)) for r, lead in ((200.0, 0.1), (800.0, 0.05), (1400.0, -0.01))}
    always, shrinks, *_ = radius_claims(falling)
    assert always.verdict == "not confirmed"
    assert shrinks.verdict == "not confirmed"


def test_the_devices_claim_follows_the_data() -> None:
    assert devices_claim(Mean(8.4, 0.3, 5), Mean(12.0, 0.2, 5)).verdict == "confirmed"
    assert devices_claim(Mean(13.8, 0.3, 5), Mean(28.0, 0.2, 5)).verdict == "not confirmed"


def test_bounds_are_judged_from_two_devices_on() -> None:
    bounds = RoundTimeBounds(np.array([1.0, 1.0]), np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    for mean, expected in ((1.5, "confirmed"), (0.95, "not significant"), (2.5, "not confirmed")):
        assert bounds_verdict([Mean(9.0, 0.1, 9), Mean(mean, 0.1, 9)], bounds, bounds.upper_s) == expected


def test_round_times_grow_with_the_devices() -> None:
    times = [one.mean for one in round_times(600.0, 200)]
    assert len(times) == 20
    assert times == sorted(times)


def test_the_target_is_the_highest_multiple_of_5_percent_that_all_reach() -> None:
    accuracy = np.array([[[0.3, 0.74]], [[0.5, 0.9]]])
    assert highest_target(accuracy) == pytest.approx(0.70)
    assert highest_target(np.array([[[0.15]]])) == pytest.approx(0.15)


THETAS = {"L=1": 0.0, "L=2": 0.1, "L=5": 0.3, "L=8": 0.5, "iid": 0.9}


def test_table_1_is_judged_by_intervals_that_are_corrected_for_their_number() -> None:
    """Made-up trials, in which each neighbour's 95 % interval of theta is disjoint, but one 99 % interval is not."""
    settings, rng = Settings(seeds=8), np.random.default_rng(5)
    found: dict[str, Rounds] = {}
    fits: dict[float, list[tuple[float, float]]] = {LEVEL: [], OUTSIDE: []}
    for partition, theta in THETAS.items():
        accuracy = np.zeros((len(settings.fit_ks), settings.seeds, settings.rounds))
        for place, n in enumerate(settings.fit_ks):
            spec = settings.without_budget(f"random:k={n}", partition)
            for trial in range(settings.seeds):
                needed = round(40 * (theta + 1 / n) + 1.5 * rng.standard_normal())
                accuracy[place, trial, np.clip(needed, 1, settings.rounds) - 1 :] = 1.0
                found[spec.model_copy(update={"seed": trial}).key()] = run(accuracy[place, trial])
        for outside, intervals in fits.items():
            intervals.append(fit(accuracy, settings.fit_ks, 1.0, "curve", outside).theta_interval)
    disjoint = {outside: [a[1] < b[0] for a, b in pairwise(intervals)] for outside, intervals in fits.items()}
    assert all(disjoint[LEVEL])
    assert disjoint[OUTSIDE].count(False) == 1
    (claim,) = table1.make(settings, lambda _: found).claims
    assert claim.verdict == "not significant"
    assert "3 are disjoint in this order and 0 in the opposite one" in claim.evidence
    assert "These intervals are of 99 %, corrected for 5 comparisons by Bonferroni's method." in claim.evidence
