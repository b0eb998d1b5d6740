"""A run as one validated document: TOML in, TOML out.

A Spec says all that determines a run's result. Its ``grid`` lists values of any fields to be tried in all combinations;
``spec.runs()`` are those runs. Units are SI, and the unit is in the name.
"""

import hashlib
import itertools
import json
import math
import os
import tomllib
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedcell import defaults
from fedcell.check import did_you_mean
from fedcell.errors import InputError
from fedcell.learn.data import IDX_FILES, PUBLISHED
from fedcell.learn.engine import BATCH_SIZE, HIDDEN, LEARNING_RATE
from fedcell.learn.partition import Kind, Sizes, parse_kind, parse_sizes
from fedcell.schedule.policy import Policy
from fedcell.schedule.registry import format_policy, parse_policy
from fedcell.world import Cell, Devices, Mobility, World, parse_mobility
from fedcell.world.cell import PAPER_POWER_W_PER_HZ, Fading

MAX_SPEC_BYTES = 2**20
MAX_RUNS = 1_000_000
RESULTS_VERSION = 1
"""Raised whenever the same spec would give other records than before, so that stored runs no longer answer for it."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CellSpec(_Part):
    """The cell; see fedcell.Cell, whose defaults these are."""

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
    """Size of one upload; by default 32 bits for each of the model's weights."""


class DevicesSpec(_Part):
    """The devices; one number for all, or a list with one for each. Their samples are the partition's."""

    count: int = Field(default=defaults.DEVICES, ge=1, le=1_000_000)
    seconds_per_sample: float | list[float] = defaults.SECONDS_PER_SAMPLE
    samples_per_second: float | list[float] = defaults.SAMPLES_PER_SECOND
    power_w_per_hz: float | list[float] = PAPER_POWER_W_PER_HZ
    mobility: str = "redrawn"
    failure: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Probability that a scheduled device's model does not arrive."""

    @field_validator("mobility")
    @classmethod
    def _known_mobility(cls, text: str) -> str:
        parse_mobility(text)
        return text


