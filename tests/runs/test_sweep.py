"""Sweeps: nothing lost, nothing twice, whoever is killed. The processes are real, and so are the signals."""

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Timer
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest

import fedcell as fc
from fedcell.runs import runner
from fedcell.runs.processes import Processes
from fedcell.runs.records import encode
from fedcell.runs.runner import MAX_TRIES
from fedcell.runs.store import Store
from fedcell.runs.sweep import Progress, run_sweep
from fedcell.runs.workers import Slice, advance
from fedcell.sim.spec import Spec, load_spec, parse_spec
from harness import FEDCELL, LIMIT_S, Process, run, wait_until, workers_of

pytestmark = pytest.mark.processes
SPEC = """
rounds = 40
[task]
data = "small.npz"
hidden = [8]
[grid]
policy = ["greedy", "random:k=4"]
"cell.radius_m" = [500, 1500]
seed = [0, 1, 2, 3, 4]
"""
RUNS = 20


@pytest.fixture
def folder(tmp_path: Path, small_npz: Path) -> Path:
    (tmp_path / "small.npz").symlink_to(small_npz)
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, small_npz: Path) -> dict[str, list[Any]]:
    """The rows of the sweep that nobody disturbs, computed here, by the loop itself."""
    path = tmp_path_factory.mktemp("undisturbed") / "results.db"
    (path.parent / "small.npz").symlink_to(small_npz)
    (path.parent / "spec.toml").write_text(SPEC)
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with Store(path) as store:
            for run in load_spec("spec.toml").runs():
                store.put(run, fc.simulate(run, threads=2))
    finally:
        os.chdir(before)
    return rows(path)


def rows(path: Path) -> dict[str, list[Any]]:
    """All that a store holds, times aside."""
    db = sqlite3.connect(path)
    found = {
        "specs": db.execute("SELECT * FROM specs ORDER BY key").fetchall(),
        "runs": db.execute("SELECT key, status, reason FROM runs ORDER BY key").fetchall(),
        "rounds": db.execute("SELECT * FROM rounds ORDER BY key, round").fetchall(),
    }
    db.close()
    return found


def start(folder: Path) -> Process:
    return Process(*FEDCELL, "sweep", "spec.toml", "--workers", "2", "--store", "results.db", cwd=folder)


def stored(path: Path) -> int:
    if not path.exists():
        return 0
    with Store(path, "read") as store:
        return len(store.runs(status="done"))


def test_a_sweep_is_the_loop_run_by_run(
    folder: Path, undisturbed: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    spec, seen = load_spec("spec.toml"), list[Progress]()
    with Store("results.db") as store:
        result = run_sweep(spec, store, workers=2, watch=seen.append)
        assert (result.done, result.skipped, result.failures, result.complete) == (RUNS, 0, {}, True)
        again = run_sweep(spec, store, workers=2)
        assert (again.done, again.skipped, again.complete) == (0, RUNS, True)
        wider = spec.model_copy(update={"grid": spec.grid | {"seed": [4, 4, 5]}})  # a seed twice is run once
        more = run_sweep(wider, store, workers=2)
        assert (more.done, more.skipped) == (4, 4)
        store.delete(run.key for run in store.runs() if run.seed == 5)
        assert all(run.duration_s > 0 for run in store.runs())
    assert rows(folder / "results.db") == undisturbed
    assert (seen[0].done, seen[0].left) == (0, RUNS)
    assert (seen[-1].done, seen[-1].left) == (RUNS, 0)
    assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
    assert len(seen) > 5


@pytest.mark.parametrize("after", [0, 7])
def test_kill_9_of_the_driver(after: int, folder: Path, undisturbed: dict[str, list[Any]]) -> None:
    """At its start and midway; its workers end by themselves, and a second sweep finishes the rest."""
    with start(folder) as process:
        process.wait_for(lambda: workers_of(process.pid), "its workers")
        process.wait_for(lambda: stored(folder / "results.db") >= after, f"{after} runs")
        process.kill()
        wait_until(lambda: not process.living(), "the workers to end with their driver")
    kept = stored(folder / "results.db")
    assert after <= kept < RUNS
    with start(folder) as again:
        done = again.finish()
    assert (done.returncode, done.stdout) == (
        0,
        f"{RUNS - kept} runs done, {kept} skipped (already stored), 0 failed\n",
    )
    assert "Traceback" not in done.stderr
    assert rows(folder / "results.db") == undisturbed
    assert sorted(path.name for path in folder.iterdir()) == ["results.db", "small.npz", "spec.toml"]


@pytest.mark.parametrize("after", [0, 6])
def test_kill_9_of_a_worker(after: int, folder: Path, undisturbed: dict[str, list[Any]]) -> None:
    """The sweep goes on with new ones, and nothing shows in the store."""
    with start(folder) as process:
        process.wait_for(lambda: stored(folder / "results.db") >= after, f"{after} runs")
        os.kill(process.wait_for(lambda: workers_of(process.pid), "its workers")[0], signal.SIGKILL)
        done = process.finish()
    assert (done.returncode, done.stdout) == (0, f"{RUNS} runs done, 0 skipped (already stored), 0 failed\n"), (
        done.stderr
    )
    assert "Traceback" not in done.stderr
    assert rows(folder / "results.db") == undisturbed


def test_kill_9_of_everything_twice(folder: Path, undisturbed: dict[str, list[Any]]) -> None:
    """Worker, then fork server, then driver; then all at once; then it finishes."""
    with start(folder) as process:
        process.wait_for(lambda: stored(folder / "results.db") >= 2, "two runs")
        workers = process.wait_for(lambda: workers_of(process.pid), "its workers")
        server = psutil.Process(workers[0]).ppid()
        for pid in (workers[-1], server, process.pid):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not process.living(), "all to end")
    before = stored(folder / "results.db")
    with start(folder) as process:
        process.wait_for(lambda: stored(folder / "results.db") > before, "another run")
        for one in process.living():
            with suppress(psutil.NoSuchProcess):  # one whose driver was killed before it ends by itself
                one.kill()
    with start(folder) as again:
        done = again.finish()
    assert done.returncode == 0, done.stderr
    assert rows(folder / "results.db") == undisturbed


