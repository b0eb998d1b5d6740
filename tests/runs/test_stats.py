import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from fedcell.runs import stats
from fedcell.runs.rows import Rounds


def run_of(*points: tuple[float, float], devices: int = 2) -> Rounds:
    clock_s, accuracy = np.array(points).reshape(-1, 2).T
    return Rounds(clock_s, np.diff(clock_s, prepend=0.0), np.full(len(points), float(devices)), accuracy)


A = run_of((10.0, 0.5), (20.0, 0.9), (30.0, 0.7))
B = run_of((15.0, 0.3), (25.0, 0.5), (40.0, 0.8), devices=4)


def test_best_last_and_time() -> None:
    assert (stats.best_accuracy(A), stats.last_accuracy(A)) == (0.9, 0.7)
    assert (stats.time_to(A, 0.6), stats.time_to(A, 0.95)) == (20.0, math.inf)
    nothing = run_of()
    assert (stats.best_accuracy(nothing), stats.last_accuracy(nothing), stats.time_to(nothing, 0.1)) == (0, 0, math.inf)


def test_the_mean_curve_steps_with_every_run_and_begins_when_all_have_a_model() -> None:
    curve = stats.mean_curve([A, B], end_s=50.0)
    assert curve.x.tolist() == [15.0, 20.0, 25.0, 30.0, 40.0, 50.0]
    np.testing.assert_allclose(curve.accuracy, [0.4, 0.6, 0.7, 0.6, 0.75, 0.75])
    assert curve.best() == pytest.approx(0.75)
    assert curve.last() == pytest.approx(0.75)
    assert curve.time_to(0.7) == 25.0
    assert curve.time_to(0.99) == math.inf
    # The best of the mean curve is at most the mean of the bests.
    assert curve.best() <= (0.9 + 0.8) / 2
    single = stats.mean_curve([A])
    assert np.isnan(single.half).all()


def test_means_have_students_intervals() -> None:
    values = [0.81, 0.85, 0.79, 0.88]
    mean = stats.mean_of(values)
    low, high = scipy_stats.t.interval(0.95, 3, np.mean(values), scipy_stats.sem(values))
    assert (mean.mean - mean.half, mean.mean + mean.half) == pytest.approx((low, high))
    assert math.isnan(stats.mean_of([0.8]).half)
    assert stats.mean_of([]).text() == "-"
    assert stats.Mean(0.8741, 0.0062, 5).text(100) == "87.41 ± 0.62"
    assert stats.Mean(0.8741, math.nan, 1).text(100) == "87.41"


def test_pairs_are_far_sharper_than_separate_means() -> None:
    seeds = np.random.default_rng(0).normal(0.8, 0.05, 8)
    ours, theirs = list(seeds + 0.01), list(seeds)
    difference = stats.paired_difference(ours, theirs)
    assert difference.mean == pytest.approx(0.01)
    assert difference.half < 1e-12
    assert difference.significant
    with pytest.raises(ValueError, match=r"shorter|longer"):
        stats.paired_difference([1.0], [1.0, 2.0])


def test_runs_that_never_get_there_are_counted_not_dropped() -> None:
    late = run_of((100.0, 0.2))
    reached = stats.times_to([A, B, late], 0.75)
    assert (reached.median_s, reached.reached, reached.n) == (40.0, 2, 3)
    assert reached.text() == "40 s (2/3)"
    assert stats.times_to([A, late, late], 0.75).text() == "never (1/3)"
    assert stats.times_to([A, late], 0.75).median_s == math.inf
    assert stats.times_to([A, B], 0.75).median_s == 30.0
    assert stats.times_to([A, B], 0.75).text() == "30 s"


def test_verdicts_are_plain_sentences_corrected_for_their_number() -> None:
    sure, unsure, close = stats.Mean(0.05, 0.02, 5), stats.Mean(0.01, 0.02, 5), stats.Mean(0.021, 0.02, 5)
    assert stats.verdicts_on("a", {"b": sure}) == ["a - b: +5.00 points, 95 % interval [+3.00, +7.00]: significant"]
    assert stats.verdicts_on("a", {"b": unsure})[0].endswith("not significant with 5 seeds")
    assert "on one seed" in stats.verdicts_on("a", {"b": stats.Mean(0.05, math.nan, 1)})[0]
    assert stats.verdicts_on("a", {"b": close})[0].endswith(": significant")
    said = stats.verdicts_on("a", {"b": sure, "c": close, "d": unsure})  # among three, its 3.9 % are not enough
    many = " (Holm's correction for 3 comparisons)"
    assert [line.rpartition("]: ")[2] for line in said] == [
        f"significant{many}",
        f"not significant with 5 seeds{many}",
        f"not significant with 5 seeds{many}",
    ]


