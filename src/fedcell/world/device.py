"""Devices: what they compute with and send with, and the compute times of eq. (3)."""

from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any, ClassVar, TypeAlias, overload

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from fedcell import defaults, units
from fedcell.errors import InputError, reject, require_array, require_whole
from fedcell.fields import About, Section, checked, declared, naming, section
from fedcell.types import Floats
from fedcell.world.energy import compute_j

IntArray: TypeAlias = NDArray[np.int64]
MAX_DBM = 1000
PAPER_POWER_W_PER_HZ = units.dbm_per_mhz(defaults.POWER_DBM_PER_MHZ)
_LARGEST_EXACT_FLOAT = 2**53


@section
class Devices(Section):
    """The M devices of a cell, whose attributes are read-only arrays (M,); the section ``[devices]`` of a spec.

    Each argument is one number for all devices, or a list with one number per device. ``count`` is needed only if no
    argument is a list and M is not the paper's 20. The defaults are the paper's. In a spec, the samples come from the
    task's partition.

    Example:
        >>> import fedcell as fc
        >>> devices = fc.Devices(samples=[1000, 3000], seconds_per_sample=1e-3)
        >>> len(devices), devices.seconds_per_sample.tolist()
        (2, [0.001, 0.001])
        >>> len(fc.Devices()), len(fc.Devices(count=5))
        (20, 5)
        >>> fc.Spec(devices={"count": 3, "mobility": "static"}).devices.count
        3
    """

    count: Annotated[
        int, Ge(1), Le(1_000_000), About("Number M of devices.", option="devices", label="devices", step=1)
    ]
    samples: Annotated[IntArray, About("Training samples D_i that a device processes in a round; not in a spec.")]
    seconds_per_sample: Annotated[
        Floats, Ge(0), About("Minimum training time per sample a_i, in seconds; a number, or one for each device.")
    ]
    samples_per_second: Annotated[
        Floats, Gt(0), About("mu_i: the training time beyond the minimum has mean D_i / mu_i seconds.")
    ]
    power_w_per_hz: Annotated[Floats, Gt(0), About("Transmit power density p_i, in W/Hz.", default="7 dBm/MHz")]
    power_dbm: Annotated[
        Floats | None,
        Ge(-MAX_DBM),
        Le(MAX_DBM),
        About(
            "Total transmit power, in dBm, instead of the density, which is then this power over the entire band: "
            "under a law of total powers it stays when the band changes.",
            default="the density",
            since="0.2",
        ),
    ]
    kappa: Annotated[
        Floats,
        Ge(0),
        About(
            "Effective switched capacitance of the processor, in J s^2: a cycle of training costs kappa cpu_hz^2 "
            "joules.",
            since="0.2",
        ),
    ]
    cpu_hz: Annotated[Floats, Gt(0), About("Clock frequency of the processor while training, in Hz.", since="0.2")]
    cycles_per_sample: Annotated[
        Floats,
        Ge(0),
        About("Cycles of training a sample.", default="those of seconds_per_sample at cpu_hz", since="0.2"),
    ]
    compute_w: Annotated[
        Floats | None,
        Ge(0),
        About("Watts while training, instead of the three before.", default="those", since="0.2"),
    ]
    battery_j: Annotated[
        Floats | None,
        Gt(0),
        About(
            "Joules in each device's battery; a device with too little energy left for a round is no longer available.",
            option="battery-j",
            default="mains power",
            since="0.2",
        ),
    ]
    mobility: Annotated[
        str,
        About(
            "Mobility: redrawn (new positions in every round), static or waypoint:speed_mps=0.5..2,pause_s=0..10.",
            option="mobility",
            label="mobility",
            choices=lambda: list(import_module("fedcell.world.mobility").MOBILITIES),
        ),
    ]
    failure: Annotated[
        float, Ge(0), Lt(1), About("Probability that the upload of a scheduled device is lost.", option="failure")
    ]
    availability: Annotated[
        str,
        About(
            "When devices are available: always, by day and night, such as daynight:there=0.3,day_s=3600, or "
            "trace:FILE.",
            option="availability",
            label="availability",
            choices=("always", "daynight", "daynight:there=0.3,day_s=600"),
            since="0.2",
        ),
    ]

    _given: ClassVar[frozenset[str]]  # of each, in fact: the arguments that were given

    # Not the generated __init__: the arguments are numbers or lists, the attributes are always arrays.
    def __init__(
        self,
        count: int | None = None,
        samples: ArrayLike | None = None,
        seconds_per_sample: ArrayLike = defaults.SECONDS_PER_SAMPLE,
        samples_per_second: ArrayLike = defaults.SAMPLES_PER_SECOND,
        power_w_per_hz: ArrayLike | None = None,
        kappa: ArrayLike = defaults.KAPPA,
        cpu_hz: ArrayLike = defaults.CPU_HZ,
        cycles_per_sample: ArrayLike | None = None,
        compute_w: ArrayLike | None = None,
        battery_j: ArrayLike | None = None,
        power_dbm: ArrayLike | None = None,
        mobility: str = "redrawn",
        failure: float = 0.0,
        availability: str = "always",
    ) -> None:
        given = {
            "samples": defaults.SAMPLES if samples is None else samples,
            "seconds_per_sample": seconds_per_sample,
            "samples_per_second": samples_per_second,
            "power_w_per_hz": _only_power(power_w_per_hz, power_dbm),
            "power_dbm": power_dbm,
            "kappa": kappa,
            "cpu_hz": cpu_hz,
            "cycles_per_sample": cycles_per_sample,
            "compute_w": compute_w,
            "battery_j": battery_j,
        }
        arrays = {name: _column(name, value) for name, value in given.items() if value is not None}
        size = _common_length(count, arrays)
        object.__setattr__(
            self, "_given", frozenset({"samples"} if samples is not None else ()) | arrays.keys() - {"samples"}
        )
        if cycles_per_sample is None:
            with np.errstate(over="ignore"):
                arrays["cycles_per_sample"] = arrays["cpu_hz"] * arrays["seconds_per_sample"]
        object.__setattr__(self, "count", size)
        for name in given:
            object.__setattr__(self, name, _filled(size, arrays.get(name), name == "samples"))
        for name, value in {"mobility": mobility, "failure": failure, "availability": availability}.items():
            object.__setattr__(self, name, checked(Devices, name, value))
        _check_models(self)
        self._require_finite()

    @override
    def _written(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in declared(Devices):
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                plain = value.tolist()
                same = bool((value == value[0]).all())
                value = None if name not in self._given else plain[0] if same else plain
            if name != "samples" or value is not None:
                found[name] = value
        return found

    def density_w_per_hz(self, bandwidth_hz: float) -> Floats:
        """Return (M,) the transmit power density in W/Hz: as given, or that of the total power over this band."""
        if self.power_dbm is None:
            return self.power_w_per_hz
        return np.array([units.dbm(float(dbm)) / bandwidth_hz for dbm in self.power_dbm])

    def over_band(self, bandwidth_hz: float) -> "Devices":
        """These devices with the density of their total power over this band, in Hz; as they are without one."""
        if self.power_dbm is None:
            return self
        return replace(self, power_dbm=None, power_w_per_hz=self.density_w_per_hz(bandwidth_hz))

    def __reduce__(self) -> tuple[Any, ...]:
        return _devices_of, (self.document(),)

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

    @cached_property
    def mean_s(self) -> Floats:
        """(M,) the mean compute times; see `expected_compute_s`."""
        found = mean_compute_s(self.samples, self.seconds_per_sample, self.samples_per_second)
        found.flags.writeable = False
        return found

    @cached_property
    def training_j(self) -> Floats:
        """(M,) the energy of a round's training of devices without a compute_w, in joules; always the same."""
        from fedcell.world.energy import cmos_j

        found = cmos_j(self.kappa, self.cpu_hz, self.cycles_per_sample * self.samples)
        found.flags.writeable = False
        return found


def draw_compute_s(devices: Devices, rng: np.random.Generator) -> Floats:
    """Draw compute times t_i = a_i D_i + (D_i / mu_i) E_i with E_i ~ Exp(1).

    That is, P[t_i < t] = 1 - exp(-(mu_i / D_i) (t - a_i D_i)). a_i sets the minimum and mu_i the fluctuation (the
    paper's text below eq. (3) says it the other way round).

    Args:
        devices: D_i (``samples``), a_i (``seconds_per_sample``) and mu_i (``samples_per_second``).
        rng: random generator; one draw per device, in their order.

    Returns:
        (M,) seconds.

    Example:
        >>> import numpy as np
        >>> from fedcell.world import Devices
        >>> from fedcell.world.device import draw_compute_s
        >>> draw_compute_s(Devices(count=2), np.random.default_rng(0)).round(2).tolist()
        [6.51, 6.76]
    """
    fluctuation = devices.samples / devices.samples_per_second * rng.standard_exponential(len(devices))
    return devices.seconds_per_sample * devices.samples + fluctuation


def expected_compute_s(devices: Devices) -> Floats:
    """Return the mean compute times E[t_i] = a_i D_i + D_i / mu_i.

    Args:
        devices: D_i (``samples``), a_i (``seconds_per_sample``) and mu_i (``samples_per_second``).

    Returns:
        (M,) seconds.

    Example:
        >>> from fedcell.world import Devices
        >>> from fedcell.world.device import expected_compute_s
        >>> expected_compute_s(Devices(samples=[1000, 3000])).tolist()
        [2.25, 6.75]
    """
    return devices.mean_s


@overload
def mean_compute_s(samples: float, seconds_per_sample: float, samples_per_second: float) -> float: ...
@overload
def mean_compute_s(
    samples: NDArray[Any], seconds_per_sample: NDArray[Any], samples_per_second: NDArray[Any]
) -> Floats: ...
def mean_compute_s(samples: Any, seconds_per_sample: Any, samples_per_second: Any) -> Any:
    """E[t] = a D + D / mu, for one device or for all.

    Args:
        samples: D, a number or (M,).
        seconds_per_sample: a, likewise; the least time that a sample takes.
        samples_per_second: mu, likewise; infinity for a time that does not vary.

    Returns:
        Seconds, a number or (M,).
    """
    return seconds_per_sample * samples + samples / samples_per_second


def _check_models(devices: Devices) -> None:
    """Refuse mobility and availability that do not exist; both are written about cells, and so know this module."""
    from fedcell.world.availability import AVAILABILITIES, Always
    from fedcell.world.mobility import MOBILITIES

    with naming("mobility"):
        MOBILITIES.parse(devices.mobility)
    with naming("availability"):
        if AVAILABILITIES.parse(devices.availability) == Always():
            object.__setattr__(devices, "availability", "always")


def _devices_of(document: dict[str, Any]) -> Devices:
    return Devices(**document)


def _only_power(density: ArrayLike | None, total_dbm: ArrayLike | None) -> ArrayLike | None:
    """The density, None beside a total power; the default density counts as not given."""
    if total_dbm is None:
        return PAPER_POWER_W_PER_HZ if density is None else density
    if density is not None and not np.array_equal(np.asarray(density), np.asarray(PAPER_POWER_W_PER_HZ)):
        raise InputError(
            "power_dbm, a device's total power, and power_w_per_hz, its density, are both given; give one of them"
        )
    return None


def _column(name: str, value: ArrayLike) -> Floats:
    """An argument of Devices as a float64 array, a scalar or a vector, within its bounds."""
    if name == "samples":
        return _whole_array(name, value)
    field = declared(Devices)[name]
    above, least = field.bound(Gt), field.bound(Ge)
    array = require_array(name, value, -np.inf if above is None else above, -np.inf if least is None else least)
    most = field.bound(Le)
    if most is not None and (array > most).any():
        reject(name, array, array > most, f"give at most {most:g}")
    return array


def _filled(size: int, array: Floats | None, whole: bool) -> Any:
    """One number for each device, read-only; None for none."""
    if array is None:
        return None
    full = np.full(size, array, dtype=np.int64 if whole else np.float64)
    full.flags.writeable = False
    return full


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