SUICIDE = """
import os, signal
from dataclasses import dataclass
import fedcell as fc

@dataclass(frozen=True)
class Suicide(fc.Policy):
    def choose(self, view, rng):
        with open("deaths.txt", "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_kills_its_worker_is_blamed_and_no_other(folder: Path) -> None:
    """Three tries, the last alone: the runs beside it, which die with it, all end well."""
    (folder / "mine.py").write_text(SUICIDE)
    text = (
        SPEC.replace('"random:k=4"', '"mine:Suicide"')
        .replace("[500, 1500]", "[500]")
        .replace("rounds = 40", "rounds = 3")
    )
    (folder / "spec.toml").write_text(text.replace("seed = [0, 1, 2, 3, 4]", "seed = [0, 1]"))
    with start(folder) as process:
        done = process.finish()
    stdout, stderr = done.stdout, done.stderr
    assert stdout == "2 runs done, 0 skipped (already stored), 2 failed\n"
    assert "failed, 2 runs such as " in stderr
    assert ": worker died, 3 times" in stderr
    assert "Traceback" not in stderr
    assert done.returncode == 1
    assert len((folder / "deaths.txt").read_text()) <= 2 * MAX_TRIES
    with Store(folder / "results.db", "read") as store:
        assert {(run.policy, run.status) for run in store.runs()} == {("greedy", "done"), ("mine:Suicide", "failed")}


FLAKY = """
import os
from dataclasses import dataclass
import fedcell as fc

@dataclass(frozen=True)
class Flaky(fc.Policy):
    def choose(self, view, rng):
        if not os.path.exists("mended"):
            raise RuntimeError("it is\\nbroken")
        return [0]
