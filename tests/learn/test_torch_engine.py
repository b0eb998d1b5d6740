"""The torch engine against the compiled one, against a plain PyTorch loop, and against modules it has to refuse."""

import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.learn.data import Dataset, load_dataset
from fedcell.learn.engine import HostUpdates, Job, cross_entropy
from fedcell.learn.mlp import MlpEngine
from harness import python

torch = pytest.importorskip("torch")
nn = torch.nn
import torch.fx.experimental.proxy_tensor  # noqa: E402 (the engine's tracing imports SymPy: once, before workers part)

from fedcell.learn.torch_engine import TorchEngine  # noqa: E402
from fedcell.learn.torch_modules import cnn_module, mlp_module  # noqa: E402


@pytest.fixture(scope="module")
def mnist() -> Dataset:
    """MNIST with 3,000 samples to train and 2,500 to test on."""
    data = load_dataset("mnist")
    return replace(
        data,
        train_x=data.train_x[:3000],
        train_y=data.train_y[:3000],
        test_x=data.test_x[:2500],
        test_y=data.test_y[:2500],
    )


def some_jobs(engine: Any, lengths: list[tuple[int, int]]) -> list[Job]:
    rng = np.random.default_rng(11)
    return [
        Job(engine.initial(rng), np.stack([rng.choice(3000, samples, replace=False) for _ in range(epochs)]))
        for epochs, samples in lengths
    ]


def plain_loop(data: Dataset, module: Any, job: Job, batch: int, channel: bool, **setting: float) -> NDArray[Any]:
    """What a PyTorch user would write for one client."""
    torch.nn.utils.vector_to_parameters(torch.tensor(job.start), module.parameters())
    optimiser = torch.optim.SGD(module.parameters(), **setting)
    for row in job.order:
        for first in range(0, len(row), batch):
            ids = row[first : first + batch]
            x = (torch.tensor(data.train_x[ids]).float() / 255 - data.shift) / data.scale
            optimiser.zero_grad()
            logits = module(x[:, None] if channel else x)
            nn.functional.cross_entropy(logits, torch.tensor(data.train_y[ids])).backward()
            optimiser.step()
    vector: NDArray[Any] = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    return vector


def far(model: NDArray[Any], other: NDArray[Any], start: NDArray[Any]) -> float:
    return float(np.linalg.norm(model - other) / np.linalg.norm(other - start))


@pytest.mark.parametrize(("hidden", "unit"), [((64,), False), ((64,), True), ((64, 32), False)])
def test_both_engines_agree(mnist: Dataset, hidden: tuple[int, ...], unit: bool) -> None:
    data = replace(mnist, shift=0.0, scale=1.0) if unit else mnist
    mlp = MlpEngine(data, hidden=hidden)
    engine = TorchEngine(data, mlp_module(data, hidden))
    assert engine.parameters == mlp.parameters
    start = engine.initial(np.random.default_rng(5))
    assert np.array_equal(start, mlp.initial(np.random.default_rng(5)))
    jobs = some_jobs(mlp, [(1, 100), (2, 57), (1, 3), (3, 20)])
    ours, theirs = engine.train(jobs), mlp.train(jobs)
    for k, job in enumerate(jobs):
        assert far(ours[k], theirs[k], job.start) < 3e-5
    a, b = engine.evaluate(ours), mlp.evaluate(theirs)
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-5)
    np.testing.assert_allclose(a.accuracy, b.accuracy, atol=2.5 / 2500)


def test_momentum_and_weight_decay_are_pytorchs(mnist: Dataset) -> None:
    engine = TorchEngine(mnist, mlp_module(mnist), batch_size=8, momentum=0.9, weight_decay=0.05, learning_rate=0.02)
    jobs = some_jobs(engine, [(2, 60), (1, 25)])
    models = engine.train(jobs)
    plain = TorchEngine(mnist, mlp_module(mnist), batch_size=8, learning_rate=0.02).train(jobs)
    for k, job in enumerate(jobs):
        setting = {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.05}
        loop = plain_loop(mnist, mlp_module(mnist), job, 8, channel=False, **setting)
        assert far(models[k], loop, job.start) < 3e-5
        assert far(plain[k], loop, job.start) > 0.1


def test_a_cnn_trains_like_the_plain_loop(mnist: Dataset) -> None:
    engine = TorchEngine(mnist, lambda: cnn_module(mnist), learning_rate=0.05)
    jobs = some_jobs(engine, [(1, 45), (1, 60)])
    models = engine.train(jobs)
    for k, job in enumerate(jobs):
        loop = plain_loop(mnist, cnn_module(mnist), job, 10, channel=True, lr=0.05)
        assert far(models[k], loop, job.start) < 1e-4
    long = some_jobs(engine, [(1, 1200)])
    before, after = engine.evaluate(np.stack([long[0].start, engine.train(long)[0]])).accuracy
    assert before < 0.4
    assert after > 0.8


