"""Who trains this round, with how much of the band: policies, link laws and what they need to know."""

from typing import TYPE_CHECKING

from fedcell import lazy_names

if TYPE_CHECKING:
    from fedcell.schedule.auto import Auto
    from fedcell.schedule.bandwidth import Allocation, Sharing, allocate
    from fedcell.schedule.baselines import All, Deadline, ProportionalFair, Random, RoundRobin
    from fedcell.schedule.convergence import (
        TABLE_I,
        Interval,
        RoundsFit,
        RoundsModel,
        RoundTimeBounds,
        fit_rounds,
        largest_set,
        objective,
        round_time_bounds,
        rounds_needed,
    )
    from fedcell.schedule.diverse import Diverse
    from fedcell.schedule.downlink import Downlink, Multicast, Unicast
    from fedcell.schedule.greedy import ByObjective, Greedy
    from fedcell.schedule.laws import LAWS, Blocks, Dedicated, Density, Ingress, Law, Power, format_law, parse_law
    from fedcell.schedule.optimal import Optimal, shortest_rounds
    from fedcell.schedule.plan import Links, Plan, Question, Report, Times, Timing
    from fedcell.schedule.policy import Policy, cap_k, max_scheduled
    from fedcell.schedule.profiles import (
        Profiles,
        balanced_weights,
        imbalance,
        imbalances_without,
        profiles_of,
        standardise,
    )
    from fedcell.schedule.registry import POLICIES, format_policy, parse_policy
    from fedcell.schedule.view import RoundView, Undeclared
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

__all__ = [
    "LAWS",
    "POLICIES",
    "TABLE_I",
    "AgeOfUpdate",
    "All",
    "Allocation",
    "Auto",
    "BestChannel",
    "BestNorm",
    "Blocks",
    "ByObjective",
    "ChannelThenNorm",
    "CsUcb",
    "Deadline",
    "Dedicated",
    "Density",
    "DivFl",
    "Diverse",
    "Downlink",
    "FedCS",
    "FedCbs",
    "FedCgd",
    "Greedy",
    "Ingress",
    "Interval",
    "Law",
    "Links",
    "Multicast",
    "Oort",
    "Optimal",
    "Plan",
    "Policy",
    "Power",
    "PowerOfChoice",
    "Profiles",
    "ProportionalFair",
    "Question",
    "Random",
    "Report",
    "RoundRobin",
    "RoundTimeBounds",
    "RoundView",
    "RoundsFit",
    "RoundsModel",
    "Sharing",
    "TiFL",
    "Times",
    "Timing",
    "Undeclared",
    "Unicast",
    "allocate",
    "balanced_weights",
    "cap_k",
    "fit_rounds",
    "format_law",
    "format_policy",
    "imbalance",
    "imbalances_without",
    "largest_set",
    "max_scheduled",
    "objective",
    "parse_law",
    "parse_policy",
    "profiles_of",
    "round_time_bounds",
    "rounds_needed",
    "shortest_rounds",
    "standardise",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        "fedcell.schedule",
        {
            "fedcell.schedule.auto": "Auto",
            "fedcell.schedule.bandwidth": "Allocation Sharing allocate",
            "fedcell.schedule.baselines": "All Deadline ProportionalFair Random RoundRobin",
            "fedcell.schedule.convergence": "Interval RoundTimeBounds RoundsFit RoundsModel TABLE_I fit_rounds"
            " largest_set objective round_time_bounds rounds_needed",
            "fedcell.schedule.diverse": "Diverse",
            "fedcell.schedule.downlink": "Downlink Multicast Unicast",
            "fedcell.schedule.greedy": "ByObjective Greedy",
            "fedcell.schedule.laws": "Blocks Dedicated Density Ingress LAWS Law Power format_law parse_law",
            "fedcell.schedule.optimal": "Optimal shortest_rounds",
            "fedcell.schedule.plan": "Links Plan Question Report Times Timing",
            "fedcell.schedule.policy": "Policy cap_k max_scheduled",
            "fedcell.schedule.profiles": "Profiles balanced_weights imbalance imbalances_without profiles_of"
            " standardise",
            "fedcell.schedule.registry": "POLICIES format_policy parse_policy",
            "fedcell.schedule.view": "RoundView Undeclared",
            "fedcell.schedule.zoo.age_of_update": "AgeOfUpdate",
            "fedcell.schedule.zoo.cs_ucb": "CsUcb",
            "fedcell.schedule.zoo.div_fl": "DivFl",
            "fedcell.schedule.zoo.fed_cbs": "FedCbs",
            "fedcell.schedule.zoo.fed_cgd": "FedCgd",
            "fedcell.schedule.zoo.fedcs": "FedCS",
            "fedcell.schedule.zoo.norms": "BestChannel BestNorm ChannelThenNorm",
            "fedcell.schedule.zoo.oort": "Oort",
            "fedcell.schedule.zoo.power_of_choice": "PowerOfChoice",
            "fedcell.schedule.zoo.tifl": "TiFL",
        },
        {"limited": "cap_k", "room": "max_scheduled"},
    )
