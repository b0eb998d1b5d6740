"""Oort by hand, and beside a plain version of the authors' scoring."""

import math
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import rng
from fedcell.schedule.zoo.oort import relaxed


def view_of(M: int, **more: Any) -> fc.RoundView:
    fields: dict[str, Any] = {"ids": np.arange(M), "samples": np.full(M, 600), "round_index": 99}
    fields |= {"heard_round": np.full(M, 98), "rms_losses": np.linspace(1.0, 2.0, M)} | more
    upload_s, compute_s = fields.pop("upload_s", np.full(M, 0.1)), fields.pop("compute_s", np.full(M, 5.0))
    return fc.RoundView(upload_s, compute_s, **fields)


def twin(view: fc.RoundView, preferred_s: float, alpha: float, k: int) -> list[float]:
    """Util as FedScale's selector scores it (the formulas, not its code), one device after the other."""
    assert view.samples is not None
    assert view.rms_losses is not None
    assert view.heard_round is not None
    values = [float(n * loss) for n, loss in zip(view.samples, view.rms_losses, strict=True)]
    ordered = sorted(values)
    least, most = 0.999 * ordered[0], ordered[-1]
    clip = ordered[math.ceil(0.95 * len(ordered)) - 1]
    scores = []
    for i, value in enumerate(values):
        score = (min(value, clip) - least) / (most - least)
        score += math.sqrt(0.1 * math.log(view.round_index + 1) / (int(view.heard_round[i]) + 1))
        duration_s = float(view.compute_s[i] + k * view.upload_s[i])
        if duration_s > preferred_s:
            score *= (preferred_s / duration_s) ** alpha
        scores.append(score)
    return scores


def test_the_utility_is_the_one_of_the_authors_code() -> None:
    draw = rng(5)
    view = view_of(
        30,
        compute_s=draw.uniform(1, 20, 30),
        upload_s=draw.uniform(0.1, 2, 30),
        samples=draw.integers(10, 900, 30),
        rms_losses=draw.uniform(0.1, 3, 30),
        heard_round=draw.integers(0, 99, 30),
    )
    durations_s = view.compute_s + 4 * view.upload_s
    preferred_s = float(np.sort(durations_s)[math.ceil(0.3 * 30) - 1])
    policy = fc.Oort(k=4, alpha=1.5)
    found = policy._utility(view, view.rms_losses, durations_s)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, twin(view, preferred_s, 1.5, 4), rtol=1e-12)


def test_the_first_round_explores_by_speed() -> None:
    compute_s = np.array([1.0, 100.0, 1.0, 100.0])
    counts = np.zeros(4)
    for seed in range(300):
        view = view_of(4, compute_s=compute_s, upload_s=np.full(4, 1e-6), rms_losses=None, heard_round=None)
        counts[fc.Oort(k=1).decide(view, rng(seed)).devices] += 1
    assert counts[[0, 2]].sum() > 290  # 2 / 2.02 of the draws
    assert counts[[0, 2]].min() > 100


@pytest.mark.parametrize(
    ("round_index", "new"),
    [(0, 8), (9, 7), (59, 2), (200, 2)],  # 0.9 x 0.98^R of 10, at least a fifth
)
def test_exploration_decays(round_index: int, new: int) -> None:
    rms = np.where(np.arange(40) < 20, np.nan, 1.0)
    view = view_of(40, rms_losses=rms, round_index=round_index, heard_round=np.where(np.isnan(rms), -1, 0))
    devices = fc.Oort(k=10).decide(view, rng()).devices
    assert np.count_nonzero(devices < 20) == new
    assert devices.size == 10


def test_the_round_is_full_whoever_is_left() -> None:
    for unheard in range(11):
        rms = np.where(np.arange(10) < unheard, np.nan, 1.0)
        for k in (1, 4, 10):
            assert fc.Oort(k=k).decide(view_of(10, rms_losses=rms), rng()).devices.size == k


def test_no_losses_and_no_speed_left_are_no_trouble() -> None:
    rms = np.where(np.arange(8) < 4, np.nan, 0.0)
    for fields in ({"round_index": 0}, {"compute_s": np.geomspace(1, 1e9, 8)}):
        devices = fc.Oort(k=6, alpha=500.0).decide(view_of(8, rms_losses=rms, **fields), rng()).devices
        assert devices.size == 6


def test_only_devices_near_the_cut_off_are_drawn_from() -> None:
    rms = np.array([1.0, 1.0, 1.0, 0.5, 0.5, 0.1])
    seen = set()
    for seed in range(60):
        view = view_of(6, rms_losses=rms, heard_round=np.full(6, 98))
        seen.add(tuple(fc.Oort(k=2).decide(view, rng(seed)).devices))
    assert seen == {(0, 1), (0, 2), (1, 2)}
    wide = {
        tuple(fc.Oort(k=2, cutoff=0.1).decide(view_of(6, rms_losses=rms), rng(seed)).devices) for seed in range(200)
    }
    assert any(3 in pair or 4 in pair for pair in wide)


