"""The compiled kernel against a plain NumPy twin in float64 and against PyTorch's autograd, on real MNIST."""

import multiprocessing
import pickle
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.learn import mlp
from fedcell.learn.data import Dataset, load_dataset
from fedcell.learn.engine import Job, cross_entropy
from fedcell.learn.mlp import PIECE, MlpEngine
from fedcell.types import Vector
from harness import LIMIT_S, python

Array = NDArray[np.float64]
Layers = list[tuple[Array, Array]]


def twin_layers(vector: NDArray[Any], sizes: Sequence[int]) -> Layers:
    layers, at = [], 0
    for n_in, n_out in pairwise(sizes):
        w = vector[at : at + n_in * n_out].reshape(n_out, n_in).astype(np.float64)
        b = vector[at + n_in * n_out : at + (n_in + 1) * n_out].astype(np.float64)
        layers.append((w, b))
        at += (n_in + 1) * n_out
    assert at == vector.size
    return layers


def twin_inputs(data: Dataset, x: NDArray[Any]) -> Array:
    raw = x.reshape(len(x), -1).astype(np.float64)
    return (raw / (255.0 if x.dtype == np.uint8 else 1.0) - data.shift) / data.scale


def twin_forward(layers: Layers, x: Array) -> list[Array]:
    outputs = [x]
    for k, (w, b) in enumerate(layers):
        z = outputs[-1] @ w.T + b
        outputs.append(np.maximum(z, 0.0) if k + 1 < len(layers) else z)
    return outputs


def twin_gradient(layers: Layers, x: Array, y: NDArray[np.int64]) -> Layers:
    outputs = twin_forward(layers, x)
    p = np.exp(outputs[-1] - outputs[-1].max(axis=1, keepdims=True))
    delta = p / p.sum(axis=1, keepdims=True)
    delta[np.arange(len(y)), y] -= 1.0
    delta /= len(y)
    gradient: Layers = []
    for k in reversed(range(len(layers))):
        gradient.insert(0, (delta.T @ outputs[k], delta.sum(axis=0)))
        delta = (delta @ layers[k][0]) * (outputs[k] > 0)
    return gradient


def flat(layers: Layers) -> Array:
    return np.concatenate([part.ravel() for layer in layers for part in layer])


def twin_train(data: Dataset, sizes: Sequence[int], job: Job, rate: float, batch: int) -> Array:
    layers = twin_layers(job.start, sizes)
    for row in job.order:
        for first in range(0, len(row), batch):
            ids = row[first : first + batch]
            gradient = twin_gradient(layers, twin_inputs(data, data.train_x[ids]), data.train_y[ids])
            layers = [(w - rate * dw, b - rate * db) for (w, b), (dw, db) in zip(layers, gradient, strict=True)]
    return flat(layers)


# Plain float32 NumPy is up to 3.2e-6 from the float64 twin in the cases below (`far`), the kernel up to 1.0e-5: it
# rounds a weight once for each pair of samples, not once a batch. Six wrong formulas tried were off by 4e-2 to 9e-1.
FLOAT32 = 3e-5


def far(model: NDArray[Any], twin: NDArray[Any], start: NDArray[Any]) -> float:
    """The distance of two trained models, as a fraction of how far training moved them: harsher than of their norm."""
    return float(np.linalg.norm(model - twin) / np.linalg.norm(twin - start))


@pytest.fixture(scope="module")
def mnist() -> Dataset:
    return load_dataset("mnist")


def in_unit_scale(data: Dataset) -> Dataset:
    return replace(data, shift=0.0, scale=1.0)


def some_job(engine: MlpEngine, seed: int, epochs: int = 1, samples: int = 203) -> Job:
    rng = np.random.default_rng(seed)
    return Job(engine.initial(rng), np.stack([rng.choice(60000, samples, replace=False) for _ in range(epochs)]))


