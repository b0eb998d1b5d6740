"""Aggregators: what becomes of the models that arrive (weights, server optimizers, late models).

An aggregator is named by a short string, the same in Python, on the command line and in TOML::

mean                          FedAvg with equal weights: the mean is the next global model (the paper)
samples                       weighted by each device's number of samples (McMahan et al. 2017)
balanced                      weighted so that the round is most like the whole cell, by the devices' profiles
fedavgm:beta=0.9,rate=1       FedAvgM (Hsu, Qi, Brown 2019): steps towards the means, with momentum
fedadam:rate=0.01             FedAdam (Reddi et al. 2021): steps scaled weight by weight
ema:beta=0.9                  as mean, but an exponential moving average of the global models is evaluated and kept

With x the global model, m the mean of the round's models and d = m - x:

    fedavgm    v = beta v + d,    x = x + rate v
    fedadam    u = beta1 u + (1 - beta1) d,    v = beta2 v + (1 - beta2) d^2,    x = x + rate u / (sqrt(v) + tau)
    ema        x = m,    a = beta a + (1 - beta) x,    evaluated after r rounds: a / (1 - beta^r)

A server optimizer takes the weights of its mean as ``weights=samples`` or ``weights=balanced``. With ``late=0.5`` in
any of them, a model that arrives after its round counts half in the next round's mean; without, it is dropped. A late
device goes on with its share of the band while the next round runs, which has only the rest of it; its model is used if
it has arrived by the end of that round, and is dropped otherwise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from fedcell import settings
from fedcell.errors import InputError, require_number
from fedcell.learn.engine import Updates
from fedcell.types import Floats, Indices, Vector

if TYPE_CHECKING:
    from fedcell.world import Conditions

Weights = Literal["mean", "samples", "balanced"]


@dataclass(frozen=True, eq=False)
class LateModels:
    """Models under way when their round ended.

    Attributes:
        devices: (n,) whose they are.
        models: (n, P) float32.
        after_s: (n,) when they arrive, in seconds after the end of their round.
        shares: (n,) the part of the band that each goes on using.
    """

    devices: Indices
    models: NDArray[np.float32]
    after_s: Floats
    shares: Floats

    @classmethod
    def empty(cls) -> "LateModels":
        """Nothing is under way."""
        return cls(np.empty(0, np.int64), np.empty((0, 0), np.float32), np.empty(0), np.empty(0))

    @property
    def band_left(self) -> float:
        """The part of the band that the next round has."""
        return 1.0 - float(self.shares.sum())

    def arrived(self, round_s: float) -> "LateModels":
        """Those that arrive within a round of so many seconds."""
        there = self.after_s <= round_s
        return LateModels(self.devices[there], self.models[there], self.after_s[there], self.shares[there])

    def with_remaining_band(self, conditions: "Conditions") -> "Conditions":
        """The conditions of a round that has only the rest of the band."""
        if self.shares.size == 0:
            return conditions
        upload_s, believed_s = conditions.upload_s / self.band_left, conditions.believed_upload_s / self.band_left
        return replace(conditions, upload_s=upload_s, believed_upload_s=believed_s)


@dataclass(frozen=True, eq=False)
class AggregatorState:
    """What an aggregator keeps from round to round.

    Attributes:
        vectors: (num_state_vectors, P) float32, of the server optimizer.
        rounds: in how many rounds there was a mean of models.
        late: models that were under way when the last round ended.
    """

    vectors: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    rounds: int = 0
    late: LateModels = field(default_factory=LateModels.empty)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Vectors and late models as arrays by name, to be saved beside ``rounds``; from_arrays reads them."""
        names = ("devices", "models", "after_s", "shares")
        return {"memory": self.vectors} | {f"late_{name}": getattr(self.late, name) for name in names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], rounds: int) -> "AggregatorState":
        """The inverse of to_arrays."""
        late = LateModels(*(arrays[f"late_{name}"] for name in ("devices", "models", "after_s", "shares")))
        return cls(arrays["memory"].astype(np.float32, copy=False), rounds, late)


