"""A round in a cell of a million devices: `make bench-large`, or python benchmarks/large_cells.py [--devices M].

Each device has four samples of a made-up data set and reports its labels; the model is small, so that what is measured
is the world, what the server sees, the decision, and what is learnt. An old commit, in a git worktree, and this tree
run one after the other; what counts is the CPU time of the first round (with what is compiled already) and the least of
the three after it, and the most memory that the process had, loading included.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.trees import ROOT, old_tree, printed

OLD = "cf3f370"
POLICIES = ("greedy", "optimal:theta=0", "diverse", "auto")
MEASURE = """
import resource, sys, time

import fedcell as fc
from fedcell.sim.loop import Simulation

policy, M, data = sys.argv[1], int(sys.argv[2]), sys.argv[3]
fields = {"policy": policy, "rounds": 100, "budget_s": 1e9, "profiles": "labels"}
small = Simulation.load(fc.Spec(**fields, task={"hidden": [4], "sizes": [10] * 20}), threads=1)
small.step(small.start())  # what is compiled is compiled now
began = time.process_time()
run = Simulation.load(fc.Spec(**fields, devices={"count": M}, task={"data": data, "hidden": [4]}), threads=1)
state, loading = run.start(), time.process_time() - began
took = []
for _ in range(4):
    began = time.process_time()
    record, state = run.step(state)
    took.append(time.process_time() - began)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(loading, took[0], min(took[1:]), memory, record.plan.devices.size)
"""


def made_up(M: int, place: Path) -> Path:
    """A data set with four samples for each device, in a file."""
    rng, n = np.random.default_rng(0), 4 * M
    x, y = rng.integers(0, 255, (n, 4), dtype=np.uint8), np.arange(n) % 10
    np.savez(place, train_x=x, train_y=y, test_x=x[:1000], test_y=y[:1000])
    return place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default=OLD, help="a commit to compare with (default %(default)s)")
    parser.add_argument("--devices", type=int, default=1_000_000, help="in the cell (default %(default)s)")
    chosen = parser.parse_args()
    with old_tree(chosen.old) as old:
        data = made_up(chosen.devices, old.parent / "cell.npz")
        for policy in POLICIES:
            for name, tree in ((chosen.old, old), ("now", ROOT)):
                found = printed(tree, MEASURE, policy, str(chosen.devices), str(data))
                loading, first, later, memory, devices = map(float, found.split()[-5:])
                print(
                    f"{policy:16} {name:8} loading {loading:5.1f} s   first round {first:6.2f} s   later "
                    f"{later:6.2f} s   {memory:5.2f} GB   {devices:.0f} devices",
                    flush=True,
                )


if __name__ == "__main__":
    main()
