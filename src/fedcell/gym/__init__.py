"""A Gymnasium environment in which an agent learns to schedule: ``import fedcell.gym`` registers ``fedcell/Cell-v0``.

Needs the extra ``gym``: pip install "fedcell[gym]". docs/gym.md says what is observed, done and rewarded.
"""

from fedcell.errors import InputError

try:
    import gymnasium
except ImportError:
    raise InputError("Gymnasium is not installed; pip install 'fedcell[gym]'") from None

from fedcell.gym.env import DEVICE_FEATURES, CellEnv, CellVectorEnv, Given, Scored, observe

gymnasium.register("fedcell/Cell-v0", entry_point="fedcell.gym:CellEnv", vector_entry_point="fedcell.gym:CellVectorEnv")

__all__ = ["DEVICE_FEATURES", "CellEnv", "CellVectorEnv", "Given", "Scored", "observe"]
