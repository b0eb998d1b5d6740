"""Sweeps on a Dask cluster: a real scheduler and two worker processes on this machine, some of which are killed."""

import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import fedcell as fc
from fedcell.runs.records import encode
from fedcell.runs.store import Store
from fedcell.sim.spec import load_spec
from harness import FEDCELL, LIMIT_S, Process
from twins.small import write_small_npz

pytestmark = [  # found, not imported: every worker collects this file
    pytest.mark.processes,
    pytest.mark.skipif(find_spec("distributed") is None, reason="Dask's distributed is not installed"),
]

SPEC = """
rounds = 80
[task]
data = "small.npz"
hidden = [8]
[grid]
policy = ["greedy", "random:k=4"]
seed = [0, 1, 2, 3, 4, 5]
"""
RUNS = 12


class Cluster:
    """A scheduler and its workers, on free ports of the loopback; all are ended, by their ids, at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, dict[str, Process]()
        file = folder / "scheduler.json"
        self._start("scheduler", "--port", "0", "--scheduler-file", str(file))
        scheduler = self.processes["scheduler"]
        scheduler.wait_for(lambda: file.exists() and file.read_text().strip().endswith("}"), "its address")
        self.address = str(json.loads(file.read_text())["address"])
        assert self.address.startswith("tcp://127.0.0.1:")

    def add_worker(self, name: str) -> None:
        self._start(
            "worker", self.address, "--nthreads", "1", "--no-nanny", "--local-directory", str(self.folder), name=name
        )

    def wait_for_workers(self, count: int) -> None:
        scheduler = self.processes["scheduler"]
        scheduler.wait_for(lambda: scheduler.err.count("Register worker addr") >= count, "the workers")

    def _start(self, kind: str, *arguments: str, name: str = "") -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, "--host", "127.0.0.1"]
        command += ["--dashboard-address", "127.0.0.1:0"]
        self.processes[name or kind] = Process(*command, cwd=self.folder)

    def kill(self, name: str) -> None:
        self.processes[name].kill()

    def close(self) -> None:
        for process in self.processes.values():
            process.end()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    found = Cluster(tmp_path / "cluster")
    yield found
    found.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "driver"  # not the workers' folder: the data's path must reach them whole
    found.mkdir()
    write_small_npz(found / "small.npz")
    (found / "spec.toml").write_text(SPEC)
    return found


def start(folder: Path, address: str) -> Process:
    return Process(*FEDCELL, "sweep", "spec.toml", "--cluster", address, cwd=folder)


def wait_for_runs(process: Process, folder: Path, least: int) -> None:
    def there() -> bool:
        if not (folder / "results.db").exists():
            return False
        with Store(folder / "results.db", "read") as store:
            return len(store.runs()) >= least

    process.wait_for(there, f"{least} runs")


def finish(process: Process) -> tuple[int, str, str]:
    with process:
        done = process.finish()
    return done.returncode, done.stdout, done.stderr


def test_a_sweep_on_a_cluster_one_of_whose_workers_is_killed(
    cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_worker("one")
    cluster.add_worker("two")
    cluster.wait_for_workers(2)
    process = start(folder, cluster.address)
    wait_for_runs(process, folder, 3)
    cluster.kill("one")
    status, stdout, stderr = finish(process)
    assert (status, stdout) == (0, f"{RUNS} runs done, 0 skipped (already stored), 0 failed\n"), stderr
    assert "Traceback" not in stderr
    monkeypatch.chdir(folder)
    with Store("results.db", "read") as store:
        assert len(store.runs(status="done")) == RUNS
        for run in load_spec("spec.toml").runs():
            assert list(map(encode, store.get(run))) == list(map(encode, fc.simulate(run)))


def test_a_scheduler_that_dies_ends_the_sweep_with_a_sentence(cluster: Cluster, folder: Path) -> None:
    cluster.add_worker("one")
    cluster.wait_for_workers(1)
    process = start(folder, cluster.address)
    wait_for_runs(process, folder, 1)
    cluster.kill("scheduler")
    status, _, stderr = finish(process)
    assert status == 2, stderr
    assert re.search(r"fedcell: the cluster .*what is done is stored, start again", stderr)
    assert "Traceback" not in stderr
    with Store(folder / "results.db", "read") as store:
        assert 1 <= len(store.runs()) < RUNS
        assert not store.runs(status="failed")


def test_a_cluster_without_workers_is_a_sentence(cluster: Cluster, folder: Path) -> None:
    status, stdout, stderr = finish(start(folder, cluster.address))
    assert (status, stdout) == (2, "")
    assert stderr.startswith(f"fedcell: --cluster {cluster.address}: the scheduler has no workers; start some")
    assert not (folder / "results.db").exists()


@pytest.mark.parametrize(
    "address", ["10.0.0.1:8786", "tcp://host", "tcp://host:port", "tcp://host:99999", "", "http://a:1"]
)
def test_what_is_no_address_is_a_sentence(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcell.cli.sweep import sweep

    monkeypatch.chdir(folder)
    with pytest.raises(fc.InputError, match=r"--cluster is '.*'; give the scheduler's address, such as tcp://"):
        sweep(folder / "spec.toml", folder / "results.db", None, address)
    assert not (folder / "results.db").exists()


def test_where_no_scheduler_answers_is_a_sentence_after_a_few_seconds(folder: Path) -> None:
    """Nobody listens; or somebody does who says nothing; or who is no scheduler."""
    silent, babbler = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    closed = socket.create_server(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in (closed, silent, babbler)]
    closed.close()

    def babble() -> None:
        try:
            while True:
                visitor, _ = babbler.accept()
                with visitor:
                    visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9)
                    time.sleep(0.5)
        except OSError:
            pass

    thread = threading.Thread(target=babble)
    thread.start()
    processes = [start(folder, f"tcp://127.0.0.1:{port}") for port in ports]
    for port, process in zip(ports, processes, strict=True):
        status, stdout, stderr = finish(process)
        assert (status, stdout) == (2, ""), stderr
        assert re.fullmatch(rf"fedcell: --cluster tcp://127.0.0.1:{port}: no Dask scheduler answers there .*\n", stderr)
    for listener in (silent, babbler):
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    thread.join(LIMIT_S)
    assert not (folder / "results.db").exists()
