"""What a worker does: a slice of some runs, from their states to later ones."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from fedcell.errors import InputError
from fedcell.schedule.policy import Policy
from fedcell.sim.loop import Simulation
from fedcell.sim.record import RoundRecord
from fedcell.sim.requests import step_together
from fedcell.sim.spec import parse_spec
from fedcell.sim.state import State
from fedcell.types import Vector


@dataclass(frozen=True, eq=False)
class InProcess:
    """What the driver has already, for workers that are threads of its process: what they run is what it asked for.

    Attributes:
        policy: the run's.
        code: of the policy and the model, as Spec.key takes it.
    """

    policy: Policy
    code: str


@dataclass(frozen=True, eq=False)
class Slice:
    """A run for a worker to advance.

    Attributes:
        key: the run's.
        text: its spec as JSON.
        state: where it goes on; None at the start.
        wants_model: whether the final model is to be handed over.
        together: whether it advances in step with those beside it, as on a GPU.
        shared: what the driver has of it; None for a worker in another process.
    """

    key: str
    text: str
    state: State | None
    wants_model: bool = False
    together: bool = False
    shared: InProcess | None = None


@dataclass(frozen=True, eq=False)
class Advance:
    """How far a worker got with a run.

    Attributes:
        key: the run's.
        records: the rounds played.
        state: where it goes on; None if the run has ended.
        reason: why it failed; empty otherwise.
        duration_s: how long it took.
        model: (P,) the final one, if the run has ended and it was asked for.
    """

    key: str
    records: list[RoundRecord]
    state: State | None
    reason: str
    duration_s: float
    model: Vector | None = None


def advance(slices: Sequence[Slice], slice_s: float, threads: int, whole: bool) -> list[Advance]:
    """In a worker: play rounds until the time is used up.

    Args:
        slices: runs, of which at least the first is advanced by a round.
        slice_s: seconds to spend.
        threads: for training.
        whole: whether runs are always played to their end.

    Returns:
        Of the runs that were begun, how far they got; the last may not have ended.
    """
    end_s, found = time.perf_counter() + slice_s, list[Advance]()
    if any(one.together for one in slices):
        return _advance_together(slices, float("inf") if whole else end_s, threads)
    for one in slices:
        found.append(_advance(one, float("inf") if whole else end_s, threads))
        if time.perf_counter() > end_s:
            break
    return found


def _advance(one: Slice, end_s: float, threads: int) -> Advance:
    began_s, records = time.perf_counter(), list[RoundRecord]()
    try:
        run = _simulation(one.key, one.text, threads, one.shared)
        state = run.start() if one.state is None else one.state
        while (played := run.step(state)) is not None:
            record, state = played
            records.append(record)
            if time.perf_counter() > end_s:
                return Advance(one.key, records, state, "", time.perf_counter() - began_s)
        model = run.evaluated_model(state) if one.wants_model else None
        return Advance(one.key, records, None, "", time.perf_counter() - began_s, model)
    except Exception as error:  # whatever a user's own policy or model raises
        return Advance(one.key, records, None, reason_of(error), time.perf_counter() - began_s)


def _advance_together(slices: Sequence[Slice], end_s: float, threads: int) -> list[Advance]:
    """All runs, a round each, until the time is used up."""
    began_s, records, ended = time.perf_counter(), [list[RoundRecord]() for _ in slices], dict[int, str]()
    live, runs = dict[int, tuple[Simulation, State]](), dict[int, Simulation]()
    for number, one in enumerate(slices):
        try:
            run = _simulation(one.key, one.text, threads, one.shared)
            runs[number] = run
            live[number] = run, run.start() if one.state is None else one.state
        except Exception as error:
            ended[number] = reason_of(error)
    last = {number: state for number, (_, state) in live.items()}
    while live:
        for number, played in zip(list(live), step_together(list(live.values())), strict=True):
            if played is None or isinstance(played, Exception):
                ended[number] = reason_of(played) if played is not None else ""
                del live[number]
                continue
            record, last[number] = played
            live[number] = live[number][0], last[number]
            records[number].append(record)
        if time.perf_counter() > end_s:
            break
    share_s = (time.perf_counter() - began_s) / len(slices)
    found = []
    for number, one in enumerate(slices):
        done, reason = number in ended, ended.get(number, "")
        model = runs[number].evaluated_model(last[number]) if done and not reason and one.wants_model else None
        found.append(Advance(one.key, records[number], None if done else last[number], reason, share_s, model))
    return found


@lru_cache(maxsize=128)  # the runs of a race take turns
def _simulation(key: str, text: str, threads: int, shared: InProcess | None) -> Simulation:
    spec = parse_spec(json.loads(text), "the run")
    if spec.key(None if shared is None else shared.code) != key:
        raise InputError(
            "the worker's fedcell, your own module or its copy of task.data differs from the driver's; make them equal"
        )
    loaded = Simulation.load(spec, threads)
    return loaded if shared is None else replace(loaded, policy=shared.policy)


def reason_of(error: BaseException) -> str:
    """Why a run failed, in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"[:500]
