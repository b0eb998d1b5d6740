import math
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from builders import spec_of
from fedcell.learn.profile import REPORT_SAMPLES
from fedcell.runs.records import decode, encode
from fedcell.schedule.plan import Plan
from fedcell.sim import loop
from fedcell.sim.spec import Spec, parse_spec
from fedcell.sim.state import State


@pytest.mark.parametrize("compute_w", [None, 2.0])
@pytest.mark.parametrize("policy", ["random:k=5", "all:sharing=equal", "greedy"])
def test_a_round_costs_what_its_devices_spend_on_training_and_sending(policy: str, compute_w: float | None) -> None:
    spec = spec_of(policy=policy, knowledge="expected", devices={"compute_w": compute_w, "failure": 0.3})
    run = loop.Simulation.load(spec)
    clock_s = 0.0
    for record in fc.simulate(spec):
        drawn = run.world.conditions(spec.seed, record.round - 1, clock_s)
        expected = []
        for i in record.plan.devices:  # one by one, from the symbols; a lost upload is paid for too
            cycles = 2e-3 * 1e9 * run.world.devices.samples[i]
            training = 1e-28 * 1e9**2 * cycles if compute_w is None else compute_w * drawn.compute_s[i]
            expected.append(training + spec.devices.power_w_per_hz[i] * 3e6 * drawn.upload_s[i])
        np.testing.assert_allclose(record.plan_joules, expected)
        assert record.joules == pytest.approx(sum(expected))
        clock_s = record.clock_s


def test_the_first_round_bears_the_cost_of_the_reports() -> None:
    spec = spec_of(policy="diverse", profiles="gradients", devices={"compute_w": 1.0})
    run = loop.Simulation.load(spec)
    drawn = run.world.conditions(spec.seed, 0, 0.0)
    training = drawn.compute_s * REPORT_SAMPLES / run.world.devices.samples
    bits = 32 * run.task.label_counts.shape[1]
    sending = 10**0.7 * 1e-9 * bits / drawn.spectral_efficiency
    first, second, _ = fc.simulate(spec)
    assert first.joules - first.plan_joules.sum() == pytest.approx(float((training + sending).sum()))
    assert second.joules == pytest.approx(float(second.plan_joules.sum()))
    known = next(fc.simulate(spec.changed({"profiles": "labels"})))
    assert known.joules == pytest.approx(float(known.plan_joules.sum()))


def test_a_budget_of_joules_ends_a_run_before_it_is_exceeded() -> None:
    whole = list(fc.simulate(spec_of(policy="random:k=4", rounds=5)))
    spent = np.cumsum([record.joules for record in whole])
    for budget_j, rounds in ((spent[2] * 1.0001, 3), (spent[2] * 0.9999, 2), (spent[0] * 0.5, 0)):
        found = list(fc.simulate(spec_of(policy="random:k=4", rounds=5, budget_j=budget_j)))
        assert [record.loss for record in found] == [record.loss for record in whole[:rounds]]


def test_joules_survive_a_stop_between_any_two_rounds() -> None:
    spec = spec_of(policy="diverse", budget_j=40.0, rounds=None)
    whole = [(record.joules, record.plan_joules.tolist()) for record in fc.simulate(spec)]
    run = loop.Simulation.load(spec)
    state, found = run.start(), []
    while (played := run.step(state)) is not None:
        record, state = played
        found.append((record.joules, record.plan_joules.tolist()))
        state = State.from_bytes(state.to_bytes())
    assert len(whole) > 1
    assert found == whole


def test_a_cap_on_joules_keeps_costly_devices_out() -> None:
    watts = [1.0] * 10 + [5.0] * 10
    spec = spec_of(policy="random:k=12,max_joules=15", devices={"compute_w": watts})
    for record in fc.simulate(spec):
        assert record.plan.devices.tolist() == list(range(10))
        assert record.plan_joules.max() <= 15.0


def test_a_server_that_knows_no_times_caps_by_what_it_expects() -> None:
    spec = spec_of(policy="all:max_joules=1000", knowledge="observed", devices={"compute_w": 3.0})
    assert [record.plan.devices.size for record in fc.simulate(spec)] == [20, 20, 20]


