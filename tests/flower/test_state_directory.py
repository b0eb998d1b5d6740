"""The state directory in trouble: metrics that are NaN, other models, full or read-only disks, two servers."""

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fedcell.errors import InputError
from fedcell.flower import Report, Scheduled, report_device
from fedcell.flower.nodes import Roster
from fedcell.flower.state import Run, load_arrays, load_run, locked_directory, save
from flower.local import LocalGrid, Nodes, node
from flower.test_scheduled import Client, run
from flower.test_state import a_round, a_run, saved


def clients() -> Nodes:
    app = ClientApp()
    report_device(app, Report(upload_s=1.0, compute_s=0.1))

    @app.train()
    def train(asked: Message, _: Context) -> Message:
        model = asked.content.array_records["arrays"]
        new = ArrayRecord({name: Array(np.asarray(array.numpy() + 1)) for name, array in model.items()})
        return Message(RecordDict({"arrays": new, "metrics": MetricRecord({"num-examples": 1})}), reply_to=asked)

    return {n: node(app, n) for n in range(2)}


def a_model(*shape: int, dtype: Any = np.float32) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(shape or (2,), dtype=dtype)), "n": Array(np.asarray(np.int64(0)))})


def start(state: Path, rounds: int = 1, model: ArrayRecord | None = None, **given: Any) -> tuple[Scheduled, Any]:
    scheduled = Scheduled(FedAvg(fraction_evaluate=0.0), "all", grace_s=1000.0, state=state)
    return scheduled, scheduled.start(LocalGrid(clients()), model or a_model(), num_rounds=rounds, **given)


# --- metrics ----------------------------------------------------------------------------------------------------------


def evaluate(number: int, _: ArrayRecord) -> MetricRecord:
    metrics: dict[str, Any] = {"loss": math.nan, "best": -math.inf, "curve": [math.inf, float(number)], "n": number}
    return MetricRecord(metrics)


def test_a_run_with_metrics_that_are_not_finite_is_resumed_with_them(tmp_path: Path) -> None:
    start(tmp_path, 2, evaluate_fn=evaluate)
    scheduled, result = start(tmp_path, 3, evaluate_fn=evaluate)
    assert [done.round for done in scheduled.rounds] == [1, 2, 3]
    found = result.evaluate_metrics_serverapp[2]
    assert math.isnan(found["loss"])
    assert (found["best"], found["curve"], found["n"]) == (-math.inf, [math.inf, 2.0], 2)
    assert math.isnan(scheduled.rounds[0].metric("loss"))
    for line in (tmp_path / "rounds.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@pytest.mark.parametrize(
    "metrics", [{"server": {"loss": None}}, {"server": 3}, [1], {"server": {"loss": "many"}}, None]
)
def test_metrics_that_are_no_numbers_are_refused_in_one_sentence(tmp_path: Path, metrics: Any) -> None:
    saved(tmp_path, a_run(1))
    line = json.loads((tmp_path / "rounds.jsonl").read_text()) | {"metrics": metrics}
    (tmp_path / "rounds.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match="not a complete state directory"):
        load_run(tmp_path)


# --- another model ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (lambda: a_model(3), r"its array 'w' has the shape \(2,\), not \(3,\); give another directory"),
        (lambda: a_model(2, 1), r"its array 'w' has the shape \(2,\), not \(2, 1\)"),
        (lambda: a_model(dtype=np.complex64), "its array 'w' is of float32, and the app's is of complex numbers"),
        (lambda: ArrayRecord({"v": Array(np.zeros(2))}), "its arrays have other names"),
    ],
)
def test_a_run_of_another_model_is_not_resumed(tmp_path: Path, model: Any, complaint: str) -> None:
    start(tmp_path)
    with pytest.raises(InputError, match=complaint) as caught:
        start(tmp_path, 2, model())
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_float_model_does_not_resume_integers_but_integers_resume_their_means(tmp_path: Path) -> None:
    start(tmp_path, 1, a_model(dtype=np.int64))
    _, result = start(tmp_path, 2, a_model(dtype=np.int64))
    assert result.arrays["w"].dtype == "float64"
    assert result.arrays["w"].numpy().tolist() == [2.0, 2.0]


# --- disks ------------------------------------------------------------------------------------------------------------


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs to mount a small disk: {done.stderr.strip()}")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filling").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass


def one_sentence(folder: Path, reason: str, **given: Any) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        start(folder, evaluate_fn=lambda *_: pytest.fail("training began"), **given)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_full_disk_is_noticed_before_round_1(small: Path) -> None:
    one_sentence(small / "run", "No space left on device", model=a_model(100_000))
    assert [path.name for path in (small / "run").iterdir()] == ["lock"]
    fill(small)
    one_sentence(small / "run", "cannot write to .*: No space left on device; give Scheduled")


def test_a_read_only_disk_is_noticed_before_round_1(small: Path) -> None:
    (small / "run").mkdir()
    mount("-o", "remount,ro", str(small))
    one_sentence(small / "run", "cannot write to .*: Read-only file system")
    one_sentence(small / "new", "cannot write to .*: Read-only file system")


