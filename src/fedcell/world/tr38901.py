"""3GPP TR 38.901: urban macro, urban micro and rural macro cells, outdoors.

Path loss is table 7.4.1-1, the probability of a line of sight (LOS) table 7.4.2-1, the standard deviation of the
shadowing table 7.4.1-1 and its correlation distance table 7.5-6, that of the LOS state table 7.6.3.1-2 (version 19.2;
16.1 has the same numbers). In the formulas d is the distance over ground, d3 the one between the antennas, both in
metres, f the carrier in GHz; the speed of light is 3e8 m/s, as there.

Whether a place is in line of sight is a fixed function of seed and place, as section 7.6.3.3 has it: LOS where
F(x) < G(P(d)), with a Gaussian field F and the normal quantile G. So neighbours agree, moving devices meet the same
corners again, and at any distance the share of places in sight is P(d). LOS and NLOS places have separate shadowing.
"""

from dataclasses import dataclass
from math import log10, pi
from statistics import NormalDist
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from fedcell.errors import InputError, require_number
from fedcell.rng import stream
from fedcell.types import Floats
from fedcell.world.cell import Channel
from fedcell.world.channel import gaussian_field

LineOfSight: TypeAlias = Literal["drawn", "always", "never"]

NEAREST_M = 10.0
"""The tables begin here: whoever is nearer has the path loss of this distance."""
FARTHEST_M = 5000.0
"""The tables end here: larger cells are refused."""
LIGHT_M_PER_S = 3.0e8


