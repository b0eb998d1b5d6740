from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import rng


def view_of(upload_s: Any, last_round: Any, round_index: int = 10) -> fc.RoundView:
    M = len(upload_s)
    return fc.RoundView(upload_s, np.ones(M), ids=np.arange(M), round_index=round_index, last_round=last_round)


def test_with_equal_channels_the_oldest_come_first() -> None:
    view = view_of([1.0] * 5, [9, 3, -1, 8, 4])
    for alpha in (0.0, 0.5, 1.0):
        assert fc.AgeOfUpdate(k=3, alpha=alpha).choose(view, rng()).tolist() == [2, 1, 4]


def test_with_equal_ages_the_best_channels() -> None:
    assert fc.AgeOfUpdate(k=2).choose(view_of([3.0, 1.0, 2.0], [4, 4, 4]), rng()).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("alpha", "first"),
    [(0.0, 0), (0.5, 1), (1.0, 1)],  # age 9 at 4 s, age 2 at 1 s: 9/4 > 2/1, but 6/4 < 2.83/1 and 2.30/4 < 1.10/1
)
def test_alpha_weighs_age_against_the_channel(alpha: float, first: int) -> None:
    assert fc.AgeOfUpdate(k=1, alpha=alpha).choose(view_of([4.0, 1.0], [1, 8]), rng()).tolist() == [first]


def test_by_default_a_greater_age_counts_in_proportion() -> None:
    assert fc.AgeOfUpdate(k=1).choose(view_of([4.0, 1.0], [1, 8]), rng()).tolist() == [0]


def test_with_equal_channels_everybody_has_his_turn() -> None:
    last, rounds = np.full(6, -1), []
    for r in range(6):
        plan = fc.AgeOfUpdate(k=2).decide(view_of(np.ones(6), last, r), rng())
        rounds.append(plan.devices.tolist())
        last = last.copy()
        last[plan.devices] = r
    assert rounds == [[0, 1], [2, 3], [4, 5]] * 2


@pytest.mark.parametrize(
    ("alpha", "words"), [(-0.1, "alpha is -0.1"), (1.5, "alpha is 1.5; give a number from 0 to 1")]
)
def test_a_bad_alpha_is_named(alpha: float, words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        fc.AgeOfUpdate(alpha=alpha)


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    policy = vars(fc.POLICIES["age_of_update"]())
    told = {"k": 8, "alpha": 0.0}
    assert {name: policy[name] for name in told} == told
