"""Vectors of the devices that have reported (`Rows`) against their twin, a whole array that is copied each time."""

import pickle
from typing import Any

import numpy as np
import pytest

from fedcell.protocol import Knowledge
from fedcell.protocol.columns import MAX_WHOLE, Rows


def same(rows: Rows, array: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> bool:
    return rows.shape == array.shape and np.array_equal(np.asarray(rows), array, equal_nan=True)


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_the_array_that_they_stand_for_and_never_change(seed: int) -> None:
    """Any earlier one may be written on, as where a run goes on from an earlier state."""
    rng = np.random.default_rng(seed)
    made = [(Rows.empty(7, 3), np.full((7, 3), np.nan))]
    for _ in range(40):
        rows, array = made[rng.integers(len(made))]
        devices = rng.permutation(7)[: rng.integers(0, 5)]
        values, array = rng.random((devices.size, 3)), array.copy()
        array[devices] = values
        made.append((rows.with_rows(devices, values), array))
    assert all(same(rows, array) for rows, array in made)
    rows, array = made[-1]
    some = np.array([6, 0, 3])
    assert np.array_equal(rows[some], array[some], equal_nan=True)
    assert same(rows.take(some), array[some])
    assert same(rows.take(slice(2, 5)), array[2:5])
    assert same(rows.take(some).with_rows(np.array([1]), np.ones((1, 3))), np.vstack((array[6], np.ones(3), array[3])))
    assert same(rows.grow(9), np.vstack((array, np.full((2, 3), np.nan))))
    assert same(Rows.of(array), array)
    assert same(pickle.loads(pickle.dumps(rows)), array)
    assert rows.known().tolist() == np.flatnonzero(np.isfinite(array[:, 0])).tolist()


def test_another_length_replaces_all_rows() -> None:
    rows = Rows.empty(3).with_rows(np.array([0, 1]), np.ones((2, 4))).with_rows(np.array([2]), np.ones((1, 2)))
    assert rows.shape == (3, 2)
    assert rows.known().tolist() == [2]


def test_what_is_written_again_and_again_needs_no_more_room() -> None:
    rows = Rows.empty(5, 2)
    for turn in range(1000):
        rows = rows.with_rows(np.array([turn % 5, (turn + 1) % 5]), np.full((2, 2), float(turn)))
    assert len(rows._buffer) <= 4 * 7
    assert rows[:, 0].tolist() == [999.0, 996.0, 997.0, 998.0, 999.0]


def test_rows_can_be_used_as_an_array() -> None:
    rows = Rows.empty(2, 2).with_rows(np.array([0]), np.array([[3.0, 4.0]]))
    assert np.linalg.norm(rows[0]) == 5.0
    assert (rows - 1.0)[0].tolist() == [2.0, 3.0]
    assert np.isfinite(rows).all(axis=1).tolist() == [True, False]
    assert rows.T.shape == (2, 2)
    assert rows[0, 1] == 4.0
    assert np.asarray(rows, np.float32).dtype == np.float32


@pytest.mark.parametrize("M", [3, MAX_WHOLE // 4 + 1])
def test_knowledge_is_saved_with_the_rows_that_there_are(M: int) -> None:
    """Small cells as in version 0.2, large ones without the devices that have not reported."""
    known = Knowledge.empty(M).with_reports(np.array([2, 0]), 0, {"updates": np.arange(8.0).reshape(2, 4)})
    arrays = known.to_arrays()
    assert ("heard_updates" in arrays) == (M == 3)
    assert max(array.size for array in arrays.values()) <= max(M, 12)
    again: Any = Knowledge.from_arrays(arrays)
    assert again.reports.updates[np.array([0, 2])].tolist() == [[4.0, 5.0, 6.0, 7.0], [0.0, 1.0, 2.0, 3.0]]
    assert again.reports.updates.shape == (M, 4)
    assert np.isnan(again.reports.updates[1]).all()
