"""The one runner: events, together by clock, pause, stop, resume, on threads, processes and any executor."""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import psutil  # type: ignore[import-untyped]
import pytest

import fedcell as fc
from fedcell.runs import runner
from fedcell.runs import runner as module
from fedcell.runs.processes import Processes
from fedcell.runs.records import Row, encode
from fedcell.runs.runner import Event, RoundsDone, RunDone, RunFailed, Runner
from fedcell.runs.store import Store, differing_fields
from fedcell.runs.workers import Slice, advance
from fedcell.sim.loop import Simulation
from fedcell.sim.spec import Spec, parse_spec
from harness import LIMIT_S, wait_until

pytestmark = pytest.mark.processes
On = Literal["threads", "processes"]
SLICE_S = runner.SLICE_S
"""As it is: the tests have another."""


@pytest.fixture(autouse=True)
def slices_of_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every round is an event, however quick the machine is."""
    monkeypatch.setattr(module, "SLICE_S", 0.0)


def runs(small_npz: Path, **changes: Any) -> list[Spec]:
    task = {"data": str(small_npz), "hidden": [4]}
    grid = {"policy": ["all", "random:k=2", "deadline:seconds=8"], "seed": [0, 1]}
    return parse_spec({"rounds": 6, "task": task, "grid": grid} | changes, "x").runs()


def truth(run: Spec) -> list[Row]:
    return [encode(record) for record in fc.simulate(run, threads=1)]


def told(events: list[Event]) -> dict[str, list[Row]]:
    """The rounds of each run, as its events told them."""
    found: dict[str, list[Row]] = {}
    for event in events:
        if isinstance(event, RoundsDone):
            found.setdefault(event.key, []).extend(map(encode, event.records))
    return found


@pytest.mark.parametrize("on", ["threads", "processes"])
@pytest.mark.parametrize("together", [False, True])
def test_events_are_the_loop_round_by_round(on: On, together: bool, small_npz: Path) -> None:
    specs = runs(small_npz)
    runner = Runner([*specs, specs[0]], on=on, workers=2, together=together)  # one twice: it is run once
    events = list(runner)
    wanted = {run.key(): truth(run) for run in specs}
    assert told(events) == wanted
    done = [event for event in events if isinstance(event, RunDone)]
    assert {event.key: list(map(encode, event.records or [])) for event in done} == wanted
    assert (runner.total, runner.done, runner.known, runner.failures, runner.complete) == (6, 6, 0, {}, True)
    assert all(event.duration_s > 0 for event in done)


def test_rows_of_an_event_are_its_records_encoded_and_warn(small_npz: Path) -> None:
    (spec, *_) = runs(small_npz)
    records = list(fc.simulate(spec, threads=1))
    for event in (RoundsDone(spec.key(), spec, records), RunDone(spec.key(), spec, records, 1.0)):
        with pytest.deprecated_call(match=r"use \.records"):
            assert event.rows == list(map(encode, records))
    assert RunDone(spec.key(), spec, None, 1.0).rows is None  # the store has them


def test_any_executor_gets_whole_runs(small_npz: Path) -> None:
    calls: list[tuple[int, bool]] = []

    class Pool(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            calls.append((len(args[0]), args[3]))
            return super().submit(fn, *args, **kwargs)

    specs = runs(small_npz)
    with Pool(1) as pool:
        events = list(Runner(specs, on=pool, workers=1))
        assert pool.submit(advance, [], 0.0, 1, True).result() == []  # it is the caller's to shut down
    assert told(events) == {run.key(): truth(run) for run in specs}
    assert all(whole for _, whole in calls)
    assert sum(isinstance(event, RoundsDone) for event in events) == 6  # all rounds of a run at once


def test_the_policies_of_a_seed_advance_together_by_their_clocks(small_npz: Path) -> None:
    """With one worker it is exact: always the one that is furthest behind, a seed after the other."""
    specs = sorted(runs(small_npz), key=lambda run: run.seed)
    seeds: list[int] = []
    clocks = {run.key(): 0.0 for run in specs}
    left = {run.key(): run for run in specs}
    for event in Runner(specs, on="threads", workers=1, together=True):
        if isinstance(event, RunDone):
            del left[event.key]
        if isinstance(event, RoundsDone):
            running = [key for key, run in left.items() if run.seed == event.spec.seed]
            assert clocks[event.key] == min(clocks[key] for key in running)
            clocks[event.key] = event.records[-1].clock_s
            seeds.append(event.spec.seed)
    assert seeds == sorted(seeds)


def test_one_run_after_the_other_otherwise(small_npz: Path) -> None:
    specs = runs(small_npz)
    events = [event for event in Runner(specs, on="threads", workers=1) if isinstance(event, RoundsDone)]
    assert list(dict.fromkeys(event.key for event in events)) == [run.key() for run in specs]
    assert [event.key for event in events] == [run.key() for run in specs for _ in range(6)]


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_pause_and_go_on(on: On, small_npz: Path) -> None:
    """While it is paused nothing is computed but what was under way."""
    specs = runs(small_npz, grid={"seed": [0]}, rounds=8)
    runner = Runner(specs, on=on, workers=1)
    events, paused = [], threading.Event()

    def consume() -> None:
        for event in runner:
            events.append(event)
            if len(events) == 2:
                runner.pause()
                paused.set()

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert paused.wait(LIMIT_S)
    threading.Event().wait(3 * module.TICK_S)
    assert len(told(events)[specs[0].key()]) <= 3
    runner.go_on()
    consumer.join(LIMIT_S)
    assert told(events)[specs[0].key()] == truth(specs[0])


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_what_is_stopped_resumes_at_its_round(on: On, small_npz: Path, tmp_path: Path) -> None:
    """Not from the start: the rounds that the store has come as an event, and only the others are computed."""
    specs = runs(small_npz, knowledge="observed")
    with Store(tmp_path / "results.db") as store:
        first = Runner(specs, store=store, on=on, workers=2, together=True)
        seen: list[Event] = []
        for event in first:
            seen.append(event)
            if len(seen) == 8:
                first.stop()
        assert not first.complete
        kept = {key: rows for key, rows in told(seen).items() if not store.has(key)}
        assert kept
        for key, rows in kept.items():
            found = store.unfinished(key)
            assert found is not None
            assert list(map(encode, found.records)) == rows
        second = Runner(specs, store=store, on=on, workers=2)
        events = list(second)
        assert second.complete
        for key, rows in kept.items():
            batches = [
                list(map(encode, event.records))
                for event in events
                if isinstance(event, RoundsDone) and event.key == key
            ]
            assert batches[0] == rows
            assert [row[0] for batch in batches for row in batch] == list(range(1, 7))
        for run in specs:
            assert list(map(encode, store.get(run))) == truth(run)
        again = Runner(specs, store=store, on=on)
        assert [event.records for event in again if isinstance(event, RunDone)] == [None] * 6
        assert (again.known, again.done) == (6, 0)


def test_whoever_leaves_the_loop_loses_nothing(small_npz: Path, tmp_path: Path) -> None:
    """An error of the consumer's, or Ctrl-C in the middle of it, ends the iteration: what was computed is stored."""
    specs = runs(small_npz, grid={"seed": [0]})
    with Store(tmp_path / "results.db") as store:
        events = iter(Runner(specs, store=store, on="threads", workers=1))
        next(events)
        next(events)
        events.close()
        found = store.unfinished(specs[0])
        assert found is not None
        assert list(map(encode, found.records)) == truth(specs[0])[: len(found.records)]
        assert len(found.records) >= 2


