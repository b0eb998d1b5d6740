"""What devices bring, in Flower: profiles from report to plan, and balanced averaging, with Flower's own strategies."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    Krum,
    QFedAvg,
    Strategy,
)

import fedcell as fc
from fedcell.errors import InputError
from fedcell.flower import Device, Report, Scheduled, report_device
from fedcell.flower.client import RECORD, parse_report
from fedcell.flower.nodes import Roster
from fedcell.flower.state import load_arrays, load_run
from fedcell.flower.wrapped import WEIGHT, own_weights, weights_overridden
from fedcell.learn.profile import noise_of
from fedcell.schedule.plan import Links
from fedcell.schedule.profiles import balanced_weights, standardise
from flower.local import LocalGrid, Nodes, node, run_example
from flower.runs import assert_as_simulated, rounds_of

NAN = float("nan")
KINDS = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]


# --- the whole way ----------------------------------------------------------------------------------------------------


def expected(values: dict[str, Any]) -> list[fc.RoundRecord]:
    return list(fc.simulate(fc.Spec().changed({"cell.radius_m": 1400.0} | values)))


@pytest.mark.parametrize(
    "values",
    [
        {"policy": "diverse", "rounds": 4},
        {"policy": "diverse", "rounds": 4, "task.aggregator": "balanced", "task.epochs": 0.1, "seed": 1},
        {"policy": "diverse", "rounds": 3, "profiles": "labels", "epsilon": 20.0, "devices.mobility": "waypoint"},
        {"policy": "random:k=8", "rounds": 3, "task.aggregator": "balanced", "knowledge": "expected"},
        {"policy": "diverse", "rounds": 3, "task.aggregator": "samples", "task.sizes": "lognormal:0.5"},
        {"policy": "diverse", "rounds": 2, "profiles": "none"},
        {"policy": "greedy", "rounds": 3, "cell.law": "blocks:count=15"},
        {"policy": "optimal", "rounds": 2, "cell.law": "power", "knowledge": "observed"},
        {"policy": "random:k=8", "rounds": 2, "cell.law": "ingress:bits_per_s=1000000"},
        {"policy": "optimal:0.2", "rounds": 2, "cell.law": "dedicated"},
    ],
    ids=lambda values: ",".join(f"{name}={value}" for name, value in values.items()),
)
def test_the_example_schedules_and_averages_by_profiles_as_the_simulator_does(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_example(values | {"state": str(tmp_path / "run")}, monkeypatch)
    assert_as_simulated(tmp_path / "run", expected(values))


@pytest.mark.parametrize("explore", [True, False])
def test_observed_times_and_looks_are_those_of_the_simulator(
    explore: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twentieth round looks at devices that were not scheduled of late, the next one knows what it saw."""
    values = {"policy": "optimal:theta=0.5", "knowledge": "observed", "explore": explore, "rounds": 21, "seed": 1}
    values |= {"devices.mobility": "static", "task.epochs": 0.05, "state": str(tmp_path / "run")}
    run_example(values, monkeypatch)
    del values["state"]
    assert_as_simulated(tmp_path / "run", expected(values))
    chosen = [set(r["devices"]) for r in rounds_of(tmp_path / "run")]
    assert (chosen[19] - set.union(*chosen[11:19]) != set()) == explore


def test_a_resumed_run_remembers_profiles_and_what_is_in_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"policy": "diverse", "task.aggregator": "balanced", "devices.mobility": "static"}
    state = {"state": str(tmp_path / "run")}
    run_example(values | state | {"rounds": 3}, monkeypatch)
    roster, _, _ = load_arrays(tmp_path / "run", load_run(tmp_path / "run"))
    assert np.isfinite(roster.knowledge.profiles).all()
    assert roster.knowledge.recent.sum() == pytest.approx(0.9 + 0.81 + 0.729)
    run_example(values | state | {"rounds": 6}, monkeypatch)
    assert_as_simulated(tmp_path / "run", expected(values | {"rounds": 6}))


def test_a_run_is_not_resumed_with_another_averaging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"policy": "all", "devices.count": 3, "rounds": 1, "state": str(tmp_path / "run")}
    run_example(values, monkeypatch)
    with pytest.raises(InputError, match="has a run whose averaging is strategy, not balanced"):
        run_example(values | {"task.aggregator": "balanced"}, monkeypatch)


