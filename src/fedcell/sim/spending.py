"""What the devices of a simulated cell spend in a round, and who has enough left for it."""

from __future__ import annotations  # what only types name is not imported

from typing import TYPE_CHECKING

import numpy as np

from fedcell.protocol import MIN_SECONDS
from fedcell.schedule.plan import Timing
from fedcell.types import Bools, Floats, Indices
from fedcell.world import compute_j, round_j, transmit_j

if TYPE_CHECKING:
    from fedcell.world import Conditions, World


def expected_j(world: World, devices: Indices, upload_s: Floats, compute_s: Floats) -> Floats:
    """(n,) what these devices would spend in a round, in joules, if training and upload took so long."""
    if devices.size == len(world.devices):
        return round_j(world.cell, world.devices, compute_s, upload_s)
    t, c = np.zeros((2, len(world.devices)))
    t[devices], c[devices] = compute_s, upload_s
    return round_j(world.cell, world.devices, t, c)[devices]


def compute_and_send_j(
    devices: Indices,
    parts: Floats,
    world: World,
    conditions: Conditions,
    active: Timing,
    starts_s: Floats | None,
    work: Floats | float = 1.0,
) -> tuple[Floats, Floats]:
    """(n,) and (n,): what devices spend on computing and on sending, in joules.

    A device that is stopped has spent what it got done by then.

    Args:
        devices: (n,) their numbers.
        parts: (n,) the part of the band that each fills with its power.
        world: its cell and devices.
        conditions: of the round.
        active: when each began to send and was stopped.
        starts_s: (n,) when each had the model; None if at once.
        work: (n,) what each computes, as a part of a round's training.
    """
    work_s = work * conditions.compute_s[devices]
    computed_s = active.began_s if starts_s is None else np.maximum(active.began_s - starts_s, 0.0)
    done = np.where(computed_s < work_s, computed_s / np.maximum(work_s, MIN_SECONDS), 1.0)
    on_air_s = active.finish_s - active.began_s
    sending_j = transmit_j(world.devices.power_w_per_hz[devices], world.cell.bandwidth_hz, parts, on_air_s)
    return done * work * compute_j(world.devices, conditions.compute_s)[devices], sending_j


def has_energy_for(conditions: Conditions, world: World, spent_j: Floats) -> tuple[Bools, Bools]:
    """Which devices have enough left in their batteries for this round's training and upload.

    A device that has no rate in this round cannot upload; its battery may be good for a later one.

    Args:
        conditions: of the round, whatever the server believes.
        world: its devices have batteries.
        spent_j: (M,) the joules that each device has spent.

    Returns:
        (M,) booleans: who can pay in this round; and who has no rate in it, but enough left to train in another.
    """
    assert world.devices.battery_j is not None
    left_j = world.devices.battery_j - spent_j
    enough: Bools = left_j >= round_j(world.cell, world.devices, conditions.compute_s, conditions.upload_s)
    trains: Bools = left_j >= compute_j(world.devices, conditions.compute_s)
    return enough, trains & np.isinf(conditions.upload_s)
