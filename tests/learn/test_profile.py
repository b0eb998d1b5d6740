"""Profiles that devices report, and their noise."""

import numpy as np
import pytest
from scipy import stats

from fedcell.errors import InputError
from fedcell.learn.profile import MAX_PROFILE, noise_of, normalised, private, profile_of


def test_normalised_has_an_l1_norm_of_1() -> None:
    changes = np.random.default_rng(0).normal(size=(50, 7))
    np.testing.assert_allclose(np.abs(normalised(changes)).sum(axis=1), 1.0)
    np.testing.assert_allclose(normalised(3.0 * changes), normalised(changes))
    assert normalised(np.zeros(4)).tolist() == [0.0] * 4


def test_the_noise_is_laplace_of_scale_2_by_epsilon() -> None:
    epsilon, d = 5.0, 10
    clean = np.tile(normalised(np.arange(d)), (20_000, 1))
    noise = private(clean, epsilon, np.random.default_rng(1)) - clean
    assert stats.kstest(noise.ravel(), stats.laplace(scale=2 / epsilon).cdf).pvalue > 0.01
    assert np.square(noise).sum(axis=1).mean() == pytest.approx(noise_of(epsilon, d), rel=0.02)


def test_no_two_profiles_can_be_told_apart_by_more_than_e_to_the_epsilon() -> None:
    """The definition, with the two profiles that differ most; log densities differ by at most epsilon anywhere."""
    epsilon = 1.7
    one, other = np.array([1.0, 0.0]), np.array([0.0, -1.0])
    density = stats.laplace(scale=2 / epsilon).logpdf
    points = np.random.default_rng(2).uniform(-9, 9, (10_000, 2))
    ratio = density(points - one).sum(axis=1) - density(points - other).sum(axis=1)
    assert np.abs(ratio).max() <= epsilon + 1e-9
    assert np.abs(ratio).max() > 0.9 * epsilon  # no more noise than needed


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.inf, np.nan])
def test_a_bad_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon is"):
        private([1.0], epsilon, np.random.default_rng(0))
    with pytest.raises(InputError, match="epsilon is"):
        noise_of(epsilon, 3)


def test_a_profile_for_which_the_noise_would_be_too_small_is_refused() -> None:
    with pytest.raises(InputError, match="L1 norm above 1"):
        private([1.0, 1.0], 1.0, np.random.default_rng(0))


def softmax(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)
    return found


def test_a_models_profile_is_the_change_of_its_last_bias_by_sgd_on_so_many_samples() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 3), torch.nn.Linear(3, 5))
    for parameter in model[:2].parameters():
        parameter.requires_grad = False
    before = [p.tolist() for p in model.parameters()]
    inputs, labels = torch.rand(9, 2), torch.tensor([0, 1, 2, 3, 4, 0, 1, 2, 0])
    batches = [(inputs[i : i + 4], labels[i : i + 4]) for i in (0, 4, 8)]
    profile = profile_of(model, batches, samples=6, learning_rate=0.5)
    x = model[:2](inputs).detach().numpy().astype(float)
    weight, bias = (p.detach().numpy().astype(float) for p in model[2].parameters())
    start = bias
    for part in (slice(4), slice(4, 6)):  # the sixth sample is the last
        off = softmax(x[part] @ weight.T + bias) - np.eye(5)[labels[part]]
        weight, bias = weight - 0.5 * off.T @ x[part] / len(off), bias - 0.5 * off.mean(axis=0)
    np.testing.assert_allclose(profile, normalised(bias - start), atol=1e-6)
    assert [p.tolist() for p in model.parameters()] == before
    noisy = profile_of(model, batches, samples=6, learning_rate=0.5, epsilon=3.0, rng=np.random.default_rng(5))
    assert noisy == private(profile, 3.0, np.random.default_rng(5)).tolist()


def test_a_model_or_batches_without_a_profile_get_a_sentence() -> None:
    torch = pytest.importorskip("torch")
    batch = [(torch.ones(4, 2), torch.zeros(4, dtype=torch.long))]
    linear = torch.nn.Linear(2, 3)
    with pytest.raises(InputError, match="batches has no samples to train on"):
        profile_of(linear, [])
    with pytest.raises(InputError, match=r"diverged with the learning rate 0.5; give a lower one"):
        profile_of(linear, [(np.nan * batch[0][0], batch[0][1])], learning_rate=0.5)
    with pytest.raises(InputError, match="diverged"):  # one number of them is enough
        profile_of(linear, batch, lambda outputs, _: outputs[:, 0].sum() / 0.0)
    with pytest.raises(InputError, match="the model has no trained bias"):
        profile_of(torch.nn.Linear(2, 3, bias=False), batch)
    with pytest.raises(InputError, match="the model has no trained bias"):
        profile_of(linear.requires_grad_(False), batch)
    with pytest.raises(InputError, match=f"has {MAX_PROFILE + 1} numbers, and a profile at most {MAX_PROFILE}"):
        profile_of(torch.nn.Linear(1, MAX_PROFILE + 1), batch)
    assert len(profile_of(torch.nn.Linear(2, MAX_PROFILE), batch)) == MAX_PROFILE
    with pytest.raises(InputError, match="samples is 0"):
        profile_of(torch.nn.Linear(2, 3), batch, samples=0)
