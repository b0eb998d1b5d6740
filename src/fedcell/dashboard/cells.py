"""One round of a run as a map: conditions are drawn again, for they are a function of seed, round and clock."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from fedcell import units
from fedcell.dashboard import limits
from fedcell.errors import InputError
from fedcell.plugins import without_imports
from fedcell.quantisation import WEIGHT_BITS
from fedcell.runs.records import ADDED
from fedcell.runs.store import Measured
from fedcell.schedule.bandwidth import allocate
from fedcell.schedule.laws import Law, parse_law
from fedcell.schedule.plan import Links, Plan
from fedcell.sim.loop import world_of
from fedcell.sim.record import Column, RoundRecord
from fedcell.sim.spec import Spec, TaskSpec, parse_stored
from fedcell.sim.task import load_task
from fedcell.types import Floats
from fedcell.world import Conditions, SnrTrace, World, link_snr, loss_db

ShownSharing = Literal["planned", "optimal", "equal"]
WORLDS_KEPT = 8
MEASURED = ("predicted_finish_s", "upload_began_s", "measured_finish_s")


@dataclass(frozen=True, eq=False)
class RunWorld:
    """The cell and the devices of a run, its spec, and the number of arrays that its model consists of."""

    spec: Spec
    world: World
    tensors: int

    @classmethod
    def of(cls, document: dict[str, Any]) -> "RunWorld":
        """Of a spec's document; those last looked at are kept, for dealing the data to the devices takes a moment."""
        return _run_world(json.dumps(document, sort_keys=True))

    def links(self, conditions: Conditions, law: Law) -> Links:
        """What really held of the devices, and what a whole training and upload are, of which plans may want a part."""
        task, weights = self.spec.task, self.world.cell.model_bits / WEIGHT_BITS
        size = task.epochs, weights, self.tensors, task.make_compression().bits
        return Links(conditions.upload_s, conditions.compute_s, law, *size)


@lru_cache(maxsize=WORLDS_KEPT)
def _run_world(document: str) -> RunWorld:
    spec = parse_stored(json.loads(document), "the run")
    with without_imports("its map needs the size of its model: it is drawn for runs with cell.model_bits"):
        task = load_task(_of_known_size(spec), spec.devices.count, spec.seed, 1)
    return RunWorld(spec, world_of(spec, task), len(task.engine.tensors))


def _of_known_size(spec: Spec) -> TaskSpec:
    """The task, with a built-in model in place of one's own where the upload's size does not depend on it."""
    if ":" not in spec.task.model or spec.cell.given_model_bits is None:
        return spec.task
    usual = TaskSpec()
    names = ("engine", "model", "device", "precision", "hidden", "momentum", "weight_decay")
    return spec.task.model_copy(update={name: getattr(usual, name) for name in names})


def round_document(
    run_world: RunWorld,
    before_s: float,
    record: RoundRecord,
    rounds: int,
    sharing: ShownSharing,
    measured: Measured | None,
) -> dict[str, Any]:
    """The answer of /api/runs/{key}/rounds/{r}."""
    conditions = run_world.world.conditions(run_world.spec.seed, record.round - 1, before_s)
    devices = record.plan.devices
    if devices.size and devices.max() >= len(conditions.upload_s):
        raise InputError(f"the run has a device {devices.max()} that its spec lacks; its map cannot be drawn")
    law = parse_law(run_world.spec.cell.law, allow_import=False)
    bound = law.for_devices(conditions.snr, run_world.world.upload_bits)
    links = run_world.links(conditions, bound)
    shares, ends = _shared(links, record.plan)
    part_of = partial(_part, law, run_world.world.cell.bandwidth_hz)
    if measured is None:  # as it went: with slack a round may end before all have finished
        ends["planned"] = record.round_s
    return {
        "round": record.round,
        "rounds": rounds,
        "clock_s": record.clock_s,
        "round_s": ends[sharing] if devices.size else record.round_s,
        "joules": record.joules,
        "accuracy": record.accuracy,
        "radius_m": run_world.world.cell.radius_m,
        "law": run_world.spec.cell.law,
        "blocks": law.units,
        "shared": law.shared,
        "sharing": sharing,
        **{f"round_s_{name}": end if devices.size else record.round_s for name, end in ends.items()},
        **{one.name: one.value(record) for one in ADDED if not one.per_device},
        **_device_rows(
            conditions, links, replace(record, plan=replace(record.plan, shares=shares[sharing])), part_of, measured
        ),
        "columns": [
            {"name": _shown_name(one), "unit": one.unit, "text": one.text, "per_device": one.per_device}
            for one in ADDED
        ],
    }


def _shown_name(one: Column) -> str:
    return one.name.removeprefix("plan_") if one.per_device else one.name


def _part(law: Law, bandwidth_hz: float, share: float | None) -> dict[str, Any]:
    """What a device with this share has of the band; of a dedicated link all."""
    if share is None:
        return {"share": None, "blocks": None, "bandwidth_hz": None}
    return {"share": share, "blocks": None, "bandwidth_hz": bandwidth_hz, **law.resources(share, bandwidth_hz)}