def test_alone_and_together(mnist: Dataset) -> None:
    engine = TorchEngine(mnist, mlp_module(mnist))
    jobs = some_jobs(engine, [(1 + k % 2, 10 + 3 * k) for k in range(20)])
    together = engine.train(jobs)
    assert np.array_equal(together, engine.train(jobs))
    for k in (0, 7, 19):
        assert far(engine.train([jobs[k]])[0], together[k], jobs[k].start) < 1e-5


def test_a_loss_of_ones_own(mnist: Dataset) -> None:
    def squares(logits: Any, labels: Any) -> Any:
        return ((logits - nn.functional.one_hot(labels, 10)) ** 2).sum(dim=1)

    engine = TorchEngine(mnist, mlp_module(mnist), loss=squares)
    zero = np.zeros((1, engine.parameters), np.float32)
    assert engine.evaluate(zero).loss[0] == pytest.approx(1.0)
    order = np.arange(10)[None]
    model = engine.train([Job(zero[0], order)])[0]
    # From the zero model only the last biases move: dL/db = 2 mean(0 - onehot), one step of 0.01.
    expected = 0.02 * np.bincount(mnist.train_y[:10], minlength=10) / 10
    np.testing.assert_allclose(model[-10:], expected, rtol=1e-5)
    assert not model[:-10].any()


def test_the_users_module_and_pytorchs_generator_are_left_alone(mnist: Dataset) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.LayerNorm(12), nn.PReLU(), nn.Linear(12, 10))
    before = [parameter.detach().clone() for parameter in module.parameters()]
    state = torch.random.get_rng_state()
    engine = TorchEngine(mnist, module)
    start = engine.initial(np.random.default_rng(2))
    assert start.shape == (sum(parameter.numel() for parameter in before),)
    assert np.array_equal(start, engine.initial(np.random.default_rng(2)))
    trained = engine.train([Job(start, np.arange(30)[None])])[0]
    assert far(trained, plain_loop(mnist, module, Job(start, np.arange(30)[None]), 10, False, lr=0.01), start) < 3e-5
    torch.nn.utils.vector_to_parameters(torch.cat([b.ravel() for b in before]), module.parameters())
    engine.train([Job(start, np.arange(30)[None])])
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert torch.equal(state, torch.random.get_rng_state())


class _SecretDropout(nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(784, 10)

    def forward(self, x: Any) -> Any:
        return nn.functional.dropout(self.layer(x.flatten(1)), training=self.training)


def _tied() -> Any:
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 784), nn.Linear(784, 784), nn.Linear(784, 10))
    module[2].weight = module[1].weight
    return module


