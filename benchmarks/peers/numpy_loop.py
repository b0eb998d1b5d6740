"""NumPy and its BLAS on one core: client by client, batch by batch."""

import sys
from typing import Any

import numpy as np
from benchmarks.peers.common import BATCH, LEARNING_RATE, Stopwatch, load, report
from numpy.typing import NDArray

Array = NDArray[Any]


def train(start: list[Array], x: Array, y: Array) -> list[Array]:
    """One epoch of SGD over samples that are already in their order; weights (in, out) are the faster layout."""
    w1, b1, w2, b2 = (weights.copy() for weights in start)
    update = np.empty_like(w1)
    ones = np.eye(10, dtype=np.float32)[y]
    for first in range(0, len(y), BATCH):
        batch = x[first : first + BATCH]
        hidden = batch @ w1
        hidden += b1
        np.maximum(hidden, 0, out=hidden)
        delta = hidden @ w2
        delta += b2
        delta -= delta.max(axis=1, keepdims=True)
        np.exp(delta, out=delta)
        delta /= delta.sum(axis=1, keepdims=True)
        delta -= ones[first : first + BATCH]
        delta *= LEARNING_RATE / len(batch)  # now the step times the gradient of the mean loss
        back = delta @ w2.T
        back *= hidden > 0
        w2 -= hidden.T @ delta
        b2 -= delta.sum(axis=0)
        np.matmul(batch.T, back, out=update)
        w1 -= update
        b1 -= back.sum(axis=0)
    return [w1, b1, w2, b2]


def evaluate(weights: list[Array], x: Array, y: Array) -> tuple[float, float]:
    """Accuracy and loss."""
    w1, b1, w2, b2 = weights
    logits = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    shifted = logits - logits.max(axis=1, keepdims=True)
    loss = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y]
    return float((logits.argmax(axis=1) == y).mean()), float(loss.mean())


def main(path: str) -> None:
    work = load(path)
    weights, accuracy = [np.ascontiguousarray(w.T) for w in work.start], 0.0
    watch = Stopwatch(work)
    watch.lap()
    for orders in work.orders:
        trained = [train(weights, work.x[c][order], work.y[c][order]) for c, order in enumerate(orders)]
        weights = [np.mean(layer, axis=0) for layer in zip(*trained, strict=True)]
        accuracy, _ = evaluate(weights, work.test_x, work.test_y)
        watch.lap()
    report(np.__version__, watch, accuracy, "one core, one thread")


if __name__ == "__main__":
    main(sys.argv[1])
