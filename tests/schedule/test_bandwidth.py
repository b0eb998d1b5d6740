import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

import fedcell as fc
from twins.paper import algorithm_1

Vector = list[float]
devices = st.lists(
    st.tuples(st.floats(1e-3, 1e3), st.floats(0.0, 1e3)),
    min_size=1,
    max_size=30,
)
magnitudes = st.floats(-120.0, 120.0).map(lambda exponent: 10.0**exponent)
wild_devices = st.lists(st.tuples(magnitudes, st.one_of(st.just(0.0), magnitudes)), min_size=1, max_size=8)


def check_solution(upload_s: Vector, compute_s: Vector) -> None:
    band = fc.allocate(upload_s, compute_s)
    c, t = np.array(upload_s), np.array(compute_s)
    assert abs(math.fsum(band.shares) - 1.0) <= 1e-12
    assert (band.shares > 0).all()
    np.testing.assert_allclose(t + c / band.shares, band.round_s, rtol=1e-9)


@given(devices)
def test_shares_sum_to_one_and_all_end_together(cell: list[tuple[float, float]]) -> None:
    upload_s, compute_s = map(list, zip(*cell, strict=True))
    check_solution(upload_s, compute_s)


@given(devices)
def test_equals_the_papers_algorithm_1(cell: list[tuple[float, float]]) -> None:
    upload_s, compute_s = map(list, zip(*cell, strict=True))
    band = fc.allocate(upload_s, compute_s)
    assert band.round_s == pytest.approx(algorithm_1(upload_s, compute_s), rel=1e-11)


@given(wild_devices)
def test_any_magnitude_is_solved_or_refused_with_a_reason(cell: list[tuple[float, float]]) -> None:
    upload_s, compute_s = map(list, zip(*cell, strict=True))
    try:
        check_solution(upload_s, compute_s)
    except fc.InputError as error:
        assert "too small for double precision" in str(error)  # noqa: PT017


def test_full_double_precision_against_exact_arithmetic() -> None:
    # Two devices with compute 0 and d: 1/x + 1/(x + d) = 1 has the root ((2 - d) + sqrt(d^2 + 4)) / 2.
    for d in (1e-12, 0.3, 1.0, 17.0, 1e6):
        exact = (2.0 - d + math.hypot(d, 2.0)) / 2.0 if d < 2 else 1.0 + 2.0 / (d + math.hypot(d, 2.0))
        assert fc.allocate([1.0, 1.0], [d, 0.0]).round_s == pytest.approx(d + exact, rel=4e-16)


def test_tiny_uploads_beside_long_training_keep_their_precision() -> None:
    band = fc.allocate([1e-12, 2e-12, 0.5], [1e6, 1e6, 0.0])
    assert band.shares.sum() == pytest.approx(1.0, abs=1e-15)
    # T - t cannot be had from T = 1e6 + 3e-12 in doubles; the shares still are the exact ones.
    np.testing.assert_allclose(band.shares, [(1 - 5e-7) / 3, (1 - 5e-7) * 2 / 3, 5e-7], rtol=1e-12)


@pytest.mark.parametrize(
    ("upload_s", "compute_s"),
    [
        ([1e-300] * 3, [0.0] * 3),
        ([1e300] * 3, [1e300, 0.0, 0.0]),
        ([1e-300, 1.0], [10.0, 0.0]),
        ([1e-300, 0.9, 0.9, 1e-3], [1e10, 1e10 - 1, 1e10 - 1, 0.0]),
        ([1e-9, 1 - 1e-15], [1.0, 0.0]),
        ([1.0], [5e-324]),
    ],
)
def test_extremes_are_solved(upload_s: Vector, compute_s: Vector) -> None:
    check_solution(upload_s, compute_s)


def test_against_brentq_for_a_large_set() -> None:
    rng = np.random.default_rng(0)
    c, t = rng.lognormal(size=5000), rng.uniform(0.0, 100.0, 5000)
    slack = brentq(lambda x: float((c / (x + t.max() - t)).sum()) - 1.0, 1e-9, c.sum(), xtol=1e-12, rtol=1e-14)
    assert fc.allocate(c, t).round_s == pytest.approx(t.max() + slack, rel=1e-12)


def test_a_million_devices_sum_to_one() -> None:
    rng = np.random.default_rng(1)
    c, t = rng.lognormal(size=1_000_000), rng.exponential(size=1_000_000)
    band = fc.allocate(c, t)
    assert abs(math.fsum(band.shares) - 1.0) <= 1e-12
    np.testing.assert_allclose(t + c / band.shares, band.round_s, rtol=1e-9)


