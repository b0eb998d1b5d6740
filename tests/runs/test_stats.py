import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from builders import rounds_of
from fedcell.runs import stats
from fedcell.runs.records import Rounds

A = rounds_of((10.0, 0.5), (20.0, 0.9), (30.0, 0.7))
B = rounds_of((15.0, 0.3), (25.0, 0.5), (40.0, 0.8), devices=4)


def test_best_last_and_time() -> None:
    assert (A.best_accuracy(), A.last_accuracy()) == (0.9, 0.7)
    assert (A.time_to(0.6), A.time_to(0.95)) == (20.0, math.inf)
    nothing = rounds_of()
    assert [math.isnan(read(nothing)) for read in (Rounds.best_accuracy, Rounds.last_accuracy)] == [True, True]
    assert nothing.time_to(0.1) == math.inf


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
    few = stats.mean_curve([A] * (stats.FEWEST_IN_A_BAND - 1))
    assert np.isnan(few.half).all()


def test_the_band_of_a_mean_curve_is_students_interval() -> None:
    runs = [rounds_of((10.0, a), (20.0, b)) for a, b in ((0.5, 0.8), (0.6, 0.9), (0.4, 0.7), (0.55, 0.95), (0.3, 0.85))]
    curve = stats.mean_curve(runs)
    for place, values in enumerate(np.array([run.accuracy for run in runs]).T):
        low, high = scipy_stats.t.interval(0.95, 4, np.mean(values), scipy_stats.sem(values))
        assert curve.accuracy[place] - curve.half[place] == pytest.approx(low)
        assert curve.accuracy[place] + curve.half[place] == pytest.approx(high)


def test_means_have_students_intervals() -> None:
    values = [0.81, 0.85, 0.79, 0.88]
    mean = stats.mean_of(values)
    low, high = scipy_stats.t.interval(0.95, 3, np.mean(values), scipy_stats.sem(values))
    assert (mean.mean - mean.half, mean.mean + mean.half) == pytest.approx((low, high))
    assert math.isnan(stats.mean_of([0.8]).half)
    assert stats.mean_of([]).text() == "-"
    assert stats.Mean(0.8741, 0.0062, 5).text(100) == "87.41 ± 0.62"
    assert stats.Mean(0.8741, math.nan, 1).text(100) == "87.41"


def test_of_few_seeds_there_is_no_interval_and_none_leaves_0_to_100_percent() -> None:
    assert stats.Mean(0.7202, 1.8894, 2).text(100) == "72.02"
    assert stats.Mean(0.7202, 1.8894, 2).percent_text() == "72.02"
    assert all(map(math.isnan, stats.Mean(0.7202, 1.8894, 3).interval()))
    assert stats.Mean(0.97, 0.058, 5).percent_text() == "97.00 [91.20, 100.00]"
    assert stats.Mean(0.03, 0.058, 5).percent_text(1) == "3.0 [0.0, 8.8]"
    assert stats.Mean(0.87, 0.01, 5).percent_text() == "87.00 ± 1.00"
    assert stats.Mean(math.nan, math.nan, 0).percent_text() == "-"


def test_of_fewer_than_five_seeds_nothing_is_significant() -> None:
    assert [stats.Mean(0.2, 0.01, n).significant for n in (2, 4, 5)] == [False, False, True]
    assert math.isnan(stats.p_value(stats.Mean(0.2, 0.01, 4)))
    assert stats.p_value(stats.Mean(0.0, 0.0, 9)) == 1.0  # all differences are 0
    assert stats.p_value(stats.Mean(0.2, 0.0, 9)) == 0.0
    assert 0.0 < stats.p_value(stats.Mean(0.2, 0.1, 9)) < 0.01
    assert stats.significant_among([stats.Mean(0.2, 0.01, 4)] * 2) == [False, False]
    assert stats.significant_among([stats.Mean(0.2, 0.01, 5)] * 2) == [True, True]


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
    late = rounds_of((100.0, 0.2))
    reached = stats.times_to([A, B, late], 0.75)
    assert (reached.median_s, reached.reached, reached.n) == (40.0, 2, 3)
    assert reached.text() == "40 s (2/3)"
    assert stats.times_to([A, late, late], 0.75).text() == "never (1/3)"
    assert stats.times_to([A, late], 0.75).median_s == math.inf
    assert stats.times_to([A, B], 0.75).median_s == 30.0
    assert stats.times_to([A, B], 0.75).text() == "30 s"


def test_a_summary_of_runs() -> None:
    summary = stats.summarise([A, B], 0.75, 50.0)
    assert summary.best.mean == pytest.approx(0.85)
    assert summary.devices.mean == pytest.approx(3.0)
    assert summary.round_s.mean == pytest.approx((10.0 + 40 / 3) / 2)
    assert summary.rounds.mean == 3.0
    nothing = stats.summarise([rounds_of(), rounds_of()], 0.75, 50.0)
    assert [nothing.best.text(), nothing.rounds.text(), nothing.joules.text()] == ["-"] * 3  # not run is not zero
    assert math.isnan(nothing.curve.best())
    assert math.isnan(nothing.curve.last())
    assert nothing.without_round == 2


