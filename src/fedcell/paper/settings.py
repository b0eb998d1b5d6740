"""The paper's settings (section IV), smaller ones to try everything out, and the runs through a store."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fedcell import defaults
from fedcell.errors import InputError
from fedcell.runs.records import Rounds
from fedcell.runs.store import Store
from fedcell.runs.sweep import Progress, run_sweep
from fedcell.sim.spec import Spec, TaskSpec
from fedcell.sim.task import resolve_device
from fedcell.world import Cell

Collect = Callable[[Sequence[Spec]], dict[str, Rounds]]
"""Runs, or reads from a store, every spec; gives the records by Spec.key()."""
Label = TypeVar("Label", bound=Hashable)

PARTITIONS = {"L=1": "labels:1", "L=2": "labels:2", "L=5": "labels:5", "L=8": "labels:8", "iid": "iid"}
"""The paper's names of the partitions, and ours."""
DEVICES = 20
PAPER_THETA = -0.0367  # Table I, L=2


@dataclass(frozen=True)
class Settings:
    """How much is run. The defaults are the paper's numbers where it gives them.

    Attributes:
        seeds: trials, with the seeds 0, 1, ...
        rounds: of the runs without a time budget (Fig. 2 and the fits of Table I).
        fit_ks: devices per round in the fits.
        fig2_ks: devices per round in Fig. 2.
        search_ks: devices per round tried for Fig. 1(b) and for Random-opt.
        latency_trials: rounds drawn for Fig. 1(a).
        devices_budget_s: time budget of Fig. 1(b).
        race_budget_s: time budget of Fig. 3(a)-(c).
        radius_budget_s: time budget of Fig. 3(d).
        radii_m: radii of Fig. 3(d).
        race_radius_m: the radius of Fig. 3(a)-(c).
        cells: how many cells Diverse and Auto are compared in; all if None.
        only: the cells that Auto is compared in, by name; all if empty.
        grid_epochs: epochs of the grid that Auto is compared with in hindsight.
        grid_bits: bits a weight of that grid.
        samples: of each device, if not an equal share of all.
    """

    seeds: int = 5
    rounds: int = 60
    fit_ks: tuple[int, ...] = (2, 4, 8, 12, 16, 20)
    fig2_ks: tuple[int, ...] = (4, 8, 12)
    search_ks: tuple[int, ...] = tuple(range(2, 21, 2))
    latency_trials: int = 1000
    devices_budget_s: float = 245.0
    race_budget_s: float = defaults.BUDGET_S
    radius_budget_s: float = 300.0
    radii_m: tuple[float, ...] = (200.0, 400.0, 600.0, 800.0, 1000.0, 1200.0, 1400.0)
    race_radius_m: float = defaults.RADIUS_M
    cells: int | None = None
    only: tuple[str, ...] = ()
    grid_epochs: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1, 2)
    grid_bits: tuple[int, ...] = (2, 4, 8, 32)
    samples: int | None = None

    @classmethod
    def quick(cls, seeds: int) -> "Settings":
        """Settings to try everything out in well under a minute; the results mean nothing."""
        return cls(
            seeds=seeds,
            rounds=4,
            fit_ks=(4, 8, 20),
            search_ks=(2, 4),
            latency_trials=50,
            devices_budget_s=8.0,
            race_budget_s=20.0,
            radius_budget_s=15.0,
            radii_m=(300.0, 600.0),
            race_radius_m=600.0,
            cells=3,
            grid_epochs=(0.1, 1),
            grid_bits=(4, 32),
            samples=300,
        )

    def run(self, policy: str, partition: str, **fields: Any) -> Spec:
        """One run, its seed still 0; ``partition`` is the paper's name."""
        sizes: str | list[int] = "equal" if self.samples is None else [self.samples] * DEVICES
        task = TaskSpec(partition=PARTITIONS[partition], sizes=sizes)
        return Spec(policy=policy, task=task, **fields)

    def without_budget(self, policy: str, partition: str) -> Spec:
        """A run of so many rounds; what it learns does not depend on the cell."""
        return self.run(policy, partition, rounds=self.rounds)

    def in_cell(self, policy: str, partition: str, radius_m: float, budget_s: float) -> Spec:
        """A run against the clock."""
        return self.run(policy, partition, cell=Cell(radius_m=radius_m), budget_s=budget_s)


def partition_name(partition: str) -> str:
    """The paper's name of a partition as figures and tables show it."""
    return "i.i.d." if partition == "iid" else partition.replace("=", " = ")


def gather(collect: Collect, specs: Mapping[Label, Spec], seeds: int, first: int = 0) -> dict[Label, list[Rounds]]:
    """Run every spec with so many seeds from the first; the runs by the specs' labels, in the order of the seeds."""
    taken = range(first, first + seeds)
    trials = {label: [spec.model_copy(update={"seed": seed}) for seed in taken] for label, spec in specs.items()}
    found = collect([run for runs in trials.values() for run in runs])
    return {label: [found[run.key()] for run in runs] for label, runs in trials.items()}


def within(runs: Sequence[Rounds], budget_s: float) -> list[Rounds]:
    """The runs as a smaller budget would have ended them: a policy does not know the budget."""
    return [run.until(budget_s) for run in runs]


WatchProgress = Callable[[Progress], None]


def collect_runs(
    specs: Sequence[Spec],
    store_path: Path,
    workers: int | None = None,
    watch: WatchProgress | None = None,
    *,
    executor: Executor | None = None,
    device: str = "cpu",
    known: Mapping[str, Rounds] | None = None,
) -> dict[str, Rounds]:
    """The rounds of every spec, by Spec.key().

    Args:
        specs: single runs; one that is asked for twice is run once.
        store_path: the store that is read and filled.
        workers: processes, one core each; all cores by default.
        watch: called after every run.
        executor: worker processes that several calls share; by default this call has its own.
        device: where to train, ``cpu`` or ``cuda``; what a GPU computes is stored as that.
        known: rounds that another machine has computed, by the keys of its runs; these are neither run nor stored.
    """
    asked = {spec.key(): spec for spec in specs}
    if device != "cpu":
        asked = {key: spec.changed({"task.device": device}) for key, spec in asked.items()}
    told = {key: known[spec.key()] for key, spec in asked.items() if known and spec.key() in known}
    asked = {key: resolve_device(spec) for key, spec in asked.items() if key not in told}
    wanted = {spec.key(): spec for spec in asked.values()}
    with Store(store_path) as store:
        missing = [spec for key, spec in wanted.items() if not store.has(key)]
        if missing:
            result = run_sweep(missing, store, executor, workers, watch)
            if result.failures:
                key, reason = next(iter(result.failures.items()))
                raise InputError(f"{len(result.failures)} runs failed, first {wanted[key].policy}: {reason}")
        return told | {key: store.rounds(spec.key()) for key, spec in asked.items()}
