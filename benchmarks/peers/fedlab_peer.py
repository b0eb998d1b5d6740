"""FedLab: its serial trainer and its synchronous server in one process."""

import sys
from importlib.metadata import version
from typing import Any
from unittest.mock import MagicMock

import torch

# FedLab imports torchvision for its ready-made data sets, which this does not use.
sys.modules["torchvision"] = sys.modules["torchvision.transforms"] = MagicMock()

from benchmarks.peers.common import BATCH, LEARNING_RATE, Stopwatch, Work, load, report  # noqa: E402
from benchmarks.peers.torch_common import batches, evaluate, make_model  # noqa: E402
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402


class Loaders:
    """FedLab's data set: batches ready as tensors, since PyTorch's DataLoader collates sample by sample."""

    def __init__(self, work: Work) -> None:
        self.x, self.y, self.orders = torch.as_tensor(work.x), torch.as_tensor(work.y), torch.as_tensor(work.orders)
        self.round = 0

    def get_dataloader(self, client: int, batch_size: int) -> Any:
        """The batches of a client in this round."""
        order = self.orders[self.round, client]
        return list(batches(self.x[client][order], self.y[client][order], batch_size))


class Pipeline(StandalonePipeline):  # type: ignore[misc, unused-ignore]
    """FedLab's loop, which leaves the evaluation to its user."""

    def __init__(self, handler: Any, trainer: Any, work: Work) -> None:
        super().__init__(handler, trainer)
        self.test = torch.as_tensor(work.test_x), torch.as_tensor(work.test_y)
        self.watch, self.accuracy = Stopwatch(work), 0.0
        self.watch.lap()

    def evaluate(self) -> None:
        """After every round."""
        self.accuracy, _ = evaluate(self.handler.model, *self.test)
        self.trainer.dataset.round += 1
        self.watch.lap()


def main(path: str) -> None:
    torch.set_num_threads(1)
    work = load(path)
    model = make_model(work.start)
    handler = FedAvgServerHandler(model, work.rounds, sample_ratio=1.0, cuda=False)
    trainer = FedAvgSerialClientTrainer(model, work.clients, cuda=False)
    trainer.setup_dataset(Loaders(work))
    trainer.setup_optim(epochs=1, batch_size=BATCH, lr=LEARNING_RATE)
    pipeline = Pipeline(handler, trainer, work)
    pipeline.main()
    report(version("fedlab"), pipeline.watch, pipeline.accuracy, "serial trainer, PyTorch, one thread")


if __name__ == "__main__":
    main(sys.argv[1])