def _frozen() -> Any:
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    module[1].bias.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10)),
            "buffer '2.running_mean'.*GroupNorm instead of BatchNorm",
        ),
        (
            lambda: nn.Sequential(nn.Flatten(), nn.AlphaDropout(0.5), nn.Linear(784, 10)),
            r"layer '1' \(AlphaDropout\) draws",
        ),
        (_SecretDropout, "cannot be trained.*random"),
        (_tied, "shares a parameter"),
        (_frozen, "parameter '1.bias' is frozen"),
        (nn.Flatten, "no parameters"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(99, 10)), r"samples of shape \(28, 28\): .*99"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 9)), r"shape \(2, 9\); give \(2, 10\)"),
        (lambda: 3, "module is a int; give an nn.Module"),
    ],
)
def test_modules_it_cannot_train_are_refused(mnist: Dataset, make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TorchEngine(mnist, make)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"momentum": 1.0}, "momentum is 1.0; give a number from 0 to less than 1"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0; give a number of at least 0"),
        ({"device": "abacus"}, "device is 'abacus'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"loss": nn.functional.cross_entropy}, r"loss of 2 samples has shape \(\); give one loss per sample"),
    ],
)
def test_bad_settings_are_refused(mnist: Dataset, setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TorchEngine(mnist, mlp_module(mnist), **setting)


def test_bad_jobs_are_refused(mnist: Dataset) -> None:
    engine = TorchEngine(mnist, mlp_module(mnist))
    start = engine.initial(np.random.default_rng(0))
    with pytest.raises(InputError, match="visits samples 0 to 3000"):
        engine.train([Job(start, np.array([[0, 3000]]))])
    with pytest.raises(InputError, match="models has shape"):
        engine.evaluate(start)
    assert engine.train([]).shape == (0, 50890)


def test_a_cnn_needs_images(mnist: Dataset) -> None:
    flat = replace(mnist, train_x=mnist.train_x[:, :4, :5])
    with pytest.raises(InputError, match=r"samples have shape \(4, 5\); the CNN needs"):
        cnn_module(flat)


def test_losses_norms_means_and_tails_are_those_of_the_plain_loop(mnist: Dataset) -> None:
    engine = TorchEngine(mnist, mlp_module(mnist), stack=2)
    jobs = some_jobs(engine, [(1, 40), (2, 33), (1, 5)])
    found = engine.update(jobs)
    models = found.models()
    np.testing.assert_allclose(found.norms(), [np.linalg.norm(m - j.start) for m, j in zip(models, jobs, strict=True)])
    np.testing.assert_array_equal(found.output_bias(10), models[:, -10:])
    weights = np.array([1.0, 0.0, 3.0])
    np.testing.assert_allclose(found.mean(weights), (models[0] + 3 * models[2]) / 4, rtol=1e-6, atol=1e-7)
    # The loss of a job, by hand: the model before each step on that step's samples.
    total = 0.0
    for first in range(0, 33, 10):
        before = engine.train([Job(jobs[1].start, jobs[1].order[:1, :first])])[0] if first else jobs[1].start
        total += batch_loss(mnist, before, jobs[1].order[0, first : first + 10])
    alone = engine.update([Job(jobs[1].start, jobs[1].order[:1])])
    assert alone.losses[0] == pytest.approx(total / 33, rel=1e-5)
    assert found.losses[1] < alone.losses[0]  # the second epoch's are lower
    np.testing.assert_allclose(found.losses, MlpEngine(mnist).update(jobs).losses, rtol=1e-5)
    assert engine.update([]).losses.shape == (0,)
    assert engine.losses([]).shape == (0,)


def test_root_mean_squares_and_losses_of_both_engines_are_those_of_the_samples(mnist: Dataset) -> None:
    torch_engine, mlp_engine = TorchEngine(mnist, mlp_module(mnist), stack=2), MlpEngine(mnist)
    jobs = some_jobs(torch_engine, [(1, 40), (2, 33), (1, 5)])
    # By hand: each sample's loss under the model before its step.
    squares = 0.0
    for first in range(0, 40, 10):
        before = mlp_engine.train([Job(jobs[0].start, jobs[0].order[:, :first])])[0] if first else jobs[0].start
        ids = jobs[0].order[0, first : first + 10]
        squares += sum(batch_loss(mnist, before, ids[i : i + 1]) ** 2 for i in range(10))
    for engine in (torch_engine, mlp_engine):
        asked = engine.update([jobs[0], replace(jobs[0], rms=True), replace(jobs[1], rms=True)])
        assert np.isnan(asked.rms[0])
        assert asked.rms[1] == pytest.approx(np.sqrt(squares / 40), rel=1e-5)
        np.testing.assert_array_equal(asked.models()[1], engine.train([jobs[0]])[0])
        by_hand = [batch_loss(mnist, job.start, job.order.ravel()) / job.order.size for job in jobs]
        np.testing.assert_allclose(engine.losses(jobs), by_hand, rtol=1e-5)
    rms = [engine.update([replace(jobs[1], rms=True)]).rms[0] for engine in (torch_engine, mlp_engine)]
    assert rms[0] == pytest.approx(rms[1], rel=1e-5)


def test_sketches_keep_the_distances_of_updates() -> None:
    rng = np.random.default_rng(1)
    updates = rng.normal(size=(6, 5000)).astype(np.float32) * np.arange(1, 7, dtype=np.float32)[:, np.newaxis]
    start = np.ones(5000, np.float32)
    sketches = HostUpdates([start] * 6, start + updates, np.zeros(6)).sketch(256)
    assert sketches.shape == (6, 256)
    for i in range(6):
        for j in range(i):
            true = np.linalg.norm(updates[i] - updates[j])
            assert np.linalg.norm(sketches[i] - sketches[j]) == pytest.approx(true, rel=0.2)


def batch_loss(data: Dataset, model: NDArray[Any], ids: NDArray[np.int64]) -> float:
    """The summed cross-entropy of samples, from NumPy alone."""
    x = ((data.train_x[ids].reshape(len(ids), -1) / 255 - data.shift) / data.scale).astype(np.float64)
    w1, b1, w2, b2 = np.split(model.astype(np.float64), np.cumsum([64 * 784, 64, 640]))
    hidden = np.maximum(x @ w1.reshape(64, 784).T + b1, 0)
    return len(ids) * cross_entropy(hidden @ w2.reshape(10, 64).T + b2, data.train_y[ids])


def test_a_jobs_rate_scales_its_steps(mnist: Dataset) -> None:
    for make in (
        lambda rate: TorchEngine(mnist, mlp_module(mnist), learning_rate=rate),
        lambda rate: MlpEngine(mnist, learning_rate=rate),
    ):
        jobs = some_jobs(make(0.01), [(1, 40), (1, 40)])
        halves = [replace(job, lr_scale=0.5) for job in jobs]
        np.testing.assert_allclose(make(0.02).train(halves), make(0.01).train(jobs), rtol=1e-6, atol=1e-8)
        with pytest.raises(InputError, match=r"job 0 has the learning-rate factor 0.0; give a number above 0"):
            make(0.01).train([replace(jobs[0], lr_scale=0.0)])


def test_smaller_stacks_where_memory_runs_out(mnist: Dataset) -> None:
    def greedy(logits: Any, labels: Any) -> Any:
        if len(labels) > 30 and len(labels) != 2000:  # as if more than three clients did not fit
            raise torch.OutOfMemoryError("no room")
        return nn.functional.cross_entropy(logits, labels, reduction="none")

    engine = TorchEngine(mnist, mlp_module(mnist), loss=greedy, stack=8)
    jobs = some_jobs(engine, [(1, 30 + k) for k in range(7)])
    roomy = TorchEngine(mnist, mlp_module(mnist)).train(jobs)
    np.testing.assert_allclose(engine.train(jobs), roomy, rtol=1e-4, atol=1e-6)

    def impossible(logits: Any, labels: Any) -> Any:
        if len(labels) == 10:
            raise torch.OutOfMemoryError("no room")
        return greedy(logits, labels)

    with pytest.raises(InputError, match="one client does not fit into the memory of cpu: no room"):
        TorchEngine(mnist, mlp_module(mnist), loss=impossible).train(jobs)


def test_what_was_too_large_is_gone_before_the_smaller_is_made(mnist: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TorchEngine(mnist, mlp_module(mnist), stack=8, threads=1)
    jobs, train, program_of, made = (
        some_jobs(engine, [(1, 10)] * 8),
        engine._train_stack,
        engine._program,
        dict[int, Any](),
    )

    def program(clients: int) -> Any:
        assert all(one() is None for size, one in made.items() if size > clients)
        found = program_of(clients)
        made[clients] = weakref.ref(found)
        return found

    def train_stack(program: Any, jobs: list[Job], *rest: Any) -> None:
        if len(jobs) > 2:
            raise torch.OutOfMemoryError("no room")
        train(program, jobs, *rest)

    monkeypatch.setattr(engine, "_program", program)
    monkeypatch.setattr(engine, "_train_stack", train_stack)
    engine.train(jobs)
    assert list(made) == [8, 4, 2]


def test_threads_change_nothing(mnist: Dataset) -> None:
    found = [TorchEngine(mnist, mlp_module(mnist), threads=threads) for threads in (1, 3)]
    jobs = some_jobs(found[0], [(1, 20 + k) for k in range(9)])
    before = torch.get_num_threads()
    one, three = (engine.update(jobs) for engine in found)
    assert torch.get_num_threads() == before
    np.testing.assert_array_equal(one.models(), three.models())
    np.testing.assert_array_equal(one.losses, three.losses)


@pytest.mark.processes
def test_the_mlp_engine_does_not_import_torch() -> None:
    assert python("import sys, fedcell, fedcell.learn.mlp; print('torch' in sys.modules)", cold=True) == "False\n"


@pytest.mark.parametrize("traceable", [True, False])
def test_runs_in_threads_that_share_an_engine_do_not_disturb_each_other(mnist: Dataset, traceable: bool) -> None:
    """A module holds one model's weights at a time while it runs: several threads must not share it."""

    def looks_at_values(logits: Any, labels: Any) -> Any:
        assert float(logits.detach().sum()) is not None  # cannot be traced: the module itself is called in every step
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none")

    engine = TorchEngine(mnist, cnn_module(mnist), loss=None if traceable else looks_at_values, threads=1)
    orders = [np.arange(20 * number, 20 * number + 20)[np.newaxis] for number in range(4)]
    jobs = [Job(engine.initial(np.random.default_rng(number)), order) for number, order in enumerate(orders)]
    shared = TorchEngine(mnist, cnn_module(mnist), loss=None if traceable else looks_at_values, threads=1)

    def both(one: TorchEngine, number: int) -> tuple[Any, Any]:
        [model] = one.train([jobs[number]])
        return model, one.evaluate(model[np.newaxis]).loss[0]

    alone = [both(engine, number) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for expected, found in zip(alone, pool.map(lambda n: both(shared, n), range(4)), strict=True):
                np.testing.assert_array_equal(found[0], expected[0])
                assert found[1] == expected[1]
