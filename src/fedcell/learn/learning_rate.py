"""How the learning rate changes over the rounds.

A schedule is named by a short string, the same in Python, on the command line and in TOML::

constant                      the same in every round (the paper)
exponential:factor=0.99       times 0.99 each round
step:every=50,factor=0.1      times 0.1 after every 50 rounds
cosine:rounds=200,end=0.01    half a cosine down to a hundredth in 200 rounds, and constant from there
"""

from dataclasses import dataclass
from functools import lru_cache
from math import cos, pi
from typing import ClassVar

from fedcell import settings
from fedcell.errors import require_number, require_whole


@dataclass(frozen=True)
class Constant:
    """Always the engine's learning rate."""

    name: ClassVar[str] = "constant"

    def __call__(self, r: int) -> float:  # noqa: ARG002
        """The factor of the learning rate in round r, from 0."""
        return 1.0


@dataclass(frozen=True)
class Exponential:
    """Times ``factor`` each round."""

    name: ClassVar[str] = "exponential"
    factor: float

    def __post_init__(self) -> None:
        require_number("factor", self.factor, above=0)

    def __call__(self, r: int) -> float:
        """The factor of the learning rate in round r, from 0."""
        return float(self.factor**r)


@dataclass(frozen=True)
class Stepwise:
    """Times ``factor`` after every so many rounds."""

    name: ClassVar[str] = "step"
    every: int
    factor: float

    def __post_init__(self) -> None:
        require_whole("every", self.every, least=1)
        require_number("factor", self.factor, above=0)

    def __call__(self, r: int) -> float:
        """The factor of the learning rate in round r, from 0."""
        return float(self.factor ** (r // self.every))


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 to ``end`` in so many rounds, and constant from there."""

    name: ClassVar[str] = "cosine"
    rounds: int
    end: float = 0.01

    def __post_init__(self) -> None:
        require_whole("rounds", self.rounds, least=1)
        require_number("end", self.end, above=0)

    def __call__(self, r: int) -> float:
        """The factor of the learning rate in round r, from 0."""
        return self.end + (1.0 - self.end) * (1.0 + cos(pi * min(r / self.rounds, 1.0))) / 2.0


Schedule = Constant | Exponential | Stepwise | Cosine
SCHEDULES: dict[str, type[Schedule]] = {kind.name: kind for kind in (Constant, Exponential, Stepwise, Cosine)}


@lru_cache(maxsize=64)
def parse_schedule(text: str) -> Schedule:
    """Return the schedule of a line such as ``cosine:rounds=200``: a function from a round to a factor.

    Args:
        text: ``constant``, ``exponential:factor=...``, ``step:every=...,factor=...`` or ``cosine:rounds=...,end=...``.

    Example:
        >>> from fedcell.learn.learning_rate import parse_schedule
        >>> [parse_schedule("step:every=2,factor=0.5")(r) for r in range(5)]
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    return settings.parse("learning-rate schedule", text, SCHEDULES)
