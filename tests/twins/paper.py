"""The paper's two algorithms, line by line, and brute force."""

import math
from collections.abc import Sequence
from itertools import combinations

Times = Sequence[float]


def algorithm_1(upload_s: Times, compute_s: Times, epsilon: float = 1e-13) -> float:
    """Algorithm 1: binary search for t*(S), with the erratum mended: the bound takes the T before it is moved."""
    t_low = max(compute_s)
    t_up = t_low + 2.0 * sum(upload_s)
    T = t_up
    while True:
        s = 0.0
        for c, t in zip(upload_s, compute_s, strict=True):
            s += c / (T - t) if t < T else math.inf
        if 1.0 - epsilon <= s <= 1.0:
            return T
        before = T
        if s < 1.0 - epsilon:
            T, t_up = (T + t_low) / 2.0, T
        else:
            T, t_low = (T + t_up) / 2.0, T
        if before == T:  # the floats between the bounds are used up
            return T


def algorithm_2(upload_s: Times, compute_s: Times, theta: float, epsilon: float = 1e-13) -> list[int]:
    """Algorithm 2: greedy scheduling, with the objective of the empty set taken as infinity."""

    def round_s(devices: list[int]) -> float:
        return algorithm_1([upload_s[i] for i in devices], [compute_s[i] for i in devices], epsilon)

    available = list(range(len(upload_s)))
    scheduled: list[int] = []
    objective = math.inf
    while available:
        T, x = min((round_s([*scheduled, k]), k) for k in available)
        with_x = (theta + 1.0 / (len(scheduled) + 1)) * T
        if with_x > objective:
            break
        available.remove(x)
        scheduled.append(x)
        objective = with_x
    return scheduled


def all_subsets(
    upload_s: Times, compute_s: Times, theta: float, forced: Sequence[int] = (), most: int | None = None
) -> float:
    """The least objective (theta + 1/n) t*(S) over every set S that holds the forced devices."""
    M = len(upload_s)
    best = math.inf
    for n in range(max(1, len(forced)), (M if most is None else most) + 1):
        for devices in combinations(range(M), n):
            if set(forced) <= set(devices):
                T = algorithm_1([upload_s[i] for i in devices], [compute_s[i] for i in devices])
                best = min(best, (theta + 1.0 / n) * T)
    return best
