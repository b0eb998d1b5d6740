"""FedCGD: the objective by hand, its search against all sets of small cells, and the time of a round."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import rng, view_of
from fedcell.schedule.zoo.fed_cgd import divergence


def literal(labels: Any, devices: Any, variance: float = 1.0) -> float:
    """J(S), as it stands in the module."""
    everybody, held = np.asarray(labels).sum(axis=0), np.asarray(labels)[list(devices)].sum(axis=0)
    distance = sum(abs(a - b) for a, b in zip(held / held.sum(), everybody / everybody.sum(), strict=True))
    mean_samples = everybody.sum() / len(labels)
    return float(distance + variance / (held.sum() / mean_samples))


def best_of_all(view: fc.RoundView, most: int, seconds: float | None, forced: tuple[int, ...] = ()) -> float:
    """The least J of all sets that are allowed."""
    labels, least = view.label_counts, np.inf
    for n in range(1, most + 1):
        for devices in combinations(range(len(view)), n):
            who = np.array(devices)
            band = fc.allocate(view.upload_s[who], view.compute_s[who])
            if set(forced) <= set(devices) and (seconds is None or band.round_s <= seconds):
                least = min(least, literal(labels, devices))
    return least


def cell(seed: int, M: int = 9, **more: Any) -> fc.RoundView:
    draw = np.random.default_rng(seed)
    labels = draw.multinomial(60, draw.dirichlet(np.full(4, 0.3), M))
    labels = labels * draw.integers(1, 4, (M, 1))
    return view_of(draw.lognormal(-0.5, 0.7, M), 6 + draw.exponential(0.75, M), label_counts=labels, **more)


def test_the_objective_by_hand() -> None:
    # Shares of the cell: 15/20 and 5/20; 10 samples a device. Device 0 alone: 1/4 + 1/4, and 10/10.
    labels, like = np.array([[10.0, 0.0], [5.0, 5.0]]), np.array([0.75, 0.25])
    for devices, expected in (([0], 0.5 + 1.0), ([1], 0.5 + 1.0), ([0, 1], 0.0 + 0.5)):
        assert divergence(labels[devices].sum(axis=0), like, 10.0) == pytest.approx(expected)
        assert literal(labels, devices) == pytest.approx(expected)
    assert divergence(labels[0], like, 2.0) == pytest.approx(0.5 + 0.2) == literal(labels, [0], variance=0.2)
    assert divergence(np.zeros(2), like, 10.0) == np.inf


def test_the_search_is_nearly_that_through_all_sets() -> None:
    gaps = []
    for seed in range(24):
        view = cell(seed, M=8)
        seconds = (None, 8.5)[seed % 2]
        plan = fc.FedCgd(seconds, max_devices=5).decide(view, rng(7))
        assert plan.devices.size <= 5
        assert seconds is None or plan.round_s <= seconds * (1 + 1e-9)
        gaps.append(literal(view.label_counts, plan.devices) / best_of_all(view, 5, seconds) - 1)
    assert min(gaps) > -1e-12
    assert np.mean(np.array(gaps) < 1e-9) > 0.85
    assert max(gaps) < 0.2


def test_no_single_change_improves_what_is_found() -> None:
    view = cell(3, M=40)
    found = set(fc.FedCgd(max_devices=6).decide(view, rng(7)).devices.tolist())
    value = literal(view.label_counts, found)
    others = set(range(40)) - found
    changes = [found - {i} for i in found] + [found - {i} | {j} for i in found for j in others]
    changes += [found | {j} for j in others] if len(found) < 6 else []
    assert min(literal(view.label_counts, change) for change in changes) >= value * (1 - 1e-9)


def test_fewer_devices_if_they_are_more_like_all() -> None:
    # Two kinds, each of one label: two devices are exactly like the cell, a third would not be.
    labels = [[9, 0], [0, 9], [9, 0], [0, 9]]
    view = view_of([1.0, 1.1, 1.2, 1.3], [3.0] * 4, label_counts=labels)
    plan = fc.FedCgd(max_devices=3).decide(view, rng(7))
    assert plan.devices.size == 2
    assert sum(labels[i][0] for i in plan.devices) == 9
    # Where sampling is all that counts, three.
    assert fc.FedCgd(variance=10.0, max_devices=3).decide(view, rng(7)).devices.size == 3


def test_the_time_of_a_round_limits_who_joins_and_nobody_costs_it() -> None:
    view = view_of([1.0, 2.0, 2.0], [3.0, 3.0, 3.0], label_counts=[[4, 0], [4, 0], [0, 4]])
    assert fc.FedCgd(6.0).decide(view, rng(7)).devices.tolist() == [0, 2]
    assert fc.FedCgd(8.0).decide(view, rng(7)).devices.tolist() == [0, 1, 2]
    nobody = fc.FedCgd(3.5).decide(view, rng(7))
    assert (nobody.devices.size, nobody.round_s) == (0, 3.5)
    forced = view_of([1.0, 2.0, 2.0], [3.0] * 3, label_counts=[[4, 0]] * 3, must_include=[False, True, True])
    assert fc.FedCgd(3.5).decide(forced, rng(7)).devices.tolist() == [1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_those_that_must_be_there_stay(seed: int) -> None:
    view = cell(seed, must_include=np.isin(np.arange(9), [2, 6]))
    plan = fc.FedCgd(max_devices=4).decide(view, rng(7))
    assert {2, 6} <= set(plan.devices.tolist())
    assert literal(view.label_counts, plan.devices) <= 1.05 * best_of_all(view, 4, None, (2, 6))


@pytest.mark.parametrize("law", [fc.Blocks(12), fc.Dedicated(), fc.Ingress(pipe_s=0.3)])
@pytest.mark.parametrize("downlink", [None, fc.Multicast(np.linspace(0.1, 1.0, 9)), fc.Unicast(np.full(9, 0.1))])
def test_rounds_are_in_time_under_every_law_and_downlink(law: Any, downlink: Any) -> None:
    view = cell(1, law=law, downlink=downlink)
    plan = fc.FedCgd(9.0).decide(view, rng(7))
    assert plan.devices.size > 0
    assert plan.round_s <= 9.0 * (1 + 1e-9)


def test_with_nothing_known_as_many_as_fit_at_random() -> None:
    view = view_of(1.0 + np.arange(12), np.full(12, 3.0))
    plans = [fc.FedCgd(max_devices=4).decide(view, np.random.default_rng(seed)).devices for seed in range(60)]
    assert {plan.size for plan in plans} == {4}
    assert np.bincount(np.concatenate(plans), minlength=12).min() > 5


def test_bad_settings_are_named() -> None:
    with pytest.raises(fc.InputError, match="seconds is 0; give a finite number above 0"):
        fc.FedCgd(0)
    with pytest.raises(fc.InputError, match="variance is -1; give a finite number of at least 0"):
        fc.FedCgd(variance=-1)
    assert fc.format_policy(fc.FedCgd()) == "fed_cgd"
    assert fc.parse_policy("fed_cgd:8,max_devices=none") == fc.FedCgd(8.0, max_devices=None)


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    policy = vars(fc.POLICIES["fed_cgd"]())
    told = {"seconds": None, "variance": 1.0, "max_devices": 8}
    assert {name: policy[name] for name in told} == told
