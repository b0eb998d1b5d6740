"""A run as one validated document: TOML in, TOML out.

A Spec has everything that determines the result of a run. Its ``grid`` lists values of any fields, to be run in all
combinations; ``spec.runs()`` returns those runs. Units are SI, and the unit is in the name.
"""

import dataclasses
import itertools
import math
import re
import typing
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
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

from fedcell import defaults, settings
from fedcell.errors import InputError, did_you_mean, short_repr
from fedcell.fields import About, Section, declared, frozen, naming, with_attributes
from fedcell.files import read_toml, to_toml
from fedcell.learn.aggregator import AGGREGATORS, Aggregator, Spelling02, format_aggregator, parse_aggregator
from fedcell.learn.compression import COMPRESSIONS, Compression
from fedcell.learn.engine import BATCH_SIZE, HIDDEN, LEARNING_RATE
from fedcell.learn.learning_rate import parse_schedule
from fedcell.learn.partition import Labels, parse_kind, parse_sizes
from fedcell.learn.published import PUBLISHED
from fedcell.plugins import OwnCode, UnknownCodeError, code_of, without_imports
from fedcell.quantisation import WEIGHT_BITS
from fedcell.schedule.laws import LAWS
from fedcell.schedule.policy import Policy
from fedcell.schedule.registry import POLICIES, format_policy, parse_policy
from fedcell.sim.evaluation import EVALUATIONS, Evaluations
from fedcell.sim.spec_key import data_sha256, depends_on_files, run_key
from fedcell.world import MOBILITIES, RATES, Cell, Devices, Mobility, World
from fedcell.world.cell import Foresight
from fedcell.world.channel import outage_possible

CellSpec, DevicesSpec = Cell, Devices
"""Their names in version 0.2, when a spec had classes of its own for them."""
SECTIONS: dict[str, type[Section]] = {"cell": Cell, "devices": Devices}
MAX_RUNS = 1_000_000
AGGREGATION_02 = {"late_weight": "late_weight", "task.averaging": "averaging", "task.server": "server"}
"""Fields of version 0.2 that are settings of task.aggregator now, and what `Spelling02` calls them."""
_SEED = TypeAdapter(Annotated[int, Ge(0)])


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


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """The document of a spec in the current version; one without a version is of version 1, which did not write it."""
    with suppress(InputError):  # whoever validates it says what is wrong
        document = with_aggregator(document)
    if document.get("version", 1) != 1:
        return document

    def numbered(partition: Any) -> Any:
        try:
            kind = parse_kind(partition)
        except InputError:
            return partition
        if not isinstance(kind, Labels) or kind.mode == "free":
            return partition
        return settings.write(kind.name, dataclasses.replace(kind, order="numbered"))

    task, grid = document.get("task", {}), document.get("grid", {})
    if isinstance(task, dict):
        task = task | {"partition": numbered(task.get("partition", "labels:2"))}
    if isinstance(grid, dict) and isinstance(grid.get("task.partition"), list):
        grid = grid | {"task.partition": [numbered(partition) for partition in grid["task.partition"]]}
    return document | {"version": 2, "task": task, "grid": grid}


def with_aggregator(document: dict[str, Any]) -> dict[str, Any]:
    """The document with task.aggregator instead of the fields for it that version 0.2 had; as it is without them."""
    task = document.get("task", {})
    if not isinstance(task, dict):
        return document
    names = {"late_weight": document} | dict.fromkeys(("averaging", "server"), task)
    given = {name: part[name] for name, part in names.items() if name in part}
    if not given:
        return document
    if "aggregator" in task:
        raise InputError(f"{' and '.join(given)} and task.aggregator are given; leave {' and '.join(given)} out")
    rest = {name: value for name, value in task.items() if name not in given}
    whole = {name: value for name, value in document.items() if name != "late_weight"}
    return whole | {"task": rest | {"aggregator": respelled("mean", given)}}


def respelled(aggregator: Any, given: Mapping[str, Any]) -> str:
    """The line of an aggregator in which the given settings of `Spelling02` are changed."""
    return format_aggregator(dataclasses.replace(Spelling02.of(parse_aggregator(aggregator)), **given).aggregator())


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