"""


def test_a_failed_run_is_recorded_reported_and_tried_again(folder: Path) -> None:
    (folder / "mine.py").write_text(FLAKY)
    text = SPEC.replace('"random:k=4"', '"mine:Flaky", "random:k=25"').replace("rounds = 40", "rounds = 2")
    (folder / "spec.toml").write_text(text.replace("seed = [0, 1, 2, 3, 4]", "seed = [0]"))
    with start(folder) as process:
        done = process.finish()
    stdout, stderr = done.stdout, done.stderr
    assert (done.returncode, stdout) == (1, "2 runs done, 0 skipped (already stored), 4 failed\n")
    reports = [line.split(": ", 1)[1] for line in stderr.splitlines() if line.startswith("  failed, 2 runs")]
    own, ours = sorted(reports, key=lambda report: report.startswith("k is"))
    assert "RuntimeError: it is broken" in own
    assert ours == "k is 25, but the cell has 20 devices; give a k of at most 20"
    with Store(folder / "results.db", "read") as store:
        assert {run.reason for run in store.runs(status="failed")} == set(reports)
    (folder / "mended").touch()
    with start(folder) as process:
        done = process.finish()
    stdout, stderr = done.stdout, done.stderr
    assert (done.returncode, stdout) == (1, "2 runs done, 2 skipped (already stored), 2 failed\n")


def test_ctrl_c_keeps_what_is_done(folder: Path, undisturbed: dict[str, list[Any]]) -> None:
    with start(folder) as process:
        process.wait_for(lambda: stored(folder / "results.db") >= 3, "three runs")
        process.interrupt(group=True)  # as a terminal does: to the driver and to all workers
        done = process.finish()
        wait_until(lambda: not process.living(), "its workers to end")
    kept = stored(folder / "results.db")
    assert done.returncode == 130
    assert done.stdout.startswith(f"Stopped early: {kept} runs done")
    assert "Traceback" not in done.stderr
    assert 3 <= kept < RUNS
    assert {row[0] for row in rows(folder / "results.db")["rounds"]} < {row[0] for row in undisturbed["rounds"]}


def tiny(small_npz: Path, seeds: int, **changes: Any) -> Spec:
    task = {"data": str(small_npz), "hidden": [4]}
    return parse_spec(
        {"policy": "random:k=1", "rounds": 1, "task": task, "grid": {"seed": list(range(seeds))}} | changes, "x"
    )


def test_stop_ends_it_at_once(small_npz: Path, tmp_path: Path) -> None:
    """Even in the middle of a run that would take a minute."""
    stop = Event()
    timer = Timer(1.5, stop.set)
    with Store(tmp_path / "results.db") as store:
        timer.start()
        result = run_sweep(tiny(small_npz, 2, rounds=1_000_000), store, workers=2, stop=stop)
        assert (result.done, result.complete) == (0, False)
        assert {run.status for run in store.runs()} == {"unfinished"}
    timer.join()


def test_workers_train_with_one_thread() -> None:
    """Also where the caller's environment asks for more; and that is left as it is."""
    before = dict(os.environ)
    with Processes(1) as processes:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            assert processes.submit(os.getenv, name).result(LIMIT_S) == "1"
        assert processes.submit(eval, "__import__('torch').get_num_threads()").result(LIMIT_S) == 1
    assert dict(os.environ) == before


HALF_AN_ANSWER = """
import gc, os, signal, struct
from multiprocessing.connection import Connection
for one in [one for one in gc.get_objects() if isinstance(one, Connection) and one.writable]:
    os.write(one.fileno(), struct.pack("!i", 100_000) + b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_dies_takes_only_its_own_call_along() -> None:
    """Also one that is killed while it answers: the driver does not wait for the rest."""
    with Processes(2) as processes:
        other = processes.submit(eval, "__import__('time').sleep(2) or 7")
        with pytest.raises(BrokenExecutor, match="the worker process died"):
            processes.submit(exec, HALF_AN_ANSWER, {}).result(LIMIT_S)
        assert processes.submit(int, "8").result(LIMIT_S) == 8
        assert other.result(LIMIT_S) == 7
        waiting = [processes.submit(eval, "__import__('time').sleep(1000)") for _ in range(3)]
        wait_until(lambda: sum(future.running() for future in waiting) == 2, "two of them to run")
        processes.shutdown()
        assert waiting[2].cancelled()
        for future in waiting[:2]:
            with pytest.raises(BrokenExecutor):
                future.result(LIMIT_S)
        assert processes.submit(int, "9").result(LIMIT_S) == 9  # with new ones
        with pytest.raises(ValueError, match="invalid literal"):
            processes.submit(int, "x").result(LIMIT_S)
        with pytest.raises(TypeError, match="pickle"):
            processes.submit(eval, "__import__('threading').Lock()").result(LIMIT_S)


class Pool(Executor):
    """Threads that count what is in flight, and fail as told."""

    def __init__(self, fail: Callable[[list[Slice]], BaseException | None] = lambda _: None) -> None:
        self.pool, self.fail = ThreadPoolExecutor(1), fail
        self.sizes: list[int] = []
        self.flying = self.most = 0
        self.counting = Lock()

    def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        self.sizes.append(len(arguments[0]))
        with self.counting:
            self.flying += 1
            self.most = max(self.most, self.flying)
        return self.pool.submit(self._work, function, *arguments)

    def _work(self, function: Any, runs: list[Slice], *rest: Any) -> Any:
        try:
            if error := self.fail(runs):
                raise error
            return function(runs, *rest)
        finally:  # before anyone is told: a callback of the future might come after the next call
            with self.counting:
                self.flying -= 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.pool.shutdown(wait, cancel_futures=cancel_futures)


def test_any_executor_does_and_tiny_runs_travel_together(
    small_npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "SLICE_S", 60.0)  # so that a run is tiny beside it on a busy machine too
    monkeypatch.setattr(runner, "MAX_CHUNK", 8)
    with Pool() as pool, Store(tmp_path / "results.db") as store:
        result = run_sweep(tiny(small_npz, 200), store, pool, workers=2)
        assert (result.done, len(store.runs())) == (200, 200)
        run = tiny(small_npz, 200).runs()[17]
        assert list(map(encode, store.get(run))) == list(map(encode, fc.simulate(run)))
    assert len(pool.sizes) < 200  # fewer calls than runs
    assert max(pool.sizes) == 8
    assert pool.most <= 4


def test_a_chunk_gives_back_what_it_has_no_time_for(small_npz: Path) -> None:
    specs = tiny(small_npz, 3).runs()
    chunk = [Slice(spec.key(), spec.model_dump_json(exclude={"grid", "budget_s"}), None) for spec in specs]
    assert [found.key for found in advance(chunk, 0.0, 1, False)] == [specs[0].key()]
    assert [found.key for found in advance(chunk, 60.0, 1, False)] == [spec.key() for spec in specs]


def test_a_worker_with_other_data_or_another_version_does_not_answer(small_npz: Path) -> None:
    """Or the store would hold, under this key, the results of something else."""
    one, other = tiny(small_npz, 2).runs()
    wrong = Slice(one.key(), other.model_dump_json(exclude={"grid", "budget_s"}), None)
    (found,) = advance([wrong], 1.0, 1, False)
    assert (found.key, found.records, found.state) == (one.key(), [], None)
    assert "the worker's fedcell, your own module or its copy of task.data differs" in found.reason


class KilledWorker(Exception):  # noqa: N818  (Dask's has this name)
    pass


def test_a_cluster_that_loses_workers(small_npz: Path, tmp_path: Path) -> None:
    """Its suspects are tried again one by one; only the run that kills by itself is blamed."""
    spec = tiny(small_npz, 40)
    culprit, deaths = spec.runs()[30].key(), list[int]()

    def fail(runs: list[Slice]) -> BaseException | None:
        if culprit not in [run.key for run in runs]:
            return None
        deaths.append(len(runs))
        return KilledWorker("attempted on 4 workers")

    with Pool(fail) as pool, Store(tmp_path / "results.db") as store:
        result = run_sweep(spec, store, pool, workers=1)
        assert result.done == 39
        assert list(result.failures) == [culprit]
        assert result.failures[culprit].startswith("worker died")
    assert len(deaths) == MAX_TRIES
    assert deaths[1:] == [1, 1]


@pytest.mark.parametrize(
    ("error", "words"),
    [(BrokenExecutor(), "the executor is broken; what is done is stored"), (CancelledError(), "dropped the runs")],
)
def test_an_executor_that_breaks_is_one_sentence(
    error: BaseException, words: str, small_npz: Path, tmp_path: Path
) -> None:
    spec = tiny(small_npz, 30)
    bad = spec.runs()[20].key()
    with (
        Pool(lambda runs: error if bad in [run.key for run in runs] else None) as pool,
        Store(tmp_path / "results.db") as store,
    ):
        with pytest.raises(fc.InputError, match=words):
            run_sweep(spec, store, pool, workers=1)
        assert 0 < len(store.runs()) < 30
        assert not store.runs(status="failed")


def test_a_script_without_its_guard_is_told(small_npz: Path, tmp_path: Path) -> None:
    """Its workers would run the script again, which Python forbids: not a fault of the runs."""
    code = f"""