def test_the_example_refuses_what_it_does_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="set it to gradients, labels or none"):
        run_example({"policy": "diverse", "profiles": "updates"}, monkeypatch)
    with pytest.raises(InputError, match="late models and server optimizers are the simulator's"):
        run_example({"task.aggregator": "mean:late=0.5"}, monkeypatch)


def test_one_absurd_profile_does_not_make_all_others_look_alike() -> None:
    honest = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [0.5, 0.5]]
    roster, there = met([*honest, [1e6, -1e6]])
    seen = roster.view(there, Links(np.ones(6), np.ones(6)), 0).profiles
    assert seen is not None
    assert seen[:5].tolist() == honest  # not a bit of theirs changes
    told = standardise(seen)
    assert told is not None
    assert np.linalg.norm(told.z[0] - told.z[2]) > 0.1
    assert roster.knowledge.profiles[5].tolist() == [1e6, -1e6]
    assert np.linalg.norm(seen[5]) < 10.0


@pytest.mark.parametrize(
    "profiles", [KINDS, [[1.0], [1.0], [1.0], [0.0]], [[0.0], [9.0]], [[1.0], [2.0], [3.0], [12.0]]]
)
def test_profiles_of_ordinary_devices_are_seen_as_they_are(profiles: list[list[float]]) -> None:
    roster, there = met(profiles)
    seen = roster.view(there, Links(np.ones(len(there)), np.ones(len(there))), 0).profiles
    assert seen is not None
    assert seen.tolist() == profiles


def met(profiles: list[list[float]]) -> tuple[Roster, list[Device]]:
    there = [Device(str(i), Report(profile=profile)) for i, profile in enumerate(profiles)]
    return Roster.empty().with_devices([device.name for device in there]).with_profiles(there), there


