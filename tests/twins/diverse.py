"""Diverse, slow and obvious: the objective as docs/diverse.md writes it, for all sets of devices at once."""

import numpy as np

import fedcell as fc


def draw_view(M: int, seed: int, *, unknown: float = 0.0, forced: int = 0, past: bool = False) -> fc.RoundView:
    """A random cell: devices with few or many labels, near and far, equally fast or not."""
    rng = np.random.default_rng(seed)
    profiles = rng.dirichlet(np.full(int(rng.integers(2, 8)), rng.choice([0.1, 0.3, 1.0])), M)
    profiles[rng.random(M) < unknown] = np.nan
    return fc.RoundView(
        rng.lognormal(0.0, rng.choice([0.3, 1.0, 2.0]), M),
        rng.exponential(rng.choice([0.1, 1.0, 5.0]), M),
        ids=np.arange(M),
        profiles=profiles,
        must_include=np.arange(M) < forced,
        recent=0.2 * rng.random(M) if past else None,
    )


def values_of(view: fc.RoundView, sets: np.ndarray, theta: float, memory: float) -> np.ndarray:
    """(theta + D) T of each of (K, M) sets, given as booleans."""
    assert view.profiles is not None
    e, n = view.profiles, sets.sum(axis=1)
    known = np.array([not np.isnan(row).any() for row in e])
    k, M = int(known.sum()), len(e)
    c, t = (np.broadcast_to(times, sets.shape) for times in (view.upload_s, view.compute_s))
    T = fc.allocate(c, t, where=sets).round_s
    v = np.square(e[known] - e[known].mean(axis=0)).sum(axis=1).mean() if k else 0.0
    if k < 2 or v < 1e-20:
        return np.asarray((theta + 1.0 / n) * T)
    z = np.where(known[:, None], (e - e[known].mean(axis=0)) / np.sqrt(v), 0.0)
    side = np.sqrt((M - k) / (k * M)) * np.where(known, 1.0, -k / max(1, M - k))
    past = np.zeros(M) if view.recent is None else memory * view.recent
    weights = sets / n[:, None]
    square = np.square(weights @ z + past @ z).sum(axis=1) + (weights @ side + past @ side) ** 2
    return np.asarray((theta + square + (sets & ~known).sum(axis=1) / n**2) * T)


def best_of_all(view: fc.RoundView, theta: float, memory: float, most: int) -> float:
    """The least value of all sets that have the forced devices and at most ``most``."""
    M = len(view)
    sets = (np.arange(1, 1 << M)[:, None] >> np.arange(M) & 1).astype(bool)
    allowed = (sets.sum(axis=1) <= most) & sets[:, view.forced].all(axis=1)
    return float(values_of(view, sets[allowed], theta, memory).min())
