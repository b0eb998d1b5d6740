"""Aggregators: server optimizers against the published formulas in float64, and the spellings of version 0.2."""

from math import sqrt
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.errors import InputError
from fedcell.learn.aggregator import (
    AGGREGATORS,
    AggregatorState,
    FedAvgM,
    LateModels,
    Spelling02,
    format_aggregator,
    parse_aggregator,
)
from fedcell.learn.engine import HostUpdates
from fedcell.sim.spec import parse_spec

MEANS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
START = np.array([1.0, -2.0, 0.5], np.float32)


def played(text: str) -> list[list[float]]:
    """The model that is evaluated after each of the means."""
    aggregator, model = parse_aggregator(text), START
    state, evaluated = aggregator.initial(3), []
    for rounds, mean in enumerate(MEANS, start=1):
        model, state = aggregator.step(model, mean, state)
        assert state.vectors.shape == (aggregator.num_state_vectors, 3)
        assert state.rounds == rounds
        evaluated.append(aggregator.evaluated(model, state).tolist())
        assert model.dtype == state.vectors.dtype == np.float32
    return evaluated


def test_the_mean_itself() -> None:
    assert played("mean") == MEANS.tolist()
    np.testing.assert_allclose(played("fedavgm:beta=0,rate=1"), MEANS, atol=1e-6)


def test_momentum_line_by_line() -> None:
    x, v, expected = START.astype(float), np.zeros(3), []
    for mean in MEANS.astype(float):
        v = 0.7 * v + (mean - x)
        x = x + 0.5 * v
        expected.append(x.tolist())
    np.testing.assert_allclose(played("fedavgm:beta=0.7,rate=0.5"), expected, rtol=1e-5)


def test_adam_line_by_line() -> None:
    x, m, v, expected = START.astype(float).tolist(), [0.0] * 3, [0.0] * 3, []
    for mean in MEANS.astype(float):
        for i in range(3):
            d = mean[i] - x[i]
            m[i] = 0.9 * m[i] + 0.1 * d
            v[i] = 0.99 * v[i] + 0.01 * d * d
            x[i] += 0.1 * m[i] / (sqrt(v[i]) + 0.001)
        expected.append(list(x))
    np.testing.assert_allclose(played("fedadam:rate=0.1"), expected, rtol=1e-4)


def test_the_running_average_weighs_models_by_age() -> None:
    for r, shown in enumerate(played("ema:beta=0.6")):
        weights = 0.6 ** np.arange(r, -1, -1)
        np.testing.assert_allclose(shown, weights @ MEANS[: r + 1] / weights.sum(), rtol=1e-5)
    ema = parse_aggregator("ema")
    assert ema.evaluated(START, ema.initial(3)).tolist() == START.tolist()


@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_run_with_it_learns_and_resumes(name: str) -> None:
    from fedcell.sim.loop import Simulation
    from fedcell.sim.state import State

    task = fc.TaskSpec(hidden=[8], aggregator=name, partition="iid", sizes=[500, 400, 300, 200, 100])
    spec = fc.Spec(policy="random:k=3", rounds=3, task=task, devices=fc.Devices(count=5))
    records, run = list(fc.simulate(spec)), Simulation.load(spec)
    state = run.start()
    for record in records:
        played = run.step(State.from_bytes(state.to_bytes()))
        assert played is not None
        assert played[0].accuracy == record.accuracy
        state = played[1]
    evaluated = run.task.engine.evaluate(run.evaluated_model(state)[np.newaxis])
    assert evaluated.accuracy[0] == records[-1].accuracy
    plain = list(fc.simulate(spec.changed({"task.aggregator": "mean"})))
    assert (plain[-1].loss == records[-1].loss) == (name == "mean")
    assert (spec.key() == spec.changed({"task.aggregator": "mean"}).key()) == (name == "mean")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedadamm", "unknown aggregator 'fedadamm'; did you mean 'fedadam'?"),
        ("fedavgm:beta=1", "beta of the aggregator is 1.0; give a number from 0 to less than 1"),
        ("fedavgm:rate=0", "rate is 0.0; give a finite number above 0"),
        ("fedavgm:rate=-1", "rate is -1.0; give a finite number above 0"),
        ("fedadam:rate=0", "rate is 0.0; give a finite number above 0"),
        ("ema:beta=x", "beta of aggregator 'ema' is 'x'; give a number"),
        ("mean:late=2", "late of the aggregator is 2.0; give a number from 0 to 1"),
        ("mean:late=nan", "late is nan; give a finite number"),
        ("samples:weights=mean", "aggregator 'samples' has no setting 'weights'"),
        ("fedavgm:weights=plain", "weights of aggregator 'fedavgm' is 'plain'"),
    ],
)
def test_bad_aggregators(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        fc.Spec(task=fc.TaskSpec(aggregator=text))


# --- the spellings of version 0.2 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("averaging", "server", "late", "text"),
    [
        ("plain", "mean", 0.0, "mean"),
        ("samples", "mean", 0.25, "samples:late=0.25"),
        ("balanced", "mean", 0.0, "balanced"),
        ("plain", "momentum:rate=0.5", 0.0, "fedavgm:rate=0.5"),
        ("balanced", "adam", 1.0, "fedadam:weights=balanced,late=1"),
        ("samples", "average:beta=0.5", 0.0, "ema:beta=0.5,weights=samples"),
    ],
)
def test_the_spellings_of_version_0_2_mean_the_same(averaging: str, server: str, late: float, text: str) -> None:
    old = Spelling02(averaging, server, late)
    assert format_aggregator(old.aggregator()) == text
    assert Spelling02.of(parse_aggregator(text)) == old
    task: dict[str, Any] = {"averaging": averaging, "server": server}
    old_fields: dict[str, Any] = {"late_weight": late, "task": task}
    specs = [
        fc.Spec(task=fc.TaskSpec(aggregator=text)),
        fc.Spec(**old_fields),
        fc.Spec(**old_fields | {"task": fc.TaskSpec(**task)}),
        fc.Spec().changed({"task.averaging": averaging, "late_weight": late}).changed({"task.server": server}),
        *fc.Spec(grid={"task.averaging": [averaging], "late_weight": [late], "task.server": [server]}).runs(),
    ]
    assert len({spec.key() for spec in specs}) == len(set(specs)) == 1
    assert all("averaging" not in spec.to_toml() and text in spec.to_toml() for spec in specs)
    with pytest.warns(DeprecationWarning, match=r"late_weight is part of task\.aggregator now"):
        assert specs[0].late_weight == late
    with pytest.warns(DeprecationWarning, match=r"task\.\w+ is part of task\.aggregator now"):
        assert (specs[0].task.averaging, specs[0].task.server) == (averaging, server)


