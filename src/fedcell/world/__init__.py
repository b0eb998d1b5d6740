"""What is physically there: the cell, its devices, the channel, the compute times and the motion."""

from fedcell.world.availability import Always, Attendance, Availability, DayNight, Trace, parse_availability
from fedcell.world.cell import Cell, Conditions, Devices, PaperChannel, parse_channel, uniform_in_disc
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
from fedcell.world.device import cmos_j, compute_j, draw_compute_s, expected_compute_s, round_j, transmit_j
from fedcell.world.mobility import Mobility, RandomWaypoint, Redrawn, Static, parse_mobility
from fedcell.world.rates import Mcs64, Mcs256, Shannon, parse_rate, spectral_efficiency
from fedcell.world.snr_trace import SnrTrace, write_trace
from fedcell.world.tr38901 import RMa, UMa, UMi
from fedcell.world.world import World

__all__ = [
    "Always",
    "Attendance",
    "Availability",
    "Cell",
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
