"""Separate random streams from one seed.

Every draw of a run comes from ``stream(seed, name, *key)``: a separate generator for each purpose (placement, fading,
compute time, partition, ...) and key (usually the round). Hence policies that run with the same seed see exactly the
same world (common random numbers), a new draw for one purpose does not change the others, and a run can resume at any
round without replaying the rounds before it.
"""

from collections.abc import Callable
from zlib import crc32

import numpy as np

from fedcell.errors import InputError


def stream(seed: int, name: str, *key: int) -> np.random.Generator:
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
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=(crc32(name.encode()), *key)))


def keyed(seed: int, name: str, *key: int) -> Callable[[int], np.random.Generator]:
    """Return a function from a number, such as a device's, to its own generator; cheaper than one stream for each.

    Args:
        seed: the run's random seed, a nonnegative integer.
        name: the purpose, such as ``"batches"``.
        key: nonnegative integers that select one of the purpose's streams, such as the round.

    Returns:
        A function that returns, for a nonnegative integer, a new generator.

    Example:
        >>> from fedcell.rng import keyed
        >>> of_device = keyed(1, "batches", 7)
        >>> of_device(0).permutation(5).tolist() == of_device(0).permutation(5).tolist()
        True
    """
    philox_key = np.random.SeedSequence(int(seed), spawn_key=(crc32(name.encode()), *key)).generate_state(2, np.uint64)
    return lambda number: np.random.Generator(np.random.Philox(key=philox_key, counter=[0, 0, 0, number]))
