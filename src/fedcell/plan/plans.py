"""One round planned for devices from a file, and shown: what `fedcell plan` and the dashboard's Plan page share."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcell import __version__
from fedcell.errors import InputError, user_code
from fedcell.plan.device_table import DeviceTable, check_epochs
from fedcell.plots import RoundBars, percent, round_figure
from fedcell.quantisation import WEIGHT_BITS
from fedcell.rng import stream
from fedcell.schedule.convergence import largest_set, objective
from fedcell.schedule.greedy import ByObjective
from fedcell.schedule.laws import Density, Law, parse_law
from fedcell.schedule.plan import Plan
from fedcell.schedule.policy import Policy
from fedcell.schedule.profiles import Profiles, imbalance, standardise
from fedcell.schedule.registry import format_policy, parse_policy
from fedcell.schedule.view import RoundView
from fedcell.types import Floats
from fedcell.world import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


EFFORT = ("epochs", "bits")
"""What a policy may decide of a device beside its share of the band: its work, and the bits a weight of its upload."""


def _number(value: float) -> float | int:
    """The same number, whole if it is."""
    return int(value) if value == int(value) else value


@dataclass(frozen=True, eq=False)
class TableLaw:
    """The link law of a table's devices: as one would write it, and with what it must know of the devices."""

    asked: Law
    of: Law

    @property
    def name(self) -> str:
        """As one would write it."""
        return self.asked.line

    def gets(self, share: float, bandwidth_hz: float) -> dict[str, float]:
        """What a device with this share gets, by column."""
        return {"share": share, **self.asked.resources(share, bandwidth_hz)}


def law_of(line: str, table: DeviceTable, cell: Cell, *, allow_import: bool = True) -> TableLaw:
    """Return the link law of a table's devices; with ``allow_import`` the line may name a class of one's own."""
    law = parse_law(line, allow_import=allow_import)
    if law.needs_snr and cell.rate != Cell.rate:
        raise InputError(
            f"the law {law.line} holds for Shannon's rate; leave out the other rate, or choose another law"
        )
    if law.needs_snr and table.snr is None:
        raise InputError(
            f"the law {law.line} needs the SNR of every device, which an upload time or a rate does not tell; give a "
            "column snr_db, or distance_m and power_dbm, instead of upload_s or rate_bps"
        )
    return TableLaw(law, law.for_devices(table.snr, cell.model_bits))


