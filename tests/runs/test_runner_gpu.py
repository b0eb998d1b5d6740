"""Runs that ask for a GPU: what is stored where there is none, and which worker uses which card."""

import os
from pathlib import Path
from typing import Any

import pytest

import fedcell as fc
from fedcell.paper.settings import collect_runs
from fedcell.runs.processes import Processes
from fedcell.runs.runner import FULL_LOCKSTEP, MAX_LOCKSTEP
from fedcell.runtime import WORKER_NUMBER
from fedcell.sim.task import assigned_gpu

torch = pytest.importorskip("torch")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")

ASKED = fc.Spec(rounds=1, task=fc.TaskSpec(hidden=[4], sizes=[50] * 20, device="cuda"), grid={"seed": [0, 1]})


def plain(spec: fc.Spec) -> list[str]:
    return [run.changed({"task.device": "cpu"}).key() for run in spec.runs()]


@no_gpu
@pytest.mark.parametrize("kind", ["sweep", "race"])
def test_a_run_that_falls_back_is_stored_as_the_cpus(tmp_path: Path, kind: str) -> None:
    with fc.Store(tmp_path / "runs.db") as store:
        if kind == "sweep":
            assert fc.run_sweep(ASKED, store, workers=1).done == 2
        else:
            race = ASKED.changed({}, {"policy": [ASKED.policy], "seed": [0, 1]})
            assert fc.run_race(race, store=store).spec.task.device == "cpu"
        assert store.done(plain(ASKED)) == set(plain(ASKED))
        assert not store.done([run.key() for run in ASKED.runs()])
        assert {run.spec.task.device for run in store.runs()} == {"cpu"}


@no_gpu
def test_a_worker_without_a_gpu_refuses_a_run_for_one() -> None:
    reasons = [event.reason for event in fc.Runner(ASKED.runs(), on="threads") if isinstance(event, fc.RunFailed)]
    assert len(reasons) == 2
    assert "but the MLP cannot train there: PyTorch" in reasons[0]
    assert "set task.device to 'cpu'" in reasons[0]


@no_gpu
def test_figures_get_their_runs_by_their_own_keys_wherever_they_are_computed(tmp_path: Path) -> None:
    asked = [run.changed({"task.device": "cpu"}) for run in ASKED.runs()]
    with Processes(1) as pool:
        first = collect_runs(asked[:1], tmp_path / "runs.db", 1, executor=pool, device="cuda")
        both = collect_runs(asked, tmp_path / "runs.db", 1, executor=pool, device="cuda")
    assert list(first) == [asked[0].key()]
    assert list(both) == [run.key() for run in asked]
    assert both[asked[0].key()].accuracy.tolist() == [record.accuracy for record in fc.simulate(asked[0])]


def test_one_card_of_several_is_no_other_run() -> None:
    assert ASKED.changed({"task.device": "cuda:1"}).key() == ASKED.changed({}).key()


@pytest.mark.parametrize(
    ("device", "worker", "cards", "card"),
    [
        ("cuda", "0", 2, "cuda:0"),
        ("cuda", "3", 2, "cuda:1"),
        ("cuda", "5", 0, "cuda:0"),
        ("cuda", None, 2, "cuda"),  # not a worker process: PyTorch's own choice
        ("cuda:1", "0", 2, "cuda:1"),
        ("cpu", "1", 2, "cpu"),
    ],
)
def test_workers_take_turns_at_the_cards(
    monkeypatch: pytest.MonkeyPatch, device: str, worker: str | None, cards: int, card: str
) -> None:
    monkeypatch.delenv(WORKER_NUMBER, raising=False)
    if worker is not None:
        monkeypatch.setenv(WORKER_NUMBER, worker)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    assert assigned_gpu(device) == card


@pytest.mark.processes
def test_worker_processes_are_numbered_and_a_new_one_takes_a_free_number() -> None:
    with Processes(2) as pool:
        first = [pool.submit(os.getenv, WORKER_NUMBER) for _ in range(6)]
        assert {future.result() for future in first} <= {"0", "1"}
        pool.submit(os._exit, 1).exception()
        again = [pool.submit(os.getenv, WORKER_NUMBER) for _ in range(6)]
        assert {future.result() for future in again} <= {"0", "1"}


@pytest.mark.parametrize(
    ("runs", "workers", "chunks"), [(5, 2, [5]), (40, 2, [20, 20]), (40, 8, [16, 16, 8]), (300, 2, [64] * 4)]
)
def test_worker_processes_share_a_gpu_with_full_stacks(runs: int, workers: int, chunks: list[int]) -> None:
    """What is in flight at first; an executor that only notes what it is given."""
    from concurrent.futures import Executor, Future

    class Noting(Executor):
        def __init__(self) -> None:
            self.found: list[int] = []

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            self.found.append(len(args[0]))
            assert all(one.together for one in args[0])
            return Future()

    noting = Noting()
    specs = ASKED.changed({}, {"seed": list(range(runs))}).runs()
    runner = fc.Runner(specs, on=noting, workers=workers)
    list(runner._look_up())
    runner._submit(noting, whole=True)
    assert noting.found == chunks
    assert FULL_LOCKSTEP <= MAX_LOCKSTEP
