"""What is physically there: the cell, its devices, the channel, the compute times and the motion."""

from fedcell.world.cell import Cell, Conditions, Devices, uniform_in_disc
from fedcell.world.channel import (
    fading_power,
    link_snr,
    mean_upload_s,
    path_loss_db,
    shadowing_db,
    spectral_efficiency,
    whole_band_upload_s,
)
from fedcell.world.compute import draw_compute_s, expected_compute_s
from fedcell.world.energy import cmos_j, compute_j, round_j, transmit_j
from fedcell.world.mobility import Mobility, RandomWaypoint, Redrawn, Static, parse_mobility
from fedcell.world.presence import Always, Attendance, Availability, DayNight, parse_availability
from fedcell.world.world import World

__all__ = [
    "Always",
    "Attendance",
    "Availability",
    "Cell",
    "Conditions",
    "DayNight",
    "Devices",
    "Mobility",
    "RandomWaypoint",
    "Redrawn",
    "Static",
    "World",
    "cmos_j",
    "compute_j",
    "draw_compute_s",
    "expected_compute_s",
    "fading_power",
    "link_snr",
    "mean_upload_s",
    "parse_availability",
    "parse_mobility",
    "path_loss_db",
    "round_j",
    "shadowing_db",
    "spectral_efficiency",
    "transmit_j",
    "uniform_in_disc",
    "whole_band_upload_s",
]
