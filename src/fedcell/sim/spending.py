"""What the devices of a simulated cell spend in a round, and who has enough left for it."""

import numpy as np

from fedcell.schedule.bandwidth import Bools
from fedcell.schedule.laws import Law
from fedcell.schedule.needs import Floats
from fedcell.schedule.policy import Plan
from fedcell.schedule.view import RoundView
from fedcell.sim.estimates import SHORTEST_S
from fedcell.sim.turnout import Turnout
from fedcell.world import Conditions, World, compute_j, round_j, transmit_j


def expected_j(view: RoundView, world: World) -> Floats:
    """(n,) what the devices of the view would spend in the round, in joules, by the times in the view."""
    compute_s, upload_s = np.zeros((2, len(world.devices)))
    compute_s[view.ids], upload_s[view.ids] = view.compute_s, view.upload_s
    return round_j(world.cell, world.devices, compute_s, upload_s)[view.ids]


def true_j(plan: Plan, world: World, conditions: Conditions, law: Law, went: Turnout) -> tuple[Floats, Floats]:
    """(n,) and (n,): what the scheduled devices really spend on training and on sending, in joules.

    A device that is stopped has spent what it got done by then.
    """
    devices, scheduled = world.devices, plan.devices
    worked, compute_s = went.worked, conditions.compute_s[scheduled]
    trained_s = worked.began_s if went.starts_s is None else np.maximum(worked.began_s - went.starts_s, 0.0)
    trained = np.where(trained_s < compute_s, trained_s / np.maximum(compute_s, SHORTEST_S), 1.0)
    on_air_s = worked.finish_s - worked.began_s
    parts = law.take(scheduled).power_parts(conditions.upload_s[scheduled], plan.shares)
    sending_j = transmit_j(devices.power_w_per_hz[scheduled], world.cell.bandwidth_hz, parts, on_air_s)
    return trained * compute_j(devices, conditions.compute_s)[scheduled], sending_j


def can_pay(conditions: Conditions, world: World, spent_j: Floats) -> Bools:
    """Which devices have enough left in their batteries for this round's training and upload.

    Args:
        conditions: of the round, whatever the server believes.
        world: its devices have batteries.
        spent_j: (M,) the joules that each device has spent.

    Returns:
        (M,) booleans.
    """
    assert world.devices.battery_j is not None
    cost_j = round_j(world.cell, world.devices, conditions.compute_s, conditions.upload_s)
    enough: Bools = world.devices.battery_j - spent_j >= cost_j
    return enough
