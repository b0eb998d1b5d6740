"""Beyond the paper: Diverse against the policies of Fig. 3, one factor at a time from the paper's cell."""

from dataclasses import dataclass, field
from typing import Any

from fedcell.paper.settings import DEVICES, Settings
from fedcell.sim.spec import Spec

BALANCED = {"task.aggregator": "balanced"}
CONTENDERS: dict[str, dict[str, Any]] = {
    "Diverse": {"policy": "diverse", **BALANCED},
    "Diverse, labels": {"policy": "diverse", "profiles": "labels", **BALANCED},
    "Greedy": {"policy": "greedy"},
    "Optimal": {"policy": "optimal"},
    "Deadline 8 s": {"policy": "deadline:seconds=8"},
    "Deadline 25 s": {"policy": "deadline:seconds=25"},
    "PF": {"policy": "proportional_fair:k=8"},
    "Random": {"policy": "random:k=8"},
    "All": {"policy": "all"},
}
"""What is compared, and the fields of a spec that make it."""
OURS = ("Diverse", "Diverse, labels")
BASELINE = "Greedy"


@dataclass(frozen=True)
class ProofCell:
    """A cell: the paper's with some fields changed.

    Attributes:
        target: the accuracy whose time is compared, a fraction.
        fields: what differs from the paper's race.
    """

    target: float = 0.8
    fields: dict[str, Any] = field(default_factory=dict)


ROWS = {
    "the paper's race, L = 2": ProofCell(),
    "devices that stay": ProofCell(fields={"devices.mobility": "static"}),
    "devices that walk": ProofCell(fields={"devices.mobility": "waypoint"}),
    "L = 1": ProofCell(0.7, {"task.partition": "labels:1"}),
    "L = 5": ProofCell(0.9, {"task.partition": "labels:5"}),
    "L = 8": ProofCell(0.9, {"task.partition": "labels:8"}),
    "i.i.d.": ProofCell(0.95, {"task.partition": "iid"}),
    "Dirichlet 0.1": ProofCell(fields={"task.partition": "dirichlet:0.1"}),
    "Dirichlet 0.5": ProofCell(0.9, {"task.partition": "dirichlet:0.5"}),
    "radius 600 m": ProofCell(fields={"cell.radius_m": 600.0}),
    "50 devices": ProofCell(fields={"devices.count": 50}),
    "100 devices": ProofCell(fields={"devices.count": 100}),
    "observed knowledge": ProofCell(fields={"knowledge": "observed"}),
    "Rayleigh fading": ProofCell(fields={"cell.fading": "rayleigh"}),
    "1 in 10 uploads fails": ProofCell(fields={"devices.failure": 0.1}),
}
"""The cells, and the accuracy that each is judged by."""
VARIANTS: dict[str, dict[str, Any]] = {
    "Diverse (gradients, balanced, memory 0.5)": {"policy": "diverse", **BALANCED},
    "plain averaging": {"policy": "diverse"},
    "no memory": {"policy": "diverse:memory=0", **BALANCED},
    "full memory": {"policy": "diverse:memory=1", **BALANCED},
    "theta = 0.02": {"policy": "diverse:theta=0.02", **BALANCED},
    "theta = 0.1": {"policy": "diverse:theta=0.1", **BALANCED},
    "theta = 0.2": {"policy": "diverse:theta=0.2", **BALANCED},
    "profiles from labels": {"policy": "diverse", "profiles": "labels", **BALANCED},
    "profiles from updates": {"policy": "diverse", "profiles": "updates", **BALANCED},
    "no profiles": {"policy": "diverse", "profiles": "none", **BALANCED},
    "Greedy, balanced averaging": {"policy": "greedy", **BALANCED},
    "Greedy": {"policy": "greedy"},
}
"""Diverse taken apart, in the paper's race and with devices that stay."""
EPSILONS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
EPOCHS = (0.1, 0.3, 1, 3)
MOBILITIES = {"redrawn": "redrawn each round", "waypoint": "walking", "static": "static"}


def cell_of(settings: Settings, row: ProofCell) -> Spec:
    """The row's cell, its policy and seed still the defaults."""
    fields = dict(row.fields)
    if settings.samples is not None:
        fields["task.sizes"] = [settings.samples] * fields.get("devices.count", DEVICES)
    return settings.in_cell("greedy", "L=2", settings.race_radius_m, settings.race_budget_s).changed(fields)


def race_specs(settings: Settings) -> dict[tuple[str, str], Spec]:
    """The runs of the table, by row and contender."""
    return {
        (name, who): cell_of(settings, row).changed(fields)
        for name, row in list(ROWS.items())[: settings.cells]
        for who, fields in CONTENDERS.items()
    }


def variant_specs(settings: Settings) -> dict[tuple[str, str], Spec]:
    """Diverse taken apart, by mobility and variant."""
    return {
        (mobility, who): cell_of(settings, ProofCell(fields={"devices.mobility": mobility})).changed(fields)
        for mobility in ("redrawn", "static")
        for who, fields in VARIANTS.items()
    }


def privacy_specs(settings: Settings) -> dict[float, Spec]:
    """Diverse with noise for privacy in the paper's race, by epsilon."""
    ours = cell_of(settings, ProofCell()).changed(CONTENDERS["Diverse"])
    return {epsilon: ours.changed({"epsilon": epsilon}) for epsilon in EPSILONS}


def epochs_specs(settings: Settings) -> dict[tuple[str, str, float], Spec]:
    """How much local work a round has, by mobility, contender and epochs."""
    return {
        (mobility, who, epochs): cell_of(settings, ProofCell(fields={"devices.mobility": mobility})).changed(
            CONTENDERS[who] | {"task.epochs": epochs}
        )
        for mobility in MOBILITIES
        for who in ("Diverse", BASELINE)
        for epochs in EPOCHS
    }
