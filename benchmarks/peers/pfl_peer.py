"""pfl: its federated averaging with PyTorch. Under torchrun every worker trains a part of the clients."""

import os
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from benchmarks.peers.common import BATCH, LEARNING_RATE, Stopwatch, Work, load, report
from benchmarks.peers.torch_common import set_weights
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn.functional import cross_entropy


class Mlp(nn.Sequential):
    """784-64-10 with the loss and metrics that pfl asks for."""

    def __init__(self, work: Work) -> None:
        super().__init__(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
        set_weights(self, work.start)

    def loss(self, x: Any, y: Any, **_: Any) -> Any:
        """What a client minimises."""
        return cross_entropy(self(x), y)

    @torch.inference_mode()
    def metrics(self, x: Any, y: Any, **_: Any) -> dict[str, Any]:
        """What an evaluation reports."""
        logits = self(x)
        loss = float(cross_entropy(logits, y, reduction="sum"))
        return {"loss": Weighted(loss, len(y)), "accuracy": Weighted(int((logits.argmax(1) == y).sum()), len(y))}


class Laps(TrainingProcessCallback):  # type: ignore[misc, unused-ignore]
    """Takes the time when a round and its evaluation are done."""

    def __init__(self, work: Work) -> None:
        self.watch, self.accuracy = Stopwatch(work), 0.0

    def on_train_begin(self, *, model: Any) -> Any:  # noqa: ARG002
        """Start the watch."""
        self.watch.lap()
        return Metrics()

    def after_central_iteration(self, metrics: Any, _: Any, *, central_iteration: int) -> Any:  # noqa: ARG002
        """Note the accuracy and the time."""
        found = {str(name): value for name, value in metrics.to_simple_dict().items()}
        self.accuracy = found.get("Central val | accuracy", self.accuracy)
        self.watch.lap()
        return False, Metrics()


def main(path: str) -> None:
    torch.set_num_threads(1)
    work = load(path)
    np.random.seed(0)  # noqa: NPY002 - pfl draws from NumPy's global generator, the same in all workers
    x, y, test_x, test_y = (torch.as_tensor(a) for a in (work.x, work.y, work.test_x, work.test_y))
    shuffle = np.random.default_rng(int(os.environ.get("RANK", "0")))

    def client_data(client: int) -> Any:
        order = torch.as_tensor(shuffle.permutation(x.shape[1]))
        return Dataset((x[client][order], y[client][order]), user_id=client)

    clients = FederatedDataset(client_data, get_user_sampler("minimize_reuse", range(work.clients)))
    module = Mlp(work)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    laps = Laps(work)
    FederatedAveraging().run(
        NNAlgorithmParams(work.rounds, evaluation_frequency=10**9, train_cohort_size=work.clients, val_cohort_size=0),
        SimulatedBackend(clients, clients),
        model,
        NNTrainHyperParams(local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=LEARNING_RATE),
        callbacks=[CentralEvaluationCallback(Dataset((test_x, test_y)), NNEvalHyperParams(None)), laps],
        send_metrics_to_platform=False,
    )
    if os.environ.get("RANK", "0") == "0":
        workers = os.environ.get("WORLD_SIZE", "1")
        report(version("pfl"), laps.watch, laps.accuracy, f"{workers} workers (torchrun), PyTorch, a thread each")


if __name__ == "__main__":
    main(sys.argv[1])
