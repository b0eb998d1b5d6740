"""What the server makes of a round's mean, against the published formulas in float64."""

from math import sqrt

import numpy as np
import pytest

import fedcell as fc
from fedcell.errors import InputError
from fedcell.learn.server import SERVERS, parse_server

MEANS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
START = np.array([1.0, -2.0, 0.5], np.float32)


def played(text: str) -> list[list[float]]:
    """What is shown after each of the means."""
    server, model = parse_server(text), START
    memory = np.zeros((server.slots, 3), np.float32)
    shown = []
    for rounds, mean in enumerate(MEANS, start=1):
        model, memory = server.step(model, mean, memory)
        assert memory.shape == (server.slots, 3)
        shown.append(server.shown(model, memory, rounds).tolist())
        assert model.dtype == memory.dtype == np.float32
    return shown


def test_the_mean_itself() -> None:
    assert played("mean") == MEANS.tolist()
    np.testing.assert_allclose(played("momentum:beta=0,rate=1"), MEANS, atol=1e-6)


def test_momentum_line_by_line() -> None:
    x, v, expected = START.astype(float), np.zeros(3), []
    for mean in MEANS.astype(float):
        v = 0.7 * v + (mean - x)
        x = x + 0.5 * v
        expected.append(x.tolist())
    np.testing.assert_allclose(played("momentum:beta=0.7,rate=0.5"), expected, rtol=1e-5)


def test_adam_line_by_line() -> None:
    x, m, v, expected = START.astype(float).tolist(), [0.0] * 3, [0.0] * 3, []
    for mean in MEANS.astype(float):
        for i in range(3):
            d = mean[i] - x[i]
            m[i] = 0.9 * m[i] + 0.1 * d
            v[i] = 0.99 * v[i] + 0.01 * d * d
            x[i] += 0.1 * m[i] / (sqrt(v[i]) + 0.001)
        expected.append(list(x))
    np.testing.assert_allclose(played("adam:rate=0.1"), expected, rtol=1e-4)


def test_the_running_average_weighs_models_by_age() -> None:
    for r, shown in enumerate(played("average:beta=0.6")):
        weights = 0.6 ** np.arange(r, -1, -1)
        np.testing.assert_allclose(shown, weights @ MEANS[: r + 1] / weights.sum(), rtol=1e-5)
    assert parse_server("average").shown(START, np.zeros((1, 3), np.float32), 0).tolist() == START.tolist()


@pytest.mark.parametrize("server", SERVERS)
def test_a_run_with_it_learns_and_resumes(server: str) -> None:
    from fedcell.sim.loop import Simulation
    from fedcell.sim.state import State

    spec = fc.Spec(policy="random:k=3", rounds=3, task=fc.TaskSpec(hidden=[8], server=server, partition="iid"))
    records, run = list(fc.simulate(spec)), Simulation.load(spec)
    state = run.start()
    for record in records:
        played = run.step(State.from_bytes(state.to_bytes()))
        assert played is not None
        assert played[0].accuracy == record.accuracy
        state = played[1]
    shown = run.task.engine.evaluate(run.shown(state)[np.newaxis])
    assert shown.accuracy[0] == records[-1].accuracy
    plain = list(fc.simulate(spec.changed({"task.server": "mean"})))
    assert (plain[-1].accuracy == records[-1].accuracy) == (server == "mean")
    assert (spec.key() == spec.changed({"task.server": "mean"}).key()) == (server == "mean")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adamm", "unknown server 'adamm'; did you mean 'adam'?"),
        ("momentum:beta=1", "beta of the server is 1.0; give a number from 0 to less than 1"),
        ("momentum:rate=0", "rate is 0.0; give a finite number above 0"),
        ("momentum:rate=-1", "rate is -1.0; give a finite number above 0"),
        ("adam:rate=0", "rate is 0.0; give a finite number above 0"),
        ("average:beta=x", "beta of server 'average' is 'x'; give a number"),
    ],
)
def test_bad_servers(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        fc.Spec(task=fc.TaskSpec(server=text))
