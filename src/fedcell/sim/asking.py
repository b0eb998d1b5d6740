"""The first stage of a round with a policy that asks before it decides.

The devices that are asked get the model, evaluate it or train, and send one number of 32 bits each, all at once with
optimal shares of the band. Whoever leaves, or is late beyond the slack, has not answered. What is decided then begins
when the last answer is in.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcell.learn.engine import Job, Updates
from fedcell.protocol.outcome import Turnout, turnout
from fedcell.rng import keyed
from fedcell.schedule.bandwidth import allocate
from fedcell.schedule.plan import Links, Plan, Question, Times
from fedcell.schedule.view import RoundView
from fedcell.sim.profiles import BITS_PER_ENTRY
from fedcell.sim.requests import Losses, Playing, Train
from fedcell.sim.spending import worked_j
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
    look: Links
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
    look = Links(scene.look.upload_s[places], scene.look.compute_s[places], scene.look.law.take(places))
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


def answering(links: Times) -> Links:
    """The same times for answers: so few bits share what carries them as in the paper's band, whatever the law."""
    return Links(links.upload_s, links.compute_s, epochs=links.epochs, model_bits=links.model_bits)


def as_plan(question: Question, view: RoundView, samples: NDArray[Any], epochs: float) -> Plan:
    """Return the question as a plan: what the devices do for an answer, which they send with optimal shares.

    Args:
        question: of the policy.
        view: what the server expects of the M devices.
        samples: (M,) how many samples each has; NaN where that is not known.
        epochs: how often a device goes through them when it trains.
    """
    work: Floats | None = None
    if question.about == "loss":
        have = np.asarray(samples[question.devices], np.float64)
        some = have if question.samples is None else np.minimum(have, question.samples)
        trained = np.array([1 if np.isnan(n) else visited(int(n), epochs) for n in have])
        work = np.where(np.isnan(have), FORWARD, FORWARD * some / np.maximum(trained, 1))
    starts_s = None if view.downlink is None else view.downlink.starts_s(question.devices)
    n = question.devices.size
    bits = np.full(n, float(BITS_PER_ENTRY))
    plan = Plan(question.devices, np.ones(n), 0.0, starts_s, None if work is None else work * view.epochs, bits)
    training_s, sending_s = plan.seconds(answering(view))
    shares = allocate(sending_s, training_s if starts_s is None else starts_s + training_s).shares
    plan = replace(plan, shares=shares)
    return replace(plan, round_s=float(plan.timing(answering(view)).finish_s.max()))


def visited(samples: int, epochs: float) -> int:
    """How many samples a device with so many goes through in a round; at least one."""
    return max(min(samples, 1), round(epochs * samples))


def first_stage(run: "Simulation", state: "State", scene: Scene, question: Question) -> tuple[Turnout, Floats]:
    """Who answers when, and (M,) what it costs each device, in joules."""
    view, conditions, devices = scene.view, scene.conditions, scene.conditions.there[question.devices]
    plan = as_plan(question, view, run.task.samples[conditions.there], run.spec.task.epochs)
    planned_s, (_, sending_s) = plan.timing(answering(view)).finish_s, plan.seconds(answering(view))
    held = replace(plan, starts_s=run.starts_s(scene, question.devices))
    timing = held.timing(answering(run.true_links(conditions)))
    late_s, leaves_s = run.limits_s(state, scene, question.devices, planned_s)
    went = replace(turnout(timing, sending_s, late_s, leaves_s), starts_s=held.starts_s)

    asked_j, work = np.zeros(conditions.compute_s.size), plan.work(view.epochs)
    band = plan.shares * state.late.band_left  # what late devices of the last round still use is not theirs
    asked_j[devices] = sum(worked_j(devices, band, run.world, conditions, went, 1.0 if work is None else work))
    return went, asked_j