def test_a_batch_equals_its_sets_one_by_one_with_and_without_a_mask() -> None:
    rng = np.random.default_rng(2)
    c, t = rng.lognormal(size=(3, 7, 11)), rng.uniform(0.0, 5.0, (3, 7, 11))
    used = rng.random((3, 7, 11)) < 0.6
    used[..., 0] = True
    whole, masked = fc.allocate(c, t), fc.allocate(c, t, where=used)
    assert isinstance(whole.round_s, np.ndarray)
    assert isinstance(masked.round_s, np.ndarray)
    assert whole.shares.shape == (3, 7, 11)
    assert whole.round_s.shape == (3, 7)
    for at in np.ndindex(3, 7):
        assert whole.round_s[at] == fc.allocate(c[at], t[at]).round_s
        mask = used[at]
        one = fc.allocate(c[at][mask], t[at][mask])
        assert masked.round_s[at] == pytest.approx(one.round_s, rel=1e-15)
        np.testing.assert_allclose(masked.shares[at][mask], one.shares, rtol=1e-14)
        assert (masked.shares[at][~mask] == 0.0).all()


def test_one_compute_vector_serves_a_batch() -> None:
    c = np.arange(1.0, 7.0).reshape(2, 3)
    t = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(fc.allocate(c, t).shares, fc.allocate(c, np.vstack([t, t])).shares)


def test_equal_shares_end_with_the_slowest_and_never_sooner() -> None:
    equal = fc.allocate([1.0, 3.0], [2.0, 2.0], sharing="equal")
    assert list(equal.shares) == [0.5, 0.5]
    assert equal.round_s == 8.0
    assert fc.allocate([1.0, 3.0], [2.0, 2.0]).round_s == 6.0
    masked = fc.allocate([[1.0, 3.0, 9.0]], [[2.0, 2.0, 2.0]], where=[[True, True, False]], sharing="equal")
    np.testing.assert_array_equal(masked.shares, [[0.5, 0.5, 0.0]])
    np.testing.assert_array_equal(masked.round_s, [8.0])


@pytest.mark.parametrize(
    ("upload_s", "compute_s", "words"),
    [
        ([], [], "no devices"),
        ([1.0, math.nan], [1.0, 1.0], r"upload_s\[1\] is nan; give a number"),
        ([1.0, 2.0], [1.0, math.nan], r"compute_s\[1\] is nan; give a number"),
        ([1.0, math.inf], [1.0, 1.0], r"upload_s\[1\] is inf: at a rate of zero the model never arrives"),
        ([1.0], [math.inf], r"compute_s\[0\] is inf; give a number of seconds between"),
        ([-1.0], [1.0], r"upload_s\[0\] is -1.0; time cannot be negative"),
        ([1.0], [-2.0], r"compute_s\[0\] is -2.0; time cannot be negative"),
        ([0.0], [1.0], r"upload_s\[0\] is 0.0; an upload takes some time"),
        ([5e-324], [1.0], r"upload_s\[0\] is 5e-324; give a number of seconds between 1e-300 and 1e\+300"),
        ([1e301], [1.0], r"upload_s\[0\] is 1e\+301; give"),
        ([1.0, 2.0], [1.0], r"upload_s has shape \(2,\) and compute_s has shape \(1,\)"),
        ([[1.0, 2.0], [3.0, -1.0]], [1.0, 2.0], r"upload_s\[1, 1\] is -1.0"),
        (["fast"], [1.0], "must be arrays of numbers"),
        ([1e-300, 1e300], [0.0, 0.0], "device 0 would get a share of 0, too small for double precision"),
    ],
)
def test_bad_input_is_named(upload_s: Vector, compute_s: Vector, words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        fc.allocate(upload_s, compute_s)


def test_bad_options_are_named() -> None:
    with pytest.raises(fc.InputError, match="sharing is 'fair'; write 'optimal' or 'equal'"):
        fc.allocate([1.0], [1.0], sharing="fair")  # type: ignore[arg-type]
    with pytest.raises(fc.InputError, match=r"where has shape \(1,\) and type bool; give booleans of shape \(2,\)"):
        fc.allocate([1.0, 2.0], [1.0, 1.0], where=[True])
    with pytest.raises(fc.InputError, match="where leaves no device in set 1"):
        fc.allocate([[1.0], [2.0]], [[1.0], [1.0]], where=[[True], [False]])
