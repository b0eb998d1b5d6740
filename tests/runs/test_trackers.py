"""What trackers keep is what the runs did, read back with each tool's own reader; and no tracker harms a run."""

import json
import os
import re
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from subprocess import CompletedProcess
from traceback import walk_stack
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.cli.options import TRACKER_NAMES
from fedcell.files import directory_lock
from fedcell.runs.race import race_runs
from fedcell.runs.trackers import TRACKERS, MLflow, TensorBoard, TrackedRun, Values, WeightsAndBiases, parse_tracker
from fedcell.sim.record import ROUND_COLUMNS
from harness import LIMIT_S, wait_until

Here = Callable[..., CompletedProcess[str]]
Numbers = dict[str, list[dict[str, float]]]
"""By the name of a run its rounds."""

RACE = fc.Spec(
    rounds=3,
    devices=fc.Devices(count=4),
    task=fc.TaskSpec(hidden=[4]),
    grid={"policy": ["all", "random:k=2"], "seed": [0, 1]},
)
TARGET = 0.15


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own; nothing of the user's settings, and nothing is reported to anybody."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for place in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"WANDB_{place}_DIR", str(tmp_path / "wandb-home"))


@pytest.fixture(scope="module")
def mlflow_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database: to make its tables takes a second. Groups keep the tests apart."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def wandb_ends() -> Iterator[None]:
    """W&B's service ends with the test."""
    yield
    import wandb

    wandb.teardown()


def tracked(tracker: str, race: fc.Spec = RACE, store: fc.Store | None = None) -> fc.RaceResult:
    with fc.tracking([tracker], race, target=TARGET, store=store) as track:
        return fc.run_race(race, target=TARGET, store=store, watch=track)


def expected(result: fc.RaceResult) -> Numbers:
    return {
        f"{policy} seed{seed}": [dict(zip(ROUND_COLUMNS, record.numbers(), strict=True)) for record in run]
        for policy, runs in result.runs.items()
        for seed, run in zip(result.seeds, runs, strict=True)
    }


# --- what each of them has -----------------------------------------------------------------------------------------


def event_files(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in sorted(folder.rglob("*tfevents*"))}


def in_tensorboard(folder: Path) -> tuple[Numbers, dict[str, Values]]:
    """The rounds and the summaries, by the names of the folders."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rounds: Numbers = {}
    summaries: dict[str, Values] = {}
    for path in folder.rglob("*tfevents*"):
        read = EventAccumulator(str(path.parent)).Reload()
        points: dict[int, dict[str, float]] = {}
        name = path.parent.name
        summaries[name] = {}
        for tag in read.Tags()["scalars"]:
            section, _, column = tag.partition("/")
            for event in read.Scalars(tag):
                if section == "run":
                    summaries[name][column] = event.value
                    continue
                point = points.setdefault(event.step, {"round": event.step, "wall": event.wall_time})
                assert column not in point, "a round twice"
                point[column] = event.value
        rounds[name] = list(points.values())
    return rounds, summaries


def test_tensorboard_has_every_round_at_its_simulated_time(tmp_path: Path) -> None:
    result = tracked("tensorboard:runs,group=first")
    rounds, summaries = in_tensorboard(tmp_path / "runs")
    assert {path.parent.parent.name for path in (tmp_path / "runs").rglob("*tfevents*")} == {"first"}
    for name, records in expected(result).items():
        folder = re.sub("[: ]", "-", name)
        for found, wanted in zip(rounds.pop(folder), records, strict=True):
            assert found.pop("wall") == wanted["clock_s"]  # a double, bit for bit
            assert found == {column: float(np.float32(value)) for column, value in wanted.items()}
        best = max(record["accuracy"] for record in records)
        reached = [record["clock_s"] for record in records if record["accuracy"] >= TARGET]
        assert summaries[folder]["best_accuracy"] == float(np.float32(best))
        assert summaries[folder].get("time_to_target_s") == (float(np.float32(reached[0])) if reached else None)
    assert not rounds


def test_tensorboard_shows_the_seeds_of_a_policy_as_one_trial(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    tracked("tensorboard")
    trials: dict[str, set[str]] = {}
    for path in (tmp_path / "runs").rglob("*tfevents*"):
        values = [value for event in EventFileLoader(str(path)).Load() for value in event.summary.value]
        [found] = [value for value in values if value.metadata.plugin_data.plugin_name == "hparams"]
        start = HParamsPluginData.FromString(found.metadata.plugin_data.content).session_start_info
        assert start.hparams["devices.count"].number_value == 4
        assert start.hparams["task.hidden"].string_value == "[4]"
        trials.setdefault(start.group_name, set()).add(start.hparams["policy"].string_value)
    assert sorted(map(sorted, trials.values())) == [["all"], ["random:k=2"]]
    assert all(re.fullmatch(r"[0-9a-f]{8} .+", group) for group in trials)


def stopped_early(store: fc.Store, tracker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play some rounds of the race."""
    runner = fc.Runner(race_runs(RACE), store=store, on="threads", workers=1, together=True)
    with monkeypatch.context() as patched, fc.tracking([tracker], RACE, target=TARGET, store=store) as track:
        patched.setattr("fedcell.runs.runner.SLICE_S", 0.0)  # one round at a time
        played = 0
        for event in runner:
            track(event)
            played += isinstance(event, fc.RoundsDone)
            if played == 5:
                runner.stop()
    assert 0 < len(store.unfinished_keys()) < 4


