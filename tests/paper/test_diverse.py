"""The statistics behind the proof: p-values and Holm's correction, against SciPy."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from fedcell.distributions import student_t_p
from fedcell.paper.diverse import CONTENDERS, OURS, ROWS, compare, race_specs
from fedcell.paper.settings import Settings
from fedcell.runs.records import Rounds
from fedcell.runs.stats import holm, mean_of


@pytest.mark.parametrize("n", [2, 5, 30])
def test_p_values_are_those_of_the_paired_t_test(n: int) -> None:
    values = np.random.default_rng(n).normal(0.4, 1.0, n)
    mean = mean_of(values.tolist())
    assert student_t_p(mean.mean, mean.half, n) == pytest.approx(scipy_stats.ttest_1samp(values, 0.0).pvalue, rel=1e-9)


def test_holm_rejects_step_by_step() -> None:
    assert holm([0.01, 0.013, 0.3, math.nan]) == [True, True, False, False]
    assert holm([0.02, 0.013, 0.3, math.nan]) == [False, False, False, False]
    assert holm([]) == []


def run_of(reaches_at_s: float, last: float) -> Rounds:
    clock_s = np.array([10.0, reaches_at_s, 400.0])
    return Rounds(clock_s, np.diff(clock_s, prepend=0.0), np.full(3, 5.0), np.array([0.2, 0.8, last]))


def test_comparisons_are_paired_and_corrected_for_all_of_them() -> None:
    """Ours is 100 s sooner and as good at the end, but for noise that both share."""
    rng = np.random.default_rng(0)
    shared = rng.normal(0.0, 30.0, 30)
    cell = next(iter(ROWS))
    found = {
        (cell, who): [
            run_of((100.0 if who in OURS else 200.0) + common + rng.normal(0, 1), 0.7 + 0.001 * rng.normal())
            for common in shared
        ]
        for who in CONTENDERS
    }
    compared = compare(found, 450.0)
    assert len(compared) == 2 * 7 * 3
    time = compared[cell, "Diverse", "Greedy", "time"]
    assert time.significant
    assert time.difference.mean == pytest.approx(-100.0, abs=2.0)
    assert time.difference.half < 2.0  # the noise that both share is gone
    assert not any(one.significant for key, one in compared.items() if key[3] == "last")


def test_a_target_that_is_never_reached_counts_as_the_budget() -> None:
    assert run_of(100.0, 0.7).value("time", 0.8, 450.0) == 100.0
    assert run_of(100.0, 0.7).value("time", 0.9, 450.0) == 450.0
    assert run_of(100.0, 0.7).value("best", 0.9, 450.0) == 0.8
    assert run_of(100.0, 0.7).value("last", 0.9, 450.0) == 0.7


def test_every_row_changes_one_thing_of_the_papers_race() -> None:
    settings = Settings()
    specs = race_specs(settings)
    assert len(specs) == len(ROWS) * len(CONTENDERS)
    base = specs[next(iter(ROWS)), "Greedy"]
    assert (base.cell.radius_m, base.budget_s, base.task.partition) == (1400.0, 450.0, "labels:2")
    assert len({spec.key() for spec in specs.values()}) == len(specs)
    assert all(len(row.fields) <= 1 for row in ROWS.values())
