"""A client's profile for a PyTorch model: what a little training changes in its last bias. Needs PyTorch."""

from collections.abc import Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcell.errors import InputError, require_whole
from fedcell.flower.client import MAX_PROFILE
from fedcell.learn.engine import LEARNING_RATE, checked_setting
from fedcell.learn.profile import REPORT_SAMPLES, normalised, private

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedcell.learn.torch_stack import Loss

    Batches = Iterable[tuple[Tensor, Tensor]]


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
        >>> from fedcell.flower import Report, profile_of
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Linear(2, 3)
        >>> batches = [(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]))]
        >>> report = Report(samples=4, profile=profile_of(model, batches))
        >>> [round(value, 2) for value in report.profile]  # label 0 is the most frequent
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
