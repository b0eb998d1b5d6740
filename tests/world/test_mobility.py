import re
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedcell.errors import InputError
from fedcell.rng import stream
from fedcell.types import Floats
from fedcell.world import MOBILITIES, Cell, Mobility, RandomWaypoint, Redrawn, Static, mobility
from fedcell.world.cell import uniform_in_disc

CELL = Cell(radius_m=1000.0)
LAWS: list[Mobility] = [Redrawn(), Static(), RandomWaypoint()]


@pytest.mark.parametrize("law", LAWS)
def test_every_law_begins_uniform_and_is_a_function_of_its_arguments(law: Mobility) -> None:
    places = law.positions(CELL, 5000, 3, 0, 0.0)
    assert places.shape == (5000, 2)
    assert stats.kstest(np.hypot(*places.T) ** 2 / 1e6, "uniform").pvalue > 1e-3
    np.testing.assert_array_equal(law.positions(CELL, 5000, 3, 0, 0.0), places)
    assert not np.allclose(law.positions(CELL, 5000, 4, 0, 0.0), places)


@pytest.mark.parametrize("law", LAWS)
def test_more_devices_leave_the_first_ones_where_they_are(law: Mobility) -> None:
    few, many = law.positions(CELL, 7, 3, 2, 900.0), law.positions(CELL, 50, 3, 2, 900.0)
    np.testing.assert_allclose(few, many[:7], rtol=1e-12)


def test_what_round_and_clock_change() -> None:
    for law, by_round, by_clock in zip(LAWS, [True, False, False], [False, False, True], strict=True):
        here = law.positions(CELL, 20, 1, 0, 5.0)
        assert np.array_equal(here, law.positions(CELL, 20, 1, 1, 5.0)) is not by_round
        assert np.array_equal(here, law.positions(CELL, 20, 1, 0, 6.0)) is not by_clock


def walk_literally(law: RandomWaypoint, count: int, seed: int, device: int, clock_s: float) -> Floats:
    """The slow twin: one device, leg by leg, until the clock."""
    (slowest, fastest), (shortest, longest) = law.speed_mps, law.pause_s
    at: Floats = Static().positions(CELL, count, seed, 0, 0.0)[device]
    left_s, leg = clock_s, 0
    while True:
        unit = stream(seed, "waypoint", leg).random((count, 4))
        target: Floats = uniform_in_disc(CELL.radius_m, unit[:, :2])[device]
        speed_mps = slowest + (fastest - slowest) * float(unit[device, 2])
        travel_s = float(np.linalg.norm(target - at)) / speed_mps
        if left_s < travel_s:
            return at + (target - at) * (left_s / travel_s)
        pause_s = shortest + (longest - shortest) * float(unit[device, 3])
        if left_s < travel_s + pause_s:
            return target
        at, left_s, leg = target, left_s - travel_s - pause_s, leg + 1


@pytest.mark.parametrize("clock_s", [0.0, 1.0, 350.0, 2000.0, 60_000.0])
def test_waypoint_equals_its_slow_twin(clock_s: float) -> None:
    law = RandomWaypoint((0.5, 2.0), (0.0, 300.0))
    places = law.positions(CELL, 5, 11, 0, clock_s)
    for device in range(5):
        np.testing.assert_allclose(places[device], walk_literally(law, 5, 11, device, clock_s), atol=1e-6)


def test_waypoint_does_not_depend_on_the_order_of_the_questions() -> None:
    law = RandomWaypoint((1.0, 30.0), (0.0, 5.0))
    clocks = [float(clock) for clock in np.random.default_rng(0).uniform(0, 20_000, 40)]

    def ask(order: list[float]) -> dict[float, Floats]:
        # A law of slightly different pauses is a different key of the cache, so other walks come in between.
        for other in range(10):
            RandomWaypoint((1.0, 30.0), (0.0, 6.0 + other)).positions(CELL, 4, 2, 0, 1e4)
        return {clock: law.positions(CELL, 13, 2, 0, clock) for clock in order}

    forward, backward, shuffled = ask(sorted(clocks)), ask(sorted(clocks, reverse=True)), ask(clocks)
    for clock in clocks:
        np.testing.assert_array_equal(forward[clock], backward[clock])
        np.testing.assert_array_equal(forward[clock], shuffled[clock])


def test_waypoint_keeps_inside_and_below_its_top_speed() -> None:
    law = RandomWaypoint((0.5, 2.0), (0.0, 10.0))
    clocks = np.arange(0.0, 6000.0, 7.0)
    paths = np.array([law.positions(CELL, 30, 5, 0, clock) for clock in clocks])
    assert np.hypot(paths[..., 0], paths[..., 1]).max() <= CELL.radius_m * (1 + 1e-12)
    moved = np.array([np.hypot(*(after - before).T) for before, after in pairwise(paths)])
    assert moved.max() <= 2.0 * 7.0 * (1 + 1e-9)
    assert moved.max() > 1.9 * 7.0
    assert np.median(moved) > 0.5 * 7.0


