"""Final models: out of the workers, into stores and files, and back."""

import io
import json
import os
import struct
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.learn.data import load_dataset
from fedcell.runs import runner as module
from fedcell.runs.models import model_paths, read_arrays, write_arrays
from fedcell.runs.runner import RoundsDone, RunDone
from fedcell.runs.store import Store
from fedcell.sim.loop import Simulation
from fedcell.sim.spec import Spec, TaskSpec
from fedcell.sim.state import State
from fedcell.sim.task import class_accuracy, evaluate_models, layers
from fedcell.types import Vector


def runs(small_npz: Path, rounds: int = 3, **task: Any) -> list[Spec]:
    grid: dict[str, list[Any]] = {"policy": ["all", "random:k=2"], "seed": [0, 1]}
    return Spec(rounds=rounds, task={"data": str(small_npz), "hidden": [5]} | task, grid=grid).runs()  # type: ignore[arg-type]


def truth(run: Spec) -> Vector:
    """The loop, by hand."""
    simulation = Simulation.load(run, 1)
    state = simulation.start()
    while (played := simulation.step(state)) is not None:
        state = played[1]
    return state.model


def models_of(runner: fc.Runner) -> dict[str, Vector | None]:
    return {event.key: event.model for event in runner if isinstance(event, RunDone)}


def assert_true(found: dict[str, Vector | None], specs: list[Spec]) -> None:
    assert set(found) == {run.key() for run in specs}
    for run in specs:
        np.testing.assert_array_equal(found[run.key()], truth(run), strict=True)


@pytest.mark.processes
@pytest.mark.parametrize("on", ["threads", "processes"])
def test_a_runner_hands_over_the_final_models(on: Any, small_npz: Path) -> None:
    specs = runs(small_npz)
    assert_true(models_of(fc.Runner(specs, on=on, workers=2, models=True)), specs)
    assert set(models_of(fc.Runner(specs, on=on, workers=2)).values()) == {None}