def test_more_samples_are_worth_more_and_slow_ones_less() -> None:
    equal = np.ones(4)
    view = view_of(4, rms_losses=equal, samples=[10, 10, 900, 10])
    assert 2 in fc.Oort(k=1).decide(view, rng()).devices
    slow = view_of(4, rms_losses=[1.0, 1.0, 1.1, 1.0], compute_s=[5.0, 5.0, 50.0, 5.0])
    assert all(2 not in fc.Oort(k=1).decide(slow, rng(seed)).devices for seed in range(40))
    assert 2 in fc.Oort(k=1, alpha=0.0).decide(slow, rng()).devices


def test_what_is_long_ago_earns_a_bonus() -> None:
    view = view_of(3, rms_losses=[1.0, 1.0, 1.0], heard_round=[98, 0, 98])
    assert fc.Oort(k=1).decide(view, rng()).devices.tolist() == [1]


def test_a_device_with_many_turns_is_left_alone_while_others_are_there() -> None:
    view = view_of(6, turns=[1, 1, 1, 1, 1, 11], rms_losses=[1, 1, 1, 1, 1, 9.0])
    assert 5 in fc.Oort(k=2).decide(view, rng()).devices
    assert 5 not in fc.Oort(k=2, most_turns=10).decide(view, rng()).devices
    worn = view_of(6, turns=[11] * 6)
    assert fc.Oort(k=2, most_turns=10).decide(worn, rng()).devices.size == 2


def test_the_pacer_relaxes_once_a_window_that_brought_less() -> None:
    falling = np.repeat([3.0, 2.0, 1.0], 20)
    assert [relaxed(falling[:n], 20) for n in (0, 39, 40, 59, 60)] == [0, 0, 1, 1, 2]
    assert relaxed(np.repeat([1.0, 2.0, 2.0], 20), 20) == 0
    assert relaxed(np.array([np.nan, 3.0, np.nan, 1.0]), 2) == 1
    assert relaxed(None, 20) == 0
    compute_s = np.arange(1.0, 11.0)
    for losses, preferred_s in (
        (None, 3.0),
        (np.repeat([3.0, 2.0], 2), 5.0),
        (np.repeat([9.0, 8, 7, 6, 5], 2), np.inf),
    ):
        view = view_of(10, compute_s=compute_s, round_losses=losses)
        assert fc.Oort(step=0.2, window=2)._preferred_s(view, compute_s) == preferred_s


def test_a_run_hands_over_what_it_needs() -> None:
    fields: dict[str, Any] = {"rounds": 6, "devices": {"count": 8}, "task": {"hidden": [4], "sizes": [40] * 8}}
    records = list(fc.simulate(fc.Spec(policy="oort:k=3,window=2", **fields)))
    assert [record.plan.devices.size for record in records] == [3] * 6
    assert len({int(i) for record in records for i in record.plan.devices}) == 8  # exploration has met everybody


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("oort:alpha=-1", "alpha is -1.0; give a finite number of at least 0"),
        ("oort:cutoff=95", "cutoff is 95; give a number from 0 to 1"),
        ("oort:window=0", "window is 0"),
        ("oort:most_turns=0", "most_turns is 0; give a whole number of at least 1"),
        ("oort:k=0", "k is 0"),
    ],
)
def test_bad_settings_are_named(line: str, words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        fc.parse_policy(line)


def test_round_losses_are_one_number_a_round() -> None:
    with pytest.raises(fc.InputError, match=r"round_losses has shape \(1, 2\); give one number a round"):
        view_of(2, round_losses=[[1.0, 2.0]])


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    policy = vars(fc.POLICIES["oort"]())
    told = {
        "k": 8,
        "alpha": 2.0,
        "cutoff": 0.95,
        "explore": 0.9,
        "decay": 0.98,
        "explore_least": 0.2,
        "quantile": 0.3,
        "step": 0.05,
        "window": 20,
        "most_turns": None,
    }
    assert {name: policy[name] for name in told} == told


def test_a_device_as_slow_as_preferred_is_not_slow_and_many_turns_are_more_than_the_limit() -> None:
    view = view_of(4, compute_s=[1.0, 2.0, 3.0, 4.0], turns=[3, 4, 3, 9])
    policy = fc.Oort(k=2, quantile=0.5, most_turns=3)
    durations_s = np.array([1.0, 2.0, 3.0, 4.0])
    found = policy._utility(view, np.ones(4), durations_s)
    bonus = math.sqrt(0.1 * math.log(100) / 99.0)
    np.testing.assert_allclose(found, [1 / 1 + bonus, 0.0, (1 + bonus) * (2 / 3) ** 2, 0.0])
    few = fc.Oort(k=3, quantile=0.5, most_turns=3)._utility(view, np.ones(4), durations_s)
    assert (few > 0.0).all()  # or fewer than k would be left


def test_the_pacer_may_give_up_any_preference() -> None:
    view = view_of(10, compute_s=np.arange(1.0, 11.0), round_losses=np.repeat([3.0, 2.0], 2))
    for step, preferred_s in ((0.69, 10.0), (0.7, np.inf)):
        assert fc.Oort(step=step, window=2)._preferred_s(view, np.arange(1.0, 11.0)) == preferred_s
