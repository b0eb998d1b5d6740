"""Channels from Sionna, NVIDIA's link-level simulator: its path gains become a file that `SnrTrace` reads.

    python examples/sionna_channels.py

Sionna is not installed with fedcell (``pip install sionna``; version 2, which computes with PyTorch), and only
`sionna_model` needs it: path gains of any other origin and of the same form will do for `gains_to_snr_db`.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fedcell as fc
from fedcell import units
from fedcell.errors import InputError, require_number, require_whole
from fedcell.types import Floats
from fedcell.world import write_trace
from fedcell.world.tr38901 import Outdoor38901, RMa


def gains_to_snr_db(gains: Any, power_w_per_hz: ArrayLike, noise_w_per_hz: float) -> Floats:
    """SNR of uplinks from the complex path gains that Sionna's channel models and its ray tracer give.

    The gain of a link is the sum of |a|^2 over paths (the mean over a wide band) and over the base station's antennas
    (maximum-ratio combining), and the mean over the device's antennas.

    Args:
        gains: a, a tensor or array of the shape (1, base stations, antennas, M, antennas, paths, T), as channel models
            give it, or without the first axis, as the ray tracer does; with one base station, the receiver.
        power_w_per_hz: transmit power density in W/Hz, one number or (M,).
        noise_w_per_hz: noise power density, in W/Hz.

    Returns:
        (T, M) in dB, NaN where no path arrives.

    Example:
        >>> import numpy as np
        >>> from sionna_channels import gains_to_snr_db
        >>> gains = np.full((1, 1, 2, 3, 1, 5, 4), 1e-6 + 0j)  # 2 antennas, 3 devices, 5 paths, 4 times
        >>> gains_to_snr_db(gains, power_w_per_hz=1e-9, noise_w_per_hz=1e-20).round(2)[0].tolist()
        [0.0, 0.0, 0.0]
    """
    a = _array(gains)
    if a.ndim == 7 and a.shape[0] == 1:
        a = a[0]
    if a.ndim != 6 or a.shape[0] != 1 or 0 in a.shape:
        raise InputError(
            f"the path gains have the shape {_array(gains).shape}; give (1, 1, antennas, devices, antennas, paths, "
            "times), of one base station"
        )
    require_number("noise_w_per_hz", noise_w_per_hz, above=0)
    gain = (np.abs(a[0]).astype(np.float64) ** 2).sum(axis=(0, 3)).mean(axis=1).T  # (T, M)
    with np.errstate(divide="ignore"):
        snr_db: Floats = units.ratio_to_db(np.asarray(power_w_per_hz) / noise_w_per_hz * gain)
    return np.where(np.isfinite(snr_db), snr_db, np.nan)


def sample_snr_db(
    model: Callable[..., Any], steps: int, step_s: float, power_w_per_hz: ArrayLike, noise_w_per_hz: float
) -> tuple[Floats, Floats]:
    """Let a channel model of Sionna's run, and return what `write_trace` takes.

    Args:
        model: any of Sionna's channel models with its topology set, uplink: ``model(T, sampling_frequency)`` gives path
            gains and delays.
        steps: T, the number of times.
        step_s: seconds from one to the next.
        power_w_per_hz: transmit power density in W/Hz, one number or (M,).
        noise_w_per_hz: noise power density, in W/Hz.

    Returns:
        (T,) times in seconds, and (T, M) SNRs in dB.

    Example:
        >>> import numpy as np
        >>> from sionna_channels import sample_snr_db
        >>> def model(times, sampling_frequency):  # as Sionna's: one base station, two devices, one path
        ...     return np.full((1, 1, 1, 2, 1, 1, times), 1e-5 + 0j), np.zeros((1, 1, 2, 1))
        >>> time_s, snr_db = sample_snr_db(model, 3, 10.0, power_w_per_hz=1e-9, noise_w_per_hz=1e-20)
        >>> time_s.tolist(), snr_db.shape
        ([0.0, 10.0, 20.0], (3, 2))
    """
    require_whole("steps", steps, least=1)
    require_number("step_s", step_s, above=0)
    gains, _ = model(steps, 1 / step_s)
    return step_s * np.arange(steps, dtype=np.float64), gains_to_snr_db(gains, power_w_per_hz, noise_w_per_hz)


def sionna_model(channel: Outdoor38901, positions_m: ArrayLike, speed_mps: float = 0.0) -> Callable[..., Any]:
    """Sionna's full model of the same scenario, with its rays and fading, for devices outdoors with one antenna each.

    Args:
        channel: `UMa`, `UMi` or `RMa`.
        positions_m: (M, 2) metres from the base station.
        speed_mps: of all devices, along x, for the Doppler shift of the rays.

    Returns:
        A channel model for `sample_snr_db`; an InputError if Sionna is not installed.
    """
    try:
        import torch
        from sionna.phy.channel import tr38901
    except ImportError as error:
        raise InputError(f"Sionna cannot be imported ({error}); install it: pip install sionna") from None
    places = np.asarray(positions_m, np.float32)
    if places.ndim != 2 or places.shape[1] != 2:
        raise InputError(f"positions_m has shape {places.shape}; give (M, 2)")
    count = len(places)
    antenna = tr38901.PanelArray(
        num_rows_per_panel=1,
        num_cols_per_panel=1,
        polarization="single",
        polarization_type="V",
        antenna_pattern="omni",
        carrier_frequency=channel.carrier_hz,
    )
    own = (
        {"average_building_height": channel.building_height_m, "average_street_width": channel.street_width_m}
        if isinstance(channel, RMa)
        else {"o2i_model": "low"}
    )
    model = getattr(tr38901, type(channel).__name__)(
        carrier_frequency=channel.carrier_hz,
        ut_array=antenna,
        bs_array=antenna,
        direction="uplink",
        enable_shadow_fading=channel.shadowing,
        **own,
    )
    ground = np.column_stack((places, np.full(count, channel.ue_height_m, np.float32)))
    nobody = torch.zeros(1, count, dtype=torch.bool)
    velocity = torch.zeros(1, count, 3)
    velocity[..., 0] = speed_mps
    model.set_topology(
        ut_loc=torch.tensor(ground)[None],
        bs_loc=torch.tensor([[[0.0, 0.0, channel.bs_height_m]]]),
        ut_orientations=torch.zeros(1, count, 3),
        bs_orientations=torch.zeros(1, 1, 3),
        ut_velocities=velocity,
        in_state=nobody,
        los=None if channel.los == "drawn" else channel.los == "always",
        **({"in_car": nobody} if isinstance(channel, RMa) else {}),  # else the doors of cars cost 9 dB
    )
    run: Callable[..., Any] = model
    return run


def _array(tensor: Any) -> NDArray[Any]:
    """A tensor of PyTorch's or TensorFlow's, or an array, as an array."""
    on_cpu = tensor.detach().cpu() if hasattr(tensor, "detach") else tensor
    return np.asarray(on_cpu)


def main() -> None:
    """Write the links of 20 walking devices over 1,000 seconds, with Sionna's rays and fading."""
    if importlib.util.find_spec("sionna") is None:
        print("Sionna is not installed: pip install sionna")
        return
    positions_m = np.random.default_rng(0).uniform(-200, 200, (20, 2))
    model = sionna_model(fc.UMi(carrier_hz=28e9), positions_m, speed_mps=1.0)
    noise = fc.Cell().noise_w_per_hz
    time_s, snr_db = sample_snr_db(model, steps=100, step_s=10.0, power_w_per_hz=5e-9, noise_w_per_hz=noise)
    write_trace("links.csv", time_s, snr_db)
    print("links.csv has Sionna's links of 20 devices: fc.Cell(channel=fc.SnrTrace('links.csv'))")


if __name__ == "__main__":
    main()
