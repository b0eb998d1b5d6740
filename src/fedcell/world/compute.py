"""How long a device trains: the shifted exponential of eq. (3)."""

import numpy as np

from fedcell.world.cell import Devices, FloatArray


def draw_compute_s(devices: Devices, rng: np.random.Generator) -> FloatArray:
    """t_i = a_i D_i + (D_i / mu_i) E_i with E_i ~ Exp(1), so that P[t_i < t] = 1 - exp(-(mu_i / D_i) (t - a_i D_i)).

    a_i sets the minimum and mu_i the fluctuation (the paper's text below eq. (3) says it the other way round).

    Args:
        devices: D_i, a_i and mu_i.
        rng: one draw a device, in their order.

    Returns:
        (M,) seconds.
    """
    fluctuation = devices.samples / devices.samples_per_second * rng.standard_exponential(len(devices))
    return devices.seconds_per_sample * devices.samples + fluctuation


def expected_compute_s(devices: Devices) -> FloatArray:
    """E[t_i] = a_i D_i + D_i / mu_i; (M,) seconds."""
    return devices.seconds_per_sample * devices.samples + devices.samples / devices.samples_per_second
