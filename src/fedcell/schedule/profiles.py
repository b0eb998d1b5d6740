"""Data profiles: how unbalanced a set of devices is, and the weights that balance it.

A profile e_i is a vector that says what a device's data is like. With m the mean of the profiles and v the mean of
|e_i - m|^2, z_i = (e_i - m) / sqrt(v) is the standardised profile. Weights w of sum 1 over the devices of a round have
the expected imbalance

    D(w) = |sum w_i z_i|^2 + sum w_i^2 u_i,

where u_i is the part of the device's profile that is not known: 1 if nothing is known of it, 0 if all is, and between
them if the profile is noisy. For n devices of equal weight of which nothing is known, D is the paper's 1/n.

If only k of M profiles are known, their mean is not quite the cell's: the difference has an expected square of
1/k - 1/M, and points the other way for the devices that are not known, (M - k)/k times as far. One more entry of z says
so: sqrt((M - k) / (k M)) for a known device, and -k / (M - k) times that for another. It makes scheduling devices that
are not known yet worth while, the more so the longer they were left out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedcell.errors import InputError
from fedcell.schedule.view import RoundView
from fedcell.types import Floats, Indices

BALANCE = 0.1
"""lambda of balanced weights: how much each device's weight is held to 1/n."""


@dataclass(frozen=True, eq=False)
class Profiles:
    """Standardised profiles of M devices.

    Attributes:
        z: (M, d) what is known of them, with mean 0 and, without noise, a mean square norm of 1. If some are not known,
            (M, d + 1) with 0 for them; the last column is what is expected of known and unknown ones.
        unknown: (M,) the part that is not known: 1 where nothing is known, 0 where all is.

    Example:
        >>> from fedcell.schedule.profiles import standardise
        >>> profiles = standardise([[1.0, 0.0], [0.0, 1.0]])
        >>> profiles.z.round(3).tolist(), profiles.unknown.tolist()
        ([[0.707, -0.707], [-0.707, 0.707]], [0.0, 0.0])
    """

    z: Floats
    unknown: Floats


def standardise(profiles: ArrayLike, noise: float = 0.0) -> Profiles | None:
    """Standardise the profiles of a cell.

    Noise of a known variance, such as that added for privacy, is taken into account: a profile is shrunk to its mean by
    kappa = (v - noise) / v, and 1 - kappa of it counts as unknown. If noise is all there is, nothing is known.

    Args:
        profiles: (M, d), a row of NaN for a device of which nothing is known.
        noise: the expected squared norm of the noise in a profile.

    Returns:
        Profiles: or None if they tell nothing: fewer than two are known, or all known ones are alike.

    Example:
        >>> from fedcell.schedule.profiles import standardise
        >>> standardise([[1.0, 0.0], [1.0, 0.0]]) is None
        True
        >>> standardise([[1.0, 0.0], [0.0, 1.0]], noise=0.25).unknown.tolist()
        [0.5, 0.5]
    """
    e = np.asarray(profiles, dtype=np.float64)
    M = len(e)
    known = np.isfinite(e @ np.ones(e.shape[1]))
    k = int(np.count_nonzero(known))
    if k < 2:
        return None
    told = e if k == M else e[known]
    z = told - told.sum(axis=0) / k
    v = float(np.vdot(z, z)) / k
    signal = v - noise
    # Profiles that are alike but for rounding tell nothing, and scaling would make noise of that rounding.
    if signal <= 1e-20 * float(np.abs(told).max()) ** 2:
        return None
    kappa = signal / v
    z *= kappa / np.sqrt(signal)
    if k == M:
        return Profiles(z, np.full(M, 1.0 - kappa))
    everybody, side = np.zeros((M, e.shape[1] + 1)), np.sqrt((M - k) / (k * M))
    everybody[known, :-1] = z
    everybody[:, -1] = np.where(known, side, -side * k / (M - k))
    return Profiles(everybody, np.where(known, 1.0 - kappa, 1.0))


def profiles_of(view: RoundView) -> Profiles | None:
    """Return what a view's profiles tell, standardised; None if it has none, or they tell nothing.

    Args:
        view: what the server knows this round.
    """
    profiles = view.profiles
    if profiles is None:
        return None
    return view.once("profiles", lambda: standardise(profiles, view.profile_noise))


