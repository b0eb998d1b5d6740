"""Runs that advance together are the runs that advance alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell import sim
from fedcell.runs.store import Store
from fedcell.sim.loop import Simulation
from fedcell.sim.requests import run_coroutine, step_together
from fedcell.sim.state import State
from fedcell.sim.task import resolve_device

SMALL: dict[str, Any] = {"hidden": [4], "sizes": [120] * 20}


def spec_of(policy: str, seed: int = 0, **task: Any) -> fc.Spec:
    return fc.Spec(policy=policy, seed=seed, rounds=3, task=fc.TaskSpec(**{**SMALL, **task}))


def told(record: fc.RoundRecord) -> tuple[Any, ...]:
    return record.round, record.clock_s, record.delivered.tolist(), record.accuracy, record.loss


def together(specs: list[fc.Spec]) -> list[list[Any]]:
    runs = [Simulation.load(spec) for spec in specs]
    states: list[State | None] = [run.start() for run in runs]
    found: list[list[Any]] = [[] for _ in specs]
    while any(state is not None for state in states):
        live = [number for number, state in enumerate(states) if state is not None]
        pairs = [(runs[number], state) for number, state in enumerate(states) if state is not None]
        for number, played in zip(live, step_together(pairs), strict=True):
            if played is None or isinstance(played, Exception):
                states[number] = None
                found[number].append(played)
            else:
                found[number].append(told(played[0]))
                states[number] = played[1]
    return found


def test_together_as_alone_bit_for_bit() -> None:
    specs = [spec_of("greedy"), spec_of("random:k=3", 1), spec_of("greedy", 1, hidden=[5]), spec_of("diverse")]
    specs[1] = specs[1].changed({"rounds": 1})  # one ends before the others
    for spec, found in zip(specs, together(specs), strict=True):
        assert found == [*(told(record) for record in fc.simulate(spec)), None]


def test_a_run_that_fails_leaves_the_others_alone() -> None:
    specs = [spec_of("greedy"), spec_of("random:k=25"), spec_of("random:k=2")]
    first, second, third = together(specs)
    assert [len(first), len(third)] == [4, 4]
    assert isinstance(second[0], fc.InputError)
    assert "k is 25" in str(second[0])
    assert third == [*(told(record) for record in fc.simulate(specs[2])), None]


def test_a_model_that_cannot_be_trained_is_one_runs_fault() -> None:
    runs = [Simulation.load(spec_of(policy)) for policy in ("random:k=2", "random:k=3")]
    states = [run.start() for run in runs]
    rounds = [(runs[0], states[0]), (runs[1], states[1])]
    runs[1].task.parts[int(runs[1].step(states[1])[0].delivered[0])][:] = 10**6  # type: ignore[index]
    good, bad = step_together(rounds)
    assert isinstance(bad, fc.InputError)
    assert "visits samples 1000000" in str(bad)
    assert isinstance(good, tuple)


@pytest.mark.parametrize("store", [False, True])
def test_the_runner_advances_runs_on_a_gpu_together(store: bool, tmp_path: Path) -> None:
    pytest.importorskip("torch")  # what is not plainly "cpu" is taken for a GPU
    on = {"engine": "torch", "device": "cpu:0"}
    specs = [spec_of(policy, seed, **on) for policy in ("greedy", "random:k=3", "random:k=25") for seed in (0, 1)]
    kept = Store(tmp_path / "runs.db") if store else None
    events = list(fc.Runner(specs, on="threads", together=True, store=kept))
    done = {event.spec.key(): event for event in events if isinstance(event, fc.RunDone)}
    failed = [event for event in events if isinstance(event, fc.RunFailed)]
    assert [event.spec.policy for event in failed] == ["random:k=25"] * 2
    for spec in specs[:4]:
        alone = fc.simulate(spec.changed({"task.device": "cpu"}))
        records = done[spec.key()].records
        assert records is not None
        np.testing.assert_array_equal([record.clock_s for record in records], [record.clock_s for record in alone])
    if kept is not None:
        assert kept.done([spec.key() for spec in specs]) == set(done)
        kept.close()


@pytest.mark.parametrize(("old", "new"), [("played", run_coroutine), ("settled", resolve_device)])
def test_former_names_still_work_and_say_how_they_are_called_now(old: str, new: object) -> None:
    with pytest.warns(DeprecationWarning, match=f"fedcell.sim.{old} is called {new.__name__}; write that"):  # type: ignore[attr-defined]
        assert getattr(sim, old) is new
