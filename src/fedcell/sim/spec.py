"""A run as one validated document: TOML in, TOML out.

A Spec has everything that determines the result of a run. Its ``grid`` lists values of any fields, to be run in all
combinations; ``spec.runs()`` returns those runs. Units are SI, and the unit is in the name.
"""

import itertools
import math
import typing
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedcell import defaults, units
from fedcell.errors import InputError, did_you_mean, require_number, short_repr
from fedcell.frozen import frozen
from fedcell.learn.aggregator import Aggregator, Spelling02, format_aggregator, parse_aggregator
from fedcell.learn.engine import BATCH_SIZE, HIDDEN, LEARNING_RATE
from fedcell.learn.learning_rate import parse_schedule
from fedcell.learn.partition import parse_kind, parse_sizes
from fedcell.learn.published import PUBLISHED
from fedcell.plugins import OwnCode, UnknownCodeError, code_of, without_imports
from fedcell.schedule.laws import LAWS, Law
from fedcell.schedule.policy import Policy
from fedcell.schedule.registry import POLICIES, format_policy, parse_policy
from fedcell.sim.spec_key import data_sha256, depends_on_files, run_key
from fedcell.sim.spec_upgrade import AGGREGATION_02, respelled, upgraded, with_aggregator
from fedcell.toml import read_toml, to_toml
from fedcell.world import (
    AVAILABILITIES,
    CHANNELS,
    MOBILITIES,
    RATES,
    Always,
    Cell,
    Devices,
    Mobility,
    World,
)
from fedcell.world.cell import PAPER_POWER_W_PER_HZ, DownlinkKind, Fading, Foresight
from fedcell.world.channel import may_lack_rate

Seed = Annotated[int, Field(ge=0)]
_SEED = TypeAdapter(Seed)
MAX_RUNS = 1_000_000
MOST_DBM = 1000


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=256)
def _kinds(model: type[BaseModel], field: str) -> frozenset[Any]:
    """What a field may be: of its type and those within it, ``str`` also for a choice of texts."""
    kinds, left = set[Any](), [model.model_fields[field].annotation]
    while left:
        one = left.pop()
        kinds.add(str if isinstance(one, str) else one)
        left += typing.get_args(one)
    return frozenset(kinds)


if TYPE_CHECKING:  # a type checker shall see the fields, not **fields
    from pydantic._internal._model_construction import ModelMetaclass as _OneSentence
else:

    class _OneSentence(type(BaseModel)):
        """Makes ``Spec(...)`` raise an InputError of one sentence; Pydantic alone would raise a page of text."""

        def __call__(cls, *args: Any, **fields: Any) -> Any:
            try:
                return super().__call__(*args, **fields)
            except ValidationError as error:
                raise InputError(f"{cls.__name__}: {first_fault(error, cls)}") from None


