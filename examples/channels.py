"""Path loss and rate against distance: the paper's channel beside those of 3GPP TR 38.901.

It prints, for a cell of 1 km, the mean rate with 5G NR's coding schemes and the share of the places from which an
upload is possible at all, shadowing included; with the name of a file it draws the picture.

Run: python examples/channels.py [channels.png]
"""

import sys
from pathlib import Path

import numpy as np

import fedcell as fc
from fedcell.plots import Line, panels_figure, save_picture
from fedcell.world import link_snr, path_loss_db
from fedcell.world.cell import Channel
from fedcell.world.tr38901 import Outdoor38901

POWER_W_PER_HZ = 5.0e-9  # 7 dBm/MHz
COLOURS = {"paper": "#000000", "UMa": "#0072b2", "UMi": "#d55e00", "RMa": "#009e73"}
CHANNELS: dict[str, Channel] = {"paper": fc.PaperChannel(), "UMa": fc.UMa(), "UMi": fc.UMi(), "RMa": fc.RMa()}
distance_m = np.geomspace(10.0, 2000.0, 400)

losses, rates = [], []
for name, channel in CHANNELS.items():
    cell, colour = fc.Cell(channel=channel), COLOURS[name]
    snr = link_snr(cell, POWER_W_PER_HZ, path_loss_db(cell, distance_m))
    rates.append(
        Line(f"{name}, shannon", distance_m, fc.Shannon().efficiency(snr), colour=colour, dash="--", width=1.0)
    )
    rates.append(Line(f"{name}, mcs256", distance_m, fc.Mcs256().efficiency(snr), colour=colour))
    if isinstance(channel, Outdoor38901):
        losses.append(Line(f"{name} LOS", distance_m, channel.los_loss_db(distance_m), colour=colour, dash="--"))
        losses.append(Line(f"{name} NLOS", distance_m, channel.nlos_loss_db(distance_m), colour=colour))
    else:
        losses.append(Line(name, distance_m, path_loss_db(cell, distance_m), colour=colour))

    world = fc.World(fc.Cell(radius_m=1000.0, channel=channel, rate=fc.Mcs256()), fc.Devices(20_000))
    now = world.conditions(seed=0)
    reached = 1.0 if now.available is None else now.available.mean()
    print(f"{name:5} mean rate {now.spectral_efficiency.mean():.2f} bit/s/Hz, {100 * reached:.0f} % of places reached")

if len(sys.argv) > 1:
    panels = {"path loss, dB": losses, "bit/s/Hz in the likelier of LOS and NLOS": rates}
    save_picture(panels_figure(panels, "distance, m", log_x=True), Path(sys.argv[1]))