from fedcell.runs.store import Store
from fedcell.runs.sweep import run_sweep
from fedcell.sim.spec import parse_spec
spec = parse_spec({{"rounds": 1, "task": {{"data": {str(small_npz)!r}}}}}, "x")
with Store("results.db") as store:
    run_sweep(spec, store, workers=1)
"""
    (tmp_path / "script.py").write_text(code)
    done = run(sys.executable, "script.py", cwd=tmp_path)
    assert done.stderr.strip().endswith("a script must call fedcell under if __name__ == '__main__':")
    assert stored(tmp_path / "results.db") == 0
    with Store(tmp_path / "results.db", "read") as store:
        assert not store.runs()


def test_data_that_change_meanwhile_are_no_result_of_the_new_data(small_npz: Path, tmp_path: Path) -> None:
    """The second run's data are others by then: it fails, and the first stays under the key of what it was."""
    data = tmp_path / "own.npz"
    data.write_bytes(small_npz.read_bytes())
    spec = tiny(data, 2)
    first, second = (run.key() for run in spec.runs())

    def change(runs: list[Slice]) -> None:
        if runs[0].key == second:
            with np.load(small_npz) as arrays:
                np.savez(data, **{name: arrays[name][:150] for name in arrays})

    with Pool(change) as pool, Store(tmp_path / "results.db") as store:
        result = run_sweep(spec, store, pool, workers=1)
        assert result.done == 1
        assert "its copy of task.data differs" in result.failures[second]
        assert [run.key for run in store.runs(status="done")] == [first]


def test_a_bad_number_of_workers_is_named(small_npz: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store, pytest.raises(fc.InputError, match="workers is 0; give a whole"):
        run_sweep(tiny(small_npz, 1), store, workers=0)
