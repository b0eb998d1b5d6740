"""One round by hand: a cell, its devices, and what three policies make of them.

Run: python examples/one_round.py
"""

import numpy as np

import fedcell as fc

world = fc.World(fc.Cell(radius_m=1400.0), fc.Devices(20))
now = world.conditions(seed=0)
view = fc.RoundView(now.upload_s, now.compute_s)

for policy in (fc.Optimal(theta=0.0), fc.Greedy(theta=0.0), fc.Random(k=8), fc.All()):
    plan = policy.decide(view, np.random.default_rng(0))
    cost = fc.objective(len(plan.devices), plan.round_s, theta=0.0)
    print(
        f"{fc.format_policy(policy):12} {len(plan.devices):3} devices in {plan.round_s:6.2f} s, {cost:.3f} s a device"
    )

plan = fc.Optimal(theta=0.0).decide(view, np.random.default_rng(0))
print("\nThe optimal plan: all end together, and who is far away or slow gets more of the band.")
for device, share in zip(plan.devices, plan.shares, strict=True):
    where, trains = now.distance_m[device], now.compute_s[device]
    print(f"  device {device:2} at {where:5.0f} m trains {trains:5.2f} s, gets {100 * share:5.2f} % of the band")
