"""What the simulated server learns about its devices' data, and what it does with it."""

from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.learn.engine import Job
from fedcell.protocol import Knowledge, samples_visited
from fedcell.protocol.knowledge import PARTICIPATION_DECAY
from fedcell.rng import keyed, stream
from fedcell.schedule.profiles import balanced_weights, standardise
from fedcell.sim.loop import Simulation, simulate, visits
from fedcell.sim.profiles import output_change, reports
from fedcell.sim.spec import Spec, parse_spec
from fedcell.sim.state import State

SMALL: dict[str, Any] = {"rounds": 3, "devices": {"count": 6}, "task": {"sizes": [300] * 6, "hidden": [8]}}


def loaded(**fields: Any) -> Simulation:
    return Simulation.load(Spec(**{**SMALL, "policy": "diverse", **fields}))


def test_labels_are_the_label_shares_and_cost_nothing() -> None:
    run = loaded(profiles="labels")
    start = run.start()
    np.testing.assert_array_equal(start.knowledge.profiles, run.task.label_counts / 300)
    assert start.clock_s == 0.0


def test_a_gradients_report_is_one_small_training_on_the_clock() -> None:
    run = loaded(profiles="gradients")
    start = run.start()
    for i in (0, 5):
        order = keyed(0, "profiles", 0)(i).permutation(run.task.parts[i])[:100]
        trained = run.task.engine.train([Job(start.model, order[np.newaxis])])[0]
        change = (trained - start.model)[-10:].astype(np.float64)
        np.testing.assert_allclose(start.knowledge.profiles[i], change / np.abs(change).sum(), rtol=1e-4, atol=1e-7)
    # All train 100 of their 300 samples, and upload 10 of the model's P numbers.
    conditions = run.world.conditions(0, 0, 0.0)
    upload_s = conditions.upload_s * 10 / run.task.engine.parameters
    assert start.clock_s == pytest.approx(float(fc.allocate(upload_s, conditions.compute_s / 3).round_s))
    first, second, _ = simulate(run.spec)
    assert first.clock_s == pytest.approx(start.clock_s + first.round_s)
    assert second.clock_s == pytest.approx(first.clock_s + second.round_s)


def test_gradients_tell_labels() -> None:
    """What docs/diverse.md says they reveal: standardised, they point where the label shares do."""
    run = loaded(task={"sizes": [600] * 6})
    found, labels = standardise(run.start().knowledge.profiles), standardise(run.task.label_counts / 600)
    assert found is not None
    assert labels is not None
    cosines = (found.z * labels.z).sum(axis=1) / np.linalg.norm(found.z, axis=1) / np.linalg.norm(labels.z, axis=1)
    assert cosines.min() > 0.8


def test_updates_are_learnt_from_those_who_delivered() -> None:
    run = loaded(profiles="updates", policy="diverse:max_devices=2")
    state = run.start()
    assert state.clock_s == 0.0
    assert np.isnan(state.knowledge.profiles).all()
    played = run.step(state)
    assert played is not None
    record, after = played
    known = ~np.isnan(after.knowledge.profiles).any(axis=1)
    assert np.flatnonzero(known).tolist() == record.delivered.tolist()
    jobs = [Job(state.model, visits(run.task.parts[i], 1, keyed(0, "batches", 0)(int(i)))) for i in record.delivered]
    expected = output_change(run.task.engine.train(jobs), state.model, 10)
    np.testing.assert_array_equal(after.knowledge.profiles[record.delivered], expected)


def test_learning_averages_with_what_was_known() -> None:
    known = Knowledge.empty(3).with_profiles(np.array([0, 1]), np.array([[1.0, 0.0], [np.nan, 0.0]]))
    assert known.profiles[0].tolist() == [1.0, 0.0]
    assert np.isnan(known.profiles[1:]).all()
    assert known.with_profiles(np.array([0]), np.array([[0.0, 1.0]])).profiles[0].tolist() == [0.5, 0.5]
    assert known.with_profiles(np.array([2]), np.array([[1.0, 2.0, 3.0]])).profiles.shape == (3, 3)
    assert known.grow(5).profiles.shape == (5, 2)


