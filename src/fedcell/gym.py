"""A Gymnasium environment in which an agent learns to schedule: ``import fedcell.gym`` registers ``fedcell/Cell-v0``.

Needs the extra ``gym``: pip install "fedcell[gym]". docs/gym.md says what is observed, done and rewarded.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from fedcell.errors import InputError
from fedcell.plots import cell_map_figure
from fedcell.quantisation import BITS
from fedcell.schedule.bandwidth import allocate
from fedcell.schedule.policy import Policy, max_scheduled
from fedcell.schedule.view import RoundView
from fedcell.sim.loop import Simulation
from fedcell.sim.record import RoundRecord
from fedcell.sim.requests import run_coroutine, step_together
from fedcell.sim.spec import Spec
from fedcell.sim.state import State
from fedcell.types import Floats, Indices

try:
    import gymnasium
except ImportError:
    raise InputError("Gymnasium is not installed; pip install 'fedcell[gym]'") from None
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

__all__ = ["DEVICE_FEATURES", "CellEnv", "CellVectorEnv", "Given", "Scored", "WithEffort", "observe"]

DEVICE_FEATURES = ("there", "log_upload_s", "log_compute_s", "waited", "turns", "recent", "loss", "log_norm")
"""The first columns of ``devices``; the profile's entries follow.

