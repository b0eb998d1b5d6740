"""More invited than needed, and models that come after their round."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import simulation_of
from fedcell.protocol import Observed
from fedcell.protocol.outcome import judge
from fedcell.schedule.plan import Timing
from fedcell.sim.loop import Simulation, jobs
from fedcell.sim.state import State

SMALL: dict[str, Any] = {"sizes": [60] * 8}
run_of = partial(simulation_of, rounds=4, devices={"count": 8}, task=SMALL, knowledge="expected")


def step(run: Simulation, state: State) -> tuple[fc.RoundRecord, State]:
    played = run.step(state)
    assert played is not None
    return played


def finish_s(run: Simulation, record: fc.RoundRecord, clock_s: float, band: float = 1.0) -> Any:
    conditions = run.world.conditions(run.spec.seed, record.round - 1, clock_s)
    return record.plan.finish_s(conditions.upload_s / band, conditions.compute_s)


def test_the_first_k_that_arrive_end_the_round() -> None:
    run = run_of("random:k=3,overcommit=1.5")
    record, state = step(run, run.start())
    assert record.plan.devices.size == 5  # ceil(4.5)
    ends_s = finish_s(run, record, 0.0)
    assert record.round_s == pytest.approx(np.sort(ends_s)[2], rel=1e-8)
    assert record.delivered.tolist() == record.plan.devices[ends_s <= record.round_s].tolist()
    assert record.delivered.size == 3
    assert state.late.devices.size == 0
    # Stopped devices have spent less than they would have.
    whole, _ = step(run_of("random:k=5"), run.start())
    assert record.plan.devices.tolist() == whole.plan.devices.tolist()
    assert record.joules < whole.joules


def test_a_policy_without_a_number_invites_what_it_chooses() -> None:
    run = run_of("all:overcommit=2")
    record, _ = step(run, run.start())
    assert (record.plan.devices.size, record.delivered.size) == (8, 4)
    assert fc.All(overcommit=2.0).needed(7) == 4
    assert fc.Random(3, overcommit=2.0).needed(2) == 2


def test_a_round_that_has_enough_does_not_wait_for_those_that_will_be_late() -> None:
    timing = Timing(began_s=np.array([2.0, 3.0, 2.0]), finish_s=np.array([4.0, 5.0, 20.0]))
    never = np.full(3, np.inf)
    went = judge(Observed(timing, np.full(3, 12.0), never), np.full(3, 2.0), needed=2)
    assert went.round_s == pytest.approx(5.0, rel=1e-8)
    assert went.delivered.tolist() == [True, True, False]
    few = judge(Observed(timing, np.full(3, 4.5), never), np.full(3, 2.0), needed=2)
    assert few.round_s == 4.5  # too few ever come


def test_devices_that_finish_together_are_all_taken() -> None:
    run = run_of("random:k=3,overcommit=1.5", knowledge="perfect")
    record, _ = step(run, run.start())
    assert record.delivered.size == record.plan.devices.size == 5


def test_no_more_are_invited_than_there_are() -> None:
    view = fc.RoundView(np.array([1.0, 2.0, 3.0]), np.ones(3))
    rng = np.random.default_rng(0)
    assert fc.Random(2, overcommit=9.0).decide(view, rng).devices.size == 3
    assert fc.Random(2, overcommit=9.0).decide(replace(view, law=fc.Blocks(2)), rng).devices.size == 2
    with pytest.raises(fc.InputError, match="k is 4, but the cell has 3 devices"):
        fc.Random(4, overcommit=1.5).decide(view, rng)
    with pytest.raises(fc.InputError, match=r"overcommit is 0.5; give a finite number of at least 1"):
        fc.All(overcommit=0.5)


@pytest.mark.parametrize("averaging", ["plain", "samples"])
def test_late_models_count_in_the_next_round(averaging: str) -> None:
    task = {**SMALL, "sizes": [40, 50, 60, 70, 80, 90, 100, 110], "averaging": averaging}
    run = run_of("random:k=3,overcommit=1.5", late_weight=0.5, task=task)
    start = run.start()
    first, between = step(run, start)
    late = np.setdiff1d(first.plan.devices, first.delivered)
    assert between.late.devices.tolist() == late.tolist()
    ends_s = finish_s(run, first, 0.0)[np.isin(first.plan.devices, late)]
    np.testing.assert_allclose(between.late.after_s, ends_s - first.round_s, rtol=1e-6)
    held = first.plan.shares[np.isin(first.plan.devices, late)].sum()
    assert between.late.band_left == pytest.approx(1.0 - held)

    second, after = step(run, State.from_bytes(between.to_bytes()))
    band_s = finish_s(run, second, first.clock_s, band=1.0 - held)
    # Narrower by what late devices of the first round still use, an upload takes longer with as much less power.
    drawn, devices = run.world.conditions(run.spec.seed, 1, first.clock_s), run.world.devices
    training_j = 1e-28 * 1e9**2 * 2e-3 * 1e9 * np.asarray(devices.samples)
    joules = training_j + devices.power_w_per_hz * run.world.cell.bandwidth_hz * drawn.upload_s
    np.testing.assert_allclose(second.plan_joules, joules[second.plan.devices])
    needed = np.sort(band_s)[2]
    assert second.round_s == pytest.approx(needed, rel=1e-8)
    engine = run.task.engine
    fresh = engine.train(jobs(run.task, between.model, second.delivered, run.spec, 1)).astype(float)
    arrived = between.late.after_s <= second.round_s
    assert arrived.any()
    old = engine.train(jobs(run.task, start.model, late[arrived], run.spec, 0)).astype(float)
    sizes = run.task.samples.astype(float) if averaging == "samples" else np.ones(8)
    weights = np.concatenate((sizes[second.delivered], 0.5 * sizes[late[arrived]]))
    expected = weights @ np.concatenate((fresh, old)) / weights.sum()
    np.testing.assert_allclose(after.model, expected, rtol=1e-5, atol=1e-7)
    shares = np.zeros(8)
    np.add.at(shares, np.concatenate((second.delivered, late[arrived])), weights / weights.sum())
    np.testing.assert_allclose(after.knowledge.recent, 0.9 * (between.knowledge.recent + shares))


def test_with_lines_of_their_own_late_devices_hold_up_nobody() -> None:
    run = run_of("random:k=3,overcommit=1.5", late_weight=1.0, cell={"law": "dedicated"})
    _, state = step(run, run.start())
    assert state.late.devices.size == 2
    assert state.late.band_left == 1.0
    with pytest.raises(
        fc.InputError, match=r"task.aggregator is 'mean:late=0.5', but under the law 'blocks:count=15' it is not def"
    ):
        fc.Spec(task=fc.TaskSpec(aggregator="mean:late=0.5"), cell=fc.Cell(law="blocks:count=15"))


def test_keys_count_what_is_not_the_papers() -> None:
    plain = fc.Spec(rounds=1)
    assert plain.key() == fc.Spec(rounds=1, task=fc.TaskSpec(aggregator="mean:late=0")).key()
    assert plain.key() != fc.Spec(rounds=1, task=fc.TaskSpec(aggregator="mean:late=0.5")).key()
    assert plain.key() != fc.Spec(rounds=1, policy="greedy:overcommit=1.3").key()