def test_tensorboard_files_of_a_resumed_race_are_those_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked("tensorboard:whole")
    with fc.Store("results.db") as store:
        stopped_early(store, "tensorboard:parts", monkeypatch)
        partly = event_files(tmp_path / "parts")
        tracked("tensorboard:parts", store=store)
        tracked("tensorboard:after", store=store)  # a race that was not tracked when it ran
    whole = event_files(tmp_path / "whole")
    assert partly != whole == event_files(tmp_path / "parts") == event_files(tmp_path / "after")
    assert all(whole[name].startswith(content) for name, content in partly.items())


def in_mlflow(uri: str, group: str) -> list[Any]:
    import mlflow

    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("fedcell")
    return list(client.search_runs([experiment.experiment_id], f"tags.`fedcell.group` = '{group}'"))


def mlflow_rounds(uri: str, run: Any) -> list[dict[str, float]]:
    """The rounds of a run; a point that is there twice would be an error."""
    import mlflow

    client = mlflow.MlflowClient(uri)
    points: dict[int, dict[str, float]] = {}
    for column in ROUND_COLUMNS:
        for metric in client.get_metric_history(run.info.run_id, column):
            point = points.setdefault(metric.step, {})
            assert column not in point, "a round twice"
            point[column] = metric.value
            clock_s = (metric.timestamp - run.info.start_time) / 1000
            assert point.setdefault("timestamp", clock_s) == clock_s
    return [points[step] for step in sorted(points)]


