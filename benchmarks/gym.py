"""How many steps a second `fedcell/Cell-v0` makes: one environment, Gymnasium's own vectorisation, and ours.

A step is a round: 8 devices on average, each through 3,000 digits in the paper's task, and an evaluation.

Run: python benchmarks/gym.py [--quick]
"""

import argparse
import time
from typing import Any

import gymnasium
import numpy as np

import fedcell as fc
import fedcell.gym

TASKS = {
    "the paper's task": fc.Spec(cell=fc.Cell(radius_m=1400.0), target_accuracy=1.0, rounds=1000),
    "a tenth of the samples": fc.Spec(
        cell=fc.Cell(radius_m=1400.0), target_accuracy=1.0, rounds=1000, task=fc.TaskSpec(epochs=0.1)
    ),
}


def steps_per_second(env: Any, cells: int, rounds: int) -> float:
    """Of the best of three tries."""
    rng, best_s = np.random.default_rng(0), np.inf
    env.reset(seed=0)
    shape = (20,) if cells == 0 else (cells, 20)
    for _ in range(3):
        actions = (rng.random((rounds, *shape)) < 0.4).astype(np.int8)
        began_s = time.perf_counter()
        for action in actions:
            env.step(action)
        best_s = min(best_s, time.perf_counter() - began_s)
    return max(cells, 1) * rounds / best_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    rounds = 4 if parser.parse_args().quick else 30
    print(f"{'':26}{'one':>9}{'16, sync':>11}{'16, ours':>11}   steps a second")
    for name, spec in TASKS.items():
        one = steps_per_second(gymnasium.make("fedcell/Cell-v0", spec=spec).unwrapped, 0, 2 * rounds)
        found = [one]
        for mode in ("sync", "vector_entry_point"):
            envs = gymnasium.make_vec("fedcell/Cell-v0", 16, mode, spec=spec)
            found.append(steps_per_second(envs, 16, max(2, rounds // 6)))
        print(f"{name:26}{found[0]:9.0f}{found[1]:11.0f}{found[2]:11.0f}")


if __name__ == "__main__":
    main()