def test_old_and_new_spellings_are_not_mixed_in_one_document() -> None:
    with pytest.raises(InputError, match=r"averaging and task\.aggregator are given; leave averaging out"):
        parse_spec({"task": {"aggregator": "mean", "averaging": "balanced"}}, "x")
    for task, words in (
        ({"averaging": "mean"}, "averaging is 'mean'; give 'plain', 'samples' or 'balanced'"),
        ({"server": "adamm"}, "unknown server 'adamm'; did you mean 'adam'?"),
        ({"server": "mean:rate=2"}, "server 'mean' takes no settings, but 'rate=2' was given"),
        ({"server": 3}, "server is 3; give its name as text"),
    ):
        with pytest.raises(InputError, match=words.replace("?", r"\?")):
            parse_spec({"task": task}, "x")


# --- late models, weights and what is kept ---------------------------------------------------------------------------

LATE = LateModels(
    np.array([4, 1]), np.array([[2.0, 0.0], [8.0, 4.0]], np.float32), np.array([3.0, 5.0]), np.array([0.2, 0.3])
)
SAMPLES = np.array([10, 20, 30, 40, 50])


def updates_of(*models: tuple[float, float]) -> HostUpdates:
    rows = np.array(models, np.float32)
    nothing = np.full(len(models), np.nan)
    return HostUpdates(list(np.zeros_like(rows)), rows, nothing, nothing, (2,))


def test_late_models_take_a_part_of_the_band_until_they_arrive() -> None:
    assert LateModels.empty().band_left == 1.0
    assert LATE.band_left == 0.5
    for round_s, devices in ((2.9, []), (3.0, [4]), (9.0, [4, 1])):
        there = LATE.arrived(round_s)
        assert there.devices.tolist() == devices
        assert len(there.models) == len(there.after_s) == len(there.shares) == len(devices)
    conditions = fc.World(fc.Cell(csi_error_db=3.0), fc.Devices(3)).conditions(seed=1)
    left = LATE.with_remaining_band(conditions)
    np.testing.assert_allclose(left.upload_s, 2.0 * conditions.upload_s)
    np.testing.assert_allclose(left.believed_upload_s, 2.0 * conditions.believed_upload_s)
    assert LateModels.empty().with_remaining_band(conditions) is conditions