there: 1 if the device can be scheduled; waited: rounds since it was last scheduled, divided by 10; turns: the fraction
of all rounds in which it delivered; recent: see RoundView; loss and log_norm: last reported, 0 where unknown.
"""
CELL_FEATURES = 3
"""The round divided by 100, the fraction of the time that is used up, and the fraction of devices that are there."""
MAX_FEATURE = 10.0
"""Features are clipped to this range, from -10 to 10."""

Observation = dict[str, NDArray[np.float32]]


def space_of(count: int, profile: int) -> spaces.Dict:
    """Return the space of observations of M = ``count`` devices with profiles of ``profile`` entries."""
    return spaces.Dict(
        {
            "devices": spaces.Box(-MAX_FEATURE, MAX_FEATURE, (count, len(DEVICE_FEATURES) + profile), np.float32),
            "cell": spaces.Box(0.0, MAX_FEATURE, (CELL_FEATURES,), np.float32),
        }
    )


def observe(view: RoundView | None, count: int, profile: int) -> Observation:
    """Return the observation of a round.

    Args:
        view: what the server knows; None if nobody is there.
        count: M, the number of devices; a device's row is its number in ``view.ids``.
        profile: how many entries profiles have; 0 for none.

    Returns:
        ``devices``, (M, 8 + profile), and ``cell``, (3,), both float32.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.gym import observe
        >>> seen = observe(fc.RoundView([1.0, 2.0], [3.0, 4.0]), count=3, profile=0)
        >>> seen["devices"].shape, seen["devices"][:, 0].tolist()  # the third is not there
        ((3, 8), [1.0, 1.0, 0.0])
    """
    devices, cell = np.zeros((count, len(DEVICE_FEATURES) + profile)), np.zeros(CELL_FEATURES)
    if view is not None:
        rows = np.arange(len(view)) if view.ids is None else view.ids
        rounds = view.round_index + 1
        columns: list[Any] = [
            1.0,
            np.log(view.upload_s),
            np.log(np.maximum(view.compute_s, 1e-4)),
            0.0 if view.last_round is None else (view.round_index - view.last_round) / 10.0,
            0.0 if view.turns is None else view.turns / rounds,
            0.0 if view.recent is None else view.recent,
            0.0 if view.losses is None else np.nan_to_num(view.losses),
            0.0 if view.norms is None else np.log(np.maximum(np.nan_to_num(view.norms, nan=1.0), 1e-4)),
        ]
        for number, column in enumerate(columns):
            devices[rows, number] = column
        if profile and view.profiles is not None and view.profiles.shape[1] == profile:
            devices[rows, len(DEVICE_FEATURES) :] = np.nan_to_num(view.profiles)
        used = view.clock_s / (view.clock_s + view.left_s) if view.clock_s > 0.0 else 0.0
        cell[:] = view.round_index / 100.0, np.nan_to_num(used), len(view) / count
    return {
        "devices": np.clip(devices, -MAX_FEATURE, MAX_FEATURE).astype(np.float32),
        "cell": np.clip(cell, 0.0, MAX_FEATURE).astype(np.float32),
    }


NOBODY_S = 1.0
"""How long a round takes for which the agent chose nobody: waiting is not free."""
MAX_SIZES = 200
"""At most so many sizes of the set are tried; in larger cells they are spaced evenly on a logarithmic scale."""


@dataclass(frozen=True)
class Given(Policy):
    """Schedule the given devices, as far as they are available.

    Attributes:
        devices: device numbers.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.gym import Given
        >>> view = fc.RoundView(upload_s=[1.0, 3.0, 9.0], compute_s=[2.0, 2.0, 5.0])
        >>> Given((0, 1)).decide(view, np.random.default_rng(0)).devices.tolist()
        [0, 1]
    """

    devices: tuple[int, ...] = ()
    uses_profiles: ClassVar[bool] = True
    uses_norms: ClassVar[bool] = True

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        return np.flatnonzero(np.isin(_numbers(view), self.devices))

    @override
    def empty_round_s(self) -> float:
        return NOBODY_S


@dataclass(frozen=True)
class Scored(Policy):
    """Schedule the n devices with the highest scores, with the n that minimises (theta + 1/n) x round time.

    Attributes:
        scores: (M,) by device number; the higher, the more wanted.
        theta: as in `Greedy`: the larger, the shorter the rounds.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.gym import Scored
        >>> view = fc.RoundView(upload_s=[1.0, 3.0, 90.0], compute_s=[2.0, 2.0, 5.0])
        >>> Scored((0.1, 0.9, 0.0), theta=0.0).decide(view, np.random.default_rng(0)).devices.tolist()
        [0, 1]
    """

    scores: tuple[float, ...] = ()
    theta: float = 0.0
    uses_profiles: ClassVar[bool] = True
    uses_norms: ClassVar[bool] = True

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Indices:
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.size <= (last := int(_numbers(view).max())):
            raise InputError(f"there are {scores.size} scores, but a device has the number {last}; give one for each")
        if not np.isfinite(scores).all():
            raise InputError(f"scores[{int(np.argmin(np.isfinite(scores)))}] is not a finite number; give finite ones")
        order = np.argsort(-scores[_numbers(view)], kind="stable")
        most = max_scheduled(view, self.max_devices, "max_devices")
        sizes = np.unique(np.geomspace(1, most, min(most, MAX_SIZES)).round().astype(int)) if most > MAX_SIZES else None
        counts = np.arange(1, most + 1) if sizes is None else sizes
        costs = [(self.theta + 1.0 / n) * _round_s(view, order[:n]) for n in counts]
        return order[: counts[int(np.argmin(costs))]]


MIN_EPOCHS, MAX_EPOCHS = 0.01, 5.0
"""The work that an action may ask for; see `effort_of`."""


def effort_of(work: float, bits: float) -> tuple[float, int]:
    """Return the local epochs and the bits a weight that two numbers of an action mean.

    Args:
        work: -1 for a hundredth of the samples, 1 for five epochs, on a logarithmic scale; above 1 epoch whole ones.
        bits: from -1 to 1, in five equal parts: 2, 3, 4, 8 or 32 bits.

    Example:
        >>> from fedcell.gym import effort_of
        >>> effort_of(-1.0, -1.0), effort_of(1.0, 1.0), round(effort_of(0.0, 0.0)[0], 3)
        ((0.01, 2), (5.0, 32), 0.224)
    """
    epochs = MIN_EPOCHS * (MAX_EPOCHS / MIN_EPOCHS) ** float(np.clip((work + 1.0) / 2.0, 0.0, 1.0))
    place = int(np.clip((bits + 1.0) / 2.0 * len(BITS), 0, len(BITS) - 1))
    return float(round(epochs)) if epochs > 1.0 else epochs, BITS[place]


@dataclass(frozen=True)
class WithEffort(Policy):
    """Schedule the devices that another policy chooses, all with the same work and the same bits.

    Attributes:
        inner: chooses the devices, by the times that this work and these bits take.
        epochs: how often each goes through its samples.
        bits: bits a weight of each upload.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> from fedcell.gym import Given, WithEffort
        >>> view = fc.RoundView(upload_s=[1.0, 3.0], compute_s=[2.0, 2.0], weights=50_000)
        >>> plan = WithEffort(Given((0,)), epochs=0.5, bits=8).decide(view, np.random.default_rng(0))
        >>> plan.epochs.tolist(), plan.bits.tolist(), round(plan.round_s, 3)
        ([0.5], [8.0], 1.25)
    """

    inner: Policy
    epochs: float
    bits: int
    uses_profiles: ClassVar[bool] = True
    uses_norms: ClassVar[bool] = True

    @override
    def choose(self, view: RoundView, rng: np.random.Generator) -> Any:
        part = np.full(len(view), float(view.upload_part(self.bits)))
        compute_s = self.epochs / view.epochs * view.compute_s
        return self.inner.choose(
            replace(view, upload_s=part * view.upload_s, compute_s=compute_s, law=view.law.scaled(part)), rng
        )

    @override
    def local_epochs(self, view: RoundView, devices: Indices) -> Floats:
        return np.full(devices.size, self.epochs)

    @override
    def upload_bits(self, view: RoundView, devices: Indices) -> Floats:
        return np.full(devices.size, float(self.bits))

    @override
    def empty_round_s(self) -> float:
        return self.inner.empty_round_s()


def _numbers(view: RoundView) -> Indices:
    return np.arange(len(view)) if view.ids is None else view.ids


def _round_s(view: RoundView, devices: Indices) -> float:
    starts_s: Floats | float = 0.0 if view.downlink is None else view.downlink.starts_s(devices)
    compute_s = starts_s + view.compute_s[devices]
    return float(allocate(view.upload_s[devices], compute_s, law=view.law.take(devices)).round_s)


Actions = Literal["set", "scores", "set+effort", "scores+effort"]
TARGET = 0.8
"""The accuracy that ends an episode if the spec has none."""


class EpisodeSettings:
    """The arguments of an environment, checked, and the spaces that follow from them.

    Args:
        spec: the run; its policy and seed do not matter. By default the paper's race, to an accuracy of 80 %.
        actions: ``"set"``, a 0 or 1 for each device, or ``"scores"``, a number from -1 to 1 for each, from which
            `Scored` takes the best set. With ``"+effort"`` the action has two numbers more, the round's work and bits
            (see `effort_of`), all are from -1 to 1, and in a set the devices above 0 are scheduled.
        theta: of `Scored`.
        time_weight: how much a whole budget of time costs, in accuracy.
    """

    def __init__(self, spec: Spec | None, actions: Actions, theta: float, time_weight: float) -> None:
        if actions not in get_args(Actions):
            raise InputError(f"actions is {actions!r}; write one of {', '.join(map(repr, get_args(Actions)))}")
        self.effort = actions.endswith("+effort")
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
        if self.effort and first.compression.feedback:
            raise InputError(
                f"actions is {actions!r}, but with task.compression = {self.spec.task.compression!r} nobody decides "
                "the bits of an upload; set it to none or quantise"
            )
        numbers = spaces.Box(-1.0, 1.0, (self.count + 2 * self.effort,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.MultiBinary(self.count) if actions == "set" else numbers
        limit = self.spec.budget_s if np.isfinite(self.spec.budget_s) else 0.0
        self.budget_s = limit or 60.0 * float(self.spec.rounds or 1)

    def load(self, seed: int) -> Simulation:
        """Return the run with this seed."""
        return replace(Simulation.load(self.spec.changed({"seed": seed})), policy=Given())  # which sees what agents see

    def policy(self, action: NDArray[Any]) -> Policy:
        """Return the policy that schedules what an action says; an InputError if it is not an action."""
        array = np.asarray(action)
        if array.shape != self.action_space.shape or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            more = ", one for work and one for bits" * self.effort
            raise InputError(
                f"the action has shape {array.shape}; give a finite number for each of {self.count} devices{more}"
            )
        wanted = array[: self.count]
        if self.actions.startswith("scores"):
            policy: Policy = Scored(tuple(wanted.astype(float).tolist()), self.theta)
        else:
            policy = Given(tuple(np.flatnonzero(wanted > 0 if self.effort else wanted).tolist()))
        return WithEffort(policy, *effort_of(*array[self.count :].tolist())) if self.effort else policy


class Episode:
    """One episode: a run, advanced by a round with each action.

    Attributes:
        run: the run.
        state: of the run, after its last round.
        record: of the last round; None before the first.
        accuracy: of the model after the last round.
    """

    def __init__(self, settings: EpisodeSettings, seed: int) -> None:
        self.settings, self.run = settings, settings.load(seed)
        self.state: State = self.run.start()
        self.record: RoundRecord | None = None
        self.accuracy = float(self.run.task.engine.evaluate(self.state.model[np.newaxis]).accuracy[0])

    def observed(self) -> Observation:
        """Return the observation before the next round."""
        conditions, view = self.run.conditions(self.state), None
        if conditions is not None and conditions.there.size:
            view = self.run.round_inputs(self.state, conditions).view
        return observe(view, self.settings.count, self.settings.profile)

    def with_action(self, action: NDArray[Any]) -> tuple[Simulation, State]:
        """Return the run with the agent's action as its policy, and the state before the round."""
        return replace(self.run, policy=self.settings.policy(action)), self.state

    def after(self, played: tuple[RoundRecord, State] | None) -> tuple[float, bool, bool]:
        """Advance by a round that was played.

        Args:
            played: its record and the state after it; None if it would have ended after the budget.

        Returns:
            The reward, and whether the episode is terminated or truncated.
        """
        if played is None:
            return -self.settings.time_weight * max(1.0 - self.state.clock_s / self.settings.budget_s, 0.0), False, True
        before = self.accuracy
        self.record, self.state = played
        self.accuracy = self.record.accuracy
        diverged = not np.isfinite(self.state.model).all()
        reward = (self.accuracy - before) - self.settings.time_weight * self.record.round_s / self.settings.budget_s
        ended = self.state.reached or diverged
        return float(reward), bool(ended), not ended and self.run.conditions(self.state) is None

    def info(self) -> dict[str, Any]:
        """Return Gymnasium's ``info``: accuracy, clock and the last round."""
        record = self.record
        return {
            "accuracy": self.accuracy,
            "clock_s": float(self.state.clock_s),
            "round": int(self.state.round),
            "round_s": 0.0 if record is None else float(record.round_s),
            "delivered": 0 if record is None else int(record.delivered.size),
            "epochs": 0.0 if record is None or not record.plan.devices.size else float(record.epochs),
            "bits": 0.0 if record is None or not record.plan.devices.size else float(record.bits),
            "sent_bytes": 0.0 if record is None else float(record.sent_bytes),
        }


