"""Own cost of a simulated round: `make bench-loop`, or python benchmarks/loop.py [--old COMMIT] [--rounds N].

Everything but training and evaluation, which an engine that does nothing stands for: the world, what the server sees,
the policy, the outcome, what is learnt. 20 devices, one thread. An old commit, in a git worktree, and this tree take
turns in one run; what counts is the least CPU time of a round, for the machine may be busy with something else.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.trees import ROOT, old_tree, printed

OLD = "cf3f370"
TURNS = 3
POLICIES = ("greedy", "diverse", "auto")
MEASURE = """
import sys, time
from dataclasses import replace

import numpy as np

import fedcell as fc
from fedcell.learn.engine import Evaluation, HostUpdates
from fedcell.sim.loop import Simulation


class Idle:
    def __init__(self, engine):
        self.parameters, self.tensors = engine.parameters, engine.tensors
        self.models = np.full((20, engine.parameters), 0.1, np.float32)

    def update(self, jobs):
        n = len(jobs)
        whole = {"rms": np.ones(n), "tensors": self.tensors, "found": np.ones((n, 3))}
        known = {name: one for name, one in whole.items() if name in HostUpdates.__dataclass_fields__}
        return HostUpdates([job.start for job in jobs], self.models[:n], np.ones(n), **known)

    def evaluate(self, models):
        return Evaluation(np.full(len(models), 0.5), np.ones(len(models)))


policy, rounds = sys.argv[1], int(sys.argv[2])
spec = fc.Spec(policy=policy, rounds=10**9, budget_s=1e12, task=fc.TaskSpec(sizes=[90] * 20))
run = Simulation.load(spec, threads=1)
state, run = run.start(), replace(run, task=replace(run.task, engine=Idle(run.task.engine)))
least = float("inf")
for turn in range(5):
    began = time.process_time()
    for _ in range(rounds):
        _, state = run.step(state)
    least = min(least, (time.process_time() - began) / rounds) if turn else least
print(1e3 * least)
"""


def round_ms(tree: Path, policy: str, rounds: int) -> float:
    """The least CPU time of a round in milliseconds, with the package in this tree."""
    return float(printed(tree, MEASURE, policy, str(rounds)).split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default=OLD, help="a commit to compare with (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=200, help="rounds in each of four measurements a turn")
    chosen = parser.parse_args()
    with old_tree(chosen.old) as old:
        for tree in (old, ROOT):  # what is compiled is compiled now
            for policy in POLICIES:
                round_ms(tree, policy, 2)
        for policy in POLICIES:
            turns = [[round_ms(tree, policy, chosen.rounds) for tree in (old, ROOT)] for _ in range(TURNS)]
            before, now = (min(column) for column in zip(*turns, strict=True))
            print(f"{policy:8} {chosen.old} {before:.3f} ms   now {now:.3f} ms   ratio {before / now:.2f}", flush=True)


if __name__ == "__main__":
    main()
