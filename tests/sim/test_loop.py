from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.learn.engine import Job
from fedcell.protocol import Knowledge
from fedcell.protocol.estimates import WINDOW, Estimates
from fedcell.rng import keyed, stream
from fedcell.schedule.plan import Links
from fedcell.sim import loop
from fedcell.sim.spec import Spec, parse_spec
from fedcell.sim.state import State
from fedcell.sim.task import load_task, resolve_device
from twins.policies import SEEN
from twins.small import write_small_npz


def spec_of(**fields: object) -> Spec:
    return parse_spec({"rounds": 3, **fields}, "test")


def told(record: fc.RoundRecord) -> tuple[object, ...]:
    plan = record.plan
    return (
        record.round,
        record.clock_s,
        record.round_s,
        plan.devices.tolist(),
        plan.shares.tolist(),
        plan.round_s,
        record.delivered.tolist(),
        record.accuracy,
        record.loss,
    )


def records(**fields: object) -> list[tuple[object, ...]]:
    return [told(record) for record in fc.simulate(spec_of(**fields))]


def test_same_seed_same_records_whatever_the_threads() -> None:
    spec = spec_of(policy="random:k=5", devices={"failure": 0.2})
    one, two = ([told(r) for r in fc.simulate(spec, threads=n)] for n in (1, 2))
    assert one == two
    assert one != records(policy="random:k=5", devices={"failure": 0.2}, seed=1)


