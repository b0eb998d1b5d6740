"""The uplink: path loss, shadowing and fading give the SNR, and the SNR gives the upload time with the entire band."""

from functools import lru_cache
from itertools import pairwise
from math import inf, sqrt
from typing import TYPE_CHECKING, cast

import numpy as np

from fedcell import units
from fedcell.errors import InputError, reject, require_number
from fedcell.rng import stream
from fedcell.types import Floats
from fedcell.world.cell import BoolArray, Cell, PaperChannel
from fedcell.world.device import PAPER_POWER_W_PER_HZ
from fedcell.world.rates import Shannon

if TYPE_CHECKING:
    from fedcell.world.snr_trace import SnrTrace
    from fedcell.world.tr38901 import Outdoor38901

_WAVES = 256
_BLOCK = 128  # positions at a time: a block of waves stays in the cache


def _trace(cell: Cell) -> "SnrTrace | None":
    """The file that has the SNR, if one has it."""
    return None if cell.channel.by_place else cast("SnrTrace", cell.channel)


def _tables(cell: Cell) -> "Outdoor38901 | None":
    """The channel of TR 38.901, if it is one."""
    ours = isinstance(cell.channel, PaperChannel) or not cell.channel.by_place
    return None if ours else cast("Outdoor38901", cell.channel)


def path_loss_db(cell: Cell, distance_m: Floats) -> Floats:
    """Path loss L(d) = L(1 km) + 10 alpha log10(d / 1 km), with d at least the cell's minimum distance.

    With a channel of TR 38.901, the path loss of the likelier of LOS and NLOS at that distance; a trace has none.

    Args:
        cell: L(1 km) (``path_loss_1km_db``), alpha (``path_loss_exponent``) and ``min_distance_m``.
        distance_m: (M,) d, in metres.

    Returns:
        (M,) loss in dB.

    Example:
        >>> import numpy as np
        >>> from fedcell.world import Cell, path_loss_db
        >>> path_loss_db(Cell(), np.array([100.0, 1000.0])).round(3).tolist()
        [90.5, 128.1]
    """
    near_enough_m = np.maximum(distance_m, cell.min_distance_m)
    if (trace := _trace(cell)) is not None:
        raise InputError(f"the channel is the file {trace.file}, which knows no distances; give another channel")
    if (tables := _tables(cell)) is not None:
        if (beyond := distance_m > tables.farthest_m).any():
            reject("distance_m", distance_m, beyond, f"the channel's tables end at {tables.farthest_m:g} m")
        return tables.likely_loss_db(near_enough_m)
    return cell.path_loss_1km_db + 10 * cell.path_loss_exponent * np.log10(near_enough_m / units.km(1.0))


def shadowing_db(cell: Cell, positions_m: Floats, seed: int) -> Floats:
    """Loss due to obstacles: a stationary Gaussian field over the plane with Gudmundson's exponential correlation.

    E[S(x) S(y)] = sigma^2 exp(-|x - y| / d). It is a fixed function of the position, so a moving device sees
    correlated values and policies whose rounds last differently see the same field; see `gaussian_field`.

    Args:
        cell: sigma (``shadowing_db``) and d (``shadowing_distance_m``).
        positions_m: (M, 2) x, in metres.
        seed: the run's random seed; each seed has its own field.

    Returns:
        (M,) in dB, positive for more loss.

    Example:
        >>> import numpy as np
        >>> from fedcell.world import Cell
        >>> from fedcell.world.channel import shadowing_db
        >>> positions_m = np.array([[0.0, 0.0], [1.0, 0.0], [500.0, 0.0]])  # the first two are neighbours
        >>> shadowing_db(Cell(shadowing_db=8.0), positions_m, seed=0).round(1).tolist()
        [-6.9, -6.2, 1.4]
    """
    return gaussian_field(positions_m, cell.shadowing_distance_m, stream(seed, "shadowing"), cell.shadowing_db)


