"""What computing and sending cost a device, in joules.

A module of its own: the loop needs it, but nothing of what makes devices of a document.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fedcell.types import Floats

if TYPE_CHECKING:
    from fedcell.world.cell import Cell
    from fedcell.world.device import Devices


def cmos_j(kappa: ArrayLike, cpu_hz: ArrayLike, cycles: ArrayLike) -> Floats:
    """Energy of computing, E = kappa f^2 C: the dynamic power of CMOS logic, C_eff V^2 f, with a voltage V ~ f.

    A processor that computes all the time has f cycles a second, and so the power kappa f^3.

    Args:
        kappa: effective switched capacitance, in J s^2 (joules per cycle and Hz^2), such as 1e-28.
        cpu_hz: f, the clock frequency in Hz.
        cycles: C, the number of cycles.

    Returns:
        Joules, of the arguments' common shape.

    Example:
        >>> from fedcell.world.energy import cmos_j
        >>> round(float(cmos_j(1e-28, 1e9, 2e6 * 3000)), 6)  # 3,000 samples of 2 million cycles at 1 GHz
        0.6
    """
    joules: Floats = np.asarray(kappa, float) * np.asarray(cpu_hz, float) ** 2 * np.asarray(cycles, float)
    return joules


def compute_j(devices: "Devices", compute_s: Floats) -> Floats:
    """Energy of a round's training: kappa f^2 cycles_per_sample D, or compute_w t where the devices have a compute_w.

    Args:
        devices: kappa, f (``cpu_hz``), ``cycles_per_sample``, D (``samples``), or ``compute_w``.
        compute_s: (M,) t, seconds of training; they matter only with ``compute_w``.

    Returns:
        (M,) joules.

    Example:
        >>> import numpy as np
        >>> from fedcell.world import Devices, compute_j
        >>> compute_j(Devices(count=2), np.array([6.2, 9.9])).round(6).tolist()
        [0.6, 0.6]
        >>> compute_j(Devices(compute_w=[2.0, 3.0]), np.array([6.2, 9.9])).round(6).tolist()
        [12.4, 29.7]
    """
    return devices.training_j if devices.compute_w is None else devices.compute_w * compute_s


def transmit_j(power_w_per_hz: ArrayLike, bandwidth_hz: float, shares: ArrayLike, upload_seconds: ArrayLike) -> Floats:
    """Energy of an upload, E = p g B s: the power density times the part of the band times the seconds that it takes.

    In the paper's cell an upload with the share g takes s = c / g seconds, so E = p B c: half the band costs twice the
    time at half the power, and the energy of an upload does not depend on its share.

    Args:
        power_w_per_hz: p, in W/Hz over the band that the device uses. A device with a total of P watts has P / (g B).
        bandwidth_hz: B, the whole band, in Hz.
        shares: g, the fraction of the band.
        upload_seconds: s, how long the upload takes with that share.

    Returns:
        Joules, of the arguments' common shape.

    Example:
        >>> from fedcell.world import transmit_j
        >>> transmit_j(5e-9, 3e6, [1.0, 0.5, 0.1], [2.0, 4.0, 20.0]).round(9).tolist()
        [0.03, 0.03, 0.03]
    """
    power_w = np.asarray(power_w_per_hz, float) * bandwidth_hz * np.asarray(shares, float)
    joules: Floats = power_w * np.asarray(upload_seconds, float)
    return joules


def round_j(cell: "Cell", devices: "Devices", compute_s: Floats, upload_s: Floats) -> Floats:
    """What each device would spend in a round, for training and sending, whatever its share of the paper's band.

    Args:
        cell: B (``bandwidth_hz``).
        devices: what computing costs them, and p (``power_w_per_hz``).
        compute_s: (M,) seconds of training.
        upload_s: (M,) c, seconds to upload with the entire band.

    Returns:
        (M,) joules.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.world import round_j
        >>> world = fc.World(devices=fc.Devices(count=3))
        >>> drawn = world.conditions(seed=1)
        >>> round_j(world.cell, world.devices, drawn.compute_s, drawn.upload_s).round(3).tolist()
        [0.695, 0.626, 0.603]
    """
    return compute_j(devices, compute_s) + transmit_j(devices.power_w_per_hz, cell.bandwidth_hz, 1.0, upload_s)
