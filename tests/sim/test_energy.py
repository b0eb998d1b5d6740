import math

import numpy as np
import pytest

import fedcell as fc
from fedcell.learn.profile import REPORT_SAMPLES
from fedcell.runs.rows import cells, decode, encode
from fedcell.schedule.policy import Plan
from fedcell.sim import loop
from fedcell.sim.spec import Spec, parse_spec


def spec_of(**fields: object) -> Spec:
    return parse_spec({"rounds": 3, "task": {"hidden": [4]}, **fields}, "test")


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
            expected.append(training + spec.devices.power_w_per_hz * 3e6 * drawn.upload_s[i])  # type: ignore[operator]
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
        state = loop.State.from_bytes(state.to_bytes())
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
    assert np.isnan(cells(record, plan=True)["plan_joules"]).all()


def test_energy_at_its_defaults_leaves_keys_alone() -> None:
    same = [{"kappa": 1e-28}, {"cpu_hz": [1e9] * 20}, {"compute_w": None}]
    assert {Spec(devices=fields).key() for fields in same} == {Spec().key()}  # type: ignore[arg-type]
    other = [{"devices": {"kappa": 2e-28}}, {"devices": {"compute_w": 1.0}}, {"budget_j": 5.0}]
    assert len({parse_spec(fields, "x").key() for fields in other} | {Spec().key()}) == 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"budget_j": 0}, "budget_j is 0; input should be greater than 0"),
        ({"devices": {"kappa": -1.0}}, "kappa is -1; give a finite number of at least 0"),
        ({"devices": {"count": 2, "compute_w": [1.0, 2.0, 3.0]}}, "the length of compute_w is 3"),
        ({"devices": {"power_w_per_hz": -1e-9}}, "power_w_per_hz is -1e-09; give a finite number above 0"),
    ],
)
def test_bad_values_get_a_sentence(fields: dict[str, object], said: str) -> None:
    with pytest.raises(fc.InputError) as error:
        parse_spec(fields, "test")
    assert said in str(error.value)