def test_a_stopped_runner_delivers_all_models_when_it_goes_on(
    small_npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE_S", 0.0)
    specs = runs(small_npz)
    with Store(tmp_path / "results.db") as store:
        runner = fc.Runner(specs, store=store, on="threads", workers=1, models=True)
        for event in runner:
            if isinstance(event, RunDone):
                runner.stop()  # others have not begun, and one is under way
        assert 0 < len(store.done([run.key() for run in specs], models=True)) < len(specs)
        assert_true(models_of(fc.Runner(specs, store=store, on="threads", workers=1, models=True)), specs)
    with Store(tmp_path / "results.db", "read") as store:
        assert_true({run.key(): store.model(run) for run in specs}, specs)


def test_runs_stored_without_models_are_computed_again_and_stay_as_they_were(small_npz: Path, tmp_path: Path) -> None:
    specs = runs(small_npz)
    with Store(tmp_path / "results.db") as store:
        list(fc.Runner(specs, store=store, on="threads"))
        before = {run.key(): store.numbers(run) for run in specs}
        assert [store.model(run) for run in specs] == [None] * 4
        assert store.done(before, models=True) == set()
        again = fc.Runner(specs, store=store, on="threads", models=True)
        assert_true(models_of(again), specs)
        assert (again.known, again.done) == (0, 4)
        assert {run.key(): store.numbers(run) for run in specs} == before
        third = fc.Runner(specs, store=store, on="threads", models=True)
        assert_true(models_of(third), specs)
        assert (third.known, third.done) == (4, 0)
        # A process that did not ask for models stores the run once more: the model stays.
        store.put(specs[0], fc.simulate(specs[0], threads=1))
        np.testing.assert_array_equal(store.model(specs[0]), truth(specs[0]), strict=True)
        store.delete([specs[0].key()])
        assert store.model(specs[0]) is None


def test_a_file_without_models_has_no_table_for_them(small_npz: Path, tmp_path: Path) -> None:
    (one, *_) = runs(small_npz, rounds=1)
    with Store(tmp_path / "results.db") as store:
        store.put(one, fc.simulate(one, threads=1))
        with store._use() as db:
            assert db.execute("SELECT 1 FROM sqlite_master WHERE name = 'models'").fetchone() is None
    with Store(tmp_path / "results.db", "read") as store:
        assert store.model(one) is None
        assert store.done([one.key()], models=True) == set()


def test_a_diverged_run_has_a_model(small_npz: Path, tmp_path: Path) -> None:
    (one, *_) = runs(small_npz, learning_rate=1e30)
    (model,) = models_of(fc.Runner([one], on="threads", models=True)).values()
    assert model is not None
    assert not np.isfinite(model).all()
    fc.save_model(tmp_path / "m.safetensors", one, model)
    found = fc.load_model(tmp_path / "m.safetensors").arrays
    np.testing.assert_array_equal(np.concatenate([array.ravel() for array in found.values()]), model)


# --- by class ------------------------------------------------------------------------------------------------------


def test_accuracy_by_class_is_that_of_a_forward_pass_by_hand(small_npz: Path) -> None:
    (one, *_) = runs(small_npz)
    model, data = truth(one), load_dataset(str(small_npz))
    arrays, at = {}, 0
    for name, shape in layers(one.task).items():
        arrays[name] = model[at : at + int(np.prod(shape))].reshape(shape).astype(np.float64)
        at += int(np.prod(shape))
    x = (
        data.test_x.reshape(len(data.test_x), -1) / (255.0 if data.test_x.dtype == np.uint8 else 1.0) - data.shift
    ) / data.scale
    hidden = np.maximum(x @ arrays["1.weight"].T + arrays["1.bias"], 0.0)
    right = (hidden @ arrays["3.weight"].T + arrays["3.bias"]).argmax(1) == data.test_y
    expected = [right[data.test_y == label].mean() for label in range(data.classes)]
    found = class_accuracy(one.task, model[np.newaxis])
    np.testing.assert_allclose(found, [expected], rtol=0, atol=1e-12)
    assert len(set(expected)) > 1
    *_, last = fc.simulate(one, threads=1)
    assert evaluate_models(one.task, model[np.newaxis]).accuracy[0] == last.accuracy == right.mean()


def test_a_class_without_test_samples_has_no_accuracy(tmp_path: Path) -> None:
    x, y = np.arange(40, dtype=np.float32).reshape(10, 4), np.arange(10) % 3
    np.savez(tmp_path / "d.npz", train_x=x, train_y=y, test_x=x[y < 2], test_y=y[y < 2])
    task = TaskSpec(data=str(tmp_path / "d.npz"), hidden=[3])
    size = sum(int(np.prod(shape)) for shape in layers(task).values())
    found = class_accuracy(task, np.zeros((2, size), np.float32))
    assert np.isnan(found[:, 2]).all()
    assert np.isfinite(found[:, :2]).all()


def test_a_race_tells_its_classes_in_json_and_csv(small_npz: Path) -> None:
    (one, *_) = runs(small_npz)
    race = one.changed({}, {"policy": ["all", "random:k=2"], "seed": [0, 1]})
    result = fc.run_race(race, workers=2, models=True)
    classes = result.class_accuracy()
    samples = np.bincount(load_dataset(str(small_npz)).test_y)
    for policy, found in classes.items():
        for seed, run in enumerate(result.runs[policy]):
            assert found[seed] @ samples / samples.sum() == pytest.approx(run[-1].accuracy, abs=1e-12)
    assert json.loads(result.to_json(per_class=True))["class_accuracy"] == {p: f.tolist() for p, f in classes.items()}
    assert "class_accuracy" not in json.loads(result.to_json())
    head, *lines = [line.split(",") for line in result.to_csv(per_class=True).splitlines()]
    at = head.index("accuracy_class_0")
    for line in lines:
        last = line[2] == "3"
        assert line[at:] == ([str(v) for v in classes[line[0]][int(line[1])]] if last else [""] * len(samples))
    assert result.to_csv() == "".join(",".join(line[:at]) + "\n" for line in [head, *lines])


def test_a_race_that_was_stopped_has_the_models_of_its_whole_seeds(
    small_npz: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE_S", 0.0)
    race = runs(small_npz)[0].changed({}, {"policy": ["all", "random:k=2"], "seed": [0, 1]})
    stop = threading.Event()

    def watch(event: object) -> None:
        if isinstance(event, RoundsDone) and event.spec.seed == 1:
            stop.set()

    result = fc.run_race(race, workers=1, watch=watch, stop=stop, models=True)
    assert result.seeds == [0]
    assert {policy: len(models) for policy, models in result.models.items()} == {"all": 1, "random:k=2": 1}
    assert fc.run_race(race, workers=1).models == {}


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
def test_a_saved_model_comes_back_bit_for_bit_and_can_be_evaluated(
    ending: str, small_npz: Path, tmp_path: Path
) -> None:
    (one, *_) = runs(small_npz)
    model, path = truth(one), tmp_path / f"model{ending}"
    fc.save_model(path, one, model)
    found = fc.load_model(path)
    assert found.spec.key() == one.key()
    assert {name: array.shape for name, array in found.arrays.items()} == layers(one.task)
    np.testing.assert_array_equal(np.concatenate([array.ravel() for array in found.arrays.values()]), model)
    *_, last = fc.simulate(one, threads=1)
    score = found.evaluate()
    assert (score.accuracy, score.loss) == (last.accuracy, last.loss)
    np.testing.assert_array_equal(score.class_accuracy, class_accuracy(one.task, model[np.newaxis])[0])


def test_safetensors_byte_by_byte(tmp_path: Path) -> None:
    """As the format's own page describes it."""
    arrays = {"a": np.array([[1.5, -2.0]], np.float32), "b": np.array([np.inf], np.float32)}
    with (tmp_path / "x.safetensors").open("wb") as file:
        write_arrays(file, ".safetensors", arrays, {"spec": "{}"})
    content = (tmp_path / "x.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert (8 + length) % 8 == 0
    assert json.loads(content[8 : 8 + length]) == {
        "__metadata__": {"spec": "{}"},
        "a": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]},
    }
    assert content[8 + length :] == struct.pack("<3f", 1.5, -2.0, np.inf)


def test_the_names_are_those_of_the_torch_modules(small_npz: Path) -> None:
    torch_modules = pytest.importorskip("fedcell.learn.torch_modules")
    data = load_dataset("mnist")
    for hidden in ([], [7], [6, 5]):
        module = torch_modules.mlp_module(data, hidden)
        expected = {name: tuple(array.shape) for name, array in module.state_dict().items()}
        assert layers(TaskSpec(hidden=hidden)) == expected == layers(TaskSpec(hidden=hidden, engine="torch"))
    cnn = torch_modules.cnn_module(data)
    task = TaskSpec(engine="torch", model="cnn")
    assert layers(task) == {name: tuple(array.shape) for name, array in cnn.state_dict().items()}


def test_torch_loads_a_saved_model_and_computes_the_same(small_npz: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from fedcell.learn.torch_modules import mlp_module

    (one, *_) = runs(small_npz)
    fc.save_model(tmp_path / "m.safetensors", one, truth(one))
    saved, data = fc.load_model(tmp_path / "m.safetensors"), load_dataset(str(small_npz))
    module = mlp_module(data, one.task.hidden)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in saved.arrays.items()})
    scale = 255.0 if data.test_x.dtype == np.uint8 else 1.0
    x = torch.from_numpy((data.test_x.astype(np.float32) / scale - data.shift) / data.scale).float()
    accuracy = (module(x).argmax(1).numpy() == data.test_y).mean()
    assert accuracy == pytest.approx(saved.evaluate().accuracy, abs=0.5 / len(data.test_y))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a whole model file"),
        (b"\xff" * 20, "its header would have"),
        (struct.pack("<Q", 50) + b"{}", "ends within its header"),
        (struct.pack("<Q", 4) + b"null", "is not a whole model file"),
        (struct.pack("<Q", 2) + b"{}", "does not say which run"),
        (struct.pack("<Q", 2) + b"{}more", "4 bytes of arrays instead of 0"),
    ],
)
def test_a_file_that_is_no_model_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(fc.InputError, match=said):
        fc.load_model(path)


