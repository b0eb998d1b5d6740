"""One run that an agent plays, round by round: what the single and the vectorised environment share."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from fedcell.errors import InputError
from fedcell.gym.actions import Given, Scored
from fedcell.gym.observation import Observation, observe, space_of
from fedcell.schedule.policy import Policy
from fedcell.sim.loop import Simulation
from fedcell.sim.record import RoundRecord
from fedcell.sim.spec import Spec
from fedcell.sim.state import State

Actions = Literal["set", "scores"]
TARGET = 0.8
"""The accuracy that ends an episode if the spec has none."""


class Game:
    """What all episodes have in common.

    Args:
        spec: the run; its policy and seed do not matter. By default the paper's race, to an accuracy of 80 %.
        actions: ``"set"``, a 0 or 1 for each device, or ``"scores"``, a number from -1 to 1 for each, from which
            `Scored` takes the best set.
        theta: of `Scored`.
        time_weight: how much a whole budget of time costs, in accuracy.
    """

    def __init__(self, spec: Spec | None, actions: Actions, theta: float, time_weight: float) -> None:
        if actions not in ("set", "scores"):
            raise InputError(f"actions is {actions!r}; write 'set' or 'scores'")
        if not (np.isfinite(time_weight) and time_weight >= 0.0):
            raise InputError(f"time_weight is {time_weight!r}; give a number of at least 0")
        given = Spec(target_accuracy=TARGET) if spec is None else spec
        if given.grid:
            raise InputError("the spec has a grid, but an environment plays one run at a time; leave the grid out")
        changes: dict[str, Any] = {"policy": "diverse"}  # so that the devices report their profiles
        if given.target_accuracy is None:
            changes["target_accuracy"] = TARGET
        self.spec, self.actions, self.theta, self.time_weight = given.changed(changes), actions, theta, time_weight
        first = self.load(0)
        self.count, self.profile = self.spec.devices.count, first.start().knowledge.profiles.shape[1]
        self.observation_space: spaces.Space[Any] = space_of(self.count, self.profile)
        self.action_space: spaces.Space[Any] = (
            spaces.MultiBinary(self.count) if actions == "set" else spaces.Box(-1.0, 1.0, (self.count,), np.float32)
        )
        limit = self.spec.budget_s if np.isfinite(self.spec.budget_s) else 0.0
        self.budget_s = limit or 60.0 * float(self.spec.rounds or 1)

    def load(self, seed: int) -> Simulation:
        """The run with this seed."""
        return replace(Simulation.load(self.spec.changed({"seed": seed})), policy=Given())  # which sees what agents see

    def policy(self, action: NDArray[Any]) -> Policy:
        """The action as a policy; an InputError if it is none."""
        array = np.asarray(action)
        if array.shape != (self.count,) or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise InputError(
                f"the action has shape {array.shape}; give a finite number for each of {self.count} devices"
            )
        if self.actions == "set":
            return Given(tuple(np.flatnonzero(array).tolist()))
        return Scored(tuple(array.astype(float).tolist()), self.theta)


class Episode:
    """A run under way.

    Attributes:
        run: the run.
        state: where it stands.
        record: its last round; None before the first.
        accuracy: of the model that is shown.
    """

    def __init__(self, game: Game, seed: int) -> None:
        self.game, self.run = game, game.load(seed)
        self.state: State = self.run.start()
        self.record: RoundRecord | None = None
        self.accuracy = float(self.run.task.engine.evaluate(self.state.model[np.newaxis]).accuracy[0])

    def observed(self) -> Observation:
        """What the agent sees now."""
        conditions, view = self.run.conditions(self.state), None
        if conditions is not None and conditions.there.size:
            view = self.run.sight(self.state, conditions).view
        return observe(view, self.game.count, self.game.profile)

    def facing(self, action: NDArray[Any]) -> tuple[Simulation, State]:
        """The run with the agent's action as its policy, and the state in which it is taken."""
        return replace(self.run, policy=self.game.policy(action)), self.state

    def after(self, played: tuple[RoundRecord, State] | None) -> tuple[float, bool, bool]:
        """Take in a round: the reward, and whether the episode has ended or was cut off."""
        if played is None:  # the round would have ended after the budget
            return -self.game.time_weight * max(1.0 - self.state.clock_s / self.game.budget_s, 0.0), False, True
        before = self.accuracy
        self.record, self.state = played
        self.accuracy = self.record.accuracy
        diverged = not np.isfinite(self.state.model).all()
        reward = (self.accuracy - before) - self.game.time_weight * self.record.round_s / self.game.budget_s
        ended = self.state.reached or diverged
        return float(reward), bool(ended), not ended and self.run.conditions(self.state) is None

    def info(self) -> dict[str, Any]:
        """What is known of the run beyond the observation."""
        record = self.record
        return {
            "accuracy": self.accuracy,
            "clock_s": float(self.state.clock_s),
            "round": int(self.state.round),
            "round_s": 0.0 if record is None else float(record.round_s),
            "delivered": 0 if record is None else int(record.delivered.size),
        }
