"""Rounds of many runs in one file: what goes in comes out, bit for bit, and nothing else is taken for it."""

import io
from pathlib import Path

import numpy as np
import pytest

from fedcell.errors import InputError
from fedcell.runs.records import ROUNDS_COLUMNS, Rounds, read_rounds, write_rounds

KEYS = ("ab" * 32, "0f" * 32, "00" * 32)


def some() -> dict[str, Rounds]:
    """Runs of 4, 1 and no rounds; one diverged, of one the joules are not known."""
    rng = np.random.default_rng(0)

    def run(n: int, *, diverged: bool = False, known: bool = True) -> Rounds:
        round_s = rng.random(n)
        spent_j = rng.random(n).cumsum() if known else np.full(n, np.nan)
        return Rounds(round_s.cumsum(), round_s, np.full(n, 3.0), rng.random(n), diverged, spent_j)

    return dict(zip(KEYS, (run(4, diverged=True), run(1, known=False), run(0)), strict=True))


def written(folder: Path, runs: dict[str, Rounds]) -> Path:
    path = folder / "some.npz"
    with path.open("wb") as file:
        write_rounds(file, runs)
    return path


def test_runs_come_back_bit_for_bit(tmp_path: Path) -> None:
    runs = some()
    found = read_rounds(written(tmp_path, runs))
    assert list(found) == list(runs)
    for key, run in runs.items():
        assert found[key].diverged == run.diverged
        for name in ROUNDS_COLUMNS:
            np.testing.assert_array_equal(getattr(found[key], name), getattr(run, name))
    assert read_rounds(written(tmp_path, {})) == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": np.array(2)}, "it has format 2, and this fedcell reads 1"),
        ({"lengths": np.array([4, 2, 0])}, "its columns are not as long as its runs"),
        ({"lengths": np.array([6, -1, 0])}, "its columns are not as long as its runs"),
        ({"accuracy": np.zeros(3)}, "its columns are not as long as its runs"),
        ({"keys": np.zeros((2, 32), np.uint8)}, "it does not say which runs it has"),
        ({"keys": np.zeros((3, 32))}, "it does not say which runs it has"),
        ({"diverged": np.zeros(2, np.bool_)}, "it does not say which runs it has"),
        ({"clock_s": np.array(["a"] * 5)}, "could not convert string to float"),
    ],
)
def test_what_is_no_such_file_is_refused_in_a_sentence(
    tmp_path: Path, change: dict[str, np.ndarray], reason: str
) -> None:
    with np.load(written(tmp_path, some())) as arrays:
        np.savez(tmp_path / "other.npz", **(dict(arrays) | change))
    with pytest.raises(InputError, match=r"other.npz is not a file of rounds \(" + reason):
        read_rounds(tmp_path / "other.npz")


def test_other_files_are_refused_too(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    np.savez(tmp_path / "arrays.npz", a=np.zeros(3))
    for name in ("text", "arrays.npz", "nowhere"):
        with pytest.raises(InputError, match=f"{name} is not a file of rounds"):
            read_rounds(tmp_path / name)


def test_it_is_small() -> None:
    """Rounds of a whole study come back from another machine: 41 bytes a round, and less where numbers repeat."""
    clock_s, round_s, devices, accuracy, spent_j = np.random.default_rng(0).random((5, 100_000))
    run, file = Rounds(clock_s, round_s, devices, accuracy, spent_j=spent_j), io.BytesIO()
    write_rounds(file, {KEYS[0]: run})
    assert file.tell() < 41 * 100_000