class TaskSpec(_Part):
    """The section ``[task]`` of a spec: the data, how it is split among the devices, the model and its training.

    Example:
        >>> import fedcell as fc
        >>> fc.Spec(task={"partition": "iid", "hidden": [200, 200]}).task.hidden
        [200, 200]
    """

    data: Annotated[
        str,
        About(
            "Data set: mnist, fashion-mnist, cifar-10 or cifar-100; an .npz file; a directory with four idx files, "
            "CIFAR's binary version or LEAF's JSON files (FEMNIST); or hf:PATH (Hugging Face).",
            option="data",
            label="data",
            choices=tuple(PUBLISHED),
        ),
    ] = "mnist"
    layout: Annotated[
        Literal["CHW", "HWC"], About("Of images with channels in arrays of your own: CHW or HWC.", since="0.2")
    ] = "CHW"
    scaling: Annotated[
        Literal["standard", "unit"],
        About("Scaling of the inputs: standard (zero mean, unit variance) or unit (0 to 1)."),
    ] = "standard"
    partition: Annotated[
        str,
        About(
            "How the data is split: labels:2 (two labels per device; labels:2,free draws them independently), "
            "dirichlet:0.5, iid, or natural (a writer of FEMNIST or another owner to a device).",
            option="partition",
            label="partition",
            choices=("iid", "labels:1", "labels:2", "labels:5", "labels:2,free", "dirichlet:0.5"),
            topic="Partition",
        ),
    ] = "labels:2"
    sizes: Annotated[
        str | list[int],
        About("Samples of the devices: equal, lognormal:sigma, zipf:exponent, or a list with one number per device."),
    ] = "equal"
    engine: Annotated[
        Literal["mlp", "torch"], About("Training engine: mlp (compiled, for MLPs) or torch.", option="engine")
    ] = "mlp"
    model: Annotated[
        str,
        About(
            "Model: mlp, or with torch also cnn or package.module:function, which returns an nn.Module.", option="model"
        ),
    ] = "mlp"
    device: Annotated[
        str,
        About(
            "Where models are trained: cpu, cuda (the worker processes of a sweep take turns at several cards) or one "
            "card, such as cuda:1.",
            option="device",
        ),
    ] = "cpu"
    precision: Annotated[
        Literal["float32", "tf32"],
        About(
            "Of products on a GPU: float32, or tf32, which is faster and has 10 bits of mantissa; torch engine only.",
            since="0.2",
        ),
    ] = "float32"
    hidden: Annotated[list[int], About("Sizes of the hidden layers of the MLP.")] = list(HIDDEN)
    learning_rate: Annotated[float, Gt(0), About("Learning rate of stochastic gradient descent.")] = LEARNING_RATE
    schedule: Annotated[
        str,
        About(
            "Learning-rate schedule over the rounds: constant, exponential:factor=0.99, step:every=50,factor=0.1 or "
            "cosine:rounds=200,end=0.01.",
            since="0.2",
        ),
    ] = "constant"
    momentum: Annotated[float, Ge(0), Lt(1), About("Momentum of stochastic gradient descent; torch engine only.")] = 0.0
    weight_decay: Annotated[float, Ge(0), About("L2 penalty; torch engine only.")] = 0.0
    batch_size: Annotated[int, Ge(1), About("Samples per step of stochastic gradient descent.")] = BATCH_SIZE
    epochs: Annotated[
        int | float,
        Gt(0),
        About(
            "Local epochs in a round: a whole number, or a fraction below 1, such as 0.1 for a tenth of the samples, "
            "other ones each round.",
            option="epochs",
            label="epochs",
        ),
    ] = 1
    aggregator: Annotated[
        str,
        About(
            "Aggregation of the models: mean (unweighted, as in the paper), samples (weighted by number of samples), "
            "balanced (weighted so that the round is most like the whole cell), fedavgm:beta=0.9, fedadam:rate=0.01, "
            "or ema:beta=0.9 for a moving average; late=0.5 in any of them counts models that arrive one round late.",
            option="aggregator",
            label="aggregator",
            choices=(*AGGREGATORS, "mean:late=0.5"),
        ),
    ] = "mean"

    compression: Annotated[
        str,
        About(
            "Compression of the uploads: none, quantise:bits=8 (stochastic rounding, 2 to 16 bits a weight), "
            "topk:part=0.01 (the largest entries) or sign (a bit an entry); the last two with error feedback.",
            option="compression",
            label="compression",
            choices=("none", "quantise:bits=2", "quantise:bits=4", "quantise:bits=8", "topk:part=0.01", "sign"),
            since="0.2.1",
        ),
    ] = "none"
    evaluate: Annotated[
        str,
        About(
            "When the model is evaluated on the test set: rounds:1 (after every round, as in the paper), rounds:10, "
            "seconds:2 (of simulated time), or auto (so often that the time to any accuracy is known to 1 % of the "
            "budget or to one round); in between, records repeat the last accuracy.",
            option="evaluate",
            label="evaluated",
            choices=("rounds:1", "rounds:10", "seconds:2", "auto"),
            since="0.2.1",
        ),
    ] = "rounds:1"

    def make_aggregator(self) -> Aggregator:
        """Return the aggregator of this task."""
        return parse_aggregator(self.aggregator)

    def make_compression(self) -> Compression:
        """Return what becomes of the uploads of this task."""
        return COMPRESSIONS.parse(self.compression)

    def make_evaluations(self) -> Evaluations:
        """Return when the model of this task is evaluated."""
        return EVALUATIONS.parse(self.evaluate)

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

    @field_validator("compression", mode="before")
    @classmethod
    def _known_compression(cls, given: Any) -> Any:
        if isinstance(given, Compression):
            return COMPRESSIONS.format(given)
        return COMPRESSIONS.canonical(given) if isinstance(given, str) else given

    @field_validator("evaluate", mode="before")
    @classmethod
    def _known_evaluation(cls, given: Any) -> Any:
        if isinstance(given, Evaluations):
            return given.line
        return EVALUATIONS.parse(given).line if isinstance(given, str) else given

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