@dataclass(frozen=True)
class Outdoor38901(Channel):
    """What the three scenarios have in common; use `UMa`, `UMi` or `RMa`.

    Attributes:
        carrier_hz: f, the carrier frequency in Hz, from 0.5 to 100 GHz (RMa: 30 GHz).
        bs_height_m: height of the base station's antenna, in metres, from 10 to 150. TR 38.901 gives that range for RMa
            alone; for UMa and UMi it has just the default.
        ue_height_m: height of the devices, in metres: UMa from 1.5 to below 13, UMi 1.5 to 22.5, RMa 1 to 10.
        los: whether places are in line of sight: ``drawn`` with the tables' probability, ``always`` or ``never``.
        shadowing: whether there is shadowing.
    """

    carrier_hz: float = 3.5e9
    bs_height_m: float = 25.0
    ue_height_m: float = 1.5
    los: LineOfSight = "drawn"
    shadowing: bool = True

    farthest_m: ClassVar[float] = FARTHEST_M
    most_carrier_hz: ClassVar[float] = 100e9
    ue_heights_m: ClassVar[tuple[float, float]] = (1.5, 22.5)
    sigma_db: ClassVar[tuple[float, float]]
    """Standard deviation of the shadowing, LOS and NLOS."""
    shadow_m: ClassVar[tuple[float, float]]
    """Correlation distance of the shadowing, LOS and NLOS."""
    sight_m: ClassVar[float]
    """Correlation distance of the LOS state."""

    def __post_init__(self) -> None:
        self._require("carrier_hz", 0.5e9, self.most_carrier_hz)
        self._require("bs_height_m", 10.0, 150.0)
        self._require("ue_height_m", *self.ue_heights_m)

    def _require(self, name: str, least: float, most: float) -> None:
        value = getattr(self, name)
        require_number(name, value)
        if not least <= value <= most:
            raise InputError(f"{name} is {value:g}; {type(self).__name__} takes {least:g} to {most:g}")

    @property
    def breakpoint_m(self) -> float:
        """The distance from which the path loss in line of sight grows with the fourth power."""
        raise NotImplementedError

    @property
    def kinks_m(self) -> list[float]:
        """The distances, rising, at which a formula gives way to another."""
        return sorted({NEAREST_M, 18.0, self.breakpoint_m})

    def los_probability(self, distance_m: Floats) -> Floats:
        """(M,) the probability that a place (M,) metres away over ground is in line of sight: table 7.4.2-1."""
        raise NotImplementedError

    def los_loss_db(self, distance_m: Floats) -> Floats:
        """(M,) path loss in dB in line of sight, (M,) metres away over ground: table 7.4.1-1."""
        raise NotImplementedError

    def nlos_loss_db(self, distance_m: Floats) -> Floats:
        """(M,) path loss in dB without a line of sight, never less than with one."""
        raise NotImplementedError

    def likely_loss_db(self, distance_m: Floats) -> Floats:
        """(M,) path loss in dB of the likelier state at distances in metres (M,), without shadowing."""
        if self.los == "drawn":
            sees = self.los_probability(distance_m) >= 0.5
            return np.where(sees, self.los_loss_db(distance_m), self.nlos_loss_db(distance_m))
        return self.los_loss_db(distance_m) if self.los == "always" else self.nlos_loss_db(distance_m)

    def states(self, distance_m: Floats) -> list[tuple[Floats, Floats, Floats]]:
        """LOS and NLOS at distances in metres (M,): each one's probability, path loss and shadowing sigma, (M,)."""
        drawn = self.los == "drawn"
        sees = self.los_probability(distance_m) if drawn else np.full(distance_m.shape, float(self.los == "always"))
        clear_db, blocked_db = self._sigmas_db(distance_m)
        return [(sees, self.los_loss_db(distance_m), clear_db), (1 - sees, self.nlos_loss_db(distance_m), blocked_db)]

    def in_sight(self, distance_m: Floats, positions_m: Floats, seed: int) -> NDArray[np.bool_]:
        """(M,) whether places (M, 2) are in line of sight; the same for a seed's policies, mostly for neighbours."""
        if self.los != "drawn":
            return np.full(len(positions_m), self.los == "always")
        field = gaussian_field(positions_m, self.sight_m, stream(seed, "line of sight"))
        return field < normal_quantile(self.los_probability(distance_m))

    def loss_db(self, distance_m: Floats, positions_m: Floats, seed: int) -> Floats:
        """(M,) loss in dB, shadowing included.

        Args:
            distance_m: (M,) metres over ground.
            positions_m: (M, 2) the places, in metres.
            seed: the run's random seed; each seed has its own corners and shadows.
        """
        sees = self.in_sight(distance_m, positions_m, seed)
        loss_db = np.where(sees, self.los_loss_db(distance_m), self.nlos_loss_db(distance_m))
        if not self.shadowing:
            return loss_db
        sigmas_db = self._sigmas_db(distance_m)
        fields = [
            gaussian_field(positions_m, correlation_m, stream(seed, name))
            for name, correlation_m in zip(("shadowing LOS", "shadowing NLOS"), self.shadow_m, strict=True)
        ]
        shadow_db: Floats = np.where(sees, sigmas_db[0] * fields[0], sigmas_db[1] * fields[1])
        return loss_db + shadow_db

    def _sigmas_db(self, distance_m: Floats) -> tuple[Floats, Floats]:
        """(M,) standard deviations of the shadowing, LOS and NLOS."""
        clear_db, blocked_db = self.sigma_db if self.shadowing else (0.0, 0.0)
        return np.full(distance_m.shape, clear_db), np.full(distance_m.shape, blocked_db)

    def _ground_m(self, distance_m: Floats) -> Floats:
        return np.maximum(distance_m, NEAREST_M)

    def _antennas_m(self, distance_m: Floats) -> Floats:
        """(M,) d3, between the antennas."""
        return np.hypot(self._ground_m(distance_m), self.bs_height_m - self.ue_height_m)

    @property
    def _f(self) -> float:
        """log10 of the carrier frequency in GHz."""
        return log10(self.carrier_hz / 1e9)


