"""Gaussian random fields over the plane: fixed functions of the place, for shadowing and for what is in sight."""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

_WAVES = 256
_BLOCK = 128  # positions at a time: a block of waves stays in the cache


def gaussian_field(
    positions_m: NDArray[np.float64], distance_m: float, rng: np.random.Generator, sigma: float = 1.0
) -> NDArray[np.float64]:
    """A stationary Gaussian field with mean 0 and the correlation exp(-|x - y| / d) between two places.

    It is built from random Fourier features: S(x) = sigma sqrt(2/K) sum_k cos(w_k . x + phi_k), with phi uniform and w
    from the spectral density of the correlation, which in the plane is a bivariate Cauchy: w = z / (|g| d), z and g
    standard normal. Over the generator's draws the correlation is exact; the marginal is normal except for an excess
    kurtosis of -3/(2K), K = 256.

    Args:
        positions_m: (M, 2) x, in metres.
        distance_m: d, over which the correlation falls to 1/e, in metres.
        rng: the generator that the field is drawn from; one in the same state gives the same field.
        sigma: standard deviation.

    Returns:
        (M,) the field at the places.

    Example:
        >>> import numpy as np
        >>> from fedcell.rng import stream
        >>> from fedcell.world.field import gaussian_field
        >>> places_m = np.array([[0.0, 0.0], [1.0, 0.0], [500.0, 0.0]])  # the first two are neighbours
        >>> gaussian_field(places_m, 50.0, stream(0, "shadowing")).round(2).tolist()
        [-0.87, -0.77, 0.17]
    """
    normal = rng.standard_normal((_WAVES, 3))
    wave_x, wave_y = (normal[:, :2] / (np.abs(normal[:, 2:]) * distance_m)).T
    phase = rng.uniform(0, 2 * np.pi, _WAVES)
    total = np.empty(len(positions_m))
    for start in range(0, len(positions_m), _BLOCK):
        x, y = positions_m[start : start + _BLOCK, :, np.newaxis].swapaxes(0, 1)
        total[start : start + _BLOCK] = np.cos(x * wave_x + y * wave_y + phase).sum(axis=1)
    return sigma * sqrt(2 / _WAVES) * total
