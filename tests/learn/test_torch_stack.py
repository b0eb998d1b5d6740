"""What stands in for others when clients train stacked: convolutions, dropout, graphs with fixed places."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedcell.learn.data import Dataset
from fedcell.learn.engine import HostUpdates, Job

torch = pytest.importorskip("torch")
nn = torch.nn

from fedcell.learn.torch_engine import TorchEngine, batches, padded  # noqa: E402
from fedcell.learn.torch_modules import PatchConv2d, for_training, uniform  # noqa: E402
from fedcell.learn.torch_stack import (  # noqa: E402
    DeviceUpdates,
    Recorded,
    StackedStep,
    Traced,
    gc_paused,
)

MASK = 2**64 - 1


def small_data(shape: tuple[int, ...] = (3, 8, 8)) -> Dataset:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60, *shape), np.uint8), rng.integers(0, 4, 60)
    return Dataset("small", x, y, x[:20], y[:20], 4, 0.5, 0.25)


def splitmix(key: int, place: int) -> float:
    """SplitMix64 as published, in Python's integers."""
    z = (key + (place + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return float(((z ^ (z >> 31)) >> 40) / 2**24)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**7))
def test_uniform_numbers_are_splitmix64(key: int, place: int) -> None:
    assert float(uniform(torch.tensor(key), torch.tensor([place]))[0]) == splitmix(key & MASK, place)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 1000),
)
def test_convolutions_by_patches_are_convolutions(
    clients: int, kernel: int, stride: int, padding: int, channels: int, bias: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    plain = nn.Conv2d(channels, 4, (kernel, 1 + kernel % 3), stride, padding, bias=bias)
    layer, _ = for_training(plain, patches=True)
    assert type(layer) is PatchConv2d
    names = [name for name, _ in plain.named_parameters()]
    weights = [torch.randn(clients, *p.shape, requires_grad=True) for p in plain.parameters()]
    x = torch.randn(clients, 2, channels, 7, 6, requires_grad=True)

    def stacked(parts: Any, inputs: Any) -> Any:
        return torch.func.functional_call(layer, dict(zip(names, parts, strict=True)), (inputs,))

    out = torch.func.vmap(stacked)(weights, x)
    each = [
        torch.func.functional_call(plain, {n: w[k] for n, w in zip(names, weights, strict=True)}, (x[k],))
        for k in range(clients)
    ]
    expected = torch.stack(each)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    pull = torch.randn_like(out)
    ours = torch.autograd.grad((out * pull).sum(), [x, *weights])
    theirs = torch.autograd.grad((expected * pull).sum(), [x, *weights])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (2, 5)])
def test_stacked_linear_layers_are_linear_layers(bias: bool, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    plain = nn.Linear(5, 3, bias=bias)
    layer, _ = for_training(plain, patches=True)
    names = [name for name, _ in plain.named_parameters()]
    weights = [torch.randn(4, *p.shape, requires_grad=True) for p in plain.parameters()]
    x = torch.randn(4, 6, *shape, requires_grad=True)

    def of(module: Any, parts: Any, inputs: Any) -> Any:
        return torch.func.functional_call(module, dict(zip(names, parts, strict=True)), (inputs,))

    out = torch.func.vmap(lambda parts, inputs: of(layer, parts, inputs))(weights, x)
    expected = torch.stack([of(plain, [w[k] for w in weights], x[k]) for k in range(4)])
    torch.testing.assert_close(out, expected)
    pull = torch.randn_like(out)
    ours = torch.autograd.grad((out * pull).sum(), [x, *weights])
    theirs = torch.autograd.grad((expected * pull).sum(), [x, *weights])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert ours[1].is_contiguous()


def test_only_plain_convolutions_are_replaced() -> None:
    module = nn.Sequential(
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3),
    )
    copy, keys = for_training(module, patches=True)
    assert [type(layer) for layer in copy.children()] == [nn.Conv2d] * 3 + [PatchConv2d]
    assert [type(layer) for layer in module] == [nn.Conv2d] * 4
    assert keys.layers == 0


def dropout_net() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Dropout2d(0.4), nn.Flatten(), nn.Dropout(0.25), nn.Linear(180, 4)
    )


def key_of(job: Job, step: int) -> int:
    seed = int(np.random.SeedSequence(list(job.key)).generate_state(1, np.uint64)[0])
    return (seed + step * 0x9E3779B97F4A7C15) & MASK


def mask(key: int, layer: int, shape: tuple[int, ...], p: float) -> Any:
    salted = (key + layer * 0x632BE59BD9B4E019) & MASK
    kept = [splitmix(salted, place) >= p for place in range(int(np.prod(shape)))]
    return torch.tensor(kept).view(shape).float() / (1 - p)


def dropped_loop(data: Dataset, net: Any, job: Job, batch: int) -> NDArray[Any]:
    """A plain loop with every mask written out."""
    torch.nn.utils.vector_to_parameters(torch.tensor(job.start), net.parameters())
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    for step, first in enumerate(range(0, job.order.shape[1], batch)):
        ids = job.order[0, first : first + batch]
        x = (torch.tensor(data.train_x[ids]).float() / 255 - 0.5) / 0.25
        key = key_of(job, step)
        h = net[1](net[0](x)) * mask(key, 1, (batch, 5, 1, 1), 0.4)[: len(ids)]
        h = h.flatten(1) * mask(key, 2, (batch, 180), 0.25)[: len(ids)]
        optimiser.zero_grad()
        nn.functional.cross_entropy(net[5](h), torch.tensor(data.train_y[ids])).backward()
        optimiser.step()
    vector: NDArray[Any] = torch.nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
    return vector


