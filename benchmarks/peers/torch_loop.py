"""A plain PyTorch loop: client by client, batch by batch."""

import sys

import numpy as np
import torch
from benchmarks.peers.common import Stopwatch, load, report
from benchmarks.peers.torch_common import evaluate, get_weights, make_model, set_weights, train


def main(path: str) -> None:
    torch.set_num_threads(1)  # threads in products as small as these only cost time
    work = load(path)
    x, y, test_x, test_y = (torch.as_tensor(a) for a in (work.x, work.y, work.test_x, work.test_y))
    model, weights, accuracy = make_model(work.start), work.start, 0.0
    watch = Stopwatch(work)
    watch.lap()
    for orders in work.orders:
        trained = []
        for client, order in enumerate(orders):
            set_weights(model, weights)
            train(model, x[client], y[client], torch.as_tensor(order))
            trained.append(get_weights(model))
        weights = [np.mean(layer, axis=0) for layer in zip(*trained, strict=True)]
        set_weights(model, weights)
        accuracy, _ = evaluate(model, test_x, test_y)
        watch.lap()
    report(torch.__version__, watch, accuracy, "one thread: faster here than two")


if __name__ == "__main__":
    main(sys.argv[1])
