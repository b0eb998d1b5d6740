"""Policies that tests name in specs."""

from dataclasses import dataclass

import numpy as np

import fedcell as fc


@dataclass(frozen=True)
class Nobody(fc.Policy):
    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> list[int]:
        return []


@dataclass(frozen=True)
class Spy(fc.Policy):
    """Schedules two devices and keeps what it saw."""

    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> list[int]:
        SEEN.append(view)
        return [view.round_index, 5]


SEEN: list[fc.RoundView] = []


@dataclass(frozen=True)
class Broken(fc.Policy):
    def choose(self, view: fc.RoundView, rng: np.random.Generator) -> list[int]:
        return [1 // 0]
