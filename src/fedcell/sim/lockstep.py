"""Several runs advance together, a round each, so that one call trains the clients of all of them.

A round has eight clients or so, a GPU room for hundreds. A run's result does not depend on its company with the mlp
engines, on a CPU or a GPU; with the torch engine it does, by rounding, for the size of a stack decides how products are
summed.
"""

from collections.abc import Generator, Sequence
from typing import Any

from fedcell.learn.engine import Engine
from fedcell.sim.loop import Played, Simulation
from fedcell.sim.requests import Playing, Request, answers
from fedcell.sim.state import State

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
    asked = dict[int, Request]()
    for number, playing in enumerate(rounds):
        _go_on(number, playing, None, asked, outcomes)
    while asked:
        requests, asked = asked, {}
        for engine, numbers in _alike(runs, requests):
            for number, answer in _all_or_each(engine, numbers, requests, outcomes):
                _go_on(number, rounds[number], answer, asked, outcomes)
    return outcomes


def _go_on(
    number: int, playing: Playing[Played | None], answer: Any, asked: dict[int, Request], outcomes: list[Outcome]
) -> None:
    """Give a round what it asked for, and let it play until it asks for something else, ends or fails."""
    try:
        asked[number] = playing.send(answer)
    except StopIteration as end:
        outcomes[number] = end.value
    except Exception as error:  # whatever a user's own policy raises: it is this run's
        outcomes[number] = error


def _alike(runs: Sequence[tuple[Simulation, State]], requests: dict[int, Request]) -> list[tuple[Engine, list[int]]]:
    """The requests that one call of an engine can answer."""
    groups = dict[tuple[int, type], tuple[Engine, list[int]]]()
    for number, request in requests.items():
        engine = runs[number][0].task.engine
        groups.setdefault((id(engine), type(request)), (engine, []))[1].append(number)
    return list(groups.values())


def _all_or_each(
    engine: Engine, numbers: list[int], requests: dict[int, Request], outcomes: list[Outcome]
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
