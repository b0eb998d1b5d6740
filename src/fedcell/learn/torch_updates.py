"""Trained models that stay on a GPU: what a loop asks of them is computed there, and only that is copied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcell.learn.engine import Job, sketch_plan
from fedcell.learn.torch_stack import exact
from fedcell.types import Vector


@dataclass(frozen=True, eq=False)
class DeviceUpdates:
    """Updates on a GPU.

    Attributes:
        starts: (S, P) the different initial models.
        which: (J,) the row of each job's among them.
        trained: (J, P).
        losses: (J,) mean training losses.
        rms: (J,) root mean squares of the samples' losses.
    """

    starts: Tensor
    which: NDArray[np.int64]
    trained: Tensor
    losses: NDArray[np.float64]
    rms: NDArray[np.float64]

    def part(self, which: slice | NDArray[np.int64]) -> "DeviceUpdates":
        """Those of some of the jobs."""
        some = which if isinstance(which, slice) else torch.tensor(which, device=self.trained.device)
        return DeviceUpdates(self.starts, self.which[which], self.trained[some], self.losses[which], self.rms[which])

    def mean(self, weights: NDArray[np.float64] | None = None) -> Vector:
        """The mean model (P,), one copy from the device."""
        shares = np.ones(len(self.trained)) if weights is None else np.asarray(weights, np.float64)
        row = torch.tensor(shares / shares.sum(), dtype=torch.float32, device=self.trained.device)
        with exact(tf32=False):
            return cast(Vector, (row @ self.trained).cpu().numpy())

    def norms(self) -> NDArray[np.float64]:
        """The Euclidean lengths (J,) of the updates."""
        pairs = zip(self.trained, self.which, strict=True)
        lengths = [torch.linalg.vector_norm(model - self.starts[row]) for model, row in pairs]
        return torch.stack(lengths).double().cpu().numpy() if lengths else np.empty(0)

    def tail(self, count: int) -> NDArray[np.float32]:
        """The last ``count`` weights of each model, (J, count)."""
        return cast(NDArray[np.float32], self.trained[:, -count:].cpu().numpy())

    def sketch(self, count: int) -> NDArray[np.float64]:
        """A short vector (J, count) for each update."""
        order, signs = sketch_plan(self.trained.shape[1], count)
        device, more = self.trained.device, len(order) - self.trained.shape[1]
        update = functional.pad(self.trained - self.starts[torch.tensor(self.which, device=device)], (0, more))
        mixed = update[:, torch.tensor(order, device=device)].double() * torch.tensor(signs, device=device)
        return cast(NDArray[np.float64], mixed.view(len(update), count, -1).sum(dim=2).cpu().numpy())

    def models(self) -> NDArray[np.float32]:
        """All models (J, P)."""
        return cast(NDArray[np.float32], self.trained.cpu().numpy())


def starts_of(
    jobs: Sequence[Job], starts: Mapping[int, Vector], parameters: int, device: torch.device
) -> tuple[Tensor, NDArray[np.int64]]:
    """Return the different initial models (S, P) on the device, and which of them a job has (J,).

    Args:
        jobs: J of them.
        starts: their initial models, by ``id(job.start)``.
        parameters: P.
        device: where to.
    """
    rows = {number: row for row, number in enumerate(starts)}
    which = np.zeros(len(jobs), np.int64)
    if len(starts) > 1:
        which[:] = [rows[id(job.start)] for job in jobs]
    held = torch.empty((len(starts), parameters), pin_memory=device.type == "cuda")
    for row, start in zip(held.numpy(), starts.values(), strict=True):
        row[:] = start
    return held.to(device, non_blocking=True), which
