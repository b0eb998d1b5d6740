"""Nodes on lines of their own: `python benchmarks/dedicated.py [--runs 5] [--target 0.8]`.

Eight real SuperNodes on loopback, with TLS and node keys, train softmax regression on MNIST digits; they report nothing
of their links or speeds, and half of them need 10 to 30 s longer for a round. Wall-clock time to the target accuracy of
the default, which learns the times, with `optimal`, against four random nodes; one run of each seed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.pop(0)  # this directory, which has a flower.py
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fedcell.distributions import student_t_quantile
from flower.deployment import Deployment
from flower.digits import DIGITS, mark, write_digits
from flower.runs import rounds_of, run_config

SLOW_S = {4: 10.0, 5: 15.0, 6: 20.0, 7: 30.0}
NODES = 8
POLICIES = ("optimal", "random:k=4")
WITHIN_S = 1200.0


def main(runs: int, target: float) -> None:
    with tempfile.TemporaryDirectory() as folder, Deployment(Path(folder) / "dedicated", cold=True) as federation:
        write_digits(federation.folder, NODES, labels=10)
        for device, slow_s in SLOW_S.items():
            mark(federation.folder, "slow", device, str(slow_s))
        federation.start_superlink()
        names = [f"node-{i}" for i in range(NODES)]
        federation.register(*names)
        for i, name in enumerate(names):
            federation.start_node(name, f"partition-id={i}")
        federation.wait_for("all nodes", lambda: all(federation.connected(name) for name in names))
        seconds = {policy: [run(federation, policy, seed, target) for seed in range(runs)] for policy in POLICIES}
    ours, random = (np.array(seconds[policy]) for policy in POLICIES)
    gain = random - ours
    half = student_t_quantile(0.975, runs - 1) * gain.std(ddof=1) / runs**0.5 if runs > 1 else float("nan")
    print(f"to {target:.0%}: {' s, '.join(f'{p} {np.median(s):.0f}' for p, s in seconds.items())} s (medians)")
    print(f"{POLICIES[0]} is {gain.mean():.0f} ± {half:.0f} s sooner, {random.sum() / ours.sum():.1f} times as fast")


def run(federation: Deployment, policy: str, seed: int, target: float) -> float:
    """Return the seconds to the target; prints who was chosen in the first rounds."""
    state = f"{policy.partition(':')[0]}-{seed}"
    values = {"folder": str(federation.folder), "state": state, "policy": policy, "seed": seed, "nodes": NODES}
    federation.submit(state, DIGITS, run_config({**values, "rounds": 100, "target": target}))
    federation.finish(state, WITHIN_S)
    rounds = rounds_of(federation.folder / state)
    chosen = " ".join("".join(sorted(r["names"])) for r in rounds[:5])
    took_s = float(rounds[-1]["clock_s"])
    accuracy = rounds[-1]["metrics"]["server"]["accuracy"]
    print(
        f"{policy:12} seed {seed}: {took_s:6.1f} s, {len(rounds):3} rounds, {accuracy:.3f}; nodes {chosen}", flush=True
    )
    return took_s


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--target", type=float, default=0.8)
    options = parser.parse_args()
    main(options.runs, options.target)
