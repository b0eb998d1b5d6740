"""Auto, slow and obvious: its objective for all sets of devices and all bits, and its sums by loops over pairs."""

from itertools import combinations
from typing import Any

import numpy as np

import fedcell as fc
from fedcell.quantisation import BITS, noise
from fedcell.schedule.plan import Report

NAMES = (
    "pairs", "d", "dd", "y", "dy", "again", "alike", "devices", "squares", "profiles", "work", "bits", "rounds",
    "lacked", "seconds",
)  # fmt: skip
"""The numbers that Auto keeps, in this order."""
MEMORY, NOISE = 0.5, 0.03


def draw_view(M: int, seed: int, *, forced: int = 0, told: bool = True, **columns: Any) -> fc.RoundView:
    """A random cell after some rounds: devices with few or many labels, near and far; of some nothing was heard."""
    rng = np.random.default_rng(seed)
    known: dict[str, Any] = {}
    if told:
        square = rng.lognormal(0.0, 0.3, M) * 1e-3
        square[rng.random(M) < 0.3] = np.nan
        pairs, devices = float(rng.integers(3, 60)), float(rng.integers(3, 30))
        usual, d = 0.6, rng.normal(-0.1, 0.05)
        sums = dict.fromkeys(NAMES, 0.0) | {
            "pairs": pairs, "d": pairs * d, "dd": pairs * rng.uniform(0.1, 0.4), "y": pairs * rng.uniform(-0.1, 0.3),
            "dy": pairs * rng.uniform(-0.02, 0.2), "again": float(rng.integers(0, 20)), "alike": rng.normal(0.5, 2.0),
            "devices": devices, "squares": devices * usual, "profiles": devices, "work": np.log(0.04), "bits": 10.0,
            "rounds": 5.0, "lacked": rng.uniform(0.2, 3.0), "seconds": rng.uniform(1.0, 9.0),
        }  # fmt: skip
        known = {
            "peaks": 500 * square, "absolutes": 20 * square, "squares": square, "learnt": list(sums.values()),
            "heard_epochs": np.where(np.isnan(square), np.nan, 0.04),
        }  # fmt: skip
    return fc.RoundView(
        rng.lognormal(0.0, rng.choice([0.3, 1.0, 2.0]), M),
        6.0 + rng.exponential(rng.choice([0.1, 1.0, 5.0]), M),
        **{
            "ids": np.arange(M), "profiles": rng.dirichlet(np.full(4, rng.choice([0.1, 1.0])), M), "weights": 50_000,
            "tensors": 4, "samples": np.full(M, 3000), "recent": rng.random(M), "must_include": np.arange(M) < forced,
            **known, **columns,
        },
    )  # fmt: skip


def standardised(view: fc.RoundView) -> np.ndarray | None:
    """(M, d) profiles of mean 0 and mean square 1, if all are known and they differ."""
    if view.profiles is None:
        return None
    z = view.profiles - view.profiles.mean(axis=0)
    v = np.square(z).sum(axis=1).mean()
    return None if v < 1e-20 else z / np.sqrt(v)


def makeup(kept: dict[str, float]) -> tuple[float, float, float, float]:
    """g^2, zeta^2, eta^2 and sigma^2: a line through the products of pairs and three pairs that are guessed."""
    if kept["devices"] == 0:
        return 0.05, 1.0, 0.0, 1.0
    square = kept["squares"] / kept["devices"]
    n = kept["pairs"] + 3
    d, y = kept["d"] / n, (kept["y"] + 3 * 0.05 * square) / n
    slope = ((kept["dy"] + 3 * 0.1 * 0.5 * square) / n - d * y) / ((kept["dd"] + 3 * 0.1) / n - d * d)
    own = max(slope, 0.0) if kept["profiles"] > 0 else 0.0
    common = max(y - own * d, 0.003 * square)
    rest = max(square - common - own * kept["profiles"] / kept["devices"], 0.0)
    hidden = min(max((kept["alike"] * square + 10 * 0.6 * rest) / (kept["again"] + 10), 0.0), rest)
    return common, own, hidden, rest - hidden


