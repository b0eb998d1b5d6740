"""Fits of hand-made accuracies: the rounds are known, so beta and theta are too."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.rng import stream
from fedcell.runs.fit import (
    RESAMPLES,
    Reading,
    accuracies,
    fit,
    fit_runs,
    rounds_needed_in,
    rounds_to,
)
from fedcell.runs.records import Rounds
from fedcell.schedule.convergence import rounds_needed
from fedcell.schedule.registry import parse_policy

KS = (2, 4, 8, 20)


def reached_at(rounds: list[list[float]], limit: int = 60) -> NDArray[np.float64]:
    """Accuracies 0.1 until the given round of each n and trial, 0.9 from there on."""
    number = np.arange(1, limit + 1)
    return np.where(number >= np.array(rounds)[..., np.newaxis], 0.9, 0.1)


def test_rounds_to_counts_from_one_and_says_never() -> None:
    accuracy = np.array([[0.8, 0.1, 0.9], [0.1, 0.2, 0.8], [0.1, 0.2, 0.3]])
    assert rounds_to(accuracy, 0.8).tolist() == [1.0, 3.0, math.inf]


def test_both_readings_of_a_hand_made_table() -> None:
    accuracy = reached_at([[10, 20, 60.5], [4, 5, 6]])
    needed = rounds_needed_in(accuracy, (2, 4), 0.5)
    assert needed.by_trial.tolist() == [[10, 20, math.inf], [4, 5, 6]]
    assert needed.medians().tolist() == [20, 5]
    # On the averaged curve two of three trials are there from round 20 on: (0.1 + 2 * 0.9) / 3 = 0.63.
    assert needed.on_curve.tolist() == [20, 5]
    assert rounds_needed_in(accuracy, (2, 4), 0.7).on_curve.tolist() == [math.inf, 6]
    assert needed.censored() == {2: 1}


def test_median_is_infinite_where_half_of_the_trials_never_get_there() -> None:
    needed = rounds_needed_in(reached_at([[10, 61], [4, 5]]), (2, 4), 0.5)
    assert needed.medians().tolist() == [math.inf, 4.5]


@pytest.mark.parametrize("reading", ["curve", "trials"])
def test_exact_rounds_give_back_beta_and_theta(reading: str) -> None:
    exact = rounds_needed(KS, 80.0, 0.05)  # 44, 24, 14, 8: whole numbers
    assert exact.tolist() == pytest.approx([44, 24, 14, 8])
    found = fit(reached_at([[round(n)] * 3 for n in exact]), KS, 0.5, reading)  # type: ignore[arg-type]
    assert (found.beta, found.theta) == pytest.approx((80.0, 0.05))
    assert found.beta_interval == pytest.approx((80.0, 80.0))  # all trials are alike
    assert found.theta_interval == pytest.approx((0.05, 0.05))
    assert found.used == KS
    assert found.policy == "optimal:theta=0.05"
    parse_policy(found.policy)


def test_the_bootstrap_interval_holds_the_estimate_and_grows_with_the_spread() -> None:
    narrow = fit(reached_at([[44, 43, 45], [24, 23, 25], [14, 13, 15], [8, 7, 9]]), KS, 0.5, "trials")
    wide = fit(reached_at([[44, 34, 54], [24, 20, 28], [14, 10, 18], [8, 4, 12]]), KS, 0.5, "trials")
    for found in (narrow, wide):
        assert found.theta_interval[0] < 0.05 < found.theta_interval[1]
    assert np.diff(wide.beta_interval)[0] > np.diff(narrow.beta_interval)[0]


@pytest.mark.parametrize("reading", ["curve", "trials"])
@pytest.mark.parametrize("outside", [0.05, 0.4])
def test_the_interval_is_that_of_every_resample_fitted_by_itself(reading: Reading, outside: float) -> None:
    accuracy = reached_at([[44, 34, 54, 61], [24, 20, 28, 30], [14, 10, 18, 19]])
    found = fit(accuracy, (2, 4, 8), 0.5, reading, outside)
    betas, thetas = [], []
    for drawn in stream(0, "bootstrap").integers(4, size=(RESAMPLES, 4)):
        rounds = rounds_needed_in(accuracy[:, drawn], (2, 4, 8), 0.5).reading(reading)
        has = np.isfinite(rounds)
        slope, intercept = np.polyfit(1.0 / np.array([2, 4, 8])[has], rounds[has], 1)
        betas.append(slope)
        thetas.append(intercept / slope)
    ends = [50 * outside, 100 - 50 * outside]
    assert found.beta_interval == pytest.approx(tuple(np.percentile(betas, ends)))
    assert found.theta_interval == pytest.approx(tuple(np.percentile(thetas, ends)))


def test_an_n_that_never_gets_there_is_left_out_and_named() -> None:
    found = fit(reached_at([[99, 99], [24, 24], [14, 14], [8, 8]]), KS, 0.5, "curve")
    assert found.left_out == (2,)
    assert found.used == (4, 8, 20)
    assert (found.beta, found.theta) == pytest.approx((80.0, 0.05))


def test_one_trial_has_no_bounded_interval() -> None:
    found = fit(reached_at([[44], [24], [14], [8]]), KS, 0.5, "curve")
    assert found.theta_interval == (-math.inf, math.inf)


def test_an_interval_is_unbounded_where_too_many_resamples_have_no_fit() -> None:
    # Drawn twice, the second trial leaves one n that gets there: one resample in four.
    found = fit(reached_at([[44, 99], [24, 24]]), (2, 4), 0.5, "curve")
    assert found.theta_interval == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("rounds", "target", "message"),
    [
        ([[99], [24]], 0.5, "reached with 1 of 2 numbers of devices within 60 rounds"),
        ([[10], [24]], 0.5, "more devices needed more rounds"),
        ([[44], [24]], 1.5, "the target is 1.5"),
    ],
)
def test_data_without_a_fit_are_one_sentence(rounds: list[list[float]], target: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(reached_at(rounds), (2, 4), target, "curve")


def test_runs_have_no_budget_and_do_not_stop_at_a_target() -> None:
    runs = fit_runs("iid", (2, 4), 7)
    assert [run.policy for run in runs.values()] == ["random:k=2", "random:k=4"]
    assert all(run.rounds == 7 and run.budget_s == math.inf and run.target_accuracy is None for run in runs.values())


def test_accuracies_want_runs_of_one_length() -> None:
    def run(*accuracy: float) -> Rounds:
        one = np.ones(len(accuracy))
        return Rounds(one.cumsum(), one, one, np.array(accuracy))

    assert accuracies({2: [run(0.1, 0.2)], 4: [run(0.3, 0.4)]}).tolist() == [[[0.1, 0.2]], [[0.3, 0.4]]]
    with pytest.raises(InputError, match="1 to 2 rounds"):
        accuracies({2: [run(0.1)], 4: [run(0.3, 0.4)]})
