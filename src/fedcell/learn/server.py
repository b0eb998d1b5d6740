"""What the server does with the mean of a round's models.

A server is named by a short string, the same in Python, on the command line and in TOML::

mean                          the mean is the next global model (the paper)
momentum:beta=0.9,rate=1      FedAvgM (Hsu, Qi, Brown 2019): steps towards the means, with momentum
adam:rate=0.01                FedAdam (Reddi et al. 2021): steps scaled weight by weight
average:beta=0.9              training as with mean, but what is evaluated and kept is a running average of the models

With x the global model, m the mean of the round's models and d = m - x:

    momentum    v = beta v + d,    x = x + rate v
    adam        u = beta1 u + (1 - beta1) d,    v = beta2 v + (1 - beta2) d^2,    x = x + rate u / (sqrt(v) + tau)
    average     x = m,    a = beta a + (1 - beta) x,    shown after r rounds: a / (1 - beta^r)
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcell import settings
from fedcell.errors import InputError, require_number
from fedcell.types import Vector

Memory = NDArray[np.float32]
"""(slots, P) what a server keeps from round to round."""


@dataclass(frozen=True)
class Plain:
    """The mean of the models is the next global model."""

    name: ClassVar[str] = "mean"
    slots: ClassVar[int] = 0

    def step(self, model: Vector, mean: Vector, memory: Memory) -> tuple[Vector, Memory]:  # noqa: ARG002
        """Return the next global model (P,), and what is kept."""
        return mean, memory

    def shown(self, model: Vector, memory: Memory, rounds: int) -> Vector:  # noqa: ARG002
        """Return the model (P,) that is evaluated after so many rounds with a mean."""
        return model


@dataclass(frozen=True)
class Momentum(Plain):
    """Steps towards the means, with momentum ``beta`` from 0 to below 1 and the step size ``rate``."""

    name: ClassVar[str] = "momentum"
    slots: ClassVar[int] = 1
    beta: float = 0.9
    rate: float = 1.0

    def __post_init__(self) -> None:
        _require_beta("beta", self.beta)
        require_number("rate", self.rate, above=0)

    def step(self, model: Vector, mean: Vector, memory: Memory) -> tuple[Vector, Memory]:
        """Return the next global model (P,), and the velocity."""
        velocity = np.float32(self.beta) * memory[0] + (mean - model)
        return model + np.float32(self.rate) * velocity, velocity[np.newaxis]


@dataclass(frozen=True)
class Adam(Plain):
    """Steps scaled weight by weight; ``tau`` bounds them where updates are small."""

    name: ClassVar[str] = "adam"
    slots: ClassVar[int] = 2
    rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _require_beta("beta1", self.beta1)
        _require_beta("beta2", self.beta2)
        require_number("rate", self.rate, above=0)
        require_number("tau", self.tau, above=0)

    def step(self, model: Vector, mean: Vector, memory: Memory) -> tuple[Vector, Memory]:
        """Return the next global model (P,), and both moments."""
        step = mean - model
        first = np.float32(self.beta1) * memory[0] + np.float32(1.0 - self.beta1) * step
        second = np.float32(self.beta2) * memory[1] + np.float32(1.0 - self.beta2) * step * step
        change = np.float32(self.rate) * first / (np.sqrt(second) + np.float32(self.tau))
        return model + change, np.stack([first, second])


@dataclass(frozen=True)
class Average(Plain):
    """Training goes on from the mean; what is shown is a running average, each model counting ``beta`` the next."""

    name: ClassVar[str] = "average"
    slots: ClassVar[int] = 1
    beta: float = 0.9

    def __post_init__(self) -> None:
        _require_beta("beta", self.beta)

    def step(self, model: Vector, mean: Vector, memory: Memory) -> tuple[Vector, Memory]:  # noqa: ARG002
        """Return the mean, and the average so far."""
        return mean, np.float32(self.beta) * memory + np.float32(1.0 - self.beta) * mean

    def shown(self, model: Vector, memory: Memory, rounds: int) -> Vector:
        """Return the average (P,) after so many rounds with a mean; the model itself before the first."""
        if rounds == 0:
            return model
        average: Vector = memory[0] / np.float32(1.0 - self.beta**rounds)
        return average


Server = Plain
"""Any of them."""
SERVERS: dict[str, type[Server]] = {kind.name: kind for kind in (Plain, Momentum, Adam, Average)}


def parse_server(text: str) -> Server:
    """Return the server of a line such as ``momentum:beta=0.9``.

    Args:
        text: ``mean``, ``momentum:beta=...,rate=...``, ``adam:rate=...,beta1=...,beta2=...,tau=...`` or
            ``average:beta=...``.

    Example:
        >>> import numpy as np
        >>> from fedcell.learn.server import parse_server
        >>> server = parse_server("momentum:beta=0.5")
        >>> model, memory = server.step(np.zeros(1, np.float32), np.ones(1, np.float32), np.zeros((1, 1), np.float32))
        >>> model, memory = server.step(model, np.full(1, 2.0, np.float32), memory)
        >>> model.tolist()  # 1, and then half of that step and one more
        [2.5]
    """
    return settings.parse("server", text, SERVERS)


def _require_beta(name: str, value: float) -> None:
    if not 0.0 <= value < 1.0:
        raise InputError(f"{name} of the server is {value!r}; give a number from 0 to less than 1")
