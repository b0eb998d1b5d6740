"""Arrays and records become matplotlib figures; nothing here computes a result."""

import io
import threading
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.files import STANDARD_OUTPUT, check_output, write_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FORMATS = (".png", ".svg", ".pdf")
COMPUTE, UPLOAD, END = "#9aa5b1", "#0072b2", "#d55e00"  # grey, and Okabe and Ito's blue and vermilion
MAX_BARS = 40
MAX_MEASURED_BARS = 32


@dataclass(frozen=True, eq=False)
class RoundBars:
    """What one panel of a round chart shows.

    Attributes:
        title: the policy.
        names: n device names.
        compute_s: (n,) when each device starts to upload, in seconds from the start of the round.
        finish_s: (n,) when each device has delivered, in seconds.
        shares: (n,) shares of the band.
        round_s: when the round ends, in seconds.
        labels: n texts to stand next to the bars instead of the shares.
    """

    title: str
    names: Sequence[str]
    compute_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    shares: NDArray[np.float64]
    round_s: float
    labels: Sequence[str] | None = None


def percent(share: float, decimals: int = 1) -> str:
    """Return a share of the band as text; one too small for the decimals keeps two digits.

    Args:
        share: a fraction.
        decimals: digits after the point of the percentage.

    Example:
        >>> from fedcell.plots import percent
        >>> percent(0.25), percent(0.00001234)
        ('25.0 %', '0.0012 %')
    """
    return f"{100 * share:.{decimals}f} %" if 100 * share >= 10.0**-decimals else f"{100 * share:.2g} %"


def round_figure(panels: Sequence[RoundBars], labelled: str = "the share of the band") -> "Figure":
    """Draw one bar per scheduled device, training then upload; with optimal shares all finish at the same time."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    columns = 1 if len(panels) < 3 else 2
    bars = [max(1, min(len(panel.names), MAX_BARS)) for panel in panels]
    slots = [max(bars[start : start + columns]) for start in range(0, len(bars), columns)]
    heights = [slot + 0.2 for slot in slots]  # as the panels' limits: every bar is as thick
    inches = 1.0 + 0.24 * (sum(heights) + 1.3 * len(heights))
    figure = Figure(figsize=(7.0 if columns == 1 else 11.0, inches), layout="constrained")
    grid = figure.subplots(len(heights), columns, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})
    axes = list(grid.flat)
    for number, panel in enumerate(panels):
        _draw_round(axes[number], panel, slots[number // columns])
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    for ax in axes:
        ax.tick_params(labelbottom=True, labelsize=8)
    axes[0].set_xlim(0, 1.12 * max(panel.round_s for panel in panels) or 1.0)
    beside = f"{chr(10) if len(labelled) > 40 else ' '}(next to the bars: {labelled})" if labelled else ""
    figure.supxlabel(f"seconds from the start of the round{beside}", fontsize=10)
    # Made by hand, for a panel without bars has none to show.
    bars_key = [Patch(color=COMPUTE, label="trains"), Patch(color=UPLOAD, label="uploads")]
    end_key = Line2D([], [], color=END, label="round ends")
    figure.legend(handles=[*bars_key, end_key], loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    return figure


def _draw_round(ax: "Axes", panel: RoundBars, slots: int) -> None:
    from matplotlib.patheffects import withStroke

    n = len(panel.names)
    order = np.argsort(panel.compute_s, kind="stable")
    if n > MAX_BARS:  # evenly from the quickest to the slowest, so that the picture keeps its shape
        order = order[np.linspace(0, n - 1, MAX_BARS).round().astype(np.int64)]
    y = np.arange(order.size)
    compute_s, finish_s = panel.compute_s[order], panel.finish_s[order]
    ax.barh(y, compute_s, color=COMPUTE, height=0.72)
    ax.barh(y, finish_s - compute_s, left=compute_s, color=UPLOAD, height=0.72)
    ax.axvline(panel.round_s, color=END, linewidth=1.5)
    halo = [withStroke(linewidth=2, foreground="white")]  # legible where the line of the round's end crosses it
    labels = [percent(share) for share in panel.shares] if panel.labels is None else panel.labels
    for row, i, end in zip(y, order, finish_s, strict=True):
        ax.text(end, float(row), f" {labels[i]}", va="center", ha="left", fontsize=8, path_effects=halo)
    title = f"{panel.title}: {n} device{'s' * (n != 1)} in {panel.round_s:.4g} s"
    title += f", {order.size} of them shown" if n > order.size else ""
    # Names are text as it stands: $x$ is no formula.
    ax.set_title(title, fontsize=10, loc="left", parse_math=False)
    ax.set_yticks(y, [short(panel.names[i], 24) for i in order], fontsize=8, parse_math=False)
    ax.set_ylim(slots - 0.4, -0.6)
    ax.spines[["top", "right"]].set_visible(False)


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


def measured_figure(panels: Sequence[tuple[str, Sequence[MeasuredBars]]]) -> "Figure":
    """A panel for each run with its first rounds; the outline of a bar is the plan, its fill what was measured."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shown = [(title, _first_rounds(rounds)) for title, rounds in panels]
    slots = max(sum(len(r.names) + 1 for r in rounds) for _, rounds in shown)
    figure = Figure(figsize=(5.2 * len(shown) + 0.6, 1.6 + 0.19 * slots), layout="constrained")
    axes = figure.subplots(1, len(shown), sharex=True, squeeze=False)[0]
    for ax, (title, rounds) in zip(axes, shown, strict=True):
        _draw_measured(ax, rounds)
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