def test_all_columns_of_a_summary_are_of_the_same_seeds() -> None:
    summary = stats.summarise([A, rounds_of(), B, rounds_of()], 0.75, 50.0, failed=1)
    means = (summary.best, summary.last, summary.devices, summary.round_s, summary.rounds, summary.joules)
    assert [mean.n for mean in means] == [2] * 6
    assert summary.curve.best() <= summary.best.mean
    assert (summary.failed, summary.without_round, summary.to_target.n) == (1, 1, 4)
    assert summary.to_target == stats.TimeTo(math.inf, 2, 4, (20.0 + 50.0 + 40.0 + 50.0) / 4)


def test_a_seed_counts_only_where_it_has_got() -> None:
    ahead, behind = rounds_of((1, 0.1), (2, 0.3), (3, 0.5)), rounds_of((1.5, 0.2), (2.5, 0.4))
    both = stats.mean_curve([ahead, behind])
    assert stats.mean_curve([ahead, behind], None, [True, True]).accuracy.tolist() == both.accuracy.tolist()
    growing = stats.mean_curve([ahead, behind], 9.0, [False, False])
    assert growing.x.tolist() == [1.5, 2.0, 2.5, 3.0]
    np.testing.assert_allclose(growing.accuracy, [0.15, 0.25, 0.35, 0.5])
    other = rounds_of((1.2, 0.25), (2.5, 0.6))
    four = stats.mean_curve([ahead, behind, behind, other], 9.0, [False] * 4)
    assert np.isfinite(four.half).tolist() == [True, True, True, False]  # at the end there is one seed
    np.testing.assert_allclose(four.half[:3], stats.mean_curve([ahead, behind, behind, other]).half[:3])
    ended = stats.mean_curve([ahead, behind], None, [False, True])
    np.testing.assert_allclose(ended.accuracy, [0.15, 0.25, 0.35, 0.45])
    assert stats.mean_curve([rounds_of()], None, [False]).x.size == 0


def test_a_diverged_run_never_reaches_the_target_and_is_counted() -> None:
    columns = 1.0, 1.0, 2, 2, 0.9
    numbers = [(n, float(n), *columns, loss, 3.0, 1.0, 32.0, 1e6) for n, loss in ((1, 0.5), (2, math.inf))]
    lost, fine = Rounds.of(numbers), Rounds.of(numbers[:1])
    unknown = Rounds.of([(*numbers[0][:-5], math.nan, 3.0, *numbers[0][-3:])])  # Flower runs need not have a loss
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
    return Rounds.of(
        [(n, 10.0 * n, 10.0, 10.0, 2, 2, a, 1.0, j, *[math.nan] * 3) for n, (j, a) in enumerate(points, start=1)]
    )


CHEAP = energy_run((2.0, 0.5), (2.0, 0.9))
DEAR = energy_run((5.0, 0.3), (6.0, 0.8), (6.0, 0.7))


def test_energy_to_an_accuracy_adds_up_the_rounds() -> None:
    assert DEAR.spent_j.tolist() == [5.0, 11.0, 17.0]
    assert DEAR.first(2).spent_j.tolist() == [5.0, 11.0]
    assert [DEAR.energy_to(target) for target in (0.2, 0.75, 0.9)] == [5.0, 11.0, math.inf]
    assert stats.energies_to([CHEAP, DEAR], 0.75, 20.0) == stats.EnergyTo(7.5, 2, 2, 7.5)
    assert stats.energies_to([CHEAP, DEAR], 0.85, 20.0).mean_j == 12.0
    assert stats.energies_to([CHEAP, DEAR, DEAR], 0.85).text() == "never (1/3)"
    summary = stats.summarise([CHEAP, DEAR], 0.75)
    assert (summary.joules.mean, summary.energy_to_target.text()) == (10.5, "7.5 J")


def test_the_energy_curve_goes_as_far_as_every_run_has_spent() -> None:
    curve = stats.energy_curve([CHEAP, energy_run((1.0, 0.1), (2.0, 0.2), (9.0, 0.8))])
    assert curve.x.tolist() == [2.0, 3.0, 4.0]
    np.testing.assert_allclose(curve.accuracy, [(0.5 + 0.1) / 2, (0.5 + 0.2) / 2, (0.9 + 0.2) / 2])
    assert stats.energy_curve([CHEAP, DEAR]).x.size == 0  # one had ended before the other had a model
    assert stats.energy_curve([CHEAP, rounds_of()]).x.size == 0
    assert stats.energy_curve([]).x.size == 0


