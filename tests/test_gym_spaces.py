"""Observations and actions: views as arrays, sets and scores as policies."""

import numpy as np
import pytest

import fedcell as fc
from fedcell.gym import Given, Scored, WithEffort, observe


def test_scores_take_the_best_set_of_their_order() -> None:
    """Against all sets that the order allows, one by one."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        upload_s, compute_s, scores = rng.exponential(size=7), rng.exponential(size=7), rng.normal(size=7)
        view = fc.RoundView(upload_s, compute_s)
        order = np.argsort(-scores)
        rounds_s = [float(fc.allocate(upload_s[order[:n]], compute_s[order[:n]]).round_s) for n in range(1, 8)]
        costs = [(0.1 + 1 / n) * round_s for n, round_s in enumerate(rounds_s, start=1)]
        expected = sorted(order[: int(np.argmin(costs)) + 1].tolist())
        found = Scored(tuple(scores), 0.1).decide(view, rng).devices.tolist()
        assert found == expected
    many = fc.RoundView(rng.exponential(size=1000), rng.exponential(size=1000))
    assert Scored(tuple(rng.normal(size=1000))).decide(many, rng).devices.size >= 1


def test_scores_go_by_the_times_of_the_work_and_bits_decided() -> None:
    """Where training is nearly all of a round a tenth of it leaves the uploads, which few devices make short."""
    upload_s, compute_s = np.array([1.0, 1.0, 2.0, 4.0]), np.full(4, 100.0)
    view = fc.RoundView(upload_s, compute_s, weights=1e6)
    scores = Scored((4.0, 3.0, 2.0, 1.0), theta=0.3)
    few = WithEffort(scores, epochs=0.01, bits=32).decide(view, np.random.default_rng(0))
    assert scores.decide(view, np.random.default_rng(0)).devices.size == 4
    by_hand = fc.RoundView(upload_s, 0.01 * compute_s)
    assert few.devices.tolist() == scores.decide(by_hand, np.random.default_rng(0)).devices.tolist()
    assert few.devices.size < 4


def test_absent_devices_are_zeros_and_are_not_scheduled() -> None:
    view = fc.RoundView(np.array([1.0, 2.0]), np.array([3.0, 4.0]), ids=np.array([1, 3]), profiles=np.eye(2))
    seen = observe(view, 5, 2)
    assert seen["devices"][[0, 2, 4]].tolist() == np.zeros((3, 10)).tolist()
    assert seen["devices"][3, -2:].tolist() == [0.0, 1.0]
    assert Given((0, 3)).decide(view, np.random.default_rng(0)).devices.tolist() == [1]
    assert not observe(None, 5, 2)["devices"].any()


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ((0.0, 1.0), "there are 2 scores, but a device has the number 2"),
        ((0.0, np.nan, 1.0), r"scores\[1\] is not a finite number"),
    ],
)
def test_bad_scores_are_refused(scores: tuple[float, ...], message: str) -> None:
    with pytest.raises(fc.InputError, match=message):
        Scored(scores).decide(fc.RoundView(np.ones(3), np.ones(3)), np.random.default_rng(0))
