"""The environment: Gymnasium's own checks, the simulator's own rounds."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import fedcell as fc
import fedcell.gym
from fedcell.gym import Given, Scored, observe

SPEC = fc.Spec(
    rounds=4,
    target_accuracy=1.0,
    devices=fc.Devices(count=6),
    task=fc.TaskSpec(hidden=[4], sizes=[60] * 6),
)


def make(**settings: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("fedcell/Cell-v0", **{"spec": SPEC} | settings)


@pytest.mark.parametrize("actions", ["set", "scores"])
def test_gymnasiums_checks_pass(actions: str) -> None:
    check_env(make(actions=actions, render_mode="rgb_array").unwrapped)


def test_an_episode_is_the_simulators_run() -> None:
    """Whoever schedules the devices that Random schedules gets Random's records."""
    expected = list(fc.simulate(SPEC.changed({"policy": "random:k=3", "seed": 5, "profiles": "labels"})))
    env = make(spec=SPEC.changed({"profiles": "labels"}))
    env.reset(seed=5)
    for record in expected:
        action = np.isin(np.arange(6), record.plan.devices).astype(np.int8)
        _, reward, terminated, truncated, info = env.step(action)
        assert info["accuracy"] == record.accuracy
        assert info["clock_s"] == record.clock_s
        assert not terminated
        assert truncated == (record.round == 4)
    before, last = expected[-2:]
    assert reward == pytest.approx(last.accuracy - before.accuracy - last.round_s / (60.0 * 4))


def test_together_as_alone() -> None:
    rng = np.random.default_rng(0)
    envs = gymnasium.make_vec("fedcell/Cell-v0", 3, "vector_entry_point", spec=SPEC)
    alone = [make() for _ in range(3)]
    seen, _ = envs.reset(seed=7)
    first = [env.reset(seed=7 + i)[0] for i, env in enumerate(alone)]
    for name, array in seen.items():
        np.testing.assert_array_equal(array, np.stack([one[name] for one in first]))
    for step in range(4):
        actions = rng.integers(0, 2, (3, 6)).astype(np.int8)
        seen, rewards, terminated, truncated, infos = envs.step(actions)
        for i, env in enumerate(alone):
            one, reward, ended, cut, info = env.step(actions[i])
            assert (rewards[i], terminated[i], truncated[i]) == (reward, ended, cut)
            assert {name: values[i] for name, values in infos.items()} == info
            for name, array in seen.items():
                np.testing.assert_array_equal(array[i], one[name])
        assert truncated.all() == (step == 3)
    # The next step begins anew: whatever is done, nothing is rewarded.
    seen, rewards, terminated, truncated, infos = envs.step(actions)
    assert rewards.tolist() == [0.0] * 3
    assert not truncated.any()
    assert infos["round"].tolist() == [0] * 3
    envs.step(actions)
    pictures = gymnasium.make_vec("fedcell/Cell-v0", 2, "vector_entry_point", spec=SPEC, render_mode="rgb_array")
    pictures.reset(seed=0)
    shown: Any = pictures.render()
    assert [one.shape for one in shown] == [(520, 500, 3)] * 2


def test_the_target_ends_an_episode_and_the_budget_cuts_it_off() -> None:
    env = make(spec=SPEC.changed({"target_accuracy": 0.01}))
    env.reset(seed=0)
    *_, terminated, truncated, _ = env.step(np.ones(6, np.int8))
    assert (terminated, truncated) == (True, False)
    env = make(spec=fc.Spec(budget_s=0.05, devices=SPEC.devices, task=SPEC.task, profiles="labels"))
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(np.ones(6, np.int8))
    assert (info["round"], terminated, truncated, reward) == (0, False, True, -1.0)


def test_nobody_costs_a_second() -> None:
    env = make(spec=SPEC.changed({"profiles": "labels"}))
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.zeros(6, np.int8))
    assert info["clock_s"] == 1.0
    assert reward == pytest.approx(-1.0 / 240.0)


def test_scores_take_the_best_set_of_their_order() -> None:
    """Against all sets that the order allows, one by one."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        upload_s, compute_s, scores = rng.exponential(size=7), rng.exponential(size=7), rng.normal(size=7)
        view = fc.RoundView(upload_s, compute_s)
        order = np.argsort(-scores)
        rounds_s = [float(fc.allocate(upload_s[order[:n]], compute_s[order[:n]]).round_s) for n in range(1, 8)]
        costs = [(0.1 + 1 / n) * round_s for n, round_s in enumerate(rounds_s, start=1)]
        expected = sorted(order[: int(np.argmin(costs)) + 1].tolist())
        found = Scored(tuple(scores), 0.1).decide(view, rng).devices.tolist()
        assert found == expected
    many = fc.RoundView(rng.exponential(size=1000), rng.exponential(size=1000))
    assert Scored(tuple(rng.normal(size=1000))).decide(many, rng).devices.size >= 1


def test_absent_devices_are_zeros_and_are_not_scheduled() -> None:
    view = fc.RoundView(np.array([1.0, 2.0]), np.array([3.0, 4.0]), ids=np.array([1, 3]), profiles=np.eye(2))
    seen = observe(view, 5, 2)
    assert seen["devices"][[0, 2, 4]].tolist() == np.zeros((3, 10)).tolist()
    assert seen["devices"][3, -2:].tolist() == [0.0, 1.0]
    assert Given((0, 3)).decide(view, np.random.default_rng(0)).devices.tolist() == [1]
    assert not observe(None, 5, 2)["devices"].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"actions": "sets"}, "actions is 'sets'; write 'set' or 'scores'"),
        ({"time_weight": -1.0}, "time_weight is -1.0; give a number of at least 0"),
        ({"spec": SPEC.changed({}, {"seed": [0, 1]})}, "the spec has a grid"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(fc.InputError, match=message):
        make(**settings)


def test_bad_actions_are_refused() -> None:
    env = make().unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(6, np.int8))
    env.reset(seed=0)
    for action in (np.zeros(5), np.full(6, np.nan), np.array(["a"] * 6)):
        with pytest.raises(fc.InputError, match=r"the action has shape .*; give a finite number for each of 6 devices"):
            env.step(action)
    with pytest.raises(fc.InputError, match="num_envs is 0; give a whole number of at least 1"):
        fedcell.gym.CellVectorEnv(0, SPEC)
    with pytest.raises(fc.InputError, match="there are 2 scores, but a device has the number 2"):
        Scored((0.0, 1.0)).decide(fc.RoundView(np.ones(3), np.ones(3)), np.random.default_rng(0))