class TaskSpec(_Part):
    """What is learnt, from which data, and how."""

    data: str = "mnist"
    scaling: Literal["standard", "unit"] = "standard"
    partition: str = "labels:2"
    sizes: str | list[int] = "equal"
    engine: Literal["mlp", "torch"] = "mlp"
    model: str = "mlp"
    """``mlp``; with the torch engine also ``cnn``, or ``package.module:function`` that returns an nn.Module."""
    device: str = "cpu"
    """Where the torch engine computes, such as ``cuda``."""
    hidden: list[int] = list(HIDDEN)
    learning_rate: float = Field(default=LEARNING_RATE, gt=0.0)
    momentum: float = Field(default=0.0, ge=0.0, lt=1.0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    batch_size: int = Field(default=BATCH_SIZE, ge=1)
    epochs: int = Field(default=1, ge=1)
    averaging: Literal["plain", "samples"] = "plain"
    """``plain``, the paper's mean; ``samples`` weighs each model by its device's samples."""

    def data_sha256(self) -> str:
        """Of the content of data of one's own, wherever they lie; empty for published data, which never change."""
        return "" if self.data in PUBLISHED else _data_sha256(os.path.expanduser(self.data))

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
    """One run, or with a grid several; the defaults are the paper's cell, devices and task.

    A run ends at the first of: ``budget_s`` simulated seconds (a round that would end later does not count),
    ``rounds``, ``target_accuracy``. Where ``rounds`` is given and ``budget_s`` is not, there is no budget.
    """

    policy: str = "greedy"
    seed: int = Field(default=0, ge=0)
    budget_s: float = Field(default=defaults.BUDGET_S, gt=0.0, allow_inf_nan=True)
    rounds: int | None = Field(default=None, ge=1)
    target_accuracy: float | None = Field(default=None, gt=0.0, le=1.0)
    knowledge: Literal["perfect", "expected", "observed"] = "perfect"
    """What the scheduler knows of compute times: this round's, their mean, or what earlier rounds showed."""
    cell: CellSpec = CellSpec()
    devices: DevicesSpec = DevicesSpec()
    task: TaskSpec = TaskSpec()
    grid: dict[str, list[Any]] = {}

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, text: str) -> str:
        return format_policy(parse_policy(text))

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
        # Constructing them checks them.
        self.world([1] * self.devices.count, 1)
        if self.grid:
            count = math.prod(len(values) for values in self.grid.values())
            if not 1 <= count <= MAX_RUNS:
                raise InputError(
                    f"grid has {count} runs; give every field at least one value, {MAX_RUNS:,} runs at most"
                )
            for field, values in self.grid.items():
                for value in values:
                    self._changed({field: value}, {}, "grid")
        return self

    def changed(self, changes: dict[str, Any], grid: dict[str, list[Any]] | None = None) -> "Spec":
        """Return this spec with some fields changed, and another grid or none.

        Nested fields are named with a dot, such as ``cell.radius_m``.
        """
        return self._changed(changes, grid or {}, "the spec")

    def _changed(self, changes: dict[str, Any], grid: dict[str, list[Any]], source: str) -> "Spec":
        document = self.model_dump(exclude={"grid"})
        for path, value in changes.items():
            *parents, field = path.split(".")
            part: Any = document
            for parent in parents:
                part = part.get(parent) if isinstance(part, dict) else None
            if not isinstance(part, dict) or field not in part or isinstance(part[field], dict):
                raise InputError(f"there is no field {path!r}; {did_you_mean(path, _paths(self))}")
            part[field] = value
        return parse_spec(document | {"grid": grid}, source)

    def runs(self) -> list["Spec"]:
        """Every combination of the grid's values, the last field varying fastest; this run itself without a grid."""
        if not self.grid:
            return [self]
        combinations = itertools.product(*self.grid.values())
        return [self.changed(dict(zip(self.grid, values, strict=True))) for values in combinations]

    def world(self, samples: list[int], parameters: int) -> World:
        """The world of the run, for devices that go through so many samples a round and models of so many weights."""
        cell = self.cell.model_dump()
        cell["model_bits"] = self.cell.model_bits if self.cell.model_bits is not None else 32 * parameters
        devices = self.devices.model_dump(exclude={"mobility", "failure"})
        return World(Cell(**cell), Devices(samples=samples, **devices), self.make_mobility())

    def make_mobility(self) -> Mobility:
        """How the devices move."""
        return parse_mobility(self.devices.mobility)

    def make_policy(self) -> Policy:
        """The policy of this run."""
        return parse_policy(self.policy)

    def key(self) -> str:
        """The SHA-256, in hex, of all that determines this run's records; the grid has no part in it.

        Equal for equal runs however they were written: settings inside texts are parsed, a list of equal values for all
        devices is one value, and data of one's own count by their content, wherever the file lies. What is not seen is
        the code behind ``package.module:name``: give a changed policy or model another name.
        """
        run = self.model_dump(exclude={"grid"})
        devices, task = run["devices"], run["task"]
        for field, value in devices.items():
            if isinstance(value, list) and len(set(value)) == 1:
                devices[field] = value[0]
        mobility = parse_mobility(self.devices.mobility)
        devices["mobility"] = [type(mobility).__name__, asdict(mobility)]
        task["partition"] = _partition_document(parse_kind(self.task.partition))
        if isinstance(self.task.sizes, str):
            task["sizes"] = _partition_document(parse_sizes(self.task.sizes))
        if self.task.data not in PUBLISHED:
            task["data"] = {"sha256": self.task.data_sha256()}
        text = json.dumps({"results_version": RESULTS_VERSION, "run": _canonical(run)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_toml(self) -> str:
        """The document that load_spec reads back as this spec."""
        return _toml(self.model_dump(exclude_none=True))


def _canonical(value: Any) -> Any:
    """The same numbers the same way: -0.0 as 0.0, and infinity, which JSON lacks, as a word."""
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _canonical(inner) for key, inner in value.items()}
    return [_canonical(inner) for inner in value] if isinstance(value, list | tuple) else value


def _partition_document(kind: Kind | Sizes) -> dict[str, Any]:
    """A partition or sizes as keys have them: with the settings of all kinds, so that stored runs keep their keys."""
    unset = {"per_device": 0, "mode": "balanced", "alpha": 0.0, "sigma": 0.0, "exponent": 0.0}
    return {"name": kind.name} | unset | asdict(kind)


def _data_sha256(path: str) -> str:
    """Of an .npz file, or of the four idx files in a folder."""
    files = [path]
    try:
        if os.path.isdir(path):
            zipped = [os.path.join(path, f"{name}.gz") for name in IDX_FILES.values()]
            files = [file if os.path.exists(file) else file.removesuffix(".gz") for file in zipped]
        if any(os.path.exists(file) and not os.path.isfile(file) for file in files):
            raise OSError(0, "it is no plain file")  # a pipe would never end
        stats = [os.stat(file) for file in files]
        parts = [
            _file_sha256(os.path.realpath(file), stat.st_mtime_ns, stat.st_size)
            for file, stat in zip(files, stats, strict=True)
        ]
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"task.data is {path[:200]!r} ({reason}); {did_you_mean(path[:200], PUBLISHED)}") from None
    return parts[0] if len(parts) == 1 else hashlib.sha256(" ".join(parts).encode()).hexdigest()


