"""The cell and its devices, which stay the same from round to round, and the conditions of one round."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcell import defaults, settings, units
from fedcell.errors import InputError, did_you_mean, reject, require_array, require_number, require_whole
from fedcell.types import Floats
from fedcell.world.device import compute_j, mean_compute_s
from fedcell.world.rates import Rate, Shannon

IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Fading: TypeAlias = Literal["none", "rayleigh", "rician"]
DownlinkKind: TypeAlias = Literal["free", "multicast", "unicast"]

_LARGEST_EXACT_FLOAT = 2**53
_PAPER_RATE = Shannon()
PAPER_POWER_W_PER_HZ = units.dbm_per_mhz(defaults.POWER_DBM_PER_MHZ)


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


@dataclass(frozen=True)
class Cell:
    """The radio and the geometry of a cell with its base station at the centre; the defaults are the paper's.

    The paper does not give the path loss constant; 128.1 dB at 1 km is 3GPP's value for macro cells. Shadowing and
    fading are off, as in the paper.

    Attributes:
        radius_m: R, the radius of the cell, in metres.
        bandwidth_hz: B, the uplink bandwidth that the scheduled devices share, in Hz.
        noise_w_per_hz: N0, the noise power density, in W/Hz (-114 dBm/MHz).
        path_loss_1km_db: the path loss at 1 km, in dB.
        path_loss_exponent: alpha; the loss grows by 10 alpha dB per decade of distance.
        min_distance_m: devices closer than this, in metres, have the path loss of this distance.
        shadowing_db: standard deviation of the log-normal shadowing, in dB; 0 turns it off.
        shadowing_distance_m: the distance, in metres, over which the correlation of the shadowing falls to 1/e.
        fading: ``"none"``, ``"rayleigh"`` or ``"rician"``; one independent draw per device and round.
        rician_k: for Rician fading, the power ratio (linear, not in dB) of the direct path to the scattered ones.
        model_bits: S_model, the size of one upload, in bits.
        csi_error_db: standard deviation of the error with which the server knows the SNR of a link, in dB; one
            independent draw per device and round. 0, as in the paper: it knows the SNR.
        downlink: how the model comes to the devices: ``"free"`` (it takes no time, as in the paper), ``"multicast"``
            (at the rate of the slowest scheduled device) or ``"unicast"`` (each scheduled device over an equal share).
        downlink_w_per_hz: the base station's transmit power density, in W/Hz.
        downlink_hz: the downlink's bandwidth in Hz; None for that of the uplink.
        channel: where the SNR comes from: `PaperChannel`, 3GPP TR 38.901's `UMa`, `UMi` or `RMa`, or an `SnrTrace`. All
            but the first have their own path loss and shadowing; fading comes on top of any.
        rate: what the SNR is worth: `Shannon`, `Mcs64` or `Mcs256`.

    Example:
        >>> import fedcell as fc
        >>> cell = fc.Cell(radius_m=500.0, bandwidth_hz=10e6, fading="rayleigh")
        >>> cell.bandwidth_hz, cell.model_bits
        (10000000.0, 1628480)
    """

    radius_m: float = defaults.RADIUS_M
    bandwidth_hz: float = defaults.BANDWIDTH_HZ
    noise_w_per_hz: float = units.dbm_per_mhz(defaults.NOISE_DBM_PER_MHZ)
    path_loss_1km_db: float = defaults.PATH_LOSS_1KM_DB
    path_loss_exponent: float = defaults.PATH_LOSS_EXPONENT
    min_distance_m: float = 1.0
    shadowing_db: float = 0.0
    shadowing_distance_m: float = 50.0
    fading: Fading = "none"
    rician_k: float = 4.0
    model_bits: int = defaults.MODEL_BITS
    csi_error_db: float = 0.0
    downlink: DownlinkKind = "free"
    downlink_w_per_hz: float = units.dbm_per_mhz(defaults.DOWNLINK_DBM_PER_MHZ)
    downlink_hz: float | None = None
    channel: Channel = PaperChannel()
    rate: Rate = _PAPER_RATE

    def __post_init__(self) -> None:
        require_whole("model_bits", self.model_bits, least=1)
        positive = ("radius_m", "bandwidth_hz", "noise_w_per_hz", "path_loss_exponent", "min_distance_m")
        for name in (*positive, "shadowing_distance_m", "model_bits"):
            require_number(name, getattr(self, name), above=0)
        require_number("path_loss_1km_db", self.path_loss_1km_db)
        require_number("shadowing_db", self.shadowing_db, least=0)
        require_number("rician_k", self.rician_k, least=0)
        require_number("csi_error_db", self.csi_error_db, least=0)
        if self.min_distance_m > self.radius_m:
            raise InputError(
                f"min_distance_m is {self.min_distance_m:g}, more than radius_m, {self.radius_m:g}; lower it"
            )
        require_number("downlink_w_per_hz", self.downlink_w_per_hz, above=0)
        if self.downlink_hz is not None:
            require_number("downlink_hz", self.downlink_hz, above=0)
        for name, kind in (("fading", Fading), ("downlink", DownlinkKind)):
            known, given = get_args(kind), getattr(self, name)
            if given not in known:
                raise InputError(f"{name} is {given!r}; {did_you_mean(str(given), known)}")
        _check_channel(self)


@dataclass(frozen=True, eq=False, init=False)
class Devices:
    """The M devices of a cell: read-only arrays of length M; the defaults are the paper's.

    Each argument is one number for all devices, or a list with one number per device. ``count`` is needed only if no
    argument is a list and M is not the paper's 20.

    Attributes:
        count: M, the number of devices.
        samples: (M,) D_i, the training samples that the device processes in a round.
        seconds_per_sample: (M,) a_i, the minimum training time per sample, in seconds (2 ms).
        samples_per_second: (M,) mu_i; the training time beyond the minimum has mean D_i / mu_i seconds (4 samples/ms).
        power_w_per_hz: (M,) p_i, the transmit power density, in W/Hz (7 dBm/MHz).
        kappa: (M,) effective switched capacitance of the processor, in J s^2: a cycle costs kappa f^2 joules (1e-28).
        cpu_hz: (M,) f, the clock frequency while training, in Hz (1 GHz).
        cycles_per_sample: (M,) cycles of training a sample; by default those of seconds_per_sample at cpu_hz.
        compute_w: (M,) watts while training, of the energy model watts x seconds; None for kappa f^2 x cycles.
        battery_j: (M,) what a device can spend in a run, in joules; None if all are on mains.

    Example:
        >>> import fedcell as fc
        >>> devices = fc.Devices(samples=[1000, 3000], seconds_per_sample=1e-3)
        >>> len(devices), devices.seconds_per_sample.tolist()
        (2, [0.001, 0.001])
        >>> len(fc.Devices()), len(fc.Devices(count=5))
        (20, 5)
    """

    count: int
    samples: IntArray
    seconds_per_sample: Floats
    samples_per_second: Floats
    power_w_per_hz: Floats
    kappa: Floats
    cpu_hz: Floats
    cycles_per_sample: Floats
    compute_w: Floats | None
    battery_j: Floats | None

    # Not the generated __init__: the arguments are numbers or lists, the attributes are always arrays.
    def __init__(
        self,
        count: int | None = None,
        samples: ArrayLike = defaults.SAMPLES,
        seconds_per_sample: ArrayLike = defaults.SECONDS_PER_SAMPLE,
        samples_per_second: ArrayLike = defaults.SAMPLES_PER_SECOND,
        power_w_per_hz: ArrayLike = PAPER_POWER_W_PER_HZ,
        kappa: ArrayLike = defaults.KAPPA,
        cpu_hz: ArrayLike = defaults.CPU_HZ,
        cycles_per_sample: ArrayLike | None = None,
        compute_w: ArrayLike | None = None,
        battery_j: ArrayLike | None = None,
    ) -> None:
        given = {
            "samples": _whole_array("samples", samples),
            "seconds_per_sample": require_array("seconds_per_sample", seconds_per_sample, least=0),
            "samples_per_second": require_array("samples_per_second", samples_per_second, above=0),
            "power_w_per_hz": require_array("power_w_per_hz", power_w_per_hz, above=0),
            "kappa": require_array("kappa", kappa, least=0),
            "cpu_hz": require_array("cpu_hz", cpu_hz, above=0),
        }
        for name, value in {"cycles_per_sample": cycles_per_sample, "compute_w": compute_w}.items():
            if value is not None:
                given[name] = require_array(name, value, least=0)
        if battery_j is not None:
            given["battery_j"] = require_array("battery_j", battery_j, above=0)
        size = _common_length(count, given)
        object.__setattr__(self, "count", size)
        if cycles_per_sample is None:
            with np.errstate(over="ignore"):
                given["cycles_per_sample"] = given["cpu_hz"] * given["seconds_per_sample"]
        for name, array in given.items():
            full = np.full(size, array, dtype=np.int64 if name == "samples" else np.float64)
            full.flags.writeable = False
            object.__setattr__(self, name, full)
        for name in ("compute_w", "battery_j"):
            if name not in given:
                object.__setattr__(self, name, None)
        self._require_finite()

    def __len__(self) -> int:
        return self.count

    def _require_finite(self) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            mean_s = mean_compute_s(self.samples, self.seconds_per_sample, self.samples_per_second)
            energy_j = compute_j(self, mean_s)
        if not np.isfinite(mean_s).all():
            raise InputError(
                f"the expected compute time of device {int(np.argmin(np.isfinite(mean_s)))} is infinite; "
                "lower its samples or seconds_per_sample, or raise its samples_per_second"
            )
        if not np.isfinite(energy_j).all():
            raise InputError(
                f"a round's training costs device {int(np.argmin(np.isfinite(energy_j)))} infinitely many joules; "
                "lower its kappa, cpu_hz, cycles_per_sample or compute_w"
            )


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
        upload_s: (M,) c_i, seconds to upload the model with the entire band.
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

    @property
    def there(self) -> IntArray:
        """(n,) the numbers of the devices that can be asked to train."""
        return np.arange(self.upload_s.size) if self.available is None else np.flatnonzero(self.available)


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
        value, default = getattr(cell, name), getattr(Cell, name)
        if value != default:
            raise InputError(f"{name} is {value:g}, but the channel {kind} has its own; leave it at {default:g}")
    if cell.radius_m > (farthest_m := cell.channel.farthest_m):
        raise InputError(
            f"radius_m is {cell.radius_m:g}, but the tables of {kind} end at {farthest_m:g} m; give a smaller cell"
        )


def _whole_array(name: str, value: ArrayLike) -> Floats:
    array = require_array(name, value, least=1)
    bad = (array != np.floor(array)) | (array > _LARGEST_EXACT_FLOAT)
    if bad.any():
        reject(name, array, bad, "give a whole number up to 2^53")
    return array


def _common_length(count: int | None, given: dict[str, Floats]) -> int:
    """Return M; count and the lengths of all lists must agree."""
    lengths = {f"the length of {name}": len(array) for name, array in given.items() if array.ndim == 1}
    if count is not None:
        require_whole("count", count, least=1)
        lengths = {"count": int(count)} | lengths
    if not lengths:
        return defaults.DEVICES
    (first, size), *others = lengths.items()
    if size == 0:
        raise InputError(f"{first} is 0; a cell needs at least one device")
    for name, other in others:
        if other != size:
            raise InputError(
                f"{first} is {size} but {name} is {other}; give one number for all, or one for each device"
            )
    return size
