"""What is physically there: the cell, its devices, the channel, the compute times and the motion."""

import warnings
from typing import TYPE_CHECKING, Any

from fedcell.lazy import lazy_names

if TYPE_CHECKING:
    from fedcell.world.availability import (
        Always,
        Availability,
        AvailabilitySnapshot,
        DayNight,
        Trace,
        parse_availability,
    )
    from fedcell.world.cell import Cell, Channel, Conditions, PaperChannel, parse_channel, uniform_in_disc
    from fedcell.world.channel import (
        believed_snr,
        download_s,
        fading_power,
        link_snr,
        loss_db,
        mean_upload_s,
        path_loss_db,
        shadowing_db,
        whole_band_upload_s,
    )
    from fedcell.world.device import (
        Devices,
        cmos_j,
        compute_j,
        draw_compute_s,
        expected_compute_s,
        round_j,
        transmit_j,
    )
    from fedcell.world.mobility import Mobility, RandomWaypoint, Redrawn, Static, parse_mobility
    from fedcell.world.rates import Mcs64, Mcs256, Shannon, parse_rate, spectral_efficiency
    from fedcell.world.snr_trace import SnrTrace, write_trace
    from fedcell.world.tr38901 import RMa, UMa, UMi
    from fedcell.world.world import World

__all__ = [
    "Always",
    "Availability",
    "AvailabilitySnapshot",
    "Cell",
    "Channel",
    "Conditions",
    "DayNight",
    "Devices",
    "Mcs64",
    "Mcs256",
    "Mobility",
    "PaperChannel",
    "RMa",
    "RandomWaypoint",
    "Redrawn",
    "Shannon",
    "SnrTrace",
    "Static",
    "Trace",
    "UMa",
    "UMi",
    "World",
    "believed_snr",
    "cmos_j",
    "compute_j",
    "download_s",
    "draw_compute_s",
    "expected_compute_s",
    "fading_power",
    "link_snr",
    "loss_db",
    "mean_upload_s",
    "parse_availability",
    "parse_channel",
    "parse_mobility",
    "parse_rate",
    "path_loss_db",
    "round_j",
    "shadowing_db",
    "spectral_efficiency",
    "transmit_j",
    "uniform_in_disc",
    "whole_band_upload_s",
    "write_trace",
]

_look_up = lazy_names(
    "fedcell.world",
    {
        "fedcell.world.availability": "Always Availability AvailabilitySnapshot DayNight Trace parse_availability",
        "fedcell.world.cell": "Cell Channel Conditions PaperChannel parse_channel uniform_in_disc",
        "fedcell.world.channel": "believed_snr download_s fading_power link_snr"
        " loss_db mean_upload_s path_loss_db shadowing_db whole_band_upload_s",
        "fedcell.world.device": "Devices cmos_j compute_j draw_compute_s expected_compute_s round_j transmit_j",
        "fedcell.world.mobility": "Mobility RandomWaypoint Redrawn Static parse_mobility",
        "fedcell.world.rates": "Mcs256 Mcs64 Shannon parse_rate spectral_efficiency",
        "fedcell.world.snr_trace": "SnrTrace write_trace",
        "fedcell.world.tr38901": "RMa UMa UMi",
        "fedcell.world.world": "World",
    },
)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "Attendance":
            warnings.warn("Attendance is called AvailabilitySnapshot; write that", DeprecationWarning, stacklevel=2)
            name = "AvailabilitySnapshot"
        return _look_up(name)