TaskSpec.__doc__ = with_attributes(TaskSpec)


class Spec(_Part):
    """One run, or several with a grid; the defaults are the paper's cell, devices and task.

    A run ends at the first of ``budget_s`` simulated seconds and ``budget_j`` joules (a round that would exceed one of
    them does not count), ``rounds`` and ``target_accuracy``. If ``rounds`` is given and ``budget_s`` is not, the
    time is unlimited.

    Example:
        >>> import fedcell as fc
        >>> spec = fc.Spec(policy="random:k=5", rounds=10, grid={"seed": [0, 1], "cell.radius_m": [500.0, 1000.0]})
        >>> [(run.seed, run.cell.radius_m) for run in spec.runs()]
        [(0, 500.0), (0, 1000.0), (1, 500.0), (1, 1000.0)]
    """

    policy: Annotated[str, About("Scheduling policy, such as greedy:theta=0 or random:8.")] = "greedy"
    seed: Annotated[
        int,
        Ge(0),
        About("Random seed. Runs with the same seed have the same devices, channels, data and batches."),
    ] = 0
    budget_s: Annotated[
        float,
        Gt(0),
        Field(allow_inf_nan=True),
        About("Simulated time limit, in seconds.", option="budget-s", label="budget", unit="s", step=10),
    ] = defaults.BUDGET_S
    budget_j: Annotated[
        float | None,
        Gt(0),
        About("Limit on the energy of all devices together, in joules.", option="budget-j", since="0.2"),
    ] = None
    rounds: Annotated[
        int | None,
        Ge(1),
        About("Limit on the number of rounds, instead of or with the time limit.", option="rounds"),
    ] = None
    target_accuracy: Annotated[
        float | None, Gt(0), Le(1), About("Test accuracy at which the run stops, a fraction from 0 to 1.")
    ] = None
    knowledge: Annotated[
        Foresight,
        About(
            "What the scheduler knows of compute times: perfect (those of this round), expected (their means) or "
            "observed (estimates from earlier rounds).",
            option="knowledge",
            label="knowledge",
            topic="Knowledge",
        ),
    ] = "perfect"
    slack: Annotated[
        float | None,
        Ge(1),
        About(
            "A device that takes more than this many times its planned time is late: the server does not wait for it "
            "any longer.",
            option="slack",
            label="slack",
            default="waits for all",
            since="0.2",
        ),
    ] = None
    explore: Annotated[
        bool,
        About(
            "With observed knowledge, try devices again that have not trained for long: they may have become faster.",
            option="explore",
        ),
    ] = True
    profiles: Annotated[
        Literal["labels", "gradients", "updates", "none"],
        About(
            "What the server knows of the devices' data, for policies and aggregators that use it: gradients (before "
            "the first round, each device trains on 100 samples and reports the change of the output layer's biases), "
            "labels (the label shares), updates (the same change, from the updates that arrive) or none.",
            option="profiles",
            label="profiles",
            topic="Profiles",
        ),
    ] = "gradients"
    epsilon: Annotated[
        float | None,
        Gt(0),
        About(
            "The reported profiles get the noise that makes them epsilon-differentially private.",
            option="epsilon",
            label="epsilon",
            default="no noise",
        ),
    ] = None
    cell: Cell = Cell()
    devices: Devices = Devices()
    task: TaskSpec = TaskSpec()
    version: Annotated[
        Literal[2],
        Field(
            description="Of the document. In version 1, that of fedcell 0.2.0, labels:L was dealt to the devices in "
            "the order of their numbers; a document with version = 1 means that, labels:L,order=numbered."
        ),
    ] = 2
    grid: Annotated[
        dict[str, list[Any]],
        Field(description="Values to run in all combinations, by field, such as {'seed': [0, 1]}."),
    ] = {}

    @field_validator("cell")
    @classmethod
    def _known_law(cls, cell: Cell) -> Cell:
        if not isinstance(cell.document()["rate"], str):
            raise InputError(f"rate is {cell.rate!r}; a spec takes one of {', '.join(RATES)}")
        with naming("law"):
            law = LAWS.canonical(cell.law)
        return cell if law == cell.law else dataclasses.replace(cell, law=law)

    @field_validator("devices", mode="before")
    @classmethod
    def _without_samples(cls, devices: Any) -> Any:
        if "samples" in (
            devices.document() if isinstance(devices, Devices) else devices if isinstance(devices, dict) else ()
        ):
            raise InputError("samples is given, but those of a spec are the task's; set task.sizes")
        if isinstance(devices, dict) and devices.get("count", 0) is not None:
            return {"count": defaults.DEVICES} | devices
        return devices

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
        if law is not None and law.needs_snr and self.cell.rate != Cell.rate:
            raise InputError(
                f"law is {self.cell.law!r}, which holds for Shannon's rate, but rate is "
                f"{self.cell.document()['rate']!r}; change one of them"
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

    def world(self, samples: list[int], parameters: int, tensors: int = 1) -> World:
        """Return the world of the run.

        Args:
            samples: (M,) training samples that each device processes in a round.
            parameters: number of weights of the model.
            tensors: number of arrays that they are in.
        """
        cell, given = self.cell, self.cell.given_model_bits
        if given is None:
            cell = dataclasses.replace(cell, model_bits=WEIGHT_BITS * parameters)
        upload = self.task.make_compression().upload_bits(cell.model_bits / WEIGHT_BITS, tensors) / cell.model_bits
        return World(cell, dataclasses.replace(self.devices, samples=np.array(samples)), upload=upload)

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
        return self.reports_gradients and self.outage_possible

    @property
    def outage_possible(self) -> bool:
        """Whether devices may be out of reach, so that they have no rate."""
        return outage_possible(self.cell)

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


Spec.__doc__ = with_attributes(Spec)
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
        model: Any = TaskSpec if parent else kind or Spec
        return f"unknown field {place!r}; {did_you_mean(str(fault['loc'][-1]), model.model_fields)}"
    reason = str(fault.get("ctx", {}).get("error", fault["msg"]))
    if place in SECTIONS:
        return _in_section(place, reason)
    if fault["type"] == "value_error" and (not place or isinstance(fault.get("ctx", {}).get("error"), InputError)):
        return f"{place}: {reason}" if place else reason
    shown = repr(fault["input"])
    return f"{place} is {shown if len(shown) <= 60 else shown[:57] + '...'}; {reason[0].lower()}{reason[1:]}"


def _in_section(place: str, reason: str) -> str:
    """A mistake in [cell] or [devices], with the whole name of the field."""
    if reason.startswith("unknown field '"):
        return reason.replace("'", f"'{place}.", 1)
    first = re.match(r"\w+", reason)
    return f"{place}.{reason}" if first and first[0] in declared(SECTIONS[place]) else f"{place}: {reason}"


def require_spec(value: object, function: str) -> None:
    """Refuse what is not a Spec, before it fails somewhere in ``function``."""
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
