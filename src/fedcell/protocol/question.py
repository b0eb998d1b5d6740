"""A question to devices as a plan: the work it takes, and a few bits to send."""

from dataclasses import replace

import numpy as np

from fedcell.errors import InputError
from fedcell.quantisation import upload_bits
from fedcell.schedule.bandwidth import allocate
from fedcell.schedule.plan import Links, Plan, Question, Times
from fedcell.schedule.view import RoundView
from fedcell.types import Floats

ANSWER_BITS = 32
"""The size of an answer: one number."""
FORWARD = 1.0 / 3.0
"""What evaluating a sample takes of training on it: the forward pass, of a forward and twice as long a backward one."""


def samples_visited(samples: int, epochs: float) -> int:
    """How many samples a device with so many goes through in a round; at least one."""
    return max(min(samples, 1), round(epochs * samples))


def answer_links(links: Times) -> Links:
    """Return the times for answers: so few bits share what carries them as in the paper's band, whatever the law.

    There may be more devices than resource blocks, and no answer needs one of its own.
    """
    if links.weights is None:
        raise InputError("how long answers take is not known; give the view weights, the size of a model")
    part = ANSWER_BITS / upload_bits(links.weights, links.tensors, links.bits)
    return Links(part * links.upload_s, links.compute_s, epochs=links.epochs)


def question_plan(question: Question, view: RoundView, samples: Floats) -> Plan:
    """Return what the devices do for an answer, which they send all at once with optimal shares.

    For a loss they evaluate the model, for the length of an update they train.

    Args:
        question: of the policy.
        view: what the server expects of the M devices.
        samples: (M,) how many samples each has; NaN where that is not known.
    """
    n = question.devices.size
    starts_s = None if view.downlink is None else view.downlink.starts_s(question.devices)
    epochs = None if question.about == "norm" else view.epochs * _work(question, samples, view.epochs)
    plan = Plan(question.devices, np.ones(n), 0.0, starts_s, epochs)
    training_s, sending_s = plan.seconds(answer_links(view))
    ready_s = training_s if starts_s is None else starts_s + training_s
    plan = replace(plan, shares=allocate(sending_s, ready_s).shares)
    return replace(plan, round_s=float(plan.timing(answer_links(view)).finish_s.max()))


def _work(question: Question, samples: Floats, epochs: float) -> Floats:
    """(n,) what evaluating the model takes of a device's training."""
    have = samples[question.devices]
    some = have if question.samples is None else np.minimum(have, question.samples)
    trained = np.array([1 if np.isnan(n) else samples_visited(int(n), epochs) for n in have])
    return np.where(np.isnan(have), FORWARD, FORWARD * some / np.maximum(trained, 1))
