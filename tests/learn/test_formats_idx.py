"""Files in the idx format, the MNIST files': what was written comes back, or a sentence says what is wrong."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import idx_bytes
from fedcell.errors import InputError
from fedcell.learn import formats
from fedcell.learn.formats import IDX_FILES, read_folder, read_idx

SHAPES = st.one_of(
    st.tuples(st.integers(0, 40)),
    st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 5)),
)


@settings(deadline=None)
@given(shape=SHAPES, compressed=st.booleans(), seed=st.integers(0, 99))
def test_idx_files_come_back_as_written(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, ...],
    compressed: bool,
    seed: int,
) -> None:
    array = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    path = tmp_path_factory.getbasetemp() / ("round-trip.gz" if compressed else "round-trip")
    path.write_bytes(gzip.compress(idx_bytes(array)) if compressed else idx_bytes(array))
    np.testing.assert_array_equal(read_idx(path), array)


@settings(deadline=None, max_examples=200)
@given(compressed=st.booleans(), position=st.floats(0, 1, exclude_max=True), byte=st.integers(-1, 255))
def test_damage_is_found_or_harmless(
    tmp_path_factory: pytest.TempPathFactory,
    compressed: bool,
    position: float,
    byte: int,
) -> None:
    """A file cut (byte -1) or changed at any place is an InputError, unless its content is still the same."""
    array = np.arange(60, dtype=np.uint8).reshape(5, 3, 4)
    content = idx_bytes(array)
    whole = bytearray(gzip.compress(content) if compressed else content)
    at = int(position * len(whole))
    if byte < 0:
        del whole[at:]
    else:
        whole[at] = byte
    path = tmp_path_factory.getbasetemp() / ("damaged.gz" if compressed else "damaged")
    path.write_bytes(whole)
    try:
        np.testing.assert_array_equal(read_idx(path, hashlib.sha256(content).hexdigest()), array)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017 (either outcome is right)
    else:
        assert byte >= 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"starts with '' and is not an idx file"),
        (b"\x89PNG\r\n", r"starts with '89504e47' and is not an idx file"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", r"starts with '00000d01' and is not an idx file"),
        (b"\0\0\x08\x03\0\0", r"ends within its header; download it again"),
        (b"\0\0\x08\x01\0\0\0\x05abcd", r"declares 5 bytes but has only 4; download it again"),
        (b"\0\0\x08\x01\0\0\0\x03abcd", r"declares 3 bytes but has more; download it again"),
        (b"\0\0\x08\x03" + b"\xff" * 12, r"declares 79228162458924105385300197375 bytes, over 2147483648"),
    ],
)
def test_wrong_idx_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"file {message}"):
        read_idx(path)


def test_a_file_of_several_blocks_and_as_large_as_the_limit_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "BLOCK_BYTES", 8000)
    monkeypatch.setattr(formats, "MAX_ARRAY_BYTES", 27_000)
    array = np.random.default_rng(0).integers(0, 256, (30, 30, 30), np.uint8)
    for path in (tmp_path / "plain", tmp_path / "zipped.gz"):
        content = idx_bytes(array)
        path.write_bytes(gzip.compress(content) if path.suffix else content)
        np.testing.assert_array_equal(read_idx(path, hashlib.sha256(content).hexdigest()), array)
    (tmp_path / "plain").write_bytes(idx_bytes(np.zeros(27_001, np.uint8)))
    with pytest.raises(InputError, match="origin declares 27001 bytes, over 27000; use a smaller file"):
        read_idx(tmp_path / "plain", origin="origin")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(idx_bytes(array))[:-200])
    with pytest.raises(InputError, match=r"cut.gz cannot be read \(it ends too early\); download it again"):
        read_idx(tmp_path / "cut.gz")
    with pytest.raises(InputError, match="cannot be read"):
        read_idx(tmp_path / "nowhere")


def test_the_files_of_a_folder_are_read_zipped_where_they_are(tmp_path: Path) -> None:
    arrays = {field: np.full(3, place, np.uint8) for place, field in enumerate(IDX_FILES)}
    for place, (field, name) in enumerate(IDX_FILES.items()):
        (tmp_path / name).write_bytes(idx_bytes(np.full(3, 99, np.uint8)))
        if place % 2:
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(arrays[field])))
        else:
            (tmp_path / name).write_bytes(idx_bytes(arrays[field]))
    found = read_folder(tmp_path, {})
    assert {field: array.tolist() for field, array in found.items()} == {f: a.tolist() for f, a in arrays.items()}
    with pytest.raises(InputError, match=r"train-labels-idx1-ubyte.gz has the SHA-256"):
        read_folder(tmp_path, {"train_y": "0" * 64})


def test_the_limits_of_what_is_read() -> None:
    assert formats.MAX_ARRAY_BYTES == formats.MAX_SAMPLES_BYTES == 2 * 2**30
    assert (formats.MAX_FILE_BYTES, formats.MAX_CIFAR_BYTES) == (2**30, 256 * 2**20)
