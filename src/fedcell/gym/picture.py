"""An episode as a picture: the cell's map in its last round."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcell.gym.episode import Episode
from fedcell.plots import COMPUTE, END, UPLOAD


def cell_map(episode: Episode) -> NDArray[np.uint8]:
    """(height, width, 3) the devices where they were in the last round; those that trained are larger by their shares.

    Args:
        episode: under way.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    run, record = episode.run, episode.record
    began_s = 0.0 if record is None else record.clock_s - record.round_s
    conditions = run.world.conditions(run.spec.seed, max(episode.state.round - 1, 0), began_s)
    x, y = conditions.positions_m.T
    shares, delivered = np.zeros(x.size), np.zeros(x.size, np.bool_)
    if record is not None:
        shares[record.plan.devices], delivered[record.delivered] = record.plan.shares, True
    radius_m = run.world.cell.radius_m
    figure = Figure(figsize=(5.0, 5.2), dpi=100, layout="constrained")
    ax = figure.subplots()
    ax.add_patch(Circle((0.0, 0.0), radius_m, fill=False, color=COMPUTE))
    ax.scatter(x, y, s=12, color=COMPUTE, label="device")
    ax.scatter(x[delivered], y[delivered], s=20 + 600 * shares[delivered], color=UPLOAD, alpha=0.8, label="delivered")
    lost = (shares > 0.0) & ~delivered
    ax.scatter(x[lost], y[lost], s=20 + 600 * shares[lost], color=END, alpha=0.8, label="scheduled, not delivered")
    ax.plot(0.0, 0.0, marker="^", color="black", linestyle="none", label="base station")
    ax.set(xlim=(-1.05 * radius_m, 1.05 * radius_m), ylim=(-1.05 * radius_m, 1.05 * radius_m), aspect="equal")
    ax.set(xlabel="metres", ylabel="metres")
    told = f"round {episode.state.round}, {episode.state.clock_s:.0f} s, accuracy {100 * episode.accuracy:.1f} %"
    ax.set_title(told, fontsize=10, loc="left")
    key = figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    for handle in key.legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([20.0])  # one size in the key, whatever the shares
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
