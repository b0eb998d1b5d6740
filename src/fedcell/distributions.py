"""The distributions that intervals and tests need: Student's t, chi-square, the range of normal values.

SciPy stays out of the base install.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray


def _student_t_cdf(t: float, freedom: int) -> float:
    """P(X <= t), by the finite sums that hold for whole degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cos2 = math.cos(angle) ** 2
    odd = freedom % 2 == 1
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for j in range(1 if odd else 0, freedom - 1, 2):
        total += term
        term *= cos2 * (j + 1) / (j + 2)
    inner = 2.0 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return 0.5 + 0.5 * inner


def student_t_p(mean: float, half: float, n: int) -> float:
    """Return the two-sided p-value of a mean of n values whose 95 % interval is mean - half to mean + half."""
    t = abs(mean) / half * student_t_quantile(0.975, n - 1)
    return max(0.0, 2.0 * (1.0 - _student_t_cdf(t, n - 1)))


@cache
def student_t_quantile(probability: float, freedom: int) -> float:
    """Return q with P(X <= q) = probability for Student's t with whole ``freedom`` >= 1, for probability >= 0.5."""
    low, high = 0.0, 1.0
    while _student_t_cdf(high, freedom) < probability:
        high *= 2.0
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if _student_t_cdf(middle, freedom) < probability else (low, middle)
    return 0.5 * (low + high)


def chi_square_p(x: float, freedom: int) -> float:
    """Return P(X > x) for the chi-square distribution with whole ``freedom`` >= 1.

    By the finite sums of Abramowitz and Stegun 26.4.4 and 26.4.5.

    Args:
        x: the value of the statistic, at least 0.
        freedom: degrees of freedom.

    Example:
        >>> from fedcell.distributions import chi_square_p
        >>> round(chi_square_p(3.841, 1), 4), round(chi_square_p(9.488, 4), 4)
        (0.05, 0.05)
    """
    half, odd = 0.5 * x, freedom % 2
    term = math.sqrt(half / math.pi) * 2.0 if odd else 1.0  # (x/2)^j / Gamma(j + 1), of whole or of half j
    total = 0.0
    for j in range(freedom // 2):
        total += term
        term *= half / (j + 1 + 0.5 * odd)
    return min(1.0, (math.erfc(math.sqrt(half)) if odd else 0.0) + math.exp(-half) * total)


@cache
def normal_range_quantile(probability: float, count: int) -> float:
    """Return q with P(largest - smallest <= q) = probability, of ``count`` independent standard normal values.

    It is the studentised range with infinite degrees of freedom. With z the largest value,
    P = count x the integral of phi(z) (Phi(z) - Phi(z - q))^(count - 1) dz; the trapezoidal rule is all but exact for
    a smooth function that vanishes at both ends.

    Args:
        probability: between 0 and 1.
        count: how many values, at least 2.

    Example:
        >>> from fedcell.distributions import normal_range_quantile
        >>> [round(normal_range_quantile(0.95, count), 3) for count in (2, 3, 10)]
        [2.772, 3.314, 4.474]
    """
    z = np.linspace(-9.0, 9.0, 721)
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    below = _normal_cdfs(z)

    def chance(q: float) -> float:
        return float(count * (z[1] - z[0]) * (density * (below - _normal_cdfs(z - q)) ** (count - 1)).sum())

    low, high = 0.0, 18.0
    while high - low > 1e-10:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if chance(middle) < probability else (low, middle)
    return 0.5 * (low + high)


def normal_cdf(z: float) -> float:
    """Return P(X <= z) for the standard normal distribution."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def _normal_cdfs(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([normal_cdf(value) for value in z])