def _first_rounds(rounds: Sequence[MeasuredBars]) -> list[MeasuredBars]:
    bars = np.cumsum([len(r.names) for r in rounds])
    return list(rounds[: max(1, int(np.searchsorted(bars, MAX_MEASURED_BARS, side="right")))])


def _draw_measured(ax: "Axes", rounds: Sequence[MeasuredBars]) -> None:
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


def cell_map_figure(
    positions_m: NDArray[np.float64],
    radius_m: float,
    shares: NDArray[np.float64],
    delivered: NDArray[np.bool_],
    title: str,
) -> "Figure":
    """Draw the devices where they are in the cell; those that were scheduled are larger by their shares.

    Args:
        positions_m: (M, 2) with the base station at the origin.
        radius_m: of the cell.
        shares: (M,) of the band, 0 for devices that were not scheduled.
        delivered: (M,) whether the device's model arrived.
        title: of the figure.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    figure = Figure(figsize=(5.0, 5.2), dpi=100, layout="constrained")
    ax = figure.subplots()
    ax.add_patch(Circle((0.0, 0.0), radius_m, fill=False, color=COMPUTE))
    x, y = positions_m.T
    ax.scatter(x, y, s=12, color=COMPUTE, label="device")
    ax.scatter(x[delivered], y[delivered], s=20 + 600 * shares[delivered], color=UPLOAD, alpha=0.8, label="delivered")
    lost = (shares > 0.0) & ~delivered
    ax.scatter(x[lost], y[lost], s=20 + 600 * shares[lost], color=END, alpha=0.8, label="scheduled, not delivered")
    ax.plot(0.0, 0.0, marker="^", color="black", linestyle="none", label="base station")
    ax.set(xlim=(-1.05 * radius_m, 1.05 * radius_m), ylim=(-1.05 * radius_m, 1.05 * radius_m), aspect="equal")
    ax.set(xlabel="metres", ylabel="metres")
    ax.set_title(title, fontsize=10, loc="left")
    key = figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    for handle in key.legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([20.0])  # one size in the key, whatever the shares
    return figure


def short(name: str, most: int) -> str:
    """Return the name with at most this many characters, cut in the middle: settings, which differ, are at the end."""
    last = most // 2
    return name if len(name) <= most else f"{name[: most - 1 - last]}…{name[-last:]}"


@dataclass(frozen=True, eq=False)
class Curve:
    """A mean curve with its band.

    Attributes:
        name: the policy.
        x: (n,) where it steps: seconds, or joules spent.
        accuracy: (n,) mean, a fraction.
        half: (n,) half the 95 % interval, NaN where there is none.
    """

    name: str
    x: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    half: NDArray[np.float64]


# Okabe and Ito's colours and two of Tol's, safe for colour-blind readers, and a dash for each so that grey print tells
# them apart too.
STYLES = (
    ("#000000", "-"),
    ("#d55e00", "-"),
    ("#0072b2", "-"),
    ("#009e73", "--"),
    ("#cc79a7", "--"),
    ("#e69f00", "-."),
    ("#56b4e9", "-."),
    ("#332288", ":"),
    ("#7f7f7f", ":"),
    ("#882255", "--"),
    ("#c00000", "-"),
)


@dataclass(frozen=True)
class Finish:
    """The target of a race, and who reaches it when.

    Attributes:
        target: the accuracy, a fraction.
        reached: by a curve's name, when the target is reached, such as ``58 s``; it stands beside the name.
        places: by a curve's name, the same as a number of the x axis, of curves that do reach it: drawn on the target.
        words: what these are, above the names.
        first: the curve that is there first, if that is sure.
        other: the curve that it is compared with.
        sooner: what stands between the two, such as ``2.4 x sooner``.
    """

    target: float
    reached: Mapping[str, str]
    places: Mapping[str, float]
    words: str
    first: str = ""
    other: str = ""
    sooner: str = ""


def race_figure(
    curves: Sequence[Curve],
    title: str,
    end: float,
    looks: Mapping[str, tuple[str, str]] | None = None,
    by: Literal["time", "energy"] = "time",
    finish: Finish | None = None,
) -> "Figure":
    """Draw accuracy against simulated wall-clock time or energy, one line per policy, with its 95 % band over seeds.

    Args:
        curves: mean curves with their bands.
        title: above the axes.
        end: where the axis ends, in seconds or joules; infinity where the curves do.
        looks: colour and dash by a curve's name; by default STYLES in their order.
        by: ``"time"`` or ``"energy"``, of the curves' x.
        finish: the target and who reaches it when; None for a picture without.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.6), layout="constrained")
    ax = figure.subplots()
    _draw_race(ax, curves, _X_LABELS[by], looks or {}, "" if finish is None else finish.first)
    ax.set_title(title, fontsize=10, loc="left")
    longest = max((float(curve.x[-1]) for curve in curves if curve.x.size), default=1.0)
    ax.set_xlim(0, end if np.isfinite(end) else longest)
    if not any(curve.x.size for curve in curves):
        ax.text(0.5, 0.5, "no round fits into the budget", ha="center", transform=ax.transAxes, color="#555555")
    if finish is not None:
        _draw_finish(ax, finish)
    _name_ends(ax, curves, looks or {}, finish)
    return figure


