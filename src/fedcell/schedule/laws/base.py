"""Link laws: how the uploads of a round share what carries them.

A law says which share a device needs to have delivered by T. Needs fall with T for every law, and nothing else is
needed to share the band optimally and to choose the best devices: docs/optimal.md has the proof, docs/radio.md the
laws. The paper's, `Density`, is the default.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedcell import settings
from fedcell.errors import InputError, read_only, require_number, require_whole
from fedcell.schedule.laws.power import without_limits
from fedcell.schedule.laws.solver import BlocksNeeds, DensityNeeds, IngressNeeds, Needs, PowerNeeds
from fedcell.types import Floats

_NEXT_TO_NOTHING = 1e-15
MOST_BLOCKS = 10**9
"""More blocks than that are the paper's band, but for rounding."""


class Law(Protocol):
    """What every link law can tell; `Density`, `Blocks`, `Power`, `Dedicated` and `Ingress` are the laws."""

    @property
    def most(self) -> float:
        """How many devices can upload in one round; infinity if there is no limit."""

    def bound(self, snr: Floats | None, model_bits: float) -> "Law":
        """Return the law with what it must know of the devices: their (M,) SNR, and the bits of a model."""

    def take(self, devices: ArrayLike) -> "Law":
        """Return the law for some of the devices, given by indices or an index array of any shape."""

    def scaled(self, part: Floats) -> "Law":
        """Return the law for n devices whose uploads, and so their upload times, are these parts (n,) of a model's."""

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise an InputError if the law cannot be that of upload times of this shape."""

    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        """Return what the compiled functions need of (M,) devices."""

    def takes_s(self, upload_s: Floats, shares: Floats) -> Floats:
        """Return how long uploads take, in seconds, with given shares; all arrays are of one shape."""

    def power_parts(self, upload_s: Floats, shares: Floats) -> Floats:
        """Return with which part of its power over the entire band a device sends, on average over its upload."""

    def equal_shares(self, upload_s: Floats, compute_s: Floats) -> Floats:
        """Return (n,) shares that are as equal as the law allows."""


@dataclass(frozen=True)
class Density:
    """The paper's law: with the share g of the band, an upload takes c / g seconds.

    Each device sends with a fixed power density, so its rate grows in proportion to its share. To have delivered by T
    a device needs the share c_i / (T - t_i).

    Example:
        >>> import fedcell as fc
        >>> fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Density()).round_s
        6.0
    """

    @property
    def most(self) -> float:
        """No limit."""
        return math.inf

    def bound(self, snr: Floats | None, model_bits: float) -> "Law":  # noqa: ARG002
        """This law: there is nothing more to know."""
        return self

    def take(self, devices: ArrayLike) -> "Law":  # noqa: ARG002
        """This law: it is the same for all devices."""
        return self

    def scaled(self, part: Floats) -> "Law":  # noqa: ARG002
        """This law: its times grow in proportion."""
        return self

    def check(self, shape: tuple[int, ...]) -> None:
        """Any shape will do."""

    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        """The times as they are."""
        return Needs(DensityNeeds(), upload_s, compute_s, upload_s)

    def takes_s(self, upload_s: Floats, shares: Floats) -> Floats:
        """C / g."""
        seconds: Floats = upload_s / shares
        return seconds

    def power_parts(self, upload_s: Floats, shares: Floats) -> Floats:  # noqa: ARG002
        """The share: the power density is fixed."""
        return shares

    def equal_shares(self, upload_s: Floats, compute_s: Floats) -> Floats:  # noqa: ARG002
        """1/n each."""
        return np.full(upload_s.size, 1.0 / upload_s.size)


@dataclass(frozen=True)
class Blocks(Density):
    """The band comes in ``count`` resource blocks, and each device gets a whole number of them.

    With k blocks an upload takes ``count`` c / k seconds. To have delivered by T a device needs
    ceil(count c_i / (T - t_i)) blocks. A round has at most ``count`` devices; blocks that would not shorten the round
    stay free, so shares can sum to less than 1.

    Attributes:
        count: number of resource blocks, which divide the band. An LTE carrier of 3 MHz has 15 of 180 kHz, and so a
            band of 2.7 MHz; the whole 3 MHz in 15 are blocks of 200 kHz.

    Example:
        >>> import fedcell as fc
        >>> band = fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Blocks(5))
        >>> (5 * band.shares).tolist(), band.round_s  # 5 x 1 / 1 s and 5 x 3 / 3 s of upload; a block stays free
        ([1.0, 3.0], 7.0)
        >>> fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Blocks(8)).round_s
        6.0
    """

    count: int

    def __post_init__(self) -> None:
        require_whole("count of the law blocks", self.count, least=1)
        if self.count > MOST_BLOCKS:
            raise InputError(f"count of the law blocks is more than {MOST_BLOCKS:,}; give at most that, or use density")

    @property
    def most(self) -> float:
        """A block each."""
        return self.count

    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        """The times as they are, in blocks."""
        return Needs(BlocksNeeds(float(self.count)), upload_s, compute_s, upload_s)

    def equal_shares(self, upload_s: Floats, compute_s: Floats) -> Floats:
        """As many blocks each, and one more for those that would finish last as long as there are some."""
        n = upload_s.size
        blocks = np.full(n, self.count // n)
        ends_s = compute_s + upload_s * (self.count / blocks)
        blocks[np.argsort(-ends_s, kind="stable")[: self.count % n]] += 1
        shares: Floats = blocks / self.count
        return shares


@dataclass(frozen=True, eq=False)
class Power:
    """Each device has a total transmit power, so with a narrower share it has a better signal-to-noise ratio.

    With the share g of the band B, the power P and the channel h a device sends g B log2(1 + P h / (g N0 B)) bit/s.
    With s = P h / (N0 B), its SNR if it has the entire band, an upload takes c log(1 + s) / (g log(1 + s/g)) seconds.
    The rate grows with the share, but never beyond P h / (N0 ln 2): to have delivered within less than c log(1 + s) / s
    seconds no share is enough.

    Attributes:
        snr: (M,) s_i, a linear ratio, positive; None where it is filled in later, as in a spec.

    Example:
        >>> import fedcell as fc
        >>> band = fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Power([10.0, 1.0]))
        >>> band.shares.round(3).tolist(), round(band.round_s, 3)  # 6 s with a fixed power density
        ([0.188, 0.812], 5.191)
    """

    snr: Floats | None = None

    def __post_init__(self) -> None:
        if self.snr is not None:
            snr = np.asarray(self.snr, dtype=np.float64)
            bad = ~(np.isfinite(snr) & (snr > 0.0))
            if bad.any():
                where = int(np.flatnonzero(bad)[0])
                raise InputError(
                    f"snr[{where}] of the law power is {snr.reshape(-1)[where]:g}; give a positive linear ratio"
                )
            object.__setattr__(self, "snr", read_only(snr))

    @property
    def most(self) -> float:
        """No limit."""
        return math.inf

    @property
    def _s(self) -> Floats:
        if self.snr is None:
            raise InputError("the law power needs the SNR of every device; write Power(snr), with the entire band")
        return self.snr

    def bound(self, snr: Floats | None, model_bits: float) -> "Law":  # noqa: ARG002
        """The law with the devices' SNR."""
        return self if self.snr is not None else Power(snr)

    def take(self, devices: ArrayLike) -> "Law":
        """The law with the SNR of some devices."""
        return Power(self._s[np.asarray(devices)])

    def scaled(self, part: Floats) -> "Law":  # noqa: ARG002
        """This law: its times grow in proportion."""
        return self

    def check(self, shape: tuple[int, ...]) -> None:
        """One SNR for each device, or for each device of a set."""
        if self._s.shape not in (shape, shape[-1:]):
            raise InputError(
                f"snr of the law power has shape {self._s.shape}, upload_s has {shape}; give one for every device"
            )

    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        """The upload times with a band without limits, and the SNR."""
        s = np.broadcast_to(self._s, upload_s.shape).copy()  # a view would be read-only: see bandwidth.times
        return Needs(PowerNeeds(), without_limits(upload_s, s), compute_s, s)

    def takes_s(self, upload_s: Floats, shares: Floats) -> Floats:
        """C log(1 + s) / (g log(1 + s/g))."""
        seconds: Floats = upload_s * (np.log1p(self._s) / (shares * np.log1p(self._s / shares)))
        return seconds

    def power_parts(self, upload_s: Floats, shares: Floats) -> Floats:  # noqa: ARG002
        """All of it, whatever the share."""
        return np.ones(shares.size)

    def equal_shares(self, upload_s: Floats, compute_s: Floats) -> Floats:  # noqa: ARG002
        """1/n of the band each."""
        return np.full(upload_s.size, 1.0 / upload_s.size)