class Aggregator:
    """What the server makes of the models that arrive; the classes below are all there are.

    Attributes:
        name: in specs.
        num_state_vectors: how many vectors of the model's size it keeps from round to round.
        weights: of the models in their mean.
        late: the weight, from 0 to 1, of a model that arrives after its round in the next one's mean; 0: it is dropped.
    """

    name: ClassVar[str]
    num_state_vectors: ClassVar[int] = 0
    weights: Weights = "mean"
    late: float = 0.0

    def __post_init__(self) -> None:
        require_number("late", self.late)
        if not 0.0 <= self.late <= 1.0:
            raise InputError(f"late of the aggregator is {self.late!r}; give a number from 0 to 1")

    def with_momentum(self, beta: float) -> "Aggregator":
        """Return it with momentum ``beta`` of the server, unless it has a server optimizer already.

        Example:
            >>> from fedcell.learn.aggregator import parse_aggregator
            >>> parse_aggregator("balanced").with_momentum(0.5)
            FedAvgM(beta=0.5, rate=1.0, weights='balanced', late=0.0)
        """
        return self if beta == 0.0 or self.num_state_vectors else FedAvgM(beta, 1.0, self.weights, self.late)

    def initial(self, parameters: int) -> AggregatorState:
        """The state before the first round, of a model with so many weights."""
        return AggregatorState(np.zeros((self.num_state_vectors, parameters), np.float32))

    def model_weights(self, samples: NDArray[Any], balanced: Callable[[], Floats | None]) -> Floats | None:
        """Weights of models in their mean, up to a common factor.

        Args:
            samples: (n,) the number of samples of the devices whose models have arrived.
            balanced: returns the weights by their profiles, None if these are not known; called only if they are used.

        Returns:
            (n,) the weights; None if all are equal.
        """
        if self.weights == "samples":
            return np.asarray(samples, np.float64)
        return balanced() if self.weights == "balanced" and len(samples) else None

    def mean(
        self, updates: Updates, devices: Indices, weights: Floats | None, arrived: LateModels, samples: NDArray[Any]
    ) -> tuple[Vector | None, Indices, Floats | None]:
        """The mean of the models of a round, with the late ones of the round before.

        Args:
            updates: the models of this round's devices.
            devices: (n,) these devices.
            weights: (n,) as from model_weights.
            arrived: late models that have arrived in this round.
            samples: (M,) the number of samples of every device of the cell.

        Returns:
            The mean (P,), None if there are no models; the devices whose models are in it; and their weights.
        """
        mean = updates.mean(weights) if devices.size else None
        if arrived.devices.size == 0:
            return mean, devices, weights
        each: Floats = np.ones(devices.size) if weights is None else weights
        usual = float(each.mean()) if devices.size else 1.0
        by_size = self.weights == "samples"
        later = self.late * (samples[arrived.devices] if by_size else np.full(arrived.devices.size, usual))
        both = weighted_mean(mean, float(each.sum()), arrived.models, later.astype(np.float64))
        return both, np.concatenate((devices, arrived.devices)), np.concatenate((each, later))

    def step(self, model: Vector, mean: Vector, state: AggregatorState) -> tuple[Vector, AggregatorState]:
        """Return the next global model (P,) and what is kept, given the global model and a round's mean."""
        model, vectors = self._optimize(model, mean, state.vectors)
        return model, replace(state, vectors=vectors, rounds=state.rounds + 1)

    def evaluated(self, model: Vector, state: AggregatorState) -> Vector:  # noqa: ARG002
        """Return the model (P,) that is evaluated and kept, given the global model."""
        return model

    def _optimize(
        self,
        model: Vector,  # noqa: ARG002
        mean: Vector,
        vectors: NDArray[np.float32],
    ) -> tuple[Vector, NDArray[np.float32]]:
        return mean, vectors


@dataclass(frozen=True)
class Mean(Aggregator):
    """The unweighted mean of the models is the next global model."""

    name = "mean"
    late: float = 0.0


@dataclass(frozen=True)
class Samples(Aggregator):
    """The mean weighted by each device's number of samples."""

    name = "samples"
    weights = "samples"
    late: float = 0.0


@dataclass(frozen=True)
class Balanced(Aggregator):
    """The mean weighted so that the round is most like the whole cell, by the devices' profiles."""

    name = "balanced"
    weights = "balanced"
    late: float = 0.0


@dataclass(frozen=True)
class FedAvgM(Aggregator):
    """Steps towards the means, with momentum ``beta`` from 0 to below 1 and the step size ``rate``."""

    name = "fedavgm"
    num_state_vectors = 1
    beta: float = 0.9
    rate: float = 1.0
    weights: Weights = "mean"
    late: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_beta("beta", self.beta)
        require_number("rate", self.rate, above=0)

    @override
    def _optimize(
        self, model: Vector, mean: Vector, vectors: NDArray[np.float32]
    ) -> tuple[Vector, NDArray[np.float32]]:
        velocity = np.float32(self.beta) * vectors[0] + (mean - model)
        return model + np.float32(self.rate) * velocity, velocity[np.newaxis]


@dataclass(frozen=True)
class FedAdam(Aggregator):
    """Steps scaled weight by weight; ``tau`` bounds them where updates are small."""

    name = "fedadam"
    num_state_vectors = 2
    rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    weights: Weights = "mean"
    late: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_beta("beta1", self.beta1)
        _require_beta("beta2", self.beta2)
        require_number("rate", self.rate, above=0)
        require_number("tau", self.tau, above=0)

    @override
    def _optimize(
        self, model: Vector, mean: Vector, vectors: NDArray[np.float32]
    ) -> tuple[Vector, NDArray[np.float32]]:
        step = mean - model
        first = np.float32(self.beta1) * vectors[0] + np.float32(1.0 - self.beta1) * step
        second = np.float32(self.beta2) * vectors[1] + np.float32(1.0 - self.beta2) * step * step
        change = np.float32(self.rate) * first / (np.sqrt(second) + np.float32(self.tau))
        return model + change, np.stack([first, second])


