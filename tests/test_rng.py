import pickle
from zlib import crc32

import numpy as np
import pytest

import fedcell as fc
from fedcell.rng import BLOCK, keyed, stream


def slow(seed: int, name: str, *key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(crc32(name.encode()), *key))


@pytest.mark.parametrize("seed", [0, 1, 7, 2**32 - 1, 2**32, 2**64 + 5, 2**130, 2**190 + 3])
def test_streams_are_those_of_numpys_seed_sequences(seed: int) -> None:
    for key in [(), (0,), (7,), (8,), (9,), (63,), (64,), (1000,), (2**32 - 1,), (2**32,), (3, 4)]:
        ours, theirs = stream(seed, "fading", *key), np.random.default_rng(slow(seed, "fading", *key))
        assert ours.bit_generator.state == theirs.bit_generator.state


def test_all_streams_of_a_block_and_of_its_neighbours() -> None:
    for r in range(3 * BLOCK):
        expected = np.random.default_rng(slow(3, "compute", r)).bit_generator.state
        assert stream(3, "compute", r).bit_generator.state == expected


def test_a_numpy_seed() -> None:
    assert stream(np.int64(3), "policy", 40).random() == stream(3, "policy", 40).random()


def test_a_stream_has_the_children_of_its_seed_sequence() -> None:
    """A policy may spawn generators of its own."""
    [child] = stream(5, "policy", 30).spawn(1)
    [expected] = np.random.default_rng(slow(5, "policy", 30)).spawn(1)
    assert child.random() == expected.random()


def test_a_stream_can_be_pickled() -> None:
    rng = stream(5, "policy", 30)
    again = pickle.loads(pickle.dumps(rng))
    assert again.random() == rng.random()


def test_a_keyed_generator_starts_anew_for_each_number() -> None:
    key = slow(2, "batches", 9).generate_state(2, np.uint64)
    at = keyed(2, "batches", 9)
    for number in (0, 5, 0, 19, 5):
        expected = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, number]))
        rng = at(number)
        assert rng.permutation(7).tolist() == expected.permutation(7).tolist()
        assert rng.random() == expected.random()
        rng.integers(5, dtype=np.uint32)  # half of a word is left, which the next one must not get


@pytest.mark.parametrize("seed", [True, -1, 1.5, "1"])
def test_no_seed(seed: object) -> None:
    with pytest.raises(fc.InputError, match="give a nonnegative integer"):
        stream(seed, "fading", 20)  # type: ignore[arg-type]