@dataclass(frozen=True)
class Dedicated(Density):
    """Every device has a line of its own, so an upload takes c seconds whoever else uploads: the share is always 1.

    A round lasts as long as the slowest of its devices: max (t_i + c_i).

    Example:
        >>> import fedcell as fc
        >>> lines = fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Dedicated())
        >>> lines.shares.tolist(), lines.round_s
        ([1.0, 1.0], 5.0)
        >>> view = fc.RoundView([1.0, 1.5, 9.0], [2.0, 2.0, 9.0], law=fc.Dedicated())
        >>> fc.Optimal(theta=0.1).decide(view, rng=None).devices.tolist()
        [0, 1]
    """

    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        """As with one band, up to rounding: all is training, and the uploads take next to nothing."""
        ends_s = upload_s + compute_s
        nothing = np.full(ends_s.size, _NEXT_TO_NOTHING * ends_s.min(initial=1.0))
        return Needs(DensityNeeds(), nothing, ends_s, nothing)

    def equal_shares(self, upload_s: Floats, compute_s: Floats) -> Floats:  # noqa: ARG002
        """All of its own line each."""
        return np.ones(upload_s.size)


@dataclass(frozen=True)
class Ingress:
    """Every device has a line of its own, and all lines end in one pipe of the server, which they share.

    With the share g of the pipe an upload takes max(c, a / g) seconds: c over its own line, and a over the whole pipe.
    To have delivered by T a device needs the share a / (T - t_i), and T must be at least t_i + c_i.

    Attributes:
        bits_per_s: R, the rate of the pipe, in bit/s, as specs give it; with it the size of a model must be known.
        pipe_s: a, the seconds that one model takes over the whole pipe. Give one of the two.

    Example:
        >>> import fedcell as fc
        >>> fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Ingress(pipe_s=0.5)).round_s  # the slower line
        5.0
        >>> pipe = fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Ingress(pipe_s=4.0))
        >>> pipe.shares.tolist(), pipe.round_s
        ([0.5, 0.5], 10.0)
    """

    bits_per_s: float | None = None
    pipe_s: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if (self.bits_per_s is None) == (self.pipe_s is None):
            raise InputError("the law ingress needs the rate of the server's pipe; write ingress:bits_per_s=1e7")
        name = "bits_per_s" if self.pipe_s is None else "pipe_s"
        require_number(f"{name} of the law ingress", getattr(self, name), above=0)

    @property
    def most(self) -> float:
        """No limit."""
        return math.inf

    @property
    def _a(self) -> float | Floats:
        if self.pipe_s is None:
            raise InputError("the law ingress needs seconds here; write Ingress(pipe_s=model_bits / bits_per_s)")
        return self.pipe_s

    def bound(self, snr: Floats | None, model_bits: float) -> "Law":  # noqa: ARG002
        """The law in seconds."""
        return self if self.bits_per_s is None else replace(self, bits_per_s=None, pipe_s=model_bits / self.bits_per_s)

    def take(self, devices: ArrayLike) -> "Law":  # noqa: ARG002
        """This law: it is the same for all devices."""
        return self

    def scaled(self, part: Floats) -> "Law":
        """The law with as much less for the pipe."""
        return _IngressParts(pipe_s=self.pipe_s, parts=part)

    def check(self, shape: tuple[int, ...]) -> None:  # noqa: ARG002
        """Any shape will do, in seconds."""
        _ = self._a

    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        """The time over the pipe, and over the own line."""
        return Needs(IngressNeeds(), np.full(upload_s.shape, self._a), compute_s, upload_s)

    def takes_s(self, upload_s: Floats, shares: Floats) -> Floats:
        """max(c, a / g)."""
        seconds: Floats = np.maximum(upload_s, self._a / shares)
        return seconds

    def power_parts(self, upload_s: Floats, shares: Floats) -> Floats:
        """As on its own line, with pauses if the pipe is slower."""
        parts: Floats = upload_s / self.takes_s(upload_s, shares)
        return parts

    def equal_shares(self, upload_s: Floats, compute_s: Floats) -> Floats:  # noqa: ARG002
        """1/n of the pipe each."""
        return np.full(upload_s.size, 1.0 / upload_s.size)


