"""The interface of training engines: jobs of local training in, updates out, and evaluations of models.

A model is one flat float32 vector, in the order of PyTorch's ``state_dict``: for each layer its weights (out, in) by
rows, then its biases. A job is an initial model and the samples to visit, in order. The jobs of one call may start from
different models and visit different numbers of samples, so one call can train the clients of a round or the clients of
many runs; a job's result does not depend on the other jobs of the call (on a GPU: but for rounding).

Trained models stay where they were trained. What comes back are `Updates`, which a loop asks for the little it needs:
the mean of the models, each client's training loss, the size of its update, its output layer's biases.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcell.errors import InputError
from fedcell.quantisation import WEIGHT_BITS, checked_bits, sums_of
from fedcell.types import Vector

if TYPE_CHECKING:
    from fedcell.learn.data import Dataset

LEARNING_RATE = 0.01
BATCH_SIZE = 10
HIDDEN = (64,)


@dataclass(frozen=True)
class Job:
    """One client's local training, or samples on which a model's loss is asked for.

    Attributes:
        start: (P,), the initial model.
        order: (epochs, D), indices into the training set. Row e is the visiting order of epoch e; its batches are
            consecutive runs of ``batch_size``, the last of which may be short.
        lr_scale: factor of the engine's learning rate, for schedules over rounds.
        key: integers that name the job's own random draws (dropout), such as seed, round and device.
        rms: whether the root mean square of the samples' losses is wanted.
        bits: of a weight of the upload, from 2 to 16: the model that comes back is the start and the update as
            `fedcell.quantisation` rounds it, with ``key``. 32 for the weights as they are.
    """

    start: Vector
    order: NDArray[np.int64]
    lr_scale: float = 1.0
    key: tuple[int, ...] = (0,)
    rms: bool = False
    bits: int = WEIGHT_BITS


class Updates(Protocol):
    """The trained models of J jobs, kept in the memory where they were trained."""

    @property
    def losses(self) -> NDArray[np.float64]:
        """(J,) the mean loss of the samples that a job visited, each before the step it was part of."""

    @property
    def rms(self) -> NDArray[np.float64]:
        """(J,) the root mean square of the same losses; NaN for a job that does not ask for it."""

    def take(self, which: slice | NDArray[np.int64]) -> "Updates":
        """Return the updates of some of the jobs."""

    def mean(self, weights: NDArray[np.float64] | None = None) -> Vector:
        """Return the mean model (P,); ``weights`` (J,) are those of the jobs, up to a common factor."""

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean lengths (J,) of the updates: of each model minus its start."""

    def output_bias(self, count: int) -> NDArray[np.float32]:
        """Return the last ``count`` weights of each model (J, count), the biases of the output layer."""

    def sketch(self, count: int) -> NDArray[np.float64]:
        """Return a short vector (J, count) for each update, whose distances are about those of the updates."""

    def sums(self) -> NDArray[np.float64]:
        """Return the peaks, absolutes and squares (J, 3) of the updates as trained; see `fedcell.quantisation.noise`.

        All else is of what arrives: of the rounded updates, where jobs say ``bits``.
        """

    def models(self) -> NDArray[np.float32]:
        """Return all models (J, P), copied if they are on a device."""


