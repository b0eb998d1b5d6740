"""The cell, which stays the same from round to round, and the conditions of one round."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import NDArray
from typing_extensions import override

from fedcell import defaults, settings, units
from fedcell.errors import InputError
from fedcell.fields import About, Section, checked, declared, naming, section
from fedcell.types import Floats
from fedcell.world.device import IntArray
from fedcell.world.rates import RATES, Rate, Shannon

BoolArray: TypeAlias = NDArray[np.bool_]
Fading: TypeAlias = Literal["none", "rayleigh", "rician"]
DownlinkKind: TypeAlias = Literal["free", "multicast", "unicast"]

_PAPER_RATE = Shannon()


@dataclass(frozen=True)
class Channel:
    """Where the SNR of links comes from: the base class of all channels.

    Attributes:
        by_place: whether it follows from the place of a device; if not, a file has it.
        farthest_m: the largest distance that it knows, in metres.
    """

    by_place: ClassVar[bool] = True
    farthest_m: ClassVar[float] = math.inf


@dataclass(frozen=True)
class PaperChannel(Channel):
    """The paper's channel: L(1 km) + 10 alpha log10(d / 1 km) and shadowing, by the fields of the `Cell`.

    Example:
        >>> import fedcell as fc
        >>> fc.Cell().channel
        PaperChannel()
    """


CHANNELS = settings.Registry[Channel](
    "channel",
    {
        "paper": "fedcell.world.cell:PaperChannel",
        "uma": "fedcell.world.tr38901:UMa",
        "umi": "fedcell.world.tr38901:UMi",
        "rma": "fedcell.world.tr38901:RMa",
        "trace": "fedcell.world.snr_trace:SnrTrace",
    },
    positional=settings.file_first,
)
"""Channels by name."""


class _PaperBits(int):
    """The size of an upload where none is given: of the paper's network, unless the model of a task says otherwise."""