class _Urban(Outdoor38901):
    """UMa and UMi in line of sight: A + B log10 d3 + 20 log10 f, and beyond d' with slope 40."""

    los_line: ClassVar[tuple[float, float]]

    @property
    @override
    def breakpoint_m(self) -> float:
        """D' = 4 (h_BS - h_E) (h_UT - h_E) f / c with the effective environment height h_E = 1 m."""
        return 4 * (self.bs_height_m - 1.0) * (self.ue_height_m - 1.0) * self.carrier_hz / LIGHT_M_PER_S

    @override
    def los_loss_db(self, distance_m: Floats) -> Floats:
        """(M,) path loss in dB in line of sight, (M,) metres away over ground: PL1 and, beyond d', PL2."""
        constant, slope = self.los_line
        d, d3 = self._ground_m(distance_m), self._antennas_m(distance_m)
        near_db = constant + slope * np.log10(d3) + 20 * self._f
        knee = self.breakpoint_m**2 + (self.bs_height_m - self.ue_height_m) ** 2
        far_db = constant + 40 * np.log10(d3) + 20 * self._f - (40 - slope) / 2 * log10(knee)
        return np.where(d <= self.breakpoint_m, near_db, far_db)


@dataclass(frozen=True)
class UMa(_Urban):
    """Urban macro: a base station above the roofs, devices in the streets.

    LOS: PL1 = 28.0 + 22 log10 d3 + 20 log10 f up to d', then PL2 = 28.0 + 40 log10 d3 + 20 log10 f
    - 9 log10(d'^2 + (h_BS - h_UT)^2). NLOS: 13.54 + 39.08 log10 d3 + 20 log10 f - 0.6 (h_UT - 1.5), at least the LOS
    loss. Only devices below 13 m: from there on h_E is drawn for each link, which is not modelled here.

    Attributes:
        carrier_hz: f, the carrier frequency in Hz, from 0.5 to 100 GHz.
        bs_height_m: h_BS, in metres.
        ue_height_m: h_UT, in metres, from 1.5 to below 13.
        los: whether places are in line of sight: ``drawn``, ``always`` or ``never``.
        shadowing: whether there is shadowing (4 dB LOS, 6 dB NLOS).

    Example:
        >>> import fedcell as fc, numpy as np
        >>> distance_m = np.array([100.0, 1000.0])
        >>> channel = fc.UMa(carrier_hz=5e9)
        >>> channel.los_loss_db(distance_m).round(2).tolist(), channel.nlos_loss_db(distance_m).round(2).tolist()
        ([86.24, 109.73], [106.14, 144.76])
        >>> channel.los_probability(distance_m).round(3).tolist()
        [0.348, 0.018]
    """

    bs_height_m: float = 25.0
    ue_heights_m: ClassVar[tuple[float, float]] = (1.5, 13.0)
    los_line: ClassVar[tuple[float, float]] = (28.0, 22.0)
    sigma_db: ClassVar[tuple[float, float]] = (4.0, 6.0)
    shadow_m: ClassVar[tuple[float, float]] = (37.0, 50.0)
    sight_m: ClassVar[float] = 50.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ue_height_m == 13.0:
            raise InputError("ue_height_m is 13; UMa takes 1.5 to less than 13, where the environment's height is 1 m")

    @override
    def los_probability(self, distance_m: Floats) -> Floats:
        """(M,) 18/d + exp(-d/63) (1 - 18/d) beyond 18 m, and 1 up to there."""
        return _street_probability(self._ground_m(distance_m), 63.0)

    @override
    def nlos_loss_db(self, distance_m: Floats) -> Floats:
        """(M,) path loss in dB without a line of sight, (M,) metres away over ground."""
        d3 = self._antennas_m(distance_m)
        blocked_db = 13.54 + 39.08 * np.log10(d3) + 20 * self._f - 0.6 * (self.ue_height_m - 1.5)
        return np.maximum(self.los_loss_db(distance_m), blocked_db)


