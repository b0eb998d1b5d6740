"""What all engines share: the loss, the start, and the refusal of what they cannot train."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcell.errors import InputError
from fedcell.learn import engine
from fedcell.learn.data import Dataset
from fedcell.learn.engine import (
    HostUpdates,
    Job,
    checked_dataset,
    checked_jobs,
    checked_models,
    checked_setting,
    cross_entropy,
    linear_start,
    sketch_plan,
)

DATA = Dataset(
    name="tiny",
    train_x=np.arange(24, dtype=np.uint8).reshape(4, 2, 3),
    train_y=np.array([0, 1, 2, 1]),
    test_x=np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
    test_y=np.array([2, 0]),
    classes=3,
    shift=0.0,
    scale=1.0,
)


def test_cross_entropy_by_hand() -> None:
    loss = cross_entropy([[0.0, np.log(3.0)], [1000.0, 0.0]], [0, 0])
    assert loss == pytest.approx(np.log(4.0) / 2)


def test_cross_entropy_of_equal_logits_is_the_log_of_the_classes() -> None:
    assert cross_entropy(np.full((5, 10), 7.0), np.arange(5)) == pytest.approx(np.log(10.0))


def test_start_is_uniform_within_the_fan_ins_bound() -> None:
    start = linear_start(np.random.default_rng(1), (64, 784), 64)
    bound = 1 / np.sqrt(784)
    assert start.shape == (64 * 784 + 64,)
    assert start.dtype == np.float32
    assert np.abs(start).max() <= bound
    assert np.abs(start[-64:]).max() > 0.9 * bound  # biases have the weights' range, not their own
    assert start.std() == pytest.approx(bound / np.sqrt(3), rel=0.02)
    assert start.mean() == pytest.approx(0.0, abs=0.01 * bound)


def test_start_of_a_convolution_counts_the_whole_kernel() -> None:
    start = linear_start(np.random.default_rng(1), (16, 8, 5, 5), 16)
    assert start.size == 16 * 8 * 25 + 16
    assert 0.99 / np.sqrt(200) < np.abs(start).max() <= 1 / np.sqrt(200)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_x": np.zeros((4, 2, 3))}, "train_x has type float64; give uint8 pixels or float32 inputs"),
        ({"test_y": np.array([2])}, "test_x has 2 samples and test_y the shape"),
        ({"test_x": np.zeros((2, 3), np.uint8)}, "one nonempty shape"),
        ({"train_y": np.array([0, 1, 2, 3])}, "train_y goes from 0 to 3; give labels from 0 to 2"),
        ({"test_y": np.array([-1, 0])}, "test_y goes from -1 to 0"),
        ({"scale": 0.0}, "scale 0.0; give finite numbers and a scale above 0"),
        ({"shift": np.nan}, "shift is nan"),
        ({"train_x": np.zeros((0, 2, 3), np.uint8), "train_y": np.zeros(0, np.int64)}, "train_x has 0 samples"),
    ],
)
def test_bad_data_is_refused(change: dict[str, Any], message: str) -> None:
    assert checked_dataset(DATA) is DATA
    with pytest.raises(InputError, match=message):
        checked_dataset(replace(DATA, **change))


@pytest.mark.parametrize(("rate", "batch"), [(0.0, 10), (-1.0, 10), (np.nan, 10), (0.1, 0), (0.1, 2.5), (0.1, True)])
def test_bad_settings_are_refused(rate: float, batch: Any) -> None:
    with pytest.raises(InputError, match=r"learning_rate is|batch_size is"):
        checked_setting(rate, batch)


GOOD = np.zeros(5, np.float32)


@pytest.mark.parametrize(
    ("start", "order", "message"),
    [
        (np.zeros(4), [[0]], r"job 1 starts from a vector of shape \(4,\); give one of shape \(5,\)"),
        (np.zeros((1, 5)), [[0]], r"shape \(1, 5\)"),
        (np.array([0, 0, np.nan, 0, 0]), [[0]], "NaN or infinity"),
        (np.array([0, 0, np.inf, 0, 0]), [[0]], "NaN or infinity"),
        (GOOD, [0, 1], r"order of shape \(2,\)"),
        (GOOD, np.zeros((1, 0), np.int64), r"order of shape \(1, 0\)"),
        (GOOD, np.zeros((0, 3), np.int64), r"order of shape \(0, 3\)"),
        (GOOD, [[0.0, 1.0]], "type float64"),
        (GOOD, [[0, 4]], "job 1 visits samples 0 to 4; give indices from 0 to 3"),
        (GOOD, [[-1, 2]], "visits samples -1 to 2"),
    ],
)
def test_bad_jobs_are_refused(start: Any, order: Any, message: str) -> None:
    fine = Job(GOOD, np.array([[3, 0], [1, 2]]))
    with pytest.raises(InputError, match=message):
        checked_jobs([fine, Job(start, np.asarray(order))], parameters=5, samples=4)


def test_jobs_and_models_come_back_in_the_kernels_types() -> None:
    start: Any = np.zeros(5)
    order: Any = np.array([[3, 0], [1, 2]], np.int32).T
    (job,) = checked_jobs([Job(start, order)], 5, 4)
    assert job.start.dtype == np.float32
    assert job.order.dtype == np.int64
    assert job.order.flags.c_contiguous
    assert job.order.tolist() == [[3, 1], [0, 2]]
    several: Any = np.zeros((5, 2)).T
    models = checked_models(several, 5)
    assert models.dtype == np.float32
    assert models.flags.c_contiguous


@pytest.mark.parametrize("shape", [(5,), (2, 4), (1, 2, 5)])
def test_models_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"models has shape .* give \(models, 5\)"):
        checked_models(np.zeros(shape, np.float32), 5)


def test_the_papers_training() -> None:
    assert (engine.LEARNING_RATE, engine.BATCH_SIZE, engine.HIDDEN) == (0.01, 10, (64,))


@pytest.mark.parametrize("parameters", [1, 7, 8, 50, 255, 257, 4000, 50890])
@pytest.mark.parametrize("count", [2, 256])
def test_sketches_are_sums_as_numpy_adds_them_up(parameters: int, count: int) -> None:
    """The compiled sketch equals, bit for bit, the entries in their order with their signs, summed by np.sum."""
    rng = np.random.default_rng(parameters)
    starts, trained = rng.normal(size=(2, 3, parameters)).astype(np.float32)
    order, signs = sketch_plan(parameters, count)
    padded = np.zeros((3, order.size))
    padded[:, :parameters] = trained - starts
    expected = (padded[:, order] * signs).reshape(3, count, -1).sum(axis=2)
    found = HostUpdates(list(starts), trained, np.ones(3)).sketch(count)
    assert np.array_equal(found, expected)
