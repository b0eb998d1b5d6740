"""Devices that differ and move, scheduled by what the server has observed: beyond the paper's own experiments.

A third of the phones are three times as slow. All walk about, under shadowing and Rician fading, and one model in
twenty is lost. What does it cost the server not to know compute times, but to learn them from the rounds in which it
saw a device?

Run: python examples/moving_cell.py [seeds]
"""

import sys

import fedcell as fc
from fedcell.runs.race import run_race

seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
speeds = [6e-3 if device % 3 == 0 else 2e-3 for device in range(20)]
cell = fc.Cell(radius_m=1000.0, shadowing_db=6.0, fading="rician")
walk = "waypoint:speed_mps=1..3,pause_s=0..30"
devices = fc.Devices(count=20, seconds_per_sample=speeds, mobility=walk, failure=0.05)

for knowledge in ("perfect", "expected", "observed"):
    spec = fc.Spec(
        knowledge=knowledge,
        budget_s=150.0,
        cell=cell,
        devices=devices,
        grid={"policy": ["optimal", "proportional_fair:k=8"], "seed": list(range(seeds))},
    )
    for name, summary in run_race(spec).summaries().items():
        print(
            f"{knowledge:9} {name:22} best {summary.best.text(100)} %, "
            f"{summary.devices.mean:.1f} devices in {summary.round_s.mean:.1f} s a round"
        )
