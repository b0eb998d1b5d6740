"""The key of a run: the hash of everything that determines its records, equal for equal runs however written."""

import hashlib
import json
import math
import os
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fedcell.errors import InputError, did_you_mean
from fedcell.fields import declared
from fedcell.learn.aggregator import Spelling02
from fedcell.learn.data import content_files
from fedcell.learn.learning_rate import Constant, parse_schedule
from fedcell.learn.partition import Kind, Labels, Sizes, parse_kind, parse_sizes
from fedcell.learn.published import PUBLISHED
from fedcell.settings import write
from fedcell.world import AVAILABILITIES, MOBILITIES, Cell, Devices, Trace

if TYPE_CHECKING:
    from fedcell.sim.spec import Spec, TaskSpec

RESULTS_VERSION = 1
"""Increased whenever the same spec would give different records than before, so that stored runs are not reused."""
REPORTS_VERSION = 2
"""Likewise, for runs with reports whose devices may have no rate: in version 0.2 their reports cost infinite joules."""
TORCH_VERSION = 2
"""Likewise, for runs of the torch engine: races of version 0.1 mixed up the models that threads evaluated at once."""


def run_key(spec: "Spec", code: str) -> str:
    """The SHA-256, in hex, of all that determines a run's records; ``code``: that of the user's own code, if any."""
    run = spec.model_dump(exclude={"grid", "version"} | spec.unused)
    for field, value in run["devices"].items():
        if isinstance(value, list) and len(set(value)) == 1:
            run["devices"][field] = value[0]
    usual = _usual(type(spec))
    for section, kind in {
        "": type(spec),
        "cell": type(spec.cell),
        "devices": type(spec.devices),
        "task": type(spec.task),
    }.items():
        fields, of_default = (run[section], usual[section]) if section else (run, usual)
        for name, field in declared(kind).items():  # some are unused, and left out
            if field.about.since != "0.1" and name in fields and fields[name] == of_default[name]:
                del fields[name]
    run["cell"] |= _channel_document(spec)
    mobility = MOBILITIES.parse(spec.devices.mobility)
    run["devices"]["mobility"] = [type(mobility).__name__, asdict(mobility)]
    if "availability" in run["devices"]:
        run["devices"]["availability"] = _availability_document(spec.devices)
    run |= _task_document(run, spec.task)
    document: dict[str, Any] = {"results_version": RESULTS_VERSION, "run": _canonical(run)}
    if spec.task.engine == "torch":
        document["torch_version"] = TORCH_VERSION
    if spec.reports_may_be_lost:
        document["reports_version"] = REPORTS_VERSION
    if code:
        document["code"] = code
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=8)
def _usual(kind: "type[Spec]") -> dict[str, Any]:
    """The document of a spec where nothing is given."""
    return kind().model_dump()


def depends_on_files(spec: "Spec") -> bool:
    """Whether the key counts the content of files, which may change: own data, traces."""
    availability = AVAILABILITIES.parse(spec.devices.availability)
    return spec.task.data not in PUBLISHED or not spec.cell.channel.by_place or isinstance(availability, Trace)


def _task_document(run: dict[str, Any], task: "TaskSpec") -> dict[str, Any]:
    """The task, and what else the aggregator decides, as keys have them."""
    document = run["task"] | {"partition": _partition_document(parse_kind(task.partition))}
    if isinstance(task.sizes, str):
        document["sizes"] = _partition_document(parse_sizes(task.sizes))
    schedule = parse_schedule(task.schedule)
    document["schedule"] = write(schedule.name, schedule, defaults=True)
    if isinstance(schedule, Constant):
        del document["schedule"]
    document["device"] = task.device.partition(":")[0]  # cards of a machine are alike
    if task.data not in PUBLISHED:
        document["data"] = {"sha256": task.data_sha256()}
    document.pop("aggregator", None)
    old = Spelling02.of(task.make_aggregator())
    document["averaging"] = old.averaging
    if old.server != "mean":
        document["server"] = old.server
    return {"task": document} | ({"late_weight": old.late_weight} if old.late_weight else {})


def _availability_document(devices: Devices) -> list[Any]:
    """Device availability as keys have it: a trace is known by what is in it, not by its name."""
    availability = AVAILABILITIES.parse(devices.availability)
    fields = asdict(availability)
    if isinstance(availability, Trace):
        fields["file"] = availability.content_sha256(devices.count)
    return [type(availability).__name__, fields]


def _canonical(value: Any) -> Any:
    """Write equal numbers in the same way: -0.0 as 0.0, and infinity, which JSON lacks, as a string."""
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _canonical(inner) for key, inner in value.items()}
    return [_canonical(inner) for inner in value] if isinstance(value, list | tuple) else value


def _partition_document(kind: Kind | Sizes) -> dict[str, Any]:
    """A partition or sizes as keys have them: with the settings of all kinds, so that stored runs keep their keys."""
    unset = {"per_device": 0, "mode": "balanced", "alpha": 0.0, "sigma": 0.0, "exponent": 0.0}
    document = {"name": kind.name} | unset | asdict(kind)
    if isinstance(kind, Labels) and (kind.mode == "free" or kind.order == "numbered"):
        del document["order"]  # as in version 0.2.0, which had no such setting
    return document


def _channel_document(spec: "Spec") -> dict[str, Any]:
    """The channel and the rate as keys have them, unless they are the paper's; a file is known by its content."""
    channel, rate = spec.cell.channel, spec.cell.rate
    found = {}
    if channel != Cell.channel:
        from fedcell.world import SnrTrace

        content = {"file": channel.sha256(spec.devices.count)} if isinstance(channel, SnrTrace) else {}
        found["channel"] = [type(channel).__name__, asdict(channel) | content]
    if rate != Cell.rate:
        found["rate"] = [type(rate).__name__, asdict(rate)]
    return found


def data_sha256(name: str) -> str:
    """Return the SHA-256 of a file, or of all that a directory's data consists of."""
    try:
        files = content_files(name)
        if not files or any(file.exists() and not file.is_file() for _, file in files):
            raise OSError(0, "not a regular file" if files else "no files in it")  # a pipe would never end
        parts = []
        for role, file in files:
            stat = file.stat()
            parts.append(role + _file_sha256(os.path.realpath(file), stat.st_mtime_ns, stat.st_size))
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"task.data is {name[:200]!r} ({reason}); {did_you_mean(name[:200], PUBLISHED)}") from None
    return parts[0] if len(parts) == 1 else hashlib.sha256(" ".join(parts).encode()).hexdigest()


@lru_cache(maxsize=1024)
def _file_sha256(path: str, mtime_ns: int, size: int) -> str:  # noqa: ARG001  (a changed file is read again)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