def test_dropout_is_keyed_by_job_and_step_and_knows_no_company() -> None:
    data = small_data()
    engine = TorchEngine(data, dropout_net, learning_rate=0.05, batch_size=6)
    rng = np.random.default_rng(1)
    start = engine.initial(rng)
    jobs = [Job(start, rng.permutation(60)[np.newaxis, :n], key=(3, 1, k)) for k, n in enumerate((14, 60, 30))]
    found = engine.train(jobs)
    for job, model in zip(jobs, found, strict=True):
        expected = dropped_loop(data, dropout_net(), job, 6)
        assert np.linalg.norm(model - expected) < 1e-4 * np.linalg.norm(expected - start)
        alone = engine.train([job])[0]
        assert np.linalg.norm(model - alone) < 1e-5 * np.linalg.norm(expected - start)
    other = engine.train([Job(start, jobs[0].order, key=(3, 2, 0))])[0]
    assert np.linalg.norm(other - found[0]) > 0.05 * np.linalg.norm(found[0] - start)
    np.testing.assert_array_equal(engine.evaluate(found).loss, engine.evaluate(found).loss)  # none in an evaluation


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_padded_stack_trains_like_an_exact_one(momentum: float) -> None:
    data = small_data()
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(512, 4)
    )
    shapes = [parameter.shape for parameter in module.parameters()]
    x, y = torch.tensor(data.train_x), torch.tensor(data.train_y)
    training = (x, y, lambda raw: (raw.float() / 255 - 0.5) / 0.25)
    programs = []
    for kind, clients, patches in ((Traced, 3, False), (Recorded, 8, True)):
        copy, keys = for_training(module, patches)
        loss = nn.CrossEntropyLoss(reduction="none")
        programs.append(kind(StackedStep(copy, keys, loss, momentum, 0.01), clients, 5, shapes, training))
    rng = np.random.default_rng(2)
    jobs = [Job(np.zeros(1, np.float32), rng.permutation(60)[np.newaxis, :n]) for n in (20, 13, 55)]
    order = torch.tensor(batches(jobs, 5))
    torch.manual_seed(3)
    start = [torch.randn(3, *shape) / 10 for shape in shapes]
    rates, keys = torch.tensor([0.05, 0.02, 0.01]), torch.tensor([5, -(2**62), 7])
    for _ in range(2):  # a stack is used again and again
        (exact_models, exact_loss), (wide_models, wide_loss) = (p.run(start, order, rates, keys) for p in programs)
        for first, ours, theirs in zip(start, wide_models, exact_models, strict=True):
            assert float((theirs - first).norm()) > 0
            torch.testing.assert_close(ours[:3], theirs, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(wide_loss[:3], exact_loss, rtol=1e-5, atol=1e-5)


def test_stacks_come_in_few_sizes() -> None:
    sizes = [padded(n, 64) for n in range(1, 65)]
    assert all(n <= size <= max(8, n + 3) for n, size in enumerate(sizes, start=1))
    assert len(set(sizes)) == 15


def test_nothing_is_collected_while_a_graph_is_recorded() -> None:
    class Knot:
        def __init__(self) -> None:
            self.itself = self

    deleted: list[str] = []
    for when in ("before", "during"):
        weakref.finalize(Knot(), deleted.append, when)
        if when == "before":
            manager = gc_paused()
            manager.__enter__()
    assert deleted == ["before"]
    assert not gc.isenabled()
    manager.__exit__(None, None, None)
    assert gc.isenabled()


def test_updates_on_a_device_say_what_those_on_the_host_do() -> None:
    rng = np.random.default_rng(0)
    starts, models = rng.normal(size=(2, 7)).astype(np.float32), rng.normal(size=(3, 7)).astype(np.float32)
    which, losses = [1, 0, 1], rng.random(3)
    host = HostUpdates([starts[k] for k in which], models, losses, losses + 1.0, (3, 4))
    device = DeviceUpdates(torch.tensor(starts), np.array(which), torch.tensor(models), losses, losses + 1.0, (3, 4))
    assert host.sketch(3).shape == (3, 3)
    np.testing.assert_allclose(device.sketch(3), host.sketch(3), rtol=1e-6, atol=1e-6)
    for some in (slice(1, 3), np.array([2, 0])):
        np.testing.assert_array_equal(device.take(some).models(), host.take(some).models())
        np.testing.assert_allclose(device.take(some).norms(), host.take(some).norms(), rtol=1e-6)
        np.testing.assert_array_equal(device.take(some).rms, host.take(some).rms)
        np.testing.assert_array_equal(device.take(some).sums(), host.take(some).sums())
    for weights in (None, np.array([1.0, 2.0, 5.0])):
        np.testing.assert_allclose(device.mean(weights), host.mean(weights), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(device.norms(), host.norms(), rtol=1e-6)
    np.testing.assert_array_equal(device.output_bias(2), host.output_bias(2))
    np.testing.assert_array_equal(device.models(), host.models())
