"""Path loss and rate against distance: the paper's channel beside those of 3GPP TR 38.901.

It prints, for a cell of 1 km, the mean rate with 5G NR's coding schemes and the share of the places from which an
upload is possible at all, shadowing included; with the name of a file it draws the picture.

Run: python examples/channels.py [channels.png]
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fedcell as fc
from fedcell.plots import save_picture
from fedcell.world import link_snr, path_loss_db
from fedcell.world.cell import Channel
from fedcell.world.tr38901 import Outdoor38901

POWER_W_PER_HZ = 5.0e-9  # 7 dBm/MHz
COLOURS = {"paper": "#000000", "UMa": "#0072b2", "UMi": "#d55e00", "RMa": "#009e73"}
CHANNELS: dict[str, Channel] = {"paper": fc.PaperChannel(), "UMa": fc.UMa(), "UMi": fc.UMi(), "RMa": fc.RMa()}
distance_m = np.geomspace(10.0, 2000.0, 400)

figure = Figure(figsize=(10.4, 4.3), layout="constrained")
losses, rates = figure.subplots(1, 2)
for name, channel in CHANNELS.items():
    cell, colour = fc.Cell(channel=channel), COLOURS[name]
    snr = link_snr(cell, POWER_W_PER_HZ, path_loss_db(cell, distance_m))
    rates.plot(distance_m, fc.Shannon().efficiency(snr), "--", color=colour, linewidth=1.0, label=f"{name}, shannon")
    rates.plot(distance_m, fc.Mcs256().efficiency(snr), color=colour, label=f"{name}, mcs256")
    if isinstance(channel, Outdoor38901):
        losses.plot(distance_m, channel.los_loss_db(distance_m), "--", color=colour, label=f"{name} LOS")
        losses.plot(distance_m, channel.nlos_loss_db(distance_m), color=colour, label=f"{name} NLOS")
    else:
        losses.plot(distance_m, path_loss_db(cell, distance_m), color=colour, label=name)

    world = fc.World(fc.Cell(radius_m=1000.0, channel=channel, rate=fc.Mcs256()), fc.Devices(20_000))
    now = world.conditions(seed=0)
    reached = 1.0 if now.available is None else now.available.mean()
    print(f"{name:5} mean rate {now.spectral_efficiency.mean():.2f} bit/s/Hz, {100 * reached:.0f} % of places reached")

if len(sys.argv) > 1:
    for axes, label in ((losses, "path loss, dB"), (rates, "bit/s/Hz in the likelier of LOS and NLOS")):
        axes.set(xlabel="distance, m", ylabel=label, xscale="log")
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8.5)
    save_picture(figure, Path(sys.argv[1]))
