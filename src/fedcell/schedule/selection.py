"""Compiled: the n-th largest of many numbers, which NumPy has, but which would take eight times as long to compile."""

from fedcell.runtime import cached_njit
from fedcell.types import Floats


@cached_njit(nogil=True)
def parted(a: Floats, low: int, high: int) -> tuple[int, int, float]:  # pragma: no cover - compiled
    """Part a[low..high] around a pivot, Hoare's way: up to j none is larger, from i on none smaller, between all equal.

    Returns i, j and the pivot; i > low and j < high.
    """
    first, middle, last = a[low], a[(low + high) // 2], a[high]
    pivot = max(min(first, middle), min(max(first, middle), last))
    i, j = low, high
    while i <= j:
        while a[i] < pivot:
            i += 1
        while a[j] > pivot:
            j -= 1
        if i <= j:
            a[i], a[j] = a[j], a[i]
            i += 1
            j -= 1
    return i, j, pivot


@cached_njit(nogil=True)
def nth_largest(values: Floats, n: int) -> float:  # pragma: no cover - compiled
    """Return the n-th largest, as np.partition would find it, by Hoare's FIND."""
    a, k = values.copy(), values.size - n
    low, high = 0, a.size - 1
    while low < high:
        i, j, _ = parted(a, low, high)
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:  # between j and i all are the pivot
            break
    nth: float = a[k]
    return nth
