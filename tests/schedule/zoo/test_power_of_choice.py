from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import rng, view_of
from fedcell.rng import stream

OF_NINE: dict[str, Any] = {"ids": np.arange(9), "round_index": 7}


def test_candidates_are_drawn_by_their_data_without_replacement() -> None:
    view = view_of(20, 5.0, ids=np.arange(20), round_index=7, samples=np.where(np.arange(20) < 10, 900, 100))
    asked = [fc.PowerOfChoice(k=2, d=5).ask(view, rng(seed)) for seed in range(200)]
    devices = np.array([question.devices for question in asked if question is not None])
    assert devices.shape == (200, 5)
    assert all(len(set(row)) == 5 for row in devices)
    first = (devices[:, 0] < 10).mean()
    assert 0.83 < first < 0.97  # 9 of 10


@pytest.mark.parametrize(("variant", "samples"), [("pow-d", None), ("cpow-d", 32)])
def test_it_asks_for_the_loss(variant: Any, samples: int | None) -> None:
    question = fc.PowerOfChoice(k=2, variant=variant, samples=32).ask(view_of(9, 5.0, **OF_NINE), rng())
    assert question is not None
    assert (question.about, question.samples, question.devices.size) == ("loss", samples, 4)


def test_the_largest_losses_train_by_device_not_by_place() -> None:
    """The loss 9 is in place 0 of the candidates (7, 3, 5): a list of places would schedule devices 0 and 2."""
    few = view_of(9, 5.0, **OF_NINE).with_answers(np.array([3, 5, 7]), 1.5, losses=np.array([0.5, 2.0, 9.0]))
    plan = fc.PowerOfChoice(k=2).decide(few, rng())
    assert few.ids is not None
    assert few.ids[plan.devices].tolist() == [5, 7]


def test_equal_losses_are_broken_at_random() -> None:
    few = view_of(4, 5.0, ids=np.arange(4), round_index=7).with_answers(np.arange(4), 1.5, losses=np.ones(4))
    assert len({int(fc.PowerOfChoice(k=1).decide(few, rng(seed)).devices[0]) for seed in range(40)}) == 4


def test_rpow_goes_by_what_was_last_heard_and_tries_the_unknown_first() -> None:
    losses = np.array([0.1, np.nan, 3.0, 0.2, 2.0])
    view = view_of(5, 5.0, ids=np.arange(5), round_index=7, losses=losses, heard_round=[6, -1, 2, 6, 6])
    policy = fc.PowerOfChoice(k=2, d=5, variant="rpow-d")
    assert policy.ask(view, rng()) is None
    assert policy.decide(view, rng()).devices.tolist() == [1, 2]
    some = {tuple(fc.PowerOfChoice(k=2, d=2, variant="rpow-d").decide(view, rng(seed)).devices) for seed in range(80)}
    assert len(some) == 10  # with d = k the losses do not matter


def test_at_least_k_candidates_are_drawn() -> None:
    question = fc.PowerOfChoice(k=4, d=2).ask(view_of(9, 5.0, **OF_NINE), rng())
    assert question is not None
    assert question.devices.size == 4


def test_in_a_run_the_loss_is_asked_for_and_paid() -> None:
    fields: dict[str, Any] = {"rounds": 2, "devices": {"count": 8}, "task": {"hidden": [4], "sizes": [60] * 8}}
    asked, last = (
        list(fc.simulate(fc.Spec(policy=f"power_of_choice:k=2,d=4,variant={name}", **fields)))
        for name in ("pow-d", "rpow-d")
    )
    view = fc.RoundView(np.ones(8), np.ones(8), ids=np.arange(8))
    candidates = fc.PowerOfChoice(k=2, d=4).ask(view, stream(0, "policy", 0))
    assert candidates is not None
    assert set(asked[0].plan.devices) <= set(candidates.devices.tolist())
    assert asked[0].plan.starts_s is not None
    assert asked[0].plan.starts_s.min() > 0.0
    assert last[0].plan.starts_s is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("power_of_choice:d=0", "d is 0; give a whole number of devices of at least 1"),
        ("power_of_choice:samples=0", "samples is 0"),
        (
            "power_of_choice:variant=pow",
            "variant of policy 'power_of_choice' is 'pow'; did you mean 'pow-d'",
        ),
    ],
)
def test_bad_settings_are_named(line: str, words: str) -> None:
    with pytest.raises(fc.InputError, match=words):
        fc.parse_policy(line)


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    policy = vars(fc.POLICIES["power_of_choice"]())
    told = {"k": 8, "d": None, "variant": "pow-d", "samples": 64}
    assert {name: policy[name] for name in told} == told
