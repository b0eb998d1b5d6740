"""A device's profile: a short vector that says what its data is like, of a PyTorch model too, and noise that hides it.

A profile has an L1 norm of at most 1. So two profiles differ by at most 2 in L1, whatever the data of the devices, and
Laplace noise of scale 2 / epsilon in every entry makes a report epsilon-differentially private for the device as a
whole (local differential privacy: nobody needs to be trusted, not even the server). docs/diverse.md says what a profile
without noise reveals.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcell.errors import InputError, require_whole
from fedcell.learn.engine import LEARNING_RATE, checked_setting

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedcell.learn.torch_stack import Loss

    Batches = Iterable[tuple[Tensor, Tensor]]

REPORT_SAMPLES = 100
"""On how many of its samples a device trains for the report of its gradient."""
MAX_PROFILE = 4096
"""Numbers in a profile; with more, a report would be as long as a model."""


def normalised(change: ArrayLike) -> NDArray[np.float64]:
    """Return vectors with an L1 norm of 1; a vector of zeros stays one.

    Args:
        change: (..., d), such as the change of the output layer's biases by a little training.

    Returns:
        (..., d) float64.

    Example:
        >>> from fedcell.learn.profile import normalised
        >>> normalised([3.0, -1.0]).tolist()
        [0.75, -0.25]
    """
    vector = np.asarray(change, dtype=np.float64)
    norm = np.abs(vector).sum(axis=-1, keepdims=True)
    unit: NDArray[np.float64] = vector / np.where(norm > 0.0, norm, 1.0)
    return unit


def private(profile: ArrayLike, epsilon: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return profiles with the noise that makes each of them epsilon-differentially private.

    Args:
        profile: (..., d), each of an L1 norm of at most 1, as `normalised` and label shares are.
        epsilon: above 0; the smaller, the more private, and the less the profile tells.
        rng: the source of the noise; it must be secret where the profile is.

    Returns:
        (..., d) float64.

    Example:
        >>> import numpy as np
        >>> from fedcell.learn.profile import private
        >>> private([0.75, -0.25], epsilon=8.0, rng=np.random.default_rng(0)).round(2).tolist()
        [0.83, -0.4]
    """
    clean = np.asarray(profile, dtype=np.float64)
    if (np.abs(clean).sum(axis=-1) > 1.0 + 1e-9).any():
        raise InputError("a profile has an L1 norm above 1, for which the noise is too small; normalise it first")
    return clean + rng.laplace(0.0, _scale(epsilon), clean.shape)


def noise_of(epsilon: float | None, d: int) -> float:
    """Return the expected squared norm of the noise that `private` adds to a profile of d entries; 0 without epsilon.

    Args:
        epsilon: as given to `private`, or None for none.
        d: the length of a profile.

    Example:
        >>> from fedcell.learn.profile import noise_of
        >>> noise_of(8.0, 10), noise_of(None, 10)
        (1.25, 0.0)
    """
    return 0.0 if epsilon is None else 2.0 * d * _scale(epsilon) ** 2


def _scale(epsilon: float) -> float:
    if not (np.isfinite(epsilon) and epsilon > 0.0):
        raise InputError(f"epsilon is {epsilon!r}; give a number above 0")
    return 2.0 / epsilon


def profile_of(
    model: "nn.Module",
    batches: "Batches",
    loss: "Loss | None" = None,
    *,
    samples: int = REPORT_SAMPLES,
    learning_rate: float = LEARNING_RATE,
    epsilon: float | None = None,
    rng: np.random.Generator | None = None,
) -> list[float]:
    """Return a device's profile for its report: the normalised change of the model's last bias by a little training.

    A copy of the model is trained by plain SGD; the model itself is left as it is. Profiles are comparable only if all
    devices start from the same model: build it after ``torch.manual_seed``, or load the one that the server has.

    Args:
        model: an ``nn.Module`` whose output layer has a bias.
        batches: of inputs and labels, such as a shuffled DataLoader; as many are used as ``samples`` needs.
        loss: from outputs and labels to a scalar; by default the mean cross-entropy.
        samples: how many samples to train on, once each; fewer if there are fewer.
        learning_rate: of SGD.
        epsilon: add the noise that makes the profile epsilon-differentially private; give `Scheduled` the same number.
            None for no noise.
        rng: the source of that noise, which must be secret; by default seeded by the operating system.

    Returns:
        One number for each entry of the bias; without noise, the sum of their absolute values is 1.

    Example:
        >>> import torch
        >>> from fedcell.learn.profile import profile_of
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Linear(2, 3)
        >>> batches = [(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]))]
        >>> [round(value, 2) for value in profile_of(model, batches)]  # label 0 is the most frequent
        [0.5, -0.23, -0.27]
    """
    try:
        import torch
    except ImportError:
        raise InputError("profile_of needs PyTorch, which is not installed; pip install 'fedcell[torch]'") from None
    require_whole("samples", samples, least=1)
    checked_setting(learning_rate, 1)
    trained = deepcopy(model).train()
    bias = _last_bias(trained)
    before = _values(bias)
    with torch.enable_grad():
        seen = _train(trained, batches, loss or torch.nn.functional.cross_entropy, samples, learning_rate)
    change = _values(bias) - before
    if seen == 0:
        raise InputError("batches has no samples to train on; give a DataLoader that has some")
    if not np.isfinite(change).all():
        raise InputError(
            f"training for the profile diverged with the learning rate {learning_rate:g}; give a lower one"
        )
    profile = normalised(change)
    if epsilon is not None:
        profile = private(profile, epsilon, np.random.default_rng() if rng is None else rng)
    return [float(value) for value in profile]


def _train(model: "nn.Module", batches: "Batches", loss: "Loss", samples: int, learning_rate: float) -> int:
    """Train the model in place on at most so many samples; return on how many."""
    import torch

    trained = [p for p in model.parameters() if p.requires_grad]
    device = next(model.parameters()).device
    seen = 0
    for inputs, labels in batches:
        some, wanted = inputs[: samples - seen].to(device), labels[: samples - seen].to(device)
        gradients = torch.autograd.grad(loss(model(some), wanted), trained, allow_unused=True)
        with torch.no_grad():  # a step of SGD; PyTorch's own optimizers take seconds to import
            for parameter, gradient in zip(trained, gradients, strict=True):
                if gradient is not None:
                    parameter.add_(gradient, alpha=-learning_rate)
        seen += len(some)
        if seen >= samples:
            break
    return seen


def _last_bias(model: "nn.Module") -> "nn.Parameter":
    vectors = [p for p in model.parameters() if p.ndim == 1 and p.requires_grad]
    if not vectors:
        raise InputError("the model has no trained bias whose change could be the profile; give its output layer one")
    if vectors[-1].numel() > MAX_PROFILE:
        raise InputError(
            f"the model's last bias has {vectors[-1].numel()} numbers, and a profile at most {MAX_PROFILE}; report "
            "another profile, such as shares of a few groups of labels"
        )
    return vectors[-1]


def _values(parameter: "nn.Parameter") -> "np.ndarray[Any, np.dtype[np.float64]]":
    return np.array(parameter.detach().cpu().tolist(), dtype=np.float64)