@pytest.mark.parametrize(
    ("text", "weights", "mean", "each"),
    [
        # of (1, 1) and (3, 5), and late (2, 0) of device 4 and (8, 4) of device 1
        ("mean:late=1", None, [3.5, 2.5], [1.0, 1.0, 1.0, 1.0]),
        ("mean:late=0.5", None, [3.0, 8 / 3], [1.0, 1.0, 0.5, 0.5]),
        ("balanced:late=1", [1.0, 3.0], [15 / 4, 3.0], [1.0, 3.0, 2.0, 2.0]),
        ("samples:late=0.5", [10.0, 30.0], [(10 + 90 + 50 + 80) / 75, 200 / 75], [10.0, 30.0, 25.0, 10.0]),
    ],
)
def test_late_models_count_as_much_as_usual_ones_times_their_weight(
    text: str, weights: list[float] | None, mean: list[float], each: list[float]
) -> None:
    given = None if weights is None else np.array(weights)
    aggregator, updates = parse_aggregator(text), updates_of((1.0, 1.0), (3.0, 5.0))
    found, whose, parts = aggregator.mean(updates, np.array([0, 2]), given, LATE, SAMPLES)
    assert found is not None
    assert parts is not None
    assert (found.tolist(), whose.tolist(), parts.tolist()) == (pytest.approx(mean), [0, 2, 4, 1], each)
    own, whose, parts = aggregator.mean(updates, np.array([0, 2]), given, LateModels.empty(), SAMPLES)
    assert own is not None
    assert own.tolist() == pytest.approx(np.average([[1, 1], [3, 5]], axis=0, weights=given).tolist())
    assert (whose.tolist(), parts is given) == ([0, 2], True)


def test_late_models_alone_make_a_mean_and_nobody_makes_none() -> None:
    nobody, nothing = np.empty(0, np.int64), updates_of()
    found, whose, each = parse_aggregator("mean:late=0.5").mean(nothing, nobody, None, LATE, SAMPLES)
    assert found is not None
    assert each is not None
    assert (found.tolist(), whose.tolist(), each.tolist()) == ([5.0, 2.0], [4, 1], [0.5, 0.5])
    assert parse_aggregator("mean").mean(nothing, nobody, None, LateModels.empty(), SAMPLES)[0] is None


def test_weights_are_samples_or_those_of_the_profiles_if_they_are_known() -> None:
    assert parse_aggregator("mean").model_weights(SAMPLES, lambda: np.ones(5)) is None
    samples = parse_aggregator("samples").model_weights(SAMPLES, lambda: None)
    assert samples is not None
    assert samples.tolist() == SAMPLES.tolist()
    balanced = parse_aggregator("balanced")
    weights = np.arange(5.0)
    assert balanced.model_weights(SAMPLES, lambda: weights) is weights
    assert balanced.model_weights(SAMPLES[:0], lambda: weights) is None


def test_a_policys_momentum_applies_where_there_is_no_server_optimizer() -> None:
    assert parse_aggregator("samples:late=0.5").with_momentum(0.5) == FedAvgM(0.5, 1.0, "samples", 0.5)
    for text, beta in (("mean", 0.0), ("fedadam", 0.5), ("fedavgm", 0.5), ("ema", 0.5)):
        assert parse_aggregator(text).with_momentum(beta) == parse_aggregator(text)


def test_settings_that_are_left_out_are_those_of_the_documentation() -> None:
    usual = {"weights": "mean", "late": 0.0}
    assert vars(parse_aggregator("fedavgm")) == {"beta": 0.9, "rate": 1.0, **usual}
    assert vars(parse_aggregator("fedadam")) == {"rate": 0.01, "beta1": 0.9, "beta2": 0.99, "tau": 0.001, **usual}
    assert vars(parse_aggregator("ema")) == {"beta": 0.9, **usual}
    for name in ("mean", "samples", "balanced"):
        assert parse_aggregator(name).late == 0.0
    vectors = {name: parse_aggregator(name).num_state_vectors for name in AGGREGATORS}
    assert vectors == {"mean": 0, "samples": 0, "balanced": 0, "fedavgm": 1, "fedadam": 2, "ema": 1}
    assert Spelling02() == Spelling02("plain", "mean", 0.0)


def test_a_state_is_saved_as_arrays_and_read_back() -> None:
    state = AggregatorState(np.ones((2, 3), np.float32), 4, LATE)
    arrays = state.to_arrays()
    assert set(arrays) == {"memory", "late_devices", "late_models", "late_after_s", "late_shares"}
    again = AggregatorState.from_arrays(arrays, 4)
    assert (again.rounds, again.vectors.tolist()) == (4, state.vectors.tolist())
    for name in ("devices", "models", "after_s", "shares"):
        assert getattr(again.late, name).tolist() == getattr(LATE, name).tolist()
    assert AggregatorState().rounds == 0


@pytest.mark.parametrize("text", ["fedadam:beta1=1", "fedadam:beta2=-0.1", "ema:beta=1", "fedadam:tau=0"])
def test_settings_of_an_optimizer_have_their_bounds(text: str) -> None:
    with pytest.raises(InputError, match=r"give a (number from 0 to less than 1|finite number above 0)"):
        parse_aggregator(text)
