"""Compile what the tests need once: every worker and every process of a test would do it for itself otherwise.

The engine's kernels are compiled for each type of input and width of the first layer, the schedulers once.
"""

import numpy as np

import fedcell as fc
from fedcell.learn.data import Dataset
from fedcell.learn.engine import Job
from fedcell.learn.mlp import MlpEngine

rng = np.random.default_rng(0)
for line in ("greedy", "optimal", "diverse"):
    view = fc.RoundView(np.ones(5), np.ones(5), ids=np.arange(5), profiles=np.eye(5))
    fc.parse_policy(line).decide(view, rng)
labels = np.arange(40) % 3
for x in (rng.integers(0, 255, (40, 6), dtype=np.uint8), rng.random((40, 6), dtype=np.float32)):
    for units in (8, 20, 64):
        engine = MlpEngine(Dataset("random", x, labels, x, labels, 3, 0.0, 1.0), (units,), 0.1, 10, 1)
        start = engine.initial(rng)
        engine.evaluate(engine.train([Job(start, np.arange(40)[np.newaxis])]))
