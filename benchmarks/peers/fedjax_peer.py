"""FedJAX: its federated averaging with its fastest backend on a CPU (jit), and its own evaluation."""

import sys
from importlib.metadata import version
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
from benchmarks.peers.common import BATCH, LEARNING_RATE, Stopwatch, load, report
from fedjax.algorithms import fed_avg

if not hasattr(jax, "tree_map"):  # FedJAX calls it by a name that JAX has since dropped
    jax.tree_map = jax.tree.map


def apply(params: Any, batch: Any) -> Any:
    w1, b1, w2, b2 = params
    return jax.nn.relu(batch["x"] @ w1 + b1) @ w2 + b2


def train_loss(batch: Any, logits: Any) -> Any:
    return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)


def main(path: str) -> None:
    work = load(path)
    model = fedjax.Model(
        init=lambda _: [jnp.asarray(w.T) for w in work.start],
        apply_for_train=lambda params, batch, _: apply(params, batch),
        apply_for_eval=apply,
        train_loss=train_loss,
        eval_metrics={"loss": fedjax.metrics.CrossEntropyLoss(), "accuracy": fedjax.metrics.Accuracy()},
    )
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(LEARNING_RATE),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1, seed=None),
    )
    clients = [(c, fedjax.ClientDataset({"x": x, "y": y})) for c, (x, y) in enumerate(zip(work.x, work.y, strict=True))]
    test = fedjax.ClientDataset({"x": work.test_x, "y": work.test_y})
    test_batches = [jax.device_put(batch) for batch in test.padded_batch(batch_size=1000)]
    state, result = algorithm.init(model.init(None)), {"accuracy": 0.0}
    watch = Stopwatch(work)
    watch.lap()
    for r in range(work.rounds):
        keys = jax.random.split(jax.random.PRNGKey(r), work.clients)
        state, _ = algorithm.apply(state, [(*client, key) for client, key in zip(clients, keys, strict=True)])
        result = {k: float(v) for k, v in fedjax.evaluate_model(model, state.params, test_batches).items()}
        watch.lap()
    report(version("fedjax"), watch, result["accuracy"], f"jit backend, jax {jax.__version__}; compile time excluded")


if __name__ == "__main__":
    main(sys.argv[1])
