"""The uplink: path loss, shadowing and fading give the SNR, the SNR gives the whole-band upload time."""

from functools import lru_cache
from math import inf, log, sqrt

import numpy as np

from fedcell import units
from fedcell.check import require_number
from fedcell.errors import InputError
from fedcell.rng import stream
from fedcell.world.cell import PAPER_POWER_W_PER_HZ, Cell, FloatArray

_WAVES = 256
_BLOCK = 128  # positions at a time: a block of waves stays in the cache


def path_loss_db(cell: Cell, distance_m: FloatArray) -> FloatArray:
    """L(d) = L(1 km) + 10 alpha log10(d / 1 km), with d at least the cell's minimum.

    Args:
        cell: L(1 km), alpha and the minimum.
        distance_m: (M,) d.

    Returns:
        (M,) in dB.
    """
    near_enough_m = np.maximum(distance_m, cell.min_distance_m)
    return cell.path_loss_1km_db + 10 * cell.path_loss_exponent * np.log10(near_enough_m / units.km(1.0))


def shadowing_db(cell: Cell, positions_m: FloatArray, seed: int) -> FloatArray:
    """The loss by obstacles, a stationary Gaussian field over the plane with Gudmundson's exponential correlation.

    E[S(x) S(y)] = sigma^2 exp(-|x - y| / d). It is a fixed function of the place, so a moving device meets a
    correlated course of it and policies with different clocks meet the same one. Random Fourier features make it:
    S(x) = sigma sqrt(2/K) sum_k cos(w_k . x + phi_k), phi uniform, w from the correlation's spectral density, which in
    the plane is a bivariate Cauchy: w = z / (|g| d), z and g standard normal. Over seeds the correlation is exact; the
    marginal is normal but for an excess kurtosis of -3/(2K), K = 256.

    Args:
        cell: sigma (``shadowing_db``) and d (``shadowing_distance_m``).
        positions_m: (M, 2) x.
        seed: the run's seed; each seed has a field of its own.

    Returns:
        (M,) in dB, positive for more loss.
    """
    rng = stream(seed, "shadowing")
    normal = rng.standard_normal((_WAVES, 3))
    wave_x, wave_y = (normal[:, :2] / (np.abs(normal[:, 2:]) * cell.shadowing_distance_m)).T
    phase = rng.uniform(0, 2 * np.pi, _WAVES)
    total = np.empty(len(positions_m))
    for start in range(0, len(positions_m), _BLOCK):
        x, y = positions_m[start : start + _BLOCK, :, np.newaxis].swapaxes(0, 1)
        total[start : start + _BLOCK] = np.cos(x * wave_x + y * wave_y + phase).sum(axis=1)
    return cell.shadowing_db * sqrt(2 / _WAVES) * total


def fading_power(cell: Cell, count: int, rng: np.random.Generator) -> FloatArray:
    """The power gain X of flat block fading, with mean 1.

    X = |sqrt(K / (K+1)) + sqrt(1 / (2 (K+1))) (z1 + j z2)|^2, z standard normal. Rayleigh fading is K = 0, X ~ Exp(1).

    Args:
        cell: its ``fading`` and ``rician_k``, K.
        count: M.
        rng: drawn from unless there is no fading.

    Returns:
        (M,) ratios.
    """
    if cell.fading == "none":
        return np.ones(count)
    k = cell.rician_k if cell.fading == "rician" else 0.0
    scattered = rng.standard_normal((count, 2)) * sqrt(0.5 / (k + 1))
    power: FloatArray = (sqrt(k / (k + 1)) + scattered[:, 0]) ** 2 + scattered[:, 1] ** 2
    return power


def link_snr(cell: Cell, power_w_per_hz: FloatArray | float, loss_db: FloatArray) -> FloatArray:
    """SNR = p h^2 / N0 with h^2 = 10^(-loss / 10); (M,) ratios, 0 or infinity beyond a float's range."""
    with np.errstate(over="ignore"):
        return power_w_per_hz / cell.noise_w_per_hz * units.db_to_ratio(-loss_db)


