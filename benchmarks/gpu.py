"""The torch engine on a GPU beside the CPU: the same jobs, the same answers, and the time of a round.

Run it where there is a GPU: `python benchmarks/gpu.py`. It needs PyTorch and NumPy only.
"""

import argparse
import platform
import time

import numpy as np
import torch

from fedcell.learn.data import load_dataset
from fedcell.learn.engine import Job
from fedcell.learn.torch_engine import TorchEngine
from fedcell.learn.torch_modules import cnn_module, mlp_module


def seconds(engine: TorchEngine, jobs: list[Job], repeats: int) -> float:
    """The least time of training the jobs and evaluating one model."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        models = engine.train(jobs)
        engine.evaluate(models[:1])
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 20, 100, 400])
    given = parser.parse_args()
    data = load_dataset("mnist")
    name = torch.cuda.get_device_name() if given.device == "cuda" else platform.processor()
    print(f"torch {torch.__version__}, {given.device}: {name}")
    rng = np.random.default_rng(0)
    for kind, module in (("mlp", mlp_module(data, (64,))), ("cnn", cnn_module(data))):
        fast, slow = TorchEngine(data, module, device=given.device), TorchEngine(data, module, device="cpu")
        start = fast.initial(np.random.default_rng(1))
        few = [Job(start, rng.permutation(60_000)[np.newaxis, :300]) for _ in range(4)]
        ours, theirs = fast.train(few), slow.train(few)
        apart = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs - start)
        again = np.array_equal(ours, fast.train(few))
        print(f"{kind}: {fast.parameters:,} weights")
        print(f"  apart from the CPU by {apart:.1e} of the step; the same twice: {again}")
        cpu_s = seconds(slow, few, 2)
        print(f"  CPU, 4 clients x 300 samples: {cpu_s:.3f} s")
        print(f"  {given.device}, the same: {seconds(fast, few, 3):.3f} s")
        for clients in given.clients:
            jobs = [Job(start, rng.permutation(60_000)[np.newaxis, :3000]) for _ in range(clients)]
            took = seconds(fast, jobs, 2)
            each = f"{1e3 * took / clients:.2f} ms a client"
            print(f"  {given.device}, {clients:4} clients x 3,000: {took:.3f} s a round, {each}")


if __name__ == "__main__":
    main()
