"""What an agent observes: a RoundView as arrays of fixed shape and range. A trained agent's policy uses the same."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from fedcell.schedule.view import RoundView

DEVICE_FEATURES = ("there", "log_upload_s", "log_compute_s", "waited", "turns", "recent", "loss", "log_norm")
"""The first columns of ``devices``; the profile's entries follow.

there: 1 if the device can be scheduled; waited: rounds since it was last scheduled, divided by 10; turns: the fraction
of all rounds in which it delivered; recent: see RoundView; loss and log_norm: last reported, 0 where unknown.
"""
CELL_FEATURES = 3
"""The round divided by 100, the fraction of the time that is used up, and the fraction of devices that are there."""
LARGEST = 10.0
"""Whatever is larger is cut."""

Observation = dict[str, NDArray[np.float32]]


def space_of(count: int, profile: int) -> spaces.Dict:
    """The space of observations of M devices with profiles of so many entries."""
    return spaces.Dict(
        {
            "devices": spaces.Box(-LARGEST, LARGEST, (count, len(DEVICE_FEATURES) + profile), np.float32),
            "cell": spaces.Box(0.0, LARGEST, (CELL_FEATURES,), np.float32),
        }
    )


def observe(view: RoundView | None, count: int, profile: int) -> Observation:
    """Return what an agent sees of a view.

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
        "devices": np.clip(devices, -LARGEST, LARGEST).astype(np.float32),
        "cell": np.clip(cell, 0.0, LARGEST).astype(np.float32),
    }
