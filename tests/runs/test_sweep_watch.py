"""What a sweep tells whoever watches it; here on threads of this process."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fedcell as fc
from fedcell.runs.runner import RunDone
from fedcell.runs.store import Store
from fedcell.runs.sweep import Progress, run_sweep

SPEC = fc.Spec(
    rounds=2,
    policy="all",
    devices=fc.DevicesSpec(count=3),
    task=fc.TaskSpec(hidden=[4], sizes=[20] * 3),
    grid={"seed": [0, 1, 2]},
)


def swept(store: Store, **given: Any) -> tuple[Any, list[Progress], list[Any]]:
    seen, events = list[Progress](), list[Any]()
    with ThreadPoolExecutor(1) as threads:
        result = run_sweep(SPEC, store, executor=threads, watch=seen.append, on_event=events.append, **given)
    return result, seen, events


def test_progress_is_told_at_first_and_after_each_run(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        store.put(SPEC.runs()[1], list(fc.simulate(SPEC.runs()[1])))
        result, seen, events = swept(store)
        assert (result.done, result.skipped, result.failures, result.complete, result.stopped) == (
            2,
            1,
            {},
            True,
            False,
        )
        assert [(one.total, one.skipped, one.done, one.left) for one in seen] == [
            (3, 1, 0, 2),
            (3, 1, 1, 1),
            (3, 1, 2, 0),
        ]
        assert sum(isinstance(event, RunDone) and event.records is not None for event in events) == 2


def test_a_sweep_that_is_stopped_says_so_and_goes_on(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with Store(tmp_path / "results.db") as store:
        result, _, _ = swept(store, stop=stop)
        assert (result.complete, result.stopped) == (False, True)
        again, seen, _ = swept(store)
        assert (again.complete, again.done + again.skipped, seen[-1].done) == (True, 3, again.done)


def test_a_sweep_needs_a_store() -> None:
    nothing: Any = None
    with pytest.raises(fc.InputError, match="run_sweep needs a store"):
        run_sweep(SPEC, nothing)