@section
class Cell(Section):
    """The radio and the geometry of a cell with its base station at the centre; the section ``[cell]`` of a spec.

    The defaults are the paper's. It does not give the path loss constant; 128.1 dB at 1 km is 3GPP's value for macro
    cells. Shadowing and fading are off, as in the paper.

    Example:
        >>> import fedcell as fc
        >>> cell = fc.Cell(radius_m=500.0, bandwidth_hz=10e6, fading="rayleigh")
        >>> cell.bandwidth_hz, cell.model_bits
        (10000000.0, 1628480)
        >>> fc.Spec(cell=cell).cell == cell
        True
    """

    radius_m: Annotated[
        float, Gt(0), About("Radius R of the cell, in metres.", option="radius-m", label="radius", unit="m", step=50)
    ] = defaults.RADIUS_M
    bandwidth_hz: Annotated[
        float,
        Gt(0),
        About(
            "Uplink bandwidth B that the scheduled devices share, in Hz.",
            label="bandwidth",
            unit="MHz",
            scale=1e6,
            step=0.5,
        ),
    ] = defaults.BANDWIDTH_HZ
    noise_w_per_hz: Annotated[float, Gt(0), About("Noise power density N0, in W/Hz.", default="-114 dBm/MHz")] = (
        units.dbm_per_mhz(defaults.NOISE_DBM_PER_MHZ)
    )
    path_loss_1km_db: Annotated[float, About("Path loss at 1 km, in dB.")] = defaults.PATH_LOSS_1KM_DB
    path_loss_exponent: Annotated[
        float, Gt(0), About("Path loss exponent alpha: the loss grows by 10 alpha dB per decade of distance.")
    ] = defaults.PATH_LOSS_EXPONENT
    min_distance_m: Annotated[
        float, Gt(0), About("Devices closer than this, in metres, have the path loss of this distance.")
    ] = 1.0
    shadowing_db: Annotated[
        float,
        Ge(0),
        About(
            "Standard deviation of the log-normal shadowing, in dB; 0 turns it off.",
            option="shadowing-db",
            label="shadowing",
            unit="dB",
            step=1,
        ),
    ] = 0.0
    shadowing_distance_m: Annotated[
        float, Gt(0), About("Distance over which the correlation of the shadowing falls to 1/e, in metres.")
    ] = 50.0
    fading: Annotated[
        Fading,
        About(
            "Fading: none, rayleigh or rician; one independent draw per device and round.",
            option="fading",
            label="fading",
        ),
    ] = "none"
    rician_k: Annotated[
        float,
        Ge(0),
        About("For Rician fading, the power ratio (linear, not in dB) of the direct path to the scattered ones."),
    ] = 4.0
    model_bits: Annotated[
        int,
        Ge(1),
        About(
            "Size of one upload, in bits. With less than the model has, uploads are shorter, but nothing is quantised; "
            "task.compression does that.",
            default="32 bits for each of the model's weights",
        ),
    ] = _PaperBits(defaults.MODEL_BITS)
    csi_error_db: Annotated[
        float,
        Ge(0),
        About(
            "Standard deviation of the error with which the server knows an SNR, in dB; one independent draw per "
            "device and round.",
            option="csi-error-db",
            label="SNR error",
            unit="dB",
            step=1,
            since="0.2",
        ),
    ] = 0.0
    law: Annotated[
        str,
        About(
            "How uploads share the link: density (one band, the paper's), blocks:count=15, power (each device has its "
            "total power whatever its share), dedicated (each has the band to itself) or ingress:bits_per_s=1e7 "
            "(likewise, through one shared uplink of the server).",
            option="law",
            since="0.2",
        ),
    ] = "density"
    downlink: Annotated[
        DownlinkKind,
        About(
            "How the model comes to the devices: free (it takes no time), multicast (at the rate of the slowest "
            "scheduled device) or unicast (each scheduled device over an equal share of the downlink).",
            option="downlink",
            since="0.2",
        ),
    ] = "free"
    downlink_w_per_hz: Annotated[
        float,
        Gt(0),
        About("The base station's transmit power density, in W/Hz.", default="36 dBm/MHz", since="0.2"),
    ] = units.dbm_per_mhz(defaults.DOWNLINK_DBM_PER_MHZ)
    downlink_hz: Annotated[
        float | None, Gt(0), About("The downlink's bandwidth, in Hz.", default="that of the uplink", since="0.2")
    ] = None
    channel: Annotated[
        Channel,
        About(
            "Where the SNR comes from: paper (the path loss and shadowing above), 3GPP TR 38.901's uma, umi or rma, "
            "such as uma:carrier_hz=2e9, or trace:links.csv for the SNR of every device from a file.",
            option="channel",
            label="channel",
            choices=lambda: [name for name, kind in CHANNELS.items() if kind.by_place],
            since="0.2",
        ),
    ] = PaperChannel()
    rate: Annotated[
        Rate,
        About(
            "Rate at an SNR: shannon, or mcs64 or mcs256 for 5G NR's coding schemes; optionally with a gap, such "
            "as shannon:gap_db=3.",
            option="rate",
            label="rate",
            choices=lambda: list(RATES),
            since="0.2",
        ),
    ] = _PAPER_RATE

    def __post_init__(self) -> None:
        given_bits: Any = self.model_bits
        if given_bits is None:
            object.__setattr__(self, "model_bits", _PaperBits(defaults.MODEL_BITS))
        law: Any = self.law
        if not isinstance(law, str):  # laws are of schedule/, which knows cells; they have their line
            object.__setattr__(self, "law", getattr(law, "line", law))
        for name, parse in (("channel", CHANNELS.parse), ("rate", RATES.parse)):
            if isinstance(given := getattr(self, name), str):
                with naming(name):
                    object.__setattr__(self, name, parse(given))
        for name in declared(Cell).keys() - {"channel", "rate"}:
            if not isinstance(value := getattr(self, name), _PaperBits):
                object.__setattr__(self, name, checked(Cell, name, value))
        if self.min_distance_m > self.radius_m:
            raise InputError(
                f"min_distance_m is {self.min_distance_m:g}, more than radius_m, {self.radius_m:g}; lower it"
            )
        _check_channel(self)

    @property
    def given_model_bits(self) -> int | None:
        """The size of an upload as it was given; None where the model of a task decides."""
        return None if isinstance(self.model_bits, _PaperBits) else self.model_bits

    @override
    def _written(self) -> dict[str, Any]:
        named = {"channel": _line(self.channel, CHANNELS), "rate": _line(self.rate, RATES)}
        return super()._written() | named | {"model_bits": self.given_model_bits}


def _line(value: Any, kinds: settings.Registry[Any]) -> Any:
    """A channel or rate as a spec has it; one of a class of the user's own has no line, and stays what it is."""
    return kinds.format(value) if kinds.name_of(type(value)) in kinds else value


Foresight = Literal["perfect", "expected", "observed"]
"""What a server knows about compute times before a round: the true ones, their means, or what earlier rounds showed."""