def test_mlflow_has_every_round_once_also_of_a_resumed_race(mlflow_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"mlflow:{mlflow_uri},group=resumed"
    with fc.Store("results.db") as store:
        stopped_early(store, line, monkeypatch)
        assert {run.info.status for run in in_mlflow(mlflow_uri, "resumed")} == {"KILLED"}
        result = tracked(line, store=store)
        tracked(line, store=store)  # all of it is stored, and tracked
    found = {run.info.run_name: run for run in in_mlflow(mlflow_uri, "resumed")}
    assert len(found) == len(in_mlflow(mlflow_uri, "resumed")) == 4
    for name, records in expected(result).items():
        run = found[name]
        rounds = mlflow_rounds(mlflow_uri, run)
        times_s = [point.pop("timestamp") for point in rounds]
        assert rounds == records  # bit for bit
        assert times_s == [round(1000 * record["clock_s"]) / 1000 for record in records]
        assert run.info.status == "FINISHED"
        assert run.data.params["policy"] == name.split()[0]
        assert run.data.params["cell.radius_m"] == "1400.0"
        assert run.data.metrics["best_accuracy"] == max(record["accuracy"] for record in records)
        assert run.data.metrics["target"] == TARGET


def wandb_records(path: Path) -> Iterator[Any]:
    """W&B's messages in the log of a run: LevelDB's log format, after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, message = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 2**15 - at % 2**15) < 7:  # a block ends, and no header fits into the rest of it
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        message += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(message)
            message = b""


def in_wandb(folder: Path) -> dict[str, Any]:
    """What W&B has of the one run in this folder."""

    def values(items: Any) -> dict[str, Any]:
        return {(item.key or ".".join(item.nested_key)): json.loads(item.value_json) for item in items}

    found: dict[str, Any] = {"rounds": [], "summary": {}, "metrics": [], "exits": []}
    [path] = folder.glob("*.wandb")
    for record in wandb_records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found |= {"run": record.run, "config": values(record.run.config.update)}
        if kind == "history":
            found["rounds"].append(values(record.history.item))
        if kind == "summary":
            found["summary"] |= values(record.summary.update)
        if kind == "metric":
            found["metrics"].append((record.metric.glob_name, record.metric.step_metric))
        if kind == "exit":
            found["exits"].append(record.exit.exit_code)
    return found


@pytest.mark.processes
@pytest.mark.usefixtures("wandb_ends")
def test_wandb_has_every_round_offline_also_of_a_resumed_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fc.Store("results.db") as store:
        stopped_early(store, "wandb:group=resumed", monkeypatch)
        before = set((tmp_path / "wandb").glob("offline-run-*"))
        ended = {found["run"].display_name for found in map(in_wandb, before) if found["exits"] == [0]}
        time.sleep(1.1)  # W&B names a folder by the second
        result = tracked("wandb:group=resumed", store=store)
        tracked("wandb:group=resumed", store=store)  # all of it is stored, and tracked
    after = set((tmp_path / "wandb").glob("offline-run-*"))
    assert len(after - before) == 4 - len(ended)  # what had ended is left alone
    runs = {found["run"].display_name: found for found in map(in_wandb, sorted(after))}  # the newest of each
    for name, records in expected(result).items():
        found = runs[name]
        assert found["run"].project == "fedcell"
        assert found["run"].run_group == "resumed"
        assert (found["config"]["policy"], found["config"]["cell"]["radius_m"]) == (name.split()[0], 1400.0)
        rounds = [{column: point[column] for column in ROUND_COLUMNS} for point in found["rounds"]]
        assert rounds == records  # bit for bit
        assert [point["_step"] for point in found["rounds"]] == [record["round"] for record in records]
        assert found["summary"]["best_accuracy"] == max(record["accuracy"] for record in records)
        assert found["exits"] == [0]
        assert found["metrics"][0] == ("*", "clock_s")


# --- what goes wrong -----------------------------------------------------------------------------------------------


class Broken:
    """Takes one round, and then its disk is full."""

    group = None

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.rounds_seen = 0

    def open(self) -> Callable[[TrackedRun], "Broken"]:
        return lambda _: self

    def rounds(self, rounds: Any) -> None:
        self.rounds_seen += 1
        raise OSError(28, "No space left on device")

    def end(self, ending: str, summary: Values) -> None:
        self.ended.append(ending)

    def shown_by(self) -> str:
        return "nothing"


def test_a_tracker_that_fails_costs_a_warning_and_nothing_else(tmp_path: Path) -> None:
    broken, plain = Broken(), fc.run_race(RACE)
    said: list[str] = []
    with (
        fc.Store("results.db") as store,
        fc.tracking([broken, "tensorboard:runs"], RACE, store=store, warn=said.append) as track,
    ):
        result = fc.run_race(RACE, store=store, watch=track)
        assert store.done([run.key() for run in race_runs(RACE)]) == {run.key() for run in race_runs(RACE)}
    assert expected(result) == expected(plain)
    [sentence] = said
    assert (
        sentence
        == "Broken has failed and gets no more rounds, but the runs continue: [Errno 28] No space left on device"
    )
    assert broken.rounds_seen == 1
    assert broken.ended == ["stopped"]
    assert len(event_files(tmp_path / "runs")) == 4  # the other one goes on


class Hanging(Broken):
    """Its server never answers. Once it is waited for, its user presses Ctrl-C."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def rounds(self, rounds: Any) -> None:
        main = threading.main_thread().ident
        assert main is not None

        def waited_for() -> bool:
            frames = walk_stack(sys._current_frames()[main])
            called = [(Path(frame.f_code.co_filename).name, frame.f_code.co_name) for frame, _ in frames]
            return ("threading.py", "join") in called and ("trackers.py", "wait") in called

        wait_until(waited_for, "the end of the race")
        signal.pthread_kill(main, signal.SIGINT)  # as a terminal's, it wakes the thread
        self.released.wait(LIMIT_S)
        raise OSError("gone")  # and its thread ends


def test_a_tracker_that_hangs_delays_no_run_and_can_be_given_up(tmp_path: Path) -> None:
    hanging = Hanging()
    said: list[str] = []
    with fc.tracking([hanging, "tensorboard:runs"], RACE, warn=said.append) as track:
        result = fc.run_race(RACE, watch=track)
    hanging.released.set()
    assert result.complete
    assert said == ["Hanging was given up before it had written all rounds"]
    assert len(event_files(tmp_path / "runs")) == 4


def test_in_python_the_warning_is_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match="Broken has failed"), fc.tracking([Broken()], RACE) as track:
        fc.run_race(RACE, watch=track)


