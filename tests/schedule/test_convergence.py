import copy
import math
import pickle

import numpy as np
import pytest
from scipy import stats

import fedcell as fc
from fedcell.distributions import student_t_quantile
from fedcell.schedule.convergence import largest_set


def test_table_1_and_the_model() -> None:
    beta, theta = fc.TABLE_I["L=8"]
    assert fc.rounds_needed(4, beta, theta) == pytest.approx(63.919 * (0.139 + 0.25))
    np.testing.assert_allclose(fc.rounds_needed([1, 2], 10.0, 0.5), [15.0, 10.0])


@pytest.mark.parametrize("theta", [-0.0448, -0.0367, -0.5, -1 / 3, -0.1, -1e-9])
def test_the_largest_set_is_the_last_with_rounds_to_go(theta: float) -> None:
    n = largest_set(theta)
    assert theta + 1 / n > 0 >= theta + 1 / (n + 1)


def test_the_notes_caps() -> None:
    assert (largest_set(-0.0448), largest_set(-0.0367), largest_set(0.0)) == (22, 27, math.inf)


def test_fit_recovers_an_exact_model() -> None:
    n = np.array([1, 2, 4, 8, 12])
    beta, theta = fc.fit_rounds(n, fc.rounds_needed(n, 63.919, 0.139))
    assert (beta, theta) == pytest.approx((63.919, 0.139))


def test_fit_intervals_equal_scipys_and_bracket_the_estimate() -> None:
    draw = np.random.default_rng(5)
    n = np.repeat([2, 4, 8, 12], 5)
    rounds = fc.rounds_needed(n, 90.0, 0.1) + draw.normal(0, 2.0, n.size)
    fit = fc.fit_rounds(n, rounds)
    line = stats.linregress(1.0 / n, rounds)
    half = stats.t.ppf(0.975, n.size - 2) * line.stderr
    assert fit.beta == pytest.approx(line.slope)
    assert fit.theta == pytest.approx(line.intercept / line.slope)
    assert fit.beta_interval == pytest.approx((line.slope - half, line.slope + half))
    assert fit.theta_interval[0] < fit.theta < fit.theta_interval[1]


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    draw = np.random.default_rng(6)
    n = np.repeat([2, 4, 8, 12], 3)
    truth = fc.rounds_needed(n, 90.0, 0.1)
    fits = [fc.fit_rounds(n, truth + draw.normal(0, 3.0, n.size)) for _ in range(2000)]
    for name, value in (("beta_interval", 90.0), ("theta_interval", 0.1)):
        inside = np.mean([getattr(fit, name)[0] <= value <= getattr(fit, name)[1] for fit in fits])
        assert abs(inside - 0.95) < 0.02, name


def test_what_the_data_do_not_bound_is_unbounded() -> None:
    assert fc.fit_rounds([1, 2], [20.0, 11.0]).theta_interval == (-math.inf, math.inf)
    draw = np.random.default_rng(7)
    noisy = fc.fit_rounds([8, 9, 10, 11], np.array([30.0, 29.0, 31.0, 28.0]) + draw.normal(0, 0.1, 4))
    assert noisy.theta_interval == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("n", "rounds", "words"),
    [
        ([1, 2, 3], [1.0, 2.0], r"n has shape \(3,\) and rounds has shape \(2,\)"),
        ([4, 4, 4], [1.0, 2.0, 3.0], "at least two different values of n"),
        ([0, 2], [3.0, 2.0], r"n\[0\] is 0.0"),
        ([1, 2], [math.nan, 2.0], r"rounds\[0\] is nan"),
        ([1, 2, 3], [1.0, 2.0, 3.0], "more devices needed more rounds"),
    ],
)
def test_bad_observations_are_named(n: list[float], rounds: list[float], words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        fc.fit_rounds(n, rounds)


def test_bad_settings_are_named() -> None:
    with pytest.raises(fc.InputError, match=r"predicts no rounds for n = 28; give a theta above -0.0357"):
        fc.rounds_needed([4, 28], 103.783, -0.0367)
    with pytest.raises(fc.InputError, match="beta is 0"):
        fc.rounds_needed(4, 0.0, 0.1)
    with pytest.raises(fc.InputError, match="give numbers of devices of at least 1"):
        fc.rounds_needed([0, 1], 1.0, 0.1)
    with pytest.raises(fc.InputError, match="confidence is 2"):
        fc.fit_rounds([1, 2], [2.0, 1.0], confidence=2.0)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30, 101])
