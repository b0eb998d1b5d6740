"""Observations (a RoundView as arrays of fixed shape and range) and actions (policies made of an agent's numbers)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from typing_extensions import override

from fedcell.errors import InputError
from fedcell.schedule.bandwidth import allocate
from fedcell.schedule.policy import Policy, room
from fedcell.schedule.view import RoundView
from fedcell.types import Floats, Indices

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
    def cost_of_nobody_s(self) -> float:
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
        most = room(view, self.max_devices, "max_devices")
        sizes = np.unique(np.geomspace(1, most, min(most, MAX_SIZES)).round().astype(int)) if most > MAX_SIZES else None
        counts = np.arange(1, most + 1) if sizes is None else sizes
        costs = [(self.theta + 1.0 / n) * _round_s(view, order[:n]) for n in counts]
        return order[: counts[int(np.argmin(costs))]]


def _numbers(view: RoundView) -> Indices:
    return np.arange(len(view)) if view.ids is None else view.ids


def _round_s(view: RoundView, devices: Indices) -> float:
    starts_s: Floats | float = 0.0 if view.downlink is None else view.downlink.starts_s(devices)
    compute_s = starts_s + view.compute_s[devices]
    return float(allocate(view.upload_s[devices], compute_s, law=view.law.take(devices)).round_s)
