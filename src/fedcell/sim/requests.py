"""What a round asks of an engine while it is played: to train, for losses, or to evaluate.

A round is a generator of requests, so that one call can serve those of many runs; see lockstep.py.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np

from fedcell.learn.engine import Engine, Evaluation, Job
from fedcell.types import Vector

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Train:
    """Local training; the answer is Updates."""

    jobs: list[Job]


@dataclass(frozen=True, eq=False)
class Losses:
    """The losses of models on training samples; the answer is an array with one for each job."""

    jobs: list[Job]


@dataclass(frozen=True, eq=False)
class Evaluate:
    """A model (P,) on the test set; the answer is an Evaluation."""

    model: Vector


Request = Train | Losses | Evaluate
Playing = Generator[Request, Any, T]
"""Something that is played, asks an engine for what it needs, and ends with a T."""


def answers(engine: Engine, requests: Sequence[Any]) -> list[Any]:
    """The engine's answers to requests of one kind, by one call.

    Args:
        engine: of all of them.
        requests: all Train, all Losses or all Evaluate.
    """
    if isinstance(requests[0], Evaluate):
        result = engine.evaluate(np.stack([request.model for request in requests]))
        pairs = zip(result.accuracy, result.loss, strict=True)
        return [Evaluation(np.array([accuracy]), np.array([loss])) for accuracy, loss in pairs]
    jobs = [job for request in requests for job in request.jobs]
    edges = pairwise(accumulate((len(request.jobs) for request in requests), initial=0))
    if isinstance(requests[0], Losses):
        losses = engine.losses(jobs)
        return [losses[first:last] for first, last in edges]
    updates = engine.update(jobs)
    return [updates.take(slice(first, last)) for first, last in edges]


def played(engine: Engine, playing: Playing[T]) -> T:
    """Play to the end with one engine."""
    answer = None
    while True:
        try:
            request = playing.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        [answer] = answers(engine, [request])
