"""Predicted against measured: one bar per device and round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcell.plots import COMPUTE, END, UPLOAD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 32


@dataclass(frozen=True, eq=False)
class MeasuredBars:
    """One round; arrays are of its n scheduled devices, seconds since the round began.

    Attributes:
        number: from 1.
        names: of the devices.
        predicted_s: (n,) when each was to have delivered.
        began_s: (n,) when its upload began, NaN if it was not seen.
        measured_s: (n,) when its upload ended, NaN if it did not.
        round_s: how long the round took; the wait for those that were missing included.
    """

    number: int
    names: Sequence[str]
    predicted_s: NDArray[np.float64]
    began_s: NDArray[np.float64]
    measured_s: NDArray[np.float64]
    round_s: float


def cell_figure(panels: Sequence[tuple[str, Sequence[MeasuredBars]]]) -> "Figure":
    """A panel for each run; the outline of a bar is what the plan said, its fill what the wire showed.

    Args:
        panels: titles, and rounds in order; as many of the first rounds are drawn as have room.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shown = [(title, _that_fit(rounds)) for title, rounds in panels]
    slots = max(sum(len(r.names) + 1 for r in rounds) for _, rounds in shown)
    figure = Figure(figsize=(5.2 * len(shown) + 0.6, 1.6 + 0.19 * slots), layout="constrained")
    axes = figure.subplots(1, len(shown), sharex=True, squeeze=False)[0]
    for ax, (title, rounds) in zip(axes, shown, strict=True):
        _draw(ax, rounds)
        ax.set_title(title, fontsize=10, loc="left", parse_math=False)
        ax.set_ylim(slots - 0.5, -1.6)
    axes[0].set_xlim(0, None)
    figure.supxlabel("seconds from the start of the round", fontsize=10)
    keys = [Patch(color=COMPUTE, label="trains, measured"), Patch(color=UPLOAD, label="uploads, measured")]
    keys.append(Patch(facecolor="none", edgecolor="black", label="predicted"))
    keys.append(Patch(facecolor="none", edgecolor=END, hatch="////", label="nothing arrived"))
    columns = 3 if len(shown) == 1 else 5
    round_key = Line2D([], [], color=END, label="round ends")
    figure.legend(handles=[*keys, round_key], loc="outside upper center", ncols=columns, frameon=False, fontsize=8.5)
    return figure


def _that_fit(rounds: Sequence[MeasuredBars]) -> list[MeasuredBars]:
    bars = np.cumsum([len(r.names) for r in rounds])
    return list(rounds[: max(1, int(np.searchsorted(bars, MOST_BARS, side="right")))])


def _draw(ax: "Axes", rounds: Sequence[MeasuredBars]) -> None:
    row, ticks, labels = 0.0, [], []
    for one in rounds:
        ax.text(0.0, row - 0.6, f" round {one.number}", fontsize=7.5, va="bottom", color="#444444")
        y = row + np.arange(len(one.names))
        came = np.isfinite(one.measured_s)
        ax.barh(y[came], one.began_s[came], color=COMPUTE, height=0.7)
        ax.barh(y[came], (one.measured_s - one.began_s)[came], left=one.began_s[came], color=UPLOAD, height=0.7)
        ax.barh(y[~came], one.predicted_s[~came], height=0.7, color="none", edgecolor=END, hatch="////", linewidth=0.0)
        ax.barh(y, one.predicted_s, height=0.7, color="none", edgecolor="black", linewidth=0.9)
        ax.vlines(one.round_s, y[0] - 0.5, y[-1] + 0.5, color=END, linewidth=1.5)
        ticks += y.tolist()
        labels += list(one.names)
        row += len(one.names) + 1.0
    ax.set_yticks(ticks, labels, fontsize=7, parse_math=False)
    ax.tick_params(axis="x", labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