# --- reports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "complaint"),
    [
        ([0.5, NAN], r"profile\[1\] is nan; give 1 to 4096 numbers from -1e\+06 to 1e\+06"),
        ([1e7], r"profile\[0\] is 10000000.0"),
        ([], "profile has 0 numbers"),
        ([0.0] * 4097, "profile has 4097 numbers"),
        ([[1.0, 2.0]], r"profile is '\[\[1.0, 2.0\]\]'"),
        ([[1.0], [2.0, 3.0]], "profile is"),
        ("0.5", "profile is '0.5'"),
        (0.5, "profile is '0.5'"),
        ([True], "profile is"),
        (["a"], "profile is"),
    ],
)
def test_a_bad_profile_is_refused_where_it_is_made(profile: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        Report(profile=profile)
    assert "\n" not in str(caught.value)


def test_a_profile_may_be_any_vector_and_is_kept_exactly() -> None:
    numbers = [0.1 + 0.2, -1.0, 3]
    assert Report(profile=numbers).profile == (0.1 + 0.2, -1.0, 3.0)
    assert Report(profile=np.array(numbers)) == Report(profile=numbers)  # type: ignore[arg-type]
    assert parse_report({"profile": numbers}).profile == Report(profile=numbers).profile


def trains(*, report: Report | None, moves: float, samples: float = 1.0, said: Any = None) -> ClientApp:
    """A client that adds ``moves`` to each weight; ``said`` is sent as its profile, checked or not."""
    app = ClientApp()
    if said is None and report is not None:
        report_device(app, report)
    elif said is not None:

        @app.query(RECORD)
        def answer(message: Message, context: Context) -> Message:
            record = ConfigRecord({"name": str(context.node_config["partition-id"]), "upload_s": 1.0, "profile": said})
            return Message(RecordDict({RECORD: record}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        weights = message.content.array_records["arrays"]["w"].numpy() + np.float32(moves)
        metrics = MetricRecord({"num-examples": samples, "loss": moves})
        arrays = ArrayRecord({"w": Array(np.asarray(weights, dtype=np.float32))})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def clients(profiles: list[Any], samples: list[float] | None = None) -> Nodes:
    """Devices 0, 1, ... that move the model by 1, 2, 4, ...; each link and speed the same."""
    given = samples or [1.0] * len(profiles)
    reports = [Report(upload_s=1.0, compute_s=0.1, profile=profile) for profile in profiles]
    apps = [trains(report=r, moves=2.0**i, samples=n) for i, (r, n) in enumerate(zip(reports, given, strict=True))]
    return {i: node(app, i) for i, app in enumerate(apps)}


def start(strategy: Scheduled, nodes: Nodes, rounds: int = 1) -> Any:
    model = ArrayRecord({"w": Array(np.zeros(2, dtype=np.float32))})
    return strategy.start(LocalGrid(nodes), model, num_rounds=rounds)


def test_one_bad_profile_or_one_of_another_length_is_left_out_with_one_line(log: pytest.LogCaptureFixture) -> None:
    nodes = clients([*KINDS, [1.0, 0.0, 0.0], None])
    nodes[6] = node(trains(report=None, moves=64.0, said=[0.5, NAN]), 6)
    strategy = Scheduled(FedAvg(fraction_evaluate=0.0), "all", nodes=7)
    start(strategy, nodes, rounds=2)
    known = strategy._planner.roster.knowledge.profiles
    assert known[:4].tolist() == KINDS
    assert np.isnan(known[4:]).all()
    assert known.shape == (7, 2)
    lines = [line for line in log.messages if "profile" in line]
    assert lines == [
        "fedcell: the profile of device 6 is not used: profile[1] is nan; give 1 to 4096 numbers from -1e+06 to 1e+06",
        "fedcell: the profile of device 4 is not used: most have 2 numbers",
    ]
    assert strategy.rounds[1].delivered == list(range(7))
    # The rest of that report was of use.
    assert strategy.rounds[0].shares[6] == strategy.rounds[0].shares[0]


def test_most_devices_say_how_long_a_profile_is_whoever_came_first() -> None:
    def devices(*profiles: list[float] | None) -> list[Device]:
        return [Device(str(i), Report(profile=profile)) for i, profile in enumerate(profiles)]

    def after(roster: Roster, there: list[Device]) -> Roster:
        return roster.with_devices([device.name for device in there]).with_profiles(there)

    first = after(Roster.empty(), devices([1.0, 2.0, 3.0]))
    assert first.knowledge.profiles.tolist() == [[1.0, 2.0, 3.0]]
    tie = after(first, devices([1.0, 2.0, 3.0], [0.5, 0.5]))
    assert tie.knowledge.profiles.shape == (2, 3)  # what is in use stays
    more = after(tie, devices([1.0, 2.0, 3.0], [0.5, 0.5], [0.25, 0.75]))
    np.testing.assert_array_equal(more.knowledge.profiles, [[NAN, NAN], [0.5, 0.5], [0.25, 0.75]])
    assert more.odd_profiles(devices([1.0, 2.0, 3.0], [0.5, 0.5])) == ["0"]
    # Those that are away still count, and a new report replaces the one before; none leaves it.
    alone = after(more, devices([9.0, 9.0, 9.0], [0.0, 1.0]))
    np.testing.assert_array_equal(alone.knowledge.profiles, [[NAN, NAN], [0.0, 1.0], [0.25, 0.75]])
    assert after(alone, devices(None, None, None)) is alone


def test_the_view_has_profiles_noise_and_what_is_in_the_model() -> None:
    there = [Device(str(i), Report(profile=profile)) for i, profile in enumerate(KINDS)]
    roster = Roster.empty().with_devices([device.name for device in there]).with_profiles(there)
    roster = replace(roster, knowledge=roster.knowledge.with_participation(np.array([1, 3]), np.array([1.0, 3.0])))
    view = roster.view(there[1:], Links(np.ones(3), np.ones(3)), 0, epsilon=8.0)
    assert view.profiles is not None
    assert view.recent is not None
    assert view.profiles.tolist() == KINDS[1:]
    assert view.profile_noise == noise_of(8.0, 2)
    assert view.recent.tolist() == pytest.approx([0.9 * 0.25, 0.0, 0.9 * 0.75])


def test_diverse_takes_one_of_each_kind_and_a_device_that_joins_is_known_at_once() -> None:
    strategy = Scheduled(FedAvg(fraction_evaluate=0.0), "diverse:memory=0", nodes=2)
    nodes = clients([[1.0, 0.0], [1.0, 0.0]])
    start(strategy, nodes)
    nodes |= {i: client for i, client in clients([*[None] * 2, [0.0, 1.0], [0.0, 1.0]]).items() if i >= 2}
    start(strategy, nodes, rounds=2)
    assert {device // 2 for device in strategy.rounds[1].devices} == {0, 1}
    assert len(strategy.rounds[1].devices) == 2


@pytest.mark.parametrize(
    ("settings", "warned"),
    [({"policy": "diverse"}, 1), ({"policy": "all", "averaging": "balanced"}, 1), ({"policy": "all"}, 0)],
)
def test_without_any_profile_one_line_says_what_to_do(
    settings: dict[str, Any], warned: int, log: pytest.LogCaptureFixture
) -> None:
    strategy = Scheduled(FedAvg(fraction_evaluate=0.0), nodes=2, **settings)
    result = start(strategy, clients([None, None], samples=[1.0, 3.0]), rounds=2)
    lines = [line for line in log.messages if "no device reports a profile" in line]
    assert len(lines) == warned
    assert all("Report(profile=profile_of(model, batches))" in line for line in lines)
    if settings["policy"] == "all":  # balanced without profiles is the plain mean, twice 1.5; FedAvg's own is 1.75
        assert result.arrays["w"].numpy().tolist() == [3.0 if warned else 3.5] * 2


# --- balanced averaging -----------------------------------------------------------------------------------------------


def test_balanced_weights_reach_the_mean_and_leave_the_metrics_alone() -> None:
    samples = [10.0, 20.0, 30.0, 40.0]
    nodes = clients(KINDS, samples)
    nodes[3] = node(trains(report=Report(upload_s=1.0, compute_s=0.1, profile=KINDS[3]), moves=NAN), 3)
    inside = FedAvg(fraction_evaluate=0.0)
    strategy = Scheduled(inside, "all", nodes=4, averaging="balanced")
    result = start(strategy, nodes)
    assert strategy.rounds[0].delivered == [0, 1, 2]
    weights = balanced_weights(standardise(KINDS), np.arange(3))
    assert weights[2] > 1.5 * weights[0]
    np.testing.assert_allclose(result.arrays["w"].numpy(), weights @ [1.0, 2.0, 4.0], rtol=1e-6)
    # The mean of the clients' metrics is FedAvg's own, by their numbers of examples.
    assert dict(result.train_metrics_clientapp[1]) == {"loss": pytest.approx((10 * 1 + 20 * 2 + 30 * 4) / 60)}
    np.testing.assert_allclose(strategy._planner.roster.knowledge.recent, 0.9 * np.array([*weights, 0.0]))
    assert inside.weighted_by_key == "num-examples"


def test_the_strategys_own_weights_are_remembered() -> None:
    strategy = Scheduled(FedAvg(fraction_evaluate=0.0), "all", nodes=2)
    start(strategy, clients([None, None], samples=[1.0, 3.0]))
    np.testing.assert_allclose(strategy._planner.roster.knowledge.recent, [0.9 * 0.25, 0.9 * 0.75])


def reply(samples: Any) -> Message:
    metrics = MetricRecord({} if samples is None else {"num-examples": samples})
    return Message(
        RecordDict({"arrays": ArrayRecord(), "metrics": metrics}), reply_to=Message(RecordDict(), 1, "train")
    )


@pytest.mark.parametrize("samples", [[1.0, NAN], [1.0, -2.0], [0, 0], [1, None], [1e308, 1e308]])
def test_weights_that_make_no_sense_count_as_equal(samples: list[Any]) -> None:
    assert own_weights(FedAvg(), [reply(n) for n in samples]) is None


def test_own_weights_are_those_of_the_metric_that_the_strategy_uses() -> None:
    replies = [reply(1), reply(3)]
    inside = FedAvg(weighted_by_key="other")
    assert own_weights(inside, replies) is None
    assert own_weights(FedMedian(), replies) is None
    private = DifferentialPrivacyServerSideFixedClipping(FedAdam(), 0.1, 1.0, 5)
    for strategy in (FedAvg(), private):
        found = own_weights(strategy, replies)
        assert found is not None
        assert found.tolist() == [1.0, 3.0]


def test_what_was_changed_in_strategy_and_replies_is_put_back_after_an_error() -> None:
    strategy, replies = FedAvg(), [reply(1), reply(3)]
    metrics = strategy.train_metrics_aggr_fn
    seen = []

    def fail() -> None:
        seen.extend([strategy.weighted_by_key, *(r.content["metrics"][WEIGHT] for r in replies)])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), weights_overridden(strategy, replies, np.array([0.25, 0.75])):
        fail()
    assert seen == [WEIGHT, 0.25, 0.75]
    assert (strategy.weighted_by_key, strategy.train_metrics_aggr_fn) == ("num-examples", metrics)
    assert [dict(r.content["metrics"]) for r in replies] == [{"num-examples": 1}, {"num-examples": 3}]


@pytest.mark.parametrize(
    "strategy",
    [
        FedMedian(),
        Krum(num_malicious_nodes=0),
        QFedAvg(client_learning_rate=0.1),
        DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.1, 1.0, 5),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_a_strategy_without_a_weighted_mean_cannot_be_balanced(strategy: Strategy) -> None:
    with pytest.raises(
        InputError, match=f"but {type(strategy).__name__} takes no mean that could be weighted; use FedAvg"
    ):
        Scheduled(strategy, "diverse", averaging="balanced")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"averaging": "fair"}, "averaging is 'fair'; write 'strategy' or 'balanced'"),
        ({"epsilon": 0.0}, "epsilon is 0.0; give a number above 0"),
        ({"start_s": -1.0}, "start_s is -1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Scheduled(FedAvg(), "diverse", **settings)


# --- profile_of -------------------------------------------------------------------------------------------------------

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


@needs_torch
def test_a_pytorch_model_has_the_simulators_profile() -> None:
    import torch

    from fedcell.flower import profile_of
    from fedcell.learn.data import load_dataset
    from fedcell.learn.torch_modules import mlp_module
    from fedcell.rng import keyed
    from fedcell.sim.loop import Simulation

    spec = fc.Spec(policy="diverse", seed=3)
    run = Simulation.load(spec, threads=1)
    start, data = run.start(), load_dataset("mnist")
    module = mlp_module(data)
    torch.nn.utils.vector_to_parameters(torch.tensor(start.model), module.parameters())
    module.eval()
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    for device in (0, 7):
        order = keyed(spec.seed, "profiles", 0)(device).permutation(run.task.parts[device])
        x = torch.tensor((data.train_x[order[:110]] / np.float32(255) - data.shift) / data.scale, dtype=torch.float32)
        y = torch.tensor(data.train_y[order[:110]], dtype=torch.int64)
        batches = [(x[i : i + 10], y[i : i + 10]) for i in range(0, 110, 10)]
        profile = profile_of(module, batches, learning_rate=spec.task.learning_rate)
        np.testing.assert_allclose(profile, start.knowledge.profiles[device], atol=1e-4)
        # In larger batches, of which the last is cut, it is another training on the same samples.
        other = profile_of(module, [(x[:60], y[:60]), (x[60:], y[60:])], learning_rate=spec.task.learning_rate)
        assert np.abs(np.subtract(other, profile)).max() > 1e-3
    assert torch.equal(torch.nn.utils.parameters_to_vector(module.parameters()), torch.tensor(start.model))
    assert not module.training
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in module.parameters() if p.grad is not None)


@needs_torch
def test_a_profile_of_another_loss_with_secret_noise() -> None:
    import torch

    from fedcell.flower import profile_of

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 4))
    batches = [(torch.ones(5, 3), torch.zeros(5, dtype=torch.int64))]

    def away(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return -torch.nn.functional.cross_entropy(outputs, labels)

    clean, turned = profile_of(model, batches), profile_of(model, batches, away)
    assert sum(map(abs, clean)) == pytest.approx(1.0)
    assert clean[0] > 0 > turned[0]
    with torch.no_grad():  # as in an evaluation
        assert profile_of(model, batches) == clean
    hidden = [profile_of(model, batches, epsilon=1.0) for _ in range(2)]
    assert hidden[0] != hidden[1]
    known = profile_of(model, batches, epsilon=1.0, rng=np.random.default_rng(1))
    np.testing.assert_allclose(known, np.add(clean, np.random.default_rng(1).laplace(0.0, 2.0, 4)))


@needs_torch
def test_what_has_no_profile_is_refused_in_one_sentence() -> None:
    import torch

    from fedcell.flower import profile_of

    linear = torch.nn.Linear(2, 3)
    batches = [(torch.ones(5, 2), torch.zeros(5, dtype=torch.int64))]
    bare, wide = torch.nn.Linear(2, 3, bias=False), torch.nn.Linear(2, 4097)
    frozen = torch.nn.Linear(2, 3).requires_grad_(False)
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (bare, batches, {}, "no trained bias"),
        (frozen, batches, {}, "no trained bias"),
        (wide, batches, {}, "last bias has 4097 numbers"),
        (linear, [], {}, "batches has no samples"),
        (linear, batches, {"samples": 0}, "samples is 0"),
        (linear, batches, {"learning_rate": 0.0}, "learning_rate is 0.0"),
        (linear, batches, {"epsilon": -1.0}, "epsilon is -1.0"),
        (linear, [(torch.full((5, 2), torch.inf), batches[0][1])], {}, "diverged"),
    ]
    for model, given, settings, complaint in cases:
        with pytest.raises(InputError, match=complaint):
            profile_of(model, given, **settings)
