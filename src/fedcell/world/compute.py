"""How long a device trains: the shifted exponential of eq. (3)."""

from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedcell.types import Floats
    from fedcell.world.cell import Devices


def draw_compute_s(devices: "Devices", rng: np.random.Generator) -> "Floats":
    """Draw compute times t_i = a_i D_i + (D_i / mu_i) E_i with E_i ~ Exp(1).

    That is, P[t_i < t] = 1 - exp(-(mu_i / D_i) (t - a_i D_i)). a_i sets the minimum and mu_i the fluctuation (the
    paper's text below eq. (3) says it the other way round).

    Args:
        devices: D_i (``samples``), a_i (``seconds_per_sample``) and mu_i (``samples_per_second``).
        rng: random generator; one draw per device, in their order.

    Returns:
        (M,) seconds.

    Example:
        >>> import numpy as np
        >>> from fedcell.world import Devices, draw_compute_s
        >>> draw_compute_s(Devices(count=2), np.random.default_rng(0)).round(2).tolist()
        [6.51, 6.76]
    """
    fluctuation = devices.samples / devices.samples_per_second * rng.standard_exponential(len(devices))
    return devices.seconds_per_sample * devices.samples + fluctuation


def expected_compute_s(devices: "Devices") -> "Floats":
    """Return the mean compute times E[t_i] = a_i D_i + D_i / mu_i.

    Args:
        devices: D_i (``samples``), a_i (``seconds_per_sample``) and mu_i (``samples_per_second``).

    Returns:
        (M,) seconds.

    Example:
        >>> from fedcell.world import Devices, expected_compute_s
        >>> expected_compute_s(Devices(samples=[1000, 3000])).tolist()
        [2.25, 6.75]
    """
    return mean_compute_s(devices.samples, devices.seconds_per_sample, devices.samples_per_second)


@overload
def mean_compute_s(samples: float, seconds_per_sample: float, samples_per_second: float) -> float: ...
@overload
def mean_compute_s(
    samples: NDArray[Any], seconds_per_sample: NDArray[Any], samples_per_second: NDArray[Any]
) -> "Floats": ...
def mean_compute_s(samples: Any, seconds_per_sample: Any, samples_per_second: Any) -> Any:
    """E[t] = a D + D / mu, for one device or for all.

    Args:
        samples: D, a number or (M,).
        seconds_per_sample: a, likewise; the least time that a sample takes.
        samples_per_second: mu, likewise; infinity for a time that does not vary.

    Returns:
        Seconds, a number or (M,).
    """
    return seconds_per_sample * samples + samples / samples_per_second