_X_LABELS = {"time": "simulated wall-clock time, s", "energy": "energy spent by all devices, J"}


def _draw_finish(ax: "Axes", finish: Finish) -> None:
    """The line of the target; and, near the axis, where there are no curves, how far the first is ahead on it."""
    from matplotlib.patheffects import withStroke

    y, halo = 100 * finish.target, [withStroke(linewidth=3, foreground="white")]
    ax.axhline(y, color="#555555", linewidth=1.0, linestyle=(0, (6, 3)), zorder=2)
    low, high = ax.get_ylim()
    if y >= low:
        side = "bottom" if y < low + 0.96 * (high - low) else "top"  # the title is above the axes
        left, right = ax.get_xlim()
        first = (min(finish.places.values(), default=right) - left) / (right - left)
        x = 0.006 if first > 0.1 else first + 0.03  # behind the curve of a first that is there at once
        text = ax.text(x, y, "target", fontsize=9, va=side, transform=ax.get_yaxis_transform(), zorder=2)
        text.set(path_effects=halo)
    ends = [finish.places[name] for name in (finish.first, finish.other) if name in finish.places]
    if len(ends) < 2 or ends[0] >= ends[1]:
        return
    right = ax.get_xlim()[1]
    ax.plot(ends, [y, y], "o", color="black", markersize=5, zorder=5)
    ax.vlines(ends, low, y, color="black", linewidth=0.9, linestyle=(0, (2, 2)), zorder=2)
    level = low + 0.06 * (high - low)
    arrow = {"arrowstyle": "<|-|>", "color": "black", "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (ends[1], level), (ends[0], level), arrowprops=arrow, zorder=5)
    beside = ends[1] < 0.6 * right
    text = ax.annotate(
        f"{finish.sooner} than {short(finish.other, 30)}", (ends[1], level), (8, 0) if beside else (-4, 8),
        textcoords="offset points", ha="left" if beside else "right", va="center" if beside else "bottom",
        fontsize=11, weight="bold", zorder=6,
    )  # fmt: skip
    text.set(path_effects=halo, parse_math=False)


def _name_ends(
    ax: "Axes", curves: Sequence[Curve], looks: Mapping[str, tuple[str, str]], finish: Finish | None
) -> None:
    """Each curve's name, and when it reaches the target, at the right of its end."""
    low, high = ax.get_ylim()
    gap = min(0.048, 0.96 / max(1, len(curves))) * (high - low)
    if finish is not None:
        ax.text(1.03, high, finish.words, fontsize=8.5, color="#555555", va="top", transform=ax.get_yaxis_transform())
    ends = np.array([100 * curve.accuracy[-1] if curve.x.size else low for curve in curves])
    above = 0.0 if finish is None else (1.4 + finish.words.count("\n")) * gap
    places = spread(ends, gap, low, high - above)
    for number, (curve, end, place) in enumerate(zip(curves, ends, places, strict=True)):
        colour, _ = looks.get(curve.name, STYLES[number % len(STYLES)])
        x = min(float(curve.x[-1]), ax.get_xlim()[1]) if curve.x.size else ax.get_xlim()[1]
        when = finish.reached.get(curve.name, "") if finish is not None else ""
        words = f"{short(curve.name, 40)}{when and f':  {when}'}"
        thin = {
            "arrowstyle": "-",
            "color": colour,
            "linewidth": 0.8,
            "linestyle": ":",
            "relpos": (0, 0.5),
            "shrinkB": 0,
        }
        text = ax.annotate(
            words, (x, end), (1.03, place), "data", ax.get_yaxis_transform(),
            arrowprops=thin, annotation_clip=False, color=colour, fontsize=9, va="center",
        )  # fmt: skip
        text.set(parse_math=False, weight="bold" if finish is not None and curve.name == finish.first else "normal")


def spread(wanted: NDArray[np.float64], gap: float, low: float, high: float) -> NDArray[np.float64]:
    """Places as near as possible to those wanted, in the least-squares sense, in their order and a gap apart.

    Args:
        wanted: (n,) places.
        gap: the least distance of two.
        low: the least place.
        high: the greatest; what does not fit ends above it.

    Example:
        >>> import numpy as np
        >>> from fedcell.plots import spread
        >>> spread(np.array([80.0, 20.0, 81.0]), 3.0, 0.0, 100.0)
        array([79., 20., 82.])
    """
    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(order.size)
    blocks: list[list[float]] = []  # of places that touch: pooled while one is below that before it
    for value in wanted[order] - steps:
        blocks.append([float(value)])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    flat = np.concatenate([np.full(len(block), np.mean(block)) for block in blocks]) if blocks else steps
    places = np.empty(order.size)
    places[order] = np.maximum(np.minimum(flat, high - gap * (order.size - 1)), low) + steps
    return places


def _draw_race(
    ax: "Axes", curves: Sequence[Curve], x_label: str, looks: Mapping[str, tuple[str, str]], first: str = ""
) -> None:
    from matplotlib.patheffects import withStroke

    for number, curve in enumerate(curves):
        colour, dash = looks.get(curve.name, STYLES[number % len(STYLES)])
        line = ax.step(curve.x, 100 * curve.accuracy, where="post", color=colour, linestyle=dash, label=curve.name)
        width, above = (2.6, 4) if curve.name == first else (1.4, 3)
        halo = withStroke(linewidth=width + 1.4, foreground="white", alpha=0.8)
        line[0].set(linewidth=width, zorder=above, path_effects=[halo])
        if np.isfinite(curve.half).all():
            low = 100 * np.maximum(curve.accuracy - curve.half, 0.0)
            high = 100 * np.minimum(curve.accuracy + curve.half, 1.0)
            ax.fill_between(curve.x, low, high, step="post", color=colour, alpha=0.1, linewidth=0)
    ax.set_xlabel(x_label)
    ax.set_ylabel("test accuracy, %")
    lowest = min((100 * float(curve.accuracy.min()) for curve in curves if curve.accuracy.size), default=0.0)
    ax.set_ylim(max(0.0, 10 * np.floor(lowest / 10)), 100)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, eq=False)
