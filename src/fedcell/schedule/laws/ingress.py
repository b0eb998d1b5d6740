"""Dedicated links that end in one shared uplink of the server (backhaul)."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from fedcell.errors import InputError, require_number
from fedcell.schedule.laws.base import Law, setting
from fedcell.schedule.laws.density import density_tangent, density_time, linear
from fedcell.schedule.laws.solver import Needs, register
from fedcell.settings import NOT_IN_A_LINE
from fedcell.types import Floats


@dataclass(frozen=True)
class Ingress(Law):
    """Every device has a dedicated link, and all of them end in one uplink of the server, which they share.

    With the share g of the uplink an upload takes max(c, a / g) seconds: c over its own link, a over the whole uplink.
    To have delivered by T a device needs the share a / (T - t_i), and T must be at least t_i + c_i.

    Attributes:
        bits_per_s: R, the rate of the uplink, in bit/s, as specs give it; with it the size of a model must be known.
        pipe_s: a, the seconds that one model takes over the whole uplink. Give one of the two.

    Example:
        >>> import fedcell as fc
        >>> fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Ingress(pipe_s=0.5)).round_s  # the slower line
        5.0
        >>> band = fc.allocate([1.0, 3.0], [2.0, 2.0], law=fc.Ingress(pipe_s=4.0))
        >>> band.shares.tolist(), band.round_s
        ([0.5, 0.5], 10.0)
    """

    label: ClassVar[str] = "dedicated links into one shared uplink"
    shared: ClassVar[str] = "the server's uplink"
    own_lines: ClassVar[bool] = True

    bits_per_s: float | None = field(default=None, metadata=setting("server's uplink, Mbit/s", usual=1e7, scale=1e6))
    pipe_s: float | None = field(default=None, kw_only=True, metadata=NOT_IN_A_LINE)

    def __post_init__(self) -> None:
        if (self.bits_per_s is None) == (self.pipe_s is None):
            raise InputError("the law ingress needs the rate of the server's uplink; write ingress:bits_per_s=1e7")
        name = "bits_per_s" if self.pipe_s is None else "pipe_s"
        require_number(f"{name} of the law ingress", getattr(self, name), above=0)

    @property
    def _a(self) -> float | Floats:
        if self.pipe_s is None:
            raise InputError("the law ingress needs seconds here; write Ingress(pipe_s=model_bits / bits_per_s)")
        return self.pipe_s

    @override
    def for_devices(self, snr: Floats | None, model_bits: float) -> "Ingress":
        return self if self.bits_per_s is None else replace(self, bits_per_s=None, pipe_s=model_bits / self.bits_per_s)

    @override
    def scaled(self, part: Floats) -> "Ingress":
        return _IngressParts(pipe_s=self.pipe_s, parts=part)

    @override
    def check(self, shape: tuple[int, ...]) -> None:
        _ = self._a

    @override
    def needs(self, upload_s: Floats, compute_s: Floats) -> Needs:
        return Needs(IngressNeeds(), np.full(upload_s.shape, self._a), compute_s, upload_s)

    @override
    def upload_s(self, whole_s: Floats, shares: Floats) -> Floats:
        seconds: Floats = np.maximum(whole_s, self._a / shares)
        return seconds

    @override
    def solo_s(self, took_s: Floats, shares: Floats) -> Floats:
        return took_s  # no slower than this; how much of it was the uplink's is not known

    @override
    def power_fraction(self, whole_s: Floats, shares: Floats) -> Floats:
        fraction: Floats = whole_s / self.upload_s(
            whole_s, shares
        )  # on its own link, with pauses if the uplink is slower
        return fraction

    @override
    def resources(self, share: float, bandwidth_hz: float) -> dict[str, float]:
        return {} if self.bits_per_s is None else {"bits_per_s": share * self.bits_per_s}


@dataclass(frozen=True, eq=False)
class _IngressParts(Ingress):
    """The same for (n,) devices whose uploads are parts of a model; see `Law.scaled`."""

    parts: Floats = field(default_factory=lambda: np.ones(1), kw_only=True)

    @property
    @override
    def _a(self) -> float | Floats:
        seconds: Floats = self.parts * super()._a
        return seconds

    @override
    def take(self, devices: ArrayLike) -> "Ingress":
        return replace(self, parts=self.parts[np.asarray(devices)])


class IngressNeeds(NamedTuple):
    """The needs a / (T - t) from T = t + c on: `Needs` has a, the uplink's time, as c, and the own link's as e."""


def _need(_law: Any, c: float, t: float, e: float, T: float) -> float:
    return c / (T - t) if t + e <= T else np.inf


def _inverse_share(_law: Any, c: float, t: float, e: float, T: float) -> float:
    return (T - t) / c if t + e < T else -np.inf


def _solo_finish_s(_law: Any, c: float, t: float, e: float) -> float:
    return max(c, e) + t


def _round_time(_law: Any, group: Floats, n: int, start_s: float) -> float:
    end_s = density_time(group[0, :n], group[1, :n], group[3, :n], start_s)
    for i in range(n):
        end_s = max(end_s, group[1, i] + group[2, i])
    return end_s


register(
    IngressNeeds,
    need=_need,
    inverse_share=_inverse_share,
    is_linear=linear,
    tangent=density_tangent,
    solo_finish_s=_solo_finish_s,
    round_time=_round_time,
)
