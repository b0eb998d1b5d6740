"""Arrays and records become matplotlib figures; nothing here computes a result."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcell.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
COMPUTE, UPLOAD, END = "#9aa5b1", "#0072b2", "#d55e00"  # grey, and Okabe and Ito's blue and vermilion
MOST_BARS = 40


@dataclass(frozen=True, eq=False)
class RoundBars:
    """What one panel of a round chart shows.

    Attributes:
        title: the policy.
        names: n device names.
        compute_s: (n,) when each device begins to upload.
        finish_s: (n,) when each device has delivered.
        shares: (n,) of the band.
        round_s: when the round ends.
    """

    title: str
    names: Sequence[str]
    compute_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    shares: NDArray[np.float64]
    round_s: float


def round_figure(panels: Sequence[RoundBars]) -> "Figure":
    """One bar a scheduled device, training then upload; under the optimal shares all end together."""
    from matplotlib.figure import Figure

    columns = 1 if len(panels) < 3 else 2
    bars = [max(1, min(len(panel.names), MOST_BARS)) for panel in panels]
    heights = [max(bars[start : start + columns]) + 1.5 for start in range(0, len(bars), columns)]
    figure = Figure(figsize=(7.0 if columns == 1 else 11.0, 1.0 + 0.24 * sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), columns, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})
    axes = list(grid.flat)
    for ax, panel in zip(axes, panels, strict=False):
        _draw_round(ax, panel)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    for ax in axes:
        ax.tick_params(labelbottom=True, labelsize=8)
    axes[0].set_xlim(0, 1.12 * max(panel.round_s for panel in panels))
    figure.supxlabel("seconds since the round began (beside the bars: the share of the band)", fontsize=10)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    return figure


def _draw_round(ax: "Axes", panel: RoundBars) -> None:
    order = np.argsort(panel.compute_s, kind="stable")[:MOST_BARS]
    y = np.arange(order.size)
    compute_s, finish_s = panel.compute_s[order], panel.finish_s[order]
    ax.barh(y, compute_s, color=COMPUTE, height=0.72, label="trains")
    ax.barh(y, finish_s - compute_s, left=compute_s, color=UPLOAD, height=0.72, label="uploads")
    ax.axvline(panel.round_s, color=END, linewidth=1.5, label="round ends")
    for row, share, end in zip(y, panel.shares[order], finish_s, strict=True):
        ax.text(end, float(row), f" {100 * share:.1f} %", va="center", ha="left", fontsize=8)
    hidden = len(panel.names) - order.size
    more = f", the first {order.size} shown" if hidden else ""
    ax.set_title(f"{panel.title}: {len(panel.names)} devices in {panel.round_s:.4g} s{more}", fontsize=10, loc="left")
    ax.set_yticks(y, [panel.names[i] for i in order], fontsize=8)
    ax.set_ylim(max(order.size, 1) - 0.4, -0.6)
    ax.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False)
class Curve:
    """A mean curve with its band.

    Attributes:
        name: the policy.
        clock_s: (n,) times at which it steps.
        accuracy: (n,) mean, a fraction.
        half: (n,) half the 95 % interval, NaN where there is none.
    """

    name: str
    clock_s: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    half: NDArray[np.float64]


# Okabe and Ito's colours, safe for colour-blind readers, and a dash for each so that grey print tells them apart too.
STYLES = (
    ("#d55e00", "-"),
    ("#0072b2", "-"),
    ("#009e73", "--"),
    ("#cc79a7", "--"),
    ("#e69f00", "-."),
    ("#56b4e9", "-."),
    ("#000000", ":"),
    ("#7f7f7f", ":"),
)


def race_figure(curves: Sequence[Curve], title: str, end_s: float) -> "Figure":
    """Accuracy against simulated wall-clock time, one line a policy, with its 95 % band over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.3), layout="constrained")
    ax = figure.subplots()
    for number, curve in enumerate(curves):
        colour, dash = STYLES[number % len(STYLES)]
        ax.step(curve.clock_s, 100 * curve.accuracy, where="post", color=colour, linestyle=dash, label=curve.name)
        if np.isfinite(curve.half).all():
            low, high = 100 * (curve.accuracy - curve.half), 100 * np.minimum(curve.accuracy + curve.half, 1.0)
            ax.fill_between(curve.clock_s, low, high, step="post", color=colour, alpha=0.12, linewidth=0)
    ax.set_xlabel("simulated wall-clock time, s")
    ax.set_ylabel("test accuracy, %")
    ax.set_title(title, fontsize=10, loc="left")
    if np.isfinite(end_s):
        ax.set_xlim(0, end_s)
    lowest = min((100 * float(curve.accuracy.min(initial=1.0)) for curve in curves), default=0.0)
    ax.set_ylim(max(0.0, 10 * np.floor(lowest / 10)), 100)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    return figure


def check_picture_path(path: Path) -> Path:
    """Refuse a picture that could not be written, before any work is done for it."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path} has no picture's ending; name it .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: {path.parent} is no folder; create it first")
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder; give a file's name")
    return path


def save(figure: "Figure", path: Path) -> None:
    """Write the figure whole or not at all."""
    check_picture_path(path)
    try:
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
        os.close(handle)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    try:
        figure.savefig(scratch, dpi=200)
        mask = os.umask(0)
        os.umask(mask)
        Path(scratch).chmod(0o666 & ~mask)
        Path(scratch).replace(path)
    finally:
        Path(scratch).unlink(missing_ok=True)
