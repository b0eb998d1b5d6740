"""What devices report about their training (losses, lengths of updates, sketches), by name: one table for all."""

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from functools import cache
from typing import Protocol

from fedcell.protocol.columns import Table, column
from fedcell.schedule.policy import Policy
from fedcell.types import Floats

SKETCH = 256
"""Numbers in the sketch of an update."""


class Updates(Protocol):
    """What signals are computed from: the updates of n devices, as an engine has them, or as they came in replies."""

    @property
    def losses(self) -> Floats:
        """(n,) mean training losses."""

    @property
    def rms(self) -> Floats:
        """(n,) root mean squares of the samples' losses; NaN where nobody wanted them."""

    def norms(self) -> Floats:
        """(n,) lengths of the updates."""

    def sketch(self, count: int) -> Floats:
        """(n, count) short vectors, whose distances are about those of the updates."""

    def sums(self) -> Floats:
        """(n, 3) the peaks, absolutes and squares of the updates before they were rounded."""


@dataclass(frozen=True)
class Signal:
    """Something that a device reports when it delivers its model.

    Attributes:
        name: the column of the RoundView that has it.
        read: computes it from the updates of n devices: (n,) numbers, or (n, d) if it is ``wide``; NaN if unknown.
        flag: what a policy's class sets to True to get it, such as ``uses_norms``; None if all get it, for it costs
            nothing.
        wide: whether it is a vector for each device.
        later: whether version 0.2 did not have it, so that its saved states lack it.

    Example:
        >>> from fedcell.protocol.signals import Signal
        >>> Signal("norms", read=lambda updates: updates.norms(), flag="uses_norms").name
        'norms'
    """

    name: str
    read: Callable[[Updates], Floats]
    flag: str | None = None
    wide: bool = False
    later: bool = False


SIGNALS = (
    Signal("losses", read=lambda updates: updates.losses),
    Signal("rms_losses", read=lambda updates: updates.rms, flag="uses_rms"),
    Signal("norms", read=lambda updates: updates.norms(), flag="uses_norms"),
    Signal("updates", read=lambda updates: updates.sketch(SKETCH), flag="uses_updates", wide=True),
    Signal("peaks", read=lambda updates: updates.sums()[:, 0], flag="uses_sums", later=True),
    Signal("absolutes", read=lambda updates: updates.sums()[:, 1], flag="uses_sums", later=True),
    Signal("squares", read=lambda updates: updates.sums()[:, 2], flag="uses_sums", later=True),
)


def read_signals(policy: Policy, updates: Updates) -> dict[str, Floats]:
    """Return what the devices of these updates report, as far as the policy uses it, by the name of the column."""
    return {one.name: one.read(updates) for one in signals_of(type(policy))}


@cache
def signals_of(policy: type[Policy]) -> tuple[Signal, ...]:
    """Return the signals that a class of policies uses."""
    return tuple(one for one in SIGNALS if one.flag is None or getattr(policy, one.flag, False))


def uses_signal(policy: Policy, signal: Signal) -> bool:
    """Whether a policy has said that it uses a signal."""
    return signal in signals_of(type(policy))


Reports = make_dataclass(
    "Reports",
    [(one.name, Floats, column(float("nan"), wide=one.wide, later=one.later, sparse=one.wide)) for one in SIGNALS],
    bases=(Table,),
    frozen=True,
    eq=False,
    namespace={"__module__": __name__, "__doc__": "The last report of each device: a column for each signal."},
)