@dataclass(frozen=True, eq=False)
class _IngressParts(Ingress):
    """The same for (n,) devices whose uploads are parts of a model; see `Ingress.scaled`."""

    parts: Floats = field(default_factory=lambda: np.ones(1), kw_only=True)

    @property
    def _a(self) -> float | Floats:
        seconds: Floats = self.parts * super()._a
        return seconds

    def take(self, devices: ArrayLike) -> "Law":
        """The law for some of them."""
        return replace(self, parts=self.parts[np.asarray(devices)])


LAWS: dict[str, type[Density | Power | Ingress]] = {
    "density": Density,
    "blocks": Blocks,
    "power": Power,
    "dedicated": Dedicated,
    "ingress": Ingress,
}
"""Link laws by name."""


def parse_law(text: str) -> Density | Power | Ingress:
    """Return the link law that a string such as ``blocks:count=15`` describes, as on the command line and in TOML.

    Args:
        text: ``density``, ``blocks:count=15``, ``power``, ``dedicated`` or ``ingress:bits_per_s=1e7``.

    Returns:
        The law; ``power`` and ``ingress`` still have to be told the devices' SNR and the size of a model (`bound`).

    Example:
        >>> import fedcell as fc
        >>> fc.parse_law("blocks:15")
        Blocks(count=15)
    """
    name, rest = settings.split("law", text)
    kind = settings.choose("law", name, LAWS)
    unset = {Power: {"snr": None}, Ingress: {"pipe_s": None}}
    first = [f.name for f in settings.settable(kind)][:1]
    return settings.build(kind, "law", name, rest, positional=first, given=unset.get(kind))


