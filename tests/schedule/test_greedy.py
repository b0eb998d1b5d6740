"""Greedy looks at few devices and solves large sets by a series; which devices it adds stays what it was."""

from collections.abc import Callable

import numpy as np
import pytest

import fedcell as fc
from fedcell.schedule.greedy import _UNKNOWN, _duplicates, _grow, grow

M = 90


def literal(view: fc.RoundView, most: int, theta: float, deadline_s: float) -> list[int]:
    """Algorithm 2 word for word: (P2) for every remaining device at every step; of equals, the first."""
    order: list[int] = view.forced.tolist()
    rest, value = np.setdiff1d(np.arange(len(view)), view.forced), np.inf
    if order:
        value = (theta + 1.0 / len(order)) * rounds(view, np.array([order]))[0]
    while len(order) < most:
        sets = np.column_stack([np.tile(order, (rest.size, 1)).astype(int), rest])
        found_s = rounds(view, sets)
        at = int(np.argmax(found_s <= found_s.min() * (1 + 1e-12)))
        next_value = (theta + 1.0 / sets.shape[1]) * found_s[at]
        if found_s[at] > deadline_s or next_value > value * (1 + 1e-13):
            break
        order.append(int(rest[at]))
        rest, value = np.delete(rest, at), next_value
    return order


def rounds(view: fc.RoundView, sets: np.ndarray) -> np.ndarray:
    return np.asarray(fc.allocate(view.upload_s[sets], view.compute_s[sets], law=view.law.take(sets)).round_s)


def cell(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(len(kind))
    match kind:
        case "paper":
            drawn = fc.World(fc.Cell(radius_m=1400.0), fc.Devices(M)).conditions(1)
            return drawn.upload_s, drawn.compute_s, drawn.snr
        case "equal":
            return np.full(M, 0.3), np.full(M, 2.0), np.full(M, 7.0)
        case "few kinds":
            kinds = rng.integers(0, 3, M)
            return np.array([0.1, 0.3, 0.1])[kinds], np.array([2.0, 1.0, 4.0])[kinds], np.array([1.0, 9.0, 9.0])[kinds]
        case _:
            return rng.lognormal(-1, 2, M), rng.lognormal(1, 1, M), rng.lognormal(2, 2, M)


LAWS: dict[str, Callable[[np.ndarray], fc.Density | fc.Power | fc.Ingress]] = {
    "density": lambda _: fc.Density(),
    "power": fc.Power,
    "blocks": lambda _: fc.Blocks(400),
    "ingress": lambda _: fc.Ingress(pipe_s=0.05),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", ["paper", "equal", "few kinds", "spread"])
def test_what_is_added_is_what_the_literal_algorithm_adds(kind: str, law: str) -> None:
    c, t, snr = cell(kind)
    forced = np.isin(np.arange(M), [5, 50]) if kind != "paper" else None
    view = fc.RoundView(c, t, law=LAWS[law](snr), must_include=forced)
    equals = _duplicates(view.needs)
    if law in ("blocks", "ingress"):  # several may lengthen the round equally, by nothing: a look at all of them
        found, _ = _grow(*view.needs, view.forced, (M, 0.0, np.inf, M), M, (_UNKNOWN, _UNKNOWN, _UNKNOWN))
        expected = found.tolist()
    else:
        expected = literal(view, M, 0.0, np.inf)
    for ahead in (1, 2, 16):
        found, crowded = _grow(*view.needs, view.forced, (M, 0.0, np.inf, 5), ahead, equals)
        assert not crowded
        assert sorted(found[: view.forced.size]) == view.forced.tolist()
        assert found[view.forced.size :].tolist() == expected[view.forced.size :]
        equals[2][:] = 0
    assert sorted(grow(view, M, theta=0.0)) == sorted(expected)


def test_duplicates_are_kinds_and_ranks() -> None:
    view = fc.RoundView(np.array([1.0, 2.0, 1.0, 1.0]), np.array([3.0, 3.0, 3.0, 4.0]))
    kind, rank, gone = _duplicates(view.needs)
    assert kind[0] == kind[2]
    assert len(set(kind.tolist())) == gone.size == 3
    assert rank.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("deadline_s", [700.35, 1500.05])
def test_thousands_of_equal_devices(deadline_s: float) -> None:
    """t + n c; once each of n devices was looked at n times, 80,000 of them for 21 s."""
    view = fc.RoundView(np.full(20_000, 0.1), np.full(20_000, 3.0))
    n = int((deadline_s - 3.0) / 0.1)
    assert fc.Deadline(deadline_s).decide(view, np.random.default_rng(0)).devices.tolist() == list(range(n))
    assert fc.Greedy(0.0).decide(view, np.random.default_rng(0)).devices.size == 20_000
    theta = 1e-5  # (theta + 1/n) (3 + n / 10) is least at n = sqrt(30 / theta)
    assert fc.Greedy(theta).decide(view, np.random.default_rng(0)).devices.size == round(np.sqrt(30 / theta))


def test_equal_devices_must_be_named() -> None:
    view = fc.RoundView(np.full(500, 0.1), np.full(500, 3.0))
    found, crowded = _grow(*view.needs, view.forced, (500, 0.0, np.inf, 500), 4, (_UNKNOWN, _UNKNOWN, _UNKNOWN))
    assert crowded
    assert not found.size


def test_a_series_is_as_good_as_a_solver() -> None:
    """1,500 different devices, with and without it."""
    rng = np.random.default_rng(3)
    view = fc.RoundView(rng.lognormal(-6, 1, 1500), 3.0 + rng.exponential(0.1, 1500))
    for theta in (0.0, 1e-3):
        with_series, without = (
            _grow(*view.needs, view.forced, (1500, theta, np.inf, many), 4, (_UNKNOWN, _UNKNOWN, _UNKNOWN))[0]
            for many in (20, 10_000)
        )
        assert without.size > 300
        assert with_series.tolist() == without.tolist()


def test_where_rounding_decides_the_solver_does() -> None:
    """3 + 600 x 0.1 s is the deadline, but for rounding."""
    view = fc.RoundView(np.full(700, 0.1), np.full(700, 3.0))
    for deadline_s in (62.9, 63.0, 63.1, 63.2):
        with_series, without = (
            _grow(*view.needs, view.forced, (700, np.nan, deadline_s, many), 4, _duplicates(view.needs))[0].size
            for many in (20, 10_000)
        )
        assert with_series == without


@pytest.mark.parametrize("seed", range(6))
def test_dedicated_lines_are_taken_by_their_ends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    c, t = rng.lognormal(0, 1, 40), rng.exponential(3.0, 40)
    sizes = set()
    for must in (None, np.isin(np.arange(40), [3, 30])):
        view = fc.RoundView(c, t, law=fc.Dedicated(), must_include=must)
        for theta, deadline_s in ((-0.02, np.inf), (0.05, np.inf), (0.0, 4.0), (0.3, np.inf), (1.0, 9.0)):
            expected = literal(view, 40, theta, deadline_s)
            assert sorted(grow(view, 40, theta, deadline_s)) == sorted(expected)
            sizes.add(len(expected))
    assert len(sizes) > 2


def test_a_limit_of_devices_is_a_whole_number_of_at_least_one() -> None:
    with pytest.raises(fc.InputError, match="max_devices is 0; give a whole number of devices of at least 1"):
        fc.Greedy(max_devices=0)