def _shared(links: Links, plan: Plan) -> tuple[dict[ShownSharing, Floats], dict[ShownSharing, float]]:
    """The shares of the scheduled devices in three ways, and when the round ends with each."""
    devices, planned = plan.devices, plan.shares
    shares: dict[ShownSharing, Floats] = {"planned": planned}
    if devices.size == 0:
        names: tuple[ShownSharing, ...] = ("planned", "optimal", "equal")
        return dict.fromkeys(names, planned), dict.fromkeys(names, 0.0)
    work, part, mine = plan.work(links.epochs), plan.part(links), links.law.take(devices)
    c, t = links.upload_s[devices], links.compute_s[devices]
    t = plan.starts() + (t if work is None else work * t)
    if part is not None:
        c, mine = part * c, mine.scaled(part)
    shares["optimal"] = allocate(c, t, law=mine).shares
    shares["equal"] = allocate(c, t, sharing="equal", law=mine).shares
    return shares, {name: float((t + mine.upload_s(c, share)).max()) for name, share in shares.items()}


def _device_rows(
    conditions: Conditions,
    links: Links,
    record: RoundRecord,
    part_of: Callable[[float | None], dict[str, Any]],
    measured: Measured | None,
) -> dict[str, Any]:
    devices, shares = record.plan.devices, record.plan.shares
    count = len(conditions.upload_s)
    rest = np.setdiff1d(np.arange(count), devices)
    shown = np.concatenate((devices, rest))[: limits.ROUND_DEVICES]
    share_of = dict(zip(devices.tolist(), shares.tolist(), strict=True))
    trains_s, takes_s = record.plan.seconds(links)
    trains_of = dict(zip(devices.tolist(), trains_s.tolist(), strict=True))
    takes_of = dict(zip(devices.tolist(), takes_s.tolist(), strict=True))
    start_of = dict(zip(devices.tolist(), record.plan.starts().tolist(), strict=True))
    joules_of = dict(zip(devices.tolist(), record.plan_joules.tolist(), strict=True))
    lists = {_shown_name(one): one.value(record) for one in ADDED if one.per_device}
    more = {
        name: dict(zip(devices.tolist(), one.tolist(), strict=True)) for name, one in lists.items() if one is not None
    }
    arrived = set(record.delivered.tolist())
    real = _measured(measured)
    with np.errstate(divide="ignore"):
        snr_db = units.ratio_to_db(conditions.snr)
    rows = []
    for i in sorted(shown.tolist()):
        share = share_of.get(i)
        upload_s, compute_s = float(conditions.upload_s[i]), trains_of.get(i, float(conditions.compute_s[i]))
        taken_s, start_s = takes_of.get(i), start_of.get(i)
        rows.append(
            {
                "index": i,
                "x_m": float(conditions.positions_m[i, 0]),
                "y_m": float(conditions.positions_m[i, 1]),
                "distance_m": float(conditions.distance_m[i]),
                "snr_db": float(snr_db[i]),
                "spectral_efficiency": float(conditions.spectral_efficiency[i]),
                "upload_s": upload_s,
                "compute_s": compute_s,
                "scheduled": share is not None,
                "delivered": i in arrived,
                **part_of(share),
                "upload_with_share_s": taken_s,
                "start_s": start_s,
                "finish_s": None if taken_s is None or start_s is None else start_s + compute_s + taken_s,
                "joules": joules_of.get(i),
                **{name: more.get(name, {}).get(i) for name in lists},
                **dict(zip(MEASURED, real.get(i, (None, None, None)), strict=True)),
            }
        )
    cut = f"of {count:,} devices {len(rows):,} are listed, the scheduled ones first" if len(rows) < count else None
    return {"devices": rows, "cut": cut}


def _measured(measured: Measured | None) -> dict[int, tuple[float, float, float]]:
    if measured is None:
        return {}
    times = zip(measured.predicted_s.tolist(), measured.began_s.tolist(), measured.measured_s.tolist(), strict=True)
    return dict(zip(measured.devices.tolist(), times, strict=True))


def field_document(run_world: RunWorld, size: int) -> dict[str, Any]:
    """The answer of /api/runs/{key}/field."""
    cell = run_world.world.cell
    axis = np.linspace(-cell.radius_m, cell.radius_m, size)
    x, y = np.meshgrid(axis, axis)
    points = np.column_stack((x.ravel(), y.ravel()))
    distance_m = np.hypot(points[:, 0], points[:, 1])
    if isinstance(cell.channel, SnrTrace):  # it knows devices, not places
        snr_db = np.full(len(points), np.nan)
    else:
        loss = loss_db(cell, points, run_world.spec.seed)
        snr = link_snr(cell, float(run_world.world.devices.power_w_per_hz.mean()), loss)
        with np.errstate(divide="ignore"):
            snr_db = np.where(distance_m <= cell.radius_m, units.ratio_to_db(snr), np.nan)
    return {"x_m": axis.tolist(), "y_m": axis.tolist(), "snr_db": np.round(snr_db, 2).reshape(size, size).tolist()}


def start_of(records: Sequence[RoundRecord], number: int, *, simulated: bool) -> float:
    """The clock when round ``number`` began: the first one of a simulation may come after the devices' reports."""
    if number > 1:
        return records[number - 2].clock_s
    return records[0].clock_s - records[0].round_s if simulated else 0.0