def test_a_run_under_way_is_stored_now_and_then(
    small_npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every few seconds at most; a quick run never."""
    written: list[int] = []
    put = Store.put_unfinished

    def spy(self: Store, *arguments: Any) -> None:
        written.append(len(arguments[1]))
        put(self, *arguments)

    monkeypatch.setattr(Store, "put_unfinished", spy)
    specs = runs(small_npz, grid={"seed": [0]})
    with Store(tmp_path / "quick.db") as store:
        list(Runner(specs, store=store, on="threads", workers=1))
    assert written == []
    monkeypatch.setattr(module, "SAVE_EVERY_S", 0.0)
    with Store(tmp_path / "slow.db") as store:
        list(Runner(specs, store=store, on="threads", workers=1))
        assert store.unfinished(specs[0]) is None
        assert list(map(encode, store.get(specs[0]))) == truth(specs[0])
    assert written == [1] * 6  # only what is new each time


def test_a_slice_is_a_round_at_least_and_its_state_goes_on(small_npz: Path) -> None:
    (run,) = runs(small_npz, grid={"seed": [3], "policy": ["random:k=2"]})
    text = run.model_dump_json(exclude={"grid", "budget_s"})
    rows, one = list[Row](), Slice(run.key(), text, None)
    for _ in range(6):
        (found,) = advance([one], 0.0, 1, False)
        assert len(found.records) == 1
        rows += map(encode, found.records)
        assert found.state is not None
        one = replace(one, state=found.state)
    (last,) = advance([one], 0.0, 1, False)
    assert (last.records, last.state, last.reason) == ([], None, "")
    assert rows == truth(run)
    assert Simulation.load(run).step(one.state) is None  # type: ignore[arg-type]


def test_a_run_that_fails_does_not_stop_the_others(small_npz: Path, tmp_path: Path) -> None:
    specs = runs(small_npz, grid={"policy": ["random:k=25", "all"], "seed": [0, 1]})
    with Store(tmp_path / "results.db") as store:
        runner = Runner(specs, store=store, on="threads")
        failed = [event for event in runner if isinstance(event, RunFailed)]
        assert {event.reason for event in failed} == {"k is 25, but the cell has 20 devices; give a k of at most 20"}
        assert (runner.done, len(runner.failures), runner.ended, runner.complete) == (2, 2, True, False)
        assert {run.status for run in store.runs(policy="random:k=25")} == {"failed"}


def test_processes_serve_one_runner_after_the_other(small_npz: Path) -> None:
    specs = runs(small_npz, grid={"seed": [0, 1]})
    pids: list[int] = []
    with Processes(1) as processes:
        for run in specs:
            assert told(list(Runner([run], on=processes, workers=1))) == {run.key(): truth(run)}
            pids.append(processes.submit(eval, "__import__('os').getpid()").result(LIMIT_S))
    assert pids[0] == pids[1]


MEET = """
import os, pathlib, time
folder = pathlib.Path({folder!r})
(folder / str(os.getpid())).touch()
while len(list(folder.iterdir())) < {many}:
    time.sleep(0.01)
"""


def test_no_call_is_blamed_for_workers_that_died_idle(tmp_path: Path) -> None:
    many = 3  # as often as a run that loses its worker is tried
    with Processes(many) as processes:
        for met in [processes.submit(exec, MEET.format(folder=str(tmp_path), many=many)) for _ in range(many)]:
            met.result(LIMIT_S)
        pids = [int(path.name) for path in tmp_path.iterdir()]
        assert len(pids) == many
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids), "the workers to be gone")
        for _ in range(many):
            assert processes.submit(os.getpid).result(LIMIT_S) not in pids


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 0}, "workers is 0; give a whole number of at least 1"),
        ({"on": "clouds"}, "on is 'clouds'; give 'threads', 'processes' or an executor"),
    ],
)
def test_bad_options_are_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        Runner([], **options)


def test_nothing_to_do_is_done() -> None:
    class Nobody(Executor):
        def submit(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("there is nothing to do")

    runner = Runner([], on=Nobody())
    assert (list(runner), runner.complete) == ([], True)


def test_a_changed_policy_is_run_again_and_both_runs_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own_changing.py"
    source = "import fedcell as fc\n\nclass Mine(fc.Policy):\n    def choose(self, view, rng):\n        return [{}]\n"
    path.write_text(source.format("0, 1"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec, plain = Spec(policy="own_changing:Mine", rounds=1, task=fc.TaskSpec(hidden=[4])), Spec()
    before = plain.key()

    def known(store: Store) -> int:
        runner = Runner([spec], store=store, on="threads")
        assert not [event for event in runner if isinstance(event, RunFailed)]
        return runner.known

    with Store(tmp_path / "results.db") as store:
        assert [known(store), known(store)] == [0, 1]
        path.write_text(source.format("0, 1, 2"))
        importlib.reload(sys.modules["own_changing"])
        assert [known(store), known(store)] == [0, 1]
        runs = store.runs()
        assert sorted(len(store.get(run.key)[0].plan.devices) for run in runs) == [2, 3]
        assert differing_fields(run.document for run in runs) == ["code"]
        assert runs[0].spec == spec
    assert plain.key() == before
    assert "code" not in plain.model_dump()


def test_how_often_a_run_reports_is_saved_and_tried() -> None:
    """docs/architecture.md tells of them."""
    assert (SLICE_S, runner.SAVE_EVERY_S, runner.TICK_S, runner.MAX_TRIES) == (0.15, 3.0, 0.2, 3)
    assert (runner.MAX_CHUNK, runner.MAX_LOCKSTEP, runner.FULL_LOCKSTEP, runner.GPU_SLICE_S) == (256, 64, 16, 2.0)