def test_a_folder_that_goes_away_does_not_end_the_race(tmp_path: Path, fedcell_here: Here) -> None:
    (tmp_path / "race.toml").write_text(RACE.to_toml())
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "all-seed0").write_text("in the way")
    done = fedcell_here("race", "race.toml", "--track", "tensorboard:group=mine", "--plot", "none", cwd=tmp_path)
    assert done.returncode == 2  # what was asked for is not all there
    assert "random:k=2" in done.stdout
    [line] = [line for line in done.stderr.splitlines() if "fail" in line]
    assert line.startswith("fedcell: TensorBoard has failed and gets no more rounds, but the runs continue: ")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tensorbord", "unknown tracker 'tensorbord'; did you mean 'tensorboard'?"),
        ("tensorboard:dir=x", "tracker 'tensorboard' has no setting 'dir'"),
        ("wandb:mode=on", "mode of tracker 'wandb' is 'on'"),
        ("mlflow:htp://localhost", "tracker 'mlflow' cannot be used: "),
        ("mlflow:http://127.0.0.1:9", "tracker 'mlflow' cannot be used: "),
        ("tensorboard:/dev/null/x", "cannot write into /dev/null/x"),
        ("tensorboard:group=..", "group of tracker 'tensorboard' is '..'"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_made(
    line: str, said: str, tmp_path: Path, fedcell_here: Here
) -> None:
    done = fedcell_here("race", "--rounds", "1", "--track", line, "--store", "results.db", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_tracker_that_is_given_twice_is_refused(tmp_path: Path, fedcell_here: Here) -> None:
    twice = ["--track", "tensorboard:a"] * 2
    done = fedcell_here("race", "--rounds", "1", *twice, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is given twice; give it once" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["tensorboard:runs", [5], [Path("runs")]])
def test_in_python_what_is_no_tracker_is_said(given: Any, tmp_path: Path) -> None:
    with pytest.raises(fc.InputError, match="tracker"), fc.tracking(given, RACE):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", TRACKERS)
def test_a_package_that_is_missing_is_named_with_its_extra(
    name: str, tmp_path: Path, fedcell_here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    for command in (["race"], ["sweep", "sweep.toml"]):
        (tmp_path / "sweep.toml").write_text(RACE.to_toml())
        done = fedcell_here(*command, "--track", name, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"pip install 'fedcell[{name}]'" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


# --- names and settings --------------------------------------------------------------------------------------------


def test_the_settings_of_a_line() -> None:
    assert parse_tracker("tensorboard:out/runs") == TensorBoard("out/runs")
    assert parse_tracker("tensorboard:folder=a,group=b") == TensorBoard("a", "b")
    assert parse_tracker("mlflow:http://localhost:5000") == MLflow("http://localhost:5000")
    assert parse_tracker("wandb:cell,mode=online") == WeightsAndBiases("cell", mode="online")
    assert tuple(TRACKERS) == TRACKER_NAMES


@pytest.mark.processes
def test_a_sweep_names_its_runs_by_what_differs(tmp_path: Path, fedcell_here: Here) -> None:
    grid = {"policy": ["all"], "seed": [0], "cell.radius_m": [500.0, 900.0]}
    (tmp_path / "sweep.toml").write_text(RACE.model_copy(update={"grid": grid, "rounds": 1}).to_toml())
    line = "tensorboard:runs,group=radii"
    done = fedcell_here("sweep", "sweep.toml", "--workers", "1", "--track", line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Tracked: tensorboard --logdir runs" in done.stdout
    assert sorted(event_files(tmp_path / "runs")) == ["all-radius_m=500.0-seed0", "all-radius_m=900.0-seed0"]


def test_wandb_is_offline_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_tracker("wandb").shown_by() == "wandb sync wandb/offline-run-*"
    assert parse_tracker("wandb:mode=online").shown_by() == "the W&B project fedcell"
    monkeypatch.setenv("WANDB_MODE", "online")
    assert parse_tracker("wandb:cell").shown_by() == "the W&B project cell"
    assert parse_tracker("wandb:mode=offline").shown_by() == "wandb sync wandb/offline-run-*"
    monkeypatch.setenv("WANDB_MODE", "")
    assert parse_tracker("wandb").shown_by() == "wandb sync wandb/offline-run-*"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert "disabled" in parse_tracker("wandb").shown_by()
    monkeypatch.setenv("WANDB_MODE", "ofline")
    for line in ("wandb", "wandb:mode=offline"):  # W&B reads it in any case
        with pytest.raises(fc.InputError, match="WANDB_MODE is 'ofline'; did you mean 'offline'"):
            parse_tracker(line).open()
    monkeypatch.setenv("WANDB_MODE", "")
    parse_tracker("wandb").open()
    assert "WANDB_MODE" not in os.environ


def test_one_process_at_a_time_makes_the_tables_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    class Client:
        def __init__(self, uri: str) -> None:
            pass

        def get_experiment_by_name(self, name: str) -> Any:
            place = os.open(tmp_path, os.O_RDONLY)
            try:
                with pytest.raises(BlockingIOError):  # as another process would find it
                    flock(place, LOCK_EX | LOCK_NB)
            finally:
                os.close(place)
            raise OSError("it is enough")

    monkeypatch.setattr(mlflow, "MlflowClient", Client)
    for uri in ("sqlite:///mlflow.db", f"sqlite:///{tmp_path}/mlflow.db"):
        with pytest.raises(fc.InputError, match="it is enough"):
            MLflow(uri).open()
    with directory_lock(tmp_path), directory_lock(tmp_path / "missing"):
        pass


def test_the_command_that_shows_runs_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_tracker("tensorboard:my runs").shown_by() == "tensorboard --logdir 'my runs'"
    assert parse_tracker("tensorboard:~").shown_by() == f"tensorboard --logdir {Path.home()}"
    assert parse_tracker("mlflow:sqlite:///my runs.db").shown_by().endswith("-uri 'sqlite:///my runs.db'")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "my runs"))
    assert parse_tracker("wandb").shown_by() == f"wandb sync '{tmp_path}/my runs/wandb'/offline-run-*"
