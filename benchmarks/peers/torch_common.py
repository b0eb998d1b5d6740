"""The PyTorch model and its local training, shared by the peers that train with PyTorch."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from benchmarks.peers.common import BATCH, LEARNING_RATE
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def make_model(weights: Sequence[NDArray[Any]]) -> nn.Sequential:
    """784-64-10 with ReLU."""
    model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    set_weights(model, weights)
    return model


def set_weights(model: nn.Module, weights: Sequence[NDArray[Any]]) -> None:
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights, strict=True):
            parameter.copy_(torch.as_tensor(np.asarray(value)))


def get_weights(model: nn.Module) -> list[NDArray[Any]]:
    return [parameter.detach().numpy().copy() for parameter in model.parameters()]


def batches(x: Tensor, y: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(x, size), torch.split(y, size), strict=True)


def train(model: nn.Module, x: Tensor, y: Tensor, order: Tensor) -> None:
    """One epoch of SGD, batch by batch; the steps by hand, a fifth faster than torch.optim.SGD."""
    parameters = list(model.parameters())
    for batch_x, batch_y in batches(x[order], y[order], BATCH):
        gradients = torch.autograd.grad(cross_entropy(model(batch_x), batch_y), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=LEARNING_RATE)


@torch.inference_mode()
def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Accuracy and loss."""
    logits = model(x)
    return float((logits.argmax(1) == y).float().mean()), float(cross_entropy(logits, y))