def loss_db(cell: Cell, positions_m: Floats, seed: int) -> Floats:
    """Loss at places by path loss, obstacles and, with a channel of TR 38.901, by what is in line of sight.

    Args:
        cell: the channel; an InputError for a trace, which knows no places.
        positions_m: (M, 2) metres from the base station.
        seed: the run's random seed; each seed has its own obstacles.

    Returns:
        (M,) in dB.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.world import loss_db
        >>> places_m = np.array([[100.0, 0.0], [0.0, 1000.0]])
        >>> loss_db(fc.Cell(), places_m, seed=0).round(1).tolist()
        [90.5, 128.1]
        >>> loss_db(fc.Cell(channel=fc.UMa()), places_m, seed=0).round(1).tolist()
        [113.0, 147.6]
    """
    distance_m = np.hypot(positions_m[:, 0], positions_m[:, 1])
    if (tables := _tables(cell)) is not None:
        return tables.loss_db(np.maximum(distance_m, cell.min_distance_m), positions_m, seed)
    loss = path_loss_db(cell, distance_m)
    if cell.shadowing_db > 0:
        loss += shadowing_db(cell, positions_m, seed)
    return loss


def mean_snr(cell: Cell, power_w_per_hz: Floats | float, positions_m: Floats, seed: int, clock_s: float) -> Floats:
    """Signal-to-noise ratio before fading: by the loss at the place, or as the channel's file has it.

    Args:
        cell: the channel.
        power_w_per_hz: p, the transmit power density in W/Hz, one number or (M,).
        positions_m: (M, 2) metres from the base station.
        seed: the run's random seed.
        clock_s: seconds from the start of the run; only a trace changes with it.

    Returns:
        (M,) linear ratios; 0 for a device without a link.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.world.channel import mean_snr
        >>> mean_snr(fc.Cell(), 1e-9, np.array([[1000.0, 0.0]]), seed=0, clock_s=0.0).round(3).tolist()
        [0.039]
    """
    trace = _trace(cell)
    if trace is None:
        return link_snr(cell, power_w_per_hz, loss_db(cell, positions_m, seed))
    snr_db = trace.snr_db(len(positions_m), clock_s)
    return np.where(np.isnan(snr_db), 0.0, units.db_to_ratio(snr_db))


def fading_power(cell: Cell, count: int, rng: np.random.Generator) -> Floats:
    """Power gain X of flat block fading, with mean 1.

    X = |sqrt(K / (K+1)) + sqrt(1 / (2 (K+1))) (z1 + j z2)|^2, z standard normal. Rayleigh fading is K = 0, X ~ Exp(1).

    Args:
        cell: ``fading`` and, for Rician fading, K (``rician_k``).
        count: M, the number of devices.
        rng: random generator; not used if there is no fading.

    Returns:
        (M,) linear ratios.

    Example:
        >>> import numpy as np
        >>> from fedcell.world import Cell
        >>> from fedcell.world.channel import fading_power
        >>> gains = fading_power(Cell(fading="rayleigh"), 100_000, np.random.default_rng(0))
        >>> gains.shape, round(float(gains.mean()), 2)
        ((100000,), 1.0)
    """
    if cell.fading == "none":
        return np.ones(count)
    k = cell.rician_k if cell.fading == "rician" else 0.0
    scattered = rng.standard_normal((count, 2)) * sqrt(0.5 / (k + 1))
    power: Floats = (sqrt(k / (k + 1)) + scattered[:, 0]) ** 2 + scattered[:, 1] ** 2
    return power


def link_snr(cell: Cell, power_w_per_hz: Floats | float, loss_db: Floats) -> Floats:
    """Signal-to-noise ratio p h^2 / N0 with h^2 = 10^(-loss / 10).

    Args:
        cell: N0 (``noise_w_per_hz``).
        power_w_per_hz: p, the transmit power density in W/Hz, one number or (M,).
        loss_db: (M,) the loss of the link in dB.

    Returns:
        (M,) linear ratios; 0 or infinity where they exceed the range of a float.

    Example:
        >>> import numpy as np
        >>> from fedcell.world import Cell, link_snr
        >>> link_snr(Cell(), 1e-9, np.array([100.0])).round(2).tolist()  # 14 dB: 0 dBm/MHz - 100 dB + 114 dBm/MHz
        [25.12]
    """
    with np.errstate(over="ignore"):
        return power_w_per_hz / cell.noise_w_per_hz * units.db_to_ratio(-loss_db)