def test_a_model_cut_short_is_refused_at_every_length(small_npz: Path, tmp_path: Path) -> None:
    (one, *_) = runs(small_npz)
    for ending in (".safetensors", ".npz"):
        path = tmp_path / f"x{ending}"
        fc.save_model(path, one, truth(one))
        content = path.read_bytes()
        for length in range(0, len(content), 97):
            path.write_bytes(content[:length])
            with pytest.raises(fc.InputError, match="not a whole model file"):
                read_arrays(path)


def test_other_mistakes_with_model_files(small_npz: Path, tmp_path: Path) -> None:
    (one, *_) = runs(small_npz)
    model = truth(one)
    with pytest.raises(fc.InputError, match=r"cannot read .*No such file"):
        fc.load_model(tmp_path / "none.npz")
    with pytest.raises(fc.InputError, match=r"ends with \.safetensors or \.npz"):
        fc.load_model(tmp_path / "model.pt")
    with pytest.raises(fc.InputError, match=r"ends with \.safetensors or \.npz"):
        fc.save_model(tmp_path / "model.pt", one, model)
    with pytest.raises(fc.InputError, match=r"the model has shape \(3,\)"):
        fc.save_model(tmp_path / "model.npz", one, model[:3])
    with pytest.raises(fc.InputError, match="cannot write"):
        fc.save_model(tmp_path / "none" / "model.npz", one, model)
    fc.save_model(tmp_path / "m.npz", one, model)
    odd = fc.SavedModel({}, fc.load_model(tmp_path / "m.npz").document)
    with pytest.raises(fc.InputError, match="not those of its task"):
        odd.evaluate()


