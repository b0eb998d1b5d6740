"""Your own policy, raced against the paper's: the k nearest devices, but none twice in a row.

Run: python examples/own_policy.py [seeds]
or, in this folder: fedcell race --policy own_policy:Rested:k=6 --policy greedy
"""

import sys
from dataclasses import dataclass

import numpy as np

import fedcell as fc


@dataclass(frozen=True)
class Rested(fc.Policy):
    """The k best channels among the devices that did not train in the last round."""

    k: int = 6

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> np.ndarray:  # noqa: ARG002
        """Return the devices of this round; sharing the band is done for us."""
        tired = np.asarray(view.last_round) == view.round_index - 1
        return np.lexsort((view.upload_s, tired))[: self.k]


if __name__ == "__main__":
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    spec = fc.Spec(
        cell=fc.Cell(radius_m=1400.0),
        budget_s=120.0,
        grid={"policy": [f"{__name__}:Rested", "greedy", "random:k=6"], "seed": list(range(seeds))},
    )
    result = fc.run_race(spec)
    for name, summary in result.summaries().items():
        print(f"{name:20} best {summary.best.text(100)} %, {summary.round_s.mean:.1f} s a round")
    print(*result.verdicts(), sep="\n")
