"""The fast engine: multi-layer perceptrons, trained by a compiled kernel that skips zero inputs.

docs/engine.md says how fast it is, what bounds its speed, and what else was tried.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import prod
from typing import Any, TypeVar

import numpy as np
from llvmlite import binding
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.learn import mlp_kernel as kernel
from fedcell.learn.compression import round_job
from fedcell.learn.data import Dataset
from fedcell.learn.engine import (
    BATCH_SIZE,
    HIDDEN,
    LEARNING_RATE,
    Evaluation,
    HostUpdates,
    Job,
    checked_dataset,
    checked_jobs,
    checked_models,
    checked_setting,
    is_count,
    linear_start,
)
from fedcell.learn.simd import STEP
from fedcell.runtime import cores, on_threads
from fedcell.types import Vector

PIECE = 1250  # test samples in one task of an evaluation; fixed, so that sums do not depend on the number of threads
ROWS = 64  # test samples that go through the network together

T = TypeVar("T")
R = TypeVar("R")


class MlpEngine:
    """Federated local training of an MLP (inputs -> hidden ... -> classes, ReLU between layers) on the CPU.

    One step is w = w - learning_rate dL/dw, with L the mean over the batch of -log softmax(logits)[label].

    A job's result is the same bit for bit whatever else is trained in the call, and on any number of threads.

    Args:
        dataset: its arrays are read in place; the engine adds one bit for each input and 4 bytes for each sample.
        hidden: units of each hidden layer; () is softmax regression.
        learning_rate: step size of SGD.
        batch_size: samples per step.
        threads: number of jobs that run in parallel; None is one per core available to the process.
        momentum: must be 0; the torch engine supports other values.
        weight_decay: must be 0; the torch engine supports other values.

    Example:
        >>> import numpy as np
        >>> from fedcell.learn.data import load_dataset
        >>> from fedcell.learn.engine import Job
        >>> from fedcell.learn.mlp import MlpEngine
        >>> engine = MlpEngine(load_dataset("mnist"))
        >>> start = engine.initial(np.random.default_rng(0))
        >>> models = engine.train([Job(start, np.arange(1000)[np.newaxis])])  # one epoch over the first 1,000 samples
        >>> models.shape, bool(engine.evaluate(models).accuracy[0] > 0.5)
        ((1, 50890), True)
    """

    def __init__(
        self,
        dataset: Dataset,
        hidden: Sequence[int] = HIDDEN,
        learning_rate: float = LEARNING_RATE,
        batch_size: int = BATCH_SIZE,
        threads: int | None = None,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        checked_setting(learning_rate, batch_size)
        if momentum != 0 or weight_decay != 0:
            raise InputError(
                f"momentum is {momentum} and weight_decay {weight_decay}; the mlp engine is plain SGD: "
                "leave both at 0 or use the torch engine"
            )
        if not all(is_count(units) for units in hidden):
            raise InputError(f"hidden is {tuple(hidden)}; give the number of units of each hidden layer, 1 or more")
        if threads is not None and not is_count(threads):
            raise InputError(f"threads is {threads!r}; give an integer of at least 1, or None for all cores")
        data = checked_dataset(dataset)
        self._threads = int(threads or cores())
        self._train_set, self._train_y = _samples(data.train_x, data), np.ascontiguousarray(data.train_y, np.int64)
        self._test_set, self._test_y = _samples(data.test_x, data), np.ascontiguousarray(data.test_y, np.int64)
        self._sizes = (prod(data.train_x.shape[1:]), *(int(units) for units in hidden), int(data.classes))
        self._lanes = _lanes(self._sizes[1])
        self._layers, self._work_size = _layout(self._sizes, max(int(batch_size), ROWS), STEP * len(self._lanes))
        self._ends = np.cumsum(self.tensors)
        self._idle: list[NDArray[np.float32]] = []
        center = float(data.shift) / float(data.scale)
        self._setting = (float(learning_rate), int(batch_size), center)

    @property
    def parameters(self) -> int:
        """P, the length of a model vector: 50,890 for 784-64-10."""
        return sum(self.tensors)

    @property
    def tensors(self) -> tuple[int, ...]:
        """The number of weights of each array: for each layer its weights, then its biases."""
        return tuple(size for n_in, n_out in self._pairs() for size in (n_in * n_out, n_out))

    def initial(self, rng: np.random.Generator) -> Vector:
        """Return an initial model (P,): a layer's weights and biases from U(-k, k), k = 1/sqrt(inputs of the layer)."""
        return np.concatenate([linear_start(rng, (n_out, n_in), n_out) for n_in, n_out in self._pairs()])

    def train(self, jobs: Sequence[Job]) -> NDArray[np.float32]:
        """Return the trained models (J, P), one for each of the J jobs."""
        return self.update(jobs).models()

    def update(self, jobs: Sequence[Job]) -> HostUpdates:
        """Train the J jobs and return their updates."""
        checked = checked_jobs(jobs, self.parameters, len(self._train_y))
        models = np.empty((len(checked), self.parameters), np.float32)
        losses, squares = np.empty((2, len(checked)))
        sums = np.full((len(checked), 3), np.nan)
        learning_rate, batch_size, center = self._setting

        def run(number: int) -> None:
            job = checked[number]
            setting = (learning_rate * job.lr_scale, batch_size, center)
            with self._workspace() as work:
                arrays = (self._train_set, self._train_y, self._layers, work)
                losses[number], squares[number] = kernel.train_mlp(
                    job.start, models[number], job.order, *arrays, setting, self._lanes, job.rms
                )
            round_job(job, models[number], self._ends, sums[number])

        longest_first = sorted(range(len(checked)), key=lambda number: -checked[number].order.size)
        self._spread(run, longest_first)
        return HostUpdates([job.start for job in checked], models, losses, np.sqrt(squares), self.tensors, sums)

    def losses(self, jobs: Sequence[Job]) -> NDArray[np.float64]:
        """Return the mean loss (J,) of each job's start on the training samples of its order."""
        checked = checked_jobs(jobs, self.parameters, len(self._train_y))
        setting = (self._setting[0], ROWS, self._setting[2])

        def run(job: Job) -> float:
            with self._workspace() as work:
                arrays = (self._train_set, self._train_y, self._layers, work)
                _, loss = kernel.evaluate(job.start, job.order.ravel(), *arrays, setting, self._lanes)
            return float(loss) / job.order.size

        return np.array(self._spread(run, checked), np.float64)

    def evaluate(self, models: NDArray[np.float32]) -> Evaluation:
        """Return accuracy and mean cross-entropy of the models (K, P) on the test set."""
        rows = checked_models(models, self.parameters)
        count = len(self._test_y)
        pieces = [np.arange(first, min(first + PIECE, count)) for first in range(0, count, PIECE)]
        setting = (self._setting[0], ROWS, self._setting[2])

        def run(task: tuple[Vector, NDArray[np.int64]]) -> tuple[int, float]:
            with self._workspace() as work:
                arrays = (self._test_set, self._test_y, self._layers, work)
                result: tuple[int, float] = kernel.evaluate(*task, *arrays, setting, self._lanes)
            return result

        tasks = [(model, piece) for model in rows for piece in pieces]
        sums = np.array(self._spread(run, tasks), np.float64).reshape(len(rows), len(pieces), 2).sum(axis=1)
        return Evaluation(accuracy=sums[:, 0] / count, loss=sums[:, 1] / count)

    def _pairs(self) -> list[tuple[int, int]]:
        return list(pairwise(self._sizes))

    @contextmanager
    def _workspace(self) -> Iterator[NDArray[np.float32]]:
        """Borrow a workspace; used ones are kept, since fresh pages cost more than laying a model out."""
        try:
            work = self._idle.pop()
        except IndexError:
            work = _aligned(self._work_size)
        yield work
        self._idle.append(work)

    def _spread(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Call the function for all items on the engine's threads; the kernels release the GIL."""
        tasks = list(items)
        workers = min(self._threads, len(tasks))
        if workers <= 1:
            return [function(task) for task in tasks]
        return on_threads(function, tasks, workers)


def _lanes(units: int) -> tuple[int, ...]:
    """A tuple whose length is the number of 16-float steps in a vector: as many as a pair of samples fits in registers.

    Twice 64 floats are 8 of AVX-512's 32 registers; twice 32 are 8 of AVX2's 16.
    """
    most = 4 if binding.get_host_cpu_features().get("avx512f", False) else 2
    return (0,) * min(most, 1 if units <= STEP else 2 if units <= 2 * STEP else 4)


def _layout(sizes: Sequence[int], rows: int, width: int) -> tuple[NDArray[np.int64], int]:
    """Return the kernel's table of layers, and the number of floats in a workspace for batches of ``rows``."""
    layers = np.zeros((len(sizes) - 1, kernel.COLUMNS), np.int64)
    vector = work = 0
    for k, (n_in, n_out) in enumerate(pairwise(sizes)):
        in_pad, out_pad = -(-n_in // width) * width, -(-n_out // width) * width
        weights = n_in * out_pad if k == 0 else n_out * in_pad
        bias = work + weights + -weights % STEP
        output = bias + out_pad
        delta = output + rows * out_pad
        layers[k] = (n_in, in_pad, n_out, out_pad, vector, work, bias, output, delta)
        vector += (n_in + 1) * n_out
        work = delta + rows * out_pad
    return layers, work


def _samples(x: NDArray[Any], data: Dataset) -> tuple[NDArray[Any], ...]:
    """Return N samples as the kernel reads them: inputs and masks, both flat, sums (N,), and the scaling table."""
    flat = np.ascontiguousarray(x).reshape(len(x), -1)
    if x.dtype == np.uint8:
        table, factor = np.arange(256) / (255.0 * data.scale), 1.0 / (255.0 * data.scale)
    else:
        table, factor = np.array([1.0 / data.scale]), 1.0 / data.scale
    words = -(-flat.shape[1] // 64)
    masks, sums = np.zeros((len(flat), 8 * words), np.uint8), np.empty(len(flat), np.float32)
    for first in range(0, len(flat), 4096):  # in pieces: no array as large as the data set comes into being
        some = flat[first : first + 4096]
        bits = np.packbits(some != 0, axis=1, bitorder="little")
        masks[first : first + 4096, : bits.shape[1]] = bits
        sums[first : first + 4096] = factor * some.sum(axis=1, dtype=np.float64)
    return flat.ravel(), masks.view("<u8").ravel(), sums, table.astype(np.float32)


def _aligned(size: int) -> NDArray[np.float32]:
    """Return a workspace of zeros that starts at a cache line, so that no vector straddles two."""
    block = np.zeros(size + STEP, np.float32)
    first = (-block.ctypes.data % 64) // block.itemsize
    return block[first : first + size]