def test_loading_a_model_runs_nobodys_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"policy": "evil:Policy", "rounds": 1, "task": {"engine": "torch", "model": "evil:model"}}
    with (tmp_path / "x.npz").open("wb") as file:
        write_arrays(file, ".npz", {"a": np.zeros(1, np.float32)}, {"spec": json.dumps(document)})
    (tmp_path / "evil.py").write_text("raise SystemExit('code ran')")
    monkeypatch.chdir(tmp_path)
    model = fc.load_model(tmp_path / "x.npz")
    assert model.document == document
    assert (model.spec.policy, model.spec.task.model) == ("evil:Policy", "evil:model")
    with pytest.raises(fc.InputError, match=r"'evil' is user-defined code; call evaluate\(allow_import=True\)"):
        model.evaluate()
    with pytest.raises(SystemExit, match="code ran"):
        model.evaluate(allow_import=True)


def test_a_model_file_of_somebody_elses_is_read_with_care(tmp_path: Path) -> None:
    def archive(name: str, content: bytes, method: int) -> Path:
        place = tmp_path / name
        with zipfile.ZipFile(place, "w", method) as file:
            file.writestr("a.npy", content)
        return place

    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (2**26,)})
    bomb = archive("bomb.npz", head.getvalue() + bytes(2**28), zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 2**21
    deep = b"[" * 100_000
    (tmp_path / "deep.safetensors").write_bytes(struct.pack("<Q", len(deep)) + deep)
    odd = archive("odd.npz", b"x", zipfile.ZIP_STORED)
    content = odd.read_bytes()
    at = content.index(b"PK\x01\x02")
    odd.write_bytes(content[: at + 10] + struct.pack("<H", 99) + content[at + 12 :])  # an unknown method
    (tmp_path / "locked.npz").write_bytes(
        content[:6] + b"\x01" + content[7 : at + 8] + b"\x01" + content[at + 9 :]  # encrypted
    )
    os.mkfifo(tmp_path / "pipe.npz")
    for name, said in {
        "bomb.npz": "would unpack to 268,43",
        "deep.safetensors": "not a whole model file",
        "odd.npz": "not a whole model file",
        "locked.npz": "not a whole model file",
        "pipe.npz": "not a regular file",
    }.items():
        with pytest.raises(fc.InputError, match=said):
            fc.load_model(tmp_path / name)
    about = {"spec": '{"task": {}, "policy": "x", "a": ' + "[" * 5000 + "]" * 5000 + "}"}
    with (tmp_path / "spec.npz").open("wb") as file:
        write_arrays(file, ".npz", {"a": np.zeros(1, np.float32)}, about)
    with pytest.raises(fc.InputError, match="does not say which run it is of"):
        fc.load_model(tmp_path / "spec.npz")
    with pytest.raises(ValueError, match=r"not the state of a run: its .* bytes would unpack to 268,43"):
        State.from_bytes(bomb.read_bytes())


def test_where_models_go(small_npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    specs = {run.key(): run for run in runs(small_npz)}
    one = dict([next(iter(specs.items()))])

    def names(place: str, some: dict[str, Spec] = specs) -> set[str]:
        return {str(path) for path in model_paths(place, some, "--save-model").values()}

    folder = {f"m/{policy}-seed{seed}.safetensors" for policy in ("all", "random-k=2") for seed in (0, 1)}
    assert names("m") == names("m/") == folder
    assert (tmp_path / "m").is_dir()
    assert names("m/{policy}{seed}.npz") == {
        f"m/{policy}{seed}.npz" for policy in ("all", "random-k=2") for seed in (0, 1)
    }
    assert names("{key}.npz") == {f"{key}.npz" for key in specs}
    assert names("one.npz", one) == {"one.npz"}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert names("~/m/one.npz", one) == {f"{tmp_path}/m/one.npz"}
    assert names("v1.2/", one) == {"v1.2/all-seed0.safetensors"}
    assert names("v1.2", one) == {"v1.2/all-seed0.safetensors"}  # it is a folder by now
    for place, said in {
        "one.npz": "gives several of the 4 runs one name",
        "{policy}.npz": "gives several",
        "{polcy}.npz": "did you mean 'policy'",
        "{}.npz": "choose from key, policy, seed",
        "model.pt": "give a folder",
        "": "give a folder",
        "-": "give a folder",
        "{policy}-{seed}.pt": "ends with",
        "none/{policy}-{seed}.npz": "none is not a directory",
        "m/all-seed0.safetensors/": "gives several",
        "/proc/models": "cannot write into",
    }.items():
        with pytest.raises(fc.InputError, match=said):
            names(place)
    grid = {f"{key}x": run.changed({"cell.radius_m": 500.0}) for key, run in specs.items()}
    assert len(names("m", specs | grid)) == 8  # with keys, since policy and seed do not tell them apart
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "v1.2"]
