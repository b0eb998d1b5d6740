"""LEAF's JSON files, and devices that are the writers of FEMNIST."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.learn import formats
from fedcell.learn.data import load_dataset
from fedcell.learn.partition import partition


def writer(seed: int, samples: int, side: int = 28) -> dict[str, Any]:
    """What LEAF's data_to_json.py writes of one: pixels divided by 255, in one row an image."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (samples, side * side)) / 255
    return {"x": x.tolist(), "y": rng.integers(0, 62, samples).tolist()}


def write(folder: Path, part: str, name: str, users: dict[str, Any]) -> None:
    (folder / part).mkdir(parents=True, exist_ok=True)
    counts = [len(data["y"]) if isinstance(data, dict) else 0 for data in users.values()]
    (folder / part / name).write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": users}))


@pytest.fixture
def femnist(tmp_path: Path) -> Path:
    write(tmp_path, "train", "all_data_0_niid_0_keep_0_train_9.json", {"f0": writer(0, 3), "f1": writer(1, 5)})
    write(tmp_path, "train", "all_data_1_niid_0_keep_0_train_9.json", {"f2": writer(2, 2), "none": {"x": [], "y": []}})
    write(tmp_path, "test", "all_data_0_niid_0_keep_0_test_9.json", {"f0": writer(3, 1), "f2": writer(4, 1)})
    return tmp_path


def test_samples_and_writers_are_those_of_the_files(femnist: Path) -> None:
    data = load_dataset(femnist)
    assert (data.train_x.shape, data.test_x.shape, data.classes) == ((10, 28, 28), (2, 28, 28), 62)
    assert data.train_x.dtype == np.uint8
    assert data.owners is not None
    assert data.owners.tolist() == [0] * 3 + [1] * 5 + [2] * 2
    for number, (seed, samples) in enumerate([(0, 3), (1, 5), (2, 2)]):
        ours, theirs = data.owners == number, writer(seed, samples)
        np.testing.assert_allclose(data.train_x[ours].reshape(samples, -1) / 255, theirs["x"])
        assert data.train_y[ours].tolist() == theirs["y"]


def test_every_device_is_a_writer(femnist: Path) -> None:
    data = load_dataset(femnist)
    rng = np.random.default_rng
    parts = partition(data.train_y, 3, "natural", rng(0), owners=data.owners)
    assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9]]
    drawn = {tuple(map(len, partition(data.train_y, 2, "natural", rng(s), owners=data.owners))) for s in range(20)}
    assert drawn == {(3, 5), (3, 2), (5, 2)}  # any two of them, in their order
    task = fc.TaskSpec(data=str(femnist), partition="natural", hidden=[4])
    spec = fc.Spec(policy="all", rounds=1, devices=fc.Devices(count=3), task=task)
    assert len(next(fc.simulate(spec)).delivered) == 3


def test_natural_needs_owners_enough_of_them_and_no_sizes(femnist: Path) -> None:
    labels, owners, rng = np.zeros(6, np.int64), np.array([0, 0, 1, 1, 2, 2]), np.random.default_rng(0)
    with pytest.raises(fc.InputError, match="does not say whose a sample is"):
        partition(labels, 2, "natural", rng)
    with pytest.raises(fc.InputError, match="'natural' with 4 devices, but the data has 3 owners; give fewer"):
        partition(labels, 4, "natural", rng, owners=owners)
    with pytest.raises(fc.InputError, match="the data has them; leave sizes out"):
        partition(labels, 2, "natural", rng, sizes="zipf:1", owners=owners)


def test_the_key_depends_on_content_and_part_not_on_names(femnist: Path) -> None:
    key = fc.Spec(task=fc.TaskSpec(data=str(femnist))).key()
    (femnist / "train" / "all_data_0_niid_0_keep_0_train_9.json").rename(femnist / "train" / "a.json")
    assert fc.Spec(task=fc.TaskSpec(data=str(femnist))).key() == key
    (femnist / "train" / "a.json").rename(femnist / "test" / "a.json")
    assert fc.Spec(task=fc.TaskSpec(data=str(femnist))).key() != key


def test_other_inputs_stay_numbers(tmp_path: Path) -> None:
    for part in ("train", "test"):
        write(tmp_path, part, "a.json", {"u": {"x": [[0.5, -2.25], [1.0, 3.0]], "y": [0, 1]}})
    data = load_dataset(tmp_path, "unit")
    assert data.train_x.dtype == np.float32
    assert data.train_x.tolist() == [[0.5, -2.25], [1.0, 3.0]]
    assert data.classes == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", r"a.json is not JSON"),
        ("[" * 100_000, r"a.json is not JSON"),
        ("[]", r"a.json has no list 'users' and object 'user_data'"),
        ('{"users": ["u"], "user_data": {}}', r"user 'u': x is no table of numbers, or y is missing"),
        ('{"users": ["u", "u"], "user_data": {"u": {"x": [[1]], "y": [0]}}}', r"the user 'u' is there twice"),
        ('{"users": ["u"], "user_data": {"u": {"x": [[1], [1, 2]], "y": [0, 1]}}}', r"x is no table of numbers"),
        ('{"users": ["u"], "user_data": {"u": {"x": [[1]], "y": [-1]}}}', r"give each sample a row and a label from 0"),
        ('{"users": ["u"], "user_data": {"u": {"x": [[NaN]], "y": [0]}}}', r"train_x\[0\] has a value that is NaN"),
        ('{"users": [], "user_data": {}}', r"have no samples"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    write(tmp_path, "test", "a.json", {"u": {"x": [[0.3]], "y": [0]}})
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_text(content)
    with pytest.raises(fc.InputError, match=message):
        load_dataset(tmp_path)


def test_too_much_is_refused(femnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_SAMPLES_BYTES", 5000)
    with pytest.raises(fc.InputError, match="take over 5000 bytes; sample fewer users"):
        load_dataset(femnist)
    monkeypatch.setattr(formats, "MAX_FILE_BYTES", 100)
    with pytest.raises(fc.InputError, match="is over 100 bytes"):
        load_dataset(femnist)
