"""A run of 1,000 short rounds, as `auto` plays them: `make bench-rounds`, or python benchmarks/short_rounds.py.

5 of 20 devices train on 90 digits each and upload 2 bits a weight, on one core: who they are is drawn (``random``), or
decided by `auto` with this work and these bits. Beside it the training alone: the same jobs, one after the other. An
old commit, in a git worktree, and this tree take turns in one run; the old one evaluates the model after every round,
this one as needed. What counts is the least CPU time.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.trees import ROOT, old_tree, printed

OLD = "cf3f370"
TURNS = 3
POLICIES = {"random": "random:k=5", "auto": "auto:epochs=0.03,bits=2,max_devices=5"}
MEASURE = """
import sys, time

import fedcell as fc
from fedcell.sim.loop import Simulation

policy, rounds, evaluate = sys.argv[1], int(sys.argv[2]), sys.argv[3]
task = {"epochs": 0.03, "compression": "quantise:bits=2"} | ({"evaluate": evaluate} if evaluate else {})
run = Simulation.load(fc.Spec(policy=policy, rounds=rounds, budget_s=450.0, task=task), threads=1)
engine, calls = run.task.engine, []
update = engine.update


def recorded(jobs):
    calls.append(jobs)
    return update(jobs)


def play():
    state = run.start()
    while (step := run.step(state)) is not None:
        state = step[1]


engine.update = recorded
play()
engine.update = update
least = [float("inf")] * 2
for _ in range(3):
    began = time.process_time()
    play()
    between = time.process_time()
    for jobs in calls:
        engine.update(jobs)
    least = [min(least[0], between - began), min(least[1], time.process_time() - between)]
print(*least)
"""


def seconds(tree: Path, policy: str, rounds: int, evaluate: str) -> tuple[float, float]:
    """The least CPU time of a run, and of its training alone, in seconds, with the package in this tree."""
    whole, training = printed(tree, MEASURE, policy, str(rounds), evaluate).split()[-2:]
    return float(whole), float(training)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default=OLD, help="a commit to compare with (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=1000, help="rounds of a run")
    chosen = parser.parse_args()
    with old_tree(chosen.old) as old:
        for name, policy in POLICIES.items():
            for tree, evaluate in ((old, ""), (ROOT, "auto")):  # what is compiled is compiled now
                seconds(tree, policy, 2, evaluate)
            turns = [
                [*seconds(old, policy, chosen.rounds, ""), *seconds(ROOT, policy, chosen.rounds, "auto")]
                for _ in range(TURNS)
            ]
            before, _, now, training = (min(column) for column in zip(*turns, strict=True))
            print(
                f"{name:8} {chosen.old} {before:.2f} s   now {now:.2f} s   ratio {before / now:.2f}   "
                f"training alone {training:.2f} s, so {now / training:.2f} x that",
                flush=True,
            )


if __name__ == "__main__":
    main()
