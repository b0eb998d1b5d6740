"""A device's profile: a short vector that says what its data is like, and noise that hides it.

A profile has an L1 norm of at most 1. So two profiles differ by at most 2 in L1, whatever the data of the devices, and
Laplace noise of scale 2 / epsilon in every entry makes a report epsilon-differentially private for the device as a
whole (local differential privacy: nobody needs to be trusted, not even the server). docs/diverse.md says what a profile
without noise reveals.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcell.errors import InputError

REPORT_SAMPLES = 100
"""On how many of its samples a device trains for the report of its gradient."""


def normalised(change: ArrayLike) -> NDArray[np.float64]:
    """Return vectors with an L1 norm of 1; a vector of zeros stays one.

    Args:
        change: (..., d), such as the change of the output layer's biases by a little training.

    Returns:
        (..., d) float64.

    Example:
        >>> from fedcell.learn.profile import normalised
        >>> normalised([3.0, -1.0]).tolist()
        [0.75, -0.25]
    """
    vector = np.asarray(change, dtype=np.float64)
    norm = np.abs(vector).sum(axis=-1, keepdims=True)
    unit: NDArray[np.float64] = vector / np.where(norm > 0.0, norm, 1.0)
    return unit


def private(profile: ArrayLike, epsilon: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return profiles with the noise that makes each of them epsilon-differentially private.

    Args:
        profile: (..., d), each of an L1 norm of at most 1, as `normalised` and label shares are.
        epsilon: above 0; the smaller, the more private, and the less the profile tells.
        rng: the source of the noise; it must be secret where the profile is.

    Returns:
        (..., d) float64.

    Example:
        >>> import numpy as np
        >>> from fedcell.learn.profile import private
        >>> private([0.75, -0.25], epsilon=8.0, rng=np.random.default_rng(0)).round(2).tolist()
        [0.83, -0.4]
    """
    clean = np.asarray(profile, dtype=np.float64)
    if (np.abs(clean).sum(axis=-1) > 1.0 + 1e-9).any():
        raise InputError("a profile has an L1 norm above 1, for which the noise is too small; normalise it first")
    return clean + rng.laplace(0.0, _scale(epsilon), clean.shape)


def noise_of(epsilon: float | None, d: int) -> float:
    """Return the expected squared norm of the noise that `private` adds to a profile of d entries; 0 without epsilon.

    Args:
        epsilon: as given to `private`, or None for none.
        d: the length of a profile.

    Example:
        >>> from fedcell.learn.profile import noise_of
        >>> noise_of(8.0, 10), noise_of(None, 10)
        (1.25, 0.0)
    """
    return 0.0 if epsilon is None else 2.0 * d * _scale(epsilon) ** 2


def _scale(epsilon: float) -> float:
    if not (np.isfinite(epsilon) and epsilon > 0.0):
        raise InputError(f"epsilon is {epsilon!r}; give a number above 0")
    return 2.0 / epsilon
