"""What a round asks of an engine while it is played (to train, for losses, to evaluate), for one run or many at once.

A round is a generator of requests, so that one call trains the clients of all runs: a round has eight clients or so, a
GPU room for hundreds. A run's result does not depend on its company with the mlp engines, on a CPU or a GPU; with the
torch engine it does, by rounding, for the size of a stack decides how products are summed.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedcell.learn.engine import Engine, Evaluation, Job
from fedcell.types import Vector

if TYPE_CHECKING:
    from fedcell.sim.loop import Simulation, Step
    from fedcell.sim.state import State

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
EngineCoroutine = Generator[Request, Any, T]
"""Something that is played, asks an engine for what it needs, and ends with a T."""


def answers(engine: Engine, requests: Sequence[Any]) -> list[Any]:
    """The engine's answers to requests of one kind (all Train, all Losses or all Evaluate), by one call."""
    if isinstance(requests[0], Evaluate):
        if len(requests) == 1:
            return [engine.evaluate(requests[0].model[np.newaxis])]
        result = engine.evaluate(np.stack([request.model for request in requests]))
        pairs = zip(result.accuracy, result.loss, strict=True)
        return [Evaluation(np.array([accuracy]), np.array([loss])) for accuracy, loss in pairs]
    jobs = [job for request in requests for job in request.jobs]
    edges = pairwise(accumulate((len(request.jobs) for request in requests), initial=0))
    if isinstance(requests[0], Losses):
        losses = engine.losses(jobs)
        return [losses[first:last] for first, last in edges]
    updates = engine.update(jobs)
    if len(requests) == 1:
        return [updates]
    return [updates.take(slice(first, last)) for first, last in edges]


def run_coroutine(engine: Engine, coroutine: EngineCoroutine[T]) -> T:
    """Play to the end with one engine."""
    answer = None
    while True:
        try:
            request = coroutine.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        [answer] = answers(engine, [request])


def step_together(runs: "Sequence[tuple[Simulation, State]]") -> "list[Step | Exception | None]":
    """Play one round of every run.

    Args:
        runs: each with its state; those with the same engine are trained and evaluated by one call.

    Returns:
        For each run its round and the state after it, None if it had ended, or the exception that it raised.
    """
    outcomes: list[Any] = [None] * len(runs)
    rounds = [run.round_coroutine(state) for run, state in runs]
    asked = dict[int, Request]()
    for number, coroutine in enumerate(rounds):
        _go_on(number, coroutine, None, asked, outcomes)
    while asked:
        requests, asked = asked, {}
        for engine, numbers in _alike(runs, requests):
            for number, answer in _all_or_each(engine, numbers, requests, outcomes):
                _go_on(number, rounds[number], answer, asked, outcomes)
    return outcomes


def _go_on(
    number: int, coroutine: EngineCoroutine["Step | None"], answer: Any, asked: dict[int, Request], outcomes: list[Any]
) -> None:
    """Give a round what it asked for, and let it play until it asks for something else, ends or fails."""
    try:
        asked[number] = coroutine.send(answer)
    except StopIteration as end:
        outcomes[number] = end.value
    except Exception as error:  # whatever a user's own policy raises: it is this run's
        outcomes[number] = error


def _alike(runs: "Sequence[tuple[Simulation, State]]", requests: dict[int, Request]) -> list[tuple[Engine, list[int]]]:
    """The requests that one call of an engine can answer."""
    groups = dict[tuple[int, type], tuple[Engine, list[int]]]()
    for number, request in requests.items():
        engine = runs[number][0].task.engine
        groups.setdefault((id(engine), type(request)), (engine, []))[1].append(number)
    return list(groups.values())


def _all_or_each(
    engine: Engine, numbers: list[int], requests: dict[int, Request], outcomes: list[Any]
) -> Generator[tuple[int, Any]]:
    """What was asked for, by one call; if it fails, by one for each run, so that only the guilty one fails."""
    try:
        found = answers(engine, [requests[number] for number in numbers])
    except Exception:
        for number in numbers:
            try:
                [one] = answers(engine, [requests[number]])
            except Exception as error:
                outcomes[number] = error
            else:
                yield number, one
    else:
        yield from zip(numbers, found, strict=True)
