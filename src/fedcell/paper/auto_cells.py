"""The cells in which Auto is proved: the paper's race with something changed, on MNIST and on data of real people."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcell import defaults
from fedcell.errors import InputError, did_you_mean
from fedcell.learn.published import DATA_VARIABLE, find_data
from fedcell.paper.settings import DEVICES, Settings
from fedcell.sim.spec import Spec

WISDM, AUDIO, WRITERS = "wisdm51-watch-accel.npz", "audiomnist-logmel32.npz", "mnist-by-writer.npz"
FASHION = "fashion-mnist"
PEOPLE = {WISDM: 50, AUDIO: 60, WRITERS: 50}
"""How many people of each data set are devices; of more, the seed draws which."""
FIRST_SEED = 1000
"""The seeds begin here: no constant of Auto was chosen on them."""


@dataclass(frozen=True)
class AutoCell:
    """A cell: the paper's race with some fields changed.

    Attributes:
        title: in tables.
        target: the accuracy whose time is compared, a fraction.
        fields: what differs from the paper's race, but for the data.
        data: a file, or a directory, that is looked for in FEDCELL_DATA; empty for MNIST.
        grid_s: the time limit of the runs of the hindsight grid, in seconds; chosen so that the best of it is within.
    """

    title: str
    target: float = 0.8
    fields: dict[str, Any] = field(default_factory=dict)
    data: str = ""
    grid_s: float = 60.0

    @property
    def people(self) -> bool:
        """Whether each device is a real person."""
        return self.data in PEOPLE


def spread(ratio: float, count: int = DEVICES) -> dict[str, Any]:
    """Fields of devices whose compute speeds are spread by a ratio, evenly in the logarithm around the paper's."""
    factors = ratio ** np.linspace(-0.5, 0.5, count)  # of times: the fastest first; positions and data are drawn
    return {
        "devices.seconds_per_sample": (defaults.SECONDS_PER_SAMPLE * factors).tolist(),
        "devices.samples_per_second": (defaults.SAMPLES_PER_SECOND / factors).tolist(),
    }


STATIC, IID = {"devices.mobility": "static"}, {"task.partition": "iid"}
FREE = {"task.partition": "labels:2,mode=free"}

CELLS = {
    "race": AutoCell("the paper's race, L = 2"),
    "static": AutoCell("devices that stay", fields=STATIC),
    "iid": AutoCell("i.i.d.", 0.95, IID, grid_s=250.0),
    "waypoint": AutoCell("devices that walk", fields={"devices.mobility": "waypoint"}),
    "free": AutoCell("L = 2, free", fields=FREE, grid_s=100.0),
    "free-static": AutoCell("L = 2, free, static", fields=FREE | STATIC, grid_s=100.0),
    "labels-1": AutoCell("L = 1", fields={"task.partition": "labels:1"}, grid_s=100.0),
    "dirichlet-0.1": AutoCell("Dirichlet 0.1", fields={"task.partition": "dirichlet:0.1"}),
    "speeds-10": AutoCell("speeds spread 10 x", fields=spread(10.0)),
    "speeds-30": AutoCell("speeds spread 30 x", fields=spread(30.0)),
    "speeds-10-iid": AutoCell("speeds spread 10 x, i.i.d.", 0.95, IID | spread(10.0), grid_s=250.0),
    "speeds-30-iid": AutoCell("speeds spread 30 x, i.i.d.", 0.95, IID | spread(30.0), grid_s=250.0),
    "fashion": AutoCell("Fashion-MNIST, L = 2", 0.7, data=FASHION),
    "fashion-static": AutoCell("Fashion-MNIST, L = 2, static", 0.7, STATIC, FASHION),
    "fashion-dirichlet-0.3": AutoCell(
        "Fashion-MNIST, Dirichlet 0.3", 0.8, {"task.partition": "dirichlet:0.3"}, FASHION, 120.0
    ),
    "wisdm": AutoCell("WISDM, 50 people", 0.5, data=WISDM),
    "wisdm-static": AutoCell("WISDM, 50 people, static", 0.5, STATIC, WISDM),
    "audio": AutoCell("AudioMNIST, 60 speakers", 0.9, data=AUDIO),
    "audio-static": AutoCell("AudioMNIST, 60 speakers, static", 0.9, STATIC, AUDIO),
    "writers": AutoCell("MNIST, 50 writers", 0.8, data=WRITERS),
    "writers-static": AutoCell("MNIST, 50 writers, static", 0.75, STATIC, WRITERS),
    "labels-1-70": AutoCell("L = 1, to 70 %", 0.7, {"task.partition": "labels:1"}),
    "labels-5": AutoCell("L = 5", 0.9, {"task.partition": "labels:5"}),
    "labels-8": AutoCell("L = 8", 0.9, {"task.partition": "labels:8"}),
    "dirichlet-0.5": AutoCell("Dirichlet 0.5", 0.9, {"task.partition": "dirichlet:0.5"}),
    "radius-600": AutoCell("radius 600 m", fields={"cell.radius_m": 600.0}),
    "devices-50": AutoCell("50 devices", fields={"devices.count": 50}),
    "devices-100": AutoCell("100 devices", fields={"devices.count": 100}),
    "observed": AutoCell("observed knowledge", fields={"knowledge": "observed"}),
    "rayleigh": AutoCell("Rayleigh fading", fields={"cell.fading": "rayleigh"}),
    "failures": AutoCell("1 in 10 uploads fails", fields={"devices.failure": 0.1}),
}
"""All cells, by the names that ``--cells`` takes: the promised ones, then the rest of docs/diverse.md's fifteen."""


def checked_cells(names: str) -> tuple[str, ...]:
    """The names of a list with commas, in the order of CELLS; an InputError names the one that is none."""
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in CELLS:
            raise InputError(f"there is no cell {name[:60]!r}; {did_you_mean(name, CELLS)}")
    return tuple(name for name in CELLS if name in asked)


def chosen_cells(settings: Settings, among: Iterable[str] = CELLS) -> tuple[dict[str, AutoCell], list[str]]:
    """The cells of these names that are compared, and a sentence for all whose data is not there."""
    names = [name for name in among if not settings.only or name in settings.only]
    found, missing = {}, dict[str, list[str]]()
    for name in names[: settings.cells]:
        cell = CELLS[name]
        if cell.data and find_data(cell.data) is None:
            missing.setdefault(cell.data, []).append(name)
        else:
            found[name] = cell
    where = f"{DATA_VARIABLE} names no directory that has it, itself or one below"
    return found, [f"Left out: {', '.join(cells)}, for there is no {data}; {where}." for data, cells in missing.items()]


def spec_of(settings: Settings, cell: AutoCell) -> Spec:
    """The cell, its policy and seed still the defaults."""
    fields = dict(cell.fields)
    if cell.data:
        fields["task.data"] = find_data(cell.data) or cell.data
    if cell.people:
        fields |= {"task.partition": "natural", "devices.count": PEOPLE[cell.data]}
    elif settings.samples is not None:
        fields["task.sizes"] = [settings.samples] * fields.get("devices.count", DEVICES)
    return settings.in_cell("greedy", "L=2", settings.race_radius_m, settings.race_budget_s).changed(fields)
