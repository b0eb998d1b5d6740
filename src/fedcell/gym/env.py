"""The environment ``fedcell/Cell-v0``: one cell, one round a step."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from fedcell.gym.episode import Actions, Episode, Game
from fedcell.gym.observation import Observation
from fedcell.gym.picture import cell_map
from fedcell.sim.requests import played
from fedcell.sim.spec import Spec


class CellEnv(gymnasium.Env[Observation, NDArray[Any]]):
    """Schedule the devices of a cell, a round a step, until the model has its target accuracy or the time is over.

    The reward of a step is the accuracy that was gained, less ``time_weight`` times the fraction of the time budget
    that the round took. ``reset(seed=s)`` plays the world of ``fedcell race`` with the random seed s: the same devices,
    channels, data and batches. Without a seed each episode has another.

    Args:
        spec: the run; its policy and seed do not matter. By default the paper's race, to an accuracy of 80 %.
        actions: ``"set"``, a 0 or 1 for each device, or ``"scores"``, a number from -1 to 1 for each, from which the
            best set is taken; see `Scored`.
        theta: of `Scored`.
        time_weight: how much a whole budget of time costs, in accuracy.
        render_mode: None, or ``"rgb_array"`` for a map of the cell.

    Example:
        >>> import gymnasium, fedcell as fc, fedcell.gym
        >>> spec = fc.Spec(rounds=2, devices=fc.Devices(count=4), task=fc.TaskSpec(hidden=[4], sizes=[50] * 4))
        >>> env = gymnasium.make("fedcell/Cell-v0", spec=spec)
        >>> seen, info = env.reset(seed=1)
        >>> seen["devices"].shape, info["clock_s"] > 0  # the devices have reported their profiles
        ((4, 18), True)
        >>> seen, reward, terminated, truncated, info = env.step([1, 1, 0, 0])
        >>> info["round"], info["delivered"], truncated
        (1, 2, False)
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": ["rgb_array"],
        "render_fps": 2,
    }

    def __init__(
        self,
        spec: Spec | None = None,
        actions: Actions = "set",
        theta: float = 0.0,
        time_weight: float = 1.0,
        render_mode: str | None = None,
    ) -> None:
        self._game = Game(spec, actions, theta, time_weight)
        self.observation_space, self.action_space = self._game.observation_space, self._game.action_space
        self.render_mode = render_mode
        self._episode: Episode | None = None

    @property
    def episode(self) -> Episode:
        """The episode under way."""
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("call reset before step or render")
        return self._episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; see `CellEnv`."""
        super().reset(seed=seed, options=options)
        own = seed if seed is not None else int(self.np_random.integers(2**31))
        self._episode = Episode(self._game, own)
        return self.episode.observed(), self.episode.info()

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play a round; see `CellEnv`."""
        run, state = self.episode.facing(action)
        reward, ended, cut = self.episode.after(played(run.task.engine, run.playing(state)))
        return self.episode.observed(), reward, ended, cut, self.episode.info()

    def render(self) -> NDArray[np.uint8] | None:
        """The map of the cell after the last round, (height, width, 3); None without a render mode."""
        return None if self.render_mode is None else cell_map(self.episode)