def format_law(law: Density | Power | Ingress) -> str:
    """Return the string from which `parse_law` makes this law.

    Args:
        law: any link law; the SNR of `Power` is not part of the string.

    Returns:
        Such as ``blocks:count=15``.

    Example:
        >>> import fedcell as fc
        >>> fc.format_law(fc.Blocks(15))
        'blocks:count=15'
    """
    name = next(name for name, kind in LAWS.items() if kind is type(law))
    return settings.write(name, Power() if isinstance(law, Power) else law)


NR_BLOCKS_HZ = tuple(180e3 * 2**mu for mu in range(5))
"""How wide 12 subcarriers are: of 15 kHz in LTE, of 15 to 240 kHz in NR."""


def width_note(law: Density | Power | Ingress, bandwidth_hz: float) -> str:
    """Say how wide resource blocks are that have not the width of LTE's or NR's; empty if they do, or under other laws.

    Args:
        law: any.
        bandwidth_hz: the band that they divide.

    Example:
        >>> import fedcell as fc
        >>> from fedcell.schedule.laws import width_note
        >>> width_note(fc.Blocks(15), 3e6)
        'blocks:count=15 divides 3 MHz into blocks of 200 kHz, not of 180 kHz as in LTE and NR; set the band to 2.7 MHz'
        >>> width_note(fc.Blocks(15), 2.7e6), width_note(fc.Blocks(51), 51 * 360e3)
        ('', '')
    """
    if not isinstance(law, Blocks):
        return ""
    width_hz = bandwidth_hz / law.count
    nearest_hz = min(NR_BLOCKS_HZ, key=lambda hz: abs(hz - width_hz))
    if abs(width_hz - nearest_hz) <= 1e-6 * nearest_hz:
        return ""
    return (
        f"{format_law(law)} divides {bandwidth_hz / 1e6:.6g} MHz into blocks of {width_hz / 1e3:.6g} kHz, not of "
        f"{nearest_hz / 1e3:g} kHz as in LTE and NR; set the band to {law.count * nearest_hz / 1e6:.6g} MHz"
    )