@dataclass(frozen=True)
class UMi(_Urban):
    """Urban micro, street canyon: a base station below the roofs.

    LOS: PL1 = 32.4 + 21 log10 d3 + 20 log10 f up to d', then PL2 = 32.4 + 40 log10 d3 + 20 log10 f
    - 9.5 log10(d'^2 + (h_BS - h_UT)^2). NLOS: 22.4 + 35.3 log10 d3 + 21.3 log10 f - 0.3 (h_UT - 1.5), at least the LOS
    loss.

    Attributes:
        carrier_hz: f, the carrier frequency in Hz, from 0.5 to 100 GHz.
        bs_height_m: h_BS, in metres.
        ue_height_m: h_UT, in metres, from 1.5 to 22.5.
        los: whether places are in line of sight: ``drawn``, ``always`` or ``never``.
        shadowing: whether there is shadowing (4 dB LOS, 7.82 dB NLOS).

    Example:
        >>> import fedcell as fc, numpy as np
        >>> channel = fc.UMi(carrier_hz=5e9)
        >>> channel.los_loss_db(np.array([100.0])).round(2).tolist()
        [88.41]
        >>> channel.nlos_loss_db(np.array([100.0])).round(2).tolist()
        [107.94]
    """

    bs_height_m: float = 10.0
    los_line: ClassVar[tuple[float, float]] = (32.4, 21.0)
    sigma_db: ClassVar[tuple[float, float]] = (4.0, 7.82)
    shadow_m: ClassVar[tuple[float, float]] = (10.0, 13.0)
    sight_m: ClassVar[float] = 50.0

    @override
    def los_probability(self, distance_m: Floats) -> Floats:
        """(M,) 18/d + exp(-d/36) (1 - 18/d) beyond 18 m, and 1 up to there."""
        return _street_probability(self._ground_m(distance_m), 36.0)

    @override
    def nlos_loss_db(self, distance_m: Floats) -> Floats:
        """(M,) path loss in dB without a line of sight, (M,) metres away over ground."""
        d3 = self._antennas_m(distance_m)
        blocked_db = 22.4 + 35.3 * np.log10(d3) + 21.3 * self._f - 0.3 * (self.ue_height_m - 1.5)
        return np.maximum(self.los_loss_db(distance_m), blocked_db)


