"""Aggregators: server optimizers against the published formulas in float64, and the spellings of version 0.2."""

from math import sqrt
from typing import Any

import numpy as np
import pytest

import fedcell as fc
from fedcell.errors import InputError
from fedcell.learn.aggregator import AGGREGATORS, Spelling02, format_aggregator, parse_aggregator
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