class TestBatteries:
    def test_a_device_that_cannot_pay_for_a_round_is_not_there_any_more(self) -> None:
        # A round costs a little more than 6 J: 0.6 W of training for 10 s or so, and some millijoules for sending.
        battery_j = [7.0] * 5 + [13.5] * 5 + [1000.0] * 10
        spec = spec_of(policy="all", rounds=4, devices={"kappa": 1e-27, "battery_j": battery_j})
        found = [record.plan.devices.tolist() for record in fc.simulate(spec)]
        assert found == [list(range(20)), list(range(5, 20)), list(range(10, 20)), list(range(10, 20))]

    def test_nobody_spends_more_than_the_battery_has(self) -> None:
        rng = np.random.default_rng(0)
        battery_j = rng.uniform(5.0, 60.0, size=20)
        devices = {"compute_w": 1.0, "battery_j": battery_j.tolist(), "availability": "daynight:there=0.5,day_s=300"}
        spec = spec_of(policy="random:k=8", rounds=30, devices=devices)
        spent = np.zeros(20)
        for record in fc.simulate(spec):
            spent[record.plan.devices] += record.plan_joules
            assert (spent <= battery_j).all()
        assert (spent > 0).any()

    def test_the_run_ends_when_all_are_empty(self) -> None:
        spec = spec_of(policy="all", rounds=9, devices={"battery_j": 2.0})  # three rounds of 0.6 J
        assert [record.plan.devices.size for record in fc.simulate(spec)] == [20, 20, 20]

    @pytest.mark.parametrize("policy", ["random:k=4", "diverse"])
    def test_nobody_in_reach_is_no_empty_battery(self, policy: str) -> None:
        """In version 0.2 the run ended at once, though all batteries were full."""
        cell = {"rate": "mcs64", "channel": "uma", "radius_m": 3000.0}
        found = [
            [(record.clock_s, record.plan.devices.size, record.joules) for record in fc.simulate(spec)]
            for spec in (spec_of(policy=policy, cell=cell, devices={"battery_j": b}) for b in (None, 5.0))
        ]
        assert found[0] == found[1]
        assert [count for _, count, _ in found[0]] == [0, 1, 0]
        empty = spec_of(policy=policy, cell=cell, devices={"battery_j": 0.1})  # less than a round of training
        assert not list(fc.simulate(empty))

    def test_what_is_left_survives_a_stop(self) -> None:
        devices = {"battery_j": [2.0] * 10 + [3.0] * 10}
        spec = spec_of(policy="diverse", rounds=15, devices=devices)
        whole = [(record.loss, record.plan.devices.tolist()) for record in fc.simulate(spec)]
        run = loop.Simulation.load(spec)
        state, found = run.start(), []
        while (played := run.step(state)) is not None:
            record, state = played
            found.append((record.loss, record.plan.devices.tolist()))
            state = State.from_bytes(state.to_bytes())
        assert found == whole
        assert 3 <= len(found) < 15

    def test_a_fixed_number_of_devices_becomes_what_is_left(self) -> None:
        spec = spec_of(policy="random:k=15", rounds=2, devices={"battery_j": [0.1] * 12 + [9.0] * 8})
        assert [record.plan.devices.tolist() for record in fc.simulate(spec)] == [list(range(12, 20))] * 2

    def test_full_batteries_change_nothing(self) -> None:
        plain, full = ([r.loss for r in fc.simulate(spec_of(devices=d))] for d in ({}, {"battery_j": 1e9}))
        assert plain == full


def test_who_leaves_half_way_pays_for_half() -> None:
    # Always there is nobody for long: devices leave while they train or send.
    spec = spec_of(
        policy="all", rounds=12, devices={"compute_w": 1.0, "availability": "daynight:there=0.5,day_s=40,spread=1"}
    )
    run = loop.Simulation.load(spec)
    clock_s, cut = 0.0, 0
    for record in fc.simulate(spec):
        drawn = run.world.conditions(spec.seed, record.round - 1, clock_s)
        assert drawn.until_s is not None
        for i, share, joules in zip(record.plan.devices, record.plan.shares, record.plan_joules, strict=True):
            stays_s = min(drawn.until_s[i] - clock_s, record.round_s)
            training_s = min(drawn.compute_s[i], stays_s)
            sending_s = min(drawn.upload_s[i] / share, stays_s - training_s)
            power_w = 10**0.7 * 1e-9 * 3e6 * share
            assert joules == pytest.approx(training_s + power_w * sending_s)
            cut += stays_s < drawn.compute_s[i]
        clock_s = record.clock_s
    assert cut > 5


def test_energy_changes_no_schedule_unless_asked() -> None:
    plain = [r.plan.shares.tolist() for r in fc.simulate(spec_of(policy="greedy"))]
    hungry = [r.plan.shares.tolist() for r in fc.simulate(spec_of(policy="greedy", devices={"kappa": 1e-26}))]
    assert plain == hungry


def test_a_record_that_knows_no_energy_says_so() -> None:
    plan = Plan(np.array([1, 4]), np.array([0.5, 0.5]), 2.0)
    record = fc.RoundRecord(1, 2.0, 2.0, plan, plan.devices, 0.5, 1.0)
    for found in (record, decode(encode(record))):
        assert math.isnan(found.joules)
        assert np.isnan(found.plan_joules).tolist() == [True, True]
    assert np.isnan(record.to_dict(plan=True)["plan_joules"]).all()


def test_energy_at_its_defaults_leaves_keys_alone() -> None:
    same = [{"kappa": 1e-28}, {"cpu_hz": [1e9] * 20}, {"compute_w": None}]
    assert {Spec(devices=fields).key() for fields in same} == {Spec().key()}  # type: ignore[arg-type]
    other: list[dict[str, Any]] = [{"devices": {"kappa": 2e-28}}, {"devices": {"compute_w": 1.0}}, {"budget_j": 5.0}]
    assert len({parse_spec(fields, "x").key() for fields in other} | {Spec().key()}) == 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"budget_j": 0}, "budget_j is 0; input should be greater than 0"),
        ({"devices": {"kappa": -1.0}}, "kappa is -1; give a finite number of at least 0"),
        ({"devices": {"count": 2, "compute_w": [1.0, 2.0, 3.0]}}, "the length of compute_w is 3"),
        ({"devices": {"battery_j": 0}}, "battery_j is 0; give a finite number above 0"),
        ({"devices": {"battery_j": [5.0, 6.0]}}, "count is 20 but the length of battery_j is 2"),
        ({"devices": {"power_w_per_hz": -1e-9}}, "power_w_per_hz is -1e-09; give a finite number above 0"),
    ],
)
def test_bad_values_get_a_sentence(fields: dict[str, object], said: str) -> None:
    with pytest.raises(fc.InputError) as error:
        parse_spec(fields, "test")
    assert said in str(error.value)