def believed_snr(cell: Cell, snr: Floats, rng: np.random.Generator) -> Floats:
    """The SNR as the server knows it: off by a normal error in dB, snr 10^(e / 10) with e ~ N(0, csi_error_db^2).

    Args:
        cell: the error's standard deviation (``csi_error_db``).
        snr: (M,) the SNR that holds, linear ratios.
        rng: random generator; one draw per device, in their order. Not used if there is no error.

    Returns:
        (M,) linear ratios; ``snr`` itself if there is no error.

    Example:
        >>> import numpy as np
        >>> from fedcell.world import Cell
        >>> from fedcell.world.channel import believed_snr
        >>> believed_snr(Cell(csi_error_db=3.0), np.array([10.0, 10.0]), np.random.default_rng(0)).round(2).tolist()
        [10.91, 9.13]
    """
    if cell.csi_error_db == 0.0:
        return snr
    with np.errstate(over="ignore"):
        return snr * units.db_to_ratio(cell.csi_error_db * rng.standard_normal(snr.size))


def whole_band_upload_s(cell: Cell, efficiency: Floats, linked: BoolArray | None = None) -> Floats:
    """Upload time with the entire band, c = S_model / (B e): eq. (4) with a share of 1.

    Args:
        cell: S_model (``model_bits``) and B (``bandwidth_hz``).
        efficiency: (M,) e, in bit/s/Hz; log2(1 + snr) in the paper.

        linked: (M,) whether a device has a link at all; by default all have.

    Returns:
        (M,) seconds, infinite without a link, else finite and positive; otherwise an InputError names the first device.

    Example:
        >>> import numpy as np
        >>> from fedcell.world import Cell, whole_band_upload_s
        >>> whole_band_upload_s(Cell(bandwidth_hz=1e6, model_bits=2_000_000), np.array([1.0, 4.0])).tolist()
        [2.0, 0.5]
    """
    upload_s = unchecked_upload_s(cell, efficiency)
    usable = np.isfinite(upload_s) & (upload_s > 0)
    if linked is not None:
        usable |= ~linked
    if not usable.all():
        device = int(np.argmin(usable))
        raise InputError(
            f"upload_s of device {device} is {upload_s[device]:g} at a rate of {efficiency[device]:g} bit/s/Hz; "
            "change its distance or power_w_per_hz, or the cell"
        )
    return upload_s


def download_s(cell: Cell, power_w_per_hz: Floats, snr: Floats) -> Floats:
    """Time in which the model comes down to each device with the entire downlink, S_model / (B_down e(snr p_down / p)).

    The channel is the uplink's, so the SNR is the uplink's times the ratio of the power densities.

    Args:
        cell: S_model, B_down (``downlink_hz``), p_down (``downlink_w_per_hz``) and the rate e.
        power_w_per_hz: (n,) p, the devices' transmit power density, in W/Hz.
        snr: (n,) the SNR of their uplinks, linear ratios.

    Returns:
        (n,) seconds.

    Example:
        >>> import numpy as np
        >>> from fedcell.world import Cell, download_s
        >>> cell = Cell(downlink_hz=1e6, downlink_w_per_hz=4e-6, model_bits=2_000_000)
        >>> download_s(cell, np.array([4e-6, 2e-6]), np.array([1.0, 1.5])).tolist()
        [2.0, 1.0]
    """
    bandwidth_hz = cell.bandwidth_hz if cell.downlink_hz is None else cell.downlink_hz
    efficiency = cell.rate.efficiency(snr * (cell.downlink_w_per_hz / power_w_per_hz))
    with np.errstate(divide="ignore"):
        seconds: Floats = cell.model_bits / (bandwidth_hz * efficiency)
    return seconds


def outage_possible(cell: Cell) -> bool:
    """Whether a device of the cell can be without any rate: below the lowest MCS, or without a link in the file."""
    return not isinstance(cell.rate, Shannon) or not cell.channel.by_place