def spectral_efficiency(snr: FloatArray) -> FloatArray:
    """log2(1 + snr) in bit/s/Hz, exact for tiny ratios too; (M,)."""
    return np.log1p(snr) / log(2)


def whole_band_upload_s(cell: Cell, efficiency: FloatArray) -> FloatArray:
    """Whole-band upload time c = S_model / (B e), eq. (4) with a share of 1.

    Args:
        cell: S_model (``model_bits``) and B.
        efficiency: (M,) e = log2(1 + snr), in bit/s/Hz.

    Returns:
        (M,) seconds, finite and positive; an InputError names the first device for which that cannot be.
    """
    upload_s = unchecked_upload_s(cell, efficiency)
    usable = np.isfinite(upload_s) & (upload_s > 0)
    if not usable.all():
        device = int(np.argmin(usable))
        raise InputError(
            f"upload_s of device {device} is {upload_s[device]:g}, its rate being {efficiency[device]:g} bit/s/Hz; "
            "change its distance or power_w_per_hz, or the cell"
        )
    return upload_s


def mean_upload_s(cell: Cell, power_w_per_hz: float = PAPER_POWER_W_PER_HZ) -> float:
    """E[c] over uniform placement and shadowing, for Proposition 1's bounds.

    The density of the distance is 2 d / R^2; all nearer than the minimum count as at the minimum. Gauss-Legendre
    quadrature runs over log d and Gauss-Hermite over the normal shadowing; together they are good to 1e-9 (up to
    20 dB of shadowing).

    With Rayleigh or Rician fading there is no mean: the power gain X has a positive density at 0, near which
    1/log2(1 + s X) grows like 1/X, so that its integral diverges.

    Args:
        cell: the radio and R.
        power_w_per_hz: p, the device's transmit power density.

    Returns:
        Seconds.
    """
    require_number("power_w_per_hz", power_w_per_hz, above=0)
    if cell.fading != "none":
        raise InputError(
            f"fading is {cell.fading!r}, under which the mean upload time is infinite (deep fades); "
            "set fading to 'none' for the mean"
        )
    (node, weight), (normal, normal_weight) = _quadrature()
    low, high = np.log(cell.min_distance_m / cell.radius_m), 0.0
    log_d = low + (high - low) * (node + 1) / 2
    distance_m = cell.radius_m * np.append(np.exp(log_d), np.exp(low))
    place_weight = np.append((high - low) * weight * np.exp(2 * log_d), np.exp(2 * low))
    loss_db = path_loss_db(cell, distance_m)[:, np.newaxis] + cell.shadowing_db * normal
    efficiency = spectral_efficiency(link_snr(cell, power_w_per_hz, loss_db))
    with np.errstate(invalid="ignore", over="ignore"):
        mean_s = float(place_weight @ unchecked_upload_s(cell, efficiency) @ normal_weight)
    if not 0 < mean_s < inf:
        raise InputError(
            f"the mean upload time is {mean_s:g} s in a cell of radius_m {cell.radius_m:g} at power_w_per_hz "
            f"{power_w_per_hz:g}; change one of them"
        )
    return mean_s


def unchecked_upload_s(cell: Cell, efficiency: FloatArray) -> FloatArray:
    """The same as whole_band_upload_s, but 0 or infinite where a rate is beyond what can be used."""
    with np.errstate(divide="ignore", over="ignore"):
        return cell.model_bits / (cell.bandwidth_hz * efficiency)


@lru_cache(maxsize=1)
def _quadrature() -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Nodes and weights on [-1, 1] (summing to 2), and under the standard normal (summing to 1)."""
    normal, weight = np.polynomial.hermite_e.hermegauss(64)
    return np.polynomial.legendre.leggauss(128), (normal, weight / weight.sum())
