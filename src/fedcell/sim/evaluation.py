"""When the model is evaluated on the test set: after every round, as in the paper, or less often.

It is named by a short string, the same in Python, on the command line and in TOML::

rounds:1      after every round; rounds:10 after every tenth
seconds:2     after a round if that ends 2 simulated seconds or more after the last round that was evaluated
auto          as often as a curve and the time to an accuracy need it, however short the rounds are

In between, a round's record repeats the last accuracy and loss. The first round is always evaluated, and so is the last
one as far as it can be foreseen: by the limit on the rounds, or because another round as long would exceed the budget.
"""

from dataclasses import dataclass

from typing_extensions import override

from fedcell.errors import require_number, require_whole
from fedcell.settings import Registry

BUDGET_PART = 0.01
"""A time to an accuracy is known to within this part of the budget, with ``auto``, or to one round."""
CLOCK_PART = 0.05
"""And early in a run, where that would be coarse, to within this part of itself."""


@dataclass(frozen=True)
class Evaluations:
    """When a model is evaluated: the base class."""

    def due(self, number: int, seconds: float, clock_s: float, budget_s: float) -> bool:
        """Return whether the model is evaluated after a round.

        Args:
            number: of the round, from 1.
            seconds: how many simulated seconds ago it was last evaluated.
            clock_s: the time now, in seconds from the start of the run.
            budget_s: of the run; may be infinite.
        """
        raise NotImplementedError

    @property
    def line(self) -> str:
        """What `EVALUATIONS` reads as this again."""
        raise NotImplementedError


@dataclass(frozen=True)
class EveryRounds(Evaluations):
    """After every so many rounds.

    Example:
        >>> from fedcell.sim.evaluation import EveryRounds
        >>> [number for number in range(1, 10) if EveryRounds(3).due(number, 1.0, 9.0, 450.0)]
        [3, 6, 9]
    """

    every: int = 1

    def __post_init__(self) -> None:
        require_whole("rounds", self.every, least=1)

    @override
    def due(self, number: int, seconds: float, clock_s: float, budget_s: float) -> bool:
        return number % self.every == 0

    @property
    @override
    def line(self) -> str:
        return f"rounds:{self.every}"


@dataclass(frozen=True)
class EverySeconds(Evaluations):
    """After so many simulated seconds.

    Example:
        >>> from fedcell.sim.evaluation import EverySeconds
        >>> [EverySeconds(2.0).due(1, seconds, 9.0, 450.0) for seconds in (1.9, 2.0)]
        [False, True]
    """

    every: float

    def __post_init__(self) -> None:
        require_number("seconds", self.every, above=0)

    @override
    def due(self, number: int, seconds: float, clock_s: float, budget_s: float) -> bool:
        return seconds >= self.every

    @property
    @override
    def line(self) -> str:
        return f"seconds:{self.every:g}" if float(f"{self.every:g}") == self.every else f"seconds:{self.every!r}"


@dataclass(frozen=True)
class AsNeeded(Evaluations):
    """As often as the time to any accuracy is to be known: to 1 % of the budget, and early in a run to 5 % of itself.

    A round that takes longer than that is always evaluated. Without a time limit only the 5 % count.

    Example:
        >>> from fedcell.sim.evaluation import AsNeeded
        >>> AsNeeded().due(1, 0.5, 5.0, 450.0), AsNeeded().due(1, 0.2, 5.0, 450.0)  # 5 % of 5 s
        (True, False)
        >>> AsNeeded().due(9, 4.6, 400.0, 450.0), AsNeeded().due(8, 4.4, 400.0, 450.0)  # 1 % of 450 s
        (True, False)
    """

    @override
    def due(self, number: int, seconds: float, clock_s: float, budget_s: float) -> bool:
        return seconds >= min(BUDGET_PART * budget_s, CLOCK_PART * clock_s)

    @property
    @override
    def line(self) -> str:
        return "auto"


EVALUATIONS = Registry[Evaluations](
    "evaluation",
    {
        "rounds": "fedcell.sim.evaluation:EveryRounds",
        "seconds": "fedcell.sim.evaluation:EverySeconds",
        "auto": "fedcell.sim.evaluation:AsNeeded",
    },
    positional=lambda _: ("every",),
)
"""When models are evaluated, by name."""
