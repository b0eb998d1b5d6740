"""Arrays, Hugging Face data sets and Flower's partitioners as data; what needs those packages is skipped without."""

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.learn import hugging_face
from fedcell.learn.data import load_dataset


def images(count: int, *shape: int) -> Any:
    return np.random.default_rng(count).integers(0, 256, (count, *shape), np.uint8)


def test_a_saved_data_set_is_loaded_as_it_was(tmp_path: Path) -> None:
    x, y = images(6, 4, 5, 3), np.array([0, 1, 2, 0, 1, 2])
    data = fc.dataset_from((x, y), (x[:2], y[:2]), layout="HWC", owners=["b", "a", "b", "a", "c", "c"])
    assert data.train_x.shape == (6, 3, 4, 5)
    np.testing.assert_array_equal(data.train_x[3, 2], x[3, :, :, 2])
    fc.save_dataset(data, tmp_path / "own.npz")
    again = load_dataset(tmp_path / "own.npz")
    for field in ("train_x", "train_y", "test_x", "test_y", "owners"):
        np.testing.assert_array_equal(getattr(again, field), getattr(data, field))
    assert (again.classes, again.shift, again.scale) == (3, data.shift, data.scale)
    task = fc.TaskSpec(data=str(tmp_path / "own.npz"), partition="natural", hidden=[4])
    run = fc.Spec(policy="all", rounds=1, devices=fc.Devices(count=3), task=task)
    assert len(next(fc.simulate(run)).delivered) == 3


def test_images_with_channels_last_are_turned(tmp_path: Path) -> None:
    x, y = images(4, 6, 5, 3), np.arange(4) % 2
    np.savez(tmp_path / "hwc.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    turned = load_dataset(tmp_path / "hwc.npz", layout="HWC")
    assert turned.train_x.shape == (4, 3, 6, 5)
    assert turned.train_x.flags.c_contiguous
    np.testing.assert_array_equal(turned.train_x, x.transpose(0, 3, 1, 2))
    plain = fc.Spec(task=fc.TaskSpec(data=str(tmp_path / "hwc.npz")))
    assert plain.changed({"task.layout": "HWC"}).key() != plain.key()
    for wrong, message in (("WHC", "layout is 'WHC'; give CHW or HWC"), ("HWC", "layout is 'HWC' with the data set")):
        with pytest.raises(fc.InputError, match=message):
            load_dataset("mnist", layout=wrong)
    np.savez(tmp_path / "flat.npz", train_x=x[:, :, 0, 0], train_y=y, test_x=x[:, :, 0, 0], test_y=y)
    with pytest.raises(fc.InputError, match=r"but train_x has the shape \(4, 6\); give \(samples, height, width"):
        load_dataset(tmp_path / "flat.npz", layout="HWC")


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        (np.array([0, 1]), r"owners has the shape \(2,\) and type int64; give one integer per sample"),
        (np.array([0.0, 1.0, 1.0]), r"owners has the shape \(3,\) and type float64"),
        (np.array([0, 2, 2]), "owners goes from 0 to 2 with gaps"),
        (np.array([-1, 0, 1]), "owners goes from -1 to 1 with gaps"),
    ],
)
def test_wrong_owners_are_refused(tmp_path: Path, owners: Any, message: str) -> None:
    x, y = images(3, 2), np.array([0, 1, 1])
    np.savez(tmp_path / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y, owners=owners)
    with pytest.raises(fc.InputError, match=message):
        load_dataset(tmp_path / "own.npz")


def test_what_is_no_data_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(fc.InputError, match="the samples are a list; give a pair of arrays"):
        fc.dataset_from([1, 2], [1, 2])
    with pytest.raises(fc.InputError, match="the column 'writer' is asked for, but the samples are arrays"):
        fc.dataset_from((images(2, 2), np.arange(2)), (images(2, 2), np.arange(2)), owners="writer")
    with pytest.raises(fc.InputError, match=r"give a name that ends in .npz"):
        fc.save_dataset(fc.dataset_from((images(2, 2), np.arange(2)), (images(2, 2), np.arange(2))), "x.bin")
    with pytest.raises(fc.InputError, match=r"task.data is 'hf:.*nowhere' \(No such file"):
        fc.Spec(task=fc.TaskSpec(data=f"hf:{tmp_path}/nowhere")).key()


# With the packages