class RoundTimes:
    """Planned and measured times of a run's rounds, (n,) each; ``style``: the number of its policy."""

    name: str
    style: int
    planned_s: NDArray[np.float64]
    measured_s: NDArray[np.float64]


def federation_figure(curves: Sequence[Curve], runs: Sequence[RoundTimes]) -> "Figure":
    """Draw a federation's runs: accuracy against time if it is known, and measured against planned round times."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.3) if curves else (5.4, 4.3), layout="constrained")
    axes = figure.subplots(1, 2 if curves else 1, width_ratios=[3, 2] if curves else None, squeeze=False)[0]
    if curves:
        _draw_race(axes[0], curves, "time, s", {})
        axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    ax = axes[-1]
    longest = 1.06 * max(
        (float(max(r.planned_s.max(), r.measured_s.max())) for r in runs if len(r.planned_s)), default=1.0
    )
    ax.plot([0, longest], [0, longest], color="#7f7f7f", linewidth=1, label="as planned")
    for run in runs:
        ax.plot(
            run.planned_s, run.measured_s, "o", color=STYLES[run.style % len(STYLES)][0], markersize=4, label=run.name
        )
    ax.set(xlim=(0, longest), ylim=(0, longest), xlabel="round as planned, s", ylabel="round as measured, s")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


def check_picture_path(path: Path) -> Path:
    """Return the path, or raise an InputError if no figure can be written there, before any work is done."""
    if path != STANDARD_OUTPUT and path.suffix.lower() not in FORMATS:
        raise InputError(f"{path} is not a figure's name; it must end in .png, .svg or .pdf")
    return check_output(path)


def save_picture(figure: "Figure", path: Path) -> None:
    """Write the figure completely or not at all: as .png, .svg or .pdf, or ``-`` for a PNG on standard output."""
    check_picture_path(path)
    picture = io.BytesIO()
    form = "png" if path == STANDARD_OUTPUT else path.suffix[1:].lower()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a name in a script that the font lacks: boxes
        figure.savefig(picture, format=form, dpi=min(200.0, 20_000 / max(figure.get_size_inches())))
    write_output(path, lambda file: file.write(picture.getbuffer()))


Corner = Literal["lower right", "lower left", "lower center", "upper right", "upper left"]


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a chart, points, or both.

    Attributes:
        name: in the legend; empty for none.
        x: (n,) places.
        y: (n,) values.
        half: (n,) half the interval: a band about a line, bars about points; None or NaN where there is none.
        colour: of matplotlib.
        dash: of the line, such as ``--``; empty for points alone.
        marker: of the points, such as ``o``; empty for a line alone.
        step: whether the value stays until the next place.
        width: of the line.
    """

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    half: NDArray[np.float64] | None = None
    colour: str = "#000000"
    dash: str = "-"
    marker: str = ""
    step: bool = False
    width: float = 1.5