def test_the_twins_gradient_is_the_losss_slope() -> None:
    rng = np.random.default_rng(3)
    sizes = (6, 5, 4, 3)
    vector = rng.normal(size=(6 + 1) * 5 + (5 + 1) * 4 + (4 + 1) * 3)
    x, y = rng.normal(size=(7, 6)), rng.integers(3, size=7)
    slopes = np.empty_like(vector)
    for k in range(vector.size):
        h = np.zeros_like(vector)
        h[k] = 1e-5
        up, down = (cross_entropy(twin_forward(twin_layers(vector + s * h, sizes), x)[-1], y) for s in (1, -1))
        slopes[k] = (up - down) / 2e-5
    assert np.abs(slopes).max() > 0.01
    np.testing.assert_allclose(flat(twin_gradient(twin_layers(vector, sizes), x, y)), slopes, atol=1e-8)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize(
    ("hidden", "batch", "epochs"),
    [
        ((64,), 10, 1),
        ((64,), 1, 1),
        ((64,), 7, 3),
        ((32,), 10, 2),
        ((64, 32), 10, 2),
        ((17,), 7, 1),
        ((150, 20), 40, 2),
    ],
)
def test_an_epoch_equals_the_twins(
    mnist: Dataset, hidden: tuple[int, ...], batch: int, epochs: int, unit: bool
) -> None:
    data = in_unit_scale(mnist) if unit else mnist
    engine = MlpEngine(data, hidden=hidden, batch_size=batch, learning_rate=0.05)
    job = some_job(engine, seed=len(hidden), epochs=epochs)
    twin = twin_train(data, (784, *hidden, 10), job, rate=0.05, batch=batch)
    assert far(engine.train([job])[0], twin, job.start) < FLOAT32


def test_the_papers_client_epoch_equals_the_twins(mnist: Dataset) -> None:
    engine = MlpEngine(mnist)
    job = some_job(engine, seed=5, samples=3000)
    model = engine.train([job])[0]
    twin = twin_train(mnist, (784, 64, 10), job, rate=0.01, batch=10)
    assert engine.parameters == model.size == 50890
    assert np.linalg.norm(model - twin) < 1e-5 * np.linalg.norm(twin)
    assert far(model, twin, job.start) < FLOAT32
    assert engine.evaluate(model[None]).accuracy[0] > 0.85


def test_softmax_regression_without_hidden_layers(mnist: Dataset) -> None:
    engine = MlpEngine(mnist, hidden=())
    job = some_job(engine, seed=2)
    assert engine.parameters == 7850
    assert far(engine.train([job])[0], twin_train(mnist, (784, 10), job, 0.01, 10), job.start) < FLOAT32


@pytest.mark.parametrize("unit", [False, True])
def test_an_epoch_equals_autograds(mnist: Dataset, unit: bool) -> None:
    torch = pytest.importorskip("torch")
    data = in_unit_scale(mnist) if unit else mnist
    engine = MlpEngine(data, hidden=(64,))
    job = some_job(engine, seed=8, samples=1000)
    module = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    torch.nn.utils.vector_to_parameters(torch.tensor(job.start), module.parameters())
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01)
    for first in range(0, 1000, 10):
        ids = job.order[0, first : first + 10]
        x = torch.tensor(twin_inputs(data, data.train_x[ids]), dtype=torch.float32)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(x), torch.tensor(data.train_y[ids])).backward()
        optimiser.step()
    autograd = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    assert far(engine.train([job])[0], autograd, job.start) < FLOAT32


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    inputs=st.integers(1, 140),
    hidden=st.lists(st.integers(1, 16), min_size=1, max_size=3),
    classes=st.integers(1, 20),
    samples=st.integers(1, 40),
    batch=st.integers(1, 50),
    density=st.floats(0.0, 1.0),
    shift=st.floats(-1.0, 1.0),
)
def test_any_shape_of_float_data_equals_the_twin(
    seed: int, inputs: int, hidden: list[int], classes: int, samples: int, batch: int, density: float, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((samples, inputs)) < density, rng.normal(size=(samples, inputs)), 0).astype(np.float32)
    y = rng.integers(classes, size=samples)
    data = Dataset("any", x, y, x, y, classes, shift, 0.7)
    engine = MlpEngine(data, hidden=hidden, batch_size=batch, learning_rate=0.1, threads=1)
    job = Job(engine.initial(rng), np.stack([rng.permutation(samples) for _ in range(2)]))
    model = engine.train([job])[0]
    sizes = (inputs, *hidden, classes)
    twin = twin_train(data, sizes, job, 0.1, batch)
    # A unit whose input is zero but for rounding may be on in one and off in the other: hence a bound on the norm.
    assert np.linalg.norm(model - twin) < 1e-4 * np.linalg.norm(twin)
    result = engine.evaluate(model[None])
    logits = twin_forward(twin_layers(model, sizes), twin_inputs(data, x))[-1]
    assert result.loss[0] == pytest.approx(cross_entropy(logits, y), rel=1e-4, abs=1e-5)


