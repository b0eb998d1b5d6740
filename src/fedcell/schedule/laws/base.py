"""The base class of link laws: all that anybody asks of one."""

# ruff: noqa: ARG002 - what a law has no use for, another has

import math
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedcell.schedule.laws.solver import Needs
from fedcell.types import Floats


def setting(label: str, *, usual: float, scale: float = 1.0) -> dict[str, Any]:
    """Return a field's metadata for forms.

    Args:
        label: what stands beside its field.
        usual: a value to begin with.
        scale: how much 1 in the form is; 1e6 where the form has mega.
    """
    return {"label": label, "usual": usual, "scale": scale}


class Law(ABC):
    """How the uploads of a round share what carries them: the base class of all link laws.

    A law is a frozen dataclass that says two things: how long an upload takes with a share g (`upload_s`), and which
    share a device needs to be done by T (`needs`). Needs fall with T for every law, and nothing else is needed to share
    the band optimally and to choose the best devices: docs/optimal.md has the proof, docs/radio.md the laws, and
    docs/extending.md shows how to write one. All other methods say what the paper's law, `Density`, does.

    Attributes:
        label: the law in a few words, for lists.
        shared: what a share is a share of; empty if every device has a dedicated link and its share is always 1.
        unit: what it is shared in, if shares are whole numbers of something; see `units`.
        own_lines: whether devices have dedicated links instead of a radio band.
        needs_snr: whether the rates follow from the devices' SNR by Shannon's formula.
        carries_late: whether an upload may go on beside those of the next round; see `held_share`.
        separable: whether an upload takes as long whoever else uploads, as nothing is shared.
        proportional: whether rates are proportional to shares: an upload takes c / g seconds.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> law = fc.parse_law("blocks:count=8")
        >>> law.upload_s(np.array([1.0, 3.0]), shares=np.array([0.25, 0.75])).tolist()
        [4.0, 4.0]
        >>> law.label, law.max_devices, law.resources(0.25, bandwidth_hz=1.44e6)
        ('resource blocks', 8, {'blocks': 2, 'bandwidth_hz': 360000.0})
    """

    label: ClassVar[str]
    shared: ClassVar[str] = "the band"
    unit: ClassVar[str] = "upload"
    own_lines: ClassVar[bool] = False
    needs_snr: ClassVar[bool] = False
    carries_late: ClassVar[bool] = False
    separable: ClassVar[bool] = False
    proportional: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        cls.separable, cls.proportional = not cls.shared, cls.upload_s is Law.upload_s

    # --- what a law must say

    @abstractmethod
    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        """Return what the compiled functions need of devices; see `fedcell.schedule.laws.solver`.

        Args:
            upload_s: (...) c_i, seconds to upload a model with the entire band, or over the own line.
            compute_s: (...) t_i, seconds until the upload can begin.

        Returns:
            Needs: a named tuple whose functions are registered, and three arrays of the arguments' shape.
        """

    def upload_s(self, whole_s: Floats, shares: Floats) -> Floats:
        """Return how long uploads take with given shares: c / g.

        Args:
            whole_s: (n,) c_i, seconds to upload a model with the entire band, or over the own line.
            shares: (n,) g_i.

        Returns:
            (n,) seconds.
        """
        seconds: Floats = whole_s / shares
        return seconds

    # --- what it knows of the devices

    def for_devices(self, snr: Floats | None, model_bits: float) -> "Law":
        """Return the law with what it must know of the devices.

        Args:
            snr: (M,) their SNR with the entire band, linear ratios; None if it is not known.
            model_bits: the size of a model, in bits.
        """
        return self

    def take(self, devices: ArrayLike) -> "Law":
        """Return the law for some of the devices, given by indices or an index array of any shape."""
        return self

    def row(self, index: int) -> "Law":
        """Return the law of one set of a batch."""
        return self

    def scaled(self, part: Floats) -> "Law":
        """Return the law for n devices whose uploads, and so their upload times, are these parts (n,) of a model's."""
        return self

    def check(self, shape: tuple[int, ...]) -> None:  # noqa: B027 - most laws take any
        """Raise an InputError if the law cannot be that of upload times of this shape."""

    # --- what follows from a share

    @property
    def units(self) -> int | None:
        """The number of whole units that can be given out, such as resource blocks; None if shares are any numbers."""
        return None

    @property
    def max_devices(self) -> float:
        """How many devices can upload in one round; infinity if there is no limit."""
        return math.inf if self.units is None else self.units

    @property
    def capacity(self) -> str:
        """What `max_devices` is the number of, for messages."""
        return f"{self.max_devices:.0f} {self.unit}s"

    def equal_shares(self, upload_s: Floats, compute_s: Floats) -> Floats:
        """Return (n,) shares that are as equal as the law allows: 1/n each."""
        return np.full(upload_s.size, 1.0 / upload_s.size)

    def solo_s(self, took_s: Floats, shares: Floats) -> Floats:
        """Return how long uploads would have taken with everything to themselves.

        Args:
            took_s: (n,) how long they took, in seconds.
            shares: (n,) with which shares.
        """
        if self.proportional:
            return took_s * shares
        seconds: Floats = took_s / self.upload_s(np.ones(shares.size), shares)
        return seconds

    def held_share(self, shares: Floats) -> Floats:
        """Return (n,) which part of what is shared a late upload keeps in the next round: all of its share."""
        return shares

    def power_fraction(self, whole_s: Floats, shares: Floats) -> Floats:
        """Return which part of its power over the entire band a device sends with, on average over its upload.

        Args:
            whole_s: (n,) c_i, seconds to upload with the entire band.
            shares: (n,) g_i.

        Returns:
            (n,) fractions: the shares, as the power density is fixed.
        """
        return shares

    # --- what is said of it

    @property
    def line(self) -> str:
        """The law as one would write it, such as ``blocks:count=15``."""
        from fedcell.schedule.laws import format_law

        return format_law(self)

    def resources(self, share: float, bandwidth_hz: float) -> dict[str, float]:
        """Return what a device with this share gets, by column, whose name ends in the unit.

        Args:
            share: the fraction of what is shared.
            bandwidth_hz: the whole band.
        """
        return {"bandwidth_hz": share * bandwidth_hz}

    def notes(self, bandwidth_hz: float, *, total_power: bool = False) -> list[str]:
        """Return what a user might want to know of the law in this cell.

        Args:
            bandwidth_hz: the band.
            total_power: whether the devices have been given by their total power.
        """
        return []

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _RENAMED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            new = _RENAMED[name]
            warnings.warn(f"{name} of a link law is called {new}; write that", DeprecationWarning, stacklevel=2)
            return getattr(self, new)


_RENAMED = {"most": "max_devices", "bound": "for_devices", "takes_s": "upload_s", "power_parts": "power_fraction"}
"""Names of version 0.2."""
