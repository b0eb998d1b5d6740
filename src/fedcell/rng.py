"""Separate random streams from one seed.

Every draw of a run comes from ``stream(seed, name, *key)``: a separate generator for each purpose (placement, fading,
compute time, partition, ...) and key (usually the round). Hence policies that run with the same seed see exactly the
same world (common random numbers), a new draw for one purpose does not change the others, and a run can resume at any
round without replaying the rounds before it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence
from numpy.typing import NDArray

from fedcell.errors import InputError

BLOCK = 64
"""The states of so many streams in a row, such as those of the rounds of a run, are computed together."""
FIRST_BLOCK = 8
"""But not those of the first few, since many runs are short."""


def stream(seed: int | np.integer[Any], name: str, *key: int) -> np.random.Generator:
    """Return the random generator for one purpose.

    Args:
        seed: the run's random seed, a nonnegative integer.
        name: the purpose, such as ``"placement"``.
        key: nonnegative integers that select one of the purpose's streams, such as the round.

    Returns:
        A new generator, always the same for the same arguments.

    Example:
        >>> from fedcell.rng import stream
        >>> bool(stream(1, "fading", 7).random() == stream(1, "fading", 7).random())
        True
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed is {seed!r}; give a nonnegative integer")
    words = _words(int(seed), name, key)
    if words is None:
        return np.random.default_rng(_sequence(int(seed), name, key))
    known: Any = _Words(int(seed), name, key, words)  # NumPy takes any such object
    return np.random.Generator(np.random.PCG64(known))


def keyed(seed: int, name: str, *key: int) -> Callable[[int], np.random.Generator]:
    """Return a function from a number, such as a device's, to its generator; cheaper than one stream for each.

    Args:
        seed: the run's random seed, a nonnegative integer.
        name: the purpose, such as ``"batches"``.
        key: nonnegative integers that select one of the purpose's streams, such as the round.

    Returns:
        A function that returns, for a nonnegative integer, a generator at its start. It is the same one each time, so
        draw from it before asking for the next.

    Example:
        >>> from fedcell.rng import keyed
        >>> of_device = keyed(1, "batches", 7)
        >>> of_device(0).permutation(5).tolist() == of_device(0).permutation(5).tolist()
        True
    """
    words = _words(int(seed), name, key)
    philox_key = _sequence(int(seed), name, key).generate_state(2, np.uint64) if words is None else words[:2]
    philox = np.random.Philox(key=philox_key)
    generator, counter = np.random.Generator(philox), np.zeros(4, np.uint64)
    state: Any = {"bit_generator": "Philox", "state": {"counter": counter, "key": philox_key}, **_UNUSED}

    def at(number: int) -> np.random.Generator:
        counter[3] = number
        philox.state = state
        return generator

    return at


_UNUSED = {"buffer": np.zeros(4, np.uint64), "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}
"""The rest of the state of a Philox that was not drawn from."""


def _words(seed: int, name: str, key: tuple[int, ...]) -> NDArray[np.uint64] | None:
    """(4,) what the SeedSequence of a stream gives PCG64, where that is computed for many streams at once."""
    if len(key) != 1 or not FIRST_BLOCK <= key[0] < 2**32:
        return None
    block, place = divmod(int(key[0]), BLOCK)
    words: NDArray[np.uint64] = _states(seed, crc32(name.encode()), block)[place]
    return words


def _sequence(seed: int, name: str, key: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(crc32(name.encode()), *key))


class _Words(ISpawnableSeedSequence):
    """What a SeedSequence gives PCG64, known already."""

    def __init__(self, seed: int, name: str, key: tuple[int, ...], words: NDArray[np.uint64]) -> None:
        self._of, self._words = (seed, name, key), words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        """Return the words that SeedSequence would."""
        if n_words == self._words.size and dtype is np.uint64:
            return self._words
        return _sequence(*self._of).generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> Any:
        """Return the children that SeedSequence would have, the same each time."""
        return _sequence(*self._of).spawn(n_children)


_INIT_A, _MULT_A, _INIT_B, _MULT_B = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
_MIX_L, _MIX_R = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_POOL, _STATE, _MASK = 4, 8, 0xFFFFFFFF


@lru_cache(maxsize=1024)  # 2 KB each; 64 runs in lockstep have several purposes each
def _states(seed: int, name: int, block: int) -> NDArray[np.uint64]:
    """Return (BLOCK, 4) what ``SeedSequence(seed, spawn_key=(name, r)).generate_state(4, uint64)`` gives for a block.

    NumPy's algorithm (M. O'Neill's seed_seq_fe with a pool of 4 words), for all r of the block at once.
    """
    words = [seed >> at & _MASK for at in range(0, max(seed.bit_length(), 1), 32)]
    words += [0] * (_POOL - len(words))
    rounds = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.uint32)
    entropy = [np.full(BLOCK, word, np.uint32) for word in (*words, name)] + [rounds]
    constant = _INIT_A

    def hashed(value: NDArray[np.uint32]) -> NDArray[np.uint32]:
        nonlocal constant
        value = value ^ np.uint32(constant)
        constant = constant * _MULT_A & _MASK
        value = value * np.uint32(constant)
        found: NDArray[np.uint32] = value ^ value >> np.uint32(16)
        return found

    def mixed(x: NDArray[np.uint32], y: NDArray[np.uint32]) -> NDArray[np.uint32]:
        value = _MIX_L * x - _MIX_R * y
        found: NDArray[np.uint32] = value ^ value >> np.uint32(16)
        return found

    pool = [hashed(word) for word in entropy[:_POOL]]
    for source in range(_POOL):
        for place in range(_POOL):
            if place != source:
                pool[place] = mixed(pool[place], hashed(pool[source]))
    for word in entropy[_POOL:]:
        for place in range(_POOL):
            pool[place] = mixed(pool[place], hashed(word))
    state, constant = np.empty((BLOCK, _STATE), "<u4"), _INIT_B
    for place in range(_STATE):
        value = pool[place % _POOL] ^ np.uint32(constant)
        constant = constant * _MULT_B & _MASK
        value = value * np.uint32(constant)
        state[:, place] = value ^ value >> np.uint32(16)
    return state.view("<u8").astype(np.uint64)
