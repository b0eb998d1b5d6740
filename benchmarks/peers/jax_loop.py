"""Hand-written JAX: one jitted function a round, vmap over clients, lax.scan over batches."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.peers.common import BATCH, LEARNING_RATE, Stopwatch, load, report


def logits(weights: Any, x: Any) -> Any:
    w1, b1, w2, b2 = weights
    return jax.nn.relu(x @ w1 + b1) @ w2 + b2


def loss(weights: Any, x: Any, y: Any) -> Any:
    z = logits(weights, x)
    return jnp.mean(jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, y[:, None], axis=1)[:, 0])


def epoch(weights: Any, x: Any, y: Any, order: Any) -> Any:
    """One client's epoch of SGD."""

    def step(weights: Any, batch: Any) -> Any:
        gradient = jax.grad(loss)(weights, x[batch], y[batch])
        return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, weights, gradient), None

    return jax.lax.scan(step, weights, order.reshape(-1, BATCH))[0]


def round_(weights: Any, x: Any, y: Any, orders: Any) -> Any:
    trained = jax.vmap(epoch, in_axes=(None, 0, 0, 0))(weights, x, y, orders)
    return jax.tree.map(lambda w: w.mean(axis=0), trained)


def evaluate(weights: Any, x: Any, y: Any) -> Any:
    return (logits(weights, x).argmax(axis=1) == y).mean(), loss(weights, x, y)


@jax.jit  # type: ignore[untyped-decorator, unused-ignore]
def round_and_evaluation(weights: Any, x: Any, y: Any, orders: Any, test_x: Any, test_y: Any) -> Any:
    weights = round_(weights, x, y, orders)
    return weights, evaluate(weights, test_x, test_y)


def main(path: str) -> None:
    work = load(path)
    x, y, test_x, test_y = (jnp.asarray(a) for a in (work.x, work.y, work.test_x, work.test_y))
    weights: Any = [jnp.asarray(w.T) for w in work.start]
    accuracy = 0.0
    watch = Stopwatch(work)
    watch.lap()
    for orders in work.orders.astype(np.int32):
        weights, (correct, _) = round_and_evaluation(weights, x, y, orders, test_x, test_y)
        accuracy = float(correct)  # waits for the result
        watch.lap()
    report(jax.__version__, watch, accuracy, "all cores; compile time excluded")


if __name__ == "__main__":
    main(sys.argv[1])
