"""Fed-CBS: the probabilities of its draws, by hand and against the paper's formulas taken literally."""

from itertools import permutations
from math import log, sqrt
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import view_of
from fedcell.schedule.zoo.fed_cbs import imbalances

LABELS = np.array([[6, 0, 0], [3, 3, 0], [0, 4, 2], [1, 1, 7], [0, 0, 5]])


def labelled(labels: Any = LABELS, **more: Any) -> fc.RoundView:
    M = len(labels)
    return view_of(1.0 + np.arange(M), np.full(M, 3.0), label_counts=labels, **more)


def qcid(devices: tuple[int, ...], labels: Any = LABELS) -> float:
    held = np.asarray(labels)[list(devices)].sum(axis=0)
    return float(sum((share - 1 / held.size) ** 2 for share in held / held.sum()))


def literal(k: int, r: int, T: list[int], explore: float) -> dict[frozenset[int], float]:
    """The paper's sampling, step by step with its own denominators: the probability of every set."""
    M = len(LABELS)
    found: dict[frozenset[int], float] = {}
    for drawn in permutations(range(M), k):
        probability = 1.0
        for m in range(1, k + 1):
            before = drawn[: m - 1]

            def score(c: int, m: int = m, before: tuple[int, ...] = before) -> float:
                if m == 1:
                    return 1 / qcid((c,)) ** 1 + explore * sqrt(3 * log(r) / (2 * T[c]))
                past = score(before[0], 1, ()) if m == 2 else 1 / qcid(before) ** (m - 1)
                return 1 / qcid((*before, c)) ** m / past

            scores = {c: score(c) for c in range(M) if c not in before}
            probability *= scores[drawn[m - 1]] / sum(scores.values())
        found[frozenset(drawn)] = found.get(frozenset(drawn), 0.0) + probability
    return found


@pytest.mark.parametrize(("r", "turns", "explore"), [(1, [0] * 5, 10.0), (7, [0, 3, 1, 8, 0], 10.0), (7, [4] * 5, 0.0)])
def test_sets_are_drawn_as_often_as_the_paper_says(r: int, turns: list[int], explore: float) -> None:
    expected = literal(3, r, [1 + n for n in turns], explore)
    assert sum(expected.values()) == pytest.approx(1.0)
    policy, view, rng = fc.FedCbs(3, explore), labelled(turns=turns, round_index=r - 1), np.random.default_rng(0)
    draws = 4000
    seen: dict[frozenset[int], int] = {}
    for _ in range(draws):
        chosen = frozenset(policy.choose(view, rng).tolist())
        seen[chosen] = seen.get(chosen, 0) + 1
    for devices, probability in expected.items():
        error = abs(seen.get(devices, 0) - draws * probability)
        assert error < 4.5 * sqrt(draws * probability * (1 - probability)) + 1, (devices, probability)


def test_imbalance_by_hand() -> None:
    # {0}: shares 1, 0, 0 -> 4/9 + 1/9 + 1/9; {0, 4}: 6/11, 0, 5/11.
    alone = imbalances(LABELS.astype(float), np.zeros(3))
    assert alone[0] == pytest.approx(2 / 3)
    pair = imbalances(LABELS.astype(float), LABELS[0].astype(float))
    assert pair[4] == pytest.approx((6 / 11 - 1 / 3) ** 2 + 1 / 9 + (5 / 11 - 1 / 3) ** 2)
    np.testing.assert_allclose(pair[1:], [qcid((0, c)) for c in range(1, 5)])


def test_the_paper_s_example_finds_the_balanced_three_at_times() -> None:
    # Fig. 3 of the paper: greedy takes C1, C2, C3 or C1, C2, C4, always; the balanced set is C1, C3, C4. C1 is balanced
    # alone, so it is drawn first. The pairs' QCID is 1/120 with C2 and 1/24 with C3 or C4: with beta_2 = 2 that is
    # 25 against 1 and 1, and the triple with both is balanced.
    labels = np.array([[5, 5, 5, 5, 5, 5], [6, 6, 6, 6, 6, 0], [0, 0, 0, 10, 10, 10], [10, 10, 10, 0, 0, 0]])
    rng, view = np.random.default_rng(0), labelled(labels)
    sets = [tuple(sorted(fc.FedCbs(3).choose(view, rng).tolist())) for _ in range(2000)]
    assert set(sets) == {(0, 1, 2), (0, 1, 3), (0, 2, 3)}
    assert sets.count((0, 2, 3)) / 2000 == pytest.approx(2 / 27, abs=0.025)


def test_exploration_prefers_devices_that_seldom_took_part() -> None:
    # All alike: the first is drawn by exploration alone.
    labels, turns = np.array([[3, 1]] * 4), [0, 0, 99, 99]
    view, rng = labelled(labels, turns=turns, round_index=50), np.random.default_rng(0)
    first = np.bincount([fc.FedCbs(1, 1000.0).choose(view, rng)[0] for _ in range(1000)], minlength=4)
    assert first[2:].sum() < 0.15 * 1000
    first = np.bincount([fc.FedCbs(1, 0.0).choose(view, rng)[0] for _ in range(1000)], minlength=4)
    assert abs(first - 250).max() < 5 * sqrt(1000 * 0.25 * 0.75)


def test_those_that_must_be_there_count() -> None:
    labels = np.array([[9, 0], [9, 0], [9, 0], [0, 9]])
    for seed in range(20):
        view = labelled(labels, must_include=np.arange(4) == 1)
        assert fc.FedCbs(2).decide(view, np.random.default_rng(seed)).devices.tolist() == [1, 3]


def test_profiles_are_shares_of_labels_and_unknown_devices_are_like_all() -> None:
    shares = np.array([[1.0, 0.0], [np.nan, np.nan], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    view = view_of(1.0 + np.arange(5), np.full(5, 3.0), profiles=shares)
    firsts = [int(fc.FedCbs(1).choose(view, np.random.default_rng(seed))[0]) for seed in range(20)]
    assert set(firsts) == {1}
    bare = view_of(1.0 + np.arange(5), np.full(5, 3.0))
    assert {int(fc.FedCbs(1).choose(bare, np.random.default_rng(seed))[0]) for seed in range(50)} == set(range(5))


def test_profiles_that_are_no_shares_are_refused() -> None:
    view = view_of([1.0, 2.0], [3.0, 3.0], profiles=[[0.5, 0.5], [-0.5, 1.5]])
    for policy in (fc.FedCbs(1), fc.FedCgd()):
        with pytest.raises(fc.InputError, match=r"profiles\[1\] has a negative entry, but fed_c.. needs label counts"):
            policy.decide(view, np.random.default_rng(0))
    with pytest.raises(fc.InputError, match="explore is -1; give a finite number of at least 0"):
        fc.FedCbs(1, -1)


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    policy = vars(fc.POLICIES["fed_cbs"]())
    told = {"k": 8, "explore": 10.0}
    assert {name: policy[name] for name in told} == told
