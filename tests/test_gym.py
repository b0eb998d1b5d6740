"""The environment: Gymnasium's own checks, the simulator's own rounds."""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import fedcell as fc
import fedcell.gym

SPEC = fc.Spec(
    rounds=4,
    target_accuracy=1.0,
    devices=fc.Devices(count=6),
    task=fc.TaskSpec(hidden=[4], sizes=[60] * 6),
)


def make(**settings: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("fedcell/Cell-v0", **{"spec": SPEC} | settings)


@pytest.mark.parametrize("actions", ["set", "scores", "set+effort", "scores+effort"])
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


def test_an_action_decides_work_and_bits() -> None:
    """The records are those of a policy that decides the same; the same devices then need less time."""

    class Brief(fc.All):
        def local_epochs(self, view: fc.RoundView, devices: Any) -> Any:
            return np.full(devices.size, 0.01 * 500**0.25)

        def upload_bits(self, view: fc.RoundView, devices: Any) -> Any:
            return np.full(devices.size, 3)

    whole, brief = make(actions="set"), make(actions="set+effort")
    whole.reset(seed=2)
    _, _, _, _, before = whole.step(np.ones(6, np.int8))
    run = fedcell.gym.EpisodeSettings(SPEC, "set", 0.0, 1.0).load(2)
    stepped = replace(run, policy=Brief()).step(run.start())
    assert stepped is not None
    record = stepped[0]
    brief.reset(seed=2)
    _, _, _, _, info = brief.step(np.array([1, 1, 1, 1, 1, 1, -0.5, -0.5], np.float32))
    assert (info["accuracy"], info["clock_s"]) == (record.accuracy, record.clock_s)
    assert info["epochs"] == pytest.approx(0.01 * 500**0.25)
    assert (info["bits"], info["delivered"]) == (3.0, 6)
    assert info["sent_bytes"] == record.sent_bytes < 0.2 * before["sent_bytes"]
    assert info["round_s"] < 0.5 * before["round_s"]
    _, _, _, _, info = brief.step(np.full(8, -1.0, np.float32))  # nobody
    assert (info["delivered"], info["epochs"], info["round_s"]) == (0, 0.0, 1.0)
    with pytest.raises(fc.InputError, match=r"a finite number for each of 6 devices, one for work and one for bits$"):
        brief.unwrapped.step(np.ones(6, np.float32))
    with pytest.raises(fc.InputError, match=r"with task.compression = 'sign' nobody decides the bits"):
        make(actions="set+effort", spec=SPEC.changed({"task.compression": "sign"}))


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"actions": "sets"}, "actions is 'sets'; write one of 'set', 'scores', 'set.effort', "),
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
