"""pfl's CIFAR-10 work in pfl itself, on one GPU: alone, or several processes that share it (torchrun)."""

# ruff: noqa: E402 - pfl reads the environment when it is imported

import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any

os.environ["LOCAL_RANK"] = "0"  # all processes share the first GPU
import numpy as np
import torch
from benchmarks.peers.cifar import BATCH, RATE, images, make_weights, network, orders
from torch.nn.functional import cross_entropy

# NCCL refuses two processes on one GPU; gloo does not.
_begin = torch.distributed.init_process_group
torch.distributed.init_process_group = lambda *_, **given: _begin(**{**given, "backend": "gloo"})

from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel


class Laps(TrainingProcessCallback):  # type: ignore[misc, unused-ignore]
    """Takes the time, and the accuracy, after each round."""

    def __init__(self, module: Any, x: Any, y: Any) -> None:
        self.ends, self.accuracy, self._module, self._x, self._y = [0.0], list[float](), module, x, y
        self.lost = 0.0

    def on_train_begin(self, *, model: Any) -> Any:  # noqa: ARG002
        """Start the watch."""
        torch.cuda.synchronize()
        self.ends[0] = time.perf_counter()
        return Metrics()

    @torch.inference_mode()
    def after_central_iteration(self, metrics: Any, _: Any, *, central_iteration: int) -> Any:  # noqa: ARG002
        """Note the time; what the evaluation takes is taken off."""
        torch.cuda.synchronize()
        before = time.perf_counter()
        self.ends.append(before - self.lost)
        right = sum(int((self._module(a).argmax(1) == b).sum()) for a, b in zip(self._x, self._y, strict=True))
        self.accuracy.append(right / sum(len(b) for b in self._y))
        self.lost += time.perf_counter() - before
        return False, Metrics()


def main(clients: int, rounds: int) -> None:
    data, plan = images(), orders(clients, rounds)
    np.random.seed(0)  # noqa: NPY002 - pfl draws from NumPy's global generator, the same in all workers
    x, test_x = ((torch.tensor(a, device="cuda").float() / 255 - 0.5) / 0.25 for a in (data.train_x, data.test_x))
    y, test_y = (torch.tensor(a, device="cuda") for a in (data.train_y, data.test_y))
    met = [0] * clients

    def client_data(client: int) -> Any:
        order = torch.as_tensor(plan[met[client] % rounds, client], device="cuda")
        met[client] += 1
        return Dataset((x[order], y[order]), user_id=client)

    module = network().cuda()
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), make_weights(), strict=True):
            parameter.copy_(torch.as_tensor(value))
    cast: Any = module
    cast.loss = lambda a, b, **_: cross_entropy(module(a), b)
    cast.metrics = lambda *_, **__: {}
    laps = Laps(module, torch.split(test_x, 2000), torch.split(test_y, 2000))
    users = FederatedDataset(client_data, get_user_sampler("minimize_reuse", range(clients)))
    FederatedAveraging().run(
        NNAlgorithmParams(rounds, evaluation_frequency=10**9, train_cohort_size=clients, val_cohort_size=0),
        SimulatedBackend(users, users),
        PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
        NNTrainHyperParams(local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=RATE),
        callbacks=[laps],
        send_metrics_to_platform=False,
    )
    if os.environ.get("RANK", "0") == "0":
        seconds = np.diff(laps.ends)[3:].tolist()
        print(json.dumps({"version": version("pfl"), "seconds": seconds, "accuracy": laps.accuracy}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