def test_recent_fades_and_has_the_weights_of_the_mean() -> None:
    known = (
        Knowledge.empty(3).with_participation(np.array([0, 2]), np.array([3.0, 1.0])).with_participation(np.array([2]))
    )
    assert known.recent.tolist() == pytest.approx(
        [0.75 * PARTICIPATION_DECAY**2, 0.0, 0.25 * PARTICIPATION_DECAY**2 + PARTICIPATION_DECAY]
    )
    assert known.with_participation(np.array([], dtype=np.int64)) is known


def test_nobody_who_does_not_use_profiles_waits_for_them() -> None:
    run = loaded(policy="greedy")
    assert run.start().clock_s == 0.0
    view_of_none = run.start().knowledge.profiles
    assert view_of_none.shape == (6, 0)


def test_none_is_the_papers_optimum() -> None:
    ours = list(simulate(loaded(profiles="none", policy="diverse:theta=0.3").spec))
    papers = list(simulate(loaded(policy="optimal:theta=0.3").spec))
    assert [r.plan.devices.tolist() for r in ours] == [r.plan.devices.tolist() for r in papers]
    assert [r.accuracy for r in ours] == [r.accuracy for r in papers]


def test_balanced_averaging_weighs_the_delivered_models() -> None:
    run = loaded(policy="random:k=4", profiles="labels", task={**SMALL["task"], "averaging": "balanced"})
    state = run.start()
    played = run.step(state)
    assert played is not None
    record, after = played
    who = record.delivered
    jobs = [Job(state.model, visits(run.task.parts[i], 1, keyed(0, "batches", 0)(int(i)))) for i in who]
    weights = balanced_weights(standardise(run.task.label_counts / 300), who)
    assert weights.std() > 0.01  # or the test shows nothing
    np.testing.assert_allclose(after.model, weights @ run.task.engine.train(jobs), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(after.knowledge.recent[who], PARTICIPATION_DECAY * weights)


def test_a_run_with_profiles_resumes_from_its_saved_state() -> None:
    run = loaded(profiles="updates", task={**SMALL["task"], "averaging": "balanced"})
    whole = [r.accuracy for r in simulate(run.spec)]
    state: State | None = run.start()
    found = []
    while state is not None and (played := run.step(State.from_bytes(state.to_bytes()))) is not None:
        found.append(played[0].accuracy)
        state = played[1]
    assert found == whole


def test_epsilon_adds_its_noise_once() -> None:
    plain, hidden, again = (
        loaded(profiles="labels", **more).start() for more in ({}, {"epsilon": 4.0}, {"epsilon": 4.0})
    )
    noise = hidden.knowledge.profiles - plain.knowledge.profiles
    np.testing.assert_array_equal(noise, again.knowledge.profiles - plain.knowledge.profiles)
    expected = stream(0, "privacy").laplace(0.0, 0.5, noise.shape)
    np.testing.assert_allclose(noise, expected, atol=1e-12)


@pytest.mark.parametrize("profiles", ["updates", "none"])
def test_epsilon_without_reports_is_refused(profiles: str) -> None:
    with pytest.raises(fc.InputError, match="epsilon is 1"):
        parse_spec({"profiles": profiles, "epsilon": 1.0}, "it")


@pytest.mark.parametrize(("epochs", "count"), [(1, 300), (0.1, 30), (0.5, 150), (1e-9, 1), (3, 900)])
def test_part_of_an_epoch_visits_part_of_the_samples(epochs: float, count: int) -> None:
    assert samples_visited(300, epochs) == count
    part = np.arange(1000, 1300)
    order = visits(part, epochs, np.random.default_rng(0))
    assert order.size == count
    if epochs <= 1:
        assert len(np.unique(order)) == count
    assert set(order.ravel()) <= set(part)


def test_part_of_an_epoch_takes_part_of_the_time() -> None:
    whole, tenth = (loaded(policy="all", task={**SMALL["task"], "epochs": e}).world for e in (1, 0.1))
    np.testing.assert_allclose(tenth.conditions(0, 1).compute_s, 0.1 * whole.conditions(0, 1).compute_s)
    records = list(simulate(loaded(policy="all", task={**SMALL["task"], "epochs": 0.1}).spec))
    assert len(records) == 3


@pytest.mark.parametrize("epochs", [0, -1, 1.5, float("nan")])
def test_bad_epochs_are_refused(epochs: float) -> None:
    with pytest.raises(ValueError, match="epochs"):
        Spec(task={"epochs": epochs})  # type: ignore[arg-type]


def test_whole_epochs_are_one_number_however_they_are_written() -> None:
    assert Spec(task={"epochs": 2.0}).key() == Spec(task={"epochs": 2}).key()  # type: ignore[arg-type]


def test_reports_without_a_small_report_are_nothing() -> None:
    run = loaded(profiles="updates")
    profiles, report_s, report_j = reports(run.spec, run.task, run.world, run.start().model)
    assert np.isnan(profiles).all()
    assert report_s == 0.0
    assert report_j.tolist() == [0.0] * len(run.world.devices)


def test_devices_without_a_rate_report_and_pay_when_they_are_first_in_reach() -> None:
    run = loaded(cell={"rate": "mcs64", "radius_m": 1400.0}, rounds=12, devices={"count": 12}, task={"hidden": [8]})
    state: State = run.start()
    at_start = run.world.conditions(0, 0, 0.0)
    reached = np.isfinite(at_start.upload_s)
    assert 0 < reached.sum() < 12  # or the test shows nothing
    assert (state.spent_j > 0).tolist() == reached.tolist()
    spent_j = np.zeros(12)  # of reports, by the closed form
    size = 32 * 10 / run.world.cell.model_bits
    told_j = 0.0
    for r in range(12):
        conditions = run.world.conditions(0, r, state.clock_s)
        new = np.isfinite(conditions.upload_s) & (spent_j == 0.0)
        training_j = 1e-28 * 1e9**2 * np.asarray(run.world.devices.cycles_per_sample) * 100
        density = run.world.devices.power_w_per_hz
        report_j = training_j + density * run.world.cell.bandwidth_hz * size * conditions.upload_s
        spent_j[new] = report_j[new]
        played = run.step(state)
        assert played is not None
        record, state = played
        assert record.joules - record.plan_joules.sum() == pytest.approx(spent_j[new].sum())
        told_j += record.joules
        assert (state.spent_j > 0).tolist() == (spent_j > 0).tolist()
        if reached.all():
            break
        reached |= new
    assert spent_j.all()  # everybody was in reach at last
    assert told_j == pytest.approx(state.spent_j.sum())


@pytest.mark.parametrize("rate", ["mcs64", "mcs256"])
def test_an_outage_costs_no_energy_budget_and_no_battery(rate: str) -> None:
    """In version 0.2 devices without a rate spent infinite joules on their report: no round fitted into a budget."""
    fields: dict[str, Any] = {"cell": {"rate": rate, "radius_m": 1400.0}, "rounds": 3}
    records = list(simulate(loaded(**fields).spec))
    assert len(records) == 3
    assert np.isfinite([record.joules for record in records]).all()
    spent_j = sum(record.joules for record in records)
    within = list(simulate(loaded(**fields, budget_j=spent_j * 1.01).spec))
    assert [record.accuracy for record in within] == [record.accuracy for record in records]
    battery = list(simulate(loaded(**fields | {"devices": {"count": 6, "battery_j": 1e6}}).spec))
    assert [record.plan.devices.tolist() for record in battery] == [record.plan.devices.tolist() for record in records]


def test_runs_whose_reports_cost_infinite_joules_in_0_2_are_not_reused() -> None:
    """Only these have another key than then; see REPORTS_VERSION."""
    others: dict[str, dict[str, Any]] = {
        "ef48eb32c22bfb18": {"profiles": "labels"},
        "09d1eb9b789e21ba": {"profiles": "updates"},
        "ce5d7f38cdba52b7": {"policy": "greedy"},
        "1c14507365ec0c58": {"cell": {"rate": "shannon", "radius_m": 1000.0}},
    }
    of_then: dict[str, Any] = {"version": 1, "policy": "diverse", "cell": {"rate": "mcs64", "radius_m": 1000.0}}
    for key, fields in others.items():
        assert parse_spec(of_then | fields, "test").key().startswith(key)
    assert not parse_spec(of_then, "test").key().startswith("601c53f18fa3224f")