def test_alone_together_and_on_any_number_of_threads_bit_for_bit(mnist: Dataset) -> None:
    one, two = MlpEngine(mnist, threads=1), MlpEngine(mnist, threads=2)
    jobs = [some_job(one, seed, epochs=1 + seed % 2, samples=50 + 37 * seed) for seed in range(20)]
    together = one.train(jobs)
    assert np.array_equal(together, two.train(jobs))
    assert np.array_equal(together, MlpEngine(mnist, threads=7).train(jobs))
    for number in (0, 7, 19):
        assert np.array_equal(together[number], two.train([jobs[number]])[0])
    assert len({model.tobytes() for model in together}) == 20
    a, b = one.evaluate(together), two.evaluate(together)
    assert np.array_equal(a.accuracy, b.accuracy)
    assert np.array_equal(a.loss, b.loss)
    assert np.array_equal(one.evaluate(together[3:4]).loss, a.loss[3:4])


@pytest.mark.parametrize("stretch", [1.0, 300.0])
def test_evaluation_equals_numpys(mnist: Dataset, stretch: float) -> None:
    count = 2 * PIECE + 77
    data = replace(mnist, test_x=mnist.test_x[:count], test_y=mnist.test_y[:count])
    engine = MlpEngine(data)
    start = some_job(engine, seed=0, samples=1500)
    models = np.stack([start.start, engine.train([start])[0]]) * np.float32(stretch)
    result = engine.evaluate(models)
    for k, model in enumerate(models):
        logits = twin_forward(twin_layers(model, (784, 64, 10)), twin_inputs(data, data.test_x))[-1]
        assert result.accuracy[k] == pytest.approx(np.mean(logits.argmax(axis=1) == data.test_y), abs=1.5 / count)
        assert result.loss[k] == pytest.approx(cross_entropy(logits, data.test_y), rel=1e-5)
    assert result.accuracy[1] > result.accuracy[0] + 0.3


def test_nothing_given_is_changed(mnist: Dataset) -> None:
    engine = MlpEngine(mnist)
    job = some_job(engine, seed=4)
    before = (job.start.copy(), job.order.copy(), mnist.train_x[job.order[0]].copy())
    first = engine.train([job])
    assert np.array_equal(first, engine.train([job]))
    after = (job.start, job.order, mnist.train_x[job.order[0]])
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_diverged_job_shows_it_and_harms_no_other(mnist: Dataset) -> None:
    engine = MlpEngine(mnist, hidden=(64, 32), learning_rate=1e30, threads=1)
    job = some_job(engine, seed=6, samples=30)
    sane = np.zeros_like(job.start)
    before = engine.evaluate(sane[None])
    wild = engine.train([job])
    assert np.isnan(wild).any()
    assert np.isnan(engine.evaluate(wild).loss[0])
    after = engine.evaluate(sane[None])  # in the workspace the diverged job has left
    assert (after.loss[0], after.accuracy[0]) == (before.loss[0], before.accuracy[0])
    assert after.loss[0] == pytest.approx(np.log(10.0), rel=1e-6)
    with pytest.raises(InputError, match="NaN or infinity"):
        engine.train([Job(wild[0], job.order)])


