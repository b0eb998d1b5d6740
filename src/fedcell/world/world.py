"""The world of one run: a cell, its devices and how they move, drawn round by round."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcell.errors import require_number, require_whole
from fedcell.rng import stream
from fedcell.world.availability import AVAILABILITIES, PAUSE_S, Availability
from fedcell.world.cell import BoolArray, Cell, Conditions
from fedcell.world.channel import believed_snr, fading_power, mean_snr, outage_possible, whole_band_upload_s
from fedcell.world.device import Devices, draw_compute_s, expected_compute_s
from fedcell.world.mobility import MOBILITIES, Mobility

_AS_DEVICES_SAY: Any = None


@dataclass(frozen=True)
class World:
    """A cell, its devices, how they move and when they are there: what the conditions of a round are drawn from.

    Attributes:
        cell: the radio and the geometry; by default the paper's.
        devices: the M devices; by default the paper's 20.
        mobility: how they move, such as `Redrawn` (as in the paper), `Static` or `RandomWaypoint`; by default as the
            devices say.
        availability: when they are available, such as `Always` (as in the paper) or `DayNight`; by default as the
            devices say.
        upload: the part of ``cell.model_bits`` that a device uploads, for updates that are compressed.

    Example:
        >>> import fedcell as fc
        >>> world = fc.World(fc.Cell(radius_m=1000.0), fc.Devices(count=3), fc.Static())
        >>> first, second = world.conditions(seed=1, round_index=0), world.conditions(seed=1, round_index=1)
        >>> bool((first.upload_s == second.upload_s).all()), bool((first.compute_s == second.compute_s).all())
        (True, False)
    """

    cell: Cell = field(default_factory=Cell)
    devices: Devices = field(default_factory=Devices)
    mobility: Mobility = _AS_DEVICES_SAY
    availability: Availability = _AS_DEVICES_SAY
    upload: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", self.devices.over_band(self.cell.bandwidth_hz))
        if self.mobility is _AS_DEVICES_SAY:
            object.__setattr__(self, "mobility", MOBILITIES.parse(self.devices.mobility))
        if self.availability is _AS_DEVICES_SAY:
            object.__setattr__(self, "availability", AVAILABILITIES.parse(self.devices.availability))

    @property
    def upload_bits(self) -> float:
        """The size of an upload in bits; a download has ``cell.model_bits``."""
        return self.upload * self.cell.model_bits

    def conditions(self, seed: int, round_index: int = 0, clock_s: float = 0.0) -> Conditions:
        """Draw the conditions of one round, a pure function of the arguments.

        Positions, shadowing, fading, the error in the known SNR and compute times come from separate random streams, so
        turning one on does not change the others; a device's draws do not depend on how many devices follow it.

        Args:
            seed: the run's random seed, a nonnegative integer.
            round_index: the round, from 0; it selects the draws of fading, compute times and redrawn positions.
            clock_s: the time in seconds at which the round starts; it determines the positions of moving devices, and
                who is there.

        Returns:
            Conditions: positions, channels, upload and compute times of the M devices.
        """
        require_whole("round_index", round_index, least=0)
        require_number("clock_s", clock_s, least=0)
        cell, devices = self.cell, self.devices
        count = len(devices)
        positions_m = self.mobility.positions(cell, count, seed, round_index, clock_s)
        distance_m = np.hypot(positions_m[:, 0], positions_m[:, 1])
        snr = mean_snr(cell, devices.power_w_per_hz, positions_m, seed, clock_s)
        if cell.fading != "none":
            snr *= fading_power(cell, count, stream(seed, "fading", round_index))
        efficiency = cell.rate.efficiency(snr)
        linked = efficiency > 0 if outage_possible(cell) else None
        upload_s = self.upload * whole_band_upload_s(cell, efficiency, linked)
        believed, believed_s = snr, upload_s
        if cell.csi_error_db > 0:
            believed = believed_snr(cell, snr, stream(seed, "csi", round_index))
            hoped = cell.rate.efficiency(believed)
            linked = None if linked is None else linked & (hoped > 0)
            believed_s = self.upload * whole_band_upload_s(cell, hoped, linked)
        compute_s, mean_s = draw_compute_s(devices, stream(seed, "compute", round_index)), expected_compute_s(devices)
        attendance = self.availability.at(count, seed, clock_s)
        if attendance is not None and attendance.speed is not None:
            compute_s, mean_s = compute_s / attendance.speed, mean_s / attendance.speed
        return Conditions(
            positions_m=positions_m,
            distance_m=distance_m,
            snr=snr,
            spectral_efficiency=efficiency,
            upload_s=upload_s,
            compute_s=compute_s,
            expected_compute_s=mean_s,
            believed_snr=believed,
            believed_upload_s=believed_s,
            available=_both(linked, None if attendance is None else attendance.there),
            until_s=None if attendance is None else attendance.until_s,
        )

    def next_s(self, seed: int, clock_s: float) -> float:
        """Return when to look again after a look that found nobody available.

        Args:
            seed: the run's random seed.
            clock_s: the clock at that look, in seconds.

        Returns:
            The clock, in seconds, at which the next device comes, infinity if none will; a minute later if some are
            there already, and cannot be reached for another reason.
        """
        next_s = self.availability.next_s(len(self.devices), seed, clock_s)
        return next_s if next_s > clock_s else clock_s + PAUSE_S


def _both(linked: BoolArray | None, there: BoolArray | None) -> BoolArray | None:
    """(M,) who has a link and is there; None if nobody is missing."""
    if linked is None or linked.all():
        return there
    return linked if there is None else linked & there
