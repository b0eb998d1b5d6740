"""Auto against all sets and bits, its measurements against loops, and what it promises beyond the contract."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.quantisation import BITS
from fedcell.schedule import auto
from fedcell.schedule.plan import Report
from twins.auto import NAMES, best_of_all, draw_view, learnt, value_of

RNG = np.random.default_rng(0)


def decided(view: fc.RoundView, policy: fc.Auto) -> tuple[fc.Plan, int, float]:
    plan = policy.decide(view, RNG)
    assert plan.bits is not None
    assert plan.epochs is not None
    return plan, int(plan.bits[0]), float(plan.epochs[0])


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_against_all_sets_and_bits(seed: int, told: bool) -> None:
    view = draw_view(1 + seed % 6, seed, forced=seed % 2, told=told)
    most = max(1, len(view) - seed % 3)
    plan, bits, epochs = decided(view, fc.Auto(max_devices=most))
    best, _, _ = best_of_all(view, epochs, most)
    found = value_of(view, plan.devices.tolist(), bits, epochs)
    assert best * (1 - 1e-9) <= found <= 1.1 * best


def test_most_small_cells_are_solved_exactly() -> None:
    exact = 0
    for seed in range(100, 130):
        view = draw_view(6, seed)
        plan, bits, epochs = decided(view, fc.Auto())
        exact += value_of(view, plan.devices.tolist(), bits, epochs) <= best_of_all(view, epochs, 6)[0] * (1 + 1e-9)
    assert exact >= 28


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("kind", [fc.Multicast, fc.Unicast])
@pytest.mark.parametrize("seed", range(4))
def test_under_a_downlink(kind: Any, seed: int, told: bool) -> None:
    view = draw_view(5, seed, told=told, downlink=kind(np.random.default_rng(seed).lognormal(-2.0, 1.0, 5)))
    plan, bits, epochs = decided(view, fc.Auto())
    found = value_of(view, plan.devices.tolist(), bits, epochs)
    assert found <= best_of_all(view, epochs, 5)[0] * 1.1
    assert plan.starts_s is not None


@pytest.mark.parametrize("profiles", [True, False])
def test_what_it_learns_is_what_loops_find(profiles: bool) -> None:
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {} if profiles else {"profiles": None}
    view = draw_view(7, 3, told=False, updates=np.full((7, 8), np.nan), **columns)
    policy = fc.Auto()
    for r in range(4):
        devices = np.sort(rng.choice(7, 4, replace=False))
        updates, epochs = rng.normal(size=(4, 8)) + 0.3, rng.choice([0.1, 0.25, 2.0], 4)
        squares = np.square(updates).sum(axis=1) * rng.uniform(0.5, 1.0, 4)
        signals = {"updates": updates, "peaks": 99 * squares, "absolutes": 9 * squares, "squares": squares}
        report = Report(devices, epochs, np.full(4, 2.0), 1.5 + r, signals)
        found = dict(zip(NAMES, np.asarray(policy.learn(view, report)), strict=True))
        wanted = learnt(view, report)
        assert {name: found[name] for name in NAMES[:11]} == pytest.approx({name: wanted[name] for name in NAMES[:11]})
        assert found["seconds"] == pytest.approx(0.9 * wanted["seconds"] / 0.9 + 1.5 + r)
        assert found["rounds"] == pytest.approx(sum(0.9**k for k in range(r + 1)))
        assert found["lacked"] > wanted["lacked"]
        last, worked = np.array(view.updates), np.full(7, np.nan) if r == 0 else np.array(view.heard_epochs)
        last[devices], worked[devices] = updates, epochs
        view = replace(view, updates=last, heard_epochs=worked, learnt=np.array([*found.values()]))


def test_measures_what_updates_are_made_of() -> None:
    """Updates drawn as g + zeta z + eta e + noise: after some rounds each part is found."""
    rng, M, d = np.random.default_rng(5), 20, 400
    labels = np.repeat(np.eye(10), 2, axis=0)
    z = (labels - labels.mean(axis=0)) / np.sqrt(0.9)
    directions, own = rng.normal(size=(10, d)) / np.sqrt(d), rng.normal(size=(M, d)) / np.sqrt(d)
    common = rng.normal(size=d) / np.sqrt(d)
    view = draw_view(M, 0, told=False, profiles=labels, updates=np.full((M, d), np.nan))
    for _ in range(60):
        devices = np.sort(rng.choice(M, 6, replace=False))
        noise = rng.normal(size=(6, d)) / np.sqrt(d)
        updates = common + 2.0 * z[devices] @ directions + 1.5 * own[devices] + noise
        signals = {"updates": updates, **dict.fromkeys(("peaks", "absolutes", "squares"), np.square(updates).sum(1))}
        report = Report(devices, np.ones(6), np.full(6, 32.0), 1.0, signals)
        kept = fc.Auto().learn(view, report)
        last, worked = np.array(view.updates), np.full(M, 1.0)
        last[devices] = updates
        view = replace(view, updates=last, heard_epochs=worked, learnt=kept)
    makeup = auto._kept(view).makeup()
    assert makeup.common == pytest.approx(1.0, abs=0.5)
    assert makeup.own == pytest.approx(4.0, rel=0.3)
    assert makeup.hidden == pytest.approx(2.25, rel=0.4)
    assert makeup.drawn == pytest.approx(1.0, abs=0.8)


def test_a_debt_does_not_make_short_rounds_look_best() -> None:
    """Why time has a price: near devices that cannot pay what is lacking are not taken for ever (docs/auto.md)."""
    profiles = np.repeat(np.eye(2), 4, axis=0)
    near, far = np.repeat([0.1, 3.0], 4), np.full(8, 6.0)
    columns: dict[str, Any] = {"profiles": profiles, "recent": np.repeat([2.0, 0.0], 4), "weights": 50_000}
    sums = dict.fromkeys(NAMES, 0.0) | {
        "pairs": 20.0, "d": -2.0, "dd": 10.0, "y": 0.0, "dy": 10.0, "devices": 20.0, "squares": 24.0, "profiles": 20.0,
        "work": np.log(0.05), "bits": 18.0, "rounds": 9.0, "lacked": 9.0, "seconds": 9.0,
    }  # fmt: skip
    view = fc.RoundView(near, far, learnt=list(sums.values()), **columns)
    assert fc.Auto().decide(view, RNG).devices.max() >= 4


def test_decisions_can_be_fixed() -> None:
    view = draw_view(8, 1)
    plan, bits, epochs = decided(view, fc.Auto(epochs=2, bits=8))
    assert (bits, epochs) == (8, 2.0)
    assert plan.round_s > fc.Auto(bits=8).decide(view, RNG).round_s
    paper = fc.Auto(who="paper", epochs=1, bits=32).decide(view, RNG)
    assert paper.devices.tolist() == fc.Greedy().decide(view, RNG).devices.tolist()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0.0}, "epochs"),
        ({"epochs": 1.5}, "whole number"),
        ({"bits": 1}, "bits is 1"),
        ({"bits": 20}, "bits is 20"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"who": "me"}, "who is 'me'"),
    ],
)
def test_settings_are_checked(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(fc.InputError, match=message):
        fc.Auto(**setting)


def test_the_work_takes_as_long_as_the_uploads() -> None:
    """The median device trains as long as the fastest quarter uploads with the bits of late; within its bounds."""
    view = draw_view(20, 4, told=False, samples=np.full(20, 10**6))
    fast = np.sort(view.upload_s)[:5]
    sending_s = float(fc.allocate(view.upload_part(2) * fast, np.zeros(5)).round_s)
    _, _, epochs = decided(view, fc.Auto())
    assert epochs * np.median(view.compute_s) == pytest.approx(sending_s)
    slow = fc.RoundView(1e5 * view.upload_s, view.compute_s, weights=50_000)
    assert decided(slow, fc.Auto())[2] == 5.0
    quick = fc.RoundView(view.upload_s, 1e6 * view.compute_s, weights=50_000, samples=np.full(20, 3000))
    assert decided(quick, fc.Auto())[2] == pytest.approx(10 / 3000)


def test_unknown_training_times_are_tried_with_little_work() -> None:
    view = fc.RoundView(np.ones(4), np.zeros(4), weights=50_000)
    assert decided(view, fc.Auto())[2] == 0.05


def test_where_bits_cannot_be_decided_it_decides_the_rest() -> None:
    plan = fc.Auto().decide(draw_view(6, 2, weights=None), RNG)
    assert plan.bits is None
    assert plan.epochs is not None


@pytest.mark.parametrize("told", [False, True])
def test_a_large_cell_is_searched_among_those_who_may_be_chosen(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        view = draw_view(1500, seed, told=told, forced=1)
        plan, bits, epochs = decided(view, fc.Auto())
        monkeypatch.setattr(auto, "MANY", 10**9)
        whole, whole_bits, _ = decided(draw_view(1500, seed, told=told, forced=1), fc.Auto())
        monkeypatch.undo()
        found = value_of(view, plan.devices.tolist(), bits, epochs)
        assert found <= 1.05 * value_of(view, whole.devices.tolist(), whole_bits, epochs)


def test_diverged_updates_teach_nothing() -> None:
    view = draw_view(4, 0)
    signals = {name: np.full((1, 8) if name == "updates" else 1, np.nan) for name in auto_signals()}
    kept = fc.Auto().learn(view, Report(np.array([1]), np.ones(1), np.full(1, 2.0), 1.0, signals))
    assert np.isfinite(np.asarray(kept)).all()


def test_of_a_large_round_some_devices_are_compared() -> None:
    rng = np.random.default_rng(0)
    view = draw_view(200, 0, told=False)
    updates = rng.normal(size=(150, 16))
    signals = {"updates": updates, **dict.fromkeys(("peaks", "absolutes", "squares"), np.square(updates).sum(axis=1))}
    kept = fc.Auto().learn(view, Report(np.arange(150), np.ones(150), np.full(150, 32.0), 1.0, signals))
    found = dict(zip(NAMES, np.asarray(kept), strict=True))
    assert (found["pairs"], found["devices"]) == (32 * 31 / 2, 150.0)


def auto_signals() -> tuple[str, ...]:
    return ("updates", "peaks", "absolutes", "squares")


def test_the_makeup_of_updates_is_a_line_through_pairs_that_begins_with_a_guess() -> None:
    assert auto._Sums().makeup() == (auto.PRIOR_COMMON, 1.0, 0.0, 1.0)
    sums = auto._Sums(
        pairs=1e9, d=-2e8, dd=1e9, y=5e8, dy=1.5e9, again=1e9, alike=1e8, devices=10.0, squares=50.0, profiles=8.0
    )
    slope = (1.5 + 0.2 * 0.5) / (1.0 - 0.04)  # covariance of products of updates and of profiles by their variance
    common = 0.5 + 0.2 * slope
    rest = 5.0 - common - 0.8 * slope
    assert tuple(sums.makeup()) == pytest.approx((common, slope, 0.5, rest - 0.5), rel=1e-6)
    assert sums._replace(profiles=0.0).makeup().own == 0.0  # nothing is known of the devices' data
    few = auto._Sums(pairs=0.0, devices=2.0, squares=6.0, profiles=2.0).makeup()
    assert few.common == pytest.approx(3.0 * auto.PRIOR_COMMON)
    assert few.own == pytest.approx(3.0 * auto.PRIOR_OWN)
    rest = 3.0 * (1.0 - auto.PRIOR_COMMON - auto.PRIOR_OWN)
    assert few.hidden == pytest.approx(auto.PRIOR_HIDDEN * rest)
    assert few.drawn == pytest.approx(rest - few.hidden)
    opposed = auto._Sums(pairs=1e9, y=-1e9, dd=1e9, dy=-1e9, devices=1.0, squares=2.0, profiles=1.0).makeup()
    assert (opposed.common, opposed.own) == (auto.LEAST_COMMON * 2.0, 0.0)
    assert (auto._Sums().usual_bits, auto._Sums(bits=12.0, rounds=3.0).usual_bits) == (auto.FIRST_BITS, 4.0)
    assert (auto._Sums().square, auto._Sums(squares=6.0, devices=3.0).square) == (1.0, 2.0)


def test_numbers_that_the_documentations_results_were_measured_with() -> None:
    assert (auto.FADE, auto.SLOW_FADE, auto.MEMORY, auto.NOISE, auto.SMOOTHING) == (0.9, 0.98, 0.5, 0.03, 0.2)
    assert (auto.PRIOR_PAIRS, auto.PRIOR_SPREAD, auto.PRIOR_COMMON, auto.PRIOR_OWN) == (3.0, 0.1, 0.05, 0.5)
    assert (auto.LEAST_COMMON, auto.PRIOR_AGAIN, auto.PRIOR_HIDDEN) == (0.003, 10.0, 0.6)
    assert auto.PRIOR_ROUNDING == (4.0, 1.3, 0.4, 0.01, 0.0)
    assert (auto.FIRST_BITS, auto.MOST_COMPARED, auto.LEAST_SAMPLES) == (2, 32, 10)
    assert (auto.MANY, auto.MANY_AXES, auto.EACH_SIDE) == (512, 64, 16)
    assert (auto.MOST_EPOCHS, auto.UNKNOWN_EPOCHS, fc.Auto().momentum) == (5.0, 0.05, 0.5)
    assert set(auto._Sums()) == {0.0}
    assert fc.Auto.uses_profiles
    assert fc.Auto.uses_updates
    assert fc.Auto.uses_sums


@pytest.mark.parametrize(
    ("columns", "sums", "wanted"),
    [
        # Of eight devices the two nearest send for 0.1 + 0.3 s together; the median epoch takes 2 s.
        ({}, {}, 0.4 / 2.0),
        ({"epochs": 2.0}, {}, 0.4 / 1.0),
        ({"weights": 1e6, "tensors": 4}, {}, 0.4 * (64 + 4 * 32 + 2e6) / 32e6 / 2.0),
        ({"weights": 1e6, "tensors": 4}, {"bits": 24.0, "rounds": 3.0}, 0.4 * (64 + 4 * 32 + 8e6) / 32e6 / 2.0),
        ({"samples": [100] * 8, "weights": 1e6}, {}, 10 / 100),  # a mini-batch at least
        ({}, {"devices": 1.0, "work": np.log(0.5)}, 0.5**0.8 * 0.2**0.2),
        ({"downlink": fc.Multicast(np.full(8, 0.5))}, {}, 0.9 / 2.0),
    ],
)
def test_devices_train_as_long_as_a_reference_round_sends(
    columns: dict[str, Any], sums: dict[str, float], wanted: float
) -> None:
    upload_s, compute_s = [9.0, 0.1, 9.0, 9.0, 9.0, 9.0, 0.3, 9.0], [2.0, 1.0, 2.0, 2.0, 5.0, 2.0, 2.0, 2.0]
    view = fc.RoundView(upload_s, compute_s, **columns)
    assert auto._epochs(fc.Auto(), view, auto._Sums(**sums)) == pytest.approx(wanted, rel=1e-9)
    assert auto._epochs(fc.Auto(epochs=3), view, auto._Sums(**sums)) == 3.0


def test_work_is_whole_epochs_beyond_one_and_at_most_five() -> None:
    for upload_s, wanted in ((1.0, 2.0), (1.4, 3.0), (2.4, 5.0), (2.5, 5.0), (9.0, 5.0), (0.4, 0.8)):
        view = fc.RoundView([upload_s] * 3, [0.5] * 3)
        assert auto._epochs(fc.Auto(), view, auto._Sums()) == pytest.approx(wanted)
    unknown = fc.RoundView([1.0] * 3, [0.0] * 3)
    assert auto._epochs(fc.Auto(), unknown, auto._Sums()) == 0.05
    assert auto._epochs(fc.Auto(), unknown, auto._Sums(devices=1.0, work=0.0)) == pytest.approx(1.0)
    assert auto._bits_to_try(fc.Auto(bits=4), unknown) == (4,)
    assert auto._bits_to_try(fc.Auto(), unknown) == (None,)
    assert auto._bits_to_try(fc.Auto(), fc.RoundView([1.0], [1.0], weights=9.0)) == BITS