@pytest.mark.parametrize("probability", [0.5, 0.9, 0.975, 0.9995])
def test_student_t_quantile_equals_scipys(probability: float, freedom: int) -> None:
    assert student_t_quantile(probability, freedom) == pytest.approx(
        stats.t.ppf(probability, freedom), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize("radius_m", [600.0, 1000.0])
def test_proposition_1_holds_by_monte_carlo(radius_m: float) -> None:
    cell, trials = fc.Cell(radius_m=radius_m), 2000
    devices = fc.Devices(20)
    mean_upload_s = fc.mean_upload_s(cell)
    world = fc.World(cell, devices)
    drawn = [world.conditions(seed=1, round_index=r) for r in range(trials)]
    for n in (1, 2, 5, 10, 20):
        c = np.array([conditions.upload_s[:n] for conditions in drawn])
        t = np.array([conditions.compute_s[:n] for conditions in drawn])
        round_s = np.asarray(fc.allocate(c, t).round_s)
        mean, error = round_s.mean(), round_s.std() / np.sqrt(trials)
        bounds = fc.round_time_bounds(n, mean_upload_s=mean_upload_s)
        assert bounds.lower_s - 4 * error <= mean <= bounds.upper_s + 4 * error
        assert bounds.upper_s <= bounds.printed_upper_s
        if n == 1:  # all three are the mean itself
            assert abs(mean - bounds.lower_s) < 4 * error
    wide = fc.round_time_bounds([5, 20], mean_upload_s=mean_upload_s)
    assert (wide.printed_upper_s > 1.1 * wide.upper_s).all()


def test_bounds_are_of_the_papers_cell_by_default() -> None:
    given = fc.round_time_bounds(7, mean_upload_s=fc.mean_upload_s(fc.Cell()))
    assert fc.round_time_bounds(7).upper_s == given.upper_s


def test_bounds_by_hand() -> None:
    bounds = fc.round_time_bounds([1, 2], mean_upload_s=0.5)
    np.testing.assert_allclose(bounds.lower_s, [6.0 + 0.75 + 0.5, 6.0 + 0.375 + 1.0])
    np.testing.assert_allclose(bounds.upper_s, [7.25, 6.0 + 0.75 * 1.5 + 1.0])
    np.testing.assert_allclose(bounds.printed_upper_s, [7.25, 6.0 + 2 * 0.75 * 1.5 + 1.0])


@pytest.mark.parametrize(
    ("n", "more", "words"),
    [
        (0, {}, "n is 0; give whole numbers"),
        (2.5, {}, "n is 2.5"),
        (2, {"mean_upload_s": math.nan}, "mean_upload_s is nan"),
        (2, {"samples": 0.0}, "samples is 0.0"),
        (2, {"seconds_per_sample": -1.0}, "seconds_per_sample is -1.0"),
    ],
)
def test_bad_bounds_are_named(n: float, more: dict[str, float], words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        fc.round_time_bounds(n, **{"mean_upload_s": 1.0, **more})


FIT = fc.fit_rounds([2, 4, 8, 16], [52, 27, 15, 9])
WHOLE = ("beta", "theta", "beta_interval", "theta_interval", "residual_rounds")


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy(FIT),
        copy.deepcopy(FIT),
        FIT._replace(),
        *(pickle.loads(pickle.dumps(FIT, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
    ],
)
def test_a_copied_fit_is_whole(copied: fc.RoundsFit) -> None:
    assert type(copied) is type(FIT)
    assert [getattr(copied, name) for name in WHOLE] == [getattr(FIT, name) for name in WHOLE]


def test_a_changed_fit_keeps_the_rest() -> None:
    changed = FIT._replace(theta=0.5, beta_interval=(1.0, 2.0))
    assert changed == (FIT.beta, 0.5)
    assert changed.beta_interval == (1.0, 2.0)
    assert (changed.theta_interval, changed.residual_rounds) == (FIT.theta_interval, FIT.residual_rounds)
    assert FIT.beta_interval != (1.0, 2.0)
    with pytest.raises(TypeError, match="gamma"):
        FIT._replace(gamma=1.0)


def test_a_fit_is_a_pair() -> None:
    beta, theta = FIT
    assert FIT == (beta, theta) == (FIT[0], FIT[1]) == fc.RoundsModel(beta, theta)
    assert len(FIT) == 2
    assert repr(FIT).startswith(f"RoundsFit(beta={beta!r}, theta={theta!r}, beta_interval=(")
    model = copy.deepcopy(fc.TABLE_I["L=2"])
    assert pickle.loads(pickle.dumps(model)) == model == (103.783, -0.0367)


def test_table_i_is_the_papers() -> None:
    assert {name: tuple(model) for name, model in fc.TABLE_I.items()} == {
        "L=1": (123.127, -0.0448),
        "L=2": (103.783, -0.0367),
        "L=5": (89.154, 0.00934),
        "L=8": (63.919, 0.139),
        "iid": (27.773, 0.941),
    }