@pytest.mark.parametrize("knowledge", ["perfect", "observed"])
def test_a_run_goes_on_from_any_state_as_if_it_had_never_stopped(
    knowledge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcell.protocol.estimates.EXPLORE_EVERY", 2)
    spec = spec_of(policy="round_robin:k=3", rounds=4, knowledge=knowledge, devices={"failure": 0.2})
    whole = [told(record) for record in fc.simulate(spec)]
    run = loop.Simulation.load(spec)
    state, found = run.start(), []
    while (played := run.step(state)) is not None:
        record, state = played
        found.append(told(record))
        state = State.from_bytes(state.to_bytes())  # as a store keeps it
        run = loop.Simulation.load(spec)
    assert found == whole
    with pytest.raises(ValueError, match="not the state of a run"):
        State.from_bytes(state.to_bytes()[:-40])


def test_a_run_that_reached_its_target_stays_ended() -> None:
    run = loop.Simulation.load(spec_of(rounds=5, target_accuracy=0.05))
    played = run.step(run.start())
    assert played is not None
    assert run.step(State.from_bytes(played[1].to_bytes())) is None


def test_all_policies_of_a_seed_meet_the_same_world() -> None:
    # Two policies that schedule everybody, one of which also draws lots, must give the same records.
    assert records(policy="all", rounds=2) == records(policy="random:k=20", rounds=2)


def test_what_a_device_trains_does_not_depend_on_who_else_does() -> None:
    spec = spec_of(policy="all")
    task = load_task(spec.task, 20, 0)
    model = task.engine.initial(stream(0, "model"))
    alone = task.engine.train(loop.jobs(task, model, np.array([7]), spec, 3))
    order = keyed(0, "batches", 3)(7).permutation(task.parts[7])[np.newaxis]
    np.testing.assert_array_equal(alone, task.engine.train([Job(model, order)]))


def test_the_mean_is_plain_or_weighted_by_samples() -> None:
    for aggregator in ("mean", "samples", "balanced"):
        run = loop.Simulation.load(
            spec_of(
                policy="all",
                profiles="none",
                task={"aggregator": aggregator, "sizes": [1000, 3000], "partition": "iid"},
                devices={"count": 2},
            )
        )
        state, both = run.start(), np.array([0, 1])
        first, second = run.task.engine.train(loop.jobs(run.task, state.model, both, run.spec, 0)).astype(np.float64)
        expected = (first + 3 * second) / 4 if aggregator == "samples" else (first + second) / 2
        played = run.step(state)
        assert played is not None
        np.testing.assert_allclose(played[1].model, expected, rtol=1e-6, atol=1e-8)


def test_nothing_delivered_leaves_the_model_as_it_was() -> None:
    spec = spec_of(policy="all", rounds=2, devices={"failure": 1.0 - 1e-12})
    run = loop.Simulation.load(spec)
    state = run.start()
    played = run.step(state)
    assert played is not None
    assert played[0].delivered.size == 0
    assert played[1].model is state.model


def test_a_round_that_would_end_after_the_budget_does_not_count() -> None:
    long = records(policy="greedy", rounds=6)
    budget_s = float(long[3][1]) + 0.5  # type: ignore[arg-type]
    assert records(policy="greedy", rounds=None, budget_s=budget_s) == long[:4]
    assert records(policy="greedy", rounds=None, budget_s=1.0) == []


def test_the_clock_is_the_sum_of_the_rounds() -> None:
    run = records(policy="greedy")
    assert [r[0] for r in run] == [1, 2, 3]
    np.testing.assert_allclose([r[1] for r in run], np.cumsum([float(r[2]) for r in run]))  # type: ignore[arg-type]


def test_a_run_ends_at_its_target() -> None:
    run = list(fc.simulate(spec_of(policy="all", rounds=30, target_accuracy=0.75, task={"partition": "iid"})))
    assert run[-1].accuracy >= 0.75
    assert all(record.accuracy < 0.75 for record in run[:-1])
    assert len(run) < 30


def test_lost_models_are_missing_but_their_time_is_spent() -> None:
    lossy = list(fc.simulate(spec_of(policy="greedy", rounds=6, devices={"failure": 0.5})))
    sound = list(fc.simulate(spec_of(policy="greedy", rounds=6)))
    for ours, theirs in zip(lossy, sound, strict=True):
        assert ours.round_s == theirs.round_s
        assert set(ours.delivered) <= set(ours.plan.devices)
        assert theirs.delivered.tolist() == theirs.plan.devices.tolist()
    lost = sum(r.plan.devices.size - r.delivered.size for r in lossy) / sum(r.plan.devices.size for r in lossy)
    assert 0.2 < lost < 0.8


@pytest.mark.parametrize("knowledge", ["perfect", "expected", "observed"])
def test_the_clock_uses_the_truth_whatever_the_server_believes(knowledge: str) -> None:
    spec = spec_of(policy="greedy", rounds=4, knowledge=knowledge)
    world = spec.world([3000] * 20, 50_890)
    clock_s = 0.0
    for r, record in enumerate(fc.simulate(spec)):
        truth = world.conditions(0, r, clock_s)
        finish_s = record.plan.finish_s(truth.upload_s, truth.compute_s)
        assert record.round_s == pytest.approx(finish_s.max(), rel=1e-12)
        clock_s = record.clock_s
        if knowledge == "perfect":
            assert record.round_s == pytest.approx(record.plan.round_s, rel=1e-12)
        else:
            assert record.round_s != pytest.approx(record.plan.round_s, rel=1e-3)


def test_the_view_holds_what_earlier_rounds_showed() -> None:
    SEEN.clear()
    spec = spec_of(policy="twins.policies:Spy", rounds=4, knowledge="observed", devices={"mobility": "static"})
    run = list(fc.simulate(spec))
    world = spec.world([3000] * 20, 50_890)
    truth = [world.conditions(0, r, record.clock_s) for r, record in enumerate(run)]
    assert (SEEN[0].compute_s == 0).all()
    last = SEEN[3]
    assert last.last_round is not None
    assert last.last_round[:6].tolist() == [0, 1, 2, -1, -1, 2]
    assert last.compute_s[5] == pytest.approx(np.mean([truth[r].compute_s[5] for r in range(3)]))
    assert last.compute_s[9] == pytest.approx(np.median(last.compute_s[[0, 1, 2, 5]]))
    assert last.mean_upload_s is not None
    assert last.mean_upload_s == pytest.approx(truth[0].upload_s)
    assert last.samples is not None
    assert last.samples.tolist() == [3000] * 20
    assert last.label_counts is not None
    assert (np.count_nonzero(last.label_counts, axis=1) == 2).all()


def test_exploring_changes_runs_with_observed_knowledge_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for knowledge in ("perfect", "expected", "observed"):
        fields = {"policy": "random:k=8", "knowledge": knowledge, "rounds": 4, "task": {"hidden": [4]}}
        plain, usual = records(explore=False, **fields), records(**fields)
        assert plain == usual  # no look round yet
        with monkeypatch.context() as sooner:
            sooner.setattr("fedcell.protocol.estimates.EXPLORE_EVERY", 2)
            assert records(explore=False, **fields) == plain
            assert (records(**fields) == plain) is (knowledge != "observed")


def test_an_estimate_is_a_mean_first_and_then_follows_the_device() -> None:
    estimates, device, nobody = Estimates.empty(3), np.array([1]), np.full(3, np.nan)
    for value in (4.0, 6.0):
        estimates = estimates.with_observations(device, np.array([value]))
    assert estimates.known_s(np.arange(3)).tolist() == pytest.approx([np.nan, 5.0, np.nan], nan_ok=True)
    knowledge = replace(Knowledge.empty(3), compute=estimates)
    assert knowledge.view(Links(np.ones(3), nobody), 0).compute_s.tolist() == [5.0, 5.0, 5.0]
    for _ in range(20 * WINDOW):
        estimates = estimates.with_observations(device, np.array([20.0]))
    assert estimates.known_s(device)[0] == pytest.approx(20.0)


def test_nobody_in_time_costs_the_deadline_each_round() -> None:
    run = list(fc.simulate(spec_of(policy="deadline:seconds=2", rounds=None, budget_s=9.0)))
    assert [record.clock_s for record in run] == [2.0, 4.0, 6.0, 8.0]
    assert all(record.delivered.size == 0 for record in run)
    assert len({record.accuracy for record in run}) == 1


def test_a_policy_that_never_spends_time_is_refused() -> None:
    with pytest.raises(fc.InputError, match="scheduled nobody and its round takes no time"):
        list(fc.simulate(spec_of(policy="twins.policies:Nobody", rounds=None, budget_s=5.0)))
    assert len(records(policy="twins.policies:Nobody", rounds=2)) == 2


def test_a_grid_of_several_runs_is_refused() -> None:
    with pytest.raises(fc.InputError, match="the spec's grid has 2 runs"):
        list(fc.simulate(spec_of(grid={"seed": [0, 1]})))
    assert records(grid={"seed": [1]}) == records(seed=1)


def test_devices_that_hold_more_train_longer() -> None:
    spec = spec_of(policy="all", devices={"count": 2}, task={"sizes": [500, 4000], "partition": "iid", "epochs": 2})
    task = load_task(spec.task, 2, 0)
    assert task.samples.tolist() == [500, 4000]
    fastest = spec.world([2 * int(n) for n in task.samples], 50_890).conditions(0).compute_s
    assert fastest[0] >= 2 * 500 * 2e-3
    assert fastest[1] >= 2 * 4000 * 2e-3
    record = next(fc.simulate(spec))
    assert record.round_s > 2 * 4000 * 2e-3


def test_fig_2_iid_with_4_devices_reaches_97_percent_after_60_rounds() -> None:
    finals = [
        list(fc.simulate(spec_of(policy="random:k=4", rounds=60, seed=s, task={"partition": "iid"})))[-1]
        for s in (0, 1, 2)
    ]
    assert np.mean([record.accuracy for record in finals]) == pytest.approx(0.97, abs=0.002)


def test_the_data_and_the_engine_are_loaded_once() -> None:
    spec = spec_of()
    assert load_task(spec.task, 20, 0).engine is load_task(spec.task, 20, 1).engine


def test_a_policy_that_fails_is_named_with_its_place() -> None:
    with pytest.raises(
        fc.InputError, match=r"policy 'twins.policies:Broken' failed with ZeroDivisionError: .*policies.py, line"
    ):
        list(fc.simulate(spec_of(policy="twins.policies:Broken")))


def test_a_data_file_that_changes_is_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    write_small_npz(path)
    spec = Spec(policy="random:k=1", rounds=1).changed({"task.data": str(path), "task.hidden": [8], "devices.count": 2})
    before, key = [record.loss for record in fc.simulate(spec)], spec.key()
    with np.load(path) as arrays:
        changed = dict(arrays) | {"test_x": arrays["test_x"][::-1]}
    np.savez(path, **changed)
    assert spec.key() != key
    assert [record.loss for record in fc.simulate(spec)] != before


def test_tasks_that_cannot_be_trained_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_models.py").write_text("def none(data): return None\ndef bad(data): raise KeyError('x')\n")
    monkeypatch.syspath_prepend(tmp_path)
    x, y = np.random.default_rng(0).random((40, 9), np.float32), np.arange(40) % 2
    np.savez(tmp_path / "flat.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    flat = {"data": str(tmp_path / "flat.npz"), "partition": "iid"}
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"hidden": [10**9]}, "weights: with 4 devices that takes .* GiB, and this machine has .*; give fewer units"),
        ({"hidden": [10**40] * 9}, "give fewer units"),
        ({"hidden": [4, 0]}, r"task.hidden is \[4, 0\]; give the number of units"),
        ({"engine": "torch", "model": "own_models:none"}, "returns None; let it return a torch.nn.Module"),
        ({"engine": "torch", "model": "own_models:bad"}, r"'own_models:bad' failed with KeyError: 'x' \(.*, line 2\)"),
        ({"engine": "torch", "model": "cnn"} | flat, r"shape \(9,\); the CNN needs images of at least 16 x 16"),
    ]
    for task, words in mistakes:
        with pytest.raises(fc.InputError, match=words) as caught:
            next(fc.simulate(Spec(rounds=1, devices={"count": 4}, task=task)))  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)