@dataclass(frozen=True, eq=False)
class HostUpdates:
    """Updates in the memory of this process.

    Attributes:
        starts: J vectors (P,), the initial models.
        trained: (J, P).
        losses: (J,) mean training losses.
        rms: (J,) root mean squares of the samples' losses, NaN where they are not asked for.
        tensors: the number of weights of each array that a model consists of; () if it is one.
        found: (J, 3) the sums of updates as trained, NaN where ``trained`` has them as trained.

    Example:
        >>> import numpy as np
        >>> from fedcell.learn.engine import HostUpdates
        >>> start = np.zeros(2, np.float32)
        >>> found = HostUpdates([start, start], np.array([[3, 4], [1, 0]], np.float32), np.ones(2))
        >>> found.mean().tolist(), found.norms().tolist(), found.output_bias(1).tolist()
        ([2.0, 2.0], [5.0, 1.0], [[4.0], [0.0]])
    """

    starts: Sequence[Vector]
    trained: NDArray[np.float32]
    losses: NDArray[np.float64]
    rms: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    tensors: tuple[int, ...] = ()
    found: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if self.rms.size == 0:
            object.__setattr__(self, "rms", np.full(len(self.trained), np.nan))
        if self.found.size == 0:
            object.__setattr__(self, "found", np.full((len(self.trained), 3), np.nan))

    def take(self, which: slice | NDArray[np.int64]) -> "HostUpdates":
        """Return the updates of some of the jobs."""
        numbers = range(len(self.starts))[which] if isinstance(which, slice) else which.tolist()
        starts = [self.starts[number] for number in numbers]
        arrays = self.trained[which], self.losses[which], self.rms[which]
        return HostUpdates(starts, *arrays, self.tensors, self.found[which])

    def mean(self, weights: NDArray[np.float64] | None = None) -> Vector:
        """Return the mean model (P,)."""
        if weights is None:  # as np.mean, less what that asks first
            mean: Vector = np.add.reduce(self.trained, axis=0) / np.float32(len(self.trained))
            return mean
        return np.average(self.trained, axis=0, weights=weights).astype(np.float32, copy=False)

    def norms(self) -> NDArray[np.float64]:
        """Return the Euclidean lengths (J,) of the updates."""
        pairs = zip(self.trained, self.starts, strict=True)
        return np.array([np.linalg.norm(model - start) for model, start in pairs], np.float64)

    def output_bias(self, count: int) -> NDArray[np.float32]:
        """Return the last ``count`` weights of each model (J, count)."""
        return self.trained[:, -count:]

    def sketch(self, count: int) -> NDArray[np.float64]:
        """Return a short vector (J, count) for each update."""
        from fedcell.learn.compression import sketched  # Numba, which Flower's clients do without

        order, signs = _short_plan(self.trained.shape[1], count)
        update, sketches = np.zeros(order.size, np.float32), np.empty((len(self.trained), count))
        for row, model, start in zip(sketches, self.trained, self.starts, strict=True):
            np.subtract(model, start, out=update[: model.size])
            sketched(update, order, signs, row)
        return sketches

    def sums(self) -> NDArray[np.float64]:
        """Return the peaks, absolutes and squares (J, 3) of the updates as trained."""
        for row in np.flatnonzero(np.isnan(self.found[:, 0])).tolist():
            self.found[row] = sums_of(self.trained[row] - self.starts[row], self.tensors)
        return self.found

    def models(self) -> NDArray[np.float32]:
        """Return all models (J, P)."""
        return self.trained


@dataclass(frozen=True)
class Evaluation:
    """The performance of K models on the test set.

    Attributes:
        accuracy: (K,), the fraction of test samples whose largest logit is the label's.
        loss: (K,), the mean loss over the test samples (cross-entropy in nats, unless the engine was given another).
    """

    accuracy: NDArray[np.float64]
    loss: NDArray[np.float64]


class Engine(Protocol):
    """Trains and evaluates models of one shape on one data set."""

    @property
    def parameters(self) -> int:
        """P, the length of a model vector."""

    @property
    def tensors(self) -> tuple[int, ...]:
        """The number of weights of each of the arrays that a model vector consists of, in its order."""

    def initial(self, rng: np.random.Generator) -> Vector:
        """Return an initial model (P,), drawn from ``rng`` as PyTorch draws it: see ``linear_start``."""

    def update(self, jobs: Sequence[Job]) -> Updates:
        """Train the J jobs by stochastic gradient descent and return their updates."""

    def train(self, jobs: Sequence[Job]) -> NDArray[np.float32]:
        """Return the models (J, P) themselves, one for each of the J jobs: ``update(jobs).models()``."""

    def losses(self, jobs: Sequence[Job]) -> NDArray[np.float64]:
        """Return the mean loss (J,) of each job's start on the training samples of its order; nothing is trained."""

    def evaluate(self, models: NDArray[np.float32]) -> Evaluation:
        """Return accuracy and loss of the models (K, P) on the test set."""