def lines_figure(
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    *,
    x_limits: tuple[float, float] | None = None,
    y_limits: tuple[float | None, float | None] = (None, None),
    legend: Corner = "lower right",
    columns: int = 1,
) -> "Figure":
    """Draw lines and points over common axes, with their 95 % intervals."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4.3), layout="constrained")
    ax = figure.subplots()
    for line in lines:
        _draw_line(ax, line)
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    if x_limits is not None:
        ax.set_xlim(*x_limits)
    ax.set_ylim(*y_limits)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=10, steps=[1, 2, 5, 10], integer=True))
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8.5, loc=legend, ncols=columns, handlelength=2.8)
    return figure


def _draw_line(ax: "Axes", line: Line) -> None:
    # A line's many points would hide it: mark some of them.
    every = max(1, len(line.x) // 12) if line.dash else 1
    (drawn,) = ax.plot(line.x, line.y, color=line.colour, linestyle=line.dash or "none", linewidth=line.width, zorder=3)
    drawn.set(drawstyle="steps-post" if line.step else "default", label=line.name or "_")
    drawn.set(marker=line.marker or "none", markersize=4.5, markevery=every)
    if line.half is None or not np.isfinite(line.half).any():
        return
    if line.marker and every == 1:
        ax.errorbar(
            line.x, line.y, yerr=line.half, fmt="none", ecolor=line.colour, elinewidth=0.9, capsize=2.5, zorder=2
        )
    else:
        low, high = line.y - line.half, line.y + line.half
        ax.fill_between(
            line.x, low, high, step="post" if line.step else None, color=line.colour, alpha=0.1, linewidth=0
        )


@dataclass(frozen=True, eq=False)
class Dots:
    """One series of dots, a dot a row.

    Attributes:
        name: in the legend.
        x: (n,) values, infinity for never, NaN for no dot.
        low: (n,) where the intervals begin, NaN for none.
        high: (n,) where they end.
        colour: of matplotlib.
        marker: of the dots.
    """

    name: str
    x: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    colour: str
    marker: str = "o"


def dots_figure(rows: Sequence[str], dots: Sequence[Dots], x_label: str, limit: float) -> "Figure":
    """Draw values with their intervals on a logarithmic axis, a row for each name, the first on top.

    Args:
        rows: n names.
        dots: the series.
        x_label: of the axis.
        limit: where what is beyond it is drawn, as an arrow to the right.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(7.6, 1.3 + 0.3 * max(len(rows), 3)), layout="constrained")
    ax = figure.subplots()
    ax.set_xscale("log")
    for number, one in enumerate(dots):
        y = np.arange(len(rows)) + 0.16 * (number - (len(dots) - 1) / 2)  # so that the intervals can be told apart
        there, never = np.isfinite(one.x), np.isinf(one.x)
        ends = there & np.isfinite(one.low)
        ax.hlines(y[ends], one.low[ends], np.minimum(one.high, limit)[ends], color=one.colour, linewidth=1.0, zorder=2)
        arrows = np.full(int(never.sum()), limit)
        ax.scatter(one.x[there], y[there], s=20.0, color=one.colour, marker=one.marker, label=one.name, zorder=3)
        ax.scatter(arrows, y[never], s=20.0, color=one.colour, marker=">", zorder=3)
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(x_label)
    ax.set_yticks(range(len(rows)), list(rows), fontsize=8.5, parse_math=False)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.grid(alpha=0.25, axis="x", which="both")
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8.5)
    return figure


