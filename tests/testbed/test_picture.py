"""The picture of predicted against measured."""

from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from fedcell.testbed.picture import MOST_BARS, MeasuredBars, cell_figure


def bars(measured_s: Sequence[float], number: int = 1) -> MeasuredBars:
    n = len(measured_s)
    names = [str(i) for i in range(n)]
    return MeasuredBars(
        number, names, np.full(n, 2.0), np.full(n, 1.0), np.array(measured_s), max(2.5, np.nanmax(measured_s))
    )


def rectangles(rounds: Sequence[MeasuredBars]) -> list[Rectangle]:
    [ax] = cell_figure([("optimal", rounds)]).axes
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def test_a_bar_is_filled_to_what_was_measured_and_outlined_to_what_was_predicted() -> None:
    drawn = rectangles([bars([2.25, 1.75])])
    ends = sorted((round(r.get_x() + r.get_width(), 2), bool(to_rgba(r.get_facecolor())[3])) for r in drawn)
    assert ends == [(1.0, True), (1.0, True), (1.75, True), (2.0, False), (2.0, False), (2.25, True)]


def test_a_device_that_was_missing_is_hatched() -> None:
    drawn = rectangles([bars([2.25, np.nan])])
    assert [r.get_hatch() for r in drawn if r.get_hatch()] == ["////"]


@pytest.mark.parametrize(("devices", "shown"), [(4, MOST_BARS // 4), (50, 1)])
def test_only_so_many_rounds_are_drawn_as_have_room(devices: int, shown: int) -> None:
    figure = cell_figure([("optimal", [bars([2.0] * devices, number) for number in range(1, 30)])])
    titles = [text.get_text().strip() for text in figure.axes[0].texts]
    assert titles == [f"round {number}" for number in range(1, shown + 1)]
