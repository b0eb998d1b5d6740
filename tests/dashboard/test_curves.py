"""What the page says of races under way."""

import math

import numpy as np

from fedcell.dashboard.views.colours import styles
from fedcell.dashboard.views.curves import curves_document, equally_far
from fedcell.runs.rows import Rounds


def run(rounds: int, round_s: float = 10.0, gain: float = 0.1) -> Rounds:
    numbers = np.arange(1.0, rounds + 1)
    return Rounds(round_s * numbers, np.full(rounds, round_s), np.full(rounds, 4.0), np.minimum(gain * numbers, 0.99))


def test_runs_that_have_ended_are_averaged_and_others_only_up_to_the_same_time() -> None:
    groups = {"a": [(run(9), True), (run(3), False)], "b": [(run(9), True), (run(0), False)]}
    finished, so_far_s = equally_far(groups)
    assert so_far_s is None
    assert [len(one) for runs in finished.values() for one in runs] == [9, 9]
    cut, so_far_s = equally_far({"a": [(run(9), False)], "b": [(run(3), False), (run(20), True)]})
    assert so_far_s == 30.0
    assert [len(one) for runs in cut.values() for one in runs] == [3, 3, 3]


def document(seeds: int, gain: float = 0.1) -> dict[str, object]:
    runs = [(run(8 + seed, gain=gain), True) for seed in range(seeds)]
    (curve,) = curves_document({"greedy": runs}, {"greedy": runs}, styles(["greedy"]), 0.8, math.inf, [], {})[
        "policies"
    ]
    return dict(curve)


def test_bands_stay_between_0_and_100_percent_and_few_seeds_are_drawn_themselves() -> None:
    many = document(5, gain=0.15)
    low, high = (np.array(many[side], dtype=float) for side in ("low", "high"))
    assert many["seeds"] is None
    assert np.nanmin(low) >= 0.0
    assert np.nanmax(high) <= 1.0
    few = document(3)
    assert isinstance(few["seeds"], list)
    assert [len(seed["clock_s"]) for seed in few["seeds"]] == [8, 9, 10]
    assert (few["low"], few["high"]) == (None, None)
    assert document(1)["seeds"] is None
