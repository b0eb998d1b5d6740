"""Compile what the tests need once: every worker and every process of a test would do it for itself otherwise.

The engine's kernels are compiled for each type of input and width of the first layer, the schedulers for each link
law; the two have no compiled function in common, so that each may have a process of its own.
"""

from concurrent.futures import ProcessPoolExecutor

import numpy as np

import fedcell as fc
from fedcell.learn.data import Dataset
from fedcell.learn.engine import Job
from fedcell.learn.mlp import MlpEngine
from fedcell.schedule.optimal import shortest_rounds


def compile_engine() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 3
    for x in (rng.integers(0, 255, (40, 6), dtype=np.uint8), rng.random((40, 6), dtype=np.float32)):
        for units in (8, 20, 64):
            engine = MlpEngine(Dataset("random", x, labels, x, labels, 3, 0.0, 1.0), (units,), 0.1, 10, 1)
            start = engine.initial(rng)
            engine.evaluate(engine.train([Job(start, np.arange(40)[np.newaxis])]))


def compile_schedulers() -> None:
    for law in (fc.Density(), fc.Blocks(9), fc.Power(np.ones(5)), fc.Ingress(pipe_s=1.0)):
        view = fc.RoundView(np.ones(5), np.ones(5), ids=np.arange(5), profiles=np.eye(5), law=law)
        for line in ("greedy", "optimal", "diverse", "fed_cgd:seconds=9"):
            fc.parse_policy(line).decide(view, np.random.default_rng(0))
        shortest_rounds(view, np.arange(1, 6))


if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        for done in [pool.submit(compile_engine), pool.submit(compile_schedulers)]:
            done.result()
