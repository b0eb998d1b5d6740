"""How fast fedcell trains, beside its peers, in one run: `make bench-training`.

A paper round is 8 clients x 3,000 MNIST samples, batch 10, one epoch of SGD on 784-64-10, the mean of the models, and
an evaluation on 10,000 images. Every peer (benchmarks/peers/) does it in a process of its own, from the same weights on
the same samples; its accuracy must come out as fedcell's. The machines are shared, so fedcell is measured right before
and right after each peer and compared with what it took there, by the least and by the median of the rounds.

Then: what the simulator itself costs a round, and the memory that a race takes.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import fedcell as fc
from fedcell.learn.data import Dataset, load_dataset
from fedcell.learn.engine import Engine, Evaluation, Job, Updates
from fedcell.learn.mlp import MlpEngine
from fedcell.sim import loop as simulation
from fedcell.sim.spec import Spec
from fedcell.sim.task import load_task
from fedcell.types import Vector

ROOT = Path(__file__).parents[1]
PEERS_PYTHON = ROOT / ".bench-venv" / "bin" / "python"
CONSOLE = Console(width=150)
CORES = 2
CLIENTS, SAMPLES = 8, 3000
R = TypeVar("R")
POINTS = 0.02  # by which a peer's accuracy may differ
LIMIT_S = 240.0

ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "PYTHONWARNINGS": "ignore",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "JAX_PLATFORMS": "cpu",
    "GLOO_SOCKET_IFNAME": "lo",
}
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Peer:
    """Someone who does the same work.

    Attributes:
        name: for the table.
        commands: what follows ``python``; the second is tried where the first fails.
        target: how many times as fast fedcell shall be, if that was ever said.
        cores: how many both sides get.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    target: float | None = None
    cores: int = CORES


def module(name: str) -> tuple[str, ...]:
    return "-m", f"benchmarks.peers.{name}"


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(CORES))
PEERS = (
    Peer("Flower simulation", (module("flower"),), 25.0),
    Peer("Flower, impatient", ((*module("flower"), "0.005"),)),
    Peer("pfl", ((*TORCHRUN, *module("pfl_peer")), module("pfl_peer")), 15.0),
    Peer("FedJAX", (module("fedjax_peer"),), 6.0),
    Peer("JAX by hand", (module("jax_loop"),), 4.0),
    Peer("FedLab", (module("fedlab_peer"),)),
    Peer("PyTorch loop", (module("torch_loop"),)),
    Peer("NumPy loop, one core", (module("numpy_loop"),), 3.0, cores=1),
)


@dataclass(frozen=True)
class Work:
    """The rounds: ``parts`` (clients, samples) index the data, ``orders`` (rounds, clients, samples) the parts."""

    data: Dataset
    parts: NDArray[np.int64]
    orders: NDArray[np.int64]
    start: Vector
    warm: int

    def save(self, path: Path) -> None:
        """Write what the peers read."""
        ends = np.cumsum([64 * 784, 64, 10 * 64])
        w1, b1, w2, b2 = np.split(self.start, ends)
        data = self.data
        arrays: dict[str, Any] = {
            "x": data.train_x.reshape(-1, 784)[self.parts],
            "y": data.train_y[self.parts],
            "test_x": data.test_x.reshape(-1, 784),
            "test_y": data.test_y,
            "orders": self.orders,
            "w1": w1.reshape(64, 784),
            "b1": b1,
            "w2": w2.reshape(10, 64),
            "b2": b2,
        }
        np.savez(path, **arrays, shift=data.shift, scale=data.scale, warm=self.warm)


def make_work(rounds: int, warm: int) -> Work:
    rng = np.random.default_rng(0)
    data = load_dataset("mnist")
    parts = rng.permutation(len(data.train_y))[: CLIENTS * SAMPLES].reshape(CLIENTS, SAMPLES)
    orders = rng.permuted(np.tile(np.arange(SAMPLES), (rounds, CLIENTS, 1)), axis=2)
    return Work(data, parts, orders, MlpEngine(data).initial(rng), warm)


@dataclass(frozen=True)
class Measured:
    """Seconds of each timed round, the accuracy after the last, and the cores that others kept busy meanwhile."""

    seconds: list[float]
    accuracy: float
    version: str = ""
    note: str = ""
    others: tuple[float, ...] = ()

    def __add__(self, other: "Measured") -> "Measured":
        return replace(other, seconds=self.seconds + other.seconds, others=self.others + other.others)

    def shown(self) -> str:
        """The least and the median, in ms."""
        return f"{1e3 * min(self.seconds):.1f} / {1e3 * float(np.median(self.seconds)):.1f}"