def test_the_start_is_the_seeds(mnist: Dataset) -> None:
    engine = MlpEngine(mnist, hidden=(64, 32))
    start: Vector = engine.initial(np.random.default_rng(1))
    assert np.array_equal(start, engine.initial(np.random.default_rng(1)))
    assert not np.array_equal(start, engine.initial(np.random.default_rng(2)))
    for (w, b), n_in in zip(twin_layers(start, (784, 64, 32, 10)), (784, 64, 32), strict=True):
        assert 0.9 / np.sqrt(n_in) < np.abs(w).max() <= 1 / np.sqrt(n_in)
        assert 0.5 / np.sqrt(n_in) < np.abs(b).max() <= 1 / np.sqrt(n_in)


def test_no_jobs_and_no_models(mnist: Dataset) -> None:
    engine = MlpEngine(mnist)
    assert engine.train([]).shape == (0, 50890)
    assert engine.evaluate(np.empty((0, 50890), np.float32)).loss.shape == (0,)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"momentum": 0.9}, "momentum is 0.9 .* plain SGD: leave both at 0 or use the torch engine"),
        ({"weight_decay": 1e-4}, "weight_decay 0.0001"),
        ({"hidden": (64, 0)}, r"hidden is \(64, 0\); give the number of units"),
        ({"hidden": (6.5,)}, "hidden is"),
        ({"threads": 0}, "threads is 0; give an integer of at least 1, or None"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"learning_rate": -0.1}, "learning_rate is -0.1"),
    ],
)
def test_bad_settings_are_refused(mnist: Dataset, setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MlpEngine(mnist, **setting)


def test_bad_jobs_never_reach_the_kernel(mnist: Dataset) -> None:
    engine = MlpEngine(mnist)
    start = engine.initial(np.random.default_rng(0))
    with pytest.raises(InputError, match="visits samples 0 to 60000; give indices from 0 to 59999"):
        engine.train([Job(start, np.array([[0, 60000]]))])
    with pytest.raises(InputError, match=r"shape \(50889,\); give one of shape \(50890,\)"):
        engine.train([Job(start[1:], np.array([[0]]))])
    with pytest.raises(InputError, match=r"models has shape \(50890,\)"):
        engine.evaluate(start)


def _train_in_child(engine: MlpEngine, jobs: list[Job], results: Any) -> None:
    results.put(engine.train(jobs))


def test_an_engine_works_in_a_forked_process_and_through_pickle(mnist: Dataset) -> None:
    small = replace(mnist, train_x=mnist.train_x[:500], train_y=mnist.train_y[:500])
    engine = MlpEngine(small, threads=2)
    rng = np.random.default_rng(0)
    jobs = [Job(engine.initial(rng), rng.integers(500, size=(1, 60))) for _ in range(3)]
    here = engine.train(jobs)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_train_in_child, args=(engine, jobs, results))
    child.start()
    assert np.array_equal(here, results.get(timeout=LIMIT_S))
    child.join(timeout=LIMIT_S)
    assert child.exitcode == 0
    assert np.array_equal(here, pickle.loads(pickle.dumps(engine)).train(jobs))


SECOND_PROCESS = """
import numpy as np
from fedcell.learn import mlp_kernel
from fedcell.learn.data import load_dataset
from fedcell.learn.engine import Job
from fedcell.learn.mlp import MlpEngine
engine = MlpEngine(load_dataset("mnist"))
engine.evaluate(engine.train([Job(engine.initial(np.random.default_rng(0)), np.arange(20)[None])]))
print([sum(k.stats.cache_misses.values()) for k in (mlp_kernel.train_mlp, mlp_kernel.evaluate)])
"""


@pytest.mark.processes
def test_a_second_process_compiles_nothing(mnist: Dataset) -> None:
    engine = MlpEngine(mnist)
    engine.evaluate(engine.train([some_job(engine, seed=0, samples=20)]))
    assert python(SECOND_PROCESS, cold=True) == "[0, 0]\n"


@pytest.mark.parametrize(("wide", "lengths"), [(True, [1, 1, 2, 2, 4, 4]), (False, [1, 1, 2, 2, 2, 2])])
def test_a_pair_of_samples_fits_in_the_processors_registers(
    wide: bool, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcell.learn.mlp.binding.get_host_cpu_features", lambda: {"avx512f": wide})
    assert [len(mlp._lanes(units)) for units in (1, 16, 17, 32, 33, 64)] == lengths
