"""What the devices of a simulated cell spend in a round, and who has enough left for it."""

import numpy as np

from fedcell.protocol.estimates import SHORTEST_S
from fedcell.protocol.outcome import Turnout
from fedcell.schedule.laws import Law
from fedcell.schedule.plan import Plan
from fedcell.schedule.view import RoundView
from fedcell.types import Bools, Floats, Indices
from fedcell.world import Conditions, World, compute_j, round_j, transmit_j


def expected_j(view: RoundView, world: World) -> Floats:
    """(n,) what the devices of the view would spend in the round, in joules, by the times in the view."""
    compute_s, upload_s = np.zeros((2, len(world.devices)))
    compute_s[view.ids], upload_s[view.ids] = view.compute_s, view.upload_s
    return round_j(world.cell, world.devices, compute_s, upload_s)[view.ids]


def true_j(
    plan: Plan, world: World, conditions: Conditions, law: Law, went: Turnout, work: Floats | float = 1.0
) -> tuple[Floats, Floats]:
    """(n,) and (n,): what the scheduled devices really spend on training and on sending, in joules.

    A device that is stopped has spent what it got done by then; ``work`` as in `worked_j`.
    """
    parts = law.take(plan.devices).power_parts(conditions.upload_s[plan.devices], plan.shares)
    return worked_j(plan.devices, parts, world, conditions, went, work)


def worked_j(
    who: Indices, parts: Floats, world: World, conditions: Conditions, went: Turnout, work: Floats | float = 1.0
) -> tuple[Floats, Floats]:
    """(n,) and (n,): what devices spend on computing and on sending, in joules.

    Args:
        who: (n,) the devices.
        parts: (n,) the part of the band that each fills with its power.
        world: its cell and devices.
        conditions: of the round.
        went: when each began to send and was stopped.
        work: (n,) what each computes, as a part of a round's training.
    """
    worked, work_s = went.worked, work * conditions.compute_s[who]
    computed_s = worked.began_s if went.starts_s is None else np.maximum(worked.began_s - went.starts_s, 0.0)
    done = np.where(computed_s < work_s, computed_s / np.maximum(work_s, SHORTEST_S), 1.0)
    on_air_s = worked.finish_s - worked.began_s
    sending_j = transmit_j(world.devices.power_w_per_hz[who], world.cell.bandwidth_hz, parts, on_air_s)
    return done * work * compute_j(world.devices, conditions.compute_s)[who], sending_j


def can_pay(conditions: Conditions, world: World, spent_j: Floats) -> tuple[Bools, Bools]:
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
