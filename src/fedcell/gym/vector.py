"""Many cells at once: one call of the engine trains the clients of all of them."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.gym.episode import Actions, Episode, Game
from fedcell.gym.observation import Observation
from fedcell.gym.picture import cell_map
from fedcell.sim.lockstep import step_together
from fedcell.sim.spec import Spec


class CellVectorEnv(VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """``num_envs`` episodes of `CellEnv` in lockstep; one that has ended starts over with the next step.

    ``reset(seed=s)`` gives them the seeds s, s + 1, and so on; later episodes have others.

    Args:
        num_envs: how many.
        spec: as of CellEnv.
        actions: likewise.
        theta: likewise.
        time_weight: likewise.
        render_mode: likewise.

    Example:
        >>> import gymnasium, fedcell as fc, fedcell.gym
        >>> spec = fc.Spec(rounds=2, devices=fc.Devices(count=4), task=fc.TaskSpec(hidden=[4], sizes=[50] * 4))
        >>> envs = gymnasium.make_vec("fedcell/Cell-v0", 3, "vector_entry_point", spec=spec)
        >>> seen, infos = envs.reset(seed=1)
        >>> seen, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
        >>> seen["devices"].shape, rewards.shape, infos["round"].tolist()
        ((3, 4, 18), (3,), [1, 1, 1])
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": ["rgb_array"],
        "render_fps": 2,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        spec: Spec | None = None,
        actions: Actions = "set",
        theta: float = 0.0,
        time_weight: float = 1.0,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise InputError(f"num_envs is {num_envs}; give a whole number of at least 1")
        self._game = Game(spec, actions, theta, time_weight)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space, self.single_action_space = self._game.observation_space, self._game.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes: list[Episode] = []
        self._ended = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin all episodes."""
        first = seed if isinstance(seed, int) else None
        super().reset(seed=first, options=options)
        wanted = list(seed) if isinstance(seed, list) else [None] * self.num_envs
        if len(wanted) != self.num_envs:
            raise InputError(f"seed has {len(wanted)} entries; give one for each of the {self.num_envs} environments")
        seeds = range(first, first + self.num_envs) if first is not None else [self._seed(own) for own in wanted]
        self._episodes = [Episode(self._game, own) for own in seeds]
        self._ended[:] = False
        return self._observed(), self._infos()

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Play a round of each; an episode that had ended begins again instead, with a reward of 0."""
        if not self._episodes:
            raise gymnasium.error.ResetNeeded("call reset before step")
        rewards, ended, cut = np.zeros(self.num_envs), np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        going = np.flatnonzero(~self._ended)
        rounds = step_together([self._episodes[i].facing(actions[i]) for i in going])
        for i, found in zip(going, rounds, strict=True):
            if isinstance(found, Exception):
                raise found
            rewards[i], ended[i], cut[i] = self._episodes[i].after(found)
        for i in np.flatnonzero(self._ended):
            self._episodes[i] = Episode(self._game, self._seed(None))
        self._ended = ended | cut
        return self._observed(), rewards, ended, cut, self._infos()

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """A map of each cell; None without a render mode."""
        return None if self.render_mode is None else tuple(cell_map(episode) for episode in self._episodes)

    def _seed(self, own: int | None) -> int:
        return int(self.np_random.integers(2**31)) if own is None else own

    def _observed(self) -> Observation:
        seen = [episode.observed() for episode in self._episodes]
        return {name: np.stack([one[name] for one in seen]) for name in seen[0]}

    def _infos(self) -> dict[str, Any]:
        told = [episode.info() for episode in self._episodes]
        return {name: np.array([one[name] for one in told]) for name in told[0]}