def table(count: int, **columns: Any) -> Any:
    datasets = pytest.importorskip("datasets")
    from PIL import Image

    pictures = [Image.fromarray(array) for array in images(count, 6, 5, 3)]
    labels = [number % 3 for number in range(count)]
    features = {"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "bird", "frog"])}
    features |= {name: datasets.Value("string") for name in columns}
    return datasets.Dataset.from_dict(
        {"img": pictures, "label": labels, **columns}, features=datasets.Features(features)
    )


def test_a_hugging_face_data_set() -> None:
    train = table(6, writer=["b", "a", "b", "a", "c", "c"])
    data = fc.dataset_from(train, table(3), owners="writer")
    np.testing.assert_array_equal(data.train_x, images(6, 6, 5, 3).transpose(0, 3, 1, 2))
    assert (data.classes, data.train_y.tolist()) == (4, [0, 1, 2, 0, 1, 2])
    assert data.owners is not None
    assert data.owners.tolist() == [1, 0, 1, 0, 2, 2]
    with pytest.raises(fc.InputError, match="there is no column 'witer'; did you mean 'writer'"):
        fc.dataset_from(train, table(3), owners="witer")


@pytest.mark.parametrize("kind", ["disk", "parquet", "folders"])
def test_a_hugging_face_data_set_on_the_disk(tmp_path: Path, kind: str) -> None:
    datasets = pytest.importorskip("datasets")
    splits = datasets.DatasetDict(train=table(6), test=table(3))
    if kind == "disk":
        splits.save_to_disk(tmp_path / "here")
    elif kind == "parquet":
        (tmp_path / "here" / "data").mkdir(parents=True)
        for part, split in splits.items():
            split.to_parquet(tmp_path / "here" / "data" / f"{part}-00000-of-00001.parquet")
    else:
        for part, split in splits.items():
            for number, row in enumerate(split):
                place = tmp_path / "here" / part / split.features["label"].names[row["label"]]
                place.mkdir(parents=True, exist_ok=True)
                row["img"].save(place / f"{number}.png")
    data = load_dataset(f"hf:{tmp_path / 'here'}")
    order = np.argsort(data.train_x.reshape(6, -1).sum(1))
    expected = images(6, 6, 5, 3).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(data.train_x[order], expected[np.argsort(expected.reshape(6, -1).sum(1))])
    assert (np.bincount(data.train_y)[:3].tolist(), data.test_x.shape) == ([2, 2, 2], (3, 3, 6, 5))
    spec = fc.Spec(
        task=fc.TaskSpec(data=f"hf:{tmp_path / 'here'}", partition="iid", hidden=[4]), devices=fc.Devices(count=2)
    )
    assert next(fc.simulate(spec.changed({"rounds": 1}))).round == 1
    key = spec.key()
    (tmp_path / "here").rename(tmp_path / "there")
    assert spec.changed({"task.data": f"hf:{tmp_path / 'there'}"}).key() == key


def test_a_data_set_without_a_test_split_is_refused(tmp_path: Path) -> None:
    table(6).save_to_disk(tmp_path / "here")
    with pytest.raises(fc.InputError, match="has the splits train; give it train and test"):
        load_dataset(f"hf:{tmp_path / 'here'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(fc.InputError, match="has no data set; give one of save_to_disk"):
        load_dataset(f"hf:{tmp_path / 'empty'}")


def test_a_partitioner_of_flower_gives_the_devices() -> None:
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    partitioner = partitioners.IidPartitioner(num_partitions=3)
    partitioner.dataset = table(9)
    data = fc.dataset_from(partitioner, table(3))
    assert data.owners is not None
    assert data.owners.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for number in range(3):
        part = [np.asarray(picture) for picture in partitioner.load_partition(number)["img"]]
        np.testing.assert_array_equal(data.train_x[data.owners == number], np.stack(part).transpose(0, 3, 1, 2))
    assert data.classes == 4
    by_writer = partitioners.NaturalIdPartitioner(partition_by="writer")
    by_writer.dataset = table(6, writer=["b", "a", "b", "a", "c", "c"])
    found = fc.dataset_from(by_writer, table(3)).owners
    assert found is not None
    assert np.bincount(found).tolist() == [2, 2, 2]


def test_a_directory_is_read_as_what_lies_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the package of half a gigabyte: which of its functions is called, and with what."""
    asked: list[Any] = []

    class DatasetDict(dict[str, Any]):
        pass

    def load_dataset(kind: str, **options: Any) -> Any:
        asked.append((kind, {name: value for name, value in options.items() if name != "cache_dir"}))
        return {"train": 1}

    stand_in = types.ModuleType("datasets")
    vars(stand_in).update(
        DatasetDict=DatasetDict, load_dataset=load_dataset, load_from_disk=lambda path: saved[Path(path).name]
    )
    saved: dict[str, Any] = {"one": 5, "both": DatasetDict(train=5, test=6)}
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    for name, files in {
        "one": ["state.json"],
        "both": ["dataset_dict.json"],
        "parquet": ["a/train-1.parquet", "train-0.parquet", "other.parquet"],
        "pictures": ["train/cat/1.png", "test/cat/2.png"],
        "nothing": ["test/1.png"],
    }.items():
        for file in files:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).touch()
    assert hugging_face._splits(tmp_path / "one", "") == {"train": 5}
    assert hugging_face._splits(tmp_path / "both", "") == {"train": 5, "test": 6}
    assert asked == []
    assert hugging_face._splits(tmp_path / "parquet", "") == {"train": 1}
    parquet = [str(tmp_path / "parquet" / name) for name in ("a/train-1.parquet", "train-0.parquet")]
    assert asked.pop() == ("parquet", {"data_files": {"train": parquet}, "keep_in_memory": True})
    hugging_face._splits(tmp_path / "pictures", "")
    assert asked.pop() == ("imagefolder", {"data_dir": str(tmp_path / "pictures")})
    with pytest.raises(fc.InputError, match="nothing has no data set; give one of save_to_disk"):
        hugging_face._splits(tmp_path / "nothing", "")
    with pytest.raises(fc.InputError, match="parquet has the splits train; give it train and test"):
        hugging_face.read_disk(tmp_path / "parquet")
    with pytest.raises(fc.InputError, match="does not exist; give a directory"):
        hugging_face.read_disk(tmp_path / "nowhere")
    del saved["one"]
    with pytest.raises(fc.InputError, match=r"one cannot be read .*; write it with save_to_disk"):
        hugging_face._splits(tmp_path / "one", "")
