"""Separate random streams from one seed.

Every draw of a run comes from ``stream(seed, name, *key)``: a generator of its own for each purpose (placement,
fading, compute time, partition, ...) and key (the round, mostly). Hence policies that run with one seed meet the very
same world (common random numbers), a draw added to one purpose leaves the others as they were, and a run can be taken
up at any round without replaying the rounds before it.
"""

from collections.abc import Callable
from zlib import crc32

import numpy as np

from fedcell.errors import InputError


def stream(seed: int, name: str, *key: int) -> np.random.Generator:
    """Return the generator of one purpose.

    Args:
        seed: the run's seed, a nonnegative integer.
        name: the purpose, such as ``"placement"``.
        key: nonnegative integers that tell the purpose's draws apart, such as the round.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed is {seed!r}; give a nonnegative integer")
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=(crc32(name.encode()), *key)))


def keyed(seed: int, name: str, *key: int) -> Callable[[int], np.random.Generator]:
    """Return a function from a number (a device's, say) to a generator of its own, cheaper than so many streams."""
    philox_key = np.random.SeedSequence(int(seed), spawn_key=(crc32(name.encode()), *key)).generate_state(2, np.uint64)
    return lambda number: np.random.Generator(np.random.Philox(key=philox_key, counter=[0, 0, 0, number]))
