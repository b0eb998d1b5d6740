"""fedcell: which devices of a radio cell train, with which share of the band, for how long, and with how many bits.

The public API is what ``__all__`` lists. Names are imported when first used, so that ``import fedcell`` costs nothing.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcell.errors import InputError
    from fedcell.learn.data import Dataset, load_dataset, save_dataset
    from fedcell.learn.hugging_face import dataset_from
    from fedcell.runs.contest import Scenario, Tournament, load_scenarios
    from fedcell.runs.models import SavedModel, Score, load_model, save_model
    from fedcell.runs.race import RaceResult, run_race
    from fedcell.runs.runner import RoundsDone, RunDone, RunFailed, Runner, WorkerLost
    from fedcell.runs.store import Store
    from fedcell.runs.sweep import SweepResult, run_sweep
    from fedcell.runs.tournament import TournamentResult, run_tournament
    from fedcell.runs.trackers import tracking
    from fedcell.schedule.auto import Auto
    from fedcell.schedule.bandwidth import Allocation, allocate
    from fedcell.schedule.baselines import All, Deadline, ProportionalFair, Random, RoundRobin
    from fedcell.schedule.convergence import (
        TABLE_I,
        RoundsFit,
        RoundsModel,
        RoundTimeBounds,
        fit_rounds,
        objective,
        round_time_bounds,
        rounds_needed,
    )
    from fedcell.schedule.diverse import Diverse
    from fedcell.schedule.downlink import Multicast, Unicast
    from fedcell.schedule.greedy import Greedy
    from fedcell.schedule.laws import Blocks, Dedicated, Density, Ingress, Law, Power, format_law, parse_law
    from fedcell.schedule.optimal import Optimal
    from fedcell.schedule.plan import Plan, Question, Report
    from fedcell.schedule.policy import Policy
    from fedcell.schedule.registry import POLICIES, format_policy, parse_policy
    from fedcell.schedule.view import RoundView
    from fedcell.schedule.zoo.age_of_update import AgeOfUpdate
    from fedcell.schedule.zoo.cs_ucb import CsUcb
    from fedcell.schedule.zoo.div_fl import DivFl
    from fedcell.schedule.zoo.fed_cbs import FedCbs
    from fedcell.schedule.zoo.fed_cgd import FedCgd
    from fedcell.schedule.zoo.fedcs import FedCS
    from fedcell.schedule.zoo.norms import BestChannel, BestNorm, ChannelThenNorm
    from fedcell.schedule.zoo.oort import Oort
    from fedcell.schedule.zoo.power_of_choice import PowerOfChoice
    from fedcell.schedule.zoo.tifl import TiFL
    from fedcell.sim.loop import simulate
    from fedcell.sim.record import RoundRecord
    from fedcell.sim.spec import CellSpec, DevicesSpec, Spec, TaskSpec, load_spec
    from fedcell.sim.spec_warnings import SpecWarning
    from fedcell.world import (
        Always,
        Cell,
        Conditions,
        DayNight,
        Devices,
        Mcs64,
        Mcs256,
        PaperChannel,
        RandomWaypoint,
        Redrawn,
        RMa,
        Shannon,
        SnrTrace,
        Static,
        Trace,
        UMa,
        UMi,
        World,
        mean_upload_s,
    )

__version__ = "0.2.1"


def lazy_names(
    package: str, where: Mapping[str, str], renamed: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], Any]:
    """A package's ``__getattr__``, which imports a name when it is first used.

    Args:
        package: its name; a module's will do where names were only renamed.
        where: by module, its names. A module of the package may be among its own names.
        renamed: former names that still work, with a warning, by what they are called now: ``NAME``, ``NAME.attribute``
            or, elsewhere, ``module:NAME``.
    """
    modules = {name: module for module, names in where.items() for name in names.split()}

    def look_up(name: str) -> Any:
        if name in renamed:
            from pkgutil import resolve_name

            new = renamed[name]
            now = f"{package}.{name} is called {new.replace(':', '.')}; write that"
            warnings.warn(now, DeprecationWarning, stacklevel=2)
            return resolve_name(new if ":" in new else f"{package}:{new}")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        value = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return look_up


def names_in(where: Mapping[str, str], *own: str) -> list[str]:
    """A package's ``__all__``: the names that `lazy_names` knows, and its own."""
    return sorted([*own, *(name for names in where.values() for name in names.split())])