def test_a_summary_of_runs() -> None:
    summary = stats.summarise([A, B], 0.75, 50.0)
    assert summary.best.mean == pytest.approx(0.85)
    assert summary.devices.mean == pytest.approx(3.0)
    assert summary.round_s.mean == pytest.approx((10.0 + 40 / 3) / 2)
    assert summary.rounds.mean == 3.0
    nothing = stats.summarise([run_of(), run_of()], 0.75, 50.0)
    assert (nothing.best.mean, nothing.devices.n, nothing.curve.best()) == (0.0, 0, 0.0)


def test_a_seed_counts_only_where_it_has_got() -> None:
    ahead, behind = run_of((1, 0.1), (2, 0.3), (3, 0.5)), run_of((1.5, 0.2), (2.5, 0.4))
    both = stats.mean_curve([ahead, behind])
    assert stats.mean_curve([ahead, behind], None, [True, True]).accuracy.tolist() == both.accuracy.tolist()
    growing = stats.mean_curve([ahead, behind], 9.0, [False, False])
    assert growing.x.tolist() == [1.5, 2.0, 2.5, 3.0]
    np.testing.assert_allclose(growing.accuracy, [0.15, 0.25, 0.35, 0.5])
    assert np.isfinite(growing.half).tolist() == [True, True, True, False]
    np.testing.assert_allclose(growing.half[:3], both.half[:3])
    ended = stats.mean_curve([ahead, behind], None, [False, True])
    np.testing.assert_allclose(ended.accuracy, [0.15, 0.25, 0.35, 0.45])
    assert stats.mean_curve([run_of()], None, [False]).x.size == 0


def test_verdicts_compare_the_first_policy_with_the_others() -> None:
    said = stats.verdicts({"a": [A, A], "b": [B, B]})
    assert said == ["a - b: +10.00 points, 95 % interval [+10.00, +10.00]: significant"]


def test_a_diverged_run_never_reaches_the_target_and_is_counted() -> None:
    numbers = [(n, float(n), 1.0, 1.0, 2, 2, 0.9, loss, 3.0) for n, loss in ((1, 0.5), (2, math.inf))]
    lost, fine = Rounds.of(numbers), Rounds.of(numbers[:1])
    unknown = Rounds.of([(*numbers[0][:-2], math.nan, 3.0)])  # Flower runs need not have a loss
    assert [run.diverged for run in (lost, fine, unknown, lost.first(1), lost.until(5.0))] == [
        True,
        False,
        False,
        False,
        True,
    ]
    summary = stats.summarise([lost, fine, unknown], 0.8)
    assert (summary.diverged, summary.to_target.reached, summary.to_target.text()) == (1, 2, "1 s (2/3)")


def energy_run(*points: tuple[float, float]) -> Rounds:
    """A run by the joules of its rounds and the accuracies after them; every round takes 10 s."""
    return Rounds.of([(n, 10.0 * n, 10.0, 10.0, 2, 2, a, 1.0, j) for n, (j, a) in enumerate(points, start=1)])


CHEAP = energy_run((2.0, 0.5), (2.0, 0.9))
DEAR = energy_run((5.0, 0.3), (6.0, 0.8), (6.0, 0.7))


def test_energy_to_an_accuracy_adds_up_the_rounds() -> None:
    assert DEAR.spent_j.tolist() == [5.0, 11.0, 17.0]
    assert DEAR.first(2).spent_j.tolist() == [5.0, 11.0]
    assert [stats.energy_to(DEAR, target) for target in (0.2, 0.75, 0.9)] == [5.0, 11.0, math.inf]
    assert stats.energies_to([CHEAP, DEAR], 0.75) == stats.EnergyTo(7.5, 2, 2)
    assert stats.energies_to([CHEAP, DEAR, DEAR], 0.85).text() == "never (1/3)"
    summary = stats.summarise([CHEAP, DEAR], 0.75)
    assert (summary.joules.mean, summary.energy_to_target.text()) == (10.5, "7.5 J")


