"""Best channel, best norm, and both: who is asked, who uploads, and that a run's clock and model show it."""

import numpy as np
import pytest

import fedcell as fc
from builders import rng, view_of
from fedcell.sim.loop import Simulation

UPLOAD_S = np.array([4.0, 1.0, 3.0, 2.0, 5.0, 6.0])
NORMS = np.array([0.5, 0.1, 0.9, 0.3, 0.7, 2.0])


def played(policy: fc.Policy, view: fc.RoundView) -> tuple[list[int], list[int]]:
    """Who is asked and who is scheduled, if each answers with its norm."""
    question = policy.checked_question(view, rng(5))
    assert question is not None
    assert question.about == "norm"
    asked = question.devices
    plan = policy.decide(view.with_answers(asked, 4.0, norms=NORMS[asked]), rng(5))
    return asked.tolist(), asked[plan.devices].tolist()


def test_the_best_channels_are_the_shortest_uploads() -> None:
    assert fc.BestChannel(3).decide(view_of(UPLOAD_S), rng(5)).devices.tolist() == [1, 2, 3]
    assert fc.BestChannel(3).ask(view_of(UPLOAD_S), rng(5)) is None


def test_everybody_trains_and_the_longest_updates_are_sent() -> None:
    assert played(fc.BestNorm(2), view_of(UPLOAD_S)) == ([0, 1, 2, 3, 4, 5], [2, 5])


def test_the_best_channels_train_and_their_longest_updates_are_sent() -> None:
    # The channels rank 1, 3, 2, 0, 4, 5. Device 5 has the longest update and the worst channel.
    assert played(fc.ChannelThenNorm(2, candidates=3), view_of(UPLOAD_S)) == ([1, 2, 3], [2, 3])
    assert played(fc.ChannelThenNorm(2), view_of(UPLOAD_S)) == ([0, 1, 2, 3], [0, 2])
    assert played(fc.ChannelThenNorm(2, candidates=99), view_of(UPLOAD_S)) == ([0, 1, 2, 3, 4, 5], [2, 5])
    assert played(fc.ChannelThenNorm(2, candidates=1), view_of(UPLOAD_S)) == ([1, 3], [1, 3])  # at least k train


def test_must_include_trains_and_uploads() -> None:
    view = view_of(UPLOAD_S, must_include=np.arange(6) == 5)
    assert played(fc.ChannelThenNorm(2, candidates=2), view) == ([1, 3, 5], [3, 5])
    assert played(fc.BestNorm(2), view_of(UPLOAD_S, must_include=np.arange(6) == 1))[1] == [1, 5]


def test_without_norms_every_device_is_as_good_as_another() -> None:
    drawn = [fc.BestNorm(2).decide(view_of(UPLOAD_S), np.random.default_rng(s)).devices for s in range(300)]
    counts = np.bincount(np.concatenate(drawn), minlength=6)
    assert abs(counts - 100).max() < 5 * np.sqrt(300 / 3 * 2 / 3)
    some = np.where(np.arange(6) == 1, np.nan, NORMS)  # nothing is known of one: it comes first
    assert fc.BestNorm(2).decide(view_of(UPLOAD_S, norms=some), rng(5)).devices.tolist() == [1, 5]
    assert fc.ChannelThenNorm(2, candidates=4).decide(view_of(UPLOAD_S), rng(5)).devices.tolist() == [1, 3]


def test_candidates_must_be_some() -> None:
    with pytest.raises(fc.InputError, match="candidates is 0; give a whole number of devices of at least 1"):
        fc.ChannelThenNorm(2, candidates=0)


@pytest.mark.parametrize(("line", "asked"), [("best_norm:k=2", 8), ("channel_then_norm:k=2,candidates=4", 4)])
def test_a_round_takes_the_training_of_all_candidates_and_the_uploads_of_k(line: str, asked: int) -> None:
    task = {"hidden": [4], "sizes": [60] * 8}
    spec = fc.Spec(policy=line, rounds=1, devices={"count": 8}, task=task)  # type: ignore[arg-type]
    run = Simulation.load(spec)
    played = run.step(run.start())
    assert played is not None
    record, conditions = played[0], run.world.conditions(0, 0, 0.0)
    c, t = conditions.upload_s, conditions.compute_s
    who, few = record.plan.devices, np.argsort(c)[:asked]
    assert who.size == 2
    assert set(who) <= set(few)
    trained_s = fc.allocate(32 / run.world.cell.model_bits * c[few], t[few]).round_s  # with reports of 32 bits
    assert record.round_s == pytest.approx(trained_s + c[who].sum(), rel=1e-12)