@dataclass(frozen=True, eq=False)
class Bars:
    """One row of n bars, with its own axis; ``half`` of their 95 % intervals is NaN where there is none."""

    label: str
    values: NDArray[np.float64]
    half: NDArray[np.float64]
    colour: str


def two_bars_figure(names: Sequence[str], left: Bars, right: Bars) -> "Figure":
    """Draw two bars per name, the first on the left axis, the second on the right one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.3), layout="constrained")
    first = figure.subplots()
    second = first.twinx()
    x = np.arange(len(names))
    for ax, bars, shift in ((first, left, -0.2), (second, right, 0.2)):
        half = np.nan_to_num(bars.half)
        drawn = ax.bar(x + shift, bars.values, 0.38, yerr=half, capsize=2.5, color=bars.colour, error_kw={"lw": 0.9})
        ax.bar_label(drawn, [f"{value:.2f}" for value in bars.values], fontsize=7, padding=2)
        ax.set_ylabel(bars.label, color=bars.colour)
        ax.set_ylim(0, 1.14 * float((bars.values + half).max()))
        ax.spines["top"].set_visible(False)
    first.set_xticks(x, list(names), fontsize=8.5)
    return figure


def critical_difference_figure(
    names: Sequence[str], ranks: NDArray[np.float64], critical: float, groups: Sequence[Sequence[str]], title: str
) -> "Figure":
    """Draw mean ranks on a line, the best on the left, and a bar over each group not significantly different.

    Args:
        names: k contenders.
        ranks: (k,) their mean ranks.
        critical: the critical difference, drawn as a scale.
        groups: those not significantly different, each in the order of its ranks.
        title: above the line.
    """
    from matplotlib.figure import Figure

    k, half = len(names), (len(names) + 1) // 2
    bars = _levels([(min(at), max(at)) for at in ([ranks[list(names).index(name)] for name in one] for one in groups)])
    first = 0.9 + 0.32 * (1 + max((level for *_, level in bars), default=-1))  # the names are below the bars
    low, high = 1.0, float(max(k, 2))
    margin = 0.03 * (high - low)
    figure = Figure(figsize=(9.0, 0.9 + 0.42 * (first + 0.55 * half)), layout="constrained")
    ax = figure.subplots()
    _draw_scale(ax, k, critical)
    for number, i in enumerate(np.argsort(ranks, kind="stable")):
        left = number < half
        row = -first - 0.55 * (number if left else k - 1 - number)
        end = low - margin if left else high + margin
        ax.plot([ranks[i], ranks[i], end], [0.0, row, row], color="#555555", linewidth=0.8, zorder=1)
        label = f"{short(names[i], 34)}  {ranks[i]:.2f} " if left else f" {ranks[i]:.2f}  {short(names[i], 34)}"
        text = ax.text(end, row, label, ha="right" if left else "left", va="center", fontsize=9)
        text.set_parse_math(False)
    for begin, stop, level in bars:
        y = -0.45 - 0.32 * level
        ax.plot([begin - 0.3 * margin, stop + 0.3 * margin], [y, y], color=UPLOAD, linewidth=3.2, zorder=3)
    ax.set_ylim(-first - 0.55 * half, 1.7)
    ax.set_title(title, fontsize=10, loc="left")
    ax.axis("off")
    return figure


def _draw_scale(ax: "Axes", k: int, critical: float) -> None:
    """The line of the ranks 1 to k, and above it how long the critical difference is."""
    ax.plot([1.0, max(k, 2)], [0.0, 0.0], color="black", linewidth=1.2)
    for place in range(1, k + 1):
        ax.plot([place, place], [0.0, 0.22], color="black", linewidth=0.9)
        ax.text(place, 0.34, str(place), ha="center", va="bottom", fontsize=8)
    ax.plot([1.0, 1.0 + critical], [1.25, 1.25], color=END, linewidth=2.0)
    ax.text(1.0 + critical, 1.25, f"  critical difference {critical:.2f}", va="center", fontsize=8.5, color=END)


def _levels(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float, int]]:
    """Each span with the lowest level on which it overlaps no earlier one."""
    placed: list[tuple[float, float, int]] = []
    for begin, end in spans:
        taken = {level for b, e, level in placed if begin <= e and b <= end}
        placed.append((begin, end, next(level for level in range(len(spans)) if level not in taken)))
    return placed


def ranking_heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    ranks: NDArray[np.float64],
    texts: Sequence[Sequence[str]],
    best: NDArray[np.bool_],
    title: str,
) -> "Figure":
    """Draw mean ranks as colours, dark for the best, with a text in each field.

    Args:
        rows: n names, such as policies.
        columns: m names, such as scenarios.
        ranks: (n, m) mean ranks, from 1 to n.
        texts: n lists of m texts.
        best: (n, m) which fields have a frame.
        title: above it.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    n, m = ranks.shape
    figure = Figure(figsize=(max(6.0, 2.6 + 0.66 * m), 1.7 + 0.27 * n), layout="constrained")
    ax = figure.subplots()
    shown = ax.imshow(ranks, cmap="viridis", vmin=1.0, vmax=float(max(n, 2)), aspect="auto")
    for row in range(n):
        for column in range(m):
            dark = ranks[row, column] < 1.0 + 0.55 * (n - 1)
            weight = "bold" if best[row, column] else "normal"
            colour = "white" if dark else "black"
            ax.text(column, row, texts[row][column], ha="center", va="center", fontsize=7, color=colour, weight=weight)
            if best[row, column]:
                frame = Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, fill=False, edgecolor=END, linewidth=1.6)
                ax.add_patch(frame)
    ax.set_xticks(
        range(m), [short(name, 24) for name in columns], rotation=35, ha="right", fontsize=8, parse_math=False
    )
    ax.set_yticks(range(n), [short(name, 34) for name in rows], fontsize=8, parse_math=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=8)
    bar = figure.colorbar(shown, ax=ax, fraction=0.03, pad=0.01)
    bar.set_label("mean rank", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.ax.invert_yaxis()
    ax.set_title(title, fontsize=10, loc="left")
    return figure


# --- line styles by policy, the same on every page and in every figure ------------------------------------------------

# Where a line's look stands in STYLES: the default race in its order, and the others behind them.
_PLACES = {
    "diverse": 0,
    "greedy": 1,
    "optimal": 2,
    "deadline:seconds=8": 3,
    "deadline:seconds=25": 4,
    "proportional_fair:k=8": 5,
    "random:k=8": 6,
    "all": 7,
    "all:sharing=equal": 8,
    "round_robin": 9,
    "auto": 10,
}
# The colour of a policy by its name alone; with other settings it keeps the colour and gets another dash.
_FAMILIES = {"deadline": 3, "proportional_fair": 5, "random": 6} | {
    name: place for name, place in _PLACES.items() if ":" not in name
}
_DASHES = ("-", "--", "-.", ":")
_LOOKS = len(STYLES) * len(_DASHES)

LineStyle = tuple[str, str]


class Looks:
    """Who has which look. A line keeps the first that it gets, so that it looks the same on all pages of a server.

    Lines beyond the usual ones get their policy's colour with a dash that is free, or else any look that is free.
    """

    def __init__(self) -> None:
        self._places = _FAMILIES | _PLACES
        self._lock = threading.Lock()

    def of(self, line: str) -> LineStyle:
        """Colour and dash of a policy line; after the last look they come again."""
        with self._lock:
            place = self._places.get(line)
            if place is None:
                place = self._free(line)
                if len(self._places) < _LOOKS:
                    self._places[line] = place
        return _look(place)

    def _free(self, line: str) -> int:
        taken = set(self._places.values())
        any_ = len(STYLES) + zlib.crc32(line.encode()) % (_LOOKS - len(STYLES))
        family = _FAMILIES.get(line.partition(":")[0], any_)
        wanted = [*range(family, _LOOKS, len(STYLES)), *range(any_, _LOOKS), *range(len(STYLES), any_)]
        return next((one for one in wanted if one not in taken), any_)


_looks = Looks()


def _look(place: int) -> LineStyle:
    """Colours come again with each of the other dashes."""
    colour, dash = STYLES[place % len(STYLES)]
    return colour, _DASHES[(_DASHES.index(dash) + place // len(STYLES)) % len(_DASHES)]


def styles(lines: Iterable[str]) -> dict[str, LineStyle]:
    """Colour and dash of each policy line."""
    return {line: _looks.of(line) for line in lines}


def plan_styles(lines: Iterable[str]) -> dict[str, LineStyle]:
    """Looks of the plans of one table, whose k changes with every move of a slider: by the policy's name."""
    families = {line: line if line in _PLACES else line.partition(":")[0] for line in lines}
    return group_styles(families)


def group_styles(policies: Mapping[str, str]) -> dict[str, LineStyle]:
    """Looks of groups of runs by name, given each group's policy: its colour, and a dash for each of its groups.

    A fifth group of a policy has no dash left; it gets a look by its own name.
    """
    found: dict[str, LineStyle] = {}
    for name, policy in policies.items():
        colour, dash = _looks.of(policy)
        first = _DASHES.index(dash)
        dashes = [_DASHES[(first + i) % len(_DASHES)] for i in range(len(_DASHES))]
        free = [one for one in dashes if (colour, one) not in found.values()]
        found[name] = (colour, free[0]) if free else _looks.of(name)
    return found