@dataclass(frozen=True, eq=False)
class Conditions:
    """The conditions of one round: the two vectors that the scheduler needs, and what they are computed from.

    Attributes:
        positions_m: (M, 2) the positions of the devices in metres, with the base station at the origin.
        distance_m: (M,) distance to the base station in metres.
        snr: (M,) p_i h_i^2 / N0, a linear ratio.
        spectral_efficiency: (M,) what the cell's rate makes of the snr, log2(1 + snr) in the paper, in bit/s/Hz.
        upload_s: (M,) c_i, seconds to upload the model, or what a compression leaves of it, with the entire band.
        compute_s: (M,) t_i, seconds of local training in this round.
        expected_compute_s: (M,) the mean of t_i, in seconds.
        believed_snr: (M,) the SNR as the server knows it: with the cell's csi_error_db, not quite what holds.
        believed_upload_s: (M,) the upload times that follow from it, with which the server plans.
        available: (M,) booleans: the devices that can be asked to train; None if all can. One whose link has no rate at
            all cannot: its ``upload_s`` is infinite.
        until_s: (M,) the clock at which an available device leaves, in seconds; None if nobody leaves.

    Example:
        >>> import fedcell as fc
        >>> conditions = fc.World(devices=fc.Devices(count=3)).conditions(seed=1, round_index=0)
        >>> conditions.positions_m.shape, conditions.upload_s.shape
        ((3, 2), (3,))
        >>> conditions.compute_s.round(2).tolist(), conditions.expected_compute_s.tolist()
        ([6.2, 6.61, 6.03], [6.75, 6.75, 6.75])
    """

    positions_m: Floats
    distance_m: Floats
    snr: Floats
    spectral_efficiency: Floats
    upload_s: Floats
    compute_s: Floats
    expected_compute_s: Floats
    believed_snr: Floats
    believed_upload_s: Floats
    available: BoolArray | None = None
    until_s: Floats | None = None

    def among(self, devices: BoolArray) -> "Conditions":
        """The same conditions with none available but these devices, (M,) booleans."""
        return replace(self, available=devices if self.available is None else self.available & devices)

    def foreseen_compute_s(self, foresight: Foresight) -> Floats:
        """(M,) seconds of training as far as a server knows them in advance; NaN where only earlier rounds tell."""
        if foresight == "observed":
            return np.full(self.compute_s.size, np.nan)
        return self.compute_s if foresight == "perfect" else self.expected_compute_s

    @cached_property
    def there(self) -> IntArray:
        """(n,) the numbers of the devices that can be asked to train."""
        return np.arange(self.upload_s.size) if self.available is None else np.flatnonzero(self.available)

    @property
    def some(self) -> IntArray | slice:
        """The same as an index of arrays of all devices, which copies nothing if all can be asked."""
        return slice(None) if self.available is None else self.there


def uniform_in_disc(radius_m: float, unit: Floats) -> Floats:
    """Map uniform random numbers to points uniform in a disc: r = R sqrt(u), phi = 2 pi v.

    Args:
        radius_m: R, in metres.
        unit: (M, 2) u and v, uniform in [0, 1).

    Returns:
        (M, 2) x and y in metres.

    Example:
        >>> import numpy as np
        >>> from fedcell.world.cell import uniform_in_disc
        >>> uniform_in_disc(10.0, np.array([[0.25, 0.0]])).tolist()
        [[5.0, 0.0]]
    """
    radius = radius_m * np.sqrt(unit[:, 0])
    angle = 2 * np.pi * unit[:, 1]
    points = np.empty_like(unit)
    np.multiply(radius, np.cos(angle), out=points[:, 0])
    np.multiply(radius, np.sin(angle), out=points[:, 1])
    return points


def _check_channel(cell: Cell) -> None:
    """Refuse what a channel of its own would ignore, and a cell beyond its tables."""
    if not isinstance(cell.channel, Channel):
        raise InputError(f"channel is {cell.channel!r}; give a channel, such as fedcell.UMa()")
    if not hasattr(cell.rate, "efficiency"):
        raise InputError(f"rate is {cell.rate!r}; give a law from SNR to rate, such as fedcell.Mcs64()")
    if isinstance(cell.channel, PaperChannel):
        return
    kind = type(cell.channel).__name__
    for name in ("path_loss_1km_db", "path_loss_exponent", "shadowing_db", "shadowing_distance_m"):
        value, default = getattr(cell, name), getattr(type(cell), name)
        if value != default:
            raise InputError(f"{name} is {value:g}, but the channel {kind} has its own; leave it at {default:g}")
    if cell.radius_m > (farthest_m := cell.channel.farthest_m):
        raise InputError(
            f"radius_m is {cell.radius_m:g}, but the tables of {kind} end at {farthest_m:g} m; give a smaller cell"
        )