def test_a_batch_larger_than_all_samples_is_all_samples() -> None:
    def loss(engine: str, batch_size: int) -> float:
        task = {"hidden": [4], "batch_size": batch_size, "engine": engine, "sizes": [500] * 4}
        spec = Spec(policy="random:k=2", rounds=1, devices={"count": 4}, task=task)  # type: ignore[arg-type]
        return next(fc.simulate(spec)).loss

    assert loss("mlp", 10**30) == loss("mlp", 500)
    # PyTorch's products of matrices round by their shape, and some processors take another kernel for another shape.
    assert loss("torch", 10**30) == pytest.approx(loss("torch", 500), rel=1e-7)


def test_without_a_gpu_the_mlp_trains_on_the_cpu_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("torch")
    task: dict[str, object] = {"hidden": [4], "sizes": [100] * 20}
    found = records(rounds=1, task={**task, "device": "cuda"})
    assert "task.device is 'cuda', but the MLP trains on the CPU: PyTorch" in caplog.text
    assert found == records(rounds=1, task=task)
    asked = spec_of(task={**task, "device": "cuda"})
    assert asked.key() != spec_of(task=task).key() == resolve_device(asked).key()
    with pytest.raises(fc.InputError, match=r"task.device is 'cuda', but the MLP cannot train there: PyTorch"):
        loop.Simulation.load(asked)
