from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import rng


def view_of(M: int, **more: Any) -> fc.RoundView:
    """Device i is the i-th fastest."""
    fields: dict[str, Any] = {"ids": np.arange(M), "round_index": 50} | more
    return fc.RoundView(np.full(M, 0.1), np.linspace(5.0, 9.0, M), **fields)


def probabilities(policy: fc.TiFL, view: fc.RoundView) -> list[float]:
    return list(policy._probabilities(view, policy._tiers(view)))


def test_tiers_are_by_response_time_and_hold_k_devices() -> None:
    shuffled = rng(3).permutation(23)
    view = view_of(23).only(shuffled)
    tiers = fc.TiFL(k=4)._tiers(view)
    assert [sorted(shuffled[tier]) for tier in tiers] == [list(part) for part in np.array_split(np.arange(23), 5)]
    assert [tier.size for tier in fc.TiFL(k=8)._tiers(view_of(20))] == [10, 10]
    assert [tier.size for tier in fc.TiFL(k=8, tiers=1)._tiers(view_of(20))] == [20]


def test_the_average_channel_counts_not_that_of_the_round() -> None:
    view = fc.RoundView(np.array([9.0, 0.1]), np.ones(2), mean_upload_s=np.array([0.1, 9.0]))
    assert [tier.tolist() for tier in fc.TiFL(k=1)._tiers(view)] == [[0], [1]]


def test_a_round_is_of_one_tier_without_replacement() -> None:
    seen = np.zeros(20)
    for seed in range(300):
        devices = fc.TiFL(k=4, tiers=4).decide(view_of(20), rng(seed)).devices
        assert len(set(devices // 5)) == 1
        assert len(set(devices)) == 4
        seen[devices] += 1
    assert seen.min() > 30  # 60 each on average


def test_at_first_all_tiers_are_alike() -> None:
    view = view_of(15, round_index=9, losses=np.arange(15.0))
    assert probabilities(fc.TiFL(k=5), view) == pytest.approx([1 / 3] * 3)


def test_the_worse_the_likelier_as_in_fltk() -> None:
    """With n tiers in order of accuracy fltk gives the j-th (n - j) / (n (n + 1) / 2), those without credits none."""
    losses = np.repeat([0.5, 2.0, 1.0], 5)
    assert probabilities(fc.TiFL(k=5), view_of(15, losses=losses)) == pytest.approx([1 / 6, 3 / 6, 2 / 6])
    losses[0] = np.nan  # who said nothing does not count
    assert probabilities(fc.TiFL(k=5), view_of(15, losses=losses)) == pytest.approx([1 / 6, 3 / 6, 2 / 6])
    losses[:5] = np.nan  # a tier of which nothing is known does
    assert probabilities(fc.TiFL(k=5), view_of(15, losses=losses)) == pytest.approx([3 / 6, 2 / 6, 1 / 6])


def test_credits() -> None:
    view = view_of(15, losses=np.repeat([0.5, 2.0, 1.0], 5), turns=np.repeat([1, 3, 2], 5))
    assert probabilities(fc.TiFL(k=5, credits=3), view) == pytest.approx([1 / 3, 0.0, 2 / 3])
    assert probabilities(fc.TiFL(k=5, credits=2), view) == pytest.approx([1.0, 0.0, 0.0])
    assert probabilities(fc.TiFL(k=5, credits=1), view) == pytest.approx([1 / 6, 3 / 6, 2 / 6])  # all spent
    early = view_of(15, turns=np.repeat([1, 3, 2], 5), round_index=2)
    assert probabilities(fc.TiFL(k=5, credits=3), early) == pytest.approx([0.5, 0.0, 0.5])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tifl:tiers=0", "tiers is 0; give a whole number of at least 1"),
        ("tifl:interval=-1", "interval is -1; give a whole number of at least 0"),
        ("tifl:credits=0", "credits is 0"),
    ],
)
def test_bad_settings_are_named(line: str, words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        fc.parse_policy(line)


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    policy = vars(fc.POLICIES["tifl"]())
    told = {"k": 8, "tiers": 5, "interval": 10, "credits": None}
    assert {name: policy[name] for name in told} == told
