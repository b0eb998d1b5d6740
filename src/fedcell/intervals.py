"""Student's t, all that confidence intervals of means and fits need (SciPy stays out of the base install)."""

import math


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
    """Return the two-sided p-value of a mean of n values whose 95 % interval is mean - half to mean + half.

    Args:
        mean: the mean.
        half: half its 95 % interval, above 0.
        n: how many values it is of, at least 2.
    """
    t = abs(mean) / half * student_t_quantile(0.975, n - 1)
    return max(0.0, 2.0 * (1.0 - _student_t_cdf(t, n - 1)))


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
