"""CIFAR's binary version: small archives and directories of the same format, and hostile ones."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

import fedcell as fc
from fedcell.learn import formats, published
from fedcell.learn.data import load_dataset
from fedcell.learn.published import Published

TEN = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
HUNDRED = ["train.bin", "test.bin"]


def records(count: int, classes: int, seed: int) -> bytes:
    """Count records of CIFAR-10 or, with coarse labels before the fine ones, of CIFAR-100."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, (count, 1), np.uint8)
    coarse = rng.integers(0, 20, (count, 1), np.uint8) if classes == 100 else np.empty((count, 0), np.uint8)
    return np.hstack([coarse, labels, rng.integers(0, 256, (count, 3072), np.uint8)]).tobytes()


def write_archive(path: Path, files: dict[str, bytes], folder: str = "cifar-10-batches-bin") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"batches.meta.txt": b"airplane\n", **files}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def small(classes: int) -> dict[str, bytes]:
    return {name: records(2, classes, seed) for seed, name in enumerate(TEN if classes == 10 else HUNDRED)}


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("unpacked", [False, True])
def test_images_and_labels_are_those_of_the_records(tmp_path: Path, classes: int, unpacked: bool) -> None:
    files = small(classes)
    source = tmp_path / "mine" if unpacked else write_archive(tmp_path / "mine.tar.gz", files)
    if unpacked:
        source.mkdir()
        for name, content in files.items():
            (source / name).write_bytes(content)
    data = load_dataset(source)
    assert (data.classes, data.train_x.shape, data.test_x.shape) == (
        classes,
        (2 * len(files) - 2, 3, 32, 32),
        (2, 3, 32, 32),
    )
    size = 3073 if classes == 10 else 3074
    for number, record in enumerate(
        b"".join(files.values())[at : at + size] for at in range(0, 2 * size * len(files), size)
    ):
        x, y = (data.train_x, data.train_y) if number < len(data.train_y) else (data.test_x, data.test_y)
        at = number % len(data.train_y)
        assert y[at] == record[size - 3073]  # the fine label, after the coarse one
        for channel, row, column in ((0, 0, 0), (1, 2, 3), (2, 31, 31)):
            assert x[at, channel, row, column] == record[size - 3072 + 1024 * channel + 32 * row + column]
    assert data.shift == pytest.approx(data.train_x.mean() / 255)


def test_a_spec_knows_the_archive_by_its_content(tmp_path: Path) -> None:
    one = write_archive(tmp_path / "a.tar.gz", small(10))
    spec = fc.Spec(task=fc.TaskSpec(data=str(one), hidden=[4], partition="iid"), devices=fc.Devices(count=2), rounds=1)
    before = spec.key()
    assert next(fc.simulate(spec)).round == 1
    write_archive(one, {**small(10), "test_batch.bin": records(2, 10, 99)})
    assert spec.key() != before


def test_the_named_data_set_is_the_published_archive_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_archive(tmp_path / "cifar-10-binary.tar.gz", small(10))
    with pytest.raises(
        fc.InputError, match=r"cifar-10-binary.tar.gz has the SHA-256 [0-9a-f]{64}, not c4a38c50a1bc5f3a"
    ):
        load_dataset("cifar-10", folder=tmp_path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(published.PUBLISHED, "cifar-10", Published("CIFAR-10", {path.name: sha256}))
    for root in (tmp_path, tmp_path / "root"):
        monkeypatch.setenv("FEDCELL_DATA", str(root))
        (tmp_path / "root" / "cifar-10").mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / "cifar-10" / path.name).write_bytes(path.read_bytes())
        assert load_dataset("cifar-10").train_y.shape == (10,)
    assert fc.TaskSpec(data="cifar-10").data_sha256() == ""
    with pytest.raises(fc.InputError, match=r"has no file cifar-100-binary.tar.gz; put it there"):
        load_dataset("cifar-100", folder=tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"test_batch.bin": b""}, r"test_batch.bin has 0 bytes, which are no records of 3073"),
        ({"data_batch_3.bin": bytes(3074)}, r"data_batch_3.bin has 3074 bytes, which are no records of 3073"),
        ({"data_batch_3.bin": b"\x0a" + bytes(3072)}, r"train_y\[4\] is 10; give labels from 0 to 9"),
    ],
)
def test_wrong_records_are_named(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    path = write_archive(tmp_path / "a.tar.gz", {**small(10), **files})
    with pytest.raises(fc.InputError, match=message):
        load_dataset(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files = small(10)
    del files["data_batch_4.bin"]
    with pytest.raises(fc.InputError, match=r"a.tar.gz has no file data_batch_4.bin; give CIFAR's binary version"):
        load_dataset(write_archive(tmp_path / "a.tar.gz", files))


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", gzip.compress(b"no archive either"), gzip.compress(bytes(9999))],
    ids=["empty", "text", "packed text", "packed zeros"],  # the content has the time in it
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    with pytest.raises(fc.InputError, match=r"a.tar.gz (cannot be read|has no file)"):
        load_dataset(path)


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.tar.gz", small(10))
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(fc.InputError, match="cannot be read"):
        load_dataset(path)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_CIFAR_BYTES", 1 << 20)
    path = write_archive(tmp_path / "a.tar.gz", {"data_batch_1.bin": bytes(4 << 20)})
    with pytest.raises(fc.InputError, match="unpacks to over 1048576 bytes"):
        load_dataset(path)


def test_links_and_paths_outside_are_nothing_to_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(fc.InputError, match=r"has no file data_batch_1.bin"):
        load_dataset(path)
