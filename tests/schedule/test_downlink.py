"""The downlink: nobody starts before the model has come, and Optimal is the best of all sets all the same."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcell as fc
from fedcell.world import download_s

times_s = st.floats(1e-2, 1e2)
Cell = list[tuple[float, float, float]]
cells = st.lists(st.tuples(times_s, st.floats(0.0, 50.0), st.floats(1e-3, 20.0)), min_size=1, max_size=6)
NO_DRAWS = np.random.default_rng(0)
KINDS = pytest.mark.parametrize("kind", [fc.Multicast, fc.Unicast])
Kind = type[fc.Multicast] | type[fc.Unicast]


def starts(kind: Kind, down_s: np.ndarray) -> np.ndarray:
    """When the devices of a set have the model, as docs/radio.md says it."""
    if kind is fc.Multicast:
        return np.full(down_s.size, down_s.max())
    return np.array([down_s.size * one for one in down_s])


@KINDS
@pytest.mark.parametrize("law", [fc.Density(), fc.Blocks(8), fc.Dedicated()])
@settings(max_examples=25)
@given(cell=cells, theta=st.sampled_from([0.0, 0.05, 0.94]), data=st.data())
def test_optimal_is_the_best_of_all_subsets(
    kind: Kind, law: fc.Density, cell: Cell, theta: float, data: st.DataObject
) -> None:
    c, t, d = np.array(cell).T
    forced = data.draw(st.lists(st.integers(0, c.size - 1), unique=True, max_size=1))
    view = fc.RoundView(c, t, law=law, downlink=kind(d), must_include=np.isin(np.arange(c.size), forced))
    plan = fc.Optimal(theta).decide(view, NO_DRAWS)
    least = math.inf
    for n in range(1, c.size + 1):
        for some in combinations(range(c.size), n):
            if set(forced) <= set(some):
                S = np.array(some)
                T = fc.allocate(c[S], t[S] + starts(kind, d[S]), law=law).round_s
                least = min(least, (theta + 1.0 / n) * float(T))
    assert set(forced) <= set(plan.devices.tolist())
    assert (theta + 1.0 / plan.devices.size) * plan.round_s == pytest.approx(least, rel=1e-9)


@KINDS
@pytest.mark.parametrize("policy", ["greedy", "diverse", "deadline:seconds=20", "all", "random:2", "optimal:0.1"])
def test_the_round_is_the_way_down_training_and_the_way_up(kind: Kind, policy: str) -> None:
    rng = np.random.default_rng(3)
    c, t, d = rng.lognormal(0, 1, 8), rng.exponential(3.0, 8), rng.lognormal(0, 1, 8)
    view = fc.RoundView(c, t, downlink=kind(d), profiles=rng.dirichlet(np.ones(3), 8), recent=rng.random(8) / 8)
    plan = fc.parse_policy(policy).decide(view, NO_DRAWS)
    assert plan.starts_s is not None
    np.testing.assert_allclose(plan.starts_s, starts(kind, d[plan.devices]))
    ends_s = plan.starts_s + t[plan.devices] + c[plan.devices] / plan.shares
    np.testing.assert_allclose(ends_s, plan.round_s)
    np.testing.assert_allclose(plan.finish_s(c, t), ends_s)


def test_a_deadline_counts_the_way_down() -> None:
    c, t = np.array([1.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0])
    free = fc.Deadline(6.0).decide(fc.RoundView(c, t), NO_DRAWS)
    slow = fc.RoundView(c, t, downlink=fc.Multicast(np.array([0.5, 0.5, 3.5])))
    assert free.devices.size == 3
    assert fc.Deadline(6.0).decide(slow, NO_DRAWS).devices.tolist() == [0, 1]  # the third would make all wait
    assert fc.Deadline(3.0).decide(slow, NO_DRAWS).devices.size == 0


def test_diverse_leaves_out_who_would_make_everybody_wait() -> None:
    labels = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    c, t = np.array([1.0, 1.0, 1.2]), np.full(3, 2.0)
    view = fc.RoundView(c, t, profiles=labels, downlink=fc.Multicast(np.array([0.1, 90.0, 0.2])))
    assert fc.Diverse().decide(view, NO_DRAWS).devices.tolist() == [0, 2]


@KINDS
def test_what_cannot_be_a_downlink_is_said(kind: Kind) -> None:
    with pytest.raises(fc.InputError, match=r"seconds\[1\] of the downlink"):
        kind(np.array([1.0, 0.0]))
    with pytest.raises(fc.InputError, match="the downlink has 1 times, upload_s has 2"):
        fc.RoundView(np.ones(2), np.ones(2), downlink=kind(np.ones(1)))


def test_a_cell_knows_how_long_the_model_takes_down() -> None:
    cell = fc.Cell(downlink_hz=2e6, downlink_w_per_hz=3e-8, model_bits=4_000_000)
    seconds = download_s(cell, np.array([1e-8, 3e-8]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(seconds, [4e6 / (2e6 * math.log2(1 + 3.0)), 4e6 / 2e6])


@pytest.mark.parametrize("downlink", ["multicast", "unicast"])
@pytest.mark.parametrize("knowledge", ["perfect", "observed"])
def test_the_simulators_clock_has_the_way_down(downlink: str, knowledge: str) -> None:
    cell = {"downlink": downlink, "downlink_w_per_hz": 1e-9, "radius_m": 1400.0}
    spec = fc.Spec(policy="random:4", rounds=3, knowledge=knowledge, cell=cell, task=fc.TaskSpec(hidden=[4]))  # type: ignore[arg-type]
    free = fc.Spec(policy="random:4", rounds=3, knowledge=knowledge, cell={"radius_m": 1400.0}, task=spec.task)  # type: ignore[arg-type]
    assert spec.key() != free.key()
    for slow, quick in zip(fc.simulate(spec), fc.simulate(free), strict=True):
        assert slow.plan.devices.tolist() == quick.plan.devices.tolist()  # who is drawn does not depend on it
        assert slow.plan.starts_s is not None
        assert slow.round_s > quick.round_s
        if downlink == "multicast" and knowledge == "perfect":  # all wait equally long, then it is the same round
            assert slow.round_s == pytest.approx(quick.round_s + float(slow.plan.starts_s[0]), rel=1e-9)
