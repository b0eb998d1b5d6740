"""Engines that round what jobs upload, against the reference in NumPy: the same models, bit for bit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcell.errors import InputError
from fedcell.learn.data import Dataset, load_dataset
from fedcell.learn.engine import HostUpdates, Job
from fedcell.learn.mlp import MlpEngine
from fedcell.quantisation import restore, round_update, sums_of

BITS = (2, 3, 4, 8, 16)


@pytest.fixture(scope="module")
def mnist() -> Dataset:
    """MNIST with 600 samples to train on."""
    data = load_dataset("mnist")
    return replace(data, train_x=data.train_x[:600], train_y=data.train_y[:600])


def some_jobs(engine: Any) -> list[Job]:
    rng = np.random.default_rng(2)
    return [
        Job(engine.initial(rng), rng.permutation(600)[np.newaxis, : 30 + 20 * number], key=(5, number), bits=bits)
        for number, bits in enumerate((*BITS, 32))
    ]


def reference(job: Job, trained: Any, tensors: Any) -> Any:
    if job.bits == 32:
        return trained
    levels, scales = round_update(trained - job.start, tensors, job.bits, job.key)
    return job.start + restore(levels, scales, tensors, job.bits)


@pytest.mark.parametrize("engine_kind", ["mlp", "torch"])
@pytest.mark.parametrize("hidden", [(64,), (5, 7), ()])
def test_an_engine_uploads_what_the_reference_does(mnist: Dataset, engine_kind: str, hidden: tuple[int, ...]) -> None:
    engine: Any = MlpEngine(mnist, hidden=hidden)
    if engine_kind == "torch":
        pytest.importorskip("torch")
        from fedcell.learn.torch_engine import TorchEngine
        from fedcell.learn.torch_modules import mlp_module

        engine = TorchEngine(mnist, mlp_module(mnist, hidden))
    jobs = some_jobs(engine)
    whole, found = engine.update([replace(job, bits=32) for job in jobs]), engine.update(jobs)
    for job, trained, model in zip(jobs, whole.models(), found.models(), strict=True):
        assert reference(job, trained, engine.tensors).tobytes() == model.tobytes()
    np.testing.assert_array_equal(found.losses, whole.losses)
    np.testing.assert_allclose(found.sums(), whole.sums(), rtol=1e-9)
    expected = [sums_of(model - job.start, engine.tensors) for job, model in zip(jobs, whole.models(), strict=True)]
    np.testing.assert_array_equal(whole.sums(), expected)
    np.testing.assert_array_equal(found.take(np.array([4, 0])).sums(), found.sums()[[4, 0]])
    assert found.norms()[0] > 1.2 * whole.norms()[0]  # of what arrived


def test_nothing_depends_on_company_or_threads_but_on_the_key(mnist: Dataset) -> None:
    one, two = MlpEngine(mnist, threads=1), MlpEngine(mnist, threads=2)
    jobs = some_jobs(one)
    together = one.train(jobs)
    assert np.array_equal(together, two.train(jobs))
    assert np.array_equal(together[[3, 1]], two.train([jobs[3], jobs[1]]))
    other = one.train([replace(jobs[1], key=(5, 9))])[0]
    assert 0.01 < np.mean(other != together[1]) < 0.5


def test_a_diverged_model_arrives_as_nan_and_an_unchanged_one_as_it_was(mnist: Dataset) -> None:
    engine = MlpEngine(mnist, learning_rate=1e30, threads=1)
    job = some_jobs(engine)[0]
    assert np.isnan(engine.train([job])).all(axis=1)
    from fedcell.learn.compression import rounded_updates

    still = rounded_updates([job], job.start[np.newaxis].copy(), np.ones(1), np.ones(1), engine.tensors)
    assert np.array_equal(still.models()[0], job.start)
    assert still.sums().tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("bits", [1, 17, 2.5, 0, -2])
def test_bits_that_cannot_be_are_refused(mnist: Dataset, bits: Any) -> None:
    engine = MlpEngine(mnist)
    with pytest.raises(
        InputError, match=rf"job 0 uploads {float(bits)} bits a weight; give a whole number from 2 to 16"
    ):
        engine.train([replace(some_jobs(engine)[0], bits=bits)])


def test_updates_of_replies_have_sums_too() -> None:
    rows = np.array([[0.5, -2.0, 3.0], [np.nan, 0.0, 1.0]], np.float32)
    updates = HostUpdates([np.zeros(3, np.float32)] * 2, rows, np.ones(2), tensors=(2, 1))
    np.testing.assert_array_equal(updates.sums(), [[17.0, 14.0, 13.25], [np.nan] * 3])