class _Part(BaseModel, metaclass=_OneSentence):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_other_kind(cls, value: Any, field: ValidationInfo) -> Any:
        """Refuse what Pydantic would turn into a number: "500", and True for 1."""
        kinds = _kinds(cls, str(field.field_name))
        for one in (value if isinstance(value, list | tuple) else [value]) if kinds & {int, float} else []:
            if isinstance(one, bool) and bool not in kinds:
                raise ValueError("give a number, not a truth value")
            if isinstance(one, str) and str not in kinds and _is_number(one):
                raise ValueError("give a number, without quotes")
        return value

    @model_validator(mode="after")
    def _frozen(self) -> Self:
        """Freeze lists and dictionaries: else a frozen spec could be changed by what is in them."""
        self.__dict__.update({name: frozen(value) for name, value in self.__dict__.items()})
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As Pydantic's: nothing is checked, but what is put in is frozen."""
        copied = super().model_copy(update={name: frozen(value) for name, value in (update or {}).items()}, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():  # what was computed of the other
            del copied.__dict__[name]
        return copied


class CellSpec(_Part):
    """The section ``[cell]`` of a spec: the radio and the geometry; see `Cell`.

    Attributes:
        radius_m: radius of the cell, in metres.
        bandwidth_hz: uplink bandwidth that the scheduled devices share, in Hz.
        noise_w_per_hz: noise power density, in W/Hz.
        path_loss_1km_db: path loss at 1 km, in dB.
        path_loss_exponent: alpha; the loss grows by 10 alpha dB per decade of distance.
        min_distance_m: devices closer than this, in metres, have the path loss of this distance.
        shadowing_db: standard deviation of the log-normal shadowing, in dB; 0 turns it off.
        shadowing_distance_m: distance, in metres, over which the correlation of the shadowing falls to 1/e.
        fading: ``none``, ``rayleigh`` or ``rician``.
        rician_k: for Rician fading, the linear power ratio of the direct path to the scattered ones.
        model_bits: size of one upload, in bits; by default 32 bits for each of the model's weights. With less, uploads
            are shorter, but nothing is quantised.
        csi_error_db: standard deviation of the error with which the server knows an SNR, in dB; 0 for none.
        law: how the uploads share what carries them: ``density`` (one band, the paper's), ``blocks:count=15``,
            ``power`` (each device has its total power whatever its share: devices.power_dbm, or its power density
            times the entire band), ``dedicated`` (each has the band to itself) or ``ingress:bits_per_s=1e7`` (likewise,
            into one pipe of the server); see `parse_law`.
        downlink: how the model comes to the devices: ``free`` (it takes no time), ``multicast`` (at the rate of the
            slowest scheduled device) or ``unicast`` (each scheduled device over an equal share of the downlink).
        downlink_w_per_hz: the base station's transmit power density, in W/Hz.
        downlink_hz: the downlink's bandwidth in Hz; by default that of the uplink.
        channel: ``paper`` (the path loss and shadowing above), 3GPP TR 38.901's ``uma``, ``umi`` or ``rma``, with
            settings such as ``uma:carrier_hz=2e9``, or ``trace:links.csv`` for the SNR of every device from a file.
        rate: what the SNR is worth: ``shannon``, or ``mcs64`` or ``mcs256`` for 5G NR's coding schemes, with a gap if
            wanted, such as ``shannon:gap_db=3``.

    Example:
        >>> import fedcell as fc
        >>> fc.Spec(cell={"radius_m": 500.0}).cell.radius_m
        500.0
    """

    radius_m: float = Cell.radius_m
    bandwidth_hz: float = Cell.bandwidth_hz
    noise_w_per_hz: float = Cell.noise_w_per_hz
    path_loss_1km_db: float = Cell.path_loss_1km_db
    path_loss_exponent: float = Cell.path_loss_exponent
    min_distance_m: float = Cell.min_distance_m
    shadowing_db: float = Cell.shadowing_db
    shadowing_distance_m: float = Cell.shadowing_distance_m
    fading: Fading = Cell.fading
    rician_k: float = Cell.rician_k
    model_bits: int | None = None
    csi_error_db: float = Cell.csi_error_db
    law: str = "density"
    downlink: DownlinkKind = Cell.downlink
    downlink_w_per_hz: float = Cell.downlink_w_per_hz
    downlink_hz: float | None = None
    channel: str = "paper"
    rate: str = "shannon"

    @field_validator("law", mode="before")
    @classmethod
    def _known_law(cls, given: Any) -> Any:
        if isinstance(given, Law):
            given = given.line
        return LAWS.canonical(given) if isinstance(given, str) else given

    @field_validator("channel", "rate")
    @classmethod
    def _known_channel(cls, text: str, field: ValidationInfo) -> str:
        return CHANNELS.canonical(text) if field.field_name == "channel" else RATES.canonical(text)


class DevicesSpec(_Part):
    """The section ``[devices]`` of a spec: one number for all devices, or a list with one for each; see `Devices`.

    The numbers of samples come from the task's partition.

    Attributes:
        count: M, the number of devices.
        seconds_per_sample: minimum training time per sample, in seconds.
        samples_per_second: mu; the training time beyond the minimum has mean samples / mu seconds.
        power_w_per_hz: transmit power density, in W/Hz.
        power_dbm: total transmit power, in dBm, instead of the density, which is then this power over the entire band:
            under the law ``power`` it stays when the band changes. None for the density.
        kappa: effective switched capacitance of the processor: a cycle of training costs kappa cpu_hz^2 joules.
        cpu_hz: clock frequency while training, in Hz.
        cycles_per_sample: cycles of training a sample; by default those of seconds_per_sample at cpu_hz.
        compute_w: watts while training, instead of the three before; None for those.
        battery_j: joules in a device's battery: one that cannot pay for a round is not there any more. None for mains.
        mobility: ``redrawn`` (new positions in every round), ``static`` or ``waypoint``, with settings such as
            ``waypoint:speed_mps=0.5..2,pause_s=0..10``.
        failure: probability that the model of a scheduled device does not arrive.
        availability: who is there when: ``always``; by day and night, such as ``daynight:there=0.3,day_s=3600``; or
            ``trace:FILE``.

    Example:
        >>> import fedcell as fc
        >>> fc.Spec(devices={"count": 3, "seconds_per_sample": [1e-3, 2e-3, 4e-3]}).devices.count
        3
    """

    count: int = Field(default=defaults.DEVICES, ge=1, le=1_000_000)
    seconds_per_sample: float | list[float] = defaults.SECONDS_PER_SAMPLE
    samples_per_second: float | list[float] = defaults.SAMPLES_PER_SECOND
    power_w_per_hz: float | list[float] | None = PAPER_POWER_W_PER_HZ
    power_dbm: float | list[float] | None = None
    kappa: float | list[float] = defaults.KAPPA
    cpu_hz: float | list[float] = defaults.CPU_HZ
    cycles_per_sample: float | list[float] | None = None
    compute_w: float | list[float] | None = None
    battery_j: float | list[float] | None = None
    mobility: str = "redrawn"
    failure: float = Field(default=0.0, ge=0.0, lt=1.0)
    availability: str = "always"

    @model_validator(mode="before")
    @classmethod
    def _one_power(cls, document: Any) -> Any:
        """The density is None beside a total power; the default density counts as not given."""
        if not isinstance(document, dict):
            return document
        density, usual = document.get("power_w_per_hz"), cls.model_fields["power_w_per_hz"].default
        if document.get("power_dbm") is None:
            return document | {"power_w_per_hz": usual if density is None else density}
        if density is not None and density != usual:
            raise InputError(
                "power_dbm, a device's total power, and power_w_per_hz, its density, are both given; give one of them"
            )
        return document | {"power_w_per_hz": None}

    @field_validator("power_dbm")
    @classmethod
    def _possible_power(cls, value: float | list[float] | None) -> float | list[float] | None:
        for dbm in value if isinstance(value, list) else [] if value is None else [value]:
            require_number("power_dbm", dbm, least=-MOST_DBM)
            if dbm > MOST_DBM:
                raise ValueError(f"give at most {MOST_DBM} dBm")
        return value

    def density_w_per_hz(self, bandwidth_hz: float) -> float | list[float]:
        """Return the transmit power density in W/Hz: as given, or that of the total power over this band."""
        if self.power_dbm is None:
            assert self.power_w_per_hz is not None  # see _one_power
            return self.power_w_per_hz
        if isinstance(self.power_dbm, list):
            return [units.dbm(dbm) / bandwidth_hz for dbm in self.power_dbm]
        return units.dbm(self.power_dbm) / bandwidth_hz

    @field_validator("mobility")
    @classmethod
    def _known_mobility(cls, text: str) -> str:
        MOBILITIES.parse(text)
        return text

    @field_validator("availability")
    @classmethod
    def _known_availability(cls, text: str) -> str:
        return "always" if AVAILABILITIES.parse(text) == Always() else text


class TaskSpec(_Part):
    """The section ``[task]`` of a spec: the data, how it is split among the devices, the model and its training.

    Attributes:
        data: ``mnist`` or another published data set; your own ``.npz`` file; a directory with four idx files; CIFAR's
            binary version, LEAF's JSON files (FEMNIST) or ``hf:PATH`` (Hugging Face): see `load_dataset`.
        layout: of images with channels in your own arrays: ``CHW`` or ``HWC``.
        scaling: ``standard`` (zero mean, unit variance) or ``unit`` (0 to 1).
        partition: how samples are dealt to devices: ``iid``, ``labels:L`` (L labels per device), ``dirichlet:alpha``,
            or ``natural``, a writer of FEMNIST or another owner to a device.
        sizes: how many samples the devices get: ``equal``, ``lognormal:sigma``, ``zipf:exponent``, or a list with one
            number per device.
        engine: ``mlp`` (compiled, for MLPs) or ``torch``.
        model: ``mlp``; with the torch engine also ``cnn``, or ``package.module:function`` that returns an nn.Module.
        device: where the engine computes: ``cpu``, ``cuda`` (the worker processes of a sweep take turns at several
            cards) or one card, such as ``cuda:1``.
        precision: of products on a GPU: ``float32``, or ``tf32``, which is faster and has 10 bits of mantissa; torch
            engine only.
        hidden: sizes of the hidden layers of the MLP.
        learning_rate: of stochastic gradient descent.
        schedule: how it changes over the rounds: ``constant``, ``exponential:factor=0.99``,
            ``step:every=50,factor=0.1`` or ``cosine:rounds=200,end=0.01``.
        momentum: of stochastic gradient descent; torch engine only.
        weight_decay: L2 penalty; torch engine only.
        batch_size: samples per step of stochastic gradient descent.
        epochs: passes over a device's samples in a round: a whole number, or a fraction below 1, such as 0.1 for a
            tenth of the samples, other ones each round.
        aggregator: what becomes of the models that arrive: ``mean``, the unweighted mean as in the paper; ``samples``,
            weighted by each device's number of samples; ``balanced``, weighted so that the round is most like the whole
            cell, by the devices' profiles; ``fedavgm:beta=0.9``, ``fedadam:rate=0.01``, or ``ema:beta=0.9`` for a
            moving average of the global models. With ``late=0.5`` in any of them, a model that arrives after its round
            counts half in the next round's mean; without, it is dropped. See `parse_aggregator`.

    Example:
        >>> import fedcell as fc
        >>> fc.Spec(task={"partition": "iid", "hidden": [200, 200]}).task.hidden
        [200, 200]
    """

    data: str = "mnist"
    layout: Literal["CHW", "HWC"] = "CHW"
    scaling: Literal["standard", "unit"] = "standard"
    partition: str = "labels:2"
    sizes: str | list[int] = "equal"
    engine: Literal["mlp", "torch"] = "mlp"
    model: str = "mlp"
    device: str = "cpu"
    precision: Literal["float32", "tf32"] = "float32"
    hidden: list[int] = list(HIDDEN)
    learning_rate: float = Field(default=LEARNING_RATE, gt=0.0)
    schedule: str = "constant"
    momentum: float = Field(default=0.0, ge=0.0, lt=1.0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    batch_size: int = Field(default=BATCH_SIZE, ge=1)
    epochs: int | float = Field(default=1, gt=0)
    aggregator: str = "mean"

    def make_aggregator(self) -> Aggregator:
        """Return the aggregator of this task."""
        return parse_aggregator(self.aggregator)

    def data_sha256(self) -> str:
        """Return the SHA-256 of the content of your own data; empty for published data, which never changes."""
        return "" if self.data in PUBLISHED else data_sha256(self.data)

    def rate(self, r: int) -> float:
        """Return the factor of the learning rate in round r, from 0."""
        return parse_schedule(self.schedule)(r)

    @field_validator("schedule")
    @classmethod
    def _known_schedule(cls, text: str) -> str:
        parse_schedule(text)
        return text

    @model_validator(mode="before")
    @classmethod
    def _of_version_0_2(cls, document: Any) -> Any:
        return with_aggregator({"task": document})["task"] if isinstance(document, dict) else document

    @field_validator("aggregator", mode="before")
    @classmethod
    def _known_aggregator(cls, given: Any) -> str:
        return format_aggregator(parse_aggregator(given))

    @property
    def averaging(self) -> str:
        """Deprecated: the weights of the aggregator, as version 0.2 named them."""
        return _deprecated("task.averaging", Spelling02.of(self.make_aggregator()).averaging)

    @property
    def server(self) -> str:
        """Deprecated: the server optimizer of the aggregator, as version 0.2 named it."""
        return _deprecated("task.server", Spelling02.of(self.make_aggregator()).server)

    @field_validator("epochs")
    @classmethod
    def _whole_epochs(cls, value: int | float) -> int | float:
        if value >= 1 and value != int(value):
            raise ValueError("give a whole number, or a fraction below 1")
        return int(value) if value >= 1 else value

    @field_validator("partition")
    @classmethod
    def _known_partition(cls, text: str) -> str:
        parse_kind(text)
        return text

    @field_validator("sizes")
    @classmethod
    def _known_sizes(cls, value: str | list[int]) -> str | list[int]:
        if isinstance(value, str):
            parse_sizes(value)
        return value


class Spec(_Part):
    """One run, or several with a grid; the defaults are the paper's cell, devices and task.

    A run ends at the first of ``budget_s`` simulated seconds and ``budget_j`` joules (a round that would exceed one of
    them does not count), ``rounds`` and ``target_accuracy``. If ``rounds`` is given and ``budget_s`` is not, the
    time is unlimited.

    Attributes:
        policy: the scheduling policy, such as ``greedy:theta=0``; see `parse_policy`.
        seed: random seed. Runs with the same seed have the same devices, channels, data and batches.
        budget_s: simulated time limit, in seconds.
        budget_j: limit on the energy that all devices spend together, in joules, or None.
        rounds: limit on the number of rounds, or None.
        target_accuracy: test accuracy, a fraction from 0 to 1, at which the run stops, or None.
        knowledge: what the scheduler knows about compute times: ``perfect`` (those of this round), ``expected`` (their
            means) or ``observed`` (estimates from earlier rounds).
        slack: a device that takes more than ``slack`` times its planned time is late: the server does not wait for it
            any longer, and its model is not used. None: it waits for all.
        explore: whether, with ``observed`` knowledge, devices that have not trained for long are tried again: they may
            have become faster. Without effect otherwise.
        profiles: what it knows about the devices' data, for policies and averaging that use it: ``labels`` (the label
            shares), ``gradients`` (before the first round, each device trains on 100 samples and reports the change of
            the output layer's biases), ``updates`` (the same change, from the updates that arrive) or ``none``.
        epsilon: the reports get the noise that makes them epsilon-differentially private; None for none.
        cell: the radio and the geometry, a CellSpec.
        devices: the devices, a DevicesSpec.
        task: data, model and training, a TaskSpec.
        version: of the document, 2. In version 1, that of fedcell 0.2.0, ``labels:L`` was dealt to the devices in the
            order of their numbers; a document with ``version = 1`` means that, ``labels:L,order=numbered``.
        grid: values to run in all combinations, by field, such as ``{"seed": [0, 1], "cell.radius_m": [500.0]}``.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=5", rounds=10, grid={"seed": [0, 1], "cell.radius_m": [500.0, 1000.0]})
        >>> [(run.seed, run.cell.radius_m) for run in spec.runs()]
        [(0, 500.0), (0, 1000.0), (1, 500.0), (1, 1000.0)]
    """

    policy: str = "greedy"
    seed: Seed = 0
    budget_s: float = Field(default=defaults.BUDGET_S, gt=0.0, allow_inf_nan=True)
    budget_j: float | None = Field(default=None, gt=0.0)
    rounds: int | None = Field(default=None, ge=1)
    target_accuracy: float | None = Field(default=None, gt=0.0, le=1.0)
    knowledge: Foresight = "perfect"
    slack: float | None = Field(default=None, ge=1.0)
    explore: bool = True
    profiles: Literal["labels", "gradients", "updates", "none"] = "gradients"
    epsilon: float | None = Field(default=None, gt=0.0)
    cell: CellSpec = CellSpec()
    devices: DevicesSpec = DevicesSpec()
    task: TaskSpec = TaskSpec()
    version: Literal[2] = 2
    grid: dict[str, list[Any]] = {}

    @field_validator("policy", mode="before")
    @classmethod
    def _known_policy(cls, given: Any) -> Any:
        if isinstance(given, Policy):
            given = format_policy(given)
        return POLICIES.canonical(given) if isinstance(given, str) else given

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        if isinstance(document.get("task"), TaskSpec) and "late_weight" in document:
            document = document | {"task": document["task"].model_dump()}
        if "late_weight" in document and isinstance(task := document.get("task"), dict) and "aggregator" in task:
            late = {"late_weight": document["late_weight"]}
            document = {name: value for name, value in document.items() if name != "late_weight"}
            document["task"] = task | {"aggregator": respelled(task["aggregator"], late)}
        document = with_aggregator(document)
        return upgraded(document) if "version" in document else document

    @model_validator(mode="before")
    @classmethod
    def _rounds_replace_the_budget(cls, document: Any) -> Any:
        if isinstance(document, dict) and document.get("rounds") is not None and "budget_s" not in document:
            return document | {"budget_s": math.inf}
        return document

    @model_validator(mode="after")
    def _whole(self) -> "Spec":
        if self.budget_s == math.inf and self.rounds is None:
            raise InputError("budget_s is inf and rounds is not given, so the run might never end; give one")
        if self.epsilon is not None and self.profiles not in ("labels", "gradients"):
            raise InputError(
                f"epsilon is {self.epsilon}, but with profiles = {self.profiles!r} there are no reports for noise to "
                "hide; use labels or gradients, or leave epsilon out"
            )
        law = LAWS.known(self.cell.law)
        if law is not None and law.needs_snr and self.cell.rate != CellSpec().rate:
            raise InputError(
                f"law is {self.cell.law!r}, which holds for Shannon's rate, but rate is {self.cell.rate!r}; change one "
                "of them"
            )
        if law is not None and not law.carries_late and self.task.make_aggregator().late:
            raise InputError(
                f"task.aggregator is {self.task.aggregator!r}, but under the law {self.cell.law!r} it is not defined "
                f"what a late upload leaves of the band; use {LAWS.either('carries_late')}, or leave late "
                "out"
            )
        # Constructing them checks them.
        self.world([1] * self.devices.count, 1)
        if self.grid:
            count = math.prod(len(values) for values in self.grid.values())
            if not 1 <= count <= MAX_RUNS:
                raise InputError(
                    f"grid has {count} runs; give every field at least one value, {MAX_RUNS:,} runs at most"
                )
            for field, values in self.grid.items():
                if (twice := _first_twice(values)) is not None:
                    raise InputError(f"grid has the {field} {values[twice]!r} twice; give it once")
                for value in values:
                    self._check_in_grid(field, value)
        return self

    def _check_in_grid(self, field: str, value: Any) -> None:
        if field == "seed" and not isinstance(value, bool | str):  # it goes with anything, and there may be thousands
            with suppress(ValidationError):
                _SEED.validate_python(value)
                return
        self._changed({field: value}, {}, "grid")

    def changed(
        self, changes: Mapping[str, Any] | None = None, grid: Mapping[str, list[Any]] | None = None, **fields: Any
    ) -> "Spec":
        """Return a copy of this spec with some fields changed.

        Args:
            changes: new values by field; nested fields are named with a dot, such as ``cell.radius_m``.
            grid: the grid of the copy; by default it is this one, without the fields that are changed, for these have
                one value now. ``{}`` for none.
            fields: more changes, of fields that are not nested.

        Returns:
            Spec: the validated copy.

        Example:
            >>> import fedcell as fc
            >>> fc.Spec().changed({"seed": 7, "task.partition": "iid"}).task.partition
            'iid'
            >>> race = fc.Spec(grid={"policy": ["all", "greedy"], "seed": [0, 1]})
            >>> race.changed({"cell.radius_m": 500.0}).grid, race.changed(seed=7).grid
            ({'policy': ['all', 'greedy'], 'seed': [0, 1]}, {'policy': ['all', 'greedy']})
        """
        changed = {**(changes or {}), **fields}
        kept = {field: values for field, values in self.grid.items() if field not in changed}
        return self._changed(changed, kept if grid is None else grid, "the spec")

    def _changed(self, changes: Mapping[str, Any], grid: Mapping[str, list[Any]], source: str) -> "Spec":
        document = self.model_dump(exclude={"grid"})
        old = {AGGREGATION_02[path]: value for path, value in changes.items() if path in AGGREGATION_02}
        for path, value in changes.items():
            if path in AGGREGATION_02:
                continue
            *parents, field = path.split(".")
            part: Any = document
            for parent in parents:
                part = part.get(parent) if isinstance(part, dict) else None
            if not isinstance(part, dict) or field not in part or isinstance(part[field], dict):
                raise InputError(f"there is no field {path!r}; {did_you_mean(path, _paths(self))}")
            part[field] = value
        if old:
            document["task"]["aggregator"] = respelled(document["task"]["aggregator"], old)
        return parse_spec(document | {"grid": grid}, source)

    def runs(self) -> list["Spec"]:
        """Return one spec for every combination of the grid's values, the last field varying fastest.

        Without a grid, the only run is this spec itself.
        """
        if not self.grid:
            return [self]
        found, checked = list[Spec](), dict[tuple[int, ...], Spec]()  # all but the seed is checked once for all seeds
        for places in itertools.product(*(range(len(values)) for values in self.grid.values())):
            changes = {field: values[place] for place, (field, values) in zip(places, self.grid.items(), strict=True)}
            seed = _SEED.validate_python(changes.pop("seed", self.seed))
            others = tuple(place for place, field in zip(places, self.grid, strict=True) if field != "seed")
            if others not in checked:
                checked[others] = self.changed(changes, {})
            found.append(checked[others].model_copy(update={"seed": seed}))
        return found

    def world(self, samples: list[int], parameters: int) -> World:
        """Return the world of the run.

        Args:
            samples: (M,) training samples that each device processes in a round.
            parameters: number of weights of the model.
        """
        cell = self.cell.model_dump()
        cell["model_bits"] = self.cell.model_bits if self.cell.model_bits is not None else 32 * parameters
        del cell["law"]
        cell |= {"channel": CHANNELS.parse(self.cell.channel), "rate": RATES.parse(self.cell.rate)}
        devices = self.devices.model_dump(exclude={"mobility", "failure", "availability", "power_dbm"})
        devices["power_w_per_hz"] = self.devices.density_w_per_hz(self.cell.bandwidth_hz)
        availability = AVAILABILITIES.parse(self.devices.availability)
        return World(Cell(**cell), Devices(samples=samples, **devices), self.make_mobility(), availability)

    def make_mobility(self) -> Mobility:
        """Return the mobility model of this run."""
        return MOBILITIES.parse(self.devices.mobility)

    def make_policy(self) -> Policy:
        """Return the policy of this run."""
        return parse_policy(self.policy)

    @property
    def uses_profiles(self) -> bool:
        """Whether anything in this run depends on the devices' profiles."""
        return self.task.make_aggregator().weights == "balanced" or self.make_policy().uses_profiles

    @property
    def late_weight(self) -> float:
        """Deprecated: ``late`` of the aggregator."""
        return _deprecated("late_weight", self.task.make_aggregator().late)

    @property
    def reports_gradients(self) -> bool:
        """Whether the devices train and send a report before the first round."""
        return self.uses_profiles and self.profiles == "gradients"

    @property
    def explores(self) -> bool:
        """Whether devices that have not trained for long are tried again."""
        return self.explore and self.knowledge == "observed"

    @property
    def unused(self) -> set[str]:
        """The fields that do not matter for this run; the grid is not one of them."""
        unused = set() if self.uses_profiles else {"profiles", "epsilon"}
        if self.knowledge == "perfect" and self.cell.csi_error_db == 0.0:  # then all goes as planned
            unused |= {"slack"}
        return unused if self.knowledge == "observed" else unused | {"explore"}

    def key(self, code: str | None = None) -> str:
        """Return the SHA-256, in hex, of everything that determines this run's records; the grid is not included.

        Equal runs have equal keys however they are written: settings inside strings are parsed, a list of equal values
        for all devices is one value, and your own data is identified by its content, not its path. Your own policy or
        model counts with its code, so a run with changed code has another key; see `own_code`. Code that cannot be told
        from other code has no key: an InputError says why.

        Args:
            code: what code_sha256 returned, if it is known.
        """
        if code is not None:
            return run_key(self, code)
        if "_key" in self.__dict__:
            return str(self.__dict__["_key"])
        code = self.code_sha256()
        key = run_key(self, code)
        if not code and not depends_on_files(self):  # these may change
            self.__dict__["_key"] = key
        return key

    @property
    def reports_may_be_lost(self) -> bool:
        """Whether devices send reports of their gradients and some may have no rate to send them with."""
        return self.reports_gradients and self.may_lack_rate

    @property
    def may_lack_rate(self) -> bool:
        """Whether devices may be out of reach, so that they have no rate."""
        return may_lack_rate(Cell(channel=CHANNELS.parse(self.cell.channel), rate=RATES.parse(self.cell.rate)))

    def code_sha256(self) -> str:
        """Return the SHA-256 of the code of your own policy and model; empty for a run that has neither."""
        code = self.own_code()
        if code.unknown:
            raise UnknownCodeError(
                f"a run of {self.policy} has no key under which it could be kept: {code.unknown}, so its code cannot "
                "be told from changed code; make that a setting, save the code in a file such as mine.py, or run it "
                "without a store"
            )
        return code.sha256

    def own_code(self) -> OwnCode:
        """Return what is known of the code of your own policy and model."""
        model = self.task.model if self.task.engine == "torch" else ""
        return code_of(type(self.make_policy()), model, type(LAWS.parse(self.cell.law)))

    def to_toml(self) -> str:
        """Return this spec as a TOML document, which load_spec reads back."""
        return to_toml(self.model_dump(exclude_none=True))


T = TypeVar("T")


def _deprecated(field: str, value: T) -> T:
    warnings.warn(f"{field} is part of task.aggregator now; read that", DeprecationWarning, stacklevel=3)
    return value


def _first_twice(values: list[Any]) -> int | None:
    """The place of the first value that was there before."""
    seen = set()
    for place, value in enumerate(values):
        plain = repr(value) if isinstance(value, list | dict) else value
        if plain in seen:
            return place
        seen.add(plain)
    return None


def _paths(spec: Spec) -> list[str]:
    paths = []
    for name, value in spec.model_dump(exclude={"grid"}).items():
        paths += [f"{name}.{inner}" for inner in value] if isinstance(value, dict) else [name]
    return paths


def parse_spec(document: dict[str, Any], source: str) -> Spec:
    """Validate a document.

    Args:
        document: the fields of a spec, as TOML gives them.
        source: where it comes from, for error messages.

    Returns:
        Spec: the validated spec; an InputError names the field that is wrong.
    """
    try:
        return Spec.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{source}: {first_fault(error)}") from None


def parse_stored(document: dict[str, Any], source: str) -> Spec:
    """The spec of a document that a file has: of a results file, a state directory of Flower or a saved model.

    Nothing that it names is imported or opened, so it is safe to look at anybody's file. A policy of one's own stays
    the text that it is: `Spec.make_policy` imports it, and so does `Spec.key`, which counts its source.

    Args:
        document: as `runs.store.spec_document` made it; the digits of ``code`` that a StoredRun has are left out.
        source: where it comes from, for error messages.

    Returns:
        Spec: the validated spec; whatever is wrong with the document is an InputError.
    """
    try:
        with without_imports():
            known = {name: value for name, value in document.items() if name != "code"}
            return parse_spec(upgraded(known), source)
    except InputError:
        raise
    except Exception as error:  # the file may have been written by anybody
        raise InputError(f"{source}: its specification is damaged ({type(error).__name__})") from None


def first_fault(error: ValidationError, kind: Any = None) -> str:
    """What is wrong in the first place that a validation found, in one sentence; kind is the model, if not Spec."""
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"] if not str(part).startswith(("list[", "float", "int", "str")))
    if fault["type"] == "extra_forbidden":
        parent = fault["loc"][:-1]
        model: Any = (
            {"cell": CellSpec, "devices": DevicesSpec, "task": TaskSpec}.get(str(parent[0]), Spec)
            if parent
            else kind or Spec
        )
        return f"unknown field {place!r}; {did_you_mean(str(fault['loc'][-1]), model.model_fields)}"
    reason = str(fault.get("ctx", {}).get("error", fault["msg"]))
    if fault["type"] == "value_error" and (not place or isinstance(fault.get("ctx", {}).get("error"), InputError)):
        return f"{place}: {reason}" if place else reason
    shown = repr(fault["input"])
    return f"{place} is {shown if len(shown) <= 60 else shown[:57] + '...'}; {reason[0].lower()}{reason[1:]}"


def require_spec(value: object, function: str) -> None:
    """Refuse what is not a Spec, before it fails somewhere.

    Args:
        value: what the user gave.
        function: the one that takes it, for the message.
    """
    if not isinstance(value, Spec):
        raise InputError(
            f"{function} takes a Spec, not {short_repr(value)}; write Spec(policy='greedy'), or load_spec('race.toml')"
        )


def load_spec(path: str | Path) -> Spec:
    r"""Read a spec from a TOML file.

    Args:
        path: a TOML file such as ``fedcell race --print-spec`` prints; fields that are left out have their defaults.

    Returns:
        Spec: the validated spec; an InputError names the file and the field that is wrong.

    Example:
        >>> import fedcell as fc
        >>> from pathlib import Path
        >>> _ = Path("run.toml").write_text('policy = "random:k=5"\nrounds = 3\n[cell]\nradius_m = 500.0\n')
        >>> spec = fc.load_spec("run.toml")
        >>> spec.policy, spec.rounds, spec.cell.radius_m
        ('random:k=5', 3, 500.0)
    """
    document = read_toml(path, "fedcell race --print-spec")
    document.pop("race", None)  # the target of a race and what it is by: not a run's
    return parse_spec(document, str(path))
