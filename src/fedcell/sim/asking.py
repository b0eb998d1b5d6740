"""The first stage of a round with a policy that asks before it decides.

The devices that are asked get the model, evaluate it or train, and send one number of 32 bits each, all at once with
optimal shares of the band. Whoever leaves, or is late beyond the slack, has not answered. What is decided then begins
when the last answer is in.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedcell.learn.engine import Job, Updates
from fedcell.rng import keyed
from fedcell.schedule.bandwidth import allocate
from fedcell.schedule.policy import Question
from fedcell.schedule.view import RoundView
from fedcell.sim.heard import Timing
from fedcell.sim.knowledge import Look
from fedcell.sim.profiles import BITS_PER_ENTRY
from fedcell.sim.requests import Losses, Playing, Train
from fedcell.sim.spending import worked_j
from fedcell.sim.turnout import Turnout, turnout
from fedcell.types import Floats, Indices
from fedcell.world import Conditions

if TYPE_CHECKING:
    from fedcell.sim.loop import Simulation
    from fedcell.sim.state import State

FORWARD = 1.0 / 3.0
"""What evaluating a sample takes of training on it: the forward pass, of a forward and twice as long a backward one."""


@dataclass(frozen=True, eq=False)
class Scene:
    """What a round is decided on.

    Attributes:
        view: what the policy sees, of n devices.
        look: what was known of them in advance.
        conditions: what holds; the n devices are those that are ``there``.
        waited_s: when all answers were in, in seconds from the start of the round; 0 if nothing was asked.
        places: (n,) the devices' indices in the view before the question.
        asked_j: (M,) what the answers cost each device, in joules.
        trained: the updates of the n devices, if they had to train for their answers.
    """

    view: RoundView
    look: Look
    conditions: Conditions
    waited_s: float
    places: Indices
    asked_j: Floats
    trained: Updates | None = None


def asking(run: "Simulation", state: "State", scene: Scene, question: Question) -> Playing[Scene]:
    """Ask; what comes back is the scene of the devices that answered, when they all have."""
    view, devices = scene.view, scene.conditions.there[question.devices]
    went, asked_j = first_stage(run, state, scene, question)
    who, places = devices[went.delivered], question.devices[went.delivered]
    mask = np.zeros(asked_j.size, np.bool_)
    mask[who] = True
    conditions = scene.conditions.among(mask)
    look = Look(scene.look.upload_s[places], scene.look.compute_s[places], scene.look.law.take(places))
    trained = None
    if places.size == 0:
        return Scene(view, look, conditions, went.round_s, places, asked_j)
    if question.about == "norm":
        trained = yield Train(run.jobs(state, who))
        answered = view.answered(places, went.round_s, norms=trained.norms())
        conditions = replace(conditions, compute_s=np.zeros(mask.size))
    else:
        draw = keyed(run.spec.seed, "poll", state.round)
        orders = [
            part if question.samples is None else draw(int(i)).permutation(part)[: question.samples]
            for i, part in ((i, run.task.parts[i]) for i in who)
        ]
        losses = yield Losses([Job(state.model, order[np.newaxis]) for order in orders])
        answered = view.answered(places, went.round_s, losses=losses)
    return Scene(answered, look, conditions, went.round_s, places, asked_j, trained)


def first_stage(run: "Simulation", state: "State", scene: Scene, question: Question) -> tuple[Turnout, Floats]:
    """Who answers when, and (M,) what it costs each device, in joules."""
    view, conditions, devices = scene.view, scene.conditions, scene.conditions.there[question.devices]
    work: Floats = np.ones(devices.size)
    if question.about == "loss":
        samples, visited = run.task.samples[devices], np.asarray(run.world.devices.samples)[devices]
        if question.samples is not None:
            samples = np.minimum(samples, question.samples)
        work = FORWARD * samples / np.maximum(visited, 1)

    # As the server expects it, and as it really is.
    small = BITS_PER_ENTRY / run.world.cell.model_bits
    waits_s = 0.0 if view.downlink is None else view.downlink.starts_s(question.devices)
    ready_s, sending_s = waits_s + work * view.compute_s[question.devices], small * view.upload_s[question.devices]
    shares = allocate(sending_s, ready_s).shares
    starts_s = run.starts_s(scene, question.devices)
    work_s = work * conditions.compute_s[devices]
    began_s = work_s if starts_s is None else starts_s + work_s
    timing = Timing(began_s, began_s + small * conditions.upload_s[devices] / shares)
    late_s, leaves_s = run.limits_s(state, scene, question.devices, ready_s + sending_s / shares)
    went = replace(turnout(timing, sending_s / shares, late_s, leaves_s), starts_s=starts_s)

    asked_j = np.zeros(conditions.compute_s.size)
    band = shares * state.late.band_left  # what late devices of the last round still use is not theirs
    asked_j[devices] = sum(worked_j(devices, band, run.world, conditions, went, work))
    return went, asked_j