class CellEnv(gymnasium.Env[Observation, NDArray[Any]]):
    """Schedule the devices of a cell, a round a step, until the model has its target accuracy or the time is over.

    The reward of a step is the accuracy that was gained, less ``time_weight`` times the fraction of the time budget
    that the round took. ``reset(seed=s)`` plays the world of ``fedcell race`` with the random seed s: the same devices,
    channels, data and batches. Without a seed each episode has another.

    Args:
        spec: the run; its policy and seed do not matter. By default the paper's race, to an accuracy of 80 %.
        actions: ``"set"``, a 0 or 1 for each device, or ``"scores"``, a number from -1 to 1 for each, from which the
            best set is taken; see `Scored`. ``"set+effort"`` and ``"scores+effort"`` decide work and bits, too: two
            numbers more, see `effort_of`.
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
        self._settings = EpisodeSettings(spec, actions, theta, time_weight)
        self.observation_space, self.action_space = self._settings.observation_space, self._settings.action_space
        self.render_mode = render_mode
        self._episode: Episode | None = None

    @property
    def episode(self) -> Episode:
        """The current episode."""
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("call reset before step or render")
        return self._episode

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        own = seed if seed is not None else int(self.np_random.integers(2**31))
        self._episode = Episode(self._settings, own)
        return self.episode.observed(), self.episode.info()

    @override
    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        run, state = self.episode.with_action(action)
        reward, ended, cut = self.episode.after(run_coroutine(run.task.engine, run.round_coroutine(state)))
        return self.episode.observed(), reward, ended, cut, self.episode.info()

    @override
    def render(self) -> NDArray[np.uint8] | None:
        return None if self.render_mode is None else _cell_map(self.episode)


class CellVectorEnv(VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """``num_envs`` episodes of `CellEnv` in lockstep; one that has ended starts over with the next step.

    That step ignores its action, and its reward is 0.
    ``reset(seed=s)`` gives them the seeds s, s + 1, and so on; later episodes have others.

    Args:
        num_envs: number of episodes at a time.
        spec: see `CellEnv`.
        actions: see `CellEnv`.
        theta: see `CellEnv`.
        time_weight: see `CellEnv`.
        render_mode: see `CellEnv`.

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
        self._settings = EpisodeSettings(spec, actions, theta, time_weight)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space, self.single_action_space = (
            self._settings.observation_space,
            self._settings.action_space,
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes: list[Episode] = []
        self._ended = np.zeros(num_envs, np.bool_)

    @override
    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        first = seed if isinstance(seed, int) else None
        super().reset(seed=first, options=options)
        wanted = list(seed) if isinstance(seed, list) else [None] * self.num_envs
        if len(wanted) != self.num_envs:
            raise InputError(f"seed has {len(wanted)} entries; give one for each of the {self.num_envs} environments")
        seeds = range(first, first + self.num_envs) if first is not None else [self._seed(own) for own in wanted]
        self._episodes = [Episode(self._settings, own) for own in seeds]
        self._ended[:] = False
        return self._observed(), self._infos()

    @override
    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if not self._episodes:
            raise gymnasium.error.ResetNeeded("call reset before step")
        rewards, ended, cut = np.zeros(self.num_envs), np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        going = np.flatnonzero(~self._ended)
        rounds = step_together([self._episodes[i].with_action(actions[i]) for i in going])
        for i, found in zip(going, rounds, strict=True):
            if isinstance(found, Exception):
                raise found
            rewards[i], ended[i], cut[i] = self._episodes[i].after(found)
        for i in np.flatnonzero(self._ended):
            self._episodes[i] = Episode(self._settings, self._seed(None))
        self._ended = ended | cut
        return self._observed(), rewards, ended, cut, self._infos()

    @override
    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        return None if self.render_mode is None else tuple(_cell_map(episode) for episode in self._episodes)

    def _seed(self, own: int | None) -> int:
        return int(self.np_random.integers(2**31)) if own is None else own

    def _observed(self) -> Observation:
        seen = [episode.observed() for episode in self._episodes]
        return {name: np.stack([one[name] for one in seen]) for name in seen[0]}

    def _infos(self) -> dict[str, Any]:
        told = [episode.info() for episode in self._episodes]
        return {name: np.array([one[name] for one in told]) for name in told[0]}


def _cell_map(episode: Episode) -> NDArray[np.uint8]:
    """Return the map of the cell in the episode's last round, (height, width, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    run, record = episode.run, episode.record
    began_s = 0.0 if record is None else record.clock_s - record.round_s
    conditions = run.world.conditions(run.spec.seed, max(episode.state.round - 1, 0), began_s)
    shares, delivered = np.zeros(len(conditions.positions_m)), np.zeros(len(conditions.positions_m), np.bool_)
    if record is not None:
        shares[record.plan.devices], delivered[record.delivered] = record.plan.shares, True
    title = f"round {episode.state.round}, {episode.state.clock_s:.0f} s, accuracy {100 * episode.accuracy:.1f} %"
    figure = cell_map_figure(conditions.positions_m, run.world.cell.radius_m, shares, delivered, title)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


gymnasium.register("fedcell/Cell-v0", entry_point="fedcell.gym:CellEnv", vector_entry_point="fedcell.gym:CellVectorEnv")
