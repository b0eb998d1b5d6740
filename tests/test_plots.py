"""The pictures have the plan's numbers, and are written whole or not at all."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

import fedcell as fc
from fedcell import plots
from fedcell.plan import plans as planning
from fedcell.plan.device_table import parse_devices
from fedcell.plots import (
    Curve,
    Finish,
    MeasuredBars,
    RoundBars,
    cell_map_figure,
    check_picture_path,
    measured_figure,
    race_figure,
    round_figure,
    save_picture,
)

UPLOAD_S = np.array([0.5, 2.0, 1.0])
COMPUTE_S = np.array([3.0, 0.0, 1.0])


def panel(n: int = 3, title: str = "all", **changes: Any) -> RoundBars:
    upload_s, compute_s = np.resize(UPLOAD_S, n), np.resize(COMPUTE_S, n)
    band = fc.allocate(upload_s, compute_s)
    names, finish_s = [f"d{i}" for i in range(n)], compute_s + upload_s / band.shares
    drawn = RoundBars(title, names, compute_s, finish_s, band.shares, float(band.round_s))
    return replace(drawn, **changes)


def bars(ax: Axes, colour: str) -> list[Rectangle]:
    return [patch for patch in ax.patches if isinstance(patch, Rectangle) and to_hex(patch.get_facecolor()) == colour]


def test_bars_have_the_plans_numbers() -> None:
    drawn = panel()
    ax = round_figure([drawn]).axes[0]
    order = [1, 2, 0]  # by compute time
    assert [label.get_text() for label in ax.get_yticklabels()] == ["d1", "d2", "d0"]
    for row, i in enumerate(order):
        trains, uploads = bars(ax, plots.COMPUTE)[row], bars(ax, plots.UPLOAD)[row]
        assert trains.get_x() == 0
        assert trains.get_width() == COMPUTE_S[i]
        assert uploads.get_x() == COMPUTE_S[i]
        assert uploads.get_width() == pytest.approx(UPLOAD_S[i] / drawn.shares[i], rel=1e-12)
        assert uploads.get_x() + uploads.get_width() == pytest.approx(drawn.round_s, rel=1e-9)
        assert trains.get_y() + trains.get_height() / 2 == pytest.approx(row)
        assert ax.texts[row].get_text().strip() == f"{100 * drawn.shares[i]:.1f} %"
    (end,) = ax.lines
    assert list(end.get_xdata()) == [drawn.round_s, drawn.round_s]  # type: ignore[arg-type]
    assert ax.get_title(loc="left") == f"all: 3 devices in {drawn.round_s:.4g} s"
    assert ax.get_xlim()[1] > drawn.round_s


def test_the_figure_of_a_plan() -> None:
    table = parse_devices(b"device,upload_s,compute_s\na,0.5,3\nb,2,0\nc,1,1\n", "d.csv")
    cell = fc.Cell()
    figure = planning.figure(planning.make_plans(table, [fc.ProportionalFair(2), fc.All()], cell, 0.0, 0))
    first, second = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["c", "a"]
    assert [label.get_text() for label in second.get_yticklabels()] == ["b", "c", "a"]
    assert [bar.get_width() for bar in bars(first, plots.COMPUTE)] == [1.0, 3.0]
    assert first.get_xlim() == second.get_xlim()


def test_many_bars_keep_the_pictures_shape() -> None:
    compute_s = np.arange(500.0)[::-1]
    ax = round_figure([panel(500, compute_s=compute_s, finish_s=np.full(500, 600.0), round_s=600.0)]).axes[0]
    widths = [bar.get_width() for bar in bars(ax, plots.COMPUTE)]
    assert len(widths) == plots.MAX_BARS
    assert (widths[0], widths[-1]) == (0.0, 499.0)
    assert np.diff(widths).max() <= 14
    assert "500 devices" in ax.get_title(loc="left")
    assert "40 of them shown" in ax.get_title(loc="left")


def test_bars_are_as_thick_in_every_panel() -> None:
    figure = round_figure([panel(2), panel(20), panel(3)])
    figure.draw_without_rendering()
    thickness = [bars(ax, plots.COMPUTE)[0].get_window_extent().height for ax in figure.axes[:3]]
    assert thickness == pytest.approx([thickness[0]] * 3, rel=0.01)
    assert not figure.axes[3].get_visible()


def test_the_key_has_the_colours_even_without_bars() -> None:
    nothing = np.empty(0)
    empty = RoundBars("deadline", [], nothing, nothing, nothing, 0.0)
    figure = round_figure([empty])
    (key,) = figure.legends
    assert [text.get_text() for text in key.get_texts()] == ["trains", "uploads", "round ends"]
    assert [to_hex(patch.get_facecolor()) for patch in key.get_patches()] == [plots.COMPUTE, plots.UPLOAD]
    assert figure.axes[0].get_title(loc="left") == "deadline: 0 devices in 0 s"
    figure.draw_without_rendering()


def test_names_are_no_formulas_and_not_too_long() -> None:
    figure = round_figure([panel(names=[r"$\frac{1$", "$x^2$", "n" * 999], title="mine:word=$_{")])
    figure.draw_without_rendering()
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["$x^2$", "n" * 11 + "…" + "n" * 12, r"$\frac{1$"]
    assert not any(label.get_parse_math() for label in labels)


@pytest.mark.parametrize(
    ("share", "decimals", "text"),
    [(1.0, 1, "100.0 %"), (0.1234, 1, "12.3 %"), (0.1234, 2, "12.34 %"), (0.00042, 1, "0.042 %"), (1e-9, 2, "1e-07 %")],
)
def test_percent_never_says_zero(share: float, decimals: int, text: str) -> None:
    assert plots.percent(share, decimals) == text


# ---------------------------------------------------------------------------------------------------------- races


def curve(name: str, *steps: tuple[float, float]) -> Curve:
    x, accuracy = np.array(steps).T if steps else np.empty((2, 0))
    return Curve(name, x, accuracy, np.full(x.size, np.nan))


QUICK, SLOW = curve("quick", (10, 0.5), (30, 0.85), (100, 0.9)), curve("slow", (20, 0.4), (60, 0.8), (100, 0.89))
REACHED = {"quick": "30 s", "slow": "60 s"}
PLACES = {"quick": 30.0, "slow": 62.0}
WORDS = "mean time to 80 %:"


def test_a_race_has_names_at_the_ends_and_who_is_ahead() -> None:
    finish = Finish(0.8, REACHED, PLACES, WORDS, "quick", "slow", "2.0 x sooner")
    figure = race_figure([QUICK, SLOW], "a race", 120.0, finish=finish)
    figure.draw_without_rendering()
    (ax,) = figure.axes
    labels = {text.get_text(): text for text in ax.texts}
    assert {"quick:  30 s", "slow:  60 s", WORDS, "target", "2.0 x sooner than slow"} <= set(labels)
    quick, slow = (Text.get_window_extent(labels[name]) for name in ("quick:  30 s", "slow:  60 s"))  # without lines
    assert quick.y0 >= slow.y1 - 1  # not one over the other, in the order of the curves
    assert quick.x0 > ax.get_window_extent().x1
    assert quick.x1 <= figure.bbox.x1
    (dots,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert np.array_equal(dots.get_xydata(), [[30.0, 80.0], [62.0, 80.0]])  # as said, not as the curves cross


@pytest.mark.parametrize(
    "finish",
    [
        None,
        Finish(0.8, REACHED, PLACES, WORDS),
        Finish(0.95, {}, {"quick": 30.0}, WORDS, "quick", "slow", "x"),
        Finish(0.8, {}, PLACES, WORDS, "slow", "quick", "x"),
    ],
)
def test_nobody_is_said_to_be_ahead_who_is_not(finish: Finish | None) -> None:
    figure = race_figure([QUICK, SLOW, curve("never began")], "a race", np.inf, finish=finish)
    figure.draw_without_rendering()
    (ax,) = figure.axes
    assert not [line for line in ax.lines if line.get_marker() == "o"]
    assert any("never began" in text.get_text() for text in ax.texts)
    assert ax.get_xlim() == (0, 100)


@pytest.mark.parametrize("target", [0.01, 0.1, 0.97, 1.0])
def test_the_word_target_stays_within_the_axes(target: float) -> None:
    figure = race_figure([QUICK, SLOW], "a race", 120.0, finish=Finish(target, {}, {}, WORDS))
    figure.draw_without_rendering()
    (ax,) = figure.axes
    for text in ax.texts:
        if text.get_text() == "target":
            assert ax.get_ylim()[0] <= 100 * target
            assert text.get_window_extent().y1 <= ax.get_window_extent().y1


def test_long_names_that_end_otherwise_are_told_apart() -> None:
    names = [f"package.module:{'Long' * 20}:k={k}" for k in (1, 2)]
    (ax,) = race_figure([curve(name, (1, 0.5)) for name in names], "long", 9.0).axes
    assert len({text.get_text() for text in ax.texts}) == 2


def test_names_of_many_curves_stay_beside_the_axes_and_apart() -> None:
    figure = race_figure([curve(f"c{i}", (1, 0.5), (9, 0.8)) for i in range(30)], "many", 9.0)
    figure.draw_without_rendering()
    (ax,) = figure.axes
    heights = np.sort([Text.get_window_extent(text).y0 for text in ax.texts])
    assert np.diff(heights).min() == pytest.approx(np.diff(heights).max(), rel=0.2)
    assert figure.bbox.y0 <= heights[0]
    assert heights[-1] <= figure.bbox.y1


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(0.1, 8))
def test_spread_places_are_apart_and_no_nearer_ones_are(wanted: list[float], gap: float) -> None:
    places = plots.spread(np.array(wanted), gap, 0.0, 100.0)
    ordered = places[np.argsort(wanted, kind="stable")]
    assert (np.diff(ordered) >= gap - 1e-9).all()
    assert places.min() >= 0.0
    assert places.max() <= 100.0 + 1e-9
    away = np.sum((places - wanted) ** 2)
    for shift in (-0.01, 0.01):  # no group of neighbours can be moved for the better
        for first in range(len(wanted)):
            for last in range(first, len(wanted)):
                moved = ordered.copy()
                moved[first : last + 1] += shift
                if (np.diff(moved) >= gap).all() and moved[0] >= 0 and moved[-1] <= 100:
                    assert np.sum((moved - np.sort(wanted)) ** 2) >= away - 1e-6


# -------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x.gif", r"x\.gif is not a figure's name; it must end in \.png, \.svg or \.pdf"),
        ("x", "is not a figure's name"),
        (".png", "is not a figure's name"),
        ("no/x.png", "no is not a directory; create it first"),
        ("file/x.png", "file is not a directory; create it first"),
        ("folder.png", "it is a directory; give the name of a file"),
    ],
)
def test_places_that_cannot_be(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(fc.InputError, match=words):
        check_picture_path(tmp_path / name)
    with pytest.raises(fc.InputError, match=words):
        save_picture(Figure(), tmp_path / name)


def test_a_good_place_is_returned(tmp_path: Path) -> None:
    assert check_picture_path(tmp_path / "x.SVG") == tmp_path / "x.SVG"


def test_a_saved_picture_replaces_the_old_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_text("old")
    mask = os.umask(0o022)
    try:
        save_picture(round_figure([panel()]), path)
    finally:
        os.umask(mask)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("stage", ["drawing", "writing", "renaming"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, OSError])
def test_a_save_cut_short_leaves_the_old_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, kind: type[BaseException]
) -> None:
    path = tmp_path / "x.png"
    path.write_text("old")
    figure = round_figure([panel()])

    def stop(*arguments: object, **options: object) -> None:
        raise kind(28, "No space left on device")

    if stage == "drawing":
        monkeypatch.setattr(figure, "savefig", stop)
    elif stage == "renaming":
        monkeypatch.setattr(os, "replace", stop)
    else:
        monkeypatch.setattr(Path, "open", stop)
    with pytest.raises((kind, fc.InputError)):
        save_picture(figure, path)
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disc_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(fc.InputError, match=r"cannot write .*x\.png: No space left on device; give another place"):
        save_picture(Figure(), tmp_path / "x.png")


def test_a_gigantic_figure_is_saved_coarser(tmp_path: Path) -> None:
    figure = Figure(figsize=(0.1, 1000.0))
    save_picture(figure, tmp_path / "x.png")  # at 200 dpi its 200,000 pixels would be refused by the renderer
    assert int.from_bytes((tmp_path / "x.png").read_bytes()[20:24], "big") == 20_000


# --- ranks ---------------------------------------------------------------------------------------------------------


def texts_of(figure: Figure) -> dict[str, tuple[float, float]]:
    return {text.get_text().strip(): text.get_position() for text in figure.axes[0].texts}


def test_a_critical_difference_diagram_has_everybody_at_their_ranks_and_a_bar_for_each_group() -> None:
    names, ranks = ["c", "$a$", "b", "d"], np.array([2.5, 1.0, 2.25, 4.0])
    figure = plots.critical_difference_figure(names, ranks, 0.5, [["b", "c"]], "Ranks")
    (ax,) = figure.axes
    shown = texts_of(figure)
    assert {"$a$  1.00", "b  2.25", "2.50  c", "4.00  d", "critical difference 0.50"} <= set(shown)
    assert shown["$a$  1.00"][0] < 1.0  # the best on the left
    assert shown["4.00  d"][0] > 4.0
    feet = {line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 3}  # type: ignore[arg-type, index]
    assert feet == set(ranks)
    (bar,) = [line for line in ax.lines if to_hex(line.get_color()) == plots.UPLOAD]
    assert np.asarray(bar.get_xdata()) == pytest.approx([2.25, 2.5], abs=0.05)
    (scale,) = [line for line in ax.lines if to_hex(line.get_color()) == plots.END]
    assert np.diff(np.asarray(scale.get_xdata(), float)) == pytest.approx([0.5])


def test_bars_of_groups_that_overlap_do_not_hide_each_other() -> None:
    names, ranks = list("abcde"), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    figure = plots.critical_difference_figure(names, ranks, 1.5, [["a", "b"], ["b", "c"], ["d", "e"]], "Ranks")
    bars = [line for line in figure.axes[0].lines if to_hex(line.get_color()) == plots.UPLOAD]
    first, second, third = (float(np.asarray(bar.get_ydata())[0]) for bar in bars)
    assert first != second
    assert third == first


def test_a_heat_map_has_a_text_in_every_field_and_frames_the_best() -> None:
    ranks = np.array([[1.0, 3.0, 2.0], [2.0, 1.0, 1.0]])
    texts = [["a", "b", "c"], ["d", "e", "f"]]
    figure = plots.ranking_heat_map(["one", "two"], ["x", "y", "z"], ranks, texts, ranks == 1.0, "Ranks")
    ax = figure.axes[0]
    assert texts_of(figure)["f"] == (2, 1)
    np.testing.assert_array_equal(ax.images[0].get_array(), ranks)
    framed = {(round(p.get_x() + 0.47), round(p.get_y() + 0.46)) for p in ax.patches if isinstance(p, Rectangle)}
    assert framed == {(0, 0), (1, 1), (2, 1)}
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["one", "two"]


def measured(measured_s: Sequence[float], number: int = 1) -> MeasuredBars:
    n = len(measured_s)
    names = [str(i) for i in range(n)]
    return MeasuredBars(
        number, names, np.full(n, 2.0), np.full(n, 1.0), np.array(measured_s), max(2.5, np.nanmax(measured_s))
    )


def measured_rectangles(rounds: Sequence[MeasuredBars]) -> list[Rectangle]:
    [ax] = measured_figure([("optimal", rounds)]).axes
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def test_a_bar_is_filled_to_what_was_measured_and_outlined_to_what_was_predicted() -> None:
    drawn = measured_rectangles([measured([2.25, 1.75])])
    ends = sorted((round(r.get_x() + r.get_width(), 2), bool(to_rgba(r.get_facecolor())[3])) for r in drawn)
    assert ends == [(1.0, True), (1.0, True), (1.75, True), (2.0, False), (2.0, False), (2.25, True)]


def test_a_device_that_was_missing_is_hatched() -> None:
    drawn = measured_rectangles([measured([2.25, np.nan])])
    assert [r.get_hatch() for r in drawn if r.get_hatch()] == ["////"]


@pytest.mark.parametrize(("devices", "shown"), [(4, plots.MAX_MEASURED_BARS // 4), (50, 1)])
def test_only_so_many_rounds_are_drawn_as_have_room(devices: int, shown: int) -> None:
    figure = measured_figure([("optimal", [measured([2.0] * devices, number) for number in range(1, 30)])])
    titles = [text.get_text().strip() for text in figure.axes[0].texts]
    assert titles == [f"round {number}" for number in range(1, shown + 1)]


def test_a_cell_map_has_devices_at_their_places_and_those_that_trained_as_large_as_their_shares() -> None:
    positions_m = np.array([[100.0, 0.0], [0.0, 200.0], [-300.0, 0.0]])
    shares, delivered = np.array([0.5, 0.25, 0.0]), np.array([True, False, False])
    figure = cell_map_figure(positions_m, 400.0, shares, delivered, "round 3")
    [ax] = figure.axes
    everybody, arrived, lost, *_ = (one for one in ax.collections if isinstance(one, PathCollection))
    np.testing.assert_array_equal(everybody.get_offsets(), positions_m)
    assert (np.asarray(arrived.get_offsets()).tolist(), arrived.get_sizes().tolist()) == ([[100.0, 0.0]], [320.0])
    assert (np.asarray(lost.get_offsets()).tolist(), lost.get_sizes().tolist()) == ([[0.0, 200.0]], [170.0])
    assert ax.get_title(loc="left") == "round 3"