def mean_upload_s(cell: Cell, power_w_per_hz: float = PAPER_POWER_W_PER_HZ) -> float:
    """Mean upload time E[c] with the entire band, over uniform placement and shadowing; see `round_time_bounds`.

    The density of the distance is 2 d / R^2; devices closer than the minimum distance count as at that distance.
    Gauss-Legendre quadrature over log d and Gauss-Hermite quadrature over the normal shadowing are accurate to 1e-9
    (up to 20 dB of shadowing); with a channel of TR 38.901, whose LOS and NLOS places are averaged, to 1e-4. With an
    MCS table or a trace a device may have no rate at all, and with it the mean is infinite: an InputError says so.

    With Rayleigh or Rician fading there is no mean: the power gain X has a positive density at 0, where
    1/log2(1 + s X) grows like 1/X, so the integral diverges. An InputError says so.

    Args:
        cell: the radio and the radius R; ``fading`` must be ``"none"``.
        power_w_per_hz: p, the transmit power density of the devices, in W/Hz.

    Returns:
        Seconds.

    Example:
        >>> import fedcell as fc
        >>> round(fc.mean_upload_s(fc.Cell(radius_m=500.0)), 3), round(fc.mean_upload_s(fc.Cell(radius_m=1000.0)), 3)
        (0.162, 0.828)
    """
    require_number("power_w_per_hz", power_w_per_hz, above=0)
    if cell.fading != "none":
        raise InputError(
            f"fading is {cell.fading!r}, for which the mean upload time is infinite (deep fades); "
            "set fading to 'none' for the mean"
        )
    if outage_possible(cell):
        raise InputError(
            "the mean upload time is infinite with an MCS table or a trace, where a device may have no rate at all; "
            "give another rate or channel"
        )
    distance_m, place_weight = _places(cell)
    normal, normal_weight = _quadrature()[1]
    mean_s = 0.0
    for probability, path_db, sigma_db in _states(cell, distance_m):
        shadowed_db = path_db[:, np.newaxis] + sigma_db[:, np.newaxis] * normal
        efficiency = cell.rate.efficiency(link_snr(cell, power_w_per_hz, shadowed_db))
        with np.errstate(invalid="ignore", over="ignore"):
            mean_s += float((place_weight * probability) @ unchecked_upload_s(cell, efficiency) @ normal_weight)
    if not 0 < mean_s < inf:
        raise InputError(
            f"the mean upload time is {mean_s:g} s in a cell of radius_m {cell.radius_m:g} at power_w_per_hz "
            f"{power_w_per_hz:g}; change one of them"
        )
    return mean_s


def unchecked_upload_s(cell: Cell, efficiency: Floats) -> Floats:
    """The same as whole_band_upload_s, but 0 or infinite where a rate is beyond what can be used."""
    with np.errstate(divide="ignore", over="ignore"):
        return cell.model_bits / (cell.bandwidth_hz * efficiency)


def _places(cell: Cell) -> tuple[Floats, Floats]:
    """Distances and their weights, which sum to 1: nodes between the places where the path loss has a kink."""
    node, weight = _quadrature()[0]
    low = np.log(cell.min_distance_m / cell.radius_m)
    tables = _tables(cell)
    kinks_m = [] if tables is None else tables.kinks_m
    edges = [low, *(np.log(k / cell.radius_m) for k in kinks_m if cell.min_distance_m < k < cell.radius_m), 0.0]
    pieces = [(a + (b - a) * (node + 1) / 2, (b - a) * weight) for a, b in pairwise(edges)]
    log_d = np.concatenate([piece[0] for piece in pieces])
    distance_m = cell.radius_m * np.append(np.exp(log_d), np.exp(low))
    return distance_m, np.append(np.concatenate([piece[1] for piece in pieces]) * np.exp(2 * log_d), np.exp(2 * low))


def _states(cell: Cell, distance_m: Floats) -> list[tuple[Floats, Floats, Floats]]:
    """The states of a link at distances (M,): probability, path loss and sigma of the shadowing, each (M,)."""
    if (tables := _tables(cell)) is not None:
        return tables.states(np.maximum(distance_m, cell.min_distance_m))
    one = np.ones(distance_m.shape)
    return [(one, path_loss_db(cell, distance_m), cell.shadowing_db * one)]


@lru_cache(maxsize=1)
def _quadrature() -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Nodes and weights on [-1, 1] (summing to 2), and under the standard normal (summing to 1)."""
    normal, weight = np.polynomial.hermite_e.hermegauss(64)
    return np.polynomial.legendre.leggauss(128), (normal, weight / weight.sum())


def gaussian_field(positions_m: Floats, distance_m: float, rng: np.random.Generator, sigma: float = 1.0) -> Floats:
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
        >>> from fedcell.world.channel import gaussian_field
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