def value_of(view: fc.RoundView, devices: list[int], bits: int, epochs: float) -> float:
    """What a round with these devices, bits and work costs; of a view whose profiles are known, or None are.

    What is hidden of a device is an axis of its own here, so the value differs from Auto's by what all sets share.
    """
    kept = dict(zip(NAMES, np.zeros(len(NAMES)) if view.learnt is None else view.learnt, strict=True))
    common, own, hidden, drawn = makeup(kept)
    M, z, chosen = len(view), standardised(view), np.array(devices)
    axes = [np.eye(M) * np.sqrt(hidden) - np.sqrt(hidden) / M]
    axes += [] if z is None else [np.sqrt(own) * z]
    recent = np.zeros(M) if view.recent is None else view.recent
    lacking = 0.0
    for axis in axes:
        lacking += float(np.square(axis[chosen].mean(axis=0) + MEMORY * (recent @ axis)).sum())
    noises = []
    for i in devices:
        scale = view.heard_epochs[i] ** 2 if view.heard_epochs is not None else np.nan
        sums = [getattr(view, name) for name in ("peaks", "absolutes", "squares")]
        rounding = (
            np.nan
            if sums[0] is None
            else float(noise(sums[0][i] / scale, sums[1][i] / scale, sums[2][i] / scale, bits))
        )
        if np.isnan(rounding):
            rounding = usual_rounding(view, bits, common + own + hidden + drawn)
        noises.append(NOISE * (drawn + rounding) + (own if z is None else 0.0))
    factor = common + lacking + sum(noises) / len(devices) ** 2
    part = float(view.upload_part(bits))
    c, t = part * view.upload_s[chosen], epochs / view.epochs * view.compute_s[chosen]
    law = view.law.take(chosen).scaled(np.full(chosen.size, part))
    T = float(fc.allocate(c, t, law=law).round_s) if view.downlink is None else _under(view, chosen, c, t, law)
    if kept["rounds"] == 0:
        return float(factor * T)
    return float(factor + kept["lacked"] / kept["seconds"] * T)


def _under(view: fc.RoundView, chosen: np.ndarray, c: np.ndarray, t: np.ndarray, law: Any) -> float:
    assert view.downlink is not None
    return float(fc.allocate(c, t + view.downlink.starts_s(chosen), law=law).round_s)


def usual_rounding(view: fc.RoundView, bits: int, square: float) -> float:
    """Of a device that was not heard yet: the mean of the others, or a guess."""
    if view.peaks is not None and view.heard_epochs is not None:
        scale = np.square(view.heard_epochs)
        heard = noise(view.peaks / scale, view.absolutes / scale, view.squares / scale, bits)
        if np.isfinite(heard).any():
            return float(np.nanmean(heard))
    usual = dict(zip(BITS, (4.0, 1.3, 0.4, 0.01, 0.0), strict=True))
    return usual[bits] * square


def best_of_all(view: fc.RoundView, epochs: float, most: int) -> tuple[float, list[int], int]:
    """The least value of all sets that have the forced devices, at most ``most``, and of all bits."""
    everybody, forced = range(len(view)), set(view.forced.tolist())
    least: tuple[float, list[int], int] = min(
        (value_of(view, list(chosen), bits, epochs), list(chosen), bits)
        for size in range(1, most + 1)
        for chosen in combinations(everybody, size)
        if forced <= set(chosen)
        for bits in BITS
    )
    return least


def learnt(view: fc.RoundView, report: Report) -> dict[str, float]:
    """The sums after a round, one pair of devices after the other; without those over rounds."""
    kept = dict(zip(NAMES, np.zeros(len(NAMES)) if view.learnt is None else view.learnt.tolist(), strict=True))
    for name in NAMES:
        kept[name] *= {"again": 0.98, "alike": 0.98, "work": 0.0}.get(name, 0.9)
    kept["work"] = float(np.log(report.epochs.mean()))
    z, n = standardised(view), report.devices.size
    x = [report.signals["updates"][k] / report.epochs[k] for k in range(n)]
    of = [np.zeros(1) if z is None else z[i] for i in report.devices]
    for a in range(n):
        kept["devices"] += 1
        kept["squares"] += report.signals["squares"][a] / report.epochs[a] ** 2
        kept["profiles"] += float(of[a] @ of[a])
        for b in range(a + 1, n):
            y, d = float(x[a] @ x[b]), float(of[a] @ of[b])
            for name, value in (("pairs", 1.0), ("d", d), ("dd", d * d), ("y", y), ("dy", d * y)):
                kept[name] += value
    common, own, _, _ = makeup(kept)
    square = kept["squares"] / kept["devices"]
    for a, i in enumerate(report.devices):
        if view.updates is not None and view.heard_epochs is not None and np.isfinite(view.updates[i]).all():
            both = float(x[a] @ (view.updates[i] / view.heard_epochs[i]))
            kept["again"] += 1
            kept["alike"] += (both - common - own * float(of[a] @ of[a])) / square
    return kept