@lru_cache(maxsize=1024)
def _file_sha256(path: str, mtime_ns: int, size: int) -> str:  # noqa: ARG001  (a changed file is read again)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _paths(spec: Spec) -> list[str]:
    paths = []
    for name, value in spec.model_dump(exclude={"grid"}).items():
        paths += [f"{name}.{inner}" for inner in value] if isinstance(value, dict) else [name]
    return paths


def parse_spec(document: dict[str, Any], source: str) -> Spec:
    """Validate a document; ``source`` names it in messages."""
    try:
        return Spec.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{source}: {_first_fault(error)}") from None


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in fault["loc"] if not str(part).startswith(("list[", "float", "int", "str")))
    if fault["type"] == "extra_forbidden":
        parent = fault["loc"][:-1]
        model: Any = (
            {"cell": CellSpec, "devices": DevicesSpec, "task": TaskSpec}.get(str(parent[0]), Spec) if parent else Spec
        )
        return f"unknown field {place!r}; {did_you_mean(str(fault['loc'][-1]), model.model_fields)}"
    reason = str(fault.get("ctx", {}).get("error", fault["msg"]))
    if fault["type"] == "value_error" and (not place or isinstance(fault.get("ctx", {}).get("error"), InputError)):
        return f"{place}: {reason}" if place else reason
    shown = repr(fault["input"])
    return f"{place} is {shown if len(shown) <= 60 else shown[:57] + '...'}; {reason[0].lower()}{reason[1:]}"


def load_spec(path: str | Path) -> Spec:
    """Read a spec from a TOML file."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_SPEC_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}; give a TOML file (fedcell race --print-spec)"
        ) from None
    if len(content) > MAX_SPEC_BYTES:
        raise InputError(f"{path} is larger than {MAX_SPEC_BYTES >> 10} KiB; a spec is a short TOML document")
    try:
        document = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte at offset {error.start}); save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path} is no valid TOML ({error}); correct it") from None
    return parse_spec(document, str(path))


def _toml(document: dict[str, Any]) -> str:
    tables = {name: value for name, value in document.items() if isinstance(value, dict)}
    lines = [f"{name} = {_toml_value(value)}" for name, value in document.items() if name not in tables]
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]", *(f"{_toml_key(key)} = {_toml_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml_key(key: str) -> str:
    return f'"{key}"' if "." in key else key


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.translate(_ESCAPES)
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    return repr(value)


_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\"} | {i: f"\\u{i:04x}" for i in [*range(32), 127]}
