"""The same 20 devices under five link laws: the shortest round with n devices, and how many of them Optimal takes.

Run: python examples/laws.py [laws.png]
"""

import sys
from pathlib import Path

import numpy as np

import fedcell as fc
from fedcell.plots import Line, lines_figure, save_picture
from fedcell.schedule.optimal import shortest_rounds

world = fc.World(fc.Cell(radius_m=1400.0, bandwidth_hz=25 * 180e3), fc.Devices(count=20))
drawn = world.conditions(seed=0)
laws: dict[str, tuple[str, fc.Law]] = {
    "density: one band": ("#000000", fc.Density()),
    "blocks: 25 of 180 kHz": ("#0072b2", fc.Blocks(25)),
    "power: 13.5 dBm a device": ("#d55e00", fc.Power(drawn.snr)),
    "ingress: lines into 5 Mbit/s": ("#009e73", fc.Ingress(pipe_s=world.cell.model_bits / 5e6)),
    "dedicated: a line each": ("#cc79a7", fc.Dedicated()),
}
n = np.arange(1, 21)
lines = []
for name, (colour, law) in laws.items():
    view = fc.RoundView(drawn.upload_s, drawn.compute_s, law=law)
    plan = fc.Optimal(theta=0.0).decide(view, np.random.default_rng(0))
    print(f"{name:30} {plan.devices.size:2} devices in {plan.round_s:5.2f} s")
    lines.append(Line(name, n.astype(float), shortest_rounds(view, n), colour=colour))
if len(sys.argv) > 1:
    figure = lines_figure(
        lines, "devices", "shortest round in s", x_limits=(1, 20), y_limits=(5, 25), legend="upper left"
    )
    save_picture(figure, Path(sys.argv[1]))