def test_a_file_in_the_place_of_the_directory_is_noticed_before_round_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one_sentence(tmp_path / "file", "it is not a directory")
    one_sentence(tmp_path / "file" / "run", "Not a directory")


def test_a_disk_that_fills_up_ends_the_run_in_one_sentence_and_it_resumes_once_there_is_room(small: Path) -> None:
    def filling(number: int, _: ArrayRecord) -> None:
        if number == 3:
            fill(small)

    with pytest.raises(InputError, match=r"cannot save round 3 in .*: No space left on device; make room") as caught:
        start(small / "run", 4, evaluate_fn=filling)
    assert "it will resume after round 2" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert load_arrays(small / "run", load_run(small / "run"))[1]["w"].tolist() == [2.0, 2.0]
    assert sorted(path.name for path in (small / "run").iterdir()) == [
        "fedcell-2.npz",
        "lock",
        "rounds.jsonl",
        "state.json",
    ]
    (small / "filling").unlink()
    scheduled, result = start(small / "run", 4)
    assert [done.round for done in scheduled.rounds] == [1, 2, 3, 4]
    assert result.arrays["w"].numpy().tolist() == [4.0, 4.0]


def test_wherever_the_disk_fills_up_the_earlier_state_stays_valid(small: Path) -> None:
    model = {"w": np.zeros(2000)}  # 16 kB: two fit, with what is known of the devices, and little else
    two = Run("greedy", 0, "FedAvg", [a_round(1), a_round(2)], [], None, None)
    outcomes = []
    for filled in range(0, 32_769, 4096):
        for path in small.iterdir():
            path.unlink()
        save(small, a_run(1), Roster.empty(), model, {})
        (small / "filling").write_bytes(b"x" * filled)
        try:
            save(small, two, Roster.empty(), model, {})
            outcomes.append(2)
        except InputError:
            outcomes.append(1)
        run = load_run(small)
        assert len(run.rounds) == outcomes[-1]
        assert load_arrays(small, run)[1]["w"].shape == (2000,)
    assert set(outcomes) == {1, 2}


# --- two servers ------------------------------------------------------------------------------------------------------

SERVER = """
import sys, time
from pathlib import Path
from fedcell.flower.state import locked_directory
with locked_directory(Path(sys.argv[1])):
    print("holds", flush=True)
    time.sleep(60)
"""


@pytest.mark.processes
def test_the_second_server_on_a_directory_is_told_and_a_killed_one_leaves_it_free(tmp_path: Path) -> None:
    start(tmp_path)
    with subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "holds\n"
        one_sentence(tmp_path, f"is in use by another server .process {first.pid}.; stop that one")
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    scheduled, _ = start(tmp_path, 2)
    assert len(scheduled.rounds) == 2


def test_a_run_that_ended_or_failed_leaves_its_directory_to_the_next(tmp_path: Path) -> None:
    with (
        locked_directory(tmp_path),
        pytest.raises(InputError, match=f"in use by another server .process {os.getpid()}."),
        locked_directory(tmp_path),
    ):
        pass

    def failing(number: int, _: ArrayRecord) -> None:
        if number:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as kept:
        start(tmp_path, evaluate_fn=failing)
    scheduled, _ = start(tmp_path)
    assert len(scheduled.rounds) == 1
    assert kept.tb is not None


def test_a_directory_of_version_0_2_is_resumed_and_its_arrays_keep_their_names(tmp_path: Path) -> None:
    old = Path(__file__).parents[1] / "fixtures" / "flower_0_2"
    folder = Path(shutil.copytree(old, tmp_path / "state"))
    before = load_run(old)
    with np.load(old / "fedcell-6.npz") as file:
        arrays = dict(file)
    roster, model, _ = load_arrays(old, before)
    assert model["w"].tolist() == [18.0] * 3
    assert roster.knowledge.turns.tolist() == arrays["knowledge/heard_turns"].tolist() == [5, 1, 3, 2]
    assert roster.knowledge.compute.mean_s.tolist() == arrays["knowledge/compute_s"].tolist()
    done = run(Client(Report(rate_bps=1e9)).grid(4), "oort:k=2", 8, seed=1, state=folder)
    assert done.rounds[:6] == before.rounds
    assert [one.round for one in done.rounds[6:]] == [7, 8]
    assert min(done.weights) > 18.0  # the model went on from where it stood
    turns = load_arrays(folder, load_run(folder))[0].knowledge.turns
    assert turns.sum() == 11 + sum(len(one.delivered) for one in done.rounds[6:])
    with np.load(folder / "fedcell-8.npz") as file:
        assert set(file) >= set(arrays)
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    assert lines[:6] == (old / "rounds.jsonl").read_text().splitlines()


def test_where_there_are_no_locks_the_user_is_told_to_take_care(
    tmp_path: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fedcell.flower.state.fcntl.flock", refuse)
    with locked_directory(tmp_path / "run", 100):
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["lock"]
        assert (tmp_path / "run" / "lock").read_text() == f"{os.getpid()}\n"
    (said,) = [record.getMessage() for record in log.records]
    assert said.startswith(f"fedcell: cannot lock {tmp_path / 'run'} (No locks available); make sure that no other")
    with locked_directory(None):
        pass