def imbalance(profiles: Profiles, devices: Indices, weights: ArrayLike | None = None) -> float:
    """Return D, the expected imbalance of a round.

    Args:
        profiles: of the cell.
        devices: (n,) who delivers.
        weights: (n,) of their models in the mean, of sum 1; equal by default.

    Returns:
        D: 0 if the round is like the whole cell, 1 for a typical device alone.

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.profiles import imbalance, standardise
        >>> cell = standardise([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
        >>> imbalance(cell, np.array([0, 1])), round(imbalance(cell, np.array([0, 2])), 12)
        (0.0, 1.0)
    """
    n = devices.size
    w = np.full(n, 1.0 / n) if weights is None else np.asarray(weights, dtype=np.float64)
    mean = w @ profiles.z[devices]
    return float(mean @ mean + np.square(w) @ profiles.unknown[devices])


def imbalances_without(profiles: Profiles, devices: Indices) -> Floats:
    """What each device does to the imbalance of a round of equal weights.

    Args:
        profiles: of the M devices of the cell.
        devices: (n,) who delivers.

    Returns:
        (M,) the imbalance of the round without the device, for those of the round (NaN for the only one), and with it,
        for all others.

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.profiles import imbalances_without, standardise
        >>> cell = standardise([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
        >>> imbalances_without(cell, np.array([0, 1])).round(12).tolist()
        [1.0, 1.0, 0.111111111111, 0.111111111111]
    """
    sign = np.ones(len(profiles.z))
    sign[devices] = -1.0
    count = devices.size + sign
    total = profiles.z[devices].sum(axis=0) + sign[:, None] * profiles.z
    unknown = profiles.unknown[devices].sum() + sign * profiles.unknown
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = (np.square(total).sum(axis=1) + unknown) / np.square(count)
    found[count == 0] = np.nan
    return found


def balanced_weights(profiles: Profiles | None, devices: Indices, strength: float = BALANCE) -> Floats:
    """Return the weights of the devices' models that make the round most like the whole cell.

    They minimise D(w) + strength |w - 1/n|^2 over w >= 0 of sum 1.

    Args:
        profiles: of the cell; None if they tell nothing, and then all weights are equal.
        devices: (n,) who delivered, at least one.
        strength: lambda, above 0: the larger, the more equal the weights.

    Returns:
        (n,) the weights.

    Example:
        >>> import numpy as np
        >>> from fedcell.schedule.profiles import balanced_weights, standardise
        >>> cell = standardise([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
        >>> balanced_weights(cell, np.array([0, 1, 2])).round(2).tolist()  # two of one kind, one of the other
        [0.25, 0.49, 0.25]
    """
    if not (np.isfinite(strength) and strength > 0.0):
        raise InputError(f"strength is {strength!r}; give a number above 0")
    n = devices.size
    if profiles is None or n == 1:
        return np.full(n, 1.0 / n)
    z, diagonal = profiles.z[devices], strength + profiles.unknown[devices]
    pull = np.full(n, strength / n)
    free = np.ones(n, dtype=np.bool_)
    weights = np.zeros(n)
    # Active set: minimise with some weights at 0; drop the negative ones, then take back those that would rather be
    # above 0. The limit is far above what is needed.
    for _ in range(2 * n + 10):
        weights[:] = 0.0
        weights[free], level = _free_weights(z[free], diagonal[free], pull[free])
        if (weights < 0.0).any():
            free &= weights > 0.0
            continue
        slope = z @ (weights @ z) + diagonal * weights - pull
        wants_in = ~free & (slope < level - 1e-12 * max(1.0, abs(level)))
        if not wants_in.any():
            break
        free[np.flatnonzero(wants_in)[np.argmin(slope[wants_in])]] = True
    weights = np.maximum(weights, 0.0)
    balanced: Floats = weights / weights.sum()
    return balanced


def _free_weights(z: Floats, diagonal: Floats, pull: Floats) -> tuple[Floats, float]:
    """Minimise w'(zz' + diag)w / 2 - pull'w with sum 1, and the multiplier; Woodbury's identity, so d x d at most."""
    small = np.eye(z.shape[1]) + (z.T / diagonal) @ z

    def solve(b: Floats) -> Floats:
        part: Floats = b / diagonal
        return part - (z @ np.linalg.solve(small, z.T @ part)) / diagonal

    ones, pulled = solve(np.ones(len(z))), solve(pull)
    level = (1.0 - pulled.sum()) / ones.sum()
    return pulled + level * ones, float(level)