def test_waypoint_without_pauses_moves_at_its_speed_and_stands_in_them() -> None:
    always = RandomWaypoint((1.5, 1.5), (0.0, 0.0))
    moved = always.positions(CELL, 500, 6, 0, 1001.0) - always.positions(CELL, 500, 6, 0, 1000.0)
    straight = np.isclose(np.hypot(*moved.T), 1.5, rtol=1e-9)
    assert straight.mean() > 0.98
    mostly = RandomWaypoint((100.0, 100.0), (1e5, 1e5))
    standing = mostly.positions(CELL, 500, 6, 0, 5e4)
    np.testing.assert_array_equal(standing, mostly.positions(CELL, 500, 6, 0, 9e4))


def test_waypoint_starts_at_the_static_places_and_gathers_in_the_middle() -> None:
    law = RandomWaypoint((1.0, 1.0), (0.0, 0.0))
    np.testing.assert_array_equal(law.positions(CELL, 9, 8, 0, 0.0), Static().positions(CELL, 9, 8, 0, 0.0))
    late = law.positions(CELL, 3000, 8, 0, 10_000.0)
    assert np.mean(np.hypot(*late.T) ** 2) / 1e6 < 0.42  # uniform: 1/2; its standard error here is 0.005


def test_a_clock_too_far_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mobility, "_MAX_DEVICE_LEGS", 320)
    RandomWaypoint().positions(CELL, 20, 1, 0, 1e3)
    legs = 8
    while mobility._walk(RandomWaypoint(), CELL.radius_m, 20, 1, legs).known_until_s <= 1e4:
        legs *= 2
    for most, enough in ((20 * legs, True), (20 * legs - 1, False)):
        monkeypatch.setattr(mobility, "_MAX_DEVICE_LEGS", most)
        with nullcontext() if enough else pytest.raises(InputError, match="walk more legs than fit"):
            RandomWaypoint().positions(CELL, 20, 1, 0, 1e4)
    monkeypatch.setattr(mobility, "_MAX_DEVICE_LEGS", 320)
    with pytest.raises(InputError, match=re.escape("clock_s is 1e+06, by which 20 devices walk more legs than fit")):
        RandomWaypoint().positions(CELL, 20, 1, 0, 1e6)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"speed_mps": (0.0, 1.0)}, "speed_mps is 0.0; give a finite number above 0"),
        ({"speed_mps": (2.0, 1.0)}, "speed_mps is (2.0, 1.0); give the least first"),
        ({"speed_mps": 1.5}, "speed_mps is 1.5; give a pair (least, most)"),
        ({"speed_mps": (1.0, float("inf"))}, "speed_mps is inf; give a finite number above 0"),
        ({"pause_s": (-1.0, 1.0)}, "pause_s is -1.0; give a finite number of at least 0"),
        ({"pause_s": (0.0, float("nan"))}, "pause_s is nan; give a finite number of at least 0"),
    ],
)
def test_a_bad_waypoint_gets_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        RandomWaypoint(**arguments)


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("redrawn", Redrawn()),
        ("static", Static()),
        ("waypoint", RandomWaypoint()),
        ("waypoint:speed_mps=1.5,pause_s=0", RandomWaypoint((1.5, 1.5), (0.0, 0.0))),
        ("waypoint:speed_mps=0.5..30", RandomWaypoint((0.5, 30.0))),
    ],
)
def test_names_of_laws(text: str, law: Mobility) -> None:
    assert MOBILITIES.parse(text) == law


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("waypiont", "unknown mobility 'waypiont'; did you mean 'waypoint'?"),
        ("", "unknown mobility ''; choose from redrawn, static, waypoint"),
        (3, "mobility is 3; give its name as text"),
        ("static:speed_mps=1", "mobility 'static' takes no settings, but 'speed_mps=1' was given; leave it out"),
        ("waypoint:speed=1", "mobility 'waypoint' has no setting 'speed'; did you mean 'speed_mps'?"),
        ("waypoint:x=1", "mobility 'waypoint' has no setting 'x'; choose from pause_s, speed_mps"),
        ("waypoint:pause_s=1,pause_s=2", "mobility 'waypoint' is given pause_s twice; give it once"),
        ("waypoint:speed_mps=fast", "speed_mps of mobility 'waypoint' is 'fast'; give a number, or two as least..most"),
        ("waypoint:speed_mps=1..", "speed_mps of mobility 'waypoint' is '1..'; give a number, or two as least..most"),
        ("waypoint:speed_mps", "'speed_mps' in mobility 'waypoint' is not understood; write key=value"),
        ("waypoint:speed_mps=0", "speed_mps is 0.0; give a finite number above 0"),
    ],
)
def test_bad_names_get_one_sentence(text: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        MOBILITIES.parse(text)