@lru_cache(maxsize=4)
def sketch_plan(parameters: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return how an update is sketched: the order of its entries, padded, and their signs.

    Each entry of the sketch is the sum of a random part of the update's entries with random signs, so the squared
    distance of two sketches is that of the updates on average, with a relative spread of about sqrt(2 / count).

    Args:
        parameters: P, the length of an update.
        count: the length of its sketch.

    Returns:
        Two arrays of the same length, the least multiple of ``count`` that is at least P.
    """
    rng = np.random.default_rng(parameters)
    padded = -(-parameters // count) * count
    return rng.permutation(padded), rng.choice([-1.0, 1.0], padded)


@lru_cache(maxsize=4)
def _short_plan(parameters: int, count: int) -> tuple[NDArray[np.int32], Vector]:
    """The same in half of the memory: it is read again for each update."""
    order, signs = sketch_plan(parameters, count)
    return order.astype(np.int32), signs.astype(np.float32)


def cross_entropy(logits: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean of -log softmax(logits)[label].

    Args:
        logits: (n, classes).
        labels: (n,) integers from 0 to classes - 1.

    Returns:
        The mean cross-entropy in nats.

    Example:
        >>> from fedcell.learn.engine import cross_entropy
        >>> round(cross_entropy([[0.0, 0.0]], [1]), 4)  # two equally likely classes: log 2
        0.6931
    """
    z = np.asarray(logits, dtype=np.float64)
    z = z - z.max(axis=1, keepdims=True)
    chosen = np.take_along_axis(z, np.asarray(labels)[:, None], axis=1)[:, 0]
    return float(np.mean(np.log(np.exp(z).sum(axis=1)) - chosen))


def linear_start(rng: np.random.Generator, weights: tuple[int, ...], biases: int) -> Vector:
    """Draw a layer's weights (out, in, ...) and then its biases from U(-k, k), k = 1/sqrt(fan in), as one vector.

    This is PyTorch's default for linear and convolution layers; the fan in is the product of all but the first size.

    Args:
        rng: random generator.
        weights: shape of the weights.
        biases: number of biases.

    Returns:
        (weights + biases,) float32.
    """
    bound = 1.0 / np.sqrt(prod(weights[1:]))
    return rng.uniform(-bound, bound, prod(weights) + biases).astype(np.float32)


def checked_dataset(data: "Dataset") -> "Dataset":
    """Return the data, or raise if an engine cannot use it: the kernels use it as indices without checks."""
    for name, x, y in (("train", data.train_x, data.train_y), ("test", data.test_x, data.test_y)):
        if x.dtype not in (np.uint8, np.float32):
            raise InputError(f"{name}_x has type {x.dtype}; give uint8 pixels or float32 inputs")
        if len(x) == 0 or y.shape != (len(x),):
            raise InputError(f"{name}_x has {len(x)} samples and {name}_y the shape {y.shape}; give one label each")
        if x.shape[1:] != data.train_x.shape[1:] or x[0].size == 0:
            raise InputError(f"{name}_x has samples of shape {x.shape[1:]}; give all samples one nonempty shape")
        if y.min() < 0 or y.max() >= data.classes:
            raise InputError(f"{name}_y goes from {y.min()} to {y.max()}; give labels from 0 to {data.classes - 1}")
    if not (np.isfinite(data.shift) and np.isfinite(data.scale) and data.scale > 0):
        raise InputError(f"shift is {data.shift} and scale {data.scale}; give finite numbers and a scale above 0")
    return data


def checked_setting(learning_rate: float, batch_size: int) -> None:
    """Raise an InputError unless the learning rate and the batch size are positive."""
    if not (np.isfinite(learning_rate) and learning_rate > 0):
        raise InputError(f"learning_rate is {learning_rate}; give a number above 0")
    if not is_count(batch_size):
        raise InputError(f"batch_size is {batch_size!r}; give an integer of at least 1")


def is_count(value: Any) -> bool:
    """Whether the value is an integer of at least 1."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


def checked_jobs(jobs: Sequence[Job], parameters: int, samples: int) -> list[Job]:
    """Return the jobs with contiguous arrays of the right types, or raise if one cannot be trained."""
    starts = checked_starts(jobs, parameters)
    return [_checked_job(job, starts[id(job.start)], f"job {number}", samples) for number, job in enumerate(jobs)]


def checked_starts(jobs: Sequence[Job], parameters: int) -> dict[int, Vector]:
    """Return the different initial models, by ``id(job.start)``: one that many jobs share is checked once."""
    starts = dict[int, Vector]()
    for number, job in enumerate(jobs):
        if id(job.start) not in starts:
            starts[id(job.start)] = _checked_start(job.start, f"job {number}", parameters)
    return starts


def _checked_start(given: Vector, name: str, parameters: int) -> Vector:
    start = np.asarray(given)
    if start.shape != (parameters,):
        raise InputError(f"{name} starts from a vector of shape {start.shape}; give one of shape ({parameters},)")
    if not np.isfinite(start).all():
        raise InputError(f"{name} starts from a model with NaN or infinity in it; lower the learning rate")
    return np.require(start, np.float32, ["C", "W"])  # Numba would compile the kernel again for a read-only array


def _checked_job(job: Job, start: Vector, name: str, samples: int) -> Job:
    order = np.asarray(job.order)
    if order.ndim != 2 or order.size == 0 or order.dtype.kind not in "iu":
        raise InputError(
            f"{name} has an order of shape {order.shape} and type {order.dtype}; give indices (epochs, samples)"
        )
    order = np.require(order, np.int64, ["C", "W"])
    if order.view(np.uint64).max() >= samples:  # a negative number is a large one there
        raise InputError(f"{name} visits samples {order.min()} to {order.max()}; give indices from 0 to {samples - 1}")
    if not (np.isfinite(job.lr_scale) and job.lr_scale > 0):
        raise InputError(f"{name} has the learning-rate factor {job.lr_scale}; give a number above 0")
    if job.bits != WEIGHT_BITS:
        checked_bits(f"{name} uploads", np.array([job.bits], np.float64))
    return Job(start, order, job.lr_scale, job.key, job.rms, job.bits)


def checked_models(models: NDArray[np.float32], parameters: int) -> NDArray[np.float32]:
    """Return the models as a contiguous float32 array (K, P)."""
    array = np.ascontiguousarray(models, np.float32)
    if array.ndim != 2 or array.shape[1] != parameters:
        raise InputError(f"models has shape {array.shape}; give (models, {parameters})")
    return array
