"""What a tracker is: a tool that keeps runs, their parameters and the numbers of their rounds."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol, runtime_checkable

from fedcell.errors import InputError
from fedcell.runs.store import flat

Values = dict[str, float]
"""Numbers by name; what is unknown or infinite is left out."""
Ending = Literal["done", "failed", "stopped"]


@dataclass(frozen=True, eq=False)
class TrackedRun:
    """A run as trackers see it.

    Attributes:
        id: 16 hex digits, the same whenever the same run of the same group is tracked.
        group: the name of the race or sweep, which its runs share.
        title: its policy, and whatever else but the seed differs within the group.
        document: its spec as a nested document.
    """

    id: str
    group: str
    title: str
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its title and its seed, which tell it from the other runs of its group."""
        return f"{self.title} seed{self.document['seed']}"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the spec that are set, nested ones named by a dot."""
        return {name: value for name, value in flat(dict(self.document)).items() if value is not None}


class Log(Protocol):
    """Where one run goes."""

    def rounds(self, rounds: Sequence[Values], /) -> None:
        """Add rounds, each with the values of ROUND_COLUMNS."""

    def end(self, ending: Ending, summary: Values, /) -> None:
        """Add what is known in the end; nothing comes after it."""


Begin = Callable[[TrackedRun], Log | None]
"""Begins a run, whose rounds follow from the first one on; None if the tracker has all of it already."""


@runtime_checkable
class Tracker(Protocol):
    """A tool that keeps runs; the fields of a dataclass are its settings."""

    @property
    def group(self) -> str | None:
        """The name of the race or sweep, if the user gave one."""

    def open(self) -> Begin:
        """Get ready, before anything is computed; an InputError if the package is missing or nothing can be written."""

    def shown_by(self) -> str:
        """The command that shows what was written."""


def package(module: str, extra: str) -> Any:
    """The module of a tracker's package, or an InputError that says how to install it.

    Args:
        module: what to import.
        extra: of ours, which installs it.
    """
    try:
        with warnings.catch_warnings():  # what they deprecate of each other is not for our users
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError as error:
        raise InputError(
            f"tracker {extra!r} needs a package that is not installed ({error.name or error}); "
            f"pip install 'fedcell[{extra}]'"
        ) from None


def sentence(error: Exception) -> str:
    """The first words of an exception of somebody else's, in one line."""
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