def test_unknown_energy_stays_unknown() -> None:
    assert np.isnan(A.spent_j).all()
    assert stats.energy_curve([A, CHEAP]).x.size == 0
    summary = stats.summarise([A, CHEAP], 0.75)
    assert (summary.joules.text(), summary.energy_to_target.text()) == ("unknown", "unknown")


def test_a_summary_says_how_long_devices_trained_and_what_they_sent() -> None:
    """Of the rounds in which somebody trained; bytes of whole runs."""
    usual = (10.0, 10.0, 2, 2, 0.5, 1.0, 3.0)
    brief = Rounds.of(
        [(1, 10.0, *usual, 0.1, 2.0, 4e5), (2, 20.0, *usual, math.nan, math.nan, 0.0), (3, 30.0, *usual, 0.3, 4.0, 6e5)]
    )
    whole = Rounds.of([(1, 10.0, *usual, 1.0, 32.0, 9e6)])
    one, other = stats.summarise([brief, brief], 0.9), stats.summarise([whole], 0.9)
    assert [one.epochs.mean, one.bits.mean, one.sent_bytes.mean] == pytest.approx([0.2, 3.0, 1e6])
    assert brief.first(1).sent_bytes.tolist() == [4e5]
    assert stats.effort_differs([one, other])
    assert not stats.effort_differs([other, other])
    old = Rounds.of([(1, 10.0, *usual, math.nan, math.nan, math.nan)])  # a results file of version 0.2
    assert math.isnan(stats.summarise([old], 0.9).epochs.mean)
    assert not stats.effort_differs([stats.summarise([old], 0.9), other])


@pytest.mark.parametrize("n", range(1, 30))
def test_the_interval_of_a_median_is_the_narrowest_pair_that_holds_it_in_95_of_100_samples(n: int) -> None:
    low, high = stats.median_interval(range(n, 0, -1))
    places = [k for k in range(1, n // 2 + 1) if scipy_stats.binom.cdf(k - 1, n, 0.5) <= 0.025]
    assert (low, high) == ((places[-1], n + 1 - places[-1]) if places else (pytest.approx(math.nan, nan_ok=True),) * 2)


def test_p_values_are_those_of_students_test() -> None:
    values = [0.3, -0.1, 0.4, 0.2, 0.5, 0.1]
    assert stats.p_value(stats.mean_of(values)) == pytest.approx(scipy_stats.ttest_1samp(values, 0.0).pvalue)


def test_holms_method_stops_at_the_first_that_it_keeps() -> None:
    assert stats.holm([0.04, 0.01]) == [True, True]
    assert stats.holm([0.04, 0.01], of=3) == [False, True]
    assert stats.holm([0.04, 0.01], of=6) == [False, False]
    assert stats.holm([0.05]) == [True]
    assert stats.holm([math.nan, 0.01, 0.03], level=0.06) == [False, True, True]
    assert stats.holm([0.03, 0.03, 0.001]) == [False, False, True]


def test_a_mean_curve_ends_where_it_is_told_to() -> None:
    assert stats.mean_curve([A, B], end_s=30.0).x.tolist() == [15.0, 20.0, 25.0, 30.0]
    assert stats.mean_curve([A, B], end_s=27.0).x.tolist() == [15.0, 20.0, 25.0, 27.0]
    assert stats.mean_curve([A, B], end_s=math.inf).x.tolist() == [15.0, 20.0, 25.0, 30.0, 40.0]
    assert stats.mean_curve([A, rounds_of()]).x.size == 0  # one of them has not begun
    assert stats.mean_curve([A, rounds_of()], 50.0, [True, False]).x.tolist() == [10.0, 20.0, 30.0, 50.0]


def test_what_reaching_a_target_cost_is_said_in_words() -> None:
    assert stats.EnergyTo(171.26, 5, 5).text() == "171.3 J"
    assert stats.EnergyTo(171.26, 3, 5).text() == "171.3 J (3/5)"
    assert stats.EnergyTo(math.inf, 1, 5).text() == "never (1/5)"
    assert stats.EnergyTo(math.nan, 1, 5).text() == "unknown"
    assert stats.TimeTo(math.inf, 0, 1).text() == "never (0/1)"
    assert (stats.median([]), stats.median([3.0, 1.0, 2.0])) == (math.inf, 2.0)
    assert stats.restricted_mean([1.0, math.inf], 3.0) == 2.0
    assert math.isnan(stats.restricted_mean([1.0, math.inf], math.inf))
    assert math.isnan(stats.restricted_mean([], 3.0))


def test_how_many_seeds_say_something() -> None:
    assert (stats.FEWEST_IN_A_BAND, stats.FEWEST_TO_JUDGE, stats.LEVEL) == (4, 5, 0.05)