def run_fedcell(work: Work, engine: Engine) -> Measured:
    """The rounds with fedcell, through what its loop calls."""
    model, seconds, accuracy = work.start, [], 0.0
    began, others_s = time.perf_counter(), others_busy_s()
    for orders in work.orders:
        start = time.perf_counter()
        jobs = [Job(model, part[order][np.newaxis]) for part, order in zip(work.parts, orders, strict=True)]
        model = engine.train(jobs).mean(axis=0)
        accuracy = float(engine.evaluate(model[np.newaxis]).accuracy[0])
        seconds.append(time.perf_counter() - start)
    others = (others_busy_s() - others_s) / (time.perf_counter() - began)
    return Measured(seconds[work.warm :], accuracy, others=(others,))


def others_busy_s() -> float:
    """Seconds of processor time that everyone but this process has spent, where the system tells."""
    try:
        user, nice, system = (int(ticks) for ticks in Path("/proc/stat").read_text().split()[1:4])
    except OSError:
        return 0.0
    own = os.times()
    return (user + nice + system) / os.sysconf("SC_CLK_TCK") - own.user - own.system


class PeerError(Exception):
    """Why a peer has no result."""


def run_peer(peer: Peer, data: Path, folder: Path) -> Measured:
    """The rounds with a peer; a PeerError where none of its commands works."""
    if not PEERS_PYTHON.exists():
        raise PeerError("not installed: make bench installs the peers")
    reasons = []
    for command in peer.commands:
        try:
            return run_command([str(PEERS_PYTHON), *command, str(data)], peer.cores, folder)
        except PeerError as error:
            reasons.append(str(error))
    raise PeerError(reasons[0])


def run_command(command: list[str], cores: int, folder: Path) -> Measured:
    environment = os.environ | ENVIRONMENT | {"RAY_TMPDIR": str(folder), "FLWR_HOME": str(folder)}
    if cores == 1:
        environment |= ONE_THREAD
    with (folder / "errors.txt").open("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=environment, start_new_session=True
        )
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise PeerError(f"not done after {LIMIT_S:.0f} s") from None
        finally:
            end(process)
        errors.seek(0)
        lines = [line.strip() for line in errors if line.strip()]
    results = [line for line in output.splitlines() if line.startswith('{"')]
    if process.returncode != 0 or not results:
        faults = [line for line in lines if "Error" in line]
        raise PeerError((faults or lines or [f"ended with status {process.returncode}"])[-1][:100])
    return Measured(**json.loads(results[-1]))


def end(process: "subprocess.Popen[str]") -> None:
    """End a process that has not ended, and what it started: its group has its id."""
    for sign, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        if process.poll() is not None:
            return
        os.killpg(process.pid, sign)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue


@contextmanager
def pinned(cores: int) -> Iterator[None]:
    """This thread, and what it starts, on so many cores."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[-cores:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def compare(peers: Sequence[Peer], work: Work, repeats: int, folder: Path) -> Table:
    """Every peer between two measurements of fedcell, ``repeats`` times."""
    rows = table(
        "A paper round, ms: least / median of the rounds",
        *("peer", "version", "peer, ms", "fedcell, ms", "others", "ratio of least", "of medians", "target", "note"),
    )
    rows.caption = "others: cores that other processes kept busy while fedcell was measured; 0 is a quiet machine"
    data = folder / "work.npz"
    work.save(data)
    for peer in peers:
        with pinned(peer.cores):
            engine = MlpEngine(work.data, threads=peer.cores)
            run_fedcell(replace(work, orders=work.orders[:2]), engine)
            try:
                ours = run_fedcell(work, engine)
                theirs = run_peer(peer, data, folder)
                ours += run_fedcell(work, engine)
                for _ in range(repeats - 1):
                    theirs += run_peer(peer, data, folder)
                    ours += run_fedcell(work, engine)
            except PeerError as error:
                rows.add_row(peer.name, "", "no result", "", "", "", "", "", str(error))
                continue
        rows.add_row(peer.name, theirs.version, theirs.shown(), ours.shown(), *verdict(peer, theirs, ours))
    return rows


def verdict(peer: Peer, theirs: Measured, ours: Measured) -> tuple[str, ...]:
    """How busy others were, the ratios of a row, its target and its note."""
    least = min(theirs.seconds) / min(ours.seconds)
    median = float(np.median(theirs.seconds) / np.median(ours.seconds))
    target = "" if peer.target is None else f"{peer.target:g} x: {'met' if least >= peer.target else 'MISSED'}"
    note = theirs.note
    if abs(theirs.accuracy - ours.accuracy) > POINTS:
        note = f"OTHER WORK: accuracy {theirs.accuracy:.3f}, fedcell {ours.accuracy:.3f}; {note}"
    return f"{np.mean(ours.others):.1f}", f"{least:.1f} x", f"{median:.1f} x", target, note


def table(title: str, *headings: str) -> Table:
    made = Table(title=title, title_justify="left")
    for heading in headings:
        made.add_column(heading, justify="right" if heading[0] in "pfro" and heading != "peer" else "left")
    return made


class TimedEngine:
    """An engine that adds up the time spent in it."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.spent_s = engine, 0.0

    @property
    def parameters(self) -> int:
        """As the engine's."""
        return self.engine.parameters

    @property
    def tensors(self) -> tuple[int, ...]:
        """As the engine's."""
        return self.engine.tensors

    def initial(self, rng: np.random.Generator) -> Vector:
        """As the engine's."""
        return self.engine.initial(rng)

    def train(self, jobs: Sequence[Job]) -> NDArray[np.float32]:
        """As the engine's."""
        return self._timed(lambda: self.engine.train(jobs))

    def update(self, jobs: Sequence[Job]) -> Updates:
        """As the engine's."""
        return self._timed(lambda: self.engine.update(jobs))

    def losses(self, jobs: Sequence[Job]) -> NDArray[np.float64]:
        """As the engine's."""
        return self._timed(lambda: self.engine.losses(jobs))

    def evaluate(self, models: NDArray[np.float32]) -> Evaluation:
        """As the engine's."""
        return self._timed(lambda: self.engine.evaluate(models))

    def _timed(self, call: Callable[[], R]) -> R:
        start = time.perf_counter()
        try:
            return call()
        finally:
            self.spent_s += time.perf_counter() - start


