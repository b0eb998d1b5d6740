"""Link laws, slow and obvious: the time of an upload with a share, and the best round of a set, from that alone."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import fedcell as fc

Times = Sequence[float]


def upload_seconds(law: object, c: float, snr: float, share: float) -> float:
    """How long an upload takes with a share, as docs/radio.md writes it; c is upload_s of the view."""
    match law:
        case fc.Power():
            return c * math.log2(1 + snr) / (share * math.log2(1 + snr / share))
        case fc.Dedicated():
            return c
        case fc.Ingress(pipe_s=float(pipe_s)):
            return max(c, pipe_s / share)
        case _:
            return c / share


def splits(count: int, n: int) -> Iterator[tuple[int, ...]]:
    """All ways to deal at most ``count`` blocks to n devices, at least one each."""
    if n == 0:
        yield ()
        return
    for first in range(1, count - n + 2):
        for rest in splits(count - first, n - 1):
            yield (first, *rest)


def least_share(law: object, c: float, snr: float, within_s: float) -> float:
    """The least share with which an upload takes at most so long, by bisection; infinite if none does."""
    high = 1.0
    while upload_seconds(law, c, snr, high) > within_s:
        high *= 2.0
        if high > 1e9:
            return math.inf
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (low, middle) if upload_seconds(law, c, snr, middle) <= within_s else (middle, high)
    return high


def round_seconds(law: object, c: Times, t: Times, snr: Times) -> float:
    """t*(S): of all splits for whole blocks, else the least T by bisection."""
    if isinstance(law, fc.Dedicated):
        return max(a + b for a, b in zip(c, t, strict=True))
    if isinstance(law, fc.Blocks):
        ends = (
            max(t[i] + upload_seconds(law, c[i], snr[i], k / law.count) for i, k in enumerate(split))
            for split in splits(law.count, len(c))
        )
        return min(ends, default=math.inf)
    low, high = max(t), max(t) + sum(c) + 1.0
    if isinstance(law, fc.Ingress):
        assert law.pipe_s is not None
        high += len(c) * law.pipe_s

    def possible(T: float) -> bool:
        return sum(least_share(law, c[i], snr[i], T - t[i]) if t[i] < T else math.inf for i in range(len(c))) <= 1.0

    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if possible(middle) else (middle, high)
    return high


def best_of_all(
    law: object, c: Times, t: Times, snr: Times, theta: float, forced: Sequence[int] = (), most: int | None = None
) -> float:
    """The least (theta + 1/n) t*(S) of all sets that have the forced devices."""
    M = len(c)
    least = math.inf
    for n in range(max(1, len(forced)), (M if most is None else most) + 1):
        for S in combinations(range(M), n):
            if set(forced) <= set(S):
                T = round_seconds(law, [c[i] for i in S], [t[i] for i in S], [snr[i] for i in S])
                least = min(least, (theta + 1.0 / n) * T)
    return least
