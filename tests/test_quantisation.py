"""Rounded uploads: their sizes, and that rounding is unbiased and as noisy as the formulas say."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fedcell.errors import InputError
from fedcell.quantisation import (
    FEWEST_BITS,
    MOST_BITS,
    draws,
    key_words,
    levels_of,
    noise,
    pack,
    restore,
    round_update,
    sums_of,
    unpack,
    upload_bits,
)
from twins.quantisation import expected_noise

TENSORS = (300, 5, 40)


def an_update(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    sizes = rng.laplace(size=sum(TENSORS)) * np.repeat([1.0, 1e-3, 30.0], TENSORS)
    return sizes.astype(np.float32)


def test_sizes_are_a_header_a_scale_for_each_tensor_and_the_levels() -> None:
    assert upload_bits(345, 3, [2, 16, 32]).tolist() == [64 + 96 + 690, 64 + 96 + 16 * 345, 32 * 345]
    assert levels_of([2, 3, 8]).tolist() == [1, 3, 127]


@pytest.mark.parametrize("bits", [2, 3, 8, 16])
def test_an_entry_becomes_one_of_its_two_neighbours_and_its_mean_is_its_own(bits: int) -> None:
    update, draws_of = an_update(), 4000
    found = [round_update(update, TENSORS, bits, (3, number)) for number in range(draws_of)]
    restored = np.array([restore(levels, scales, TENSORS, bits) for levels, scales in found], np.float64)
    ends = np.cumsum((0, *TENSORS))
    for first, last in pairwise(ends):
        u, some = update[first:last].astype(np.float64), restored[:, first:last]
        step = np.abs(u).max() / levels_of(bits)
        assert np.abs(some - u).max() <= step * (1 + 1e-6 * levels_of(bits))
        below = np.floor(u / step)
        near = np.rint(some / step) - below
        assert ((near == 0) | (near == 1) | (np.abs(u / step - np.rint(u / step)) < 0.01)).all()
        f = u / step - below
        spread = step * np.sqrt(f * (1 - f) / draws_of)
        assert (np.abs(some.mean(axis=0) - u) <= 5 * spread + 1e-5 * step).all()
    squared = ((restored - update) ** 2).sum(axis=1)
    assert squared.mean() == pytest.approx(
        expected_noise(update, TENSORS, bits), rel=5 * squared.std() / squared.mean() / 60
    )


def test_the_noise_from_three_sums_is_exact_with_2_bits_and_near_with_more() -> None:
    for seed in range(5):
        update = an_update(seed)
        sums = sums_of(update, TENSORS)
        assert noise(*sums, 2) == pytest.approx(expected_noise(update, TENSORS, 2), rel=1e-6)
        for bits, factor in ((3, 1.6), (4, 1.3), (8, 1.25), (16, 1.25)):
            exact = expected_noise(update, TENSORS, bits)
            assert exact / factor <= noise(*sums, bits) <= exact * factor
    assert noise(*sums, [32, 2]).tolist()[0] == 0.0
    assert sums_of(update, ()) == sums_of(update, (len(update),))


def test_random_numbers_are_spread_evenly_and_independent_of_entry_key_and_word() -> None:
    some = np.array([draws(20_000, (7, number, 3)) for number in range(50)])
    assert some.min() >= 0.0
    assert some.max() < 1.0
    counts = np.histogram(some, bins=100, range=(0.0, 1.0))[0]
    assert ((counts - some.size / 100) ** 2).sum() / (some.size / 100) < 160  # chi-square with 99 degrees of freedom
    rows = np.corrcoef(some)[np.triu_indices(50, 1)]
    assert np.abs(rows).max() < 5 / np.sqrt(20_000)
    for shift in (1, 2, 64, 784):
        assert abs(np.corrcoef(some[:, shift:].ravel(), some[:, :-shift].ravel())[0, 1]) < 5 / np.sqrt(some.size)
    assert np.array_equal(some * 2**24, np.floor(some * 2**24))
    a, b = key_words((7, 0, 3))
    assert (a, b) == (726227638, 920331527)  # never to change: runs go on elsewhere
    assert [float(drawn) for drawn in draws(200, (7, 0, 3))] == [drawn_plainly(i, a, b) for i in range(200)]


def drawn_plainly(i: int, a: int, b: int) -> float:
    """The hash in whole numbers of any size."""
    x = (i * b + a) % 2**32
    x = ((x ^ (x >> 16)) * 0x7FEB352D) % 2**32
    x = ((x ^ (x >> 15)) * 0x846CA68B) % 2**32
    return ((x ^ (x >> 16)) >> 8) / 2**24


def test_zeros_tiny_tensors_and_what_is_not_finite() -> None:
    update = np.array([0, 0, 1e-31, -1e-32, np.inf, 1, np.nan, 2, 3], np.float32)
    levels, scales = round_update(update, (2, 2, 2, 2, 1), 4, (0,))
    np.testing.assert_array_equal(scales, np.array([0, 0, np.nan, np.nan, 3], np.float32))
    assert levels.tolist() == [0] * 8 + [7]
    np.testing.assert_array_equal(
        restore(levels, scales, (2, 2, 2, 2, 1), 4), np.array([0, 0, 0, 0, *[np.nan] * 4, 3], np.float32)
    )


@pytest.mark.parametrize("bits", range(FEWEST_BITS, MOST_BITS + 1))
@pytest.mark.parametrize("tensors", [(), (0,), (1,), (7, 3), (1 << 16,), ((1 << 16) + 1, 5)])
def test_what_is_packed_has_the_size_that_is_said_and_is_unpacked(bits: int, tensors: tuple[int, ...]) -> None:
    rng, most = np.random.default_rng(bits), int(levels_of(bits))
    levels = rng.integers(-most, most + 1, sum(tensors)).astype(np.int16)
    scales = rng.random(len(tensors)).astype(np.float32)
    data = pack(levels, scales, bits)
    assert len(data) == np.ceil(upload_bits(sum(tensors), len(tensors), bits) / 8)
    found, of, few = unpack(data, tensors)
    np.testing.assert_array_equal(found, levels)
    np.testing.assert_array_equal(of, scales)
    assert few == bits


@pytest.mark.parametrize("bits", [2, 5, 16])
def test_whatever_is_unpacked_would_be_packed_so(bits: int) -> None:
    """Bytes from anybody are refused with one sentence, or are a rounded update to the last bit."""
    rng, tensors, accepted = np.random.default_rng(0), (40, 61), 0
    good = pack(np.zeros(101, np.int16), np.ones(2, np.float32), bits)
    for _ in range(500):
        data = bytearray(good)
        for place in rng.integers(len(data), size=rng.integers(1, 4)):
            data[place] = rng.integers(256)
        data = data[: rng.integers(len(data))] if rng.random() < 0.2 else data
        try:
            levels, scales, few = unpack(bytes(data), tensors)
        except InputError:
            continue
        accepted += 1
        assert pack(levels, scales, few) == bytes(data)
    assert 0 < accepted < 500