def simulator_s(spec: Spec) -> tuple[list[float], float]:
    """Seconds of each round of a real run less those in its engine, and the mean number of devices scheduled."""
    engines: list[TimedEngine] = []

    def load_timed_task(*arguments: Any) -> Any:
        task = load_task(*arguments)
        engines.append(TimedEngine(task.engine))
        return replace(task, engine=engines[-1])

    seconds: list[float] = []
    scheduled: list[int] = []
    with patch.object(simulation, "load_task", load_timed_task):
        records = simulation.simulate(spec, threads=CORES)
        next(records)
        while True:
            spent_s, start = engines[0].spent_s, time.perf_counter()
            record = next(records, None)
            took_s = time.perf_counter() - start
            if record is None:
                return seconds, float(np.mean(scheduled))
            seconds.append(took_s - (engines[0].spent_s - spent_s))
            scheduled.append(len(record.plan.devices))


def simulator(quick: bool, folder: Path) -> Table:
    """What the loop costs beside training and evaluation."""
    rows = table(
        "The simulator's own cost of a round, ms: least / median", "devices", "policy", "ms", "scheduled", "target"
    )
    rng = np.random.default_rng(0)
    y = np.arange(100_000) % 2
    many = folder / "many.npz"
    x = rng.integers(0, 256, (len(y), 4), dtype=np.uint8)
    np.savez(many, train_x=x, train_y=y, test_x=x[:100], test_y=y[:100])
    tiny = {"data": str(many), "partition": "iid", "hidden": [4]}
    rounds = 10 if quick else 40
    for policy in ("greedy", "optimal"):
        add_cost(rows, Spec(policy=policy, rounds=rounds), 1e-3)
    large = {"policy": "optimal", "rounds": rounds // 2, "devices": {"count": len(y)}, "task": tiny}
    add_cost(rows, Spec.model_validate(large), 50e-3)
    return rows


def add_cost(rows: Table, spec: Spec, target_s: float) -> None:
    seconds, scheduled = simulator_s(spec)
    shown = Measured(seconds, 0.0).shown()
    met = "met" if np.median(seconds) < target_s else "MISSED"
    rows.add_row(
        f"{spec.devices.count:,}", spec.policy, shown, f"{scheduled:.1f}", f"under {1e3 * target_s:g} ms: {met}"
    )


def race_memory(quick: bool, folder: Path) -> Table:
    """The peak memory of the default race, a process of its own."""
    rows = table("The default race (fedcell race)", "race", "seconds", "peak memory", "target")
    options = ["--seeds", "2", "--budget-s", "100"] if quick else []
    command = [sys.executable, "-m", "fedcell", "race", "--plot", str(folder / "race.png"), *options]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    took_s = time.perf_counter() - start
    peak_gb = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
    met = "FAILED" if process.returncode else "met" if peak_gb < 1.5 else "MISSED"
    rows.add_row(" ".join(options) or "as it is", f"{took_s:.1f}", f"{peak_gb:.2f} GB", f"under 1.5 GB: {met}")
    return rows


def processor() -> str:
    """The processor's name, where the system tells, and how busy the machine is."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, load before the run {os.getloadavg()[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a short race")
    parser.add_argument("--peer", default="", help="only the peers with this in their names, and nothing else")
    options = parser.parse_args()
    quick, peers = options.quick, [peer for peer in PEERS if options.peer in peer.name]
    versions = f"fedcell {fc.__version__}, Python {platform.python_version()}"
    CONSOLE.print(f"{versions}, {CORES} cores of {os.cpu_count()}, {processor()}")
    with tempfile.TemporaryDirectory(prefix="bench", ignore_cleanup_errors=True) as name, pinned(CORES):
        folder = Path(name)
        work = make_work(rounds=5 if quick else 12, warm=2)
        CONSOLE.print(compare(peers, work, 1 if quick else 3, folder))
        if not options.peer:
            CONSOLE.print(simulator(quick, folder))
            CONSOLE.print(race_memory(quick, folder))


if __name__ == "__main__":
    main()
