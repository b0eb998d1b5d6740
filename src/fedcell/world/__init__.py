"""What is physically there: the cell, its devices, the channel, the compute times and the motion."""

from typing import TYPE_CHECKING

from fedcell import lazy_names

if TYPE_CHECKING:
    from fedcell.world.availability import AVAILABILITIES, Always, AvailabilitySnapshot, DayNight, Trace
    from fedcell.world.cell import (
        CHANNELS,
        Cell,
        Channel,
        Conditions,
        Foresight,
        PaperChannel,
    )
    from fedcell.world.channel import (
        download_s,
        link_snr,
        loss_db,
        mean_upload_s,
        outage_possible,
        path_loss_db,
        unchecked_upload_s,
        whole_band_upload_s,
    )
    from fedcell.world.device import PAPER_POWER_W_PER_HZ, Devices, mean_compute_s
    from fedcell.world.energy import compute_j, round_j, transmit_j
    from fedcell.world.mobility import MOBILITIES, Mobility, RandomWaypoint, Redrawn, Static
    from fedcell.world.rates import RATES, Mcs64, Mcs256, Shannon
    from fedcell.world.snr_trace import SnrTrace, write_trace
    from fedcell.world.tr38901 import RMa, UMa, UMi
    from fedcell.world.world import World

__all__ = [
    "AVAILABILITIES",
    "CHANNELS",
    "MOBILITIES",
    "PAPER_POWER_W_PER_HZ",
    "RATES",
    "Always",
    "AvailabilitySnapshot",
    "Cell",
    "Channel",
    "Conditions",
    "DayNight",
    "Devices",
    "Foresight",
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
    "compute_j",
    "download_s",
    "link_snr",
    "loss_db",
    "mean_compute_s",
    "mean_upload_s",
    "outage_possible",
    "path_loss_db",
    "round_j",
    "transmit_j",
    "unchecked_upload_s",
    "whole_band_upload_s",
    "write_trace",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        "fedcell.world",
        {
            "fedcell.world.availability": "AVAILABILITIES Always AvailabilitySnapshot DayNight Trace",
            "fedcell.world.cell": "CHANNELS Cell Channel Conditions Foresight PaperChannel",
            "fedcell.world.channel": "download_s link_snr loss_db outage_possible mean_upload_s path_loss_db "
            "unchecked_upload_s whole_band_upload_s",
            "fedcell.world.device": "Devices PAPER_POWER_W_PER_HZ mean_compute_s",
            "fedcell.world.energy": "compute_j round_j transmit_j",
            "fedcell.world.mobility": "MOBILITIES Mobility RandomWaypoint Redrawn Static",
            "fedcell.world.rates": "Mcs256 Mcs64 RATES Shannon",
            "fedcell.world.snr_trace": "SnrTrace write_trace",
            "fedcell.world.tr38901": "RMa UMa UMi",
            "fedcell.world.world": "World",
        },
        {
            "Attendance": "AvailabilitySnapshot",
            "Availability": "fedcell.world.availability:Availability",
            "believed_snr": "fedcell.world.channel:believed_snr",
            "cmos_j": "fedcell.world.energy:cmos_j",
            "draw_compute_s": "fedcell.world.device:draw_compute_s",
            "expected_compute_s": "fedcell.world.device:expected_compute_s",
            "fading_power": "fedcell.world.channel:fading_power",
            "may_lack_rate": "outage_possible",
            "parse_availability": "AVAILABILITIES.parse",
            "parse_channel": "CHANNELS.parse",
            "parse_mobility": "MOBILITIES.parse",
            "parse_rate": "RATES.parse",
            "shadowing_db": "fedcell.world.channel:shadowing_db",
            "spectral_efficiency": "fedcell.world.rates:spectral_efficiency",
            "uniform_in_disc": "fedcell.world.cell:uniform_in_disc",
        },
    )