__getattr__ = lazy_names(
    "fedcell",
    {
        "fedcell.errors": "InputError",
        "fedcell.learn.data": "Dataset load_dataset save_dataset",
        "fedcell.learn.hugging_face": "dataset_from",
        "fedcell.schedule.auto": "Auto",
        "fedcell.schedule.bandwidth": "Allocation allocate",
        "fedcell.schedule.baselines": "All Deadline ProportionalFair Random RoundRobin",
        "fedcell.schedule.convergence": "TABLE_I RoundTimeBounds RoundsFit RoundsModel"
        " fit_rounds objective round_time_bounds rounds_needed",
        "fedcell.schedule.diverse": "Diverse",
        "fedcell.schedule.downlink": "Multicast Unicast",
        "fedcell.schedule.greedy": "Greedy",
        "fedcell.schedule.laws": "Blocks Dedicated Density Ingress Law Power format_law parse_law",
        "fedcell.schedule.optimal": "Optimal",
        "fedcell.schedule.plan": "Plan Question Report",
        "fedcell.schedule.policy": "Policy",
        "fedcell.schedule.registry": "POLICIES format_policy parse_policy",
        "fedcell.schedule.view": "RoundView",
        "fedcell.schedule.zoo.age_of_update": "AgeOfUpdate",
        "fedcell.schedule.zoo.cs_ucb": "CsUcb",
        "fedcell.schedule.zoo.fedcs": "FedCS",
        "fedcell.schedule.zoo.oort": "Oort",
        "fedcell.schedule.zoo.power_of_choice": "PowerOfChoice",
        "fedcell.schedule.zoo.tifl": "TiFL",
        "fedcell.schedule.zoo.div_fl": "DivFl",
        "fedcell.schedule.zoo.fed_cbs": "FedCbs",
        "fedcell.schedule.zoo.fed_cgd": "FedCgd",
        "fedcell.schedule.zoo.norms": "BestChannel BestNorm ChannelThenNorm",
        "fedcell.runs.contest": "Scenario Tournament load_scenarios",
        "fedcell.runs.models": "SavedModel Score load_model save_model",
        "fedcell.runs.race": "RaceResult run_race",
        "fedcell.runs.runner": "RoundsDone RunDone RunFailed Runner WorkerLost",
        "fedcell.runs.store": "Store",
        "fedcell.runs.sweep": "SweepResult run_sweep",
        "fedcell.runs.tournament": "TournamentResult run_tournament",
        "fedcell.runs.trackers": "tracking",
        "fedcell.sim.spec_warnings": "SpecWarning",
        "fedcell.sim.loop": "simulate",
        "fedcell.sim.record": "RoundRecord",
        "fedcell.sim.spec": "CellSpec DevicesSpec Spec TaskSpec load_spec",
        "fedcell.world": "Always Cell Conditions DayNight Devices Mcs64 Mcs256 PaperChannel RMa RandomWaypoint Redrawn "
        "Shannon SnrTrace Static Trace UMa UMi World mean_upload_s",
    },
)


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "POLICIES",
    "TABLE_I",
    "AgeOfUpdate",
    "All",
    "Allocation",
    "Always",
    "Auto",
    "BestChannel",
    "BestNorm",
    "Blocks",
    "Cell",
    "CellSpec",
    "ChannelThenNorm",
    "Conditions",
    "CsUcb",
    "Dataset",
    "DayNight",
    "Deadline",
    "Dedicated",
    "Density",
    "Devices",
    "DevicesSpec",
    "DivFl",
    "Diverse",
    "FedCS",
    "FedCbs",
    "FedCgd",
    "Greedy",
    "Ingress",
    "InputError",
    "Law",
    "Mcs64",
    "Mcs256",
    "Multicast",
    "Oort",
    "Optimal",
    "PaperChannel",
    "Plan",
    "Policy",
    "Power",
    "PowerOfChoice",
    "ProportionalFair",
    "Question",
    "RMa",
    "RaceResult",
    "Random",
    "RandomWaypoint",
    "Redrawn",
    "Report",
    "RoundRecord",
    "RoundRobin",
    "RoundTimeBounds",
    "RoundView",
    "RoundsDone",
    "RoundsFit",
    "RoundsModel",
    "RunDone",
    "RunFailed",
    "Runner",
    "SavedModel",
    "Scenario",
    "Score",
    "Shannon",
    "SnrTrace",
    "Spec",
    "SpecWarning",
    "Static",
    "Store",
    "SweepResult",
    "TaskSpec",
    "TiFL",
    "Tournament",
    "TournamentResult",
    "Trace",
    "UMa",
    "UMi",
    "Unicast",
    "WorkerLost",
    "World",
    "allocate",
    "dataset_from",
    "fit_rounds",
    "format_law",
    "format_policy",
    "load_dataset",
    "load_model",
    "load_scenarios",
    "load_spec",
    "mean_upload_s",
    "objective",
    "parse_law",
    "parse_policy",
    "round_time_bounds",
    "rounds_needed",
    "run_race",
    "run_sweep",
    "run_tournament",
    "save_dataset",
    "save_model",
    "simulate",
    "tracking",
]
