"""CS-UCB by hand, and beside the paper's bandit with its memory played for many rounds."""

import math
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import rng


def view_of(turns: Any, took_s: Any, round_index: int) -> fc.RoundView:
    M = len(turns)
    return fc.RoundView(np.ones(M), np.ones(M), ids=np.arange(M), round_index=round_index, turns=turns, took_s=took_s)


def test_the_bound_by_hand() -> None:
    view = view_of([4, 1, 0], [6.0, 8.0, np.nan], 5)
    found = fc.CsUcb(k=2, longest_s=10.0)._bounds(view)
    np.testing.assert_allclose(found[:2], [0.4 + math.sqrt(3 * math.log(5) / 4), 0.2 + math.sqrt(3 * math.log(5))])
    assert found[2] == math.inf
    fair = fc.CsUcb(k=2, longest_s=10.0, fair=True, beta=0.25, fraction=0.6)._bounds(view)
    first = min(1.0, 0.4 + math.sqrt(2 * math.log(5) / 4))
    np.testing.assert_allclose(fair, [0.75 * first, 0.75 + 0.25 * (3 - 1), 0.75 + 0.25 * 3])


def played(policy: fc.CsUcb, mean_s: Any, rounds: int) -> tuple[np.ndarray[Any, Any], list[list[int]]]:
    """Rounds in which device i takes mean_s[i] seconds, more or less."""
    M, draw = len(mean_s), np.random.default_rng(7)
    turns, took_s, chosen = np.zeros(M, np.int64), np.full(M, np.nan), []
    for r in range(rounds):
        plan = policy.decide(view_of(turns.copy(), took_s.copy(), r), rng())
        chosen.append(plan.devices.tolist())
        tau_s = np.asarray(mean_s) * draw.uniform(0.9, 1.1, M)
        for i in plan.devices:
            turns[i] += 1
            took_s[i] = tau_s[i] if turns[i] == 1 else took_s[i] + (tau_s[i] - took_s[i]) / turns[i]
    return turns, chosen


def twin(k: int, longest_s: float, mean_s: Any, rounds: int) -> list[list[int]]:
    """Algorithm 1 with memory: everybody once, then the k best bounds."""
    M, draw = len(mean_s), np.random.default_rng(7)
    rewards: list[list[float]] = [[] for _ in range(M)]
    chosen = []
    for r in range(rounds):
        bounds = [
            sum(own) / len(own) + math.sqrt((k + 1) * math.log(max(r, 1)) / len(own)) if own else math.inf
            for own in rewards
        ]
        best = sorted(sorted(range(M), key=lambda i: -bounds[i])[:k])
        chosen.append(best)
        tau_s = np.asarray(mean_s) * draw.uniform(0.9, 1.1, M)
        for i in best:
            rewards[i].append(1.0 - tau_s[i] / longest_s)
    return chosen


def test_it_plays_as_the_bandit_does() -> None:
    mean_s = [5.0, 9.0, 6.0, 7.0, 8.0]
    _, found = played(fc.CsUcb(k=2, longest_s=10.0), mean_s, 200)
    assert found == twin(2, 10.0, mean_s, 200)
    assert found[:3] == [[0, 1], [2, 3], [0, 4]]  # everybody once; then the faster of the four


def test_the_fast_are_taken_more_and_more() -> None:
    turns, _ = played(fc.CsUcb(k=2, longest_s=10.0), [1.0, 1.0, 9.0, 9.0, 9.0], 2000)
    assert turns[:2].min() > 1.5 * turns[2:].max()


def test_the_fair_relative_gives_everybody_his_fraction() -> None:
    mean_s, rounds = [1.0, 1.0, 9.0, 9.0, 9.0], 2000
    policy = fc.CsUcb(k=2, longest_s=10.0, fair=True, fraction=0.3)
    fair, _ = played(policy, mean_s, rounds)
    assert fair.min() >= 0.29 * rounds
    assert fair[:2].sum() > 2 * rounds - 3 * 0.31 * rounds  # and the rest goes to the fast
    greedy, _ = played(fc.CsUcb(k=2, longest_s=10.0, fair=True, beta=0.0), mean_s, rounds)
    assert greedy[2:].max() < 0.1 * rounds


def test_without_a_longest_time_the_slowest_so_far_is_worth_nothing() -> None:
    found = fc.CsUcb(k=1)._bounds(view_of([1, 1], [6.0, 8.0], 1))
    np.testing.assert_allclose(found, [0.25, 0.0])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cs_ucb:beta=2", "beta is 2; give a number from 0 to 1"),
        ("cs_ucb:fraction=-1", "fraction is -1"),
        ("cs_ucb:longest_s=0", "longest_s is 0.0; give a finite number above 0"),
    ],
)
def test_bad_settings_are_named(line: str, words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        fc.parse_policy(line)


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    policy = vars(fc.POLICIES["cs_ucb"]())
    told = {"k": 8, "fair": False, "beta": 0.1, "fraction": None, "longest_s": None}
    assert {name: policy[name] for name in told} == told