@dataclass(frozen=True, eq=False)
class TablePlan:
    """A policy's plan for the devices of a table.

    Attributes:
        policy: the policy.
        table: the devices.
        view: what the policy saw of them.
        plan: who trains, with which share.
        bandwidth_hz: the band.
        law: how the uploads share it.
        theta: of the rounds model.
        objective_s: (theta + 1/n) round_s, None for an empty plan or where the rounds model does not hold: it is of one
            amount of work, and of whole models.
        imbalance: D, how far the set is from the whole table by its profiles; None for an empty plan or where profiles
            tell nothing.
    """

    policy: Policy
    table: DeviceTable
    view: RoundView
    plan: Plan
    bandwidth_hz: float
    law: TableLaw
    theta: float
    objective_s: float | None
    imbalance: float | None

    @cached_property
    def name(self) -> str:
        """The policy as one would write it."""
        return format_policy(self.policy)

    @property
    def learns(self) -> bool:
        """Whether the policy goes by what it learns from rounds: then this is how it begins."""
        return type(self.policy).learn is not Policy.learn

    @property
    def decides(self) -> list[str]:
        """What the policy decides beside devices and shares: ``epochs`` of work, ``bits`` a weight of the uploads."""
        return [name for name in EFFORT if getattr(self.plan, name) is not None]

    def effort(self, name: str) -> Floats:
        """(n,) the epochs, or the bits a weight, of each scheduled device, whoever decides them."""
        decided: Floats | None = getattr(self.plan, name)
        return np.full(self.plan.devices.size, float(getattr(self.view, name))) if decided is None else decided

    def effort_text(self, name: str) -> str:
        """The epochs, or the bits a weight, of all scheduled devices, such as ``0.05`` or ``2 to 8``."""
        values = self.effort(name)
        ends = [f"{value:.4g}" for value in (values.min(), values.max())] if values.size else ["-"]
        return " to ".join(dict.fromkeys(ends))

    def rows(self, most: int | None = None, effort: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The scheduled devices, a dict each; upload_s is what it takes with its share and its size.

        Args:
            most: the first so many; all by default.
            effort: with these columns of EFFORT; by default with what the policy decides.
        """
        devices, shares = self.plan.devices, self.plan.shares
        # Not finish - compute, which has no digits left where training takes a million times as long.
        compute_s, upload_s = self.plan.seconds(self.view)
        finish_s = self.finish_s()
        columns = {name: self.effort(name) for name in (self.decides if effort is None else effort)}
        return [
            {
                "device": self.table.names[i],
                "index": int(i),
                **self.law.gets(float(shares[j]), self.bandwidth_hz),
                **{name: _number(float(column[j])) for name, column in columns.items()},
                "upload_s": float(upload_s[j]),
                "compute_s": float(compute_s[j]),
                "finish_s": float(finish_s[j]),
            }
            for j, i in enumerate(devices[:most])
        ]

    def finish_s(self) -> Floats:
        """(n,) when each scheduled device has delivered."""
        return self.plan.timing(self.view).finish_s

    @property
    def free_units(self) -> int:
        """Resource blocks, or other units of the law, that nobody gets, as they would not shorten the round."""
        units = self.law.asked.units
        return 0 if units is None else units - round(units * self.plan.shares.sum())


def plan_round(
    table: DeviceTable,
    lines: Sequence[str],
    cell: Cell,
    theta: float | None,
    seed: int,
    *,
    law: str = "density",
    compare: bool = False,
    epochs: float = 1.0,
    allow_import: bool = True,
) -> list[TablePlan]:
    """Plan one round for the devices of a table with the policies asked for.

    Args:
        table: the devices.
        lines: the policies, such as ``"greedy:theta=0"``.
        cell: its bandwidth is what the plans share out.
        theta: of the rounds model, and of Greedy and Optimal unless their line has another; Diverse has its own. If
            None, that of the first of them that is asked for, 0 if none is.
        seed: of the random draws; every policy has the same.
        law: how the uploads share what carries them, such as ``"blocks:count=15"``; see `parse_law`.
        compare: without lines, plan with all policies that a table is enough for (those of the zoo go by what earlier
            rounds showed), with k as many devices as the optimum has.
        epochs: local epochs that the table's compute times are for; a policy may decide that a device trains less, or
            more.
        allow_import: whether a line may name a class of one's own; see parse_policy.

    Returns:
        A plan for each policy; without lines and comparison the optimum's alone.
    """
    under = law_of(law, table, cell, allow_import=allow_import)
    if lines:
        chosen = [_parse(line, theta or 0.0, allow_import) for line in lines]
        own = (policy.theta for policy in chosen if isinstance(policy, ByObjective))
        return make_plans(table, chosen, cell, next(own, 0.0) if theta is None else theta, seed, under, epochs)
    theta = theta or 0.0
    best = make_plans(table, [parse_policy(f"optimal:theta={theta}")], cell, theta, seed, under, epochs)
    if not compare:
        return best
    others = _others(theta, len(best[0].plan.devices))
    return best + make_plans(table, others, cell, theta, seed, under, epochs)


def _others(theta: float, k: int) -> list[Policy]:
    """What the optimum is compared with, at k devices a round where a policy has to be told."""
    lines = (
        f"greedy:theta={theta}",
        "diverse",
        "auto",
        "deadline:seconds=8",
        "deadline:seconds=25",
        f"proportional_fair:k={k}",
        f"random:k={k}",
        f"round_robin:k={k}",
        "all",
        "all:sharing=equal",
    )
    return [parse_policy(line) for line in lines]


def _parse(text: str, theta: float, allow_import: bool) -> Policy:
    policy = parse_policy(text, allow_import=allow_import)
    return parse_policy(text, otherwise={"theta": theta}) if isinstance(policy, ByObjective) else policy


def make_plans(
    table: DeviceTable,
    chosen: Sequence[Policy],
    cell: Cell,
    theta: float,
    seed: int,
    law: TableLaw | None = None,
    epochs: float = 1.0,
) -> list[TablePlan]:
    """Plan one round with each policy; all have the same random seed, and the paper's law unless another is given."""
    law = law or TableLaw(Density(), Density())
    check_epochs(epochs)
    objective(1, 1.0, theta)  # refuses a theta that predicts no rounds for any set
    # The file's order is the devices' identity, as far as there is one.
    view = RoundView(
        table.upload_s,
        table.compute_s,
        must_include=table.must_include,
        ids=np.arange(len(table.names)),
        profiles=table.profiles,
        samples=table.samples,
        law=law.of,
        epochs=epochs,
        weights=cell.model_bits / WEIGHT_BITS,
    )
    profiles = _told(table)
    plans = []
    for policy in chosen:
        with user_code(format_policy(policy)):
            plan = policy.decide(view, stream(seed, "policy"))
        if not math.isfinite(plan.round_s):  # only a policy of one's own says so, and JSON cannot
            raise InputError(f"policy {format_policy(policy)!r} returned a round time of {plan.round_s} s; correct it")
        n = len(plan.devices)
        modelled = 0 < n <= largest_set(theta) and not _changes_effort(plan, view)
        value = objective(n, plan.round_s, theta) if modelled else None
        unlike = imbalance(profiles, plan.devices) if profiles is not None and n else None
        plans.append(TablePlan(policy, table, view, plan, cell.bandwidth_hz, law, theta, value, unlike))
    return plans


def _changes_effort(plan: Plan, view: RoundView) -> bool:
    """Whether some device works or sends otherwise than all do where nobody decides that."""
    decided = ((getattr(plan, name), getattr(view, name)) for name in EFFORT)
    return any(column is not None and bool((column != usual).any()) for column, usual in decided)


def decided_by(plans: Sequence[TablePlan]) -> list[str]:
    """What at least one of the policies decides beside devices and shares."""
    return [name for name in EFFORT if any(name in planned.decides for planned in plans)]


def _told(table: DeviceTable) -> Profiles | None:
    """What the table's profiles tell, if anything."""
    return None if table.profiles is None else standardise(table.profiles)


def notes(plans: Sequence[TablePlan]) -> list[str]:
    """Say what a reader of the plans might wonder about."""
    said = plans[0].law.asked.notes(plans[0].bandwidth_hz, total_power=plans[0].table.total_power)
    for planned in plans:
        if planned.policy.uses_profiles and _told(planned.table) is None:
            so = "so it cannot tell whose data are alike" if planned.learns else _AS_OPTIMAL
            said.append(f"{planned.name}: {_why_nothing(planned.table)}, {so}")
        theta = getattr(planned.policy, "theta", 0.0)
        if theta < 0 and largest_set(theta) < len(planned.table.names):
            said.append(
                f"{planned.name}: the rounds model holds for at most {largest_set(theta):.0f} devices with this theta, "
                "so the set is capped there"
            )
        if planned.plan.devices.size == 0:
            said.append(f"{planned.name}: no device is chosen, so none trains and {planned.plan.round_s:g} s pass")
    return said


_AS_OPTIMAL = "so it chooses by round time and number of devices alone, as optimal does with the same theta"


def _why_nothing(table: DeviceTable) -> str:
    if table.profiles is None:
        return "no profile columns (profile:NAME)"
    return "fewer than two profiles are known, or all are alike"


def plans_json(plans: Sequence[TablePlan], several: bool) -> str:
    """One plan as an object, several as {"plans": [...]}."""
    documents = [
        {
            "fedcell": __version__,
            "policy": planned.name,
            "law": planned.law.name,
            "round_s": planned.plan.round_s,
            "theta": planned.theta,
            "objective_s": planned.objective_s,
            "imbalance": planned.imbalance,
            "bandwidth_hz": planned.bandwidth_hz,
            "notes": notes([planned]),
            "devices": planned.rows(),
        }
        for planned in plans
    ]
    return json.dumps({"plans": documents} if several else documents[0], indent=2, allow_nan=False)


def plans_csv(plans: Sequence[TablePlan], several: bool) -> str:
    """One line a scheduled device; with the policy before it where there are several."""
    text = io.StringIO()
    decided = decided_by(plans)
    gets = plans[0].law.gets(1.0, plans[0].bandwidth_hz)
    columns = ["device", "index", *gets, *decided, "upload_s", "compute_s", "finish_s"]
    writer = csv.DictWriter(text, ["policy", *columns] if several else columns, lineterminator="\n")
    writer.writeheader()
    for planned in plans:
        for row in planned.rows(effort=decided):
            writer.writerow({"policy": planned.name, **row} if several else row)
    return text.getvalue()


def figure(plans: Sequence[TablePlan]) -> "Figure":
    """Draw the rounds, one panel a policy."""
    panels = [
        RoundBars(
            planned.name,
            [planned.table.names[i] for i in planned.plan.devices],
            planned.plan.timing(planned.view).began_s,
            planned.finish_s(),
            planned.plan.shares,
            planned.plan.round_s,
            _labels(planned),
        )
        for planned in plans
    ]
    return round_figure(panels, _labelled(plans[0].law.asked, decided_by(plans)))


def _labels(planned: TablePlan) -> list[str]:
    """What stands next to the bars of a plan's devices."""
    law, shares = planned.law.asked, planned.plan.shares.tolist()
    parts = [[f"{value:.3g} {_SHORT[name]}" for value in planned.effort(name)] for name in planned.decides]
    if law.units is not None:
        parts.insert(0, [str(round(share * law.units)) for share in shares])
    elif law.shared:
        parts.insert(0, [percent(share) for share in shares])
    return [" · ".join(texts) for texts in zip(*parts, strict=True)] if parts else [""] * len(shares)


_SHORT = {"epochs": "ep.", "bits": "bit"}
_LABELLED = {"epochs": "epochs of work", "bits": "bits a weight"}


def _labelled(law: Law, decided: Sequence[str]) -> str:
    gets = f"the share of {law.shared}" if law.shared else ""
    if law.units is not None:
        gets = f"its {law.unit}s, of {law.units:,}"
    return ", ".join(filter(None, [gets, *(_LABELLED[name] for name in decided)]))
