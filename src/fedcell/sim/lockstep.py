"""Several runs advance together, a round each, so that one call trains the clients of all of them.

A round has eight clients or so, a GPU room for hundreds. A run's result does not depend on its company with the mlp
engines, on a CPU or a GPU; with the torch engine it does, by rounding, for the size of a stack decides how products are
summed.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from fedcell.learn.engine import Engine, Evaluation
from fedcell.sim.loop import Played, Simulation, State

Outcome = Played | Exception | None
"""A round, why it failed, or None where the run had ended."""


def step_together(runs: Sequence[tuple[Simulation, State]]) -> list[Outcome]:
    """Play one round of every run.

    Args:
        runs: each with its state; those with the same engine are trained and evaluated by one call.

    Returns:
        For each run its round and the state after it, None if it had ended, or the exception that it raised.
    """
    outcomes: list[Outcome] = [None] * len(runs)
    rounds = [run.playing(state) for run, state in runs]
    jobs, models, nothing = dict[int, Any](), dict[int, Any](), dict[int, Any]()
    for number, playing in enumerate(rounds):
        _go_on(number, playing, None, jobs, outcomes)
    for engine, numbers in _by_engine(runs, jobs):
        for number, updates in _all_or_each(partial(_updates, engine), numbers, jobs, outcomes):
            _go_on(number, rounds[number], updates, models, outcomes)
    for engine, numbers in _by_engine(runs, models):
        for number, result in _all_or_each(partial(_evaluations, engine), numbers, models, outcomes):
            _go_on(number, rounds[number], result, nothing, outcomes)
    return outcomes


def _go_on(number: int, playing: Any, answer: Any, asked: dict[int, Any], outcomes: list[Outcome]) -> None:
    """Give a round what it asked for, and let it play until it asks for something else, ends or fails."""
    try:
        asked[number] = playing.send(answer)
    except StopIteration as end:
        outcomes[number] = end.value
    except Exception as error:  # whatever a user's own policy raises: it is this run's
        outcomes[number] = error


def _by_engine(runs: Sequence[tuple[Simulation, State]], asked: dict[int, Any]) -> list[tuple[Engine, list[int]]]:
    engines = {id(runs[number][0].task.engine): runs[number][0].task.engine for number in asked}
    return [(engine, [n for n in asked if runs[n][0].task.engine is engine]) for engine in engines.values()]


def _all_or_each(
    call: Callable[[list[Any]], list[Any]], numbers: list[int], asked: dict[int, Any], outcomes: list[Outcome]
) -> Generator[tuple[int, Any]]:
    """What was asked for, by one call; if it fails, by one for each run, so that only the guilty one fails."""
    try:
        found = call([asked[number] for number in numbers])
    except Exception:
        for number in numbers:
            try:
                [one] = call([asked[number]])
            except Exception as error:
                outcomes[number] = error
            else:
                yield number, one
    else:
        yield from zip(numbers, found, strict=True)


def _updates(engine: Engine, asked: list[Any]) -> list[Any]:
    updates = engine.update([job for jobs in asked for job in jobs])
    edges = accumulate((len(jobs) for jobs in asked), initial=0)
    return [updates.part(first, last) for first, last in pairwise(edges)]


def _evaluations(engine: Engine, asked: list[Any]) -> list[Any]:
    result = engine.evaluate(np.stack(asked))
    pairs = zip(result.accuracy, result.loss, strict=True)
    return [Evaluation(np.array([accuracy]), np.array([loss])) for accuracy, loss in pairs]