@dataclass(frozen=True)
class RMa(Outdoor38901):
    """Rural macro: a high mast, low houses.

    LOS up to d' = 2 pi h_BS h_UT f / c: PL1(x) = 20 log10(40 pi x f / 3) + min(0.03 h^1.72, 10) log10 x
    - min(0.044 h^1.72, 14.77) + 0.002 log10(h) x with x = d3, then PL1(d') + 40 log10(d3 / d'). NLOS: 161.04
    - 7.1 log10 W + 7.5 log10 h - (24.37 - 3.7 (h/h_BS)^2) log10 h_BS + (43.42 - 3.1 log10 h_BS) (log10 d3 - 3)
    + 20 log10 f - (3.2 log10(11.75 h_UT)^2 - 4.97), at least the LOS loss.

    Attributes:
        carrier_hz: f, the carrier frequency in Hz, from 0.5 to 30 GHz.
        bs_height_m: h_BS, in metres, from 10 to 150.
        ue_height_m: h_UT, in metres, from 1 to 10.
        los: whether places are in line of sight: ``drawn``, ``always`` or ``never``.
        shadowing: whether there is shadowing (LOS 4 dB up to d' and 6 dB beyond, NLOS 8 dB).
        building_height_m: h, the mean height of the buildings, in metres, from 5 to 50.
        street_width_m: W, the mean width of the streets, in metres, from 5 to 50.

    Example:
        >>> import fedcell as fc, numpy as np
        >>> channel = fc.RMa(carrier_hz=5e9)
        >>> channel.los_loss_db(np.array([100.0, 1000.0])).round(2).tolist()
        [87.3, 108.56]
        >>> channel.nlos_loss_db(np.array([100.0, 1000.0])).round(2).tolist()
        [95.77, 133.52]
    """

    bs_height_m: float = 35.0
    building_height_m: float = 5.0
    street_width_m: float = 20.0
    most_carrier_hz: ClassVar[float] = 30e9
    ue_heights_m: ClassVar[tuple[float, float]] = (1.0, 10.0)
    sigma_db: ClassVar[tuple[float, float]] = (4.0, 8.0)
    far_sigma_db: ClassVar[float] = 6.0
    shadow_m: ClassVar[tuple[float, float]] = (37.0, 120.0)
    sight_m: ClassVar[float] = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("building_height_m", 5.0, 50.0)
        self._require("street_width_m", 5.0, 50.0)

    @property
    @override
    def breakpoint_m(self) -> float:
        """D' = 2 pi h_BS h_UT f / c."""
        return 2 * pi * self.bs_height_m * self.ue_height_m * self.carrier_hz / LIGHT_M_PER_S

    @override
    def los_probability(self, distance_m: Floats) -> Floats:
        """(M,) exp(-(d - 10) / 1000) beyond 10 m, and 1 up to there."""
        return np.exp(-(self._ground_m(distance_m) - 10.0) / 1000.0)

    @override
    def los_loss_db(self, distance_m: Floats) -> Floats:
        """(M,) path loss in dB in line of sight, (M,) metres away over ground: PL1 and, beyond d', PL2."""
        d, d3 = self._ground_m(distance_m), self._antennas_m(distance_m)
        knee_m = np.float64(self.breakpoint_m)
        far_db = self._near_loss_db(knee_m) + 40 * np.log10(d3 / knee_m)
        return np.where(d <= knee_m, self._near_loss_db(d3), far_db)

    @override
    def nlos_loss_db(self, distance_m: Floats) -> Floats:
        """(M,) path loss in dB without a line of sight, (M,) metres away over ground."""
        h, mast, d3 = self.building_height_m, self.bs_height_m, self._antennas_m(distance_m)
        constant = 161.04 - 7.1 * log10(self.street_width_m) + 7.5 * log10(h)
        constant -= (24.37 - 3.7 * (h / mast) ** 2) * log10(mast)
        constant += 20 * self._f - (3.2 * log10(11.75 * self.ue_height_m) ** 2 - 4.97)
        blocked_db = constant + (43.42 - 3.1 * log10(mast)) * (np.log10(d3) - 3)
        return np.maximum(self.los_loss_db(distance_m), blocked_db)

    def _near_loss_db(self, x: Floats | np.float64) -> Floats:
        h = self.building_height_m
        free_db = 20 * np.log10(40 * pi * x / 3) + 20 * self._f
        clutter_db: Floats = min(0.03 * h**1.72, 10.0) * np.log10(x) - min(0.044 * h**1.72, 14.77)
        return free_db + clutter_db + 0.002 * log10(h) * x

    @override
    def _sigmas_db(self, distance_m: Floats) -> tuple[Floats, Floats]:
        clear_db, blocked_db = super()._sigmas_db(distance_m)
        far = self._ground_m(distance_m) > self.breakpoint_m
        return np.where(far & self.shadowing, self.far_sigma_db, clear_db), blocked_db


def _street_probability(d: Floats, scale_m: float) -> Floats:
    beyond = np.maximum(d, 18.0)
    return 18 / beyond + np.exp(-beyond / scale_m) * (1 - 18 / beyond)


def normal_quantile(probability: Floats) -> Floats:
    """The standard normal quantile of probabilities from 0 to 1, infinite at both ends.

    Args:
        probability: (M,) numbers from 0 to 1.

    Returns:
        (M,) the values that a standard normal variable is below with these probabilities.

    Example:
        >>> import numpy as np
        >>> from fedcell.world.tr38901 import normal_quantile
        >>> normal_quantile(np.array([0.0, 0.5, 0.975, 1.0])).round(2).tolist()
        [-inf, 0.0, 1.96, inf]
    """
    inverse = NormalDist().inv_cdf
    ends = {0.0: -np.inf, 1.0: np.inf}
    return np.array([ends[p] if p in ends else inverse(p) for p in probability.tolist()])