def test_the_energy_curve_goes_as_far_as_every_run_has_spent() -> None:
    curve = stats.energy_curve([CHEAP, energy_run((1.0, 0.1), (2.0, 0.2), (9.0, 0.8))])
    assert curve.x.tolist() == [2.0, 3.0, 4.0]
    np.testing.assert_allclose(curve.accuracy, [(0.5 + 0.1) / 2, (0.5 + 0.2) / 2, (0.9 + 0.2) / 2])
    assert stats.energy_curve([CHEAP, DEAR]).x.size == 0  # one had ended before the other had a model
    assert stats.energy_curve([CHEAP, run_of()]).x.size == 0
    assert stats.energy_curve([]).x.size == 0


def test_unknown_energy_stays_unknown() -> None:
    assert np.isnan(A.spent_j).all()
    assert stats.energy_curve([A, CHEAP]).x.size == 0
    summary = stats.summarise([A, CHEAP], 0.75)
    assert (summary.joules.text(), summary.energy_to_target.text()) == ("unknown", "unknown")
    assert stats.energy_verdicts({"a": [A], "b": [CHEAP]}, 0.75) == ["a - b: unknown"]


def test_energies_are_compared_by_the_seeds_that_reach_the_target_with_both() -> None:
    worse = energy_run((7.0, 0.4), (8.0, 0.8))
    never = energy_run((1.0, 0.1))
    runs = {"a": [CHEAP, CHEAP, CHEAP], "b": [DEAR, worse, never], "c": [DEAR, never, never], "d": [never] * 3}
    found = stats.energy_differences(runs, 0.75)
    assert found["b"] == stats.mean_of([4.0 - 11.0, 4.0 - 15.0])
    assert (found["c"].mean, found["c"].n, found["d"].n) == (-7.0, 1, 0)
    several, one, none = stats.energy_verdicts(runs, 0.75)
    assert several.startswith("a - b: -9 J of the 2 of 3 seeds in which both reach it, 95 % interval [-34.4")
    assert one.endswith("on one seed, which shows nothing about others")
    assert none == "a - d: no seed in which both reach it"


def after(*seconds: float) -> list[Rounds]:
    """Runs that reach 90 % after so many seconds."""
    return [run_of((one, 0.9)) for one in seconds]


def test_the_leader_is_so_many_times_sooner_paired_by_seed() -> None:
    never = run_of((9.0, 0.1))
    runs = {
        "slow": after(100.0, 210.0, 290.0, 405.0),
        "quick": after(50.0, 100.0, 150.0, 200.0),
        "odd": [*after(55.0, 400.0), never, never],
        "never": [never] * 4,
    }
    found = stats.lead(runs, 0.8)
    assert found is not None
    leader, over = found
    assert leader == "quick"
    assert list(over) == ["slow", "odd"]
    logs = np.log([2.0, 2.1, 290 / 150, 405 / 200])
    assert over["slow"].ratio == pytest.approx(math.exp(logs.mean()))
    low, high = scipy_stats.t.interval(0.95, 3, logs.mean(), scipy_stats.sem(logs))
    np.testing.assert_allclose([over["slow"].low, over["slow"].high], np.exp([low, high]))
    assert (over["slow"].n, over["slow"].significant) == (4, True)
    assert (over["odd"].n, over["odd"].significant) == (2, False)
    assert stats.lead({"never": [never]}, 0.8) is None
    assert stats.lead({}, 0.8) is None


def test_a_lead_must_hold_against_all_pairs_of_policies() -> None:
    times = [50.0, 60.0, 70.0, 80.0, 90.0]
    later = [factor * one for factor, one in zip([1.1, 1.5, 1.2, 1.6, 1.05], times, strict=True)]
    p = scipy_stats.ttest_1samp(np.log(np.divide(later, times)), 0.0).pvalue
    assert 0.05 / 3 < p < 0.05
    alone = stats.lead({"a": after(*times), "b": after(*later)}, 0.8)
    assert alone is not None
    assert alone[1]["b"].significant
    among = stats.lead({"a": after(*times), "b": after(*later), "c": after(*later)}, 0.8)
    assert among is not None
    assert not among[1]["b"].significant
