"""What the page says of races under way."""

import math

import numpy as np
import pytest

from fedcell.dashboard.curves import curves_document, equally_far
from fedcell.plots import styles
from fedcell.runs.records import Rounds


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
    (curve,) = curves_document({"greedy": runs}, {"greedy": runs}, styles(["greedy"]), 0.8, math.inf, {})["policies"]
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


def test_curves_against_energy_have_joules_for_seconds_and_none_where_it_is_unknown() -> None:
    def spending(*joules: float) -> Rounds:
        rows = [(n, 9.0 * n, 9.0, 9.0, 2, 2, n / 10, 1.0, j) for n, j in enumerate(joules, start=1)]
        return Rounds.of((*row, 1.0, 32.0, 1e6) for row in rows)

    def against_energy(*runs: Rounds) -> dict[str, object]:
        so_far = {"greedy": [(run, False) for run in runs]}
        found = curves_document(so_far, so_far, styles(["greedy"]), 0.2, math.inf, {}, "energy")
        return {**found["policies"][0], "row": found["table"][0]}

    known = against_energy(spending(1.0, 2.0), spending(2.0, 2.0, 2.0))
    assert (known["clock_s"], known["spent_j"], known["mean"]) == (None, [2.0, 3.0], [0.1, (0.2 + 0.1) / 2])
    assert [seed["spent_j"] for seed in known["seeds"]] == [[1.0, 3.0], [2.0, 4.0, 6.0]]  # type: ignore[attr-defined]
    assert known["row"]["energy_to_target"] == {"median_j": 3.5, "mean_j": 3.5, "reached": 2, "n": 2}  # type: ignore[index]
    unknown = against_energy(run(3))
    assert (unknown["spent_j"], unknown["mean"]) == ([], [])


def test_a_table_tells_of_which_seeds_it_is_and_means_have_no_limit_while_runs_are_under_way() -> None:
    def row(*runs: tuple[Rounds, bool]) -> dict[str, object]:
        (found,) = curves_document({"all": runs}, {"all": runs}, styles(["all"]), 0.8, 100.0, {})["table"]
        return dict(found)

    ended = row((run(9), True), (run(3), True), (run(0), True))
    assert (ended["seeds"], ended["of_seeds"]) == (2, 3)
    assert ended["time_to_target"] == {"median_s": math.inf, "mean_s": (80.0 + 100.0 + 100.0) / 3, "reached": 1, "n": 3}
    assert ended["best"] == {"mean": pytest.approx(0.6), "half": None, "low": None, "high": None}  # two seeds
    under_way = row((run(9), False), (run(9), False), (run(3), False))
    assert math.isnan(under_way["time_to_target"]["mean_s"])  # type: ignore[index]
    wide = row(*((run(rounds), True) for rounds in (9, 9, 9, 1)))["best"]
    assert isinstance(wide, dict)
    assert (wide["high"], wide["low"]) == (1.0, pytest.approx(wide["mean"] - wide["half"]))