@dataclass(frozen=True)
class Ema(Aggregator):
    """Training goes on from the mean; a moving average is evaluated, in which each model counts ``beta`` the next."""

    name = "ema"
    num_state_vectors = 1
    beta: float = 0.9
    weights: Weights = "mean"
    late: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_beta("beta", self.beta)

    @override
    def evaluated(self, model: Vector, state: AggregatorState) -> Vector:
        if state.rounds == 0:
            return model
        average: Vector = state.vectors[0] / np.float32(1.0 - self.beta**state.rounds)
        return average

    @override
    def _optimize(
        self, model: Vector, mean: Vector, vectors: NDArray[np.float32]
    ) -> tuple[Vector, NDArray[np.float32]]:
        return mean, np.float32(self.beta) * vectors + np.float32(1.0 - self.beta) * mean


AGGREGATORS = settings.Registry[Aggregator](
    "aggregator",
    {kind.name: f"{kind.__module__}:{kind.__name__}" for kind in (Mean, Samples, Balanced, FedAvgM, FedAdam, Ema)},
)
"""By name. A new one is a class and its place here."""


def parse_aggregator(text: str | Aggregator) -> Aggregator:
    """Return the aggregator of a line such as ``fedavgm:beta=0.9``.

    Args:
        text: ``mean``, ``samples``, ``balanced``, ``fedavgm:beta=...,rate=...``, ``fedadam:rate=...,beta1=...,
            beta2=...,tau=...`` or ``ema:beta=...``, all with ``late=...`` and the last three with ``weights=...``; or
            an aggregator, which is returned.

    Example:
        >>> import numpy as np
        >>> from fedcell.learn.aggregator import parse_aggregator
        >>> aggregator = parse_aggregator("fedavgm:beta=0.5")
        >>> model, state = aggregator.step(np.zeros(1, np.float32), np.ones(1, np.float32), aggregator.initial(1))
        >>> model, state = aggregator.step(model, np.full(1, 2.0, np.float32), state)
        >>> model.tolist()  # 1, and then half of that step and one more
        [2.5]
    """
    return text if isinstance(text, Aggregator) else AGGREGATORS.parse(text)


def format_aggregator(aggregator: Aggregator) -> str:
    """Return the line that parse_aggregator turns into this aggregator again."""
    return AGGREGATORS.format(aggregator)


_SERVERS = {"mean": "mean", "momentum": "fedavgm", "adam": "fedadam", "average": "ema"}


@dataclass(frozen=True)
class Spelling02:
    """An aggregator as version 0.2 spelled it, in three fields of a spec.

    Attributes:
        averaging: ``plain``, ``samples`` or ``balanced``; was ``task.averaging``.
        server: ``mean``, ``momentum``, ``adam`` or ``average``, with settings; was ``task.server``.
        late_weight: from 0 to 1; was a field of the spec itself.

    Example:
        >>> from fedcell.learn.aggregator import Spelling02, format_aggregator, parse_aggregator
        >>> format_aggregator(Spelling02("balanced", "adam:rate=0.02", 0.5).aggregator())
        'fedadam:rate=0.02,weights=balanced,late=0.5'
        >>> Spelling02.of(parse_aggregator("samples:late=0.5"))
        Spelling02(averaging='samples', server='mean', late_weight=0.5)
    """

    averaging: str = "plain"
    server: str = "mean"
    late_weight: float = 0.0

    @classmethod
    def of(cls, aggregator: Aggregator) -> "Spelling02":
        """How version 0.2 would spell this aggregator."""
        averaging = "plain" if aggregator.weights == "mean" else aggregator.weights
        name = next((old for old, new in _SERVERS.items() if new == aggregator.name), "mean")
        bare = aggregator if name == "mean" else replace(aggregator, late=0.0, weights="mean")  # type: ignore[type-var]
        return cls(averaging, "mean" if name == "mean" else settings.write(name, bare), aggregator.late)

    def aggregator(self) -> Aggregator:
        """The aggregator that these fields mean."""
        name, text = settings.split("server", self.server)
        kind = AGGREGATORS[settings.choose("server", name, _SERVERS)]
        if self.averaging not in ("plain", "samples", "balanced"):
            raise InputError(f"averaging is {self.averaging!r}; give 'plain', 'samples' or 'balanced'")
        weights = "mean" if self.averaging == "plain" else self.averaging
        if kind is Mean:
            settings.build(kind, "server", name, text, given={"late": 0.0})
            return settings.build(AGGREGATORS[weights], "aggregator", weights, "", given={"late": self.late_weight})
        return settings.build(kind, "server", name, text, given={"weights": weights, "late": self.late_weight})


def weighted_mean(mean: Vector | None, total: float, models: NDArray[np.float32], weights: Floats) -> Vector:
    """Return the mean of a round's models, (P,) with a total weight, and of late ones, (n, P) with weights (n,)."""
    own = 0.0 if mean is None else total * mean.astype(np.float64)
    both = own + weights @ models.astype(np.float64)
    return np.asarray(both / ((0.0 if mean is None else total) + weights.sum()), np.float32)


def _require_beta(name: str, value: float) -> None:
    if not 0.0 <= value < 1.0:
        raise InputError(f"{name} of the aggregator is {value!r}; give a number from 0 to less than 1")
